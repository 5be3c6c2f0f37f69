/* SPDX-License-Identifier: Apache-2.0 */
#include "files/walk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"
#include "sys/path.h"

/* The disk takes minutes for a hundred thousand directories, memory one second. */
static void use_memory(void)
{
    if (access("/dev/shm", W_OK) == 0)
        ASSERT(setenv("TMPDIR", "/dev/shm", 1) == 0);
}

static int open_scratch(const char *name)
{
    int fd = open(scratch_path(name), O_PATH | O_DIRECTORY | O_CLOEXEC);

    ASSERT(fd >= 0);
    return fd;
}

static struct walk *walk_scratch(int dir, const char *after)
{
    struct walk_options options = {.fs = &fs_direct,
                                   .root = dir,
                                   .real = "",
                                   .max_depth = UINT32_MAX,
                                   .after = after};
    struct walk *walk;

    ASSERT_OK(walk_new("test", dir, &options, &walk, &err));
    return walk;
}

/* The names of a walk that enters everything, one per line. */
static void walk_all(int dir, const char *after, struct buf *ret_names)
{
    struct walk *walk = walk_scratch(dir, after);
    struct walk_step step;
    int code;

    buf_init(ret_names, 64 << 20);
    memset(&err, 0, sizeof err);
    while ((code = walk_next(walk, &step, &err)) > 0) {
        if (step.event == WALK_NAME) {
            buf_text(ret_names, step.rel);
            buf_text(ret_names, "\n");
        } else if (step.type == DT_DIR) {
            ASSERT_OK(walk_enter(walk, 0, &err));
        }
    }
    walk_free(walk);
    ASSERT_INT(code, 0);
    buf_append(ret_names, "", 0);
    ASSERT(!ret_names->failed);
}

static void make_directory(int dir, const char *name)
{
    ASSERT(mkdirat(dir, name, 0777) == 0);
}

static void make_file(int dir, const char *name)
{
    int fd = openat(dir, name, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);

    ASSERT(fd >= 0);
    close(fd);
}

TEST(names_come_in_the_order_of_their_paths_as_bytes)
{
    AUTO_BUF names;

    put_file("t/a/b", "");
    put_file("t/a/c/d", "");
    put_file("t/a.txt", "");
    put_file("t/a-b/x", "");
    put_file("t/a0", "");
    put_file("t/B", "");
    put_file("t/\xff", "");
    AUTO_FD dir = open_scratch("t");
    walk_all(dir, NULL, &names);
    ASSERT_STR(names.data, "B\na\na-b\na-b/x\na.txt\na/b\na/c\na/c/d\na0\n\xff\n");
}

TEST(after_leaves_out_what_sorts_before_it_and_nothing_else)
{
    static const char all[] = "B\na\na-b\na-b/x\na.txt\na/b\na/c\na/c/d\na0\n";
    AUTO_BUF names;

    put_file("t/a/b", "");
    put_file("t/a/c/d", "");
    put_file("t/a.txt", "");
    put_file("t/a-b/x", "");
    put_file("t/a0", "");
    put_file("t/B", "");
    AUTO_FD dir = open_scratch("t");
    for (const char *line = all; *line;) {
        char after[16] = "";
        size_t len = strcspn(line, "\n");
        memcpy(after, line, len);
        line += len + 1;
        walk_all(dir, after, &names);
        ASSERT_STR(names.data, line);
        buf_done(&names);
    }
    walk_all(dir, "a/bb/zz", &names); /* a path that does not exist */
    ASSERT_STR(names.data, "a/c\na/c/d\na0\n");
    buf_done(&names);
    walk_all(dir, "zzz", &names);
    ASSERT_STR(names.data, "");
    buf_done(&names);
    walk_all(dir, "\xff", &names);
    ASSERT_STR(names.data, "");
}

TEST(links_are_named_but_not_entered)
{
    AUTO_BUF names;

    put_file("outside/secret", "");
    put_file("t/a", "");
    ASSERT(symlink("../outside", scratch_path("t/link")) == 0);
    ASSERT(symlink(".", scratch_path("t/self")) == 0);
    AUTO_FD dir = open_scratch("t");
    walk_all(dir, NULL, &names);
    ASSERT_STR(names.data, "a\nlink\nself\n");
}

/* Forty thousand names of 250 bytes are more than the walk keeps at a time. */
TEST(a_directory_with_more_names_than_memory_is_walked_in_parts)
{
    enum { COUNT = 40000 };
    char name[251], previous[251] = "";
    struct walk_step step;
    int count = 0, code;

    use_memory();
    put_file("t/x", "");
    AUTO_FD dir = open_scratch("t");
    for (int i = 0; i < COUNT; i++) {
        /* Neither in order nor in the reverse of it. */
        snprintf(name, sizeof name, "%0250d", i * 7919 % COUNT);
        make_file(dir, name);
    }
    struct walk *walk = walk_scratch(dir, NULL);
    while ((code = walk_next(walk, &step, &err)) > 0) {
        if (strlen(step.name) != 250)
            continue;
        ASSERT(strcmp(previous, step.name) < 0);
        memcpy(previous, step.name, sizeof previous);
        count++;
    }
    walk_free(walk);
    ASSERT_INT(code, 0);
    ASSERT_INT(count, COUNT);
}

static void with_few_descriptors(rlim_t count, struct rlimit *ret_before)
{
    ASSERT(getrlimit(RLIMIT_NOFILE, ret_before) == 0);
    struct rlimit few = {count, ret_before->rlim_max};
    ASSERT(setrlimit(RLIMIT_NOFILE, &few) == 0);
}

/* Makes "d/d/d/..." of the given depth below `top`, each with a file in it. */
static void make_deep(int top, int depth, bool with_files)
{
    int dir = dup(top);

    for (int i = 0; i < depth; i++) {
        make_directory(dir, "d");
        int next = openat(dir, "d", O_PATH | O_DIRECTORY | O_CLOEXEC);
        ASSERT(next >= 0);
        if (with_files) {
            make_file(next, "b");
            make_file(next, "f");
        }
        close(dir);
        dir = next;
    }
    close(dir);
}

TEST(a_deep_tree_is_walked_with_a_bounded_number_of_descriptors)
{
    enum { DEPTH = 1500 };
    struct rlimit before;
    AUTO_BUF names;
    size_t lines = 0;

    use_memory();
    put_file("t/x", "");
    AUTO_FD dir = open_scratch("t");
    make_deep(dir, DEPTH, true);
    with_few_descriptors(90, &before);
    walk_all(dir, NULL, &names);
    ASSERT(setrlimit(RLIMIT_NOFILE, &before) == 0);
    for (const char *at = names.data; *at; at++)
        lines += *at == '\n';
    ASSERT_INT(lines,
               3 * DEPTH + 1); /* "f" comes after the whole of "d": on the way up */
    ASSERT_OK(tree_remove(&fs_direct, "test", dir, "d", "d", &err));
}

TEST(a_directory_that_is_replaced_while_it_is_closed_is_not_entered_again)
{
    struct walk_step step;
    int code, uppermost = 0;

    use_memory();
    put_file("t/x", "");
    AUTO_FD dir = open_scratch("t");
    make_deep(dir, 100, true);
    struct walk *walk = walk_scratch(dir, NULL);
    while ((code = walk_next(walk, &step, &err)) > 0) {
        if (step.event == WALK_BELOW)
            ASSERT_OK(walk_enter(walk, 0, &err));
        if (step.depth == 101 && step.event == WALK_NAME && *step.name == 'b') {
            ASSERT(renameat(dir, "d", dir, "moved") == 0);
            make_deep(dir, 3, true);
        }
        uppermost += step.depth == 2 && *step.name == 'f';
    }
    walk_free(walk);
    ASSERT_INT(code, 0);
    ASSERT_INT(uppermost, 0);
}

TEST(a_tree_deeper_than_any_path_is_walked_as_far_as_it_can_be_named)
{
    AUTO_BUF names;

    use_memory();
    put_file("t/x", "");
    AUTO_FD dir = open_scratch("t");
    make_deep(dir, 100000, false);
    walk_all(dir, NULL, &names);
    ASSERT(names.len > PATH_MAX);
    ASSERT_OK(tree_remove(&fs_direct, "test", dir, "d", "d", &err));
    ASSERT(faccessat(dir, "d", F_OK, 0) == -1 && errno == ENOENT);
}

TEST(a_walk_ends_at_its_deadline)
{
    struct walk_options options = {
        .fs = &fs_direct, .real = "", .max_depth = 10, .deadline_ns = 1 /* long ago */};
    struct walk_step step;
    struct walk *walk;

    put_file("t/x", "");
    AUTO_FD dir = open_scratch("t");
    options.root = dir;
    ASSERT_OK(walk_new("test", dir, &options, &walk, &err));
    ASSERT_CODE(walk_next(walk, &step, &err), CAY_E_TIMEOUT);
    walk_free(walk);
}

TEST(removing_a_tree_leaves_what_its_links_lead_to)
{
    put_file("outside/kept", "kept");
    put_file("t/a/b/c", "");
    put_file("t/a/empty/x", "");
    ASSERT(symlink("../../outside", scratch_path("t/a/link")) == 0);
    ASSERT(symlink("../../outside/kept", scratch_path("t/a/b/file-link")) == 0);
    ASSERT(mkfifo(scratch_path("t/a/fifo"), 0600) == 0);
    AUTO_FD dir = open_scratch("t");
    ASSERT_OK(tree_remove(&fs_direct, "test", dir, "a", "a", &err));
    ASSERT(faccessat(dir, "a", F_OK, AT_SYMLINK_NOFOLLOW) == -1);
    ASSERT_STR(get_file("outside/kept"), "kept");
}

TEST(removing_works_for_a_file_a_link_and_an_empty_directory)
{
    put_file("t/file", "");
    put_file("t/kept/x", "");
    ASSERT(mkdir(scratch_path("t/empty"), 0777) == 0);
    ASSERT(symlink("kept", scratch_path("t/link")) == 0);
    AUTO_FD dir = open_scratch("t");
    ASSERT_OK(tree_remove(&fs_direct, "test", dir, "file", "file", &err));
    ASSERT_OK(tree_remove(&fs_direct, "test", dir, "empty", "empty", &err));
    ASSERT_OK(tree_remove(&fs_direct, "test", dir, "link", "link", &err));
    ASSERT_STR(get_file("t/kept/x"), "");
}

TEST(a_wide_and_deep_tree_is_removed_with_few_descriptors)
{
    struct rlimit before;

    use_memory();
    put_file("t/x", "");
    AUTO_FD dir = open_scratch("t");
    for (int i = 0; i < 3; i++) {
        char name[16];
        snprintf(name, sizeof name, "top-%d", i);
        make_directory(dir, name);
        AUTO_FD top = openat(dir, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
        make_deep(top, 200, true);
        for (int j = 0; j < 300; j++) {
            char sub[16];
            snprintf(sub, sizeof sub, "sub-%d", j);
            make_directory(top, sub);
            AUTO_FD below = openat(top, sub, O_PATH | O_DIRECTORY | O_CLOEXEC);
            make_file(below, "file");
        }
    }
    with_few_descriptors(90, &before);
    for (int i = 0; i < 3; i++) {
        char name[16];
        snprintf(name, sizeof name, "top-%d", i);
        ASSERT_OK(tree_remove(&fs_direct, "test", dir, name, name, &err));
    }
    ASSERT(setrlimit(RLIMIT_NOFILE, &before) == 0);
    ASSERT(unlinkat(dir, "x", 0) == 0);
    ASSERT(rmdir(scratch_path("t")) == 0);
}

/* 0: as it should be; 1: something else; 2: cannot be tried here. */
static int remove_with_mount_inside(const char *top, const char *point)
{
    struct cay_error error = {0};
    int dir = open(top, O_PATH | O_DIRECTORY | O_CLOEXEC);
    char kept[PATH_MAX];

    if (unshare(CLONE_NEWNS) != 0 ||
        mount("none", "/", "none", MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("tmpfs", point, "tmpfs", 0, NULL) != 0)
        return 2;
    snprintf(kept, sizeof kept, "%s/kept", point);
    int fd = open(kept, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    if (fd < 0 || tree_remove(&fs_direct, "test", dir, "a", "a", &error) != CAY_E_BUSY)
        return 1;
    return access(kept, F_OK) == 0 && strstr(error.message, "mounted") ? 0 : 1;
}

TEST(removing_a_tree_stops_at_what_is_mounted_in_it)
{
    int status;

    put_file("t/a/b/c", "");
    const char *top = scratch_path("t"), *point = scratch_path("t/a/b");
    pid_t pid = fork();
    if (pid == 0)
        _exit(remove_with_mount_inside(top, point));
    ASSERT_INT(waitpid(pid, &status, 0), pid);
    if (WEXITSTATUS(status) == 2)
        SKIP("mounting is not permitted here");
    ASSERT_INT(WEXITSTATUS(status), 0);
}

static atomic_bool stop_flipping;

static void *flip(void *dir)
{
    while (!atomic_load(&stop_flipping))
        (void)path_rename(*(int *)dir, "a/d", *(int *)dir, "a/link", RENAME_EXCHANGE);
    return NULL;
}

TEST(a_directory_swapped_for_a_link_during_removal_leads_nowhere)
{
    pthread_t thread;

    use_memory();
    put_file("outside/deep/kept", "kept");
    put_file("t/x", "");
    AUTO_FD dir = open_scratch("t");
    atomic_store(&stop_flipping, false);
    ASSERT(pthread_create(&thread, NULL, flip, &dir) == 0);
    for (int i = 0; i < 300; i++) {
        put_file("t/a/d/deep/x", "");
        put_file("t/a/d/deep/y", "");
        ASSERT(symlink("../../outside", scratch_path("t/a/link")) == 0);
        int code = tree_remove(&fs_direct, "test", dir, "a", "a", NULL);
        if (code != CAY_OK && code != CAY_E_BUSY)
            ASSERT_STR(cay_code_slug(code), "busy");
        while (tree_remove(&fs_direct, "test", dir, "a", "a", NULL) != CAY_OK)
            continue;
    }
    atomic_store(&stop_flipping, true);
    pthread_join(thread, NULL);
    ASSERT_STR(get_file("outside/deep/kept"), "kept");
}
