/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "policies.h"

/* "data" and "other" writable, "docs" read-only. */
static cay_files *open_three(void)
{
    struct cay_mount mounts[3] = {CAY_MOUNT_INIT, CAY_MOUNT_INIT, CAY_MOUNT_INIT};

    mounts[0].name = mounts[0].host = "data";
    mounts[0].writable = true;
    mounts[1].name = mounts[1].host = "other";
    mounts[1].writable = true;
    mounts[1].max_file_bytes = 8;
    mounts[2].name = mounts[2].host = "docs";
    return open_mounts(CAY_STYLE_PATHS, mounts, 3);
}

static int with_flags(int (*call)(cay_files *, const char *,
                                  const struct cay_name_options *, struct cay_error *),
                      cay_files *files, const char *path, unsigned flags)
{
    const struct cay_name_options options = {.size = sizeof options, .flags = flags};

    return call(files, path, &options, &err);
}

static bool is_there(const char *name)
{
    struct stat st;

    return lstat(scratch_path(name), &st) == 0;
}

TEST(delete_removes_a_file)
{
    AUTO(cay_files) files = open_three();

    put_file("data/a", "x");
    ASSERT_OK(cay_files_delete(files, "data/a", NULL, &err));
    ASSERT(!is_there("data/a"));
    ASSERT_CODE(cay_files_delete(files, "data/a", NULL, &err), CAY_E_NOT_FOUND);
}

TEST(delete_acts_on_the_link_and_not_on_what_it_points_to)
{
    AUTO(cay_files) files = open_three();

    put_file("data/real", "x");
    put_file("outside", "x");
    ASSERT_INT(symlink("real", scratch_path("data/link")), 0);
    ASSERT_INT(symlink("../outside", scratch_path("data/out")), 0);
    ASSERT_OK(cay_files_delete(files, "data/link", NULL, &err));
    ASSERT_OK(cay_files_delete(files, "data/out", NULL, &err));
    ASSERT(is_there("data/real") && is_there("outside"));
    ASSERT(!is_there("data/link") && !is_there("data/out"));
}

TEST(delete_takes_what_is_never_opened)
{
    AUTO(cay_files) files = open_three();

    ASSERT_INT(mkfifo(scratch_path("data/fifo"), 0600), 0);
    ASSERT_OK(cay_files_delete(files, "data/fifo", NULL, &err));
    ASSERT_INT(cay_files_exists(files, "data/fifo", &err), 0);
    ASSERT_INT(mkfifo(scratch_path("data/fifo"), 0600), 0);
    ASSERT_CODE(cay_files_move(files, "data/fifo", "data/other", NULL, &err),
                CAY_E_NOT_A_FILE);
    ASSERT_OK(with_flags(cay_files_delete, files, "data/fifo", CAY_NAME_RECURSIVE));
}

TEST(delete_takes_directories_only_when_asked_to)
{
    AUTO(cay_files) files = open_three();

    put_file("data/dir/sub/a", "x");
    put_file("outside/keep", "x");
    ASSERT_INT(symlink("../../outside", scratch_path("data/dir/link")), 0);
    ASSERT_CODE(cay_files_delete(files, "data/dir", NULL, &err), CAY_E_NOT_A_FILE);
    ASSERT_OK(with_flags(cay_files_delete, files, "data/dir", CAY_NAME_RECURSIVE));
    ASSERT(!is_there("data/dir") && is_there("outside/keep"));
}

TEST(a_directory_that_hides_something_behind_a_mount_is_not_deleted_or_moved)
{
    struct cay_mount mounts[2] = {CAY_MOUNT_INIT, CAY_MOUNT_INIT};
    const struct cay_name_options moving = {.size = sizeof moving,
                                            .flags = CAY_NAME_DIRECTORY};

    mounts[0].name = "/m";
    mounts[0].host = "outer";
    mounts[0].writable = true;
    mounts[1].name = "/m/a/b";
    mounts[1].host = "inner";
    put_file("outer/a/b/hidden", "x");
    put_file("outer/c/plain", "x");
    AUTO(cay_files) files = open_mounts(CAY_STYLE_MOUNTS, mounts, 2);
    ASSERT_CODE(with_flags(cay_files_delete, files, "/m/a", CAY_NAME_RECURSIVE),
                CAY_E_DENIED);
    ASSERT_CODE(cay_files_move(files, "/m/a", "/m/z", &moving, &err), CAY_E_DENIED);
    ASSERT_OK(with_flags(cay_files_delete, files, "/m/c", CAY_NAME_RECURSIVE));
    ASSERT(is_there("outer/a/b/hidden") && !is_there("outer/c"));
}

TEST(delete_needs_writing_and_spares_the_root)
{
    AUTO(cay_files) files = open_three();

    put_file("docs/a", "x");
    ASSERT_CODE(cay_files_delete(files, "docs/a", NULL, &err), CAY_E_READ_ONLY);
    ASSERT_CODE(with_flags(cay_files_delete, files, "data", CAY_NAME_RECURSIVE),
                CAY_E_INVALID);
    ASSERT_CODE(cay_files_delete(files, "data", NULL, &err), CAY_E_NOT_A_FILE);
    ASSERT_CODE(with_flags(cay_files_delete, files, "data/a", CAY_NAME_EXIST_OK),
                CAY_E_UNSUPPORTED);
}

TEST(move_renames_and_makes_parents)
{
    AUTO(cay_files) files = open_three();

    put_file("data/a", "text");
    ASSERT_OK(cay_files_move(files, "data/a", "data/x/y/b", NULL, &err));
    ASSERT_STR(get_file("data/x/y/b"), "text");
    ASSERT(!is_there("data/a"));
}

TEST(move_never_replaces)
{
    AUTO(cay_files) files = open_three();

    put_file("data/a", "A");
    put_file("data/b", "B");
    ASSERT_INT(symlink("nowhere", scratch_path("data/dangling")), 0);
    ASSERT_CODE(cay_files_move(files, "data/a", "data/b", NULL, &err), CAY_E_EXISTS);
    ASSERT_STR(err.subject, "data/b");
    ASSERT_CODE(cay_files_move(files, "data/a", "data/dangling", NULL, &err),
                CAY_E_EXISTS);
    ASSERT_CODE(cay_files_move(files, "data/a", "data/a", NULL, &err), CAY_E_EXISTS);
    ASSERT_STR(get_file("data/a"), "A");
}

TEST(move_moves_a_link_as_a_link)
{
    AUTO(cay_files) files = open_three();

    put_file("data/real", "x");
    ASSERT_INT(symlink("real", scratch_path("data/link")), 0);
    ASSERT_OK(cay_files_move(files, "data/link", "data/moved", NULL, &err));
    ASSERT(is_there("data/real") && is_there("data/moved"));
    ASSERT_CODE(cay_files_move(files, "data/moved", "other/moved", NULL, &err),
                CAY_E_UNSUPPORTED);
}

TEST(move_needs_writing_at_both_ends)
{
    AUTO(cay_files) files = open_three();

    put_file("docs/a", "x");
    put_file("data/a", "x");
    ASSERT_CODE(cay_files_move(files, "docs/a", "data/b", NULL, &err), CAY_E_READ_ONLY);
    ASSERT_CODE(cay_files_move(files, "data/a", "docs/b", NULL, &err), CAY_E_READ_ONLY);
    ASSERT_CODE(cay_files_move(files, "data/none", "data/b", NULL, &err),
                CAY_E_NOT_FOUND);
    ASSERT_CODE(cay_files_move(files, "data", "data/b", NULL, &err), CAY_E_NOT_A_FILE);
}

TEST(move_respects_the_destinations_size_rule)
{
    AUTO(cay_files) files = open_three();

    put_file("data/big", "123456789");
    put_file("data/fits", "12345678");
    ASSERT_CODE(cay_files_move(files, "data/big", "other/big", NULL, &err),
                CAY_E_TOO_LARGE);
    ASSERT_OK(cay_files_move(files, "data/fits", "other/x/fits", NULL, &err));
    ASSERT_STR(get_file("other/x/fits"), "12345678");
    ASSERT(is_there("data/big") && !is_there("data/fits"));
}

TEST(what_may_not_be_read_is_not_moved_to_where_it_could_be)
{
    static const char *const reads[] = {"data/x", "data/w/pub"};
    static const char *const writes[] = {"data/x", "data/secret", "data/w"};
    const struct cay_derive derive = {.size = sizeof derive,
                                      .allow_read = reads,
                                      .allow_read_count = 2,
                                      .allow_write = writes,
                                      .allow_write_count = 3};
    const struct cay_name_options options = {.size = sizeof options,
                                             .flags = CAY_NAME_DIRECTORY};
    AUTO(cay_files) parent = open_three();
    AUTO(cay_files) files = NULL;

    put_file("data/secret/s", "secret");
    put_file("data/secret/dir/pub/s", "secret");
    put_file("data/x/open", "x");
    ASSERT_OK(cay_files_derive(parent, &derive, &files, &err));
    ASSERT_CODE(cay_files_move(files, "data/secret/s", "data/x/s", NULL, &err),
                CAY_E_OUTSIDE);
    ASSERT_STR(err.subject, "data/secret/s");
    ASSERT_CODE(cay_files_move(files, "data/secret/dir", "data/w", &options, &err),
                CAY_E_OUTSIDE);
    ASSERT_OK(cay_files_move(files, "data/secret/s", "data/secret/t", NULL, &err));
    ASSERT_OK(cay_files_move(files, "data/x/open", "data/secret/open", NULL, &err));
}

TEST(a_directory_is_not_moved_into_itself)
{
    AUTO(cay_files) files = open_three();
    const struct cay_name_options options = {.size = sizeof options,
                                             .flags = CAY_NAME_DIRECTORY};

    put_file("data/k/a", "x");
    ASSERT_CODE(cay_files_move(files, "data/k", "data/k/new/x", &options, &err),
                CAY_E_INVALID);
    ASSERT_HAS(err.message, "into itself");
    ASSERT(!is_there("data/k/new"));
    ASSERT_OK(cay_files_move(files, "data/k", "data/kk", &options, &err));
}

TEST(a_directory_is_not_moved_past_a_size_rule)
{
    AUTO(cay_files) files = open_three();
    const struct cay_name_options options = {.size = sizeof options,
                                             .flags = CAY_NAME_DIRECTORY};

    put_file("data/dir/large", "more than eight");
    put_file("other/dir/small", "x");
    ASSERT_CODE(cay_files_move(files, "data/dir", "other/new", &options, &err),
                CAY_E_TOO_LARGE);
    ASSERT(is_there("data/dir/large") && !is_there("other/new"));
    ASSERT_OK(cay_files_move(files, "other/dir", "other/new", &options, &err));
    ASSERT_OK(cay_files_move(files, "other/new", "data/new", &options, &err));
}

TEST(move_takes_directories_only_when_asked_to)
{
    AUTO(cay_files) files = open_three();
    const struct cay_name_options options = {.size = sizeof options,
                                             .flags = CAY_NAME_DIRECTORY};

    put_file("data/dir/a", "x");
    ASSERT_CODE(cay_files_move(files, "data/dir", "data/new", NULL, &err),
                CAY_E_NOT_A_FILE);
    ASSERT_OK(cay_files_move(files, "data/dir", "data/new", &options, &err));
    ASSERT(is_there("data/new/a"));
    ASSERT_CODE(cay_files_move(files, "data", "other/new", NULL, &err), CAY_E_NOT_A_FILE);
    ASSERT_CODE(cay_files_move(files, "data", "other/new", &options, &err),
                CAY_E_INVALID);
    ASSERT_CODE(cay_files_move(files, "data/new", "data/new/inside", &options, &err),
                CAY_E_INVALID);
    ASSERT(is_there("data/new/a"));
}

TEST(move_replaces_when_asked_to_as_rename_does)
{
    AUTO(cay_files) files = open_three();
    const struct cay_name_options options = {
        .size = sizeof options, .flags = CAY_NAME_DIRECTORY | CAY_NAME_REPLACE};

    put_file("data/a", "A");
    put_file("data/b", "B");
    ASSERT_OK(cay_files_move(files, "data/a", "data/b", &options, &err));
    ASSERT_STR(get_file("data/b"), "A");
    ASSERT(!is_there("data/a"));
    ASSERT_OK(cay_files_move(files, "data/b", "data/b", &options, &err));
    put_file("data/full/c", "C");
    ASSERT_CODE(cay_files_move(files, "data/b", "data/full", &options, &err),
                CAY_E_NOT_A_FILE);
    ASSERT_STR(err.subject, "data/full");
    ASSERT_CODE(cay_files_move(files, "data/full", "data/b", &options, &err),
                CAY_E_NOT_A_DIRECTORY);
    ASSERT_INT(mkdir(scratch_path("data/empty"), 0777), 0);
    ASSERT_OK(cay_files_move(files, "data/full", "data/empty", &options, &err));
    put_file("data/other/d", "D");
    ASSERT_CODE(cay_files_move(files, "data/empty", "data/other", &options, &err),
                CAY_E_EXISTS);
    ASSERT_CODE(cay_files_move(files, "data/b", "data", &options, &err), CAY_E_INVALID);
    ASSERT_STR(get_file("data/b"), "A");
    ASSERT(is_there("data/empty/c") && is_there("data/other/d"));
}

TEST(a_move_that_fails_leaves_what_it_was_to_replace)
{
    AUTO(cay_files) files = open_three();
    const struct cay_name_options options = {.size = sizeof options,
                                             .flags = CAY_NAME_REPLACE};

    put_file("data/mine", "mine");
    put_file("docs/a", "x");
    ASSERT_CODE(cay_files_move(files, "data/none", "data/mine", &options, &err),
                CAY_E_NOT_FOUND);
    ASSERT_CODE(cay_files_move(files, "docs/a", "data/mine", &options, &err),
                CAY_E_READ_ONLY);
    ASSERT_STR(get_file("data/mine"), "mine");
}

TEST(a_failed_move_takes_its_new_directories_away)
{
    AUTO(cay_files) files = open_three();
    const struct cay_name_options options = {.size = sizeof options,
                                             .flags = CAY_NAME_DIRECTORY};

    put_file("data/dir/a", "x");
    ASSERT(cay_files_move(files, "data/dir", "data/dir/p/q/r", &options, &err) < 0);
    ASSERT(!is_there("data/dir/p"));
}

TEST(copy_copies_content_mode_and_time)
{
    AUTO(cay_files) files = open_three();
    const struct timespec times[2] = {{.tv_sec = 1000}, {.tv_sec = 2000}};
    struct stat st;

    put_file("docs/a", "text");
    ASSERT_INT(chmod(scratch_path("docs/a"), 0751), 0);
    ASSERT_INT(utimensat(AT_FDCWD, scratch_path("docs/a"), times, 0), 0);
    ASSERT_OK(cay_files_copy(files, "docs/a", "data/n/b", NULL, &err));
    ASSERT_STR(get_file("data/n/b"), "text");
    ASSERT_INT(stat(scratch_path("data/n/b"), &st), 0);
    ASSERT_INT(st.st_mode & 07777, 0751);
    ASSERT_INT(st.st_mtim.tv_sec, 2000);
}

TEST(copy_follows_links_inside_and_never_replaces)
{
    AUTO(cay_files) files = open_three();

    put_file("data/real", "text");
    put_file("outside", "secret");
    ASSERT_INT(symlink("real", scratch_path("data/link")), 0);
    ASSERT_INT(symlink("../outside", scratch_path("data/out")), 0);
    ASSERT_OK(cay_files_copy(files, "data/link", "data/copy", NULL, &err));
    ASSERT_STR(get_file("data/copy"), "text");
    ASSERT_CODE(cay_files_copy(files, "data/real", "data/copy", NULL, &err),
                CAY_E_EXISTS);
    ASSERT_CODE(cay_files_copy(files, "data/out", "data/c2", NULL, &err), CAY_E_OUTSIDE);
    ASSERT_CODE(cay_files_copy(files, "data", "data/c3", NULL, &err), CAY_E_NOT_A_FILE);
}

TEST(copy_respects_the_rules_of_both_ends)
{
    AUTO(cay_files) files = open_three();

    put_file("data/big", "123456789");
    ASSERT_CODE(cay_files_copy(files, "data/big", "other/big", NULL, &err),
                CAY_E_TOO_LARGE);
    ASSERT_CODE(cay_files_copy(files, "data/big", "docs/big", NULL, &err),
                CAY_E_READ_ONLY);
    ASSERT(!is_there("other/big"));
}

TEST(large_files_are_copied_whole)
{
    AUTO(cay_files) files = open_data();
    enum { LEN = 3 << 20 };
    AUTO_FREE char *text = malloc(LEN + 1);

    for (size_t i = 0; i < LEN; i++)
        text[i] = (char)('a' + i * 7 % 26);
    text[LEN] = '\0';
    put_file("data/a", text);
    ASSERT_OK(cay_files_copy(files, "data/a", "data/b", NULL, &err));
    const char *copy = get_file("data/b");
    ASSERT_MEM(copy, strlen(copy), text, LEN);
}

TEST(mkdir_makes_parents_and_says_what_exists)
{
    AUTO(cay_files) files = open_three();

    ASSERT_OK(cay_files_mkdir(files, "data/a/b/c", NULL, &err));
    ASSERT(is_there("data/a/b/c"));
    ASSERT_CODE(cay_files_mkdir(files, "data/a", NULL, &err), CAY_E_EXISTS);
    ASSERT_OK(with_flags(cay_files_mkdir, files, "data/a", CAY_NAME_EXIST_OK));
    put_file("data/file", "x");
    ASSERT_CODE(with_flags(cay_files_mkdir, files, "data/file", CAY_NAME_EXIST_OK),
                CAY_E_EXISTS);
    ASSERT_CODE(with_flags(cay_files_mkdir, files, "data/no/x", CAY_NAME_NO_PARENTS),
                CAY_E_NOT_FOUND);
    ASSERT_CODE(cay_files_mkdir(files, "docs/x", NULL, &err), CAY_E_READ_ONLY);
}

TEST(stat_follows_links_inside_or_describes_them)
{
    AUTO(cay_files) files = open_three();
    struct cay_stat st;

    put_file("data/real", "1234");
    ASSERT_INT(symlink("real", scratch_path("data/link")), 0);
    ASSERT_INT(mkfifo(scratch_path("data/fifo"), 0600), 0);
    ASSERT_OK(cay_files_stat(files, "data/link", false, &st, &err));
    ASSERT_INT(st.type, CAY_TYPE_FILE);
    ASSERT_INT(st.bytes, 4);
    ASSERT_OK(cay_files_stat(files, "data/link", true, &st, &err));
    ASSERT_INT(st.type, CAY_TYPE_LINK);
    ASSERT_OK(cay_files_stat(files, "data/fifo", false, &st, &err));
    ASSERT_INT(st.type, CAY_TYPE_OTHER);
    ASSERT_OK(cay_files_stat(files, "data", false, &st, &err));
    ASSERT_INT(st.type, CAY_TYPE_DIRECTORY);
    ASSERT_CODE(cay_files_stat(files, "data/none", false, &st, &err), CAY_E_NOT_FOUND);
}

TEST(exists_says_yes_no_or_why_not)
{
    AUTO(cay_files) files = open_three();

    put_file("data/a", "x");
    ASSERT_INT(cay_files_exists(files, "data/a", &err), 1);
    ASSERT_INT(cay_files_exists(files, "data/b", &err), 0);
    ASSERT_INT(cay_files_exists(files, "data/a/b", &err), 0);
    ASSERT_INT(cay_files_exists(files, "elsewhere", &err), CAY_E_OUTSIDE);
}

TEST(attributes_change_the_file_and_never_the_target_of_a_link)
{
    AUTO(cay_files) files = open_three();
    struct cay_attributes wanted = {
        .size = sizeof wanted, .flags = CAY_ATTRIBUTE_MODE, .mode = 01751};
    struct stat st;

    put_file("data/a", "x");
    put_file("docs/b", "x");
    put_file("outside", "x");
    ASSERT_INT(chmod(scratch_path("outside"), 0600), 0);
    ASSERT_INT(symlink("../outside", scratch_path("data/out")), 0);
    ASSERT_OK(cay_files_set_attributes(files, "data/a", &wanted, &err));
    ASSERT_INT(stat(scratch_path("data/a"), &st), 0);
    ASSERT_INT(st.st_mode & 07777, 01751);
    ASSERT_OK(cay_files_set_attributes(files, "data", &wanted, &err));
    ASSERT_CODE(cay_files_set_attributes(files, "data/out", &wanted, &err),
                CAY_E_INVALID);
    ASSERT_INT(stat(scratch_path("outside"), &st), 0);
    ASSERT_INT(st.st_mode & 07777, 0600);
    ASSERT_CODE(cay_files_set_attributes(files, "docs/b", &wanted, &err),
                CAY_E_READ_ONLY);
    ASSERT_CODE(cay_files_set_attributes(files, "data/none", &wanted, &err),
                CAY_E_NOT_FOUND);
    wanted.mode = 04755;
    ASSERT_CODE(cay_files_set_attributes(files, "data/a", &wanted, &err), CAY_E_INVALID);
    wanted = (struct cay_attributes){
        .size = sizeof wanted, .flags = CAY_ATTRIBUTE_OWNER, .uid = UINT32_MAX};
    ASSERT_CODE(cay_files_set_attributes(files, "data/a", &wanted, &err), CAY_E_INVALID);
    wanted.flags = 1 << 5;
    ASSERT_CODE(cay_files_set_attributes(files, "data/a", &wanted, &err),
                CAY_E_UNSUPPORTED);
}
