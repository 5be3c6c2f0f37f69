/* SPDX-License-Identifier: Apache-2.0 */

/* Whole directories from one handle to another. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "policies.h"

static struct cay_tree_result result;

static cay_files *open_one(const char *name, bool writable)
{
    struct cay_mount mount = CAY_MOUNT_INIT;

    mount.name = mount.host = name;
    mount.writable = writable;
    return open_mounts(CAY_STYLE_PATHS, &mount, 1);
}

static struct stat stat_file(const char *name)
{
    struct stat st;

    if (lstat(scratch_path(name), &st) != 0)
        harness_fail(__FILE__, __LINE__, "%s is not there", name);
    return st;
}

static bool is_there(const char *name)
{
    struct stat st;

    return lstat(scratch_path(name), &st) == 0;
}

static void link_to(const char *text, const char *name)
{
    ASSERT_INT(symlink(text, scratch_path(name)), 0);
}

TEST(a_tree_comes_over_with_modes_times_links_and_empty_directories)
{
    const struct timespec times[2] = {{.tv_sec = 7}, {.tv_sec = 77}};
    AUTO(cay_files) from = open_one("from", false);
    AUTO(cay_files) to = open_one("to", true);

    put_file("from/a b/'q\"\n", "odd");
    put_file("from/-rf", "dash");
    put_file("from/run", "#!");
    ASSERT_INT(mkdir(scratch_path("from/empty"), 0700), 0);
    ASSERT_INT(chmod(scratch_path("from/run"), 06775), 0);
    ASSERT_INT(chmod(scratch_path("from/empty"), 01777), 0);
    link_to("../run", "from/a b/link");
    ASSERT_INT(utimensat(AT_FDCWD, scratch_path("from/run"), times, 0), 0);
    ASSERT_INT(utimensat(AT_FDCWD, scratch_path("from/empty"), times, 0), 0);
    ASSERT_OK(cay_files_copy_tree(from, "from", to, "to/new/here", NULL, &result, &err));
    ASSERT_INT(result.files, 3);
    ASSERT_INT(result.directories, 2);
    ASSERT_INT(result.links, 1);
    ASSERT_INT(result.bytes, 9);
    ASSERT_INT(result.skipped, 0);
    ASSERT_STR(get_file("to/new/here/a b/'q\"\n"), "odd");
    ASSERT_STR(get_file("to/new/here/-rf"), "dash");
    ASSERT_INT(stat_file("to/new/here/run").st_mode & 07777, 0775);
    ASSERT_INT(stat_file("to/new/here/run").st_mtime, 77);
    ASSERT_INT(stat_file("to/new/here/empty").st_mode & 07777, 0777);
    ASSERT_INT(stat_file("to/new/here/empty").st_mtime, 77);
    ASSERT(S_ISLNK(stat_file("to/new/here/a b/link").st_mode));
    ASSERT_STR(get_file("to/new/here/a b/link"), "#!");
}

TEST(links_that_could_lead_out_are_left_out_and_counted)
{
    static const char *const out[] = {"/etc/passwd", "../../x",        "../..",
                                      "b/../../x",   "../sub/../../x", "b/.."};
    AUTO(cay_files) from = open_one("from", false);
    AUTO(cay_files) to = open_one("to", true);
    char name[32];

    put_file("from/sub/a", "x");
    link_to(".", "from/b");
    for (size_t i = 0; i < sizeof out / sizeof *out; i++) {
        snprintf(name, sizeof name, "from/sub/l%zu", i);
        link_to(out[i], name);
    }
    link_to("../none", "from/sub/nowhere");
    link_to("./a", "from/sub/dot");
    ASSERT_INT(mkfifo(scratch_path("from/fifo"), 0600), 0);
    ASSERT_OK(cay_files_copy_tree(from, "from", to, "to", NULL, &result, &err));
    ASSERT_INT(result.skipped, sizeof out / sizeof *out + 1);
    ASSERT_INT(result.links, 3);
    for (size_t i = 0; i < sizeof out / sizeof *out; i++) {
        snprintf(name, sizeof name, "to/sub/l%zu", i);
        ASSERT(!is_there(name));
    }
    ASSERT(is_there("to/sub/nowhere") && is_there("to/sub/dot") && is_there("to/b"));
    ASSERT(!is_there("to/fifo"));
}

TEST(what_may_not_be_read_is_told_when_all_else_was_copied)
{
    enum { NOBODY = 65534 };
    AUTO(cay_files) from = open_one("from", false);
    AUTO(cay_files) to = open_one("to", true);
    bool is_root = geteuid() == 0;

    put_file("from/a/secret", "x");
    put_file("from/b/deep/file", "x");
    put_file("from/z", "fine");
    ASSERT_INT(chmod(scratch_path("from/a/secret"), 0), 0);
    ASSERT_INT(chmod(scratch_path("from/b/deep"), 0), 0);
    ASSERT_INT(chmod(scratch_path("from"), 0755), 0);
    ASSERT_INT(chmod(scratch_path("to"), 0777), 0);
    ASSERT(!is_root || seteuid(NOBODY) == 0);
    int code = cay_files_copy_tree(from, "from", to, "to", NULL, &result, &err);
    int alone = cay_files_copy_tree(from, "from/b/deep", to, "to", NULL, &result, NULL);
    ASSERT(!is_root || seteuid(0) == 0);
    ASSERT_INT(code, CAY_E_DENIED);
    ASSERT_INT(alone, CAY_E_DENIED);
    ASSERT_STR(err.subject, "from/a/secret");
    ASSERT_HAS(err.hint, "2 entries of the directory");
    ASSERT_STR(get_file("to/z"), "fine");
    ASSERT(!is_there("to/a/secret") && !is_there("to/b/deep/file"));
    ASSERT_INT(chmod(scratch_path("from/b/deep"), 0700), 0);
}

TEST(what_is_there_stays_beside_and_files_of_the_same_name_are_replaced)
{
    AUTO(cay_files) from = open_one("from", false);
    AUTO(cay_files) to = open_one("to", true);

    put_file("from/dir/a", "new");
    put_file("to/dir/a", "old");
    put_file("to/dir/b", "stays");
    ASSERT_OK(cay_files_copy_tree(from, "from", to, "to", NULL, &result, &err));
    ASSERT_STR(get_file("to/dir/a"), "new");
    ASSERT_STR(get_file("to/dir/b"), "stays");
}

TEST(nothing_is_written_through_a_link_of_the_destination)
{
    AUTO(cay_files) from = open_one("from", false);
    AUTO(cay_files) to = open_one("to", true);

    put_file("from/dir/a", "new");
    put_file("elsewhere/keep", "x");
    link_to("../elsewhere", "to/dir");
    ASSERT_CODE(cay_files_copy_tree(from, "from", to, "to", NULL, &result, &err),
                CAY_E_OUTSIDE);
    ASSERT(!is_there("elsewhere/a"));
}

TEST(a_directory_is_not_copied_into_itself)
{
    AUTO(cay_files) files = open_one("data", true);

    put_file("data/dir/a", "x");
    ASSERT_CODE(
        cay_files_copy_tree(files, "data/dir", files, "data/dir", NULL, &result, &err),
        CAY_E_INVALID);
    ASSERT_CODE(
        cay_files_copy_tree(files, "data", files, "data/dir/sub", NULL, &result, &err),
        CAY_E_INVALID);
    ASSERT(!is_there("data/dir/sub"));
    ASSERT_OK(
        cay_files_copy_tree(files, "data/dir", files, "data/dir2", NULL, &result, &err));
    ASSERT_STR(get_file("data/dir2/a"), "x");
}

TEST(nor_through_another_handle)
{
    AUTO(cay_files) files = open_one("data", true);
    struct cay_mount mount = CAY_MOUNT_INIT;

    put_file("data/dir/a", "x");
    mount.name = "below";
    mount.host = "data/dir";
    mount.writable = true;
    AUTO(cay_files) below = open_mounts(CAY_STYLE_PATHS, &mount, 1);
    ASSERT_CODE(
        cay_files_copy_tree(files, "data", below, "below/sub", NULL, &result, &err),
        CAY_E_INVALID);
}

TEST(the_policies_of_both_sides_hold)
{
    static const char *const texts[] = {".txt"};
    struct cay_mount mount = CAY_MOUNT_INIT;

    mount.name = mount.host = "from";
    mount.limit_suffixes = true;
    mount.suffixes = texts;
    mount.suffix_count = 1;
    AUTO(cay_files) from = open_mounts(CAY_STYLE_PATHS, &mount, 1);
    AUTO(cay_files) to = open_one("to", true);
    AUTO(cay_files) closed = open_one("closed", false);
    mount.name = mount.host = "small";
    mount.writable = true;
    mount.limit_suffixes = false;
    mount.suffixes = NULL;
    mount.suffix_count = 0;
    mount.max_file_bytes = 2;
    AUTO(cay_files) small = open_mounts(CAY_STYLE_PATHS, &mount, 1);

    put_file("from/a.txt", "text");
    put_file("from/b.bin", "bin");
    ASSERT_OK(cay_files_copy_tree(from, "from", to, "to", NULL, &result, &err));
    ASSERT_INT(result.files, 1);
    ASSERT_INT(result.skipped, 1);
    ASSERT(is_there("to/a.txt") && !is_there("to/b.bin"));
    ASSERT_CODE(cay_files_copy_tree(from, "from", closed, "closed", NULL, &result, &err),
                CAY_E_READ_ONLY);
    ASSERT_CODE(cay_files_copy_tree(from, "from", small, "small", NULL, &result, &err),
                CAY_E_TOO_LARGE);
    ASSERT(!is_there("small/a.txt"));
    ASSERT_CODE(cay_files_copy_tree(from, "from/none", to, "to", NULL, &result, &err),
                CAY_E_NOT_FOUND);
    ASSERT_CODE(cay_files_copy_tree(from, "from/a.txt", to, "to", NULL, &result, &err),
                CAY_E_NOT_A_DIRECTORY);
}

TEST(limits_stop_it_and_what_was_copied_is_counted)
{
    struct cay_tar_options options = {.size = sizeof options, .max_entries = 2};
    AUTO(cay_files) from = open_one("from", false);
    AUTO(cay_files) to = open_one("to", true);

    put_file("from/a", "12345");
    put_file("from/b", "12345");
    put_file("from/c/d/e", "12345");
    ASSERT_CODE(cay_files_copy_tree(from, "from", to, "to", &options, &result, &err),
                CAY_E_LIMIT);
    ASSERT_INT(result.files, 2);
    options = (struct cay_tar_options){.size = sizeof options, .max_bytes = 12};
    ASSERT_CODE(cay_files_copy_tree(from, "from", to, "to", &options, &result, &err),
                CAY_E_LIMIT);
    ASSERT_INT(result.bytes, 10);
    options = (struct cay_tar_options){.size = sizeof options, .max_depth = 2};
    ASSERT_CODE(cay_files_copy_tree(from, "from", to, "to", &options, &result, &err),
                CAY_E_LIMIT);
}
