/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "policies.h"

static int open_text(const char *text, cay_files **ret_files)
{
    AUTO(cay_policy) policy = NULL;
    int code = cay_policy_parse(text, strlen(text), "cay.yaml", scratch(), &policy, &err);

    return code ? code : cay_files_open(policy, NULL, ret_files, &err);
}

TEST(missing_writable_roots_are_created_and_read_only_ones_must_exist)
{
    AUTO(cay_files) files = NULL;

    ASSERT_OK(open_text("paths:\n  out:\n    root: a/b/out\n    mode: rw\n", &files));
    ASSERT_INT(access(scratch_path("a/b/out"), F_OK), 0);
    ASSERT_CODE(open_text("paths:\n  docs:\n    root: docs\n", &files), CAY_E_NOT_FOUND);
    ASSERT_HAS(err.message, "cay.yaml:2: paths.docs");
    ASSERT(access(scratch_path("docs"), F_OK) != 0);
}

TEST(overlapping_roots_are_named_by_line_and_key_also_through_links)
{
    cay_files *files = NULL;

    ASSERT_INT(mkdir(scratch_path("a"), 0700), 0);
    ASSERT_INT(mkdir(scratch_path("a/b"), 0700), 0);
    ASSERT_INT(symlink("a/b", scratch_path("link")), 0);
    ASSERT_CODE(
        open_text("paths:\n  one:\n    root: a\n  two:\n    root: link\n", &files),
        CAY_E_INVALID);
    ASSERT_HAS(err.message, "overlap");
    ASSERT_HAS(err.message, "cay.yaml:4: paths.two");
    ASSERT_HAS(err.message, "cay.yaml:2: paths.one");
    ASSERT_CODE(open_text("mounts:\n- {host_path: a, mount_point: /x}\n"
                          "- {host_path: a, mount_point: /y}\n",
                          &files),
                CAY_E_INVALID);
    ASSERT_INT(mkdir(scratch_path("ab"), 0700), 0);
    ASSERT_OK(open_text("paths: {one: {root: a}, two: {root: ab}}", &files));
    cay_files_free(files);
}

TEST(a_policy_that_is_refused_leaves_no_directories)
{
    cay_files *files = NULL;

    ASSERT_INT(mkdir(scratch_path("there"), 0700), 0);
    ASSERT_CODE(open_text("paths:\n  one: {root: there/a/b, mode: rw}\n"
                          "  two: {root: there/a, mode: rw}\n",
                          &files),
                CAY_E_INVALID);
    ASSERT_CODE(open_text("paths:\n  one: {root: new/a, mode: rw}\n"
                          "  two: {root: missing, mode: ro}\n",
                          &files),
                CAY_E_NOT_FOUND);
    ASSERT(access(scratch_path("there"), F_OK) == 0);
    ASSERT(access(scratch_path("there/a"), F_OK) != 0);
    ASSERT(access(scratch_path("new"), F_OK) != 0);
}

TEST(a_root_that_is_a_file_is_refused)
{
    cay_files *files = NULL;

    put_file("file", "x");
    ASSERT_CODE(open_text("root: file\n", &files), CAY_E_NOT_A_DIRECTORY);
}

TEST(a_location_tells_where_a_path_leads)
{
    AUTO(cay_files) files = open_data();
    struct cay_location where = {.size = sizeof where};

    put_file("data/real/file", "x");
    ASSERT_INT(symlink("real", scratch_path("data/link")), 0);
    ASSERT_OK(cay_files_locate(files, "data:link/./file", CAY_ACCESS_READ, &where, &err));
    ASSERT_STR(where.name, "data");
    ASSERT_STR(where.path, "data/real/file");
    ASSERT_STR(where.host, scratch_path("data/real/file"));
    ASSERT(where.exists && where.write_approval && !where.read_approval);
    ASSERT_INT(where.access, CAY_ACCESS_READ | CAY_ACCESS_WRITE);
    cay_location_done(&where);
    ASSERT_OK(cay_files_locate(files, "data/new/x", CAY_ACCESS_WRITE, &where, &err));
    ASSERT(!where.exists);
    cay_location_done(&where);
}

TEST(a_host_path_inside_a_root_is_understood_in_the_paths_style)
{
    AUTO(cay_files) files = open_data();

    put_file("data/file", "x");
    ASSERT(cay_files_can(files, scratch_path("data/file"), CAY_ACCESS_READ));
    ASSERT(!cay_files_can(files, scratch_path("datax"), CAY_ACCESS_READ));
    ASSERT(!cay_files_can(files, "/etc/passwd", CAY_ACCESS_READ));
}

/* /data is an outer mount whose own directory "special" is hidden behind /data/special.
 */
static cay_files *open_nested(void)
{
    struct cay_mount mounts[2] = {CAY_MOUNT_INIT, CAY_MOUNT_INIT};

    mounts[0].name = "/data";
    mounts[0].host = "outer";
    mounts[0].writable = true;
    mounts[1].name = "/data/special";
    mounts[1].host = "inner";
    put_file("outer/special/x", "hidden");
    put_file("outer/y/z", "z");
    put_file("inner/x", "shown");
    return open_mounts(CAY_STYLE_MOUNTS, mounts, 2);
}

TEST(a_nested_mount_rules_its_paths_however_they_are_spelled)
{
    AUTO(cay_files) files = open_nested();
    static const char *const spellings[] = {"/data/special/x",      "/data/./special/x",
                                            "/data/y/../special/x", "data//special//x",
                                            "\\data\\special\\x",   " /data/special/x "};
    struct cay_page page;

    for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++) {
        ASSERT_OK(cay_files_read(files, spellings[i], NULL, &page, &err));
        ASSERT_STR(page.text, "shown");
        cay_page_done(&page);
        ASSERT_CODE(cay_files_write(files, spellings[i], "w", 1, NULL, &err),
                    CAY_E_READ_ONLY);
    }
    ASSERT_OK(cay_files_write(files, "/data/special/../ok", "w", 1, NULL, &err));
}

TEST(a_link_cannot_reach_what_a_nested_mount_hides)
{
    AUTO(cay_files) files = open_nested();

    ASSERT_INT(symlink("special/x", scratch_path("outer/link")), 0);
    ASSERT_INT(symlink("special", scratch_path("outer/dir")), 0);
    ASSERT(!cay_files_can(files, "/data/link", CAY_ACCESS_READ));
    ASSERT(!cay_files_can(files, "/data/dir/x", CAY_ACCESS_WRITE));
}

TEST(approvals_are_needed_as_the_mount_says_and_only_where_access_is_granted)
{
    AUTO(cay_files) files = open_nested();

    ASSERT(cay_files_needs_approval(files, "/data/y", CAY_ACCESS_WRITE));
    ASSERT(!cay_files_needs_approval(files, "/data/y", CAY_ACCESS_READ));
    ASSERT(!cay_files_needs_approval(files, "/data/special/x", CAY_ACCESS_WRITE));
    ASSERT(!cay_files_needs_approval(files, "/elsewhere", CAY_ACCESS_WRITE));
}

TEST(explain_says_which_rule_decides_and_no_host_path)
{
    AUTO(cay_files) files = open_nested();
    char *sentence;

    ASSERT_OK(cay_files_explain(files, "/data/special/x", &sentence, &err));
    ASSERT_HAS(sentence, "/data/special");
    ASSERT_HAS(sentence, "readable");
    ASSERT(!strstr(sentence, scratch()));
    cay_free(sentence);
    ASSERT_OK(cay_files_explain(files, "/nowhere", &sentence, &err));
    ASSERT_HAS(sentence, "outside");
    ASSERT_HAS(sentence, "/data");
    cay_free(sentence);
}

TEST(explain_says_why_also_of_a_path_that_is_longer_than_any_can_be)
{
    AUTO(cay_files) files = NULL;
    AUTO_FREE char *sentence = NULL;
    char path[20000];

    memset(path, 'a', sizeof path);
    path[0] = '~';
    path[sizeof path - 1] = '\0';
    ASSERT_OK(open_text("root: data\n", &files));
    ASSERT_OK(cay_files_explain(files, path, &sentence, &err));
    ASSERT_HAS(sentence, "a path must not start with '~'; readable paths: /");
}

TEST(suffix_and_size_rules_can_be_asked_directly)
{
    static const char *const suffixes[] = {".txt"};
    struct cay_mount mount = CAY_MOUNT_INIT;

    mount.host = "root";
    mount.limit_suffixes = true;
    mount.suffixes = suffixes;
    mount.suffix_count = 1;
    mount.max_file_bytes = 10;
    AUTO(cay_files) files = open_mounts(CAY_STYLE_ROOT, &mount, 1);
    ASSERT_OK(cay_files_check_suffix(files, 0, "/a.TXT", &err));
    ASSERT_CODE(cay_files_check_suffix(files, 0, "/a.png", &err), CAY_E_SUFFIX);
    ASSERT_CODE(cay_files_check_suffix(files, 1, "/a.png", &err), CAY_E_INVALID);
    ASSERT_OK(cay_files_check_size(files, 0, "/a.txt", 10, &err));
    ASSERT_CODE(cay_files_check_size(files, 0, "/a.txt", 11, &err), CAY_E_TOO_LARGE);
}

/* --- derive --- */

static int derive(cay_files *files, const char *read, const char *write,
                  enum cay_readonly readonly, bool inherit, cay_files **ret_child)
{
    const struct cay_derive wish = {.size = sizeof wish,
                                    .allow_read = read ? &read : NULL,
                                    .allow_read_count = read != NULL,
                                    .allow_write = write ? &write : NULL,
                                    .allow_write_count = write != NULL,
                                    .readonly = readonly,
                                    .inherit = inherit};

    return cay_files_derive(files, &wish, ret_child, &err);
}

static bool can(cay_files *files, const char *path, unsigned access)
{
    return cay_files_can(files, path, access);
}

TEST(a_child_of_nothing_has_nothing)
{
    AUTO(cay_files) files = open_data();
    AUTO(cay_files) child = NULL;
    struct cay_strings roots;

    ASSERT_OK(derive(files, NULL, NULL, 0, false, &child));
    ASSERT(!can(child, "data/x", CAY_ACCESS_READ));
    ASSERT_OK(cay_files_roots(child, CAY_ACCESS_READ, &roots, &err));
    ASSERT_INT(roots.count, 0);
    cay_strings_done(&roots);
}

TEST(a_child_that_inherits_has_what_its_parent_has_and_outlives_it)
{
    cay_files *files = open_data();
    AUTO(cay_files) child = NULL;
    AUTO(cay_files) reader = NULL;

    ASSERT_OK(derive(files, NULL, NULL, 0, true, &child));
    ASSERT_OK(derive(files, NULL, NULL, CAY_READONLY_TRUE, true, &reader));
    cay_files_free(files);
    ASSERT(can(child, "data/x", CAY_ACCESS_READ | CAY_ACCESS_WRITE));
    ASSERT(can(reader, "data/x", CAY_ACCESS_READ));
    ASSERT(!can(reader, "data/x", CAY_ACCESS_WRITE));
    ASSERT_OK(cay_files_write(child, "data/x", "x", 1, NULL, &err));
}

TEST(allow_lists_narrow_what_can_be_read_and_written)
{
    AUTO(cay_files) files = open_data();
    AUTO(cay_files) reads = NULL;
    AUTO(cay_files) writes = NULL;
    AUTO(cay_files) both = NULL;

    ASSERT_OK(derive(files, "data/a", NULL, 0, false, &reads));
    ASSERT(can(reads, "data/a/x", CAY_ACCESS_READ) &&
           can(reads, "data/a", CAY_ACCESS_READ));
    ASSERT(!can(reads, "data/ab", CAY_ACCESS_READ) &&
           !can(reads, "data", CAY_ACCESS_READ));
    ASSERT(!can(reads, "data/a/x", CAY_ACCESS_WRITE));
    ASSERT_OK(derive(files, NULL, "data/w", 0, false, &writes));
    ASSERT(can(writes, "data/w/x", CAY_ACCESS_READ | CAY_ACCESS_WRITE));
    ASSERT_OK(derive(files, "data/a", "data/b", 0, false, &both));
    ASSERT(!can(both, "data/b", CAY_ACCESS_READ) &&
           can(both, "data/b", CAY_ACCESS_WRITE));
}

TEST(the_roots_of_a_child_are_its_entries)
{
    AUTO(cay_files) files = open_data();
    AUTO(cay_files) child = NULL;
    struct cay_strings roots;

    ASSERT_OK(derive(files, "data:sub/", NULL, 0, false, &child));
    ASSERT_OK(cay_files_roots(child, CAY_ACCESS_READ, &roots, &err));
    ASSERT_INT(roots.count, 1);
    ASSERT_STR(roots.items[0], "data/sub");
    cay_strings_done(&roots);
    ASSERT_CODE(cay_files_read(child, "data/x", NULL, &(struct cay_page){0}, &err),
                CAY_E_OUTSIDE);
    ASSERT_HAS(err.hint, "data/sub");
}

TEST(any_widening_at_any_depth_is_an_escalation)
{
    struct cay_mount mounts[2] = {CAY_MOUNT_INIT, CAY_MOUNT_INIT};
    AUTO(cay_files) child = NULL;
    cay_files *never = NULL;

    mounts[0].name = mounts[0].host = "ro";
    mounts[1].name = mounts[1].host = "rw";
    mounts[1].writable = true;
    AUTO(cay_files) files = open_mounts(CAY_STYLE_PATHS, mounts, 2);
    ASSERT_CODE(derive(files, "elsewhere", NULL, 0, false, &never), CAY_E_ESCALATION);
    ASSERT_INT(err.sys_errno, EACCES);
    ASSERT_CODE(derive(files, NULL, "ro/x", 0, false, &never), CAY_E_ESCALATION);
    ASSERT_INT(err.sys_errno, EROFS);

    ASSERT_OK(derive(files, "rw/a", NULL, 0, false, &child));
    ASSERT_CODE(derive(child, "rw", NULL, 0, false, &never), CAY_E_ESCALATION);
    ASSERT_CODE(derive(child, "rw/b", NULL, 0, false, &never), CAY_E_ESCALATION);
    ASSERT_CODE(derive(child, NULL, "rw/a", 0, false, &never), CAY_E_ESCALATION);
    ASSERT_CODE(derive(child, NULL, NULL, CAY_READONLY_FALSE, true, &never),
                CAY_E_ESCALATION);
    AUTO(cay_files) grandchild = NULL;
    ASSERT_OK(derive(child, "rw/a/deep", NULL, 0, false, &grandchild));
    ASSERT(!can(grandchild, "rw/a/x", CAY_ACCESS_READ));
}

TEST(entries_that_climb_or_are_files_are_refused)
{
    struct cay_mount mount = CAY_MOUNT_INIT;
    cay_files *never = NULL;

    mount.name = "/m";
    mount.host = "m";
    AUTO(cay_files) files = open_mounts(CAY_STYLE_MOUNTS, &mount, 1);
    put_file("m/file", "x");
    ASSERT_CODE(derive(files, "/m/a/../b", NULL, 0, false, &never), CAY_E_INVALID);
    ASSERT_HAS(err.message, "must not contain '..'");
    ASSERT_CODE(derive(files, " /m/a/.. ", NULL, 0, false, &never), CAY_E_INVALID);
    ASSERT_CODE(derive(files, "/m/file", NULL, 0, false, &never), CAY_E_INVALID);
    ASSERT_HAS(err.hint, "parent directory");

    /* What the parent may not have comes first: it learns of no file there. */
    AUTO(cay_files) child = NULL;
    ASSERT_CODE(derive(files, "/m/a", "/m/file", 0, false, &never), CAY_E_ESCALATION);
    ASSERT_OK(derive(files, "/m/a", NULL, 0, false, &child));
    ASSERT_CODE(derive(child, "/m/file", NULL, 0, false, &never), CAY_E_ESCALATION);
}

TEST(entries_below_one_root_start_with_a_slash_whatever_blanks_are_around)
{
    struct cay_mount mount = CAY_MOUNT_INIT;
    cay_files *never = NULL;

    mount.host = "m";
    AUTO(cay_files) files = open_mounts(CAY_STYLE_ROOT, &mount, 1);
    for (int i = 0; i < 2; i++) {
        AUTO(cay_files) child = NULL;
        ASSERT_OK(derive(files, i ? "\\a" : " /a ", NULL, 0, false, &child));
        ASSERT(can(child, "/a/x", CAY_ACCESS_READ));
    }
    ASSERT_CODE(derive(files, " a ", NULL, 0, false, &never), CAY_E_INVALID);
    ASSERT_STR(err.hint, "write \"/a\"");
    ASSERT_CODE(derive(files, "", NULL, 0, false, &never), CAY_E_INVALID);
}

TEST(an_entry_that_is_no_directory_means_the_one_it_is_in)
{
    AUTO(cay_files) files = open_data();
    struct cay_strings roots;

    put_file("data/o/file", "x");
    ASSERT_INT(mkfifo(scratch_path("data/o/fifo"), 0600), 0);
    for (int i = 0; i < 2; i++) {
        AUTO(cay_files) child = NULL;
        const char *entry = i ? "data/o/fifo" : "data/o/file";
        ASSERT_OK(derive(files, entry, NULL, 0, false, &child));
        ASSERT(can(child, "data/o/x", CAY_ACCESS_READ));
        ASSERT_OK(cay_files_roots(child, CAY_ACCESS_READ, &roots, &err));
        ASSERT_INT(roots.count, 1);
        ASSERT_STR(roots.items[0], "data/o");
        cay_strings_done(&roots);
    }
}

TEST(what_an_entry_covers_is_fixed_by_what_it_resolves_to_now)
{
    AUTO(cay_files) files = open_data();
    AUTO(cay_files) child = NULL;

    put_file("data/real/x", "x");
    put_file("data/secret/x", "x");
    ASSERT_INT(symlink("real", scratch_path("data/link")), 0);
    ASSERT_OK(derive(files, "data/link", NULL, 0, false, &child));
    ASSERT(can(child, "data/link/x", CAY_ACCESS_READ));
    ASSERT(can(child, "data/real/x", CAY_ACCESS_READ));
    ASSERT_INT(unlink(scratch_path("data/link")), 0);
    ASSERT_INT(symlink("secret", scratch_path("data/link")), 0);
    ASSERT(!can(child, "data/link/x", CAY_ACCESS_READ));
}

TEST(what_is_released_may_be_null)
{
    cay_page_done(NULL);
    cay_location_done(NULL);
    cay_strings_done(NULL);
    cay_listing_done(NULL);
    cay_matches_done(NULL);
}

TEST(a_question_about_a_name_does_not_follow_it)
{
    AUTO(cay_files) files = open_data();
    const unsigned name = CAY_ACCESS_READ | CAY_ACCESS_NAME;
    struct cay_location location;
    struct cay_pin pin;

    ASSERT_INT(symlink("/etc", scratch_path("data/out")), 0);
    ASSERT(!can(files, "data/out", CAY_ACCESS_READ));
    ASSERT(can(files, "data/out", name));
    ASSERT(!can(files, "data/out/passwd", name));
    ASSERT(!can(files, "etc/passwd", name));
    ASSERT_OK(cay_files_locate(files, "data/out", name, &location, &err));
    ASSERT_STR(location.path, "data/out");
    cay_location_done(&location);
    ASSERT_OK(cay_files_pin(files, "data/out", &pin, &err));
    ASSERT_CODE(cay_files_pin(files, "data/out/passwd", &pin, &err), CAY_E_OUTSIDE);
}

TEST(an_access_that_is_not_known_is_not_granted)
{
    AUTO(cay_files) files = open_data();
    cay_files *child = NULL;
    const struct cay_derive derive = {
        .size = sizeof derive, .readonly = (enum cay_readonly)9, .inherit = true};

    ASSERT(!cay_files_can(files, "data/a", 8));
    ASSERT(!cay_files_can(files, "data/a", CAY_ACCESS_READ | 8));
    ASSERT_CODE(cay_files_derive(files, &derive, &child, &err), CAY_E_INVALID);
}
