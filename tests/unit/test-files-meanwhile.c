/* SPDX-License-Identifier: Apache-2.0 */

/* What happens between two system calls of one operation: the file system's own calls
 * are kept, but for one before which, or instead of which, something else is done. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "files/handle.h"
#include "policies.h"
#include "sys/copy.h"

static struct fs changed;

static void put_between(cay_files *files, const struct fs *fs)
{
    changed = *fs;
    files->fs = &changed;
}

static int replace_and_draft(const struct fs *fs, int dir, mode_t mode, int model,
                             uint64_t room, char ret_temp[FS_TEMP_MAX])
{
    (void)fs;
    put_file("data/new", "somebody else's");
    ASSERT_INT(rename(scratch_path("data/new"), scratch_path("data/a")), 0);
    return fs_direct.draft(&fs_direct, dir, mode, model, room, ret_temp);
}

TEST(an_edit_in_place_is_not_lost_to_who_replaces_the_file_meanwhile)
{
    AUTO(cay_files) files = open_data();
    const struct cay_edit edit = {"hello", 5, "HELLO", 5, 0};
    const struct cay_write_options options = {.size = sizeof options,
                                              .flags = CAY_WRITE_IN_PLACE};
    struct fs fs = fs_direct;

    fs.draft = replace_and_draft;
    put_file("data/a", "hello");
    put_between(files, &fs);
    ASSERT_CODE(cay_files_edit(files, "data/a", &edit, 1, &options, NULL, &err),
                CAY_E_CHANGED);
    ASSERT_STR(get_file("data/a"), "somebody else's");
}

static int open_no_directory(const struct fs *fs, int fd, int flags, bool *ret_copied)
{
    (void)fs;
    return flags & O_DIRECTORY ? -EACCES
                               : fs_direct.reopen(&fs_direct, fd, flags, ret_copied);
}

TEST(a_durable_write_below_a_directory_that_cannot_be_synced_is_not_done)
{
    AUTO(cay_files) files = open_data();
    const struct cay_write_options options = {.size = sizeof options,
                                              .flags = CAY_WRITE_DURABLE};
    struct fs fs = fs_direct;

    fs.reopen = open_no_directory;
    put_file("data/a", "old");
    put_between(files, &fs);
    ASSERT_CODE(cay_files_write(files, "data/a", "new", 3, &options, &err), CAY_E_DENIED);
    ASSERT_STR(get_file("data/a"), "old");
    ASSERT_CODE(cay_files_write(files, "data/b/c", "new", 3, &options, &err),
                CAY_E_DENIED);
    ASSERT(access(scratch_path("data/b"), F_OK) != 0);
}

static int find_and_grow(const struct fs *fs, int dir, const char *host, const char *path,
                         unsigned flags, char ret_rel[PATH_MAX],
                         struct fs_found *ret_found)
{
    (void)fs;
    int error = fs_direct.find(&fs_direct, dir, host, path, flags, ret_rel, ret_found);
    put_file("data/a", "longer than is allowed");
    return error;
}

TEST(a_file_that_grows_over_the_limit_while_it_is_opened_is_not_read)
{
    struct cay_mount mount = CAY_MOUNT_INIT;
    struct cay_page page;
    struct fs fs = fs_direct;
    AUTO_FD null = open("/dev/null", O_WRONLY | O_CLOEXEC);

    mount.name = "data";
    mount.host = "data";
    mount.max_file_bytes = 8;
    put_file("data/a", "short");
    AUTO(cay_files) files = open_mounts(CAY_STYLE_PATHS, &mount, 1);
    fs.find = find_and_grow;
    put_between(files, &fs);
    ASSERT_CODE(cay_files_read_bytes(files, "data/a", NULL, &page, &err),
                CAY_E_TOO_LARGE);
    put_file("data/a", "short");
    ASSERT_CODE(cay_files_read_to(files, "data/a", null, NULL, &err), CAY_E_TOO_LARGE);
}

enum { ISLAND = 1 << 20, APART = 16 << 20 };

/* Two islands and the water between them, that come and go. */
static _Noreturn void come_and_go(int fd)
{
    static char island[ISLAND];

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    for (;;)
        if (pwrite(fd, island, ISLAND, 0) != ISLAND ||
            pwrite(fd, island, ISLAND, APART) != ISLAND || usleep(200) != 0 ||
            ftruncate(fd, 0) != 0)
            _exit(1);
}

TEST(a_file_with_holes_that_becomes_shorter_is_copied_as_far_as_it_goes)
{
    const char *path = scratch_path("from");
    int from = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    int to = open(scratch_path("to"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    uint64_t copied;

    ASSERT(from >= 0 && to >= 0);
    pid_t pid = fork();
    ASSERT(pid >= 0);
    if (pid == 0)
        come_and_go(from);
    for (int found = 0; found < 300;) {
        int own = open(path, O_RDONLY | O_CLOEXEC);
        ASSERT(own >= 0);
        ASSERT(ftruncate(to, 0) == 0 && lseek(to, 0, SEEK_SET) == 0);
        int error = copy_bytes(own, to, APART + ISLAND, &copied);
        (void)close(own);
        if (error) {
            (void)kill(pid, SIGKILL);
            ASSERT_INT(error, 0);
        }
        ASSERT(copied <= APART + ISLAND);
        found += copied > 0;
    }
    ASSERT(kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid);
    (void)close(from);
    (void)close(to);
}
