/* SPDX-License-Identifier: Apache-2.0 */

/* The file tools against somebody who swaps directories and links under their feet.
 *
 * A child process flips, with renameat2(RENAME_EXCHANGE) and as fast as it can, a
 * directory with a link to a directory outside, a file with a link to a file outside, and
 * a directory in the middle of a path with a link outside.  Meanwhile at least a million
 * operations go through those names.  Every descriptor that the library opens is looked
 * at: its file must lie below the root.  At the end the outside must be as it was.
 *
 * The negative control does what the file tools must not do: it resolves a path, checks
 * that it lies inside, and opens it by name.  It has to be caught, or this test could not
 * see an escape. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../unit/harness.h"
#include "sys/path.h"

enum { OPERATIONS = 1000000, CONTROL_SECONDS = 60 };

static char top[PATH_MAX], root[PATH_MAX + 8], outside[PATH_MAX + 8];
static uint64_t looked_at;

static bool lies_below(int fd, const char *directory)
{
    char name[32], path[PATH_MAX];

    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    ssize_t len = readlink(name, path, sizeof path - 1);
    ASSERT(len > 0);
    path[len] = '\0';
    size_t prefix = strlen(directory);
    if (strncmp(path, directory, prefix) == 0 && (!path[prefix] || path[prefix] == '/'))
        return true;
    fprintf(stderr, "# an open file lies at %s\n", path);
    return false;
}

/* The linker puts these in front of the library's own. */
int __real_path_open(int dir, const char *path, uint64_t flags, uint64_t mode,
                     uint64_t resolve);
int __wrap_path_open(int dir, const char *path, uint64_t flags, uint64_t mode,
                     uint64_t resolve);
int __real_path_reopen(int fd, int flags);
int __wrap_path_reopen(int fd, int flags);
int __real_path_resolve(int dir, const char *host, const char *rel, int follow_last,
                        char *ret_rel, int *ret_fd, struct stat *ret_stat);
int __wrap_path_resolve(int dir, const char *host, const char *rel, int follow_last,
                        char *ret_rel, int *ret_fd, struct stat *ret_stat);

static void look_at(int fd)
{
    if (fd < 0)
        return;
    looked_at++;
    ASSERT(lies_below(fd, root));
}

int __wrap_path_open(int dir, const char *path, uint64_t flags, uint64_t mode,
                     uint64_t resolve)
{
    int opened = __real_path_open(dir, path, flags, mode, resolve);

    look_at(opened);
    return opened;
}

int __wrap_path_reopen(int fd, int flags)
{
    int opened = __real_path_reopen(fd, flags);

    look_at(opened);
    return opened;
}

int __wrap_path_resolve(int dir, const char *host, const char *rel, int follow_last,
                        char *ret_rel, int *ret_fd, struct stat *ret_stat)
{
    int error =
        __real_path_resolve(dir, host, rel, follow_last, ret_rel, ret_fd, ret_stat);

    if (error == 0)
        look_at(*ret_fd);
    return error;
}

static void put(const char *directory, const char *name, const char *text)
{
    char path[2 * PATH_MAX];

    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "we");
    ASSERT(file && fputs(text, file) >= 0 && fclose(file) == 0);
}

static void make(const char *directory, const char *name)
{
    char path[2 * PATH_MAX];

    snprintf(path, sizeof path, "%s/%s", directory, name);
    ASSERT(mkdir(path, 0700) == 0);
}

static void link_out(const char *name, const char *target)
{
    char path[2 * PATH_MAX], to[2 * PATH_MAX];

    snprintf(path, sizeof path, "%s/%s", root, name);
    snprintf(to, sizeof to, "%s/%s", outside, target);
    ASSERT(symlink(to, path) == 0);
}

/* In memory if possible: a disk would only slow both sides down. */
static void set_up(void)
{
    struct statfs fs;
    bool memory = statfs("/dev/shm", &fs) == 0 && access("/dev/shm", W_OK) == 0;

    snprintf(top, sizeof top, "%s/cay-race-XXXXXX", memory ? "/dev/shm" : scratch());
    ASSERT(mkdtemp(top));
    snprintf(root, sizeof root, "%s/root", top);
    snprintf(outside, sizeof outside, "%s/outside", top);
    make(top, "root");
    make(top, "outside");
    make(outside, "dir");
    put(outside, "file", "secret");
    put(outside, "dir/file", "secret");
    make(root, "dir");
    put(root, "dir/file", "inside");
    link_out("dir.link", "dir");
    put(root, "file", "inside");
    link_out("file.link", "file");
    make(root, "middle");
    make(root, "middle/dir");
    put(root, "middle/dir/file", "inside");
    link_out("middle.link", "");
    make(root, "still");
}

static void tear_down(void)
{
    char command[PATH_MAX + 64];

    /* The tree is ours and its name has no special characters. */
    snprintf(command, sizeof command, "%s", top);
    pid_t child = fork();
    if (child == 0) {
        execlp("rm", "rm", "-rf", "--", command, (char *)NULL);
        _exit(127);
    }
    int status;
    ASSERT(waitpid(child, &status, 0) == child && status == 0);
}

static void flip(int dir, const char *name)
{
    char link[64];

    snprintf(link, sizeof link, "%s.link", name);
    (void)path_rename(dir, name, dir, link, RENAME_EXCHANGE);
}

static pid_t start_flipping(void)
{
    pid_t child = fork();

    ASSERT(child >= 0);
    if (child > 0)
        return child;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int dir = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
    for (;;) {
        flip(dir, "dir");
        flip(dir, "file");
        flip(dir, "middle");
    }
}

static void stop_flipping(pid_t child)
{
    ASSERT(kill(child, SIGKILL) == 0);
    ASSERT(waitpid(child, NULL, 0) == child);
}

static cay_files *open_root(void)
{
    AUTO(cay_policy) policy = NULL;
    cay_files *files = NULL;
    struct cay_mount mount = CAY_MOUNT_INIT;
    const struct cay_policy_config config = {.size = sizeof config,
                                             .style = CAY_STYLE_ROOT,
                                             .mounts = &mount,
                                             .mount_count = 1};

    mount.host = root;
    mount.writable = true;
    mount.write_approval = false;
    ASSERT_OK(cay_policy_new(&config, &policy, &err));
    ASSERT_OK(cay_files_open(policy, NULL, &files, &err));
    return files;
}

static const char *const paths[] = {"/dir/file", "/file", "/middle/dir/file",
                                    "/dir.link/file", "/file.link"};

/* One operation; what it returns is judged by the caller. */
static int operate(cay_files *files, unsigned number)
{
    const char *path = paths[number % 5];
    struct cay_page page;
    struct cay_stat st;
    struct cay_listing listing;
    int code;

    switch (number / 5 % 16) {
    case 0:
        return cay_files_write(files, path, "inside", 6, NULL, &err);
    case 1: {
        const struct cay_write_options options = {.size = sizeof options,
                                                  .flags = CAY_WRITE_IN_PLACE};
        return cay_files_write(files, path, "inside", 6, &options, &err);
    }
    case 2: {
        const struct cay_edit edit = {"inside", 6, "inside", 6, 0};
        return cay_files_edit(files, path, &edit, 1, NULL, NULL, &err);
    }
    case 3:
        code = cay_files_copy(files, path, "/still/copy", NULL, &err);
        if (code == CAY_OK)
            code = cay_files_delete(files, "/still/copy", NULL, &err);
        return code;
    case 4:
        code = cay_files_list(files, "/middle", NULL, &listing, &err);
        if (code == CAY_OK)
            cay_listing_done(&listing);
        return code;
    case 5:
    case 6:
        return cay_files_stat(files, path, false, &st, &err);
    case 7:
        return cay_files_write(files, "/dir/new/deep/file", "inside", 6, NULL, &err);
    case 8: {
        const struct cay_name_options options = {.size = sizeof options,
                                                 .flags = CAY_NAME_RECURSIVE};
        return cay_files_delete(files, "/dir/new", &options, &err);
    }
    default:
        code = cay_files_read_bytes(files, path, NULL, &page, &err);
        if (code == CAY_OK) {
            ASSERT(!strstr(page.text, "secret"));
            cay_page_done(&page);
        }
        return code;
    }
}

static bool is_expected(int code)
{
    switch (code) {
    case CAY_OK:
    case CAY_E_OUTSIDE:
    case CAY_E_BUSY:
    case CAY_E_CHANGED:
    case CAY_E_NOT_FOUND:
    case CAY_E_NOT_A_FILE:
    case CAY_E_NOT_A_DIRECTORY:
    case CAY_E_NO_MATCH: /* an edit that sees a file being overwritten in place */
    case CAY_E_EXISTS:
        return true;
    default:
        return false;
    }
}

/* An outside that nothing has touched. */
static void check_outside(void)
{
    AUTO(cay_policy) policy = NULL;
    AUTO(cay_files) files = NULL;
    struct cay_listing listing;
    struct cay_page page;
    char text[PATH_MAX + 64];

    snprintf(text, sizeof text, "root: %s", outside);
    snprintf(root, sizeof root, "%s", outside);
    ASSERT_OK(cay_policy_parse(text, strlen(text), "outside", NULL, &policy, &err));
    ASSERT_OK(cay_files_open(policy, NULL, &files, &err));
    ASSERT_OK(cay_files_list(files, "/", NULL, &listing, &err));
    ASSERT_INT(listing.count, 2);
    ASSERT_STR(listing.entries[0].path, "/dir/file");
    ASSERT_STR(listing.entries[1].path, "/file");
    for (size_t i = 0; i < 2; i++) {
        ASSERT_OK(cay_files_read(files, listing.entries[i].path, NULL, &page, &err));
        ASSERT_STR(page.text, "secret");
        cay_page_done(&page);
    }
    cay_listing_done(&listing);
}

TEST(a_million_operations_under_attack_never_leave_the_root)
{
    unsigned outcomes[64] = {0};

    set_up();
    cay_files *files = open_root();
    pid_t child = start_flipping();
    for (unsigned i = 0; i < OPERATIONS; i++) {
        int code = operate(files, i);
        if (!is_expected(code))
            harness_fail(__FILE__, __LINE__, "operation %u gave %s: %s: %s", i,
                         cay_code_slug(code), err.subject, err.message);
        outcomes[-code]++;
    }
    stop_flipping(child);
    cay_files_free(files);
    printf("# %d operations, %llu open files looked at:", OPERATIONS,
           (unsigned long long)looked_at);
    for (int i = 0; i < 64; i++)
        if (outcomes[i])
            printf(" %s %u", cay_code_slug(-i), outcomes[i]);
    printf("\n");
    ASSERT(outcomes[0] > OPERATIONS / 100);
    ASSERT(outcomes[-CAY_E_OUTSIDE] > OPERATIONS / 100);
    ASSERT(looked_at > OPERATIONS / 2);
    check_outside();
    tear_down();
}

TEST(the_naive_way_is_caught)
{
    struct timespec start, now;
    char path[2 * PATH_MAX], real[PATH_MAX];
    uint64_t tries = 0;
    bool caught = false;

    set_up();
    snprintf(path, sizeof path, "%s/dir/file", root);
    pid_t child = start_flipping();
    clock_gettime(CLOCK_MONOTONIC, &start);
    do {
        tries++;
        if (realpath(path, real) && strncmp(real, root, strlen(root)) == 0) {
            AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC);
            char text[8] = "";
            caught = fd >= 0 && read(fd, text, 6) == 6 && strcmp(text, "secret") == 0;
        }
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (!caught && now.tv_sec - start.tv_sec < CONTROL_SECONDS);
    stop_flipping(child);
    printf("# the naive way read the secret after %llu tries\n",
           (unsigned long long)tries);
    tear_down();
    ASSERT(caught);
}
