/* SPDX-License-Identifier: Apache-2.0 */
#include <unistd.h>

#include "test-policy-fixture.h"

static struct cay_mount mount_of(const char *name, const char *host)
{
    struct cay_mount mount = CAY_MOUNT_INIT;

    mount.name = name;
    mount.host = host;
    return mount;
}

static int new_policy(enum cay_style style, const struct cay_mount *mounts, size_t count,
                      const char *base, cay_policy **ret_policy)
{
    struct cay_policy_config config = {
        .size = sizeof config,
        .style = style,
        .mounts = mounts,
        .mount_count = count,
        .base = base,
    };

    return cay_policy_new(&config, ret_policy, &err);
}

static int new_with(enum cay_style style, struct cay_mount mount, cay_policy **ret_policy)
{
    return new_policy(style, &mount, 1, "/base", ret_policy);
}

#define ASSERT_REFUSED(style, mount)                                                     \
    do {                                                                                 \
        cay_policy *made_ = NULL;                                                        \
        ASSERT_CODE(new_with(style, mount, &made_), CAY_E_INVALID);                      \
        ASSERT(!made_);                                                                  \
    } while (0)

/* --- What is kept --------------------------------------------------------------------
 */

TEST(a_policy_copies_what_it_is_given)
{
    AUTO(cay_policy) policy = NULL;
    char name[] = "data", host[] = "/srv", suffix[] = ".Txt", origin[] = "f:1: x";
    const char *suffixes[] = {suffix, "md"};
    struct cay_mount mount = mount_of(name, host), shown = {.size = sizeof shown};

    mount.writable = mount.read_approval = mount.limit_suffixes = true;
    mount.write_approval = false;
    mount.suffixes = suffixes;
    mount.suffix_count = 2;
    mount.max_file_bytes = 7;
    mount.exec = CAY_EXEC_RW;
    mount.origin = origin;
    ASSERT_OK(new_with(CAY_STYLE_PATHS, mount, &policy));
    *name = *host = *suffix = *origin = '?';
    suffixes[1] = NULL;

    ASSERT_INT(cay_policy_style(policy), CAY_STYLE_PATHS);
    ASSERT_INT(cay_policy_mount_count(policy), 1);
    ASSERT(cay_policy_mount(policy, 0, &shown));
    ASSERT_STR(shown.name, "data");
    ASSERT_STR(shown.host, "/srv");
    ASSERT(shown.writable && shown.read_approval && !shown.write_approval);
    ASSERT(shown.limit_suffixes);
    ASSERT_INT(shown.suffix_count, 2);
    ASSERT_STR(shown.suffixes[0], ".txt");
    ASSERT_STR(shown.suffixes[1], "md");
    ASSERT_INT(shown.max_file_bytes, 7);
    ASSERT_INT(shown.exec, CAY_EXEC_RW);
    ASSERT_STR(shown.origin, "f:1: x");
}

TEST(the_defaults_are_read_only_with_approved_writes_and_no_limits)
{
    AUTO(cay_policy) policy = NULL;
    struct cay_mount shown = {.size = sizeof shown};

    ASSERT_OK(new_with(CAY_STYLE_PATHS, mount_of("a", "b"), &policy));
    ASSERT(cay_policy_mount(policy, 0, &shown));
    ASSERT(!shown.writable && shown.write_approval && !shown.read_approval);
    ASSERT(!shown.limit_suffixes);
    ASSERT_INT(shown.max_file_bytes, CAY_NO_LIMIT);
    ASSERT_INT(shown.exec, CAY_EXEC_DEFAULT);
    ASSERT_STR(shown.origin, NULL);
}

TEST(mounts_are_shown_in_the_order_of_their_configuration)
{
    AUTO(cay_policy) policy = policy_of(CAY_STYLE_MOUNTS, "/a", "/long", "/b", NULL);
    struct cay_mount shown = {.size = sizeof shown};

    ASSERT(cay_policy_mount(policy, 0, &shown));
    ASSERT_STR(shown.name, "/a");
    ASSERT(cay_policy_mount(policy, 1, &shown));
    ASSERT_STR(shown.name, "/long");
    ASSERT(cay_policy_mount(policy, 2, &shown));
    ASSERT_STR(shown.name, "/b");
    ASSERT(!cay_policy_mount(policy, 3, &shown));
}

TEST(a_caller_with_an_older_struct_is_shown_what_it_knows)
{
    AUTO(cay_policy) policy = policy_of(CAY_STYLE_PATHS, "data", NULL);
    struct cay_mount shown;

    memset(&shown, 0x55, sizeof shown);
    shown.size = offsetof(struct cay_mount, host);
    ASSERT(cay_policy_mount(policy, 0, &shown));
    ASSERT_STR(shown.name, "data");
    ASSERT_INT(shown.size, offsetof(struct cay_mount, host));
    ASSERT_INT((uintptr_t)shown.host & 0xff, 0x55);
    shown.size = 0;
    ASSERT(!cay_policy_mount(policy, 0, &shown));
}

TEST(freeing_nothing_is_fine)
{
    cay_policy_free(NULL);
}

/* --- Hosts ---------------------------------------------------------------------------
 */

static const char *host_from(const char *host, const char *base)
{
    static char text[PATH_MAX];
    AUTO(cay_policy) policy = NULL;
    struct cay_mount mount = mount_of("a", host), shown = {.size = sizeof shown};

    ASSERT_OK(new_policy(CAY_STYLE_PATHS, &mount, 1, base, &policy));
    ASSERT(cay_policy_mount(policy, 0, &shown));
    snprintf(text, sizeof text, "%s", shown.host);
    return text;
}

TEST(relative_hosts_start_at_the_base)
{
    ASSERT_STR(host_from("x", "/base"), "/base/x");
    ASSERT_STR(host_from("./x//y/", "/base/"), "/base/x/y");
    ASSERT_STR(host_from(".", "/base"), "/base");
    ASSERT_STR(host_from("x", "/"), "/x");
    ASSERT_STR(host_from("/x", "/base"), "/x");
    ASSERT_STR(host_from("/", "/base"), "/");
    ASSERT_STR(host_from("~", "/base"), "/base/~");
}

TEST(without_a_base_relative_hosts_start_at_the_current_directory)
{
    char expected[PATH_MAX];

    ASSERT_INT(chdir(scratch()), 0);
    snprintf(expected, sizeof expected, "%s/x", scratch());
    ASSERT_STR(host_from("x", NULL), expected);
    snprintf(expected, sizeof expected, "%s/sub/x", scratch());
    ASSERT_STR(host_from("x", "sub"), expected);
    ASSERT_INT(chdir("/"), 0);
}

TEST(dotdot_in_a_host_is_left_to_the_kernel)
{
    ASSERT_STR(host_from("../x", "/base/link"), "/base/link/../x");
}

TEST(a_host_must_be_given_and_must_fit)
{
    char text[PATH_MAX + 2];

    ASSERT_REFUSED(CAY_STYLE_PATHS, mount_of("a", NULL));
    ASSERT_REFUSED(CAY_STYLE_PATHS, mount_of("a", ""));
    memset(text, '/', sizeof text);
    memset(text + 1, 'a', 255);
    text[PATH_MAX + 1] = '\0';
    ASSERT_REFUSED(CAY_STYLE_PATHS, mount_of("a", text));
    text[300] = '\0';
    ASSERT_STR(host_from(text, NULL) + 250, "aaaaaa");
    memset(text + 1, 'a', 256);
    ASSERT_REFUSED(CAY_STYLE_PATHS, mount_of("a", text));
    ASSERT_HAS(err.hint, "255");
}

TEST(a_policy_touches_no_file)
{
    AUTO(cay_policy) policy = NULL;
    struct cay_mount mount = mount_of("a", "made");

    mount.writable = true;
    ASSERT_OK(new_policy(CAY_STYLE_PATHS, &mount, 1, scratch(), &policy));
    ASSERT(access(scratch_path("made"), F_OK) != 0);
}

/* --- Names ---------------------------------------------------------------------------
 */

static const char *point_from(const char *text)
{
    static char shown_name[PATH_MAX];
    AUTO(cay_policy) policy = NULL;
    struct cay_mount shown = {.size = sizeof shown};

    ASSERT_OK(new_with(CAY_STYLE_MOUNTS, mount_of(text, "h"), &policy));
    ASSERT(cay_policy_mount(policy, 0, &shown));
    snprintf(shown_name, sizeof shown_name, "%s", shown.name);
    return shown_name;
}

TEST(a_mount_point_is_brought_into_its_plain_form)
{
    ASSERT_STR(point_from("/a/../b"), "/b");
    ASSERT_STR(point_from("/.."), "/");
    ASSERT_STR(point_from("/../../a"), "/a");
    ASSERT_STR(point_from("/a/"), "/a");
    ASSERT_STR(point_from(" /s "), "/s");
    ASSERT_STR(point_from("\t/s\n"), "/s");
    ASSERT_STR(point_from("//a//b/./c"), "/a/b/c");
    ASSERT_STR(point_from("\\a\\b"), "/a/b");
    ASSERT_STR(point_from(""), "/");
    ASSERT_STR(point_from("  "), "/");
    ASSERT_STR(point_from("/"), "/");
}

TEST(a_mount_point_starts_with_a_slash)
{
    ASSERT_REFUSED(CAY_STYLE_MOUNTS, mount_of("data", "h"));
    ASSERT_HAS(err.message, "does not start with \"/\"");
    ASSERT_STR(err.subject, "data");
    ASSERT_REFUSED(CAY_STYLE_MOUNTS, mount_of(".", "h"));
    ASSERT_REFUSED(CAY_STYLE_MOUNTS, mount_of(NULL, "h"));
    ASSERT_REFUSED(CAY_STYLE_MOUNTS, mount_of("/a\nb", "h"));
}

TEST(a_mount_point_is_used_once)
{
    struct cay_mount mounts[] = {mount_of("/a", "x"), mount_of("/b", "y"),
                                 mount_of("/c/../a/", "z")};
    cay_policy *policy = NULL;

    ASSERT_CODE(new_policy(CAY_STYLE_MOUNTS, mounts, 3, NULL, &policy), CAY_E_INVALID);
    ASSERT_STR(err.subject, "/c/../a/");
    ASSERT_STR(err.message, "the mount point is used twice");
    ASSERT(!policy);
}

TEST(a_path_name_is_taken_literally_or_refused)
{
    static const char *const fine[] = {"data", "a/b", "a:b", " d ",
                                       "a\\b", "~",   "C:",  "..."};
    static const char *const bad[] = {"",     "/a",    "a/",   "a//b", ".",
                                      "..",   "a/./b", "a/..", "../a", "a\tb",
                                      "\x7f", "a\nb",  "\x01"};

    for (size_t i = 0; i < sizeof fine / sizeof *fine; i++) {
        AUTO(cay_policy) policy = NULL;
        struct cay_mount shown = {.size = sizeof shown};
        ASSERT_OK(new_with(CAY_STYLE_PATHS, mount_of(fine[i], "h"), &policy));
        ASSERT(cay_policy_mount(policy, 0, &shown));
        ASSERT_STR(shown.name, fine[i]);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ASSERT_REFUSED(CAY_STYLE_PATHS, mount_of(bad[i], "h"));
    ASSERT_REFUSED(CAY_STYLE_PATHS, mount_of(NULL, "h"));
}

TEST(a_path_name_is_used_once)
{
    struct cay_mount mounts[] = {mount_of("a", "x"), mount_of("a", "y")};
    cay_policy *policy = NULL;

    ASSERT_CODE(new_policy(CAY_STYLE_PATHS, mounts, 2, NULL, &policy), CAY_E_INVALID);
    ASSERT_STR(err.message, "the name is used twice");
}

TEST(a_root_has_no_name_of_its_own)
{
    AUTO(cay_policy) policy = NULL;
    struct cay_mount shown = {.size = sizeof shown};

    ASSERT_OK(new_with(CAY_STYLE_ROOT, mount_of(NULL, "h"), &policy));
    ASSERT(cay_policy_mount(policy, 0, &shown));
    ASSERT_STR(shown.name, "/");
    ASSERT_REFUSED(CAY_STYLE_ROOT, mount_of("data", "h"));
}

/* --- Numbers and rules ---------------------------------------------------------------
 */

TEST(each_style_has_its_number_of_mounts)
{
    struct cay_mount mounts[] = {mount_of(NULL, "x"), mount_of(NULL, "y")};
    cay_policy *policy = NULL;

    ASSERT_CODE(new_policy(CAY_STYLE_ROOT, mounts, 0, NULL, &policy), CAY_E_INVALID);
    ASSERT_CODE(new_policy(CAY_STYLE_ROOT, mounts, 2, NULL, &policy), CAY_E_INVALID);
    ASSERT_CODE(new_policy(CAY_STYLE_MOUNTS, mounts, 0, NULL, &policy), CAY_E_INVALID);
    ASSERT_CODE(new_policy(CAY_STYLE_PATHS, mounts, 100000, NULL, &policy),
                CAY_E_INVALID);
    ASSERT_HAS(err.hint, "1024");
    ASSERT_CODE(new_policy(CAY_STYLE_PATHS, NULL, 1, NULL, &policy), CAY_E_INVALID);
    ASSERT_OK(new_policy(CAY_STYLE_PATHS, NULL, 0, NULL, &policy));
    ASSERT_INT(cay_policy_mount_count(policy), 0);
    cay_policy_free(policy);
}

TEST(there_are_three_styles)
{
    struct cay_mount mount = mount_of("/a", "x");
    cay_policy *policy = NULL;

    ASSERT_CODE(new_policy((enum cay_style)0, &mount, 1, NULL, &policy), CAY_E_INVALID);
    ASSERT_CODE(new_policy((enum cay_style)4, &mount, 1, NULL, &policy), CAY_E_INVALID);
    ASSERT_CODE(cay_policy_new(NULL, &policy, &err), CAY_E_INVALID);
}

TEST(rules_that_make_no_sense_are_refused)
{
    static const char *const suffixes[] = {".txt", NULL};
    struct cay_mount mount = mount_of("a", "x");

    mount.max_file_bytes = -2;
    ASSERT_REFUSED(CAY_STYLE_PATHS, mount);
    mount.max_file_bytes = 0;
    mount.exec = (enum cay_exec_mode)3;
    ASSERT_REFUSED(CAY_STYLE_PATHS, mount);
    mount.exec = CAY_EXEC_RO;
    mount.suffixes = suffixes;
    mount.suffix_count = 1;
    ASSERT_REFUSED(CAY_STYLE_PATHS, mount); /* the limit was forgotten */
    mount.limit_suffixes = true;
    mount.suffix_count = 2;
    ASSERT_REFUSED(CAY_STYLE_PATHS, mount);
    mount.suffixes = NULL;
    ASSERT_REFUSED(CAY_STYLE_PATHS, mount);
}

TEST(a_struct_without_its_size_is_refused)
{
    struct cay_mount mounts[] = {mount_of("a", "x"), mount_of("b", "y")};
    cay_policy *policy = NULL;

    mounts[0].size = 0;
    ASSERT_CODE(new_policy(CAY_STYLE_PATHS, mounts, 2, NULL, &policy), CAY_E_INVALID);
    mounts[0].size = sizeof *mounts;
    mounts[1].size = 0;
    ASSERT_CODE(new_policy(CAY_STYLE_PATHS, mounts, 2, NULL, &policy), CAY_E_INVALID);
    mounts[1].size = sizeof *mounts - 8;
    ASSERT_CODE(new_policy(CAY_STYLE_PATHS, mounts, 2, NULL, &policy), CAY_E_INVALID);
    mounts[0].size = 9;
    ASSERT_CODE(new_policy(CAY_STYLE_PATHS, mounts, 1, NULL, &policy), CAY_E_INVALID);
}

TEST(mounts_of_a_newer_caller_are_taken_if_they_ask_for_nothing_new)
{
    struct newer {
        struct cay_mount known;
        uint64_t more;
    } mounts[] = {{.known = mount_of("a", "x")}, {.known = mount_of("b", "y")}};
    cay_policy *policy = NULL;

    mounts[0].known.size = mounts[1].known.size = sizeof *mounts;
    ASSERT_OK(new_policy(CAY_STYLE_PATHS, &mounts[0].known, 2, NULL, &policy));
    ASSERT_STR(policy->mounts[1].name, "b");
    cay_policy_free(policy);
    mounts[1].more = 1;
    ASSERT_CODE(new_policy(CAY_STYLE_PATHS, &mounts[0].known, 2, NULL, &policy),
                CAY_E_UNSUPPORTED);
}

/* --- Copies --------------------------------------------------------------------------
 */

TEST(a_copy_stands_alone)
{
    cay_policy *policy = policy_of(CAY_STYLE_MOUNTS, "/a", "/a/b", "/c /", NULL);
    AUTO(cay_policy) copy = NULL;

    ASSERT_OK(policy_set_host(policy, 0, "/real", &err));
    ASSERT_OK(policy_copy(policy, &copy, &err));
    cay_policy_free(policy);

    ASSERT_PLACE(copy, "/a/b/x", "/a/b|x");
    ASSERT_STR(copy->mounts[0].host, "/real");
    ASSERT_STR(copy->mounts[0].host_was, "/srv/0");
    ASSERT_STR(copy->mounts[2].name, "/c ");
    ASSERT_INT(policy_access(copy, 0, "x"), CAY_ACCESS_READ | CAY_ACCESS_WRITE);
}
