/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <sys/ioctl.h>

#include "archives.h"

TEST(an_archive_is_unpacked_below_the_directory_which_is_made_if_need_be)
{
    struct stat st;

    AUTO(cay_files) files = open_data();
    ASSERT_OK(IMPORT(
        files, {"dir/", '5', NULL, 0750, NULL}, {"dir/file", '0', NULL, 0640, "content"},
        {"./dotted", '0', NULL, 0, ""}, {"not/announced/file", '0', NULL, 0, "x"},
        {"dir/link", '2', "file", 0777, NULL}));
    ASSERT_STR(get_file("data/in/dir/file"), "content");
    ASSERT_STR(get_file("data/in/dir/link"), "content");
    ASSERT_STR(get_file("data/in/dotted"), "");
    ASSERT_STR(get_file("data/in/not/announced/file"), "x");
    ASSERT_INT(mode_of("data/in/dir/file"), 0640);
    ASSERT_INT(mode_of("data/in/dir"), 0750);
    ASSERT(stat(scratch_path("data/in/dir/file"), &st) == 0);
    ASSERT_INT(st.st_mtime, 1234567890);
    ASSERT(stat(scratch_path("data/in/dir"), &st) == 0);
    ASSERT_INT(st.st_mtime, 1234567890);
    ASSERT_INT(result.entries, 5);
    ASSERT_INT(result.bytes, 8);
    ASSERT_INT(result.skipped, 0);
}

TEST(an_empty_archive_is_fine)
{
    AUTO(cay_files) files = open_data();
    ASSERT_OK(IMPORT(files, {.name = NULL}));
    ASSERT_INT(result.entries, 0);
}

TEST(what_was_unpacked_before_an_error_stays_and_is_counted)
{
    AUTO(cay_files) files = open_data();
    ASSERT_CODE(IMPORT(files, {"a", '0', NULL, 0, "aaa"}, {"b", '0', NULL, 0, "b"},
                       {"../c", '0', NULL, 0, ""}),
                CAY_E_OUTSIDE);
    ASSERT_INT(result.entries, 2);
    ASSERT_INT(result.bytes, 4);
    ASSERT_STR(get_file("data/in/a"), "aaa");
}

TEST(an_error_before_anything_was_unpacked_leaves_no_directory)
{
    AUTO(cay_files) files = open_data();
    AUTO_BUF nonsense;

    buf_init(&nonsense, 1024);
    buf_text(&nonsense, "this is not an archive");
    ASSERT_CODE(import_bytes(files, "data/a/b/c", &nonsense, NULL), CAY_E_INVALID);
    ASSERT(!exists("data/a"));
    put_file("data/a/f", "x");
    ASSERT_CODE(import_bytes(files, "data/a/b", &nonsense, NULL), CAY_E_INVALID);
    ASSERT(exists("data/a/f") && !exists("data/a/b"));
    ASSERT_CODE(IMPORT(files, {"../c", '0', NULL, 0, ""}), CAY_E_OUTSIDE);
    ASSERT(!exists("data/in"));
}

TEST(a_link_that_stays_below_the_mount_is_made)
{
    put_file("data/shared", "shared");
    AUTO(cay_files) files = open_data();
    ASSERT_OK(IMPORT(files, {"sub/up", '2', "../../shared", 0, NULL},
                     {"dangling", '2', "later", 0, NULL},
                     {"later", '0', NULL, 0, "late"}));
    ASSERT_STR(get_file("data/in/sub/up"), "shared");
    ASSERT_STR(get_file("data/in/dangling"), "late");
}

TEST(a_hard_link_is_another_name_for_a_file_of_the_archive)
{
    struct stat one, two;

    AUTO(cay_files) files = open_data();
    ASSERT_OK(IMPORT(files, {"sub/one", '0', NULL, 0, "same"},
                     {"two", '1', "./sub/one", 0, NULL},
                     {"two", '1', "sub/one", 0, NULL}));
    ASSERT_STR(get_file("data/in/two"), "same");
    ASSERT(stat(scratch_path("data/in/sub/one"), &one) == 0);
    ASSERT(stat(scratch_path("data/in/two"), &two) == 0);
    ASSERT(one.st_ino == two.st_ino);
    ASSERT_INT(one.st_nlink, 2); /* nothing is left of replacing a name by itself */
    ASSERT_CODE(IMPORT(files, {"three", '1', "missing", 0, NULL}), CAY_E_NOT_FOUND);
    ASSERT_CODE(
        IMPORT(files, {"dir", '5', NULL, 0755, NULL}, {"four", '1', "dir", 0, NULL}),
        CAY_E_NOT_A_FILE);
}

TEST(the_umask_is_respected)
{
    AUTO(cay_files) files = open_data();
    mode_t before = umask(077);
    int code =
        IMPORT(files, {"file", '0', NULL, 0666, "x"}, {"dir/", '5', NULL, 0777, NULL});
    umask(before);
    ASSERT_INT(code, CAY_OK);
    ASSERT_INT(mode_of("data/in/file"), 0600);
    ASSERT_INT(mode_of("data/in/dir"), 0700);
}

TEST(a_directory_gets_its_mode_after_what_is_in_it)
{
    AUTO(cay_files) files = open_data();
    ASSERT_OK(IMPORT(files, {"locked/", '5', NULL, 0500, NULL},
                     {"locked/sub/", '5', NULL, 0555, NULL},
                     {"locked/sub/file", '0', NULL, 0444, "x"}));
    ASSERT_INT(mode_of("data/in/locked"), 0500);
    ASSERT_INT(mode_of("data/in/locked/sub"), 0555);
    ASSERT_STR(get_file("data/in/locked/sub/file"), "x");
}

TEST(of_two_entries_with_one_name_the_last_wins)
{
    AUTO(cay_files) files = open_data();
    ASSERT_OK(IMPORT(files, {"a", '0', NULL, 0, "first"}, {"a", '0', NULL, 0, "second"},
                     {"b", '2', "a", 0, NULL}, {"b", '0', NULL, 0, "file"},
                     {"c", '0', NULL, 0, "file"}, {"c", '2', "a", 0, NULL}));
    ASSERT_STR(get_file("data/in/a"), "second");
    ASSERT_STR(get_file("data/in/b"), "file");
    ASSERT_STR(get_file("data/in/c"), "second");
}

TEST(a_file_does_not_replace_a_directory_nor_the_other_way_round)
{
    put_file("data/in/dir/x", "");
    put_file("data/in/file", "old");
    AUTO(cay_files) files = open_data();
    ASSERT_CODE(IMPORT(files, {"dir", '0', NULL, 0, "x"}), CAY_E_NOT_A_FILE);
    ASSERT_CODE(IMPORT(files, {"dir", '2', "x", 0, NULL}), CAY_E_NOT_A_FILE);
    ASSERT_CODE(IMPORT(files, {"file", '5', NULL, 0755, NULL}), CAY_E_EXISTS);
    ASSERT_CODE(IMPORT(files, {"file/x", '0', NULL, 0, "x"}), CAY_E_NOT_A_DIRECTORY);
    ASSERT_STR(get_file("data/in/file"), "old");
    ASSERT(exists("data/in/dir/x"));
}

TEST(a_descriptor_that_cannot_be_read_or_written_is_refused)
{
    AUTO(cay_files) files = open_data();
    AUTO_FD reading = open("/dev/null", O_RDONLY | O_CLOEXEC);
    AUTO_FD writing = open("/dev/null", O_WRONLY | O_CLOEXEC);

    ASSERT_CODE(cay_files_import(files, "data/in", 999, NULL, &result, &err),
                CAY_E_INVALID);
    ASSERT_CODE(cay_files_import(files, "data/in", writing, NULL, &result, &err),
                CAY_E_INVALID);
    ASSERT(!exists("data/in"));
    ASSERT_CODE(cay_files_export(files, "data", -1, NULL, &result, &err), CAY_E_INVALID);
    ASSERT_CODE(cay_files_export(files, "data", reading, NULL, &result, &err),
                CAY_E_INVALID);
}

TEST(the_write_rules_of_the_mount_apply_to_each_file)
{
    static const char *const suffixes[] = {".txt"};
    struct cay_mount mount = CAY_MOUNT_INIT;

    mount.name = "data";
    mount.host = "data";
    mount.writable = true;
    mount.limit_suffixes = true;
    mount.suffixes = suffixes;
    mount.suffix_count = 1;
    mount.max_file_bytes = 5;
    AUTO(cay_files) files = open_mounts(CAY_STYLE_PATHS, &mount, 1);
    ASSERT_OK(IMPORT(files, {"a.txt", '0', NULL, 0, "12345"}));
    ASSERT_CODE(IMPORT(files, {"a.md", '0', NULL, 0, "x"}), CAY_E_SUFFIX);
    ASSERT_STR(err.subject, "data/in/a.md");
    ASSERT_CODE(IMPORT(files, {"b.txt", '0', NULL, 0, "123456"}), CAY_E_TOO_LARGE);
    ASSERT_CODE(IMPORT(files, {"a.sh", '1', "a.txt", 0, NULL}), CAY_E_SUFFIX);
    ASSERT(!exists("data/in/a.md") && !exists("data/in/b.txt") &&
           !exists("data/in/a.sh"));
}

TEST(nothing_is_unpacked_where_writing_is_not_granted)
{
    struct cay_mount mount = CAY_MOUNT_INIT;

    mount.name = "data";
    mount.host = "data";
    AUTO(cay_files) files = open_mounts(CAY_STYLE_PATHS, &mount, 1);
    ASSERT_CODE(IMPORT(files, {"a", '0', NULL, 0, "x"}), CAY_E_READ_ONLY);
    ASSERT(!exists("data/in"));
}

TEST(the_place_to_unpack_must_be_a_directory_inside)
{
    put_file("data/file", "");
    AUTO(cay_files) files = open_data();
    AUTO_FD fd = memory_file("", 0);
    ASSERT_CODE(cay_files_import(files, "data/file", fd, NULL, &result, &err),
                CAY_E_NOT_A_DIRECTORY);
    ASSERT_CODE(cay_files_import(files, "other", fd, NULL, &result, &err), CAY_E_OUTSIDE);
}

static enum cay_verdict refuse(void *cookie, const struct cay_approval *request,
                               char note[CAY_NOTE_MAX])
{
    (void)note;
    *(enum cay_op *)cookie = request->op;
    return CAY_VERDICT_DENY;
}

TEST(both_ways_ask_for_approval_before_anything_is_touched)
{
    struct cay_mount mount = CAY_MOUNT_INIT;
    enum cay_op asked = CAY_OP_READ;
    struct cay_policy_config config = {.size = sizeof config,
                                       .style = CAY_STYLE_PATHS,
                                       .mounts = &mount,
                                       .mount_count = 1,
                                       .base = scratch()};
    struct cay_files_options options = {
        .size = sizeof options, .approver = refuse, .cookie = &asked};
    AUTO(cay_policy) policy = NULL;
    AUTO(cay_files) files = NULL;

    mount.name = "data";
    mount.host = "data";
    mount.writable = mount.read_approval = true;
    ASSERT_OK(cay_policy_new(&config, &policy, &err));
    ASSERT_OK(cay_files_open(policy, &options, &files, &err));
    ASSERT_CODE(IMPORT(files, {"a", '0', NULL, 0, "x"}), CAY_E_NOT_APPROVED);
    ASSERT_INT(asked, CAY_OP_IMPORT);
    ASSERT(!exists("data/in"));
    AUTO_FD fd = memory_file("", 0);
    ASSERT_CODE(cay_files_export(files, "data", fd, NULL, &result, &err),
                CAY_E_NOT_APPROVED);
    ASSERT_INT(asked, CAY_OP_EXPORT);
}

TEST(the_sender_sees_no_broken_pipe_while_it_sends_the_padding)
{
    int ends[2];
    AUTO_BUF tar;

    buf_init(&tar, 1 << 20);
    add(&tar, (struct entry){"a", '0', NULL, 0, "x"});
    add_end(&tar);
    ASSERT(buf_reserve(&tar, 200000));
    memset(tar.data + tar.len, 0, 200000);
    tar.len += 200000;
    ASSERT(pipe(ends) == 0);
    ASSERT(fcntl(ends[1], F_SETPIPE_SZ, 1 << 20) >= (int)tar.len);
    ASSERT(write(ends[1], tar.data, tar.len) == (ssize_t)tar.len);
    AUTO(cay_files) files = open_data();
    ASSERT_OK(cay_files_import(files, "data/in", ends[0], NULL, &result, &err));
    int left = -1;
    ASSERT(ioctl(ends[0], FIONREAD, &left) == 0);
    ASSERT_INT(left, 0);
    close(ends[0]);
    close(ends[1]);
}

/* --- There and back --- */

static int export_to_memory(cay_files *files, const char *path,
                            const struct cay_tar_options *options, int *ret_fd)
{
    *ret_fd = memory_file("", 0);
    int code = cay_files_export(files, path, *ret_fd, options, &result, &err);
    ASSERT(lseek(*ret_fd, 0, SEEK_SET) == 0);
    return code;
}

TEST(what_is_exported_comes_back_the_same)
{
    enum { SIZE = 3 << 20 };
    struct stat before, after;
    char *large = malloc(SIZE);

    for (size_t i = 0; i < SIZE; i++)
        large[i] = (char)(i * 2654435761u >> 13);
    put_file("data/from/dir/small", "small");
    put_file("data/from/empty", "");
    put_bytes("data/from/large", large, SIZE);
    put_file("data/from/\xff\xfe bytes", "not UTF-8");
    put_file("data/from/\xc3\xa9t\xc3\xa9", "UTF-8");
    put_file(
        "data/from/dir/"
        "a name that is longer than the hundred bytes which an old tar header has for"
        " it, and then some more of it",
        "long");
    ASSERT(symlink("dir/small", scratch_path("data/from/link")) == 0);
    ASSERT(chmod(scratch_path("data/from/dir/small"), 0751) == 0);
    AUTO(cay_files) files = open_data();
    int fd;
    ASSERT_OK(export_to_memory(files, "data/from", NULL, &fd));
    AUTO_FD archive = fd;
    ASSERT_INT(result.entries, 8);
    ASSERT_INT(result.bytes, SIZE + 5 + 9 + 5 + 4);
    ASSERT_OK(cay_files_import(files, "data/to", archive, NULL, &result, &err));
    ASSERT_INT(result.entries, 8);
    ASSERT_STR(get_file("data/to/link"), "small");
    ASSERT_STR(get_file("data/to/empty"), "");
    ASSERT_STR(get_file("data/to/\xff\xfe bytes"), "not UTF-8");
    ASSERT_STR(get_file("data/to/\xc3\xa9t\xc3\xa9"), "UTF-8");
    ASSERT_INT(mode_of("data/to/dir/small"), 0751);
    ASSERT(lstat(scratch_path("data/from/dir/small"), &before) == 0);
    ASSERT(lstat(scratch_path("data/to/dir/small"), &after) == 0);
    ASSERT(before.st_mtim.tv_sec == after.st_mtim.tv_sec);
    AUTO_FD copy = open(scratch_path("data/to/large"), O_RDONLY | O_CLOEXEC);
    char *back = malloc(SIZE + 1);
    ssize_t len = read(copy, back, SIZE + 1);
    ASSERT_MEM(back, (size_t)len, large, SIZE);
    free(back);
    free(large);
}

TEST(an_archive_cut_off_by_an_error_does_not_look_complete)
{
    struct cay_tar_options bytes = {.size = sizeof bytes, .max_bytes = 5};
    int fd;

    put_file("data/a", "123");
    put_file("data/b", "456");
    AUTO(cay_files) files = open_data();
    ASSERT_CODE(export_to_memory(files, "data", &bytes, &fd), CAY_E_LIMIT);
    AUTO_FD archive = fd;
    ASSERT(cay_files_import(files, "data/to", archive, NULL, &result, &err) != CAY_OK);
}
