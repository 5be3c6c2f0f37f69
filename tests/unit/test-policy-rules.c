/* SPDX-License-Identifier: Apache-2.0 */
#include "test-policy-fixture.h"

/* --- Suffixes ------------------------------------------------------------------------
 */

static int check_suffix(const char *name, char *const *suffixes, size_t count)
{
    struct mount mount = {.limit_suffixes = true, .suffix_count = count};
    char *copies[8];

    for (size_t i = 0; i < count; i++)
        copies[i] = suffixes[i];
    mount.suffixes = copies;
    return policy_check_suffix(&mount, "files.read", "shown", name, &err);
}

static char txt[] = ".txt", md[] = ".md", gz[] = ".gz", empty[] = "", no_dot[] = "log";

TEST(the_suffix_runs_from_the_last_dot)
{
    static char *const allowed[] = {txt, md, gz};
    static const char *const fine[] = {"a.txt",    "a.b.txt", "a.tar.gz", "A.TXT",
                                       "d.x/a.md", "..txt",   ".a.txt",   "a.txt/"};
    static const struct {
        const char *name, *suffix;
    } bad[] = {
        {"a.png", ".png"},
        {"a", ""},
        {".txt", ""},
        {"d.txt/a", ""},
        {"a.txt.", ""},
        {"a.txt.x", ".x"},
        {"atxt", ""},
        {"a.PNG", ".png"},
        {"d/.txt", ""},
        {"", ""},
        {"a.txt ", ".txt "},
        {"a.tx", ".tx"},
        {"a.txt.gzip", ".gzip"},
    };

    for (size_t i = 0; i < sizeof fine / sizeof *fine; i++)
        ASSERT_OK(check_suffix(fine[i], allowed, 3));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char message[64];
        snprintf(message, sizeof message, "suffix '%s' not allowed", bad[i].suffix);
        ASSERT_CODE(check_suffix(bad[i].name, allowed, 3), CAY_E_SUFFIX);
        ASSERT_STR(err.message, message);
    }
}

TEST(a_suffix_error_says_which_are_allowed)
{
    static char *const allowed[] = {txt, md};

    ASSERT_CODE(check_suffix("a.png", allowed, 2), CAY_E_SUFFIX);
    ASSERT_STR(err.op, "files.read");
    ASSERT_STR(err.subject, "shown");
    ASSERT_STR(err.message, "suffix '.png' not allowed");
    ASSERT_STR(err.hint, "allowed suffixes: .txt, .md");
}

TEST(an_empty_list_allows_nothing)
{
    ASSERT_CODE(check_suffix("a.txt", NULL, 0), CAY_E_SUFFIX);
    ASSERT_STR(err.hint, "allowed suffixes: none");
    ASSERT_CODE(check_suffix("a", NULL, 0), CAY_E_SUFFIX);
}

TEST(a_suffix_without_its_dot_never_matches)
{
    static char *const allowed[] = {no_dot};

    ASSERT_CODE(check_suffix("a.log", allowed, 1), CAY_E_SUFFIX);
    ASSERT_CODE(check_suffix("log", allowed, 1), CAY_E_SUFFIX);
}

TEST(an_empty_suffix_allows_names_that_have_none)
{
    static char *const allowed[] = {empty, md};

    ASSERT_OK(check_suffix("Makefile", allowed, 1));
    ASSERT_OK(check_suffix(".profile", allowed, 1));
    ASSERT_CODE(check_suffix("a.c", allowed, 2), CAY_E_SUFFIX);
    ASSERT_STR(err.hint, "allowed suffixes: '' (no suffix), .md");
}

TEST(without_a_suffix_rule_every_name_is_fine)
{
    struct mount mount = {.limit_suffixes = false};

    ASSERT_OK(policy_check_suffix(&mount, "test", "a", "a.exe", &err));
}

TEST(suffixes_are_compared_in_lower_case_on_both_sides)
{
    AUTO(cay_policy) policy = NULL;
    static const char *const suffixes[] = {".JSon"};
    struct cay_mount mount = CAY_MOUNT_INIT;

    mount.host = "/srv";
    mount.limit_suffixes = true;
    mount.suffixes = suffixes;
    mount.suffix_count = 1;
    struct cay_policy_config config = {.size = sizeof config,
                                       .style = CAY_STYLE_ROOT,
                                       .mounts = &mount,
                                       .mount_count = 1};
    ASSERT_OK(cay_policy_new(&config, &policy, &err));
    ASSERT_OK(policy_check_suffix(&policy->mounts[0], "test", "a", "a.jsON", &err));
}

/* --- Sizes ---------------------------------------------------------------------------
 */

TEST(a_file_of_exactly_the_limit_is_fine)
{
    struct mount mount = {.max_file_bytes = 1000};

    ASSERT_OK(policy_check_size(&mount, "test", "a", 0, &err));
    ASSERT_OK(policy_check_size(&mount, "test", "a", 1000, &err));
    ASSERT_CODE(policy_check_size(&mount, "test", "a", 1001, &err), CAY_E_TOO_LARGE);
    ASSERT_CODE(policy_check_size(&mount, "test", "a", UINT64_MAX, &err),
                CAY_E_TOO_LARGE);
    mount.max_file_bytes = 0;
    ASSERT_OK(policy_check_size(&mount, "test", "a", 0, &err));
    ASSERT_CODE(policy_check_size(&mount, "test", "a", 1, &err), CAY_E_TOO_LARGE);
}

TEST(without_a_size_rule_every_size_is_fine)
{
    struct mount mount = {.max_file_bytes = CAY_NO_LIMIT};

    ASSERT_OK(policy_check_size(&mount, "test", "a", UINT64_MAX, &err));
}

TEST(a_size_error_has_the_numbers_as_people_write_them)
{
    struct mount mount = {.max_file_bytes = 1000000};

    ASSERT_CODE(policy_check_size(&mount, "files.read", "a", 1234567, &err),
                CAY_E_TOO_LARGE);
    ASSERT_STR(err.subject, "a");
    ASSERT_STR(err.message, "1,234,567 bytes is over the limit of 1,000,000 bytes");
    ASSERT_STR(err.hint, "the largest file allowed here has 1,000,000 bytes");
    mount.max_file_bytes = 12;
    ASSERT_CODE(policy_check_size(&mount, "files.read", "a", 100, &err), CAY_E_TOO_LARGE);
    ASSERT_STR(err.message, "100 bytes is over the limit of 12 bytes");
}

/* --- Explanations --------------------------------------------------------------------
 */

static void assert_explained(const cay_policy *policy, const char *path,
                             const char *expected)
{
    struct place place;

    ASSERT_OK(policy_place(policy, "test", path, &place, &err));
    AUTO_FREE char *sentence = policy_explain(policy, path, place.mount, place.rel);
    ASSERT_STR(sentence, expected);
}

TEST(an_explanation_names_the_rule_and_what_it_grants)
{
    AUTO(cay_policy) paths = policy_of(CAY_STYLE_PATHS, "data", "docs", NULL);
    AUTO(cay_policy) mounts = policy_of(CAY_STYLE_MOUNTS, "/data", NULL);
    AUTO(cay_policy) root = policy_of(CAY_STYLE_ROOT, "/", NULL);

    assert_explained(
        paths, "data/a.txt",
        "data/a.txt: readable and writable by path \"data\" (rw); writes need "
        "approval");
    paths->mounts[1].writable = false;
    assert_explained(paths, "docs:a",
                     "docs:a: readable but not writable by path \"docs\" (ro)");
    mounts->mounts[0].write_approval = false;
    assert_explained(mounts, "data/./a",
                     "data/./a: readable and writable by mount \"/data\" (rw)");
    root->mounts[0].read_approval = true;
    assert_explained(root, "a",
                     "a: readable and writable by the root (rw); reads and writes need "
                     "approval");
    root->mounts[0].write_approval = false;
    assert_explained(root, "a",
                     "a: readable and writable by the root (rw); reads need approval");
}

TEST(an_explanation_tells_the_limits)
{
    AUTO(cay_policy) policy = policy_of(CAY_STYLE_PATHS, "data", NULL);
    struct mount *mount = &policy->mounts[0];
    char *suffixes[] = {txt, md}, **own = mount->suffixes;

    mount->limit_suffixes = true;
    mount->suffixes = suffixes;
    mount->suffix_count = 2;
    mount->max_file_bytes = 1000000;
    assert_explained(
        policy, "data/a.txt",
        "data/a.txt: readable and writable by path \"data\" (rw); writes need "
        "approval; only .txt, .md; files up to 1,000,000 bytes");
    mount->suffix_count = 0;
    assert_explained(
        policy, "data/a.txt",
        "data/a.txt: readable and writable by path \"data\" (rw); writes need "
        "approval; allowed suffixes: none; files up to 1,000,000 bytes");
    mount->suffixes = own;
}

TEST(an_explanation_of_a_derived_policy_names_the_entry_that_decides)
{
    AUTO(cay_policy) parent = policy_of(CAY_STYLE_PATHS, "data", NULL);
    AUTO(cay_policy) child = NULL;
    struct grant read = {.prefixes = calloc(1, sizeof *read.prefixes), .count = 1};
    struct grant write = {0};

    parent->mounts[0].write_approval = false;
    read.prefixes[0] = (struct prefix){0, strdup("sub"), strdup("data/sub")};
    ASSERT_OK(policy_narrow(parent, &read, &write, &child, &err));
    assert_explained(
        child, "data/sub/a",
        "data/sub/a: readable but not writable by path \"data\" (rw); reading "
        "is allowed below \"data/sub\"; this view may write only below: none");
    assert_explained(
        child, "data/x",
        "data/x: not readable and not writable by path \"data\" (rw); this "
        "view may read only below: data/sub; this view may write only below: "
        "none");
}

TEST(an_explanation_says_no_host_path)
{
    AUTO(cay_policy) policy = policy_of(CAY_STYLE_PATHS, "data", NULL);
    AUTO_FREE char *sentence = policy_explain(policy, "data/x", 0, "x");

    ASSERT(!strstr(sentence, "srv"));
}
