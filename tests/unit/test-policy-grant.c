/* SPDX-License-Identifier: Apache-2.0 */
#include "test-policy-fixture.h"

enum { NONE = 0, R = CAY_ACCESS_READ, W = CAY_ACCESS_WRITE, RW = R | W };

/* The roots as "a, b"; "" for none. */
static const char *roots_of(const cay_policy *policy, unsigned access)
{
    static char text[4096];
    struct cay_strings roots;
    size_t len = 0;

    *text = '\0';
    ASSERT_OK(policy_roots(policy, access, &roots, &err));
    for (size_t i = 0; i < roots.count; i++) {
        len += (size_t)snprintf(text + len, sizeof text - len, "%s%s", i ? ", " : "",
                                roots.items[i]);
        free(roots.items[i]);
    }
    free(roots.items);
    return text;
}

/* "MOUNT:REL" entries, NULL at the end; labels as the policy spells them. */
__attribute__((sentinel)) static struct grant grant_of(const cay_policy *policy, ...)
{
    struct grant grant = {.prefixes = calloc(8, sizeof *grant.prefixes)};
    char label[2 * PATH_MAX];
    va_list entries;

    ASSERT(grant.prefixes);
    va_start(entries, policy);
    for (const char *entry; (entry = va_arg(entries, const char *));) {
        size_t mount = (size_t)(*entry - '0');
        ASSERT(policy_label(policy, mount, entry + 2, label, sizeof label));
        grant.prefixes[grant.count++] =
            (struct prefix){mount, strdup(entry + 2), strdup(label)};
    }
    va_end(entries);
    return grant;
}

static cay_policy *narrowed(const cay_policy *parent, struct grant read,
                            struct grant write)
{
    cay_policy *child = NULL;

    ASSERT_OK(policy_narrow(parent, &read, &write, &child, &err));
    ASSERT(!read.prefixes && !write.prefixes);
    return child;
}

/* --- Access --------------------------------------------------------------------------
 */

TEST(a_mounts_mode_decides_what_is_granted)
{
    AUTO(cay_policy) policy = policy_of(CAY_STYLE_PATHS, "ro", "rw", NULL);

    policy->mounts[0].writable = false;
    ASSERT_INT(policy_access(policy, 0, "a"), R);
    ASSERT_INT(policy_access(policy, 1, "a"), RW);
    ASSERT_INT(policy_access(policy, 1, ""), RW);
}

TEST(a_derived_policy_grants_only_below_its_prefixes)
{
    AUTO(cay_policy) parent = policy_of(CAY_STYLE_MOUNTS, "/data", "/docs", NULL);
    AUTO(cay_policy)
    child = narrowed(parent, grant_of(parent, "0:a", "1:", NULL),
                     grant_of(parent, "0:a/b", NULL));

    ASSERT_INT(policy_access(child, 0, "a"), R);
    ASSERT_INT(policy_access(child, 0, "a/x"), R);
    ASSERT_INT(policy_access(child, 0, "a/b"), RW);
    ASSERT_INT(policy_access(child, 0, "a/b/c"), RW);
    ASSERT_INT(policy_access(child, 0, "ab"), NONE);
    ASSERT_INT(policy_access(child, 0, ""), NONE);
    ASSERT_INT(policy_access(child, 0, "b"), NONE);
    ASSERT_INT(policy_access(child, 1, "anything"), R);
    ASSERT_INT(policy_access(parent, 0, ""), RW);
}

TEST(reading_and_writing_are_granted_independently)
{
    AUTO(cay_policy) parent = policy_of(CAY_STYLE_MOUNTS, "/data", NULL);
    AUTO(cay_policy)
    child =
        narrowed(parent, grant_of(parent, "0:a", NULL), grant_of(parent, "0:b", NULL));

    ASSERT_INT(policy_access(child, 0, "a/x"), R);
    ASSERT_INT(policy_access(child, 0, "b/x"), W);
}

TEST(a_prefix_does_not_cover_a_nested_mount)
{
    AUTO(cay_policy) parent = policy_of(CAY_STYLE_MOUNTS, "/data", "/data/special", NULL);
    AUTO(cay_policy)
    child = narrowed(parent, grant_of(parent, "0:", NULL), (struct grant){0});

    ASSERT_INT(policy_access(child, 0, "x"), R);
    ASSERT_INT(policy_access(child, 1, "x"), NONE);
}

TEST(a_prefix_never_makes_a_read_only_mount_writable)
{
    AUTO(cay_policy) parent = policy_of(CAY_STYLE_PATHS, "data", NULL);

    parent->mounts[0].writable = false;
    AUTO(cay_policy)
    child = narrowed(parent, grant_of(parent, "0:", NULL), grant_of(parent, "0:", NULL));
    ASSERT_INT(policy_access(child, 0, "x"), R);
    ASSERT_STR(roots_of(child, W), "");
}

TEST(all_in_a_derived_policy_is_all_that_the_parent_has)
{
    AUTO(cay_policy) top = policy_of(CAY_STYLE_PATHS, "data", NULL);
    AUTO(cay_policy) child = narrowed(top, grant_of(top, "0:a", NULL), (struct grant){0});
    AUTO(cay_policy)
    grandchild =
        narrowed(child, (struct grant){.all = true}, (struct grant){.all = true});

    ASSERT_INT(policy_access(grandchild, 0, "a/x"), R);
    ASSERT_INT(policy_access(grandchild, 0, "b"), NONE);
    ASSERT_STR(roots_of(grandchild, R), "data/a");
}

TEST(a_child_outlives_its_parent)
{
    cay_policy *parent = policy_of(CAY_STYLE_PATHS, "data", NULL);
    AUTO(cay_policy)
    child = narrowed(parent, grant_of(parent, "0:a", NULL), (struct grant){0});

    cay_policy_free(parent);
    ASSERT_INT(policy_access(child, 0, "a"), R);
    ASSERT_PLACE(child, "data/a", "data|a");
}

/* --- Roots ---------------------------------------------------------------------------
 */

TEST(mounts_list_their_roots_longest_first)
{
    AUTO(cay_policy)
    policy = policy_of(CAY_STYLE_MOUNTS, "/a", "/", "/long", "/b", "/c/d", NULL);

    ASSERT_STR(roots_of(policy, R), "/long, /c/d, /a, /b, /");
    policy->mounts[2].writable = false;
    ASSERT_STR(roots_of(policy, W), "/c/d, /a, /b, /");
}

TEST(paths_list_their_roots_as_configured)
{
    AUTO(cay_policy) policy = policy_of(CAY_STYLE_PATHS, "a", "longer", "b", NULL);
    AUTO(cay_policy) none = policy_of(CAY_STYLE_PATHS, NULL);

    ASSERT_STR(roots_of(policy, R), "a, longer, b");
    policy->mounts[0].writable = false;
    ASSERT_STR(roots_of(policy, W), "longer, b");
    ASSERT_STR(roots_of(none, R), "");
}

TEST(the_root_style_lists_a_slash)
{
    AUTO(cay_policy) policy = policy_of(CAY_STYLE_ROOT, "/", NULL);

    ASSERT_STR(roots_of(policy, R), "/");
}

TEST(a_derived_policy_lists_its_entries_once_and_in_order)
{
    AUTO(cay_policy) parent = policy_of(CAY_STYLE_PATHS, "data", "docs", NULL);
    AUTO(cay_policy)
    child =
        narrowed(parent, grant_of(parent, "1:", "0:sub", "1:", "0:sub", "0:other", NULL),
                 (struct grant){0});

    ASSERT_STR(roots_of(child, R), "docs, data/sub, data/other");
    ASSERT_STR(roots_of(child, W), "");
    ASSERT_STR(roots_of(parent, R), "data, docs");
}

/* --- Refusals ------------------------------------------------------------------------
 */

TEST(an_outside_error_lists_what_can_be_read)
{
    AUTO(cay_policy) policy = policy_of(CAY_STYLE_PATHS, "data", "docs", NULL);
    AUTO(cay_policy) none = policy_of(CAY_STYLE_PATHS, NULL);

    ASSERT_CODE(policy_fail_outside(policy, "files.read", "/etc/x", NULL, &err),
                CAY_E_OUTSIDE);
    ASSERT_STR(err.op, "files.read");
    ASSERT_STR(err.subject, "/etc/x");
    ASSERT_STR(err.message, "outside sandbox: no readable path covers it");
    ASSERT_STR(err.hint, "readable paths: data, docs");
    ASSERT_CODE(policy_fail_outside(none, "files.read", "x", NULL, &err), CAY_E_OUTSIDE);
    ASSERT_STR(err.hint, "readable paths: none");
}

TEST(a_read_only_error_lists_what_can_be_written)
{
    AUTO(cay_policy) policy = policy_of(CAY_STYLE_PATHS, "in", "out", NULL);

    policy->mounts[0].writable = false;
    ASSERT_CODE(policy_fail_read_only(policy, "files.write", "in/x", &err),
                CAY_E_READ_ONLY);
    ASSERT_STR(err.message, "the path is read-only");
    ASSERT_STR(err.hint, "writable paths: out");
    policy->mounts[1].writable = false;
    ASSERT_CODE(policy_fail_read_only(policy, "files.write", "in/x", &err),
                CAY_E_READ_ONLY);
    ASSERT_STR(err.hint, "writable paths: none");
}

TEST(a_long_list_is_cut_and_says_how_many_more_there_are)
{
    struct cay_mount mounts[100];
    char names[100][32];
    AUTO(cay_policy) policy = NULL;

    for (size_t i = 0; i < 100; i++) {
        snprintf(names[i], sizeof names[i], "a-rather-long-name-%02zu", i);
        mounts[i] = (struct cay_mount)CAY_MOUNT_INIT;
        mounts[i].name = names[i];
        mounts[i].host = "/srv";
    }
    struct cay_policy_config config = {.size = sizeof config,
                                       .style = CAY_STYLE_PATHS,
                                       .mounts = mounts,
                                       .mount_count = 100};
    ASSERT_OK(cay_policy_new(&config, &policy, &err));
    ASSERT_CODE(policy_fail_outside(policy, "test", "x", NULL, &err), CAY_E_OUTSIDE);
    ASSERT_HAS(err.hint, "readable paths: a-rather-long-name-00, a-rather");
    ASSERT_HAS(err.hint, "a-rather-long-name-17, and 82 more");
    ASSERT(strlen(err.hint) < sizeof err.hint - 1);
}

TEST(names_too_long_to_list_are_counted)
{
    char name[256];

    memset(name, 'n', 255);
    name[255] = '\0';
    AUTO(cay_policy) policy = policy_of(CAY_STYLE_PATHS, name, "b", NULL);
    ASSERT_CODE(policy_fail_outside(policy, "test", "x", NULL, &err), CAY_E_OUTSIDE);
    ASSERT_HAS(err.hint, "n, b");

    char longer[600];
    memset(longer, 'n', sizeof longer);
    longer[250] = longer[500] = '/';
    longer[599] = '\0';
    AUTO(cay_policy) other = policy_of(CAY_STYLE_PATHS, longer, "b", NULL);
    ASSERT_CODE(policy_fail_outside(other, "test", "x", NULL, &err), CAY_E_OUTSIDE);
    ASSERT_STR(err.hint, "readable paths: 2, too long to show");
}
