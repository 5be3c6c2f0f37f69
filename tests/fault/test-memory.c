/* SPDX-License-Identifier: Apache-2.0 */

/* No memory for policies, configurations, questions, reading and searching. */
#include <jansson.h>

#include "cay/backend.h"
#include "failing.h"
#include "survive.h"
#include "tree.h"

/* --- The test itself --------------------------------------------------------------- */

TEST(exactly_the_nth_allocation_fails)
{
    void *volatile first, *volatile second,
                              *volatile third; /* or they are optimized out */

    failing_start(FAILING_HERE, 2);
    first = malloc(1);
    second = malloc(1);
    third = calloc(1, 1);
    struct failing_tally tally = failing_stop();

    ASSERT(first && !second && third);
    ASSERT_INT(tally.here, 3);
    ASSERT(tally.failed);
    free(first);
    free(third);
    ASSERT_INT(failing_unfreed(), 0);
}

TEST(a_block_that_is_not_freed_is_noticed)
{
    void *volatile kept, *volatile grown;

    failing_start(FAILING_HERE, 0);
    kept = strdup("kept");
    grown = realloc(NULL, 1);
    grown = realloc(grown, 100000);
    failing_stop();

    ASSERT_INT(failing_unfreed(), 2);
    free(kept);
    free(grown);
    ASSERT_INT(failing_unfreed(), 0);
}

TEST(a_tree_with_a_stray_name_is_no_mixture)
{
    ASSERT(tree_is_mixture("/a 1\n/b 2\n", "/a 1\n", "/a 2\n/b 2\n"));
    ASSERT(!tree_is_mixture("/a 1\n/.cay-1 2\n", "/a 1\n", "/a 2\n"));
    ASSERT(!tree_is_mixture("/a 3\n", "/a 1\n", "/a 2\n"));
}

/* --- Policies ---------------------------------------------------------------------- */

static int make_policy(enum cay_style style, const char *name)
{
    static const char *const suffixes[] = {".md", ".TXT"};
    struct cay_mount mount = CAY_MOUNT_INIT;
    const struct cay_policy_config config = {
        .size = sizeof config, .style = style, .mounts = &mount, .mount_count = 1};
    cay_policy *made;

    mount.name = name;
    mount.host = "relative";
    mount.limit_suffixes = true;
    mount.suffixes = suffixes;
    mount.suffix_count = 2;
    mount.origin = "here";
    int code = cay_policy_new(&config, &made, &err);
    if (!code)
        cay_policy_free(made);
    return code;
}

SURVIVES(a_new_policy_of_named_paths, WHOLE)
{
    return make_policy(CAY_STYLE_PATHS, "data");
}

SURVIVES(a_new_policy_of_mounts, WHOLE)
{
    return make_policy(CAY_STYLE_MOUNTS, "/data//special/");
}

SURVIVES(a_new_policy_of_one_root, WHOLE)
{
    return make_policy(CAY_STYLE_ROOT, NULL);
}

static int parse(const char *text)
{
    cay_policy *made;
    int code = cay_policy_parse(text, strlen(text), "test", NULL, &made, &err);

    if (!code)
        cay_policy_free(made);
    return code;
}

SURVIVES(parsing_yaml, WHOLE)
{
    return parse("note: of another program\n"
                 "policy:\n"
                 "  mounts:\n"
                 "    - {host_path: a, mount_point: /a, mode: rw, read_approval: true}\n"
                 "    - host_path: b\n"
                 "      mount_point: /b\n"
                 "      suffixes: [.md, '.txt']\n"
                 "      max_file_bytes: 10\n");
}

SURVIVES(parsing_json, WHOLE)
{
    return parse("{\"root\": {\"root\": \"a\", \"readonly\": true}}");
}

SURVIVES(parsing_network_rules, WHOLE)
{
    return parse("root: a\n"
                 "network:\n"
                 "  mode: open\n"
                 "  allow: [pypi, 'GET a.test/v1/*', '10.0.0.0/8:5432']\n"
                 "  deny: b.test\n"
                 "  groups: {pypi: [m.test], ours: n.test}\n");
}

SURVIVES(adding_network_rules, WHOLE)
{
    static const char *const rules[] = {"npm", "!a.test"}, *const groups[] = {
                                                               "npm=b.test"};
    const struct cay_network_config config = {.size = sizeof config,
                                              .rules = rules,
                                              .rule_count = 2,
                                              .groups = groups,
                                              .group_count = 1};
    cay_policy *one, *two;
    int code = cay_policy_add_network(policy, &config, &one, &err);

    if (code)
        return code;
    code = cay_policy_add_network(one, &config, &two, &err);
    cay_policy_free(one);
    if (!code)
        cay_policy_free(two);
    return code;
}

SURVIVES(loading_a_policy, WHOLE)
{
    cay_policy *made;
    int code = cay_policy_load(place("policy.yaml"), NULL, &made, &err);

    if (!code)
        cay_policy_free(made);
    return code;
}

/* --- Configurations ---------------------------------------------------------------- */

static int parse_config(const char *text)
{
    cay_config *made = NULL;
    char *json;
    int code = cay_config_parse(text, strlen(text), "test", NULL, &made, &err);

    if (!code)
        code = cay_config_json(made, &json, &err);
    if (!code)
        cay_free(json);
    cay_config_free(made);
    return code;
}

SURVIVES(parsing_a_configuration, WHOLE)
{
    return parse_config("name: &me of another program\n"
                        "variables: {a: {b: \"${env.PATH}\"}}\n"
                        "sandbox_config:\n"
                        "  type: native\n"
                        "  template: ${this_file_dir}/x\n"
                        "  limits: {memory: 512M, pids: \"30\"}\n"
                        "  envs: {A: \"${env.PATH}\", B: \"$${x}\", C: 1.10}\n"
                        "  require: [seccomp, \"${variables.a.b}\"]\n"
                        "  ttl: 1.5\n"
                        "  status_after_run: none\n"
                        "  policy: {paths: {a: {root: b, suffixes: [.md]}}}\n");
}

SURVIVES(parsing_a_configuration_with_all_defaults, WHOLE)
{
    return parse_config("{}");
}

SURVIVES(parsing_a_policy_as_a_configuration, WHOLE)
{
    return parse_config("paths: {a: {root: b, suffixes: [.md]}}\n");
}

SURVIVES(making_options_of_a_configuration, WHOLE)
{
    static const char text[] = "mounts: [/usr:/a, /usr:/b:ro]\nenvs: {A: b, C: d}\n";
    struct cay_sandbox_options *options = NULL;
    cay_config *made = NULL;
    int code = cay_config_parse(text, strlen(text), "test", NULL, &made, &err);

    if (!code)
        code = cay_sandbox_options_new(made, &options, &err);
    cay_sandbox_options_free(options);
    cay_config_free(made);
    return code;
}

SURVIVES(looking_at_a_configuration_with_a_library, WHOLE)
{
    cay_config *made = NULL;
    int code = cay_config_peek(place("library.yaml"), &made, &err);

    cay_config_free(made);
    return code;
}

SURVIVES(restoring_a_configuration, WHOLE)
{
    cay_config *made = NULL;
    int code =
        cay_config_restore("{\"type\":\"native\",\"envs\":{\"A\":\"${env.UNSET_HERE}\","
                           "\"B\":\"c\"}}",
                           &made, &err);

    cay_config_free(made);
    return code;
}

SURVIVES(refusing_a_configuration, WHOLE)
{
    static const char text[] = "limits: {memry: 3}\n";
    cay_config *made = NULL;
    int code = cay_config_parse(text, strlen(text), "test", NULL, &made, &err);

    if (code != CAY_E_INVALID)
        return code;
    err.code = CAY_OK; /* as it must be */
    return CAY_OK;
}

SURVIVES(loading_a_configuration, WHOLE)
{
    cay_config *made;
    int code = cay_config_load(place("cay.yaml"), &made, &err);

    if (!code)
        cay_config_free(made);
    return code;
}

SURVIVES(making_the_schema_of_configurations, WHOLE)
{
    char *json;

    json_set_alloc_funcs(malloc, free); /* those that fail */
    int code = cay_config_schema(&json, &err);

    if (!code)
        cay_free(json);
    return code;
}

/* --- Sandboxes --------------------------------------------------------------------- */

static int created;

static int create(void *data, const cay_config *config, void **ret_cookie,
                  struct cay_error *error)
{
    (void)data;
    (void)config;
    (void)error;
    *ret_cookie = &created;
    created++;
    return CAY_OK;
}

static void forget(void *cookie)
{
    (void)cookie;
}

static int take_back(void *cookie, struct cay_error *error)
{
    (void)cookie;
    (void)error;
    created--;
    return CAY_OK;
}

TEST(no_sandbox_stays_that_nobody_would_have)
{
    static struct cay_backend counting;
    static const char text[] = "type: counting\n";
    cay_config *config = NULL;
    cay_sandbox *sandbox = NULL;

    counting = *cay_backend_find("native");
    counting.name = "counting";
    counting.create = create;
    counting.remove = take_back;
    counting.free = forget;
    ASSERT_OK(cay_backend_register(&counting, &err));
    ASSERT_OK(cay_config_parse(text, strlen(text), "test", NULL, &config, &err));
    failing_start(FAILING_HERE, 1);
    int code = cay_backend_create(config, &sandbox, &err);
    failing_stop();
    ASSERT_INT(code, CAY_E_NO_MEMORY);
    ASSERT_INT(created, 0);
    ASSERT(!sandbox);
    ASSERT_OK(cay_backend_create(config, &sandbox, &err));
    ASSERT_INT(created, 1);
    cay_sandbox_free(sandbox);
    cay_config_free(config);
}

/* --- Handles and questions --------------------------------------------------------- */

SURVIVES(opening, WHOLE)
{
    cay_files *opened;
    int code = cay_files_open(policy, &asking, &opened, &err);

    if (!code)
        cay_files_free(opened);
    return code;
}

SURVIVES(opening_missing_roots, PARTS)
{
    static const char text[] = "paths: {a: {root: new/a, mode: rw}, b: {root: b}}";
    const struct cay_files_options options = {.size = sizeof options,
                                              .flags = CAY_FILES_CREATE_ALL};
    cay_policy *made;
    cay_files *opened;
    int code = cay_policy_parse(text, strlen(text), "test", world, &made, &err);

    if (code)
        return code;
    code = cay_files_open(made, &options, &opened, &err);
    cay_policy_free(made);
    if (!code)
        cay_files_free(opened);
    return code;
}

static int derive(const struct cay_derive *how)
{
    cay_files *child, *grandchild;
    const struct cay_derive all = {
        .size = sizeof all, .inherit = true, .readonly = CAY_READONLY_FALSE};
    int code = cay_files_derive(files, how, &child, &err);

    if (code)
        return code;
    code = cay_files_derive(child, &all, &grandchild, &err);
    cay_files_free(child);
    if (!code)
        cay_files_free(grandchild);
    return code;
}

SURVIVES(cloning, WHOLE)
{
    cay_files *clone;
    int code = cay_files_clone(files, NULL, &clone, &err);

    if (!code)
        cay_files_free(clone);
    return code;
}

SURVIVES(deriving_by_lists, WHOLE)
{
    static const char *const read[] = {"data/dir", "docs"}, *const write[] = {"other"};

    return derive(&(struct cay_derive){.size = sizeof(struct cay_derive),
                                       .allow_read = read,
                                       .allow_read_count = 2,
                                       .allow_write = write,
                                       .allow_write_count = 1});
}

SURVIVES(deriving_all, WHOLE)
{
    return derive(
        &(struct cay_derive){.size = sizeof(struct cay_derive), .inherit = true});
}

SURVIVES(locating, WHOLE)
{
    struct cay_location location = {.size = sizeof location};
    int code = cay_files_locate(files, "data/link.txt", CAY_ACCESS_READ, &location, &err);

    if (!code) {
        ASSERT_STR(location.path, "data/a.txt");
        ASSERT_STR(location.host, place("data/a.txt"));
        cay_location_done(&location);
    }
    return code;
}

static int explain(const char *path, const char *part)
{
    char *sentence;
    int code = cay_files_explain(files, path, &sentence, &err);

    if (!code) {
        ASSERT_HAS(sentence, part);
        cay_free(sentence);
    }
    return code;
}

SURVIVES(explaining_a_path, WHOLE)
{
    return explain("docs/read.md", "docs");
}

SURVIVES(explaining_a_path_outside, WHOLE)
{
    return explain("elsewhere/x", "data");
}

SURVIVES(telling_the_roots, WHOLE)
{
    struct cay_strings roots;
    int code = cay_files_roots(files, CAY_ACCESS_READ, &roots, &err);

    if (!code) {
        ASSERT_INT(roots.count, 3);
        cay_strings_done(&roots);
    }
    return code;
}

SURVIVES(asking_about_a_path, WHOLE)
{
    struct cay_stat st;
    struct cay_pin pin;
    int code = cay_files_stat(files, "data/a.txt", false, &st, &err);

    ASSERT(cay_files_can(files, "data/a.txt", CAY_ACCESS_WRITE));
    ASSERT(cay_files_needs_approval(files, "data/a.txt", CAY_ACCESS_READ));
    if (!code)
        code = cay_files_exists(files, "data/none", &err);
    return code ? code : cay_files_pin(files, "data/a.txt", &pin, &err);
}

/* --- Reading ----------------------------------------------------------------------- */

typedef int reading(cay_files *, const char *, const struct cay_read_options *,
                    struct cay_page *, struct cay_error *);

static int read_by(reading *read, const char *path, uint64_t offset, uint64_t max,
                   const char *expected, size_t len)
{
    const struct cay_read_options options = {.size = sizeof options,
                                             .flags = CAY_READ_UNIVERSAL_NEWLINES,
                                             .offset = offset,
                                             .max = max};
    struct cay_page page;
    int code = read(files, path, &options, &page, &err);

    if (!code) {
        ASSERT_MEM(page.text, page.len, expected, len);
        cay_page_done(&page);
    }
    return code;
}

SURVIVES(reading_a_small_file, WHOLE)
{
    return read_by(cay_files_read, "data/a.txt", 2, 5, "pha\nb", 5);
}

SURVIVES(reading_dos_lines, WHOLE)
{
    return read_by(cay_files_read_lines, "data/dos.txt", 1, 1, "two\n", 4);
}

SURVIVES(reading_pages_of_a_large_file, WHOLE)
{
    int code = read_by(cay_files_read, "data/large.txt", 6, 5, "caf\xc3\xa9 ", 6);

    return code ? code
                : read_by(cay_files_read, "data/large.txt", 11, 5, "caf\xc3\xa9 ", 6);
}

SURVIVES(reading_lines_of_a_large_file, WHOLE)
{
    return read_by(cay_files_read_lines, "data/large.txt", 0, 1, "line.\n", 6);
}

SURVIVES(reading_all_of_a_large_file, WHOLE)
{
    return read_by(cay_files_read, "data/large.txt", 0, UINT64_MAX, large, LARGE);
}

SURVIVES(reading_bytes, WHOLE)
{
    return read_by(cay_files_read_bytes, "data/a.txt", 6, 4, "beta", 4);
}

SURVIVES(a_reader, WHOLE)
{
    const struct cay_read_options options = {.size = sizeof options, .max = 5};
    struct cay_page page;
    cay_reader *reader;
    int code = cay_reader_open(files, "data/large.txt", &reader, &err);

    if (code)
        return code;
    for (int i = 0; i < 2 && !code; i++) {
        code = cay_reader_page(reader, &options, &page, &err);
        if (!code) {
            ASSERT_STR(page.text, "line.");
            cay_page_done(&page);
        }
    }
    cay_reader_free(reader);
    return code;
}

SURVIVES(reading_many, WHOLE)
{
    struct cay_read_item items[] = {
        {.path = "data/a.txt"}, {.path = "data/none"}, {.path = "docs/read.md"}};
    int code = cay_files_read_many(files, items, 3, &err);

    if (code)
        return code;
    ASSERT_STR(items[0].page.text, "alpha\nbeta\nalpha\n");
    ASSERT_INT(items[1].error.code, CAY_E_NOT_FOUND);
    ASSERT_STR(items[2].page.text, "docs\n");
    cay_page_done(&items[0].page);
    cay_page_done(&items[2].page);
    return CAY_OK;
}

/* --- Listing, searching, archives -------------------------------------------------- */

static int list(const char *path, const struct cay_list_options *options, size_t count)
{
    struct cay_listing listing;
    int code = cay_files_list(files, path, options, &listing, &err);

    if (!code) {
        ASSERT_INT(listing.count, count);
        cay_listing_done(&listing);
    }
    return code;
}

SURVIVES(listing_everything, WHOLE)
{
    return list("/", NULL, 8);
}

SURVIVES(listing_with_patterns, WHOLE)
{
    static const char *const exclude[] = {"dir/deep", "l*"};
    const struct cay_list_options options = {
        .size = sizeof options,
        .flags = CAY_LIST_FILES | CAY_LIST_DIRECTORIES | CAY_LIST_STAT,
        .pattern = "**/[a-d]*",
        .exclude = exclude,
        .exclude_count = 2,
        .after = "data/a.txt"};

    return list("data", &options, 3);
}

SURVIVES(searching, WHOLE)
{
    const struct cay_grep_options options = {.size = sizeof options,
                                             .flags = CAY_GREP_IGNORE_CASE};
    struct cay_matches matches;
    int code = cay_files_grep(files, "/", "^(ALPHA|o)", &options, &matches, &err);

    if (!code) {
        ASSERT_INT(matches.count, 6);
        cay_matches_done(&matches);
    }
    return code;
}
