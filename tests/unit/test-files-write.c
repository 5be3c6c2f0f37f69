/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "policies.h"

static int write_text(cay_files *files, const char *path, const char *text,
                      unsigned flags)
{
    const struct cay_write_options options = {.size = sizeof options, .flags = flags};

    return cay_files_write(files, path, text, strlen(text), &options, &err);
}

static struct stat stat_of_file(const char *name)
{
    struct stat st = {0};

    ASSERT_INT(lstat(scratch_path(name), &st), 0);
    return st;
}

TEST(a_write_creates_the_file_and_its_parents)
{
    AUTO(cay_files) files = open_data();

    ASSERT_OK(write_text(files, "data/a/b/c.txt", "text", 0));
    ASSERT_STR(get_file("data/a/b/c.txt"), "text");
}

TEST(a_write_replaces_the_whole_content)
{
    AUTO(cay_files) files = open_data();

    put_file("data/a", "a longer text than the new one");
    ASSERT_OK(write_text(files, "data/a", "short", 0));
    ASSERT_STR(get_file("data/a"), "short");
    ASSERT_OK(write_text(files, "data/a", "", 0));
    ASSERT_STR(get_file("data/a"), "");
}

TEST(bytes_of_any_kind_are_written_as_they_are)
{
    AUTO(cay_files) files = open_data();

    ASSERT_OK(cay_files_write(files, "data/a", "\0\r\n\xFF", 4, NULL, &err));
    ASSERT_INT(stat_of_file("data/a").st_size, 4);
}

TEST(a_replaced_file_keeps_its_mode_and_attributes_but_not_its_inode)
{
    AUTO(cay_files) files = open_data();
    char value[8];

    put_file("data/a", "old");
    ASSERT_INT(chmod(scratch_path("data/a"), 0751), 0);
    bool attributes = setxattr(scratch_path("data/a"), "user.note", "kept", 4, 0) == 0;
    struct stat before = stat_of_file("data/a");
    ASSERT_OK(write_text(files, "data/a", "new", 0));
    struct stat after = stat_of_file("data/a");
    ASSERT_INT(after.st_mode & 07777, 0751);
    ASSERT(after.st_ino != before.st_ino);
    if (attributes)
        ASSERT_INT(getxattr(scratch_path("data/a"), "user.note", value, sizeof value), 4);
}

TEST(a_replaced_file_keeps_its_owner)
{
    AUTO(cay_files) files = open_data();

    if (geteuid() != 0)
        SKIP("only root can give files away");
    put_file("data/a", "old");
    ASSERT_INT(chown(scratch_path("data/a"), 1234, 4321), 0);
    ASSERT_OK(write_text(files, "data/a", "new", 0));
    ASSERT_INT(stat_of_file("data/a").st_uid, 1234);
    ASSERT_INT(stat_of_file("data/a").st_gid, 4321);
}

TEST(a_new_file_respects_the_umask)
{
    AUTO(cay_files) files = open_data();
    mode_t before = umask(027);

    int code = write_text(files, "data/sub/a", "new", 0);
    umask(before);
    ASSERT_INT(code, CAY_OK);
    ASSERT_INT(stat_of_file("data/sub/a").st_mode & 07777, 0640);
    ASSERT_INT(stat_of_file("data/sub").st_mode & 07777, 0750);
}

TEST(in_place_keeps_the_inode_and_the_other_names_of_the_file)
{
    AUTO(cay_files) files = open_data();

    put_file("data/a", "a longer old text");
    ASSERT_INT(link(scratch_path("data/a"), scratch_path("data/b")), 0);
    ASSERT_OK(write_text(files, "data/a", "new", CAY_WRITE_IN_PLACE));
    ASSERT_STR(get_file("data/b"), "new");
    ASSERT_OK(write_text(files, "data/a", "newer and longer than ever", 0));
    ASSERT_STR(get_file("data/b"), "new");
}

TEST(in_place_creates_what_is_not_there)
{
    AUTO(cay_files) files = open_data();

    ASSERT_OK(write_text(files, "data/x/a", "new", CAY_WRITE_IN_PLACE));
    ASSERT_STR(get_file("data/x/a"), "new");
}

TEST(append_adds_and_creates)
{
    AUTO(cay_files) files = open_data();

    ASSERT_OK(write_text(files, "data/a", "one,", CAY_WRITE_APPEND));
    ASSERT_OK(write_text(files, "data/a", "two", CAY_WRITE_APPEND));
    ASSERT_STR(get_file("data/a"), "one,two");
}

TEST(new_refuses_what_is_there_already)
{
    AUTO(cay_files) files = open_data();

    ASSERT_OK(write_text(files, "data/a", "one", CAY_WRITE_NEW));
    ASSERT_CODE(write_text(files, "data/a", "two", CAY_WRITE_NEW), CAY_E_EXISTS);
    ASSERT_STR(get_file("data/a"), "one");
}

TEST(without_parents_a_missing_directory_is_not_found)
{
    AUTO(cay_files) files = open_data();

    ASSERT_CODE(write_text(files, "data/no/a", "x", CAY_WRITE_NO_PARENTS),
                CAY_E_NOT_FOUND);
    ASSERT(access(scratch_path("data/no"), F_OK) != 0);
}

TEST(durable_writes_arrive_too)
{
    AUTO(cay_files) files = open_data();

    ASSERT_OK(write_text(files, "data/a", "one", CAY_WRITE_DURABLE));
    ASSERT_OK(write_text(files, "data/a", "two", CAY_WRITE_DURABLE | CAY_WRITE_APPEND));
    ASSERT_STR(get_file("data/a"), "onetwo");
}

TEST(ways_of_writing_that_exclude_each_other_are_refused)
{
    AUTO(cay_files) files = open_data();

    ASSERT_CODE(write_text(files, "data/a", "x", CAY_WRITE_APPEND | CAY_WRITE_NEW),
                CAY_E_INVALID);
    ASSERT_CODE(write_text(files, "data/a", "x", 1u << 20), CAY_E_UNSUPPORTED);
}

TEST(a_link_inside_is_written_through_and_stays_a_link)
{
    AUTO(cay_files) files = open_data();

    put_file("data/real", "old");
    ASSERT_INT(symlink("real", scratch_path("data/link")), 0);
    ASSERT_INT(symlink("later/new", scratch_path("data/dangling")), 0);
    ASSERT_OK(write_text(files, "data/link", "new", 0));
    ASSERT(S_ISLNK(stat_of_file("data/link").st_mode));
    ASSERT_STR(get_file("data/real"), "new");
    ASSERT_OK(write_text(files, "data/dangling", "made", 0));
    ASSERT_STR(get_file("data/later/new"), "made");
}

TEST(a_link_that_leads_out_is_never_written_through)
{
    AUTO(cay_files) files = open_data();

    put_file("outside/file", "safe");
    ASSERT_INT(symlink("../outside/file", scratch_path("data/link")), 0);
    ASSERT_INT(symlink("../outside", scratch_path("data/dir")), 0);
    ASSERT_INT(symlink("../outside/new", scratch_path("data/dangling")), 0);
    static const char *const paths[] = {"data/link", "data/dir/file", "data/dangling"};
    for (size_t i = 0; i < 3; i++)
        ASSERT_CODE(write_text(files, paths[i], "x", 0), CAY_E_OUTSIDE);
    ASSERT_STR(get_file("outside/file"), "safe");
    ASSERT(!get_file("outside/new"));
}

TEST(directories_fifos_and_the_root_are_not_written)
{
    AUTO(cay_files) files = open_data();

    ASSERT_INT(mkdir(scratch_path("data/dir"), 0700), 0);
    ASSERT_INT(mkfifo(scratch_path("data/fifo"), 0600), 0);
    put_file("data/file", "x");
    static const unsigned ways[] = {0, CAY_WRITE_IN_PLACE, CAY_WRITE_APPEND};
    for (size_t i = 0; i < 3; i++) {
        ASSERT_CODE(write_text(files, "data/dir", "x", ways[i]), CAY_E_NOT_A_FILE);
        ASSERT_CODE(write_text(files, "data/fifo", "x", ways[i]), CAY_E_NOT_A_FILE);
        ASSERT_CODE(write_text(files, "data", "x", ways[i]), CAY_E_NOT_A_FILE);
        ASSERT_CODE(write_text(files, "data/file/x", "x", ways[i]),
                    CAY_E_NOT_A_DIRECTORY);
    }
}

TEST(read_only_paths_say_where_writing_is_allowed)
{
    struct cay_mount mounts[2] = {CAY_MOUNT_INIT, CAY_MOUNT_INIT};

    mounts[0].name = "docs";
    mounts[0].host = "docs";
    mounts[1].name = "out";
    mounts[1].host = "out";
    mounts[1].writable = true;
    AUTO(cay_files) files = open_mounts(CAY_STYLE_PATHS, mounts, 2);
    ASSERT_CODE(write_text(files, "docs/a", "x", 0), CAY_E_READ_ONLY);
    ASSERT_HAS(err.hint, "out");
    ASSERT_CODE(write_text(files, "elsewhere/a", "x", 0), CAY_E_OUTSIDE);
    ASSERT_HAS(err.hint, "docs");
}

TEST(the_size_rule_counts_what_the_file_will_have)
{
    struct cay_mount mount = CAY_MOUNT_INIT;

    mount.name = "data";
    mount.host = "data";
    mount.writable = true;
    mount.max_file_bytes = 4;
    AUTO(cay_files) files = open_mounts(CAY_STYLE_PATHS, &mount, 1);
    ASSERT_OK(write_text(files, "data/a", "1234", 0));
    ASSERT_CODE(write_text(files, "data/a", "12345", 0), CAY_E_TOO_LARGE);
    ASSERT_CODE(write_text(files, "data/a", "5", CAY_WRITE_APPEND), CAY_E_TOO_LARGE);
    ASSERT_STR(get_file("data/a"), "1234");
}

TEST(a_file_that_its_mode_protects_is_not_replaced)
{
    AUTO(cay_files) files = open_data();

    put_file("data/a", "old");
    ASSERT_INT(chmod(scratch_path("data/a"), 0444), 0);
    ASSERT_INT(chmod(scratch_path("data"), 0777), 0);
    if (geteuid() == 0 && seteuid(65534) != 0)
        SKIP("cannot become nobody");
    int code = write_text(files, "data/a", "new", 0);
    if (getuid() == 0)
        ASSERT_INT(seteuid(0), 0);
    ASSERT_INT(code, CAY_E_DENIED);
    ASSERT_STR(get_file("data/a"), "old");
}

TEST(a_full_disk_leaves_the_old_file_and_nothing_new)
{
    AUTO_FREE char *large = malloc(1 << 20);
    static const unsigned ways[] = {0, CAY_WRITE_IN_PLACE, CAY_WRITE_APPEND};

    memset(large, 'x', 1 << 20);
    ASSERT_INT(mkdir(scratch_path("data"), 0700), 0);
    if (mount("tmpfs", scratch_path("data"), "tmpfs", 0, "size=256k") != 0)
        SKIP("cannot mount a small tmpfs");
    AUTO(cay_files) files = open_data();
    put_file("data/a", "old");
    for (size_t i = 0; i < 3; i++) {
        const struct cay_write_options options = {.size = sizeof options,
                                                  .flags = ways[i]};
        int code = cay_files_write(files, "data/a", large, 1 << 20, &options, &err);
        int made = cay_files_write(files, "data/x/y/z", large, 1 << 20, &options, NULL);
        bool left = access(scratch_path("data/x"), F_OK) == 0;
        const char *text = get_file("data/a");
        if (code != CAY_E_NO_SPACE || made != CAY_E_NO_SPACE || left ||
            strcmp(text, "old") != 0)
            umount2(scratch_path("data"), MNT_DETACH);
        ASSERT_INT(code, CAY_E_NO_SPACE);
        ASSERT_INT(made, CAY_E_NO_SPACE);
        ASSERT(!left);
        ASSERT_STR(text, "old");
    }
    cay_files_free(TAKE_PTR(files));
    struct statfs fs;
    ASSERT_INT(statfs(scratch_path("data"), &fs), 0);
    ASSERT_INT(umount2(scratch_path("data"), 0), 0);
    ASSERT(fs.f_blocks - fs.f_bfree <= 1);
}

TEST(many_files_are_written_in_one_call_each_with_its_own_outcome)
{
    AUTO(cay_files) files = open_data();
    struct cay_write_item items[] = {
        {.path = "data/a", .data = "A", .len = 1},
        {.path = "nowhere", .data = "B", .len = 1},
        {.path = "data/d/c", .data = "C", .len = 1},
    };

    ASSERT_OK(cay_files_write_many(files, items, 3, NULL, &err));
    ASSERT_INT(items[0].error.code, CAY_OK);
    ASSERT_INT(items[1].error.code, CAY_E_OUTSIDE);
    ASSERT_STR(get_file("data/d/c"), "C");
}

TEST(names_of_every_kind_work)
{
    AUTO(cay_files) files = open_data();
    static const char *const names[] = {
        "with space", "new\nline", "-dash",  "quote'\"", "back\\slash", "\xFF\xFE",
        "日本語",     " blanks ",  "~tilde", "a:b",      "..dots..",    "..."};
    char path[64];

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "data/%s", names[i]);
        ASSERT_OK(write_text(files, path, names[i], 0));
        ASSERT_STR(get_file(path), names[i]);
    }
}
