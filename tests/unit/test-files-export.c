/* SPDX-License-Identifier: Apache-2.0 */
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness.h"
#include "policies.h"

static struct cay_tar_result result;

static int export_to_memory(cay_files *files, const char *path,
                            const struct cay_tar_options *options, int *ret_fd)
{
    *ret_fd = memfd_create("archive", MFD_CLOEXEC);
    ASSERT(*ret_fd >= 0);
    int code = cay_files_export(files, path, *ret_fd, options, &result, &err);
    ASSERT(lseek(*ret_fd, 0, SEEK_SET) == 0);
    return code;
}

TEST(what_leads_out_is_special_or_forbidden_is_left_out_and_counted)
{
    static const char *const suffixes[] = {".txt"};
    struct cay_mount mount = CAY_MOUNT_INIT;
    struct archive_entry *entry;
    struct archive *reader = archive_read_new();
    AUTO_BUF names;
    int fd;

    mount.name = "data";
    mount.host = "data";
    mount.limit_suffixes = true;
    mount.suffixes = suffixes;
    mount.suffix_count = 1;
    mount.max_file_bytes = 5;
    put_file("outside/secret.txt", "secret");
    put_file("data/a.txt", "12345");
    put_file("data/b.txt", "123456");
    put_file("data/c.md", "x");
    ASSERT(mkfifo(scratch_path("data/fifo.txt"), 0600) == 0);
    ASSERT(symlink("../outside/secret.txt", scratch_path("data/out.txt")) == 0);
    ASSERT(symlink(scratch_path("data/a.txt"), scratch_path("data/absolute")) == 0);
    ASSERT(symlink("../data/a.txt", scratch_path("data/climbing")) == 0);
    ASSERT(symlink("a.txt", scratch_path("data/inside")) == 0);
    AUTO(cay_files) files = open_mounts(CAY_STYLE_PATHS, &mount, 1);
    ASSERT_OK(export_to_memory(files, "data", NULL, &fd));
    AUTO_FD archive = fd;
    ASSERT_INT(result.entries, 2);
    ASSERT_INT(result.skipped, 6);
    buf_init(&names, 4096);
    archive_read_support_format_tar(reader);
    ASSERT(archive_read_open_fd(reader, archive, 10240) == ARCHIVE_OK);
    while (archive_read_next_header(reader, &entry) == ARCHIVE_OK)
        buf_format(&names, "%s ", archive_entry_pathname(entry));
    archive_read_free(reader);
    ASSERT_STR(names.data, "a.txt inside ");
}

TEST(an_export_has_limits_too)
{
    struct cay_tar_options entries = {.size = sizeof entries, .max_entries = 2};
    struct cay_tar_options bytes = {.size = sizeof bytes, .max_bytes = 5};
    struct cay_tar_options depth = {.size = sizeof depth, .max_depth = 1};
    int fd;

    put_file("data/a", "123");
    put_file("data/b/c", "456");
    AUTO(cay_files) files = open_data();
    ASSERT_CODE(export_to_memory(files, "data", &entries, &fd), CAY_E_LIMIT);
    close(fd);
    ASSERT_CODE(export_to_memory(files, "data", &bytes, &fd), CAY_E_LIMIT);
    close(fd);
    ASSERT_CODE(export_to_memory(files, "data", &depth, &fd), CAY_E_LIMIT);
    close(fd);
}

TEST(places_behind_another_mount_are_not_exported)
{
    struct cay_mount mounts[2] = {CAY_MOUNT_INIT, CAY_MOUNT_INIT};
    int fd;

    mounts[0].name = "/x";
    mounts[0].host = "one";
    mounts[1].name = "/x/sub";
    mounts[1].host = "two";
    put_file("one/a", "");
    put_file("one/sub/phantom", "");
    AUTO(cay_files) files = open_mounts(CAY_STYLE_MOUNTS, mounts, 2);
    ASSERT_OK(export_to_memory(files, "/x", NULL, &fd));
    close(fd);
    ASSERT_INT(result.entries, 1);
}

TEST(only_a_directory_can_be_exported)
{
    int fd;

    put_file("data/file", "");
    AUTO(cay_files) files = open_data();
    ASSERT_CODE(export_to_memory(files, "data/file", NULL, &fd), CAY_E_NOT_A_DIRECTORY);
    close(fd);
    ASSERT_CODE(export_to_memory(files, "data/none", NULL, &fd), CAY_E_NOT_FOUND);
    close(fd);
}

TEST(a_reader_that_goes_away_is_an_error_with_its_errno)
{
    struct sigaction ignore = {.sa_handler = SIG_IGN}, before;
    int ends[2];

    put_file("data/file", "x");
    AUTO(cay_files) files = open_data();
    ASSERT(pipe(ends) == 0);
    close(ends[0]);
    ASSERT(sigaction(SIGPIPE, &ignore, &before) == 0);
    ASSERT_CODE(cay_files_export(files, "data", ends[1], NULL, &result, &err), CAY_E_IO);
    ASSERT_INT(err.sys_errno, EPIPE);
    ASSERT(sigaction(SIGPIPE, &before, NULL) == 0);
    close(ends[1]);
}

TEST(a_stream_that_has_no_room_is_told_as_that)
{
    AUTO(cay_files) files = open_data();
    AUTO_FD full = open("/dev/full", O_WRONLY | O_CLOEXEC);

    put_file("data/a", "x");
    ASSERT(full >= 0);
    ASSERT_CODE(cay_files_export(files, "data", full, NULL, &result, &err),
                CAY_E_NO_SPACE);
    ASSERT_INT(err.sys_errno, ENOSPC);
    ASSERT_STR(err.subject, "the archive");
}
