/* SPDX-License-Identifier: Apache-2.0 */

/* Content from and to descriptors, links, and what may be done with a file. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "policies.h"

/* Below the umask that the tests are run with. */
static void set_mode(const char *name, mode_t mode)
{
    ASSERT_INT(chmod(scratch_path(name), mode), 0);
}

static struct stat stat_file(const char *name)
{
    struct stat st;

    ASSERT_INT(lstat(scratch_path(name), &st), 0);
    return st;
}

static int open_scratch(const char *name, int flags)
{
    int fd = open(scratch_path(name), flags | O_CLOEXEC, 0600);

    ASSERT(fd >= 0);
    return fd;
}

static int write_from(cay_files *files, const char *path, int fd, unsigned flags,
                      uint64_t *ret_bytes)
{
    const struct cay_write_options options = {.size = sizeof options, .flags = flags};

    return cay_files_write_from(files, path, fd, &options, ret_bytes, &err);
}

TEST(a_file_of_any_length_goes_to_a_descriptor_and_comes_from_one)
{
    enum { LEN = 3 << 20 };
    AUTO(cay_files) files = open_data();
    AUTO_FREE char *bytes = malloc(LEN);
    struct cay_stat stat;
    uint64_t count = 0;

    for (size_t i = 0; i < LEN; i++)
        bytes[i] = (char)(i * 7 + i / 251);
    put_bytes("from", bytes, LEN);
    AUTO_FD from = open_scratch("from", O_RDONLY);
    ASSERT_OK(write_from(files, "data/new/a", from, 0, &count));
    ASSERT_INT(count, LEN);
    AUTO_FD to = open_scratch("to", O_RDWR | O_CREAT);
    ASSERT_OK(cay_files_read_to(files, "data/new/a", to, &stat, &err));
    ASSERT_INT(stat.bytes, LEN);
    ASSERT_INT(stat.type, CAY_TYPE_FILE);
    AUTO_FREE char *back = malloc(LEN);
    ASSERT_INT(pread(to, back, LEN, 0), LEN);
    ASSERT(memcmp(bytes, back, LEN) == 0);
}

/* A process in a sandbox can create a sparse file that is longer than any disk. */
TEST(holes_stay_holes)
{
    AUTO(cay_files) files = open_data();
    AUTO_FD from = open_scratch("from", O_RDWR | O_CREAT);
    char byte[2] = {'x', 'x'};
    uint64_t count = 0;

    ASSERT_INT(pwrite(from, "begin", 5, 0), 5);
    ASSERT_INT(pwrite(from, "middle", 6, 1l << 39), 6);
    ASSERT_INT(ftruncate(from, 1l << 40), 0);
    ASSERT_OK(write_from(files, "data/a", from, 0, &count));
    ASSERT_INT(count, 1l << 40);
    struct stat st = stat_file("data/a");
    ASSERT_INT(st.st_size, 1l << 40);
    ASSERT(st.st_blocks < 10000);
    AUTO_FD to = open_scratch("to", O_RDWR | O_CREAT);
    ASSERT_OK(cay_files_read_to(files, "data/a", to, NULL, &err));
    st = stat_file("to");
    ASSERT_INT(st.st_size, 1l << 40);
    ASSERT(st.st_blocks < 10000);
    char middle[7] = "";
    ASSERT_INT(pread(to, middle, 6, 1l << 39), 6);
    ASSERT_STR(middle, "middle");
    ASSERT_INT(pread(to, byte, 1, 5), 1);
    ASSERT_INT(byte[0], 0);
    /* Over what is there, a hole is zeros. */
    enum { LEN = 1 << 20 };
    AUTO_FREE char *full = malloc(LEN);
    memset(full, 'f', LEN);
    put_bytes("data/full", full, LEN);
    AUTO_FD hollow = open_scratch("hollow", O_RDWR | O_CREAT);
    ASSERT_INT(ftruncate(hollow, LEN), 0);
    ASSERT_OK(write_from(files, "data/full", hollow, CAY_WRITE_IN_PLACE, &count));
    ASSERT_INT(count, LEN);
    AUTO_FD now = open_scratch("data/full", O_RDONLY);
    ASSERT_INT(pread(now, byte, 1, LEN / 2), 1);
    ASSERT_INT(byte[0], 0);
}

TEST(what_comes_from_a_pipe_is_written_to_its_end)
{
    AUTO(cay_files) files = open_data();
    uint64_t count = 0;
    int ends[2], status;

    ASSERT_INT(pipe2(ends, O_CLOEXEC), 0);
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < 100000; i++)
            (void)!write(ends[1], "0123456789", 10);
        _exit(0);
    }
    (void)close(ends[1]);
    ASSERT_OK(write_from(files, "data/a", ends[0], 0, &count));
    (void)close(ends[0]);
    ASSERT_INT(waitpid(child, &status, 0), child);
    ASSERT_INT(count, 1000000);
    ASSERT_INT(stat_file("data/a").st_size, 1000000);
    ASSERT_INT(strlen(get_file("data/a")), 1000000);
}

TEST(a_stream_starts_where_the_descriptor_stands)
{
    AUTO(cay_files) files = open_data();

    put_file("from", "0123456789");
    AUTO_FD from = open_scratch("from", O_RDONLY);
    ASSERT_INT(lseek(from, 4, SEEK_SET), 4);
    ASSERT_OK(write_from(files, "data/a", from, 0, NULL));
    ASSERT_STR(get_file("data/a"), "456789");
}

TEST(a_stream_is_appended_or_put_over_a_file_when_asked)
{
    AUTO(cay_files) files = open_data();

    put_file("from", "new");
    put_file("data/a", "old text");
    ino_t before = stat_file("data/a").st_ino;
    AUTO_FD from = open_scratch("from", O_RDONLY);
    ASSERT_OK(write_from(files, "data/a", from, CAY_WRITE_APPEND, NULL));
    ASSERT_STR(get_file("data/a"), "old textnew");
    ASSERT_INT(lseek(from, 0, SEEK_SET), 0);
    ASSERT_OK(write_from(files, "data/a", from, CAY_WRITE_IN_PLACE, NULL));
    ASSERT_STR(get_file("data/a"), "new");
    ASSERT_INT(stat_file("data/a").st_ino, before);
    ASSERT_CODE(write_from(files, "data/a", from, CAY_WRITE_NEW, NULL), CAY_E_EXISTS);
}

TEST(a_file_that_is_added_to_itself_is_there_twice)
{
    AUTO(cay_files) files = open_data();
    const struct rlimit limit = {1 << 20, RLIM_INFINITY};
    struct rlimit before;
    uint64_t bytes = 0;

    put_file("data/a", "0123456789");
    AUTO_FD from = open_scratch("data/a", O_RDONLY);
    ASSERT(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    ASSERT_INT(getrlimit(RLIMIT_FSIZE, &before), 0);
    ASSERT_INT(setrlimit(RLIMIT_FSIZE, &limit), 0);
    int code = write_from(files, "data/a", from, CAY_WRITE_APPEND, &bytes);
    ASSERT_INT(setrlimit(RLIMIT_FSIZE, &before), 0);
    ASSERT_INT(code, CAY_OK);
    ASSERT_INT(bytes, 10);
    ASSERT_STR(get_file("data/a"), "01234567890123456789");
}

TEST(mode_and_time_of_the_source_are_kept_when_asked_but_not_its_set_user_id)
{
    const struct timespec times[2] = {{.tv_sec = 5}, {.tv_sec = 1234567, .tv_nsec = 89}};
    AUTO(cay_files) files = open_data();

    put_file("from", "#!/bin/sh\n");
    set_mode("from", 06775);
    AUTO_FD from = open_scratch("from", O_RDONLY);
    ASSERT_INT(futimens(from, times), 0);
    ASSERT_OK(write_from(files, "data/a", from, CAY_WRITE_KEEP, NULL));
    struct stat st = stat_file("data/a");
    ASSERT_INT(st.st_mode & 07777, 0775);
    ASSERT_INT(st.st_mtim.tv_sec, 1234567);
    ASSERT_INT(st.st_mtim.tv_nsec, 89);
    const struct cay_write_options keep = {.size = sizeof keep, .flags = CAY_WRITE_KEEP};
    ASSERT_CODE(cay_files_write(files, "data/b", "x", 1, &keep, &err), CAY_E_UNSUPPORTED);
}

static cay_files *open_limited(void)
{
    struct cay_mount mount = CAY_MOUNT_INIT;

    mount.name = mount.host = "data";
    mount.writable = true;
    mount.max_file_bytes = 8;
    return open_mounts(CAY_STYLE_PATHS, &mount, 1);
}

TEST(a_stream_over_the_limit_changes_nothing)
{
    AUTO(cay_files) files = open_limited();
    const unsigned ways[] = {0, CAY_WRITE_IN_PLACE, CAY_WRITE_APPEND};

    put_file("from", "nine bytes");
    put_file("data/a", "before");
    AUTO_FD from = open_scratch("from", O_RDONLY);
    for (size_t i = 0; i < 3; i++) {
        ASSERT_INT(lseek(from, 0, SEEK_SET), 0);
        ASSERT_CODE(write_from(files, "data/a", from, ways[i], NULL), CAY_E_TOO_LARGE);
        ASSERT_STR(get_file("data/a"), "before");
    }
    ASSERT_INT(lseek(from, 0, SEEK_SET), 0);
    ASSERT_CODE(write_from(files, "data/new/b", from, 0, NULL), CAY_E_TOO_LARGE);
    struct stat st;
    ASSERT_INT(lstat(scratch_path("data/new"), &st), -1);
    ASSERT_INT(lseek(from, 2, SEEK_SET), 2);
    ASSERT_OK(write_from(files, "data/b", from, 0, NULL));
    ASSERT_STR(get_file("data/b"), "ne bytes");
}

TEST(a_descriptor_of_the_wrong_kind_is_refused)
{
    AUTO(cay_files) files = open_data();

    put_file("data/a", "x");
    AUTO_FD reading = open_scratch("data/a", O_RDONLY);
    AUTO_FD writing = open_scratch("to", O_WRONLY | O_CREAT);
    ASSERT_CODE(cay_files_read_to(files, "data/a", reading, NULL, &err), CAY_E_INVALID);
    ASSERT_CODE(cay_files_read_to(files, "data/a", -1, NULL, &err), CAY_E_INVALID);
    ASSERT_CODE(write_from(files, "data/b", writing, 0, NULL), CAY_E_INVALID);
    ASSERT_CODE(cay_files_read_to(files, "data/none", writing, NULL, &err),
                CAY_E_NOT_FOUND);
    ASSERT_CODE(cay_files_read_to(files, "data", writing, NULL, &err), CAY_E_NOT_A_FILE);
    ASSERT_CODE(write_from(files, "elsewhere/b", reading, 0, NULL), CAY_E_OUTSIDE);
}

TEST(a_full_descriptor_is_told)
{
    AUTO(cay_files) files = open_data();
    AUTO_FD full = open("/dev/full", O_WRONLY | O_CLOEXEC);

    if (full < 0)
        SKIP("there is no /dev/full");
    put_file("data/a", "x");
    ASSERT_CODE(cay_files_read_to(files, "data/a", full, NULL, &err), CAY_E_NO_SPACE);
}

TEST(a_link_tells_its_text_but_no_host_path)
{
    AUTO(cay_files) files = open_data();
    AUTO_FREE char *relative = NULL, *absolute = NULL, *climbing = NULL, *none = NULL;

    put_file("data/a", "x");
    ASSERT_INT(symlink("dir/../a", scratch_path("data/relative")), 0);
    ASSERT_INT(symlink(scratch_path("data/a"), scratch_path("data/absolute")), 0);
    ASSERT_INT(symlink("/etc/passwd", scratch_path("data/out")), 0);
    ASSERT_INT(symlink("../data/a", scratch_path("data/climbing")), 0);
    ASSERT_INT(symlink("../home/secret", scratch_path("data/up")), 0);
    ASSERT_OK(cay_files_read_link(files, "data/relative", &relative, &err));
    ASSERT_STR(relative, "dir/../a");
    ASSERT_OK(cay_files_read_link(files, "data/absolute", &absolute, &err));
    ASSERT_STR(absolute, "data/a");
    ASSERT_OK(cay_files_read_link(files, "data/climbing", &climbing, &err));
    ASSERT_STR(climbing, "data/a");
    ASSERT_CODE(cay_files_read_link(files, "data/out", &none, &err), CAY_E_OUTSIDE);
    ASSERT_CODE(cay_files_read_link(files, "data/up", &none, &err), CAY_E_OUTSIDE);
    ASSERT_CODE(cay_files_read_link(files, "data/a", &none, &err), CAY_E_INVALID);
    ASSERT_CODE(cay_files_read_link(files, "data/none", &none, &err), CAY_E_NOT_FOUND);
}

TEST(no_descriptor_is_given_where_the_policy_looks_at_what_is_read_or_written)
{
    static const enum cay_descriptor all[] = {CAY_DESCRIPTOR_READ, CAY_DESCRIPTOR_WRITE,
                                              CAY_DESCRIPTOR_DIRECTORY,
                                              CAY_DESCRIPTOR_UPDATE};
    struct cay_mount mount = CAY_MOUNT_INIT;
    int fd;

    mount.name = "/data";
    mount.host = "data";
    mount.writable = true;
    mount.write_approval = false;
    mount.read_approval = true;
    put_file("data/sub/a", "x");
    AUTO(cay_files) files = open_mounts(CAY_STYLE_MOUNTS, &mount, 1);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        ASSERT_CODE(cay_files_descriptor(
                        files,
                        all[i] == CAY_DESCRIPTOR_DIRECTORY ? "/data/sub" : "/data/sub/a",
                        all[i], &fd, &err),
                    CAY_E_UNSUPPORTED);
}

TEST(access_is_what_policy_and_permissions_both_grant)
{
    struct cay_mount mounts[2] = {CAY_MOUNT_INIT, CAY_MOUNT_INIT};

    mounts[0].name = mounts[0].host = "data";
    mounts[0].writable = true;
    mounts[1].name = mounts[1].host = "docs";
    AUTO(cay_files) files = open_mounts(CAY_STYLE_PATHS, mounts, 2);
    put_file("data/a", "x");
    put_file("docs/b", "x");
    ASSERT_INT(mkfifo(scratch_path("data/fifo"), 0600), 0);
    ASSERT_INT(cay_files_access(files, "data/a", &err),
               CAY_ACCESS_READ | CAY_ACCESS_WRITE);
    ASSERT_INT(cay_files_access(files, "data", &err), CAY_ACCESS_READ | CAY_ACCESS_WRITE);
    ASSERT_INT(cay_files_access(files, "docs/b", &err), CAY_ACCESS_READ);
    ASSERT_INT(cay_files_access(files, "data/fifo", &err), CAY_ACCESS_WRITE);
    ASSERT_CODE(cay_files_access(files, "data/none", &err), CAY_E_NOT_FOUND);
    ASSERT_CODE(cay_files_access(files, "none/x", &err), CAY_E_OUTSIDE);
    if (geteuid() == 0)
        return; /* root ignores permissions */
    set_mode("data/a", 0400);
    ASSERT_INT(cay_files_access(files, "data/a", &err), CAY_ACCESS_READ);
    set_mode("data/a", 0200);
    ASSERT_INT(cay_files_access(files, "data/a", &err), CAY_ACCESS_WRITE);
    set_mode("data/a", 0);
    ASSERT_INT(cay_files_access(files, "data/a", &err), 0);
}

TEST(a_new_directory_has_the_mode_that_was_asked_for)
{
    const struct cay_name_options options = {.size = sizeof options, .mode = 0700};
    AUTO(cay_files) files = open_data();

    ASSERT_OK(cay_files_mkdir(files, "data/a/b", &options, &err));
    ASSERT_INT(stat_file("data/a/b").st_mode & 07777, 0700);
}
