/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness.h"

static int parse(const char *text, cay_policy **ret_policy)
{
    return cay_policy_parse(text, strlen(text), "cay.yaml", "/base", ret_policy, &err);
}

static struct cay_mount mount_at(const cay_policy *policy, size_t index)
{
    struct cay_mount mount = {.size = sizeof mount};

    ASSERT(cay_policy_mount(policy, index, &mount));
    return mount;
}

/* The text is refused with exactly this message, which names line and key. */
static void assert_refused(const char *text, const char *message)
{
    cay_policy *policy = NULL;

    ASSERT_CODE(parse(text, &policy), CAY_E_INVALID);
    ASSERT(!policy);
    ASSERT_STR(err.message, message);
    ASSERT_STR(err.op, "policy.parse");
    ASSERT_STR(err.subject, "cay.yaml");
}

/* --- What is read --------------------------------------------------------------------
 */

TEST(a_root_may_be_a_plain_directory)
{
    AUTO(cay_policy) policy = NULL;

    ASSERT_OK(parse("root: sub\n", &policy));
    ASSERT_INT(cay_policy_style(policy), CAY_STYLE_ROOT);
    struct cay_mount mount = mount_at(policy, 0);
    ASSERT_STR(mount.name, "/");
    ASSERT_STR(mount.host, "/base/sub");
    ASSERT_STR(mount.origin, "cay.yaml:1: root");
    ASSERT(mount.writable && mount.write_approval && !mount.read_approval);
    ASSERT(!mount.limit_suffixes);
    ASSERT_INT(mount.max_file_bytes, CAY_NO_LIMIT);
}

TEST(a_root_may_have_rules)
{
    AUTO(cay_policy) policy = NULL;

    ASSERT_OK(parse("root:\n"
                    "  root: /srv\n"
                    "  readonly: true\n"
                    "  suffixes: [.txt, \".MD\"]\n"
                    "  max_file_bytes: 0\n"
                    "  exec: ro\n",
                    &policy));
    struct cay_mount mount = mount_at(policy, 0);
    ASSERT_STR(mount.host, "/srv");
    ASSERT(!mount.writable && mount.limit_suffixes);
    ASSERT_INT(mount.suffix_count, 2);
    ASSERT_STR(mount.suffixes[0], ".txt");
    ASSERT_STR(mount.suffixes[1], ".md");
    ASSERT_INT(mount.max_file_bytes, 0);
    ASSERT_INT(mount.exec, CAY_EXEC_RO);
}

TEST(named_paths_keep_their_order_and_know_their_line)
{
    AUTO(cay_policy) policy = NULL;

    ASSERT_OK(parse("# two of them\n"
                    "paths:\n"
                    "  work:\n"
                    "    root: w\n"
                    "    mode: rw\n"
                    "    write_approval: false\n"
                    "    read_approval: true\n"
                    "    exec: rw\n"
                    "    suffixes: null\n"
                    "    max_file_bytes: ~\n"
                    "  2024/docs: {root: d}\n",
                    &policy));
    ASSERT_INT(cay_policy_style(policy), CAY_STYLE_PATHS);
    ASSERT_INT(cay_policy_mount_count(policy), 2);
    struct cay_mount work = mount_at(policy, 0), docs = mount_at(policy, 1);
    ASSERT_STR(work.name, "work");
    ASSERT_STR(work.host, "/base/w");
    ASSERT_STR(work.origin, "cay.yaml:3: paths.work");
    ASSERT(work.writable && !work.write_approval && work.read_approval);
    ASSERT(!work.limit_suffixes);
    ASSERT_INT(work.max_file_bytes, CAY_NO_LIMIT);
    ASSERT_INT(work.exec, CAY_EXEC_RW);
    ASSERT_STR(docs.name, "2024/docs");
    ASSERT_STR(docs.origin, "cay.yaml:11: paths.2024/docs");
    ASSERT(!docs.writable && docs.write_approval && !docs.read_approval);
    ASSERT_INT(docs.exec, CAY_EXEC_DEFAULT);
}

TEST(there_may_be_no_named_path_at_all)
{
    AUTO(cay_policy) policy = NULL;

    ASSERT_OK(parse("paths: {}", &policy));
    ASSERT_INT(cay_policy_mount_count(policy), 0);
}

TEST(mounts_are_a_list)
{
    AUTO(cay_policy) policy = NULL;

    ASSERT_OK(parse("mounts:\n"
                    "- host_path: /srv/a\n"
                    "  mount_point: /a/\n"
                    "- {mount_point: \"\", host_path: b, mode: rw, suffixes: [],\n"
                    "   max_file_bytes: 9223372036854775807, write_approval: true,\n"
                    "   read_approval: false, exec: ro}\n",
                    &policy));
    ASSERT_INT(cay_policy_style(policy), CAY_STYLE_MOUNTS);
    struct cay_mount a = mount_at(policy, 0), top = mount_at(policy, 1);
    ASSERT_STR(a.name, "/a");
    ASSERT_STR(a.host, "/srv/a");
    ASSERT_STR(a.origin, "cay.yaml:2: mounts[0]");
    ASSERT_STR(top.name, "/");
    ASSERT_STR(top.origin, "cay.yaml:4: mounts[1]");
    ASSERT(top.limit_suffixes);
    ASSERT_INT(top.suffix_count, 0);
    ASSERT_INT(top.max_file_bytes, INT64_MAX);
}

TEST(below_policy_is_the_same_as_at_the_top)
{
    AUTO(cay_policy) policy = NULL;

    ASSERT_OK(parse("policy:\n  paths:\n    a: {root: x}\n", &policy));
    ASSERT_STR(mount_at(policy, 0).origin, "cay.yaml:3: policy.paths.a");
    assert_refused("policy: {paths: {a: {root: x, mode: w}}}",
                   "line 1: policy.paths.a.mode: must be ro or rw");
}

TEST(beside_policy_other_keys_are_left_alone)
{
    AUTO(cay_policy) before = NULL;
    AUTO(cay_policy) after = NULL;

    ASSERT_OK(
        parse("template: {deep: [1, {a: b}]}\nlimits: 3\npolicy: {root: x}\n", &before));
    ASSERT_OK(parse("policy: {root: x}\ntemplate: host\nlist: [a, [b]]\n", &after));
    ASSERT_STR(mount_at(after, 0).host, "/base/x");
}

static void assert_same(const cay_policy *a, const cay_policy *b)
{
    ASSERT_INT(cay_policy_style(a), cay_policy_style(b));
    ASSERT_INT(cay_policy_mount_count(a), cay_policy_mount_count(b));
    for (size_t i = 0; i < cay_policy_mount_count(a); i++) {
        struct cay_mount x = mount_at(a, i), y = mount_at(b, i);
        ASSERT_STR(x.name, y.name);
        ASSERT_STR(x.host, y.host);
        ASSERT_INT(x.writable, y.writable);
        ASSERT_INT(x.write_approval, y.write_approval);
        ASSERT_INT(x.read_approval, y.read_approval);
        ASSERT_INT(x.limit_suffixes, y.limit_suffixes);
        ASSERT_INT(x.suffix_count, y.suffix_count);
        for (size_t j = 0; j < x.suffix_count; j++)
            ASSERT_STR(x.suffixes[j], y.suffixes[j]);
        ASSERT_INT(x.max_file_bytes, y.max_file_bytes);
        ASSERT_INT(x.exec, y.exec);
    }
}

TEST(json_and_yaml_give_the_same_policy)
{
    static const struct {
        const char *yaml, *json;
    } pairs[] = {
        {"root: x y\n", "{\"root\": \"x y\"}"},
        {"root:\n  root: x\n  readonly: true\n  suffixes: [.a, .b]\n  max_file_bytes: "
         "5\n",
         "{\n\t\"root\": {\n\t\t\"root\": \"x\", \"readonly\": true,\n"
         "\t\t\"suffixes\": [\".a\", \".b\"], \"max_file_bytes\": 5\n\t}\n}\n"},
        {"paths:\n  d\xc3\xa9:\n    root: '/\xf0\x9f\x98\x80'\n    mode: rw\n"
         "    write_approval: false\n    suffixes: null\n    exec: rw\n",
         "{\"paths\":{\"d\\u00e9\":{\"root\":\"\\/\\ud83d\\ude00\",\"mode\":\"rw\","
         "\"write_approval\":false,\"suffixes\":null,\"exec\":\"rw\"}}}"},
        {"policy:\n  mounts:\n  - host_path: h\n    mount_point: /a/b\n    mode: ro\n"
         "    read_approval: true\n    max_file_bytes: null\n  - host_path: i\n"
         "    mount_point: /\n",
         "{\"policy\":{\"mounts\":[{\"host_path\":\"h\",\"mount_point\":\"/a/b\","
         "\"mode\":\"ro\",\"read_approval\":true,\"max_file_bytes\":null},"
         "{\"host_path\":\"i\",\"mount_point\":\"/\"}]},\"template\":{}}"},
    };

    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        AUTO(cay_policy) yaml = NULL;
        AUTO(cay_policy) json = NULL;
        ASSERT_OK(parse(pairs[i].yaml, &yaml));
        ASSERT_OK(parse(pairs[i].json, &json));
        assert_same(yaml, json);
    }
}

/* --- What is refused -----------------------------------------------------------------
 */

TEST(an_unknown_key_is_refused_with_the_nearest_known_one)
{
    assert_refused("paths:\n  docs:\n    root: d\n    max_file_byte: 3\n",
                   "line 4: paths.docs.max_file_byte: unknown key");
    ASSERT_HAS(err.hint, "did you mean max_file_bytes?");
    assert_refused("mounts:\n- host: a\n  mount_point: /a\n",
                   "line 2: mounts[0].host: unknown key");
    ASSERT_HAS(err.hint, "host_path, mount_point, mode");
    assert_refused("root: {root: a, mode: ro}", "line 1: root.mode: unknown key");
    ASSERT_HAS(err.hint, "readonly");
    assert_refused("root: a\ntemplate: b\n", "line 2: template: unknown key");
    assert_refused("poicy: {root: a}\n", "line 1: poicy: unknown key");
    ASSERT_HAS(err.hint, "did you mean policy?");
    assert_refused("policy:\n  path: {}\n", "line 2: policy.path: unknown key");
    ASSERT_HAS(err.hint, "did you mean paths?");
    assert_refused("paths:\n  a:\n    root: b\n    Mode: ro\n",
                   "line 4: paths.a.Mode: unknown key");
    ASSERT_HAS(err.hint, "did you mean mode?");
    assert_refused("paths: {a: {root: b, zzzzzzzz: ro}}",
                   "line 1: paths.a.zzzzzzzz: unknown key");
    ASSERT(!strstr(err.hint, "did you mean"));
}

TEST(a_key_given_twice_is_refused)
{
    assert_refused("root: a\nroot: b\n", "line 2: root: is given twice");
    assert_refused("policy: {root: a}\npolicy: {root: b}\n",
                   "line 2: policy: is given twice");
    assert_refused("paths:\n  a:\n    root: b\n    mode: ro\n    mode: rw\n",
                   "line 5: paths.a.mode: is given twice");
    assert_refused("paths:\n  a: {root: b}\n  a: {root: c}\n",
                   "line 3: paths.a: the name is used twice");
    assert_refused("mounts:\n- {host_path: a, mount_point: /x}\n"
                   "- {host_path: b, mount_point: /y/../x/}\n",
                   "line 3: mounts[1].mount_point: the mount point is used twice");
}

TEST(only_one_of_the_three_styles_is_used)
{
    assert_refused("root: a\npaths: {}\n",
                   "line 2: paths: only one of root, paths and mounts may be used");
    ASSERT_HAS(err.hint, "line 1 already has root");
    assert_refused("policy:\n  paths: {}\nmounts:\n- {host_path: a, mount_point: /}\n",
                   "line 3: mounts: only one of root, paths and mounts may be used");
    assert_refused("{}", "line 1: no policy found");
    assert_refused("policy: {}\n", "line 1: no policy found");
    assert_refused("policy: {}\ntemplate: x\n", "line 1: no policy found");
}

TEST(a_wrong_type_is_refused)
{
    assert_refused("root: 12\n", "line 1: root: must be a string or a map of rules");
    assert_refused("root:\n", "line 1: root: must be a string or a map of rules");
    assert_refused("root: [a]\n", "line 1: root: must be a string or a map of rules");
    assert_refused("root: {root: true}", "line 1: root.root: must be a string");
    assert_refused("root: {root: {a: b}}", "line 1: root.root: must be a string");
    assert_refused("root: {root: ~}", "line 1: root.root: must be a string");
    assert_refused("root: {root: -1.5}", "line 1: root.root: must be a string");
    assert_refused("paths: [a]\n", "line 1: paths: must be a map of names");
    assert_refused("paths:\n", "line 1: paths: must be a map of names");
    assert_refused("paths:\n  a: dir\n", "line 2: paths.a: must be a map of rules");
    assert_refused("mounts: {a: b}\n", "line 1: mounts: must be a list of mounts");
    assert_refused("mounts: [a]\n", "line 1: mounts[0]: must be a map of rules");
    assert_refused("mounts: []\n", "line 1: mounts: the list of mounts is empty");
    assert_refused("policy: a\n", "line 1: policy: must be a map");
    assert_refused("[a, b]\n", "line 1: the text is not a map of keys");
    assert_refused("just words\n", "line 1: the text is not a map of keys");
    assert_refused("paths: {[a]: {root: b}}",
                   "line 1: paths: a key must be a plain word");
}

TEST(a_wrong_value_is_refused)
{
    assert_refused("paths:\n  docs:\n    root: d\n    suffixes:\n    - .txt\n"
                   "    - .md\n    mode: r\n",
                   "line 7: paths.docs.mode: must be ro or rw");
    assert_refused("paths: {a: {root: b, mode: null}}",
                   "line 1: paths.a.mode: must be ro or rw");
    assert_refused("paths: {a: {root: b, exec: [ro]}}",
                   "line 1: paths.a.exec: must be ro or rw");
    assert_refused("root: {root: a, readonly: \"true\"}",
                   "line 1: root.readonly: must be true or false");
    assert_refused("root: {root: a, readonly: yes}",
                   "line 1: root.readonly: must be true or false");
    assert_refused("root: {root: a, readonly: True}",
                   "line 1: root.readonly: must be true or false");
    assert_refused("paths: {a: {root: b, write_approval: 0}}",
                   "line 1: paths.a.write_approval: must be true or false");
    assert_refused("paths: {a: {root: b, read_approval: }}",
                   "line 1: paths.a.read_approval: must be true or false");
    assert_refused("root: {root: \"\"}", "line 1: root.root: must not be empty");
    assert_refused("root: ''", "line 1: root: must not be empty");
}

TEST(a_size_is_a_whole_number_of_bytes)
{
    static const char *const bad[] = {"-1", "1.5", "1e3", "\"5\"", "0x10", "1_000",
                                      "+1", "",    "[1]", "5 MB",  "true", ".inf"};
    char text[128];

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(text, sizeof text, "root:\n  root: a\n  max_file_bytes: %s\n", bad[i]);
        assert_refused(text,
                       "line 3: root.max_file_bytes: must be a number of bytes, or null");
    }
    assert_refused("root: {root: a, max_file_bytes: 9223372036854775808}",
                   "line 1: root.max_file_bytes: the number is too large");
}

TEST(suffixes_are_a_list_of_strings)
{
    assert_refused("root: {root: a, suffixes: .txt}",
                   "line 1: root.suffixes: must be a list of suffixes, or null");
    assert_refused("root:\n  root: a\n  suffixes:\n",
                   "line 3: root.suffixes: must be a list of suffixes, or null");
    assert_refused("root:\n  root: a\n  suffixes:\n  - .txt\n  - 7\n",
                   "line 5: root.suffixes[1]: must be a string");
    assert_refused("root: {root: a, suffixes: [[.a]]}",
                   "line 1: root.suffixes[0]: must be a string");
}

TEST(what_is_needed_must_be_there)
{
    assert_refused("root: {}", "line 1: root: root is missing");
    assert_refused("paths:\n  a:\n    mode: ro\n", "line 2: paths.a: root is missing");
    assert_refused("mounts:\n- mount_point: /a\n",
                   "line 2: mounts[0]: host_path is missing");
    assert_refused("mounts:\n- host_path: a\n",
                   "line 2: mounts[0]: mount_point is missing");
}

TEST(a_name_that_cannot_be_is_refused_at_its_line)
{
    assert_refused("paths:\n  ok: {root: a}\n  a/../b: {root: c}\n",
                   "line 3: paths.a/../b: invalid path name");
    assert_refused("paths:\n  \"a\\nb\": {root: c}\n",
                   "line 2: paths.a?b: the name contains control characters");
    assert_refused("paths:\n  \"\": {root: c}\n", "line 2: paths.: invalid path name");
    assert_refused("paths:\n  \"a\\0b\": {root: c}\n",
                   "line 2: paths: the text contains a NUL character");
    assert_refused("root: \"a\\0b\"\n",
                   "line 1: root: the text contains a NUL character");
    assert_refused("mounts:\n- host_path: a\n  mode: rw\n  mount_point: data\n",
                   "line 4: mounts[0].mount_point: the mount point does not start with "
                   "\"/\"");
}

TEST(anchors_aliases_tags_and_merges_are_refused)
{
    assert_refused("root: &a b\n", "line 1: root: anchors are not allowed");
    assert_refused("x: &a {root: b}\npolicy: *a\n", "line 1: anchors are not allowed");
    assert_refused("x: 1\npolicy: *a\n", "line 2: policy: aliases are not allowed");
    assert_refused("root: !!str b\n", "line 1: root: tags are not allowed");
    assert_refused("root: !x b\n", "line 1: root: tags are not allowed");
    assert_refused("paths: !!map {}\n", "line 1: paths: tags are not allowed");
    assert_refused("paths: {a: {root: b, <<: {mode: rw}}}",
                   "line 1: paths.a.<<: unknown key");
}

TEST(a_text_is_one_document)
{
    AUTO(cay_policy) policy = NULL;

    ASSERT_OK(parse("---\nroot: a\n...\n", &policy));
    assert_refused("root: a\n---\nroot: b\n", "line 2: a second document starts here");
    assert_refused("", "line 1: the text is empty");
    cay_policy *none = NULL;
    ASSERT_CODE(cay_policy_parse(NULL, 0, NULL, NULL, &none, &err), CAY_E_INVALID);
    assert_refused("\n# only a comment\n", "line 3: the text is empty");
}

TEST(broken_syntax_is_refused_at_its_line)
{
    cay_policy *policy = NULL;

    ASSERT_CODE(parse("paths:\n  a: {root: b\n", &policy), CAY_E_INVALID);
    ASSERT_HAS(err.message, "line 3: ");
    ASSERT_CODE(parse("root: a\n]\n", &policy), CAY_E_INVALID);
    ASSERT_HAS(err.message, "line 2: ");
    ASSERT_CODE(parse("root: \"a\n", &policy), CAY_E_INVALID);
    assert_refused(">0000", "line 1: invalid YAML");
    ASSERT_CODE(parse("root: a: b\n", &policy), CAY_E_INVALID);
    ASSERT_HAS(err.message, "line 1: ");
    ASSERT_CODE(parse("{\"root\": \"a\",, }", &policy), CAY_E_INVALID);
    ASSERT(!policy);
}

TEST(quoted_text_is_read_right_or_not_at_all)
{
    AUTO(cay_policy) single = NULL;
    AUTO(cay_policy) pair = NULL;

    ASSERT_OK(parse("root: 'it''s ''here'''", &single));
    ASSERT_STR(mount_at(single, 0).host, "/base/it's 'here'");
    ASSERT_OK(parse("root: \"a''b\"", &pair));
    ASSERT_STR(mount_at(pair, 0).host, "/base/a''b");
    assert_refused(
        "root: 'a''''b'",
        "line 1: root: two consecutive quotes are not supported inside single quotes");
}

TEST(bytes_that_are_no_text_are_refused_at_their_line)
{
    cay_policy *policy = NULL;

    assert_refused("root: a\n# \xff\n", "line 2: the text is not UTF-8");
    assert_refused("root: a\n#\n# \xe2\x82", "line 3: the text is not UTF-8");
    ASSERT_CODE(cay_policy_parse("root: a\n\0\n", 10, "cay.yaml", NULL, &policy, &err),
                CAY_E_INVALID);
    ASSERT_STR(err.message, "line 2: the text contains a NUL byte");
    ASSERT(!policy);
}

TEST(nesting_has_a_limit)
{
    char text[256] = "policy: {root: a}\nx: ";
    AUTO(cay_policy) policy = NULL;
    size_t start = strlen(text);

    memset(text + start, '[', 31);
    memset(text + start + 31, ']', 31);
    ASSERT_OK(parse(text, &policy));
    memset(text + start, '[', 32);
    memset(text + start + 32, ']', 32);
    assert_refused(text, "line 2: the text is nested too deeply");
}

TEST(a_text_has_at_most_one_mebibyte)
{
    size_t len = ((size_t)1 << 20) + 1;
    AUTO_FREE char *text = malloc(len);
    AUTO(cay_policy) policy = NULL;

    ASSERT(text);
    memset(text, '#', len);
    memcpy(text, "root: a\n", 8);
    ASSERT_OK(cay_policy_parse(text, len - 1, "cay.yaml", NULL, &policy, &err));
    ASSERT_CODE(cay_policy_parse(text, len, "cay.yaml", NULL, &policy, &err),
                CAY_E_INVALID);
    ASSERT_HAS(err.hint, "1 MiB");
}

/* The reader below us takes time with their square. */
static void assert_breaks(const char *first, const char *brk, const char *last)
{
    char text[1024];

    for (int count = 101; count <= 102; count++) {
        AUTO(cay_policy) policy = NULL;
        size_t len = (size_t)snprintf(text, sizeof text, "%s", first);
        for (int i = 0; i < count; i++)
            len += (size_t)snprintf(text + len, sizeof text - len, "%s", brk);
        snprintf(text + len, sizeof text - len, "%s", last);
        ASSERT_CODE(parse(text, &policy), count == 101 ? CAY_OK : CAY_E_INVALID);
    }
    ASSERT_HAS(err.message, "there are too many empty lines in a row");
    ASSERT_STR(err.hint, "100 are allowed");
}

TEST(empty_lines_in_a_row_have_a_limit)
{
    assert_breaks("policy: {root: a}\nx: |", "\n", "");
    assert_breaks("policy: {root: a}\nx: |", "\n", "  a");
    assert_breaks("policy: {root: a}\nx: |", " \n", "");
    assert_breaks("policy: {root: a}\nx: |", "\r\n", "");
    assert_breaks("policy: {root: a}\nx: |", "\r", "");
    assert_breaks("policy: {root: a}\nx: a", "\n", "  b");
    assert_breaks("policy: {root: a}", "\n", "x: b");
}

TEST(directives_have_a_limit)
{
    char text[1024];
    AUTO(cay_policy) policy = NULL;
    size_t len = 0;

    for (int i = 0; i < 16; i++)
        len += (size_t)snprintf(text + len, sizeof text - len, "%%TAG !a%d! x\n", i);
    snprintf(text + len, sizeof text - len, "---\nroot: a\n");
    ASSERT_OK(parse(text, &policy));
    snprintf(text + len, sizeof text - len, "%%TAG !a! x\n---\nroot: a\n");
    assert_refused(text, "line 17: there are too many directives");
}

TEST(too_many_mounts_are_refused)
{
    AUTO_FREE char *text = malloc(65536);
    size_t len = 0;
    cay_policy *policy = NULL;

    ASSERT(text);
    len += (size_t)snprintf(text, 65536, "paths:\n");
    for (int i = 0; i < 1025; i++)
        len += (size_t)snprintf(text + len, 65536 - len, "  p%d: {root: r%d}\n", i, i);
    ASSERT_CODE(cay_policy_parse(text, len, "cay.yaml", NULL, &policy, &err),
                CAY_E_INVALID);
    ASSERT_STR(err.message, "line 1: paths: there are too many mounts");
}

TEST(a_long_key_is_cut_in_the_error)
{
    char text[700] = "paths:\n  ";
    cay_policy *policy = NULL;

    memset(text + 9, 'k', 600);
    memcpy(text + 609, ": 1", 4);
    ASSERT_CODE(parse(text, &policy), CAY_E_INVALID);
    ASSERT_HAS(err.message, "kkk: must be a map of rules");
    ASSERT(strlen(err.message) < 120);
}

/* --- Files ---------------------------------------------------------------------------
 */

TEST(a_file_is_the_base_of_its_relative_hosts)
{
    char expected[512];
    AUTO(cay_policy) own = NULL;
    AUTO(cay_policy) other = NULL;

    put_file("conf/cay.yaml", "paths: {a: {root: ./x}}\n");
    ASSERT_OK(cay_policy_load(scratch_path("conf/cay.yaml"), NULL, &own, &err));
    snprintf(expected, sizeof expected, "%s/conf/x", scratch());
    ASSERT_STR(mount_at(own, 0).host, expected);
    snprintf(expected, sizeof expected, "%s/conf/cay.yaml:1: paths.a", scratch());
    ASSERT_STR(mount_at(own, 0).origin, expected);

    ASSERT_OK(cay_policy_load(scratch_path("conf/cay.yaml"), "/elsewhere", &other, &err));
    ASSERT_STR(mount_at(other, 0).host, "/elsewhere/x");
}

TEST(a_file_named_relatively_is_found_and_is_the_base_too)
{
    char expected[512];
    AUTO(cay_policy) here = NULL;
    AUTO(cay_policy) below = NULL;

    put_file("cay.json", "{\"root\": \"x\"}");
    put_file("sub/cay.json", "{\"root\": \"x\"}");
    ASSERT_INT(chdir(scratch()), 0);
    ASSERT_OK(cay_policy_load("cay.json", NULL, &here, &err));
    ASSERT_OK(cay_policy_load("sub/cay.json", NULL, &below, &err));
    ASSERT_INT(chdir("/"), 0);
    snprintf(expected, sizeof expected, "%s/x", scratch());
    ASSERT_STR(mount_at(here, 0).host, expected);
    snprintf(expected, sizeof expected, "%s/sub/x", scratch());
    ASSERT_STR(mount_at(below, 0).host, expected);
}

TEST(an_error_in_a_file_names_the_file)
{
    cay_policy *policy = NULL;

    put_file("cay.yaml", "root: a\n\nmoounts: []\n");
    ASSERT_CODE(cay_policy_load(scratch_path("cay.yaml"), NULL, &policy, &err),
                CAY_E_INVALID);
    ASSERT_STR(err.subject, scratch_path("cay.yaml"));
    ASSERT_STR(err.message, "line 3: moounts: unknown key");
}

TEST(only_a_regular_file_is_read)
{
    cay_policy *policy = NULL;

    ASSERT_CODE(cay_policy_load(scratch_path("none"), NULL, &policy, &err),
                CAY_E_NOT_FOUND);
    ASSERT_CODE(cay_policy_load(scratch(), NULL, &policy, &err), CAY_E_NOT_A_FILE);
    ASSERT_INT(mkfifo(scratch_path("fifo"), 0600), 0);
    ASSERT_CODE(cay_policy_load(scratch_path("fifo"), NULL, &policy, &err),
                CAY_E_NOT_A_FILE);
}

TEST(a_file_has_at_most_one_mebibyte)
{
    size_t len = ((size_t)1 << 20) + 1;
    AUTO_FREE char *text = malloc(len);
    AUTO(cay_policy) policy = NULL;

    ASSERT(text);
    memset(text, '#', len);
    memcpy(text, "root: a\n", 8);
    put_bytes("fits", text, len - 1);
    put_bytes("over", text, len);
    ASSERT_OK(cay_policy_load(scratch_path("fits"), NULL, &policy, &err));
    ASSERT_CODE(cay_policy_load(scratch_path("over"), NULL, &policy, &err),
                CAY_E_INVALID);
    put_file("empty", "");
    ASSERT_CODE(cay_policy_load(scratch_path("empty"), NULL, &policy, &err),
                CAY_E_INVALID);
}
