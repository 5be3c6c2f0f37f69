/* SPDX-License-Identifier: Apache-2.0 */
#include "test-policy-fixture.h"

/* --- Mounts --------------------------------------------------------------------------
 */

TEST(a_mounted_path_has_many_spellings)
{
    AUTO(cay_policy) policy = policy_of(CAY_STYLE_MOUNTS, "/data", NULL);

    ASSERT_PLACE(policy, "/data/x", "/data|x");
    ASSERT_PLACE(policy, "data/x", "/data|x");
    ASSERT_PLACE(policy, "//data//x", "/data|x");
    ASSERT_PLACE(policy, "\\data\\x", "/data|x");
    ASSERT_PLACE(policy, "  /data/x ", "/data|x");
    ASSERT_PLACE(policy, "\t\n\v\f\r/data/x\r\f\v\n\t", "/data|x");
    ASSERT_PLACE(policy, "/data/./x", "/data|x");
    ASSERT_PLACE(policy, "/data/a/../x", "/data|x");
    ASSERT_PLACE(policy, "/data", "/data|");
    ASSERT_PLACE(policy, "data", "/data|");
}

TEST(a_trailing_slash_is_dropped)
{
    AUTO(cay_policy) mounts = policy_of(CAY_STYLE_MOUNTS, "/data", NULL);
    AUTO(cay_policy) paths = policy_of(CAY_STYLE_PATHS, "data", NULL);
    AUTO(cay_policy) root = policy_of(CAY_STYLE_ROOT, "/", NULL);

    ASSERT_PLACE(mounts, "/data/a/", "/data|a");
    ASSERT_PLACE(mounts, "/data///", "/data|");
    ASSERT_PLACE(mounts, "/data/a/.", "/data|a");
    ASSERT_PLACE(paths, "data/a/", "data|a");
    ASSERT_PLACE(paths, "data/", "data|");
    ASSERT_PLACE(root, "/a/", "/|a");
}

TEST(mount_points_cover_whole_components)
{
    AUTO(cay_policy) policy = policy_of(CAY_STYLE_MOUNTS, "/data", NULL);

    ASSERT_PLACE(policy, "/database", "outside");
    ASSERT_PLACE(policy, "/dat", "outside");
    ASSERT_PLACE(policy, "/data..", "outside");
    ASSERT_PLACE(policy, "/data/...", "/data|...");
    ASSERT_PLACE(policy, "/data/a..b", "/data|a..b");
}

TEST(names_are_case_sensitive)
{
    AUTO(cay_policy) mounts = policy_of(CAY_STYLE_MOUNTS, "/data", NULL);
    AUTO(cay_policy) paths = policy_of(CAY_STYLE_PATHS, "data", NULL);

    ASSERT_PLACE(mounts, "/Data/x", "outside");
    ASSERT_PLACE(mounts, "/data/X", "/data|X");
    ASSERT_PLACE(paths, "DATA/x", "outside");
}

TEST(the_top_is_outside_unless_something_is_mounted_there)
{
    AUTO(cay_policy) without = policy_of(CAY_STYLE_MOUNTS, "/data", NULL);
    AUTO(cay_policy) with = policy_of(CAY_STYLE_MOUNTS, "/data", "/", NULL);
    static const char *const tops[] = {"/", "", ".", "/.", "  ", "\\", "//", "/data/.."};

    for (size_t i = 0; i < sizeof tops / sizeof *tops; i++) {
        ASSERT_PLACE(without, tops[i], "outside");
        ASSERT_PLACE(with, tops[i], "/|");
    }
}

TEST(the_mount_at_the_top_takes_what_no_other_covers)
{
    AUTO(cay_policy) policy = policy_of(CAY_STYLE_MOUNTS, "/", "/data", NULL);

    ASSERT_PLACE(policy, "/data/x", "/data|x");
    ASSERT_PLACE(policy, "/database", "/|database");
    ASSERT_PLACE(policy, "x/y", "/|x/y");
}

TEST(of_two_mounts_the_longer_decides)
{
    AUTO(cay_policy)
    policy =
        policy_of(CAY_STYLE_MOUNTS, "/data", "/data/special/deep", "/data/special", NULL);

    ASSERT_PLACE(policy, "/data/x", "/data|x");
    ASSERT_PLACE(policy, "/data/special", "/data/special|");
    ASSERT_PLACE(policy, "/data/special/x", "/data/special|x");
    ASSERT_PLACE(policy, "/data/special/deep/x", "/data/special/deep|x");
    ASSERT_PLACE(policy, "/data/specialist", "/data|specialist");
}

TEST(a_nested_mount_cannot_be_dodged_by_spelling)
{
    AUTO(cay_policy) mounts = policy_of(CAY_STYLE_MOUNTS, "/data", "/data/special", NULL);
    AUTO(cay_policy) paths = policy_of(CAY_STYLE_PATHS, "data", "data/special", NULL);

    ASSERT_PLACE(mounts, "/data/./special/x", "/data/special|x");
    ASSERT_PLACE(mounts, "/data/y/../special/x", "/data/special|x");
    ASSERT_PLACE(mounts, "/data//special//x", "/data/special|x");
    ASSERT_PLACE(mounts, "/data\\special\\x", "/data/special|x");
    ASSERT_PLACE(mounts, "/data/special/./../special/x", "/data/special|x");
    ASSERT_PLACE(mounts, "/x/../data/special", "/data/special|");
    ASSERT_PLACE(paths, "data/./special/x", "data/special|x");
    ASSERT_PLACE(paths, "data/y/../special/x", "data/special|x");
    ASSERT_PLACE(paths, "data//special/x", "data/special|x");
    ASSERT_PLACE(paths, "data:special/x", "data/special|x");
    ASSERT_PLACE(paths, "data:./special", "data/special|");
}

TEST(a_path_may_leave_a_nested_mount_for_the_outer_one)
{
    AUTO(cay_policy) policy = policy_of(CAY_STYLE_MOUNTS, "/data", "/data/special", NULL);

    ASSERT_PLACE(policy, "/data/special/../f", "/data|f");
    ASSERT_PLACE(policy, "/data/special/a/../../f", "/data|f");
}

TEST(a_spelling_that_is_refused_is_told_why)
{
    static const struct {
        enum cay_style style;
        const char *path, *why;
    } rows[] = {
        {CAY_STYLE_ROOT, "/a/../b", "a path must not contain '..'"},
        {CAY_STYLE_ROOT, "/a:b", "a path must not contain ':'"},
        {CAY_STYLE_ROOT, "~/a", "a path must not start with '~'"},
        {CAY_STYLE_MOUNTS, "C:\\a", "a path must not start with a drive letter"},
        {CAY_STYLE_MOUNTS, "/data/../../a", "'..' leads above the root"},
        {CAY_STYLE_PATHS, "data/../a", "'..' leads above the root"},
        {CAY_STYLE_PATHS, "other/a", "no readable path covers it"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *name = rows[i].style == CAY_STYLE_MOUNTS ? "/data" : "data";
        AUTO(cay_policy)
        policy = rows[i].style == CAY_STYLE_ROOT ? policy_of(CAY_STYLE_ROOT, "/", NULL)
                                                 : policy_of(rows[i].style, name, NULL);
        struct place place;
        ASSERT_CODE(policy_place(policy, "test", rows[i].path, &place, &err),
                    CAY_E_OUTSIDE);
        ASSERT_HAS(err.message, "outside sandbox: ");
        ASSERT_HAS(err.message, rows[i].why);
    }
}

TEST(climbing_above_the_top_is_outside)
{
    AUTO(cay_policy) policy = policy_of(CAY_STYLE_MOUNTS, "/", NULL);

    ASSERT_PLACE(policy, "..", "outside");
    ASSERT_PLACE(policy, "/..", "outside");
    ASSERT_PLACE(policy, "/../x", "outside");
    ASSERT_PLACE(policy, "/a/../../x", "outside");
    ASSERT_PLACE(policy, "/a/../../a/x", "outside");
    ASSERT_PLACE(policy, "\\..\\x", "outside");
    ASSERT_PLACE(policy, "/a/b/../../x", "/|x");
}

TEST(a_home_directory_is_outside_but_a_tilde_elsewhere_is_a_name)
{
    AUTO(cay_policy) mounts = policy_of(CAY_STYLE_MOUNTS, "/", NULL);
    AUTO(cay_policy) root = policy_of(CAY_STYLE_ROOT, "/", NULL);
    AUTO(cay_policy) paths = policy_of(CAY_STYLE_PATHS, "data", NULL);

    ASSERT_PLACE(mounts, "~", "outside");
    ASSERT_PLACE(mounts, "~/x", "outside");
    ASSERT_PLACE(mounts, " ~root/x", "outside");
    ASSERT_PLACE(mounts, "/~x", "/|~x");
    ASSERT_PLACE(mounts, "a/~", "/|a/~");
    ASSERT_PLACE(root, "~/x", "outside");
    ASSERT_PLACE(root, "/~x", "/|~x");
    ASSERT_PLACE(paths, "~/x", "outside");
    ASSERT_PLACE(paths, "data/~", "data|~");
}

TEST(a_drive_letter_is_outside)
{
    AUTO(cay_policy) mounts = policy_of(CAY_STYLE_MOUNTS, "/", NULL);
    AUTO(cay_policy) paths = policy_of(CAY_STYLE_PATHS, "data", NULL);

    ASSERT_PLACE(mounts, "C:", "outside");
    ASSERT_PLACE(mounts, "C:\\x", "outside");
    ASSERT_PLACE(mounts, "c:/x", "outside");
    ASSERT_PLACE(mounts, "::x", "outside");
    ASSERT_PLACE(mounts, "/C:/x", "/|C:/x");
    ASSERT_PLACE(mounts, ":x", "/|:x");
    ASSERT_PLACE(mounts, "/:x", "/|:x");
    ASSERT_PLACE(mounts, "ab:c", "/|ab:c");
    ASSERT_PLACE(paths, "C:\\x", "outside");
}

/* --- Root ----------------------------------------------------------------------------
 */

TEST(a_root_is_the_top)
{
    AUTO(cay_policy) policy = policy_of(CAY_STYLE_ROOT, "/", NULL);

    ASSERT_PLACE(policy, "/", "/|");
    ASSERT_PLACE(policy, "", "/|");
    ASSERT_PLACE(policy, ".", "/|");
    ASSERT_PLACE(policy, "  ", "/|");
    ASSERT_PLACE(policy, "/a/b", "/|a/b");
    ASSERT_PLACE(policy, "a/b", "/|a/b");
    ASSERT_PLACE(policy, " a\\b ", "/|a/b");
    ASSERT_PLACE(policy, "./a/./b", "/|a/b");
}

TEST(a_root_refuses_dotdot_altogether)
{
    AUTO(cay_policy) policy = policy_of(CAY_STYLE_ROOT, "/", NULL);

    ASSERT_PLACE(policy, "/a/../b", "outside");
    ASSERT_PLACE(policy, "..", "outside");
    ASSERT_PLACE(policy, "a\\..\\b", "outside");
    ASSERT_PLACE(policy, "a/..b", "/|a/..b");
}

TEST(a_root_refuses_any_colon)
{
    AUTO(cay_policy) policy = policy_of(CAY_STYLE_ROOT, "/", NULL);

    ASSERT_PLACE(policy, "C:\\x", "outside");
    ASSERT_PLACE(policy, "/a/b:c", "outside");
    ASSERT_PLACE(policy, ":", "outside");
}

/* --- Paths ---------------------------------------------------------------------------
 */

TEST(a_named_path_is_spelled_with_a_slash_or_a_colon)
{
    AUTO(cay_policy) policy = policy_of(CAY_STYLE_PATHS, "data", "docs", NULL);

    ASSERT_PLACE(policy, "data", "data|");
    ASSERT_PLACE(policy, "data/a/b", "data|a/b");
    ASSERT_PLACE(policy, "data:a/b", "data|a/b");
    ASSERT_PLACE(policy, "docs:", "docs|");
    ASSERT_PLACE(policy, "docs/a:b", "docs|a:b");
    ASSERT_PLACE(policy, "data/a/../b", "data|b");
}

TEST(a_leading_slash_means_a_host_path_and_not_a_name)
{
    AUTO(cay_policy) policy = policy_of(CAY_STYLE_PATHS, "data", NULL);

    ASSERT_PLACE(policy, "/data/x", "outside");
    ASSERT_PLACE(policy, "/data", "outside");
    ASSERT_PLACE(policy, "/", "outside");
}

TEST(a_host_path_below_a_root_is_that_path)
{
    AUTO(cay_policy) policy = policy_of(CAY_STYLE_PATHS, "data", "docs", NULL);

    ASSERT_PLACE(policy, "/srv/0", "data|");
    ASSERT_PLACE(policy, "/srv/0/a", "data|a");
    ASSERT_PLACE(policy, "/srv//1/./a/../b/", "docs|b");
    ASSERT_PLACE(policy, "/srv/0/../1/a", "docs|a");
    ASSERT_PLACE(policy, "/srv/00", "outside");
    ASSERT_PLACE(policy, "/srv", "outside");
    ASSERT_PLACE(policy, "/srv/0/../../etc/passwd", "outside");
    ASSERT_PLACE(policy, "/../srv/0/a", "outside");
}

TEST(a_host_path_is_known_by_its_configured_and_its_real_name)
{
    AUTO(cay_policy) policy = policy_of(CAY_STYLE_PATHS, "data", NULL);

    ASSERT_OK(policy_set_host(policy, 0, "/mnt/disk/real", &err));
    ASSERT_PLACE(policy, "/srv/0/a", "data|a");
    ASSERT_PLACE(policy, "/mnt/disk/real/a", "data|a");
    ASSERT_PLACE(policy, "/mnt/disk/realm", "outside");
}

TEST(of_two_hosts_the_longer_decides)
{
    AUTO(cay_policy) policy = policy_of(CAY_STYLE_PATHS, "outer", "inner", NULL);

    ASSERT_OK(policy_set_host(policy, 1, "/srv/0/in", &err));
    ASSERT_PLACE(policy, "/srv/0/in/a", "inner|a");
    ASSERT_PLACE(policy, "/srv/0/a", "outer|a");
}

TEST(a_host_file_that_a_nested_name_hides_is_outside)
{
    AUTO(cay_policy) policy = policy_of(CAY_STYLE_PATHS, "data", "data/special", NULL);

    ASSERT_PLACE(policy, "/srv/0/special/x", "outside");
    ASSERT_PLACE(policy, "/srv/1/x", "data/special|x");
}

TEST(a_path_that_climbs_above_its_name_is_outside)
{
    AUTO(cay_policy) policy = policy_of(CAY_STYLE_PATHS, "data", "docs", "docs/in", NULL);

    ASSERT_PLACE(policy, "data/..", "outside");
    ASSERT_PLACE(policy, "data/../docs/x", "outside");
    ASSERT_PLACE(policy, "data:../data/x", "outside");
    ASSERT_PLACE(policy, "docs/in/../x", "outside");
}

TEST(named_paths_take_every_byte_as_it_is)
{
    AUTO(cay_policy) policy = policy_of(CAY_STYLE_PATHS, "data", " d ", "a\\b", NULL);

    ASSERT_PLACE(policy, " data/x", "outside");
    ASSERT_PLACE(policy, "data /x", "outside");
    ASSERT_PLACE(policy, "data\\x", "outside");
    ASSERT_PLACE(policy, "data/x ", "data|x ");
    ASSERT_PLACE(policy, "data/a\\b", "data|a\\b");
    ASSERT_PLACE(policy, " d /x", " d |x");
    ASSERT_PLACE(policy, "a\\b/x", "a\\b|x");
    ASSERT_PLACE(policy, "./data/x", "outside");
}

TEST(nothing_is_named_by_an_empty_text_or_a_dot)
{
    AUTO(cay_policy) policy = policy_of(CAY_STYLE_PATHS, "data", NULL);
    AUTO(cay_policy) none = policy_of(CAY_STYLE_PATHS, NULL);

    ASSERT_PLACE(policy, "", "outside");
    ASSERT_PLACE(policy, ".", "outside");
    ASSERT_PLACE(none, "", "outside");
    ASSERT_PLACE(none, "data", "outside");
    ASSERT_PLACE(none, "/srv/0", "outside");
}

TEST(a_name_may_have_a_colon_or_a_slash_in_it)
{
    AUTO(cay_policy) policy = policy_of(CAY_STYLE_PATHS, "a", "a:b", "a/b", NULL);

    ASSERT_PLACE(policy, "a:b", "a:b|");
    ASSERT_PLACE(policy, "a:b/c", "a:b|c");
    ASSERT_PLACE(policy, "a:b:c", "a:b|c");
    ASSERT_PLACE(policy, "a:c", "a|c");
    ASSERT_PLACE(policy, "a/b", "a/b|");
    ASSERT_PLACE(policy, "a/b/c", "a/b|c");
    ASSERT_PLACE(policy, "a/b:c", "a|b:c");
}

/* --- Bytes and lengths ---------------------------------------------------------------
 */

TEST(bytes_that_are_not_utf8_pass_untouched)
{
    AUTO(cay_policy) mounts = policy_of(CAY_STYLE_MOUNTS, "/data", NULL);
    AUTO(cay_policy) root = policy_of(CAY_STYLE_ROOT, "/", NULL);
    AUTO(cay_policy) paths = policy_of(CAY_STYLE_PATHS, "d\xff", NULL);

    ASSERT_PLACE(mounts, "/data/\xff\xfe", "/data|\xff\xfe");
    ASSERT_PLACE(root, "\x80/\xc3", "/|\x80/\xc3");
    ASSERT_PLACE(paths, "d\xff/\xff", "d\xff|\xff");
}

static const char *text_of(size_t len, char c)
{
    static char text[1 << 20];

    ASSERT(len < sizeof text);
    memset(text, c, len);
    text[len] = '\0';
    return text;
}

TEST(a_name_has_at_most_255_bytes)
{
    AUTO(cay_policy) mounts = policy_of(CAY_STYLE_MOUNTS, "/", NULL);
    AUTO(cay_policy) root = policy_of(CAY_STYLE_ROOT, "/", NULL);

    ASSERT_INT(strlen(placed(mounts, text_of(255, 'n'))), 2 + 255);
    ASSERT_PLACE(mounts, text_of(256, 'n'), "invalid");
    ASSERT_HAS(err.hint, "255");
    ASSERT_HAS(err.hint, "4,095");
    ASSERT_PLACE(root, text_of(256, 'n'), "invalid");
}

TEST(a_path_has_at_most_4095_bytes)
{
    AUTO(cay_policy) mounts = policy_of(CAY_STYLE_MOUNTS, "/", NULL);
    AUTO(cay_policy) paths = policy_of(CAY_STYLE_PATHS, "data", NULL);
    char text[4200];

    for (size_t i = 0; i < sizeof text; i++)
        text[i] = i % 2 ? 'a' : '/';
    text[4095] = '\0'; /* "/a/a.../a" and a slash, which is dropped */
    ASSERT_INT(strlen(placed(mounts, text)), 2 + 4093);
    text[4095] = 'b';
    text[4096] = '\0';
    ASSERT_PLACE(mounts, text, "invalid");
    text[4094] = 'b';
    text[4095] = '\0';
    ASSERT_INT(strlen(placed(mounts, text)), 2 + 4094);

    memcpy(text, "data", 4); /* with "/" in front 4,096 */
    ASSERT_PLACE(paths, text, "invalid");
    text[4094] = '\0';
    ASSERT_INT(strlen(placed(paths, text)), 5 + 4089);
}

/* "a/" so many times, "../" so many times, and the rest. */
static const char *down_and_up(size_t down, size_t up, const char *rest)
{
    static char text[1 << 17];
    size_t len = 0;

    ASSERT(2 * down + 3 * up + strlen(rest) < sizeof text);
    for (size_t i = 0; i < down; i++, len += 2)
        memcpy(text + len, "a/", 2);
    for (size_t i = 0; i < up; i++, len += 3)
        memcpy(text + len, "../", 3);
    memcpy(text + len, rest, strlen(rest) + 1);
    return text;
}

TEST(a_long_text_is_fine_if_what_is_left_is_short)
{
    AUTO(cay_policy) policy = policy_of(CAY_STYLE_MOUNTS, "/data", NULL);

    ASSERT_PLACE(policy, down_and_up(10000, 10000, "data/x"), "/data|x");
    ASSERT_PLACE(policy, down_and_up(10000, 10001, "data/x"), "outside");
    ASSERT_PLACE(policy, down_and_up(10000, 5000, "data/x"), "invalid");
    ASSERT_PLACE(policy, text_of(1000000, '/'), "outside");
    ASSERT_PLACE(policy, text_of(1000000, ' '), "outside");
    ASSERT_PLACE(policy, text_of(1000000, 'x'), "invalid");
}

TEST(an_error_names_the_path_as_the_caller_spelled_it)
{
    AUTO(cay_policy) policy = policy_of(CAY_STYLE_MOUNTS, "/data", NULL);
    struct place place;

    ASSERT_CODE(policy_place(policy, "files.read", " \\etc/../x ", &place, &err),
                CAY_E_OUTSIDE);
    ASSERT_STR(err.op, "files.read");
    ASSERT_STR(err.subject, " \\etc/../x ");
    ASSERT_INT(policy_place(policy, "files.read", "/x", &place, NULL), CAY_E_OUTSIDE);
}

/* --- Labels --------------------------------------------------------------------------
 */

TEST(a_label_is_the_place_in_the_styles_own_spelling)
{
    AUTO(cay_policy) mounts = policy_of(CAY_STYLE_MOUNTS, "/data", "/", NULL);
    AUTO(cay_policy) root = policy_of(CAY_STYLE_ROOT, "/", NULL);
    AUTO(cay_policy) paths = policy_of(CAY_STYLE_PATHS, "data", NULL);
    char label[2 * PATH_MAX];

    ASSERT(policy_label(mounts, 0, "a/b", label, sizeof label));
    ASSERT_STR(label, "/data/a/b");
    ASSERT(policy_label(mounts, 0, "", label, sizeof label));
    ASSERT_STR(label, "/data");
    ASSERT(policy_label(mounts, 1, "a", label, sizeof label));
    ASSERT_STR(label, "/a");
    ASSERT(policy_label(mounts, 1, "", label, sizeof label));
    ASSERT_STR(label, "/");
    ASSERT(policy_label(root, 0, "a", label, sizeof label));
    ASSERT_STR(label, "/a");
    ASSERT(policy_label(paths, 0, "a", label, sizeof label));
    ASSERT_STR(label, "data/a");
    ASSERT(policy_label(paths, 0, "", label, sizeof label));
    ASSERT_STR(label, "data");
    ASSERT(policy_label(paths, 0, "a", label, 7));
    ASSERT(!policy_label(paths, 0, "a", label, 6));
}

/* --- A sandbox's own files -----------------------------------------------------------
 */

TEST(inside_a_sandbox_every_byte_means_itself_and_links_come_before_dots)
{
    AUTO(cay_policy) policy = NULL;
    char name[300], deep[4200];

    ASSERT_OK(policy_inside("/home/user", &policy, &err));
    ASSERT_PLACE(policy, "a", "/|home/user/a");
    ASSERT_PLACE(policy, "/a", "/|a");
    ASSERT_PLACE(policy, "", "/|home/user");
    ASSERT_PLACE(policy, ".", "/|home/user");
    ASSERT_PLACE(policy, "/", "/|");
    ASSERT_PLACE(policy, "//a//b/./c/", "/|a/b/c");
    ASSERT_PLACE(policy, "link/../a", "/|home/user/link/../a");
    ASSERT_PLACE(policy, "/../a", "/|../a");
    ASSERT_PLACE(policy, " a\\b ", "/|home/user/ a\\b ");
    ASSERT_PLACE(policy, "~", "/|home/user/~");
    ASSERT_PLACE(policy, "C:x", "/|home/user/C:x");
    memset(name, 'n', 256);
    name[256] = '\0';
    ASSERT_PLACE(policy, name, "invalid");
    name[255] = '\0';
    ASSERT_INT(strlen(placed(policy, name)), strlen("/|home/user/") + 255);
    for (size_t i = 0; i < sizeof deep - 1; i++)
        deep[i] = i % 2 ? '/' : 'd';
    deep[sizeof deep - 1] = '\0';
    ASSERT_PLACE(policy, deep, "invalid");
    deep[4000] = '\0';
    ASSERT_INT(strlen(placed(policy, deep)), strlen("/|home/user/") + 3999);
}

TEST(a_narrower_view_of_a_sandbox_keeps_its_spelling)
{
    AUTO(cay_policy) policy = NULL;
    AUTO(cay_policy) child = NULL;
    struct grant read = {.all = true}, write = {0};

    ASSERT_OK(policy_inside("/srv", &policy, &err));
    ASSERT_OK(policy_narrow(policy, &read, &write, &child, &err));
    ASSERT_PLACE(child, "a\\b", "/|srv/a\\b");
    ASSERT_INT(policy_access(child, 0, "srv"), CAY_ACCESS_READ);
    char *sentence = policy_explain(policy, "x", 0, "srv/x");
    ASSERT_STR(sentence, "x: readable and writable as the sandbox's user may");
    free(sentence);
}

TEST(what_a_longer_mount_point_covers_is_hidden)
{
    AUTO(cay_policy)
    policy = policy_of(CAY_STYLE_MOUNTS, "/", "/data", "/data/in/side", NULL);

    ASSERT(policy_is_hidden(policy, 0, "data"));
    ASSERT(policy_is_hidden(policy, 0, "data/x"));
    ASSERT(!policy_is_hidden(policy, 0, "database"));
    ASSERT(!policy_is_hidden(policy, 0, ""));
    ASSERT(policy_is_hidden(policy, 1, "in/side"));
    ASSERT(policy_is_hidden(policy, 1, "in/side/x"));
    ASSERT(!policy_is_hidden(policy, 1, "in"));
    ASSERT(!policy_is_hidden(policy, 1, ""));
    ASSERT(!policy_is_hidden(policy, 2, "data/in/side"));
}
