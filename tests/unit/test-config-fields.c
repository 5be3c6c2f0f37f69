/* SPDX-License-Identifier: Apache-2.0 */
/* What a configuration may say, and what it is where it says nothing. */
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include "test-config-fixture.h"

/* --- Which backend -------------------------------------------------------------------
 */

TEST(a_file_of_ours_is_native_unless_it_says_otherwise)
{
    AUTO(cay_config) empty = NULL;
    AUTO(cay_config) named = NULL;

    ASSERT_OK(parse_config("{}", &empty));
    ASSERT_STR(cay_config_type(empty), "native");
    ASSERT_STR(cay_config_text(empty, "type"), "native");
    ASSERT(!cay_config_has(empty, "type"));
    ASSERT_OK(parse_config("type: trial", &named));
    ASSERT_STR(cay_config_type(named), "trial");
    ASSERT(cay_config_has(named, "type"));
}

TEST(below_sandbox_config_the_default_is_local)
{
    AUTO(cay_config) config = NULL;

    if (!cay_backend_find("local"))
        register_as("local", NULL, 0);
    ASSERT_OK(parse_config("name: me\nsandbox_config: {}\n", &config));
    ASSERT_STR(cay_config_type(config), "local");
    cay_config_free(config);
    ASSERT_OK(parse_config("name: me\nsandbox_config:\n", &config));
    ASSERT_STR(cay_config_type(config), "local");
}

TEST(the_type_may_come_last)
{
    AUTO(cay_config) config = NULL;

    ASSERT_OK(parse_config("integer: 4\ntype: trial\n", &config));
    ASSERT_INT(cay_config_integer(config, "integer"), 4);
}

TEST(a_backend_that_is_not_there_is_an_error_that_names_those_that_are)
{
    assert_no_config("\ntype: trail\n", "line 2: type: unknown backend");
    ASSERT_HAS(err.hint, "did you mean trial? the backends are native");
    assert_no_config("type: docker", "line 1: type: unknown backend");
    ASSERT(!strstr(err.hint, "did you mean"));
    assert_no_config("type: ${env.PATH}\n", "line 1: type: unknown backend");
    assert_no_config("type: [native]\n", "line 1: type: must be a string");
    assert_no_config("type: 3\n", "line 1: type: must be a string");
}

TEST(every_key_there_may_be_is_told_once)
{
    AUTO(cay_config) config = NULL;
    const struct cay_field *field;
    size_t count = 0, own = 0;

    ASSERT_OK(parse_config("{}", &config));
    for (; (field = cay_config_field(config, count)); count++) {
        for (size_t i = 0; i < count; i++)
            ASSERT(strcmp(cay_config_field(config, i)->name, field->name) != 0);
        if (strcmp(field->name, "template") == 0)
            own = count;
    }
    ASSERT_STR(cay_config_field(config, 0)->name, "type");
    ASSERT(own > 0 && own < count);
    ASSERT(!cay_config_field(config, count) && !cay_config_field(config, SIZE_MAX));
}

TEST(siblings_of_sandbox_config_are_left_alone)
{
    AUTO(cay_config) config = NULL;

    ASSERT_OK(parse_config("name: &name me\n"
                           "type: nonsense\n"
                           "name: again\n"
                           "llm_config: {model: !x gpt, <<: *name, a: 'it''''s'}\n"
                           "tools: [{? [complex, key] : 1}, \"${env.NOT_SET}\"]\n"
                           "sandbox_config:\n"
                           "  type: trial\n"
                           "  text: x\n"
                           "after: {text: [y]}\n",
                           &config));
    ASSERT_STR(cay_config_text(config, "text"), "x");
}

TEST(aliases_anchors_and_tags_are_refused_where_they_are_read)
{
    assert_no_config("name: &name me\nsandbox_config: {type: trial, text: *name}\n",
                     "line 2: sandbox_config.text: aliases are not allowed");
    assert_refused("text: &a b\n", "line 2: text: anchors are not allowed");
    assert_refused("texts: [!!str b]\n", "line 2: texts[0]: tags are not allowed");
    assert_refused("map: !!map {}\n", "line 2: map: tags are not allowed");
    assert_refused(
        "text: 'it''''s'\n",
        "line 2: text: two consecutive quotes are not supported inside single quotes");
    assert_refused("*a : b\n", "line 2: aliases are not allowed");
}

TEST(sandbox_config_is_a_map_and_there_is_one)
{
    assert_no_config("sandbox_config: native",
                     "line 1: sandbox_config: must be a map of keys");
    assert_no_config("sandbox_config: {type: trial}\nsandbox_config: {type: trial}\n",
                     "line 2: sandbox_config: is given twice");
    assert_no_config("variables: {}\nvariables: {}\n",
                     "line 2: variables: is given twice");
    assert_no_config("sandbox_config: {type: trial, integer: x}\n",
                     "line 1: sandbox_config.integer: must be a whole number from -3 to "
                     "300");
    assert_no_config("sandbox_config: {sandbox_config: {}, type: trial}",
                     "line 1: sandbox_config.sandbox_config: unknown key");
}

/* --- Values --------------------------------------------------------------------------
 */

TEST(every_type_is_read)
{
    AUTO(cay_config)
    config = trial("text: some words\n"
                   "secret: hush\n"
                   "integer: -3\n"
                   "any: 9223372036854775807\n"
                   "number: 1.25\n"
                   "boolean: true\n"
                   "choice: green\n"
                   "texts: [a, \"12\"]\n"
                   "map: {x: 1.10, y: true, 'z z': \"\"}\n"
                   "group:\n"
                   "  bytes: 512M\n"
                   "  deep: {path: some/file, size: 1.5 KiB}\n"
                   "policy: {root: docs}\n");
    const char *key = "", *value = NULL;

    ASSERT_STR(cay_config_text(config, "text"), "some words");
    ASSERT_STR(cay_config_text(config, "secret"), "hush");
    ASSERT_INT(cay_config_integer(config, "integer"), -3);
    ASSERT_INT(cay_config_integer(config, "any"), INT64_MAX);
    ASSERT(cay_config_number(config, "number") == 1.25);
    ASSERT(cay_config_boolean(config, "boolean"));
    ASSERT_STR(cay_config_text(config, "choice"), "green");
    ASSERT_INT(cay_config_integer(config, "group.bytes"), 512 << 20);
    ASSERT_STR(cay_config_text(config, "group.deep.path"), "/base/some/file");
    ASSERT_INT(cay_config_integer(config, "group.deep.size"), 1536);
    ASSERT_INT(cay_config_count(config, "texts"), 2);
    ASSERT(cay_config_item(config, "texts", 1, &key, &value));
    ASSERT_STR(key, NULL);
    ASSERT_STR(value, "12");
    ASSERT(!cay_config_item(config, "texts", 2, &key, &value));
    ASSERT_INT(cay_config_count(config, "map"), 3);
    ASSERT(cay_config_item(config, "map", 0, &key, &value));
    ASSERT_STR(key, "x");
    ASSERT_STR(value, "1.10");
    ASSERT(cay_config_item(config, "map", 2, &key, &value));
    ASSERT_STR(key, "z z");
    ASSERT_STR(value, "");
    ASSERT_INT(cay_policy_style(cay_config_policy(config, "policy")), CAY_STYLE_ROOT);
    ASSERT(cay_config_has(config, "group.deep.size"));
}

TEST(what_is_not_written_is_its_fallback)
{
    AUTO(cay_config) config = trial("");
    const char *key, *value;

    ASSERT_STR(cay_config_text(config, "text"), "hello");
    ASSERT_STR(cay_config_text(config, "secret"), NULL);
    ASSERT_INT(cay_config_integer(config, "integer"), 7);
    ASSERT_INT(cay_config_integer(config, "any"), 0);
    ASSERT(cay_config_number(config, "number") == 0.5);
    ASSERT(!cay_config_boolean(config, "boolean"));
    ASSERT_STR(cay_config_text(config, "choice"), "red");
    ASSERT_INT(cay_config_integer(config, "group.bytes"), 1024);
    ASSERT_INT(cay_config_count(config, "texts"), 2);
    ASSERT(cay_config_item(config, "map", 0, &key, &value));
    ASSERT_STR(value, "b");
    ASSERT(!cay_config_policy(config, "policy"));
    ASSERT(!cay_config_has(config, "text") && !cay_config_has(config, "texts"));
    ASSERT_INT(cay_config_integer(config, "output_char_threshold"), 10000);
    ASSERT_INT(cay_config_integer(config, "truncate_head_chars"), 5000);
    ASSERT_INT(cay_config_integer(config, "truncate_tail_chars"), 5000);
    ASSERT(cay_config_boolean(config, "clean_output"));
    ASSERT(!cay_config_boolean(config, "raise_errors"));
    ASSERT_STR(cay_config_text(config, "work_dir"), NULL);
    ASSERT_INT(cay_config_count(config, "envs"), 0);
}

TEST(a_fallback_may_come_from_the_environment)
{
    AUTO(cay_config) config = NULL;

    setenv("TRIAL_SECRET", "from outside", 1);
    config = trial("");
    unsetenv("TRIAL_SECRET");
    ASSERT_STR(cay_config_text(config, "secret"), "from outside");
    ASSERT(!cay_config_has(config, "secret"));
}

TEST(null_is_as_if_nothing_were_written)
{
    AUTO(cay_config)
    config = trial("text: null\ninteger: ~\nchoice:\ntexts: null\n"
                   "group: null\nsandbox_id: null\n");

    ASSERT(!cay_config_has(config, "text") && !cay_config_has(config, "sandbox_id"));
    ASSERT_STR(cay_config_text(config, "text"), "hello");
    ASSERT_INT(cay_config_integer(config, "integer"), 7);
    assert_refused("text: null\ntext: null\n", "line 3: text: is given twice");
}

TEST(a_name_that_is_no_field_has_no_value)
{
    AUTO(cay_config) config = trial("text: x\n");
    const char *key, *value;

    ASSERT(!cay_config_has(config, "nothing"));
    ASSERT_STR(cay_config_text(config, "group"), NULL);
    ASSERT_INT(cay_config_integer(config, "text"), 0);
    ASSERT_STR(cay_config_text(config, "integer"), NULL);
    ASSERT_INT(cay_config_count(config, "text"), 0);
    ASSERT(!cay_config_item(config, "", 0, &key, &value));
    ASSERT(!cay_config_policy(config, "nothing"));
}

TEST(numbers_may_be_quoted)
{
    AUTO(cay_config)
    config = trial("integer: \"300\"\nnumber: '2'\nboolean: \"false\"\n"
                   "group: {bytes: '1M'}\nany: +5\n");

    ASSERT_INT(cay_config_integer(config, "integer"), 300);
    ASSERT(cay_config_number(config, "number") == 2);
    ASSERT(!cay_config_boolean(config, "boolean") && cay_config_has(config, "boolean"));
    ASSERT_INT(cay_config_integer(config, "group.bytes"), 1 << 20);
    ASSERT_INT(cay_config_integer(config, "any"), 5);
}

TEST(a_boolean_has_eight_spellings)
{
    static const char *const yes[] = {"true", "True", "YES", "on", "1", "\"tRUE\""};
    static const char *const no[] = {"false", "No", "OFF", "0", "'no'"};
    static const char *const neither[] = {"y", "2", "truee", "[true]", "{}", "''", "t"};
    char line[64];

    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++) {
        snprintf(line, sizeof line, "boolean: %s\n", yes[i]);
        AUTO(cay_config) config = trial(line);
        ASSERT(cay_config_boolean(config, "boolean"));
    }
    for (size_t i = 0; i < sizeof no / sizeof *no; i++) {
        snprintf(line, sizeof line, "boolean: %s\n", no[i]);
        AUTO(cay_config) config = trial(line);
        ASSERT(!cay_config_boolean(config, "boolean"));
    }
    for (size_t i = 0; i < sizeof neither / sizeof *neither; i++) {
        snprintf(line, sizeof line, "boolean: %s\n", neither[i]);
        assert_refused(line, "line 2: boolean: must be true or false");
    }
}

TEST(a_whole_number_has_only_digits_and_is_in_range)
{
    static const char *const bad[] = {
        "301",     "-4", "1.0", "0x1",  "1_0",
        "ten",     "",   "''",  "true", "[1]",
        "{}",      "+",  "1 ",  "1e2",  "99999999999999999999",
        "\"1\\0\""};
    char line[64];

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(line, sizeof line, "integer: [%s]\n", bad[i]);
        if (bad[i][0] && strcmp(bad[i], "1 ") != 0)
            snprintf(line, sizeof line, "integer: %s\n", bad[i]);
        assert_refused(line, "line 2: integer: must be a whole number from -3 to 300");
    }
    assert_refused("any: x\n", "line 2: any: must be a whole number");
    assert_refused("any: 9223372036854775808\n", "line 2: any: must be a whole number");
}

TEST(a_size_has_a_unit_or_none)
{
    static const char *const bad[] = {"-1",   "2GB", "1 Gi", "G",   "1  M", "2G",
                                      "lots", "1M ", "0x10", "nan", "-1M",  "[1]"};
    char line[64];

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(line, sizeof line, "group: {bytes: %s%s%s}\n",
                 bad[i][0] == '[' ? "" : "\"", bad[i], bad[i][0] == '[' ? "" : "\"");
        assert_refused(
            line, "line 2: group.bytes: must be a number of bytes from 0 to 1073741824");
    }
    static const char *const good[] = {"1G", "1g", "1gb", "1 GB", "1GiB", "1 gib"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        snprintf(line, sizeof line, "group: {bytes: %s}\n", good[i]);
        AUTO(cay_config) config = trial(line);
        ASSERT_INT(cay_config_integer(config, "group.bytes"), 1 << 30);
    }
    AUTO(cay_config) config = trial("group: {bytes: 0, deep: {size: 0.5K}}\n");
    ASSERT_INT(cay_config_integer(config, "group.bytes"), 0);
    ASSERT_INT(cay_config_integer(config, "group.deep.size"), 512);
    assert_refused("group: {deep: {size: x}}\n",
                   "line 2: group.deep.size: must be a number of bytes");
    ASSERT_HAS(err.hint, "512M, 1.5 GiB");
}

TEST(a_number_is_finite)
{
    static const char *const bad[] = {"1e999", "nan", ".inf", "0x1p3", "1.2.3", "e", "-"};
    char line[64];

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(line, sizeof line, "number: \"%s\"\n", bad[i]);
        assert_refused(line, "line 2: number: must be a number");
    }
    AUTO(cay_config) config = trial("number: -1.5e-3\n");
    ASSERT(cay_config_number(config, "number") == -1.5e-3);
}

TEST(a_wrong_type_is_refused)
{
    assert_refused("text: 12\n", "line 2: text: must be a string");
    assert_refused("text: true\n", "line 2: text: must be a string");
    ASSERT_HAS(err.hint, "put quotes around it");
    assert_refused("text: [a]\n", "line 2: text: must be a string");
    assert_refused("text: \"a\\0b\"\n",
                   "line 2: text: the text contains a NUL character");
    assert_refused("secret: 12345\n", "line 2: secret: must be a string");
    assert_refused("choice: blue\n", "line 2: choice: invalid choice");
    ASSERT_STR(err.hint, "the choices are red, green");
    assert_refused("choice: [red]\n", "line 2: choice: invalid choice");
    assert_refused("texts: one\n", "line 2: texts: must be a list of strings");
    assert_refused("texts:\n- a\n- {}\n", "line 4: texts[1]: must be a string");
    assert_refused("map: [a]\n", "line 2: map: must be a map of strings");
    assert_refused("map:\n  a: [b]\n", "line 3: map.a: must be a string");
    assert_refused("map: {a: null}\n", "line 2: map.a: must be a string");
    assert_refused("map: {a: }\n", "line 2: map.a: must be a string");
    assert_refused("map: {\"\": b}\n", "line 2: map.: a key must be a plain word");
    assert_refused("map: {[a]: b}\n", "line 2: map.: a key must be a plain word");
    assert_refused("map: {\"a\\0b\": c}\n",
                   "line 2: map.a: the text contains a NUL character");
    assert_refused("group: 3\n", "line 2: group: must be a map of keys");
    ASSERT_HAS(err.hint, "like \"bytes\"");
    assert_refused("group: {deep: {path: ''}}\n",
                   "line 2: group.deep.path: must not be empty");
}

TEST(no_value_is_ever_part_of_an_error)
{
    static const char *const lines[] = {"secret: [hush]",
                                        "integer: hush",
                                        "number: hush",
                                        "boolean: hush",
                                        "choice: hush",
                                        "texts: hush",
                                        "group: {bytes: hush}",
                                        "secret: \"${hush}\"",
                                        "secret: \"${env.hush hush}\"",
                                        "type: hush",
                                        "secret: \"${variables.hush}\"",
                                        "policy: hush",
                                        "persist_sandbox: hush"};
    char text[256];

    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        cay_config *config = NULL;
        snprintf(text, sizeof text, "%s%s\n",
                 strncmp(lines[i], "type", 4) == 0 ? "" : "type: trial\n", lines[i]);
        ASSERT_CODE(parse_config(text, &config), CAY_E_INVALID);
        ASSERT(!strstr(err.message, "hush") && !strstr(err.hint, "hush"));
    }
}

TEST(a_policy_knows_the_line_it_is_from)
{
    AUTO(cay_config) config = NULL;
    struct cay_mount mount = {.size = sizeof mount};

    ASSERT_OK(parse_config("name: x\n"
                           "sandbox_config:\n"
                           "  type: trial\n"
                           "  policy:\n"
                           "    paths:\n"
                           "      docs: {root: manual}\n",
                           &config));
    ASSERT(cay_policy_mount(cay_config_policy(config, "policy"), 0, &mount));
    ASSERT_STR(mount.origin, "cay.yaml:6: sandbox_config.policy.paths.docs");
    ASSERT_STR(mount.host, "/base/manual");
}

TEST(a_policy_is_checked)
{
    assert_refused("policy:\n  paths:\n    a:\n      rot: b\n",
                   "line 5: policy.paths.a.rot: unknown key");
    ASSERT_HAS(err.hint, "did you mean root?");
    assert_refused("policy:\n  mounts: []\n",
                   "line 3: policy.mounts: the list of mounts is empty");
    assert_refused("policy: {}\n", "line 2: policy: no policy found");
    assert_refused("policy: docs\n", "line 2: policy: must be a map");
    assert_refused("policy:\n  paths:\n    a/../b: {root: c}\n",
                   "line 4: policy.paths.a/../b: invalid path name");
    assert_refused(
        "policy: {root: a, paths: {}}\n",
        "line 2: policy.paths: only one of root, paths and mounts may be used");
}

TEST(a_host_that_cannot_be_is_refused_at_its_line)
{
    static const char *const texts[][2] = {
        {"policy:\n  root: ", "line 3: policy.root: the name is too long"},
        {"policy:\n  root:\n    readonly: true\n    root: ",
         "line 5: policy.root.root: the name is too long"},
        {"policy:\n  paths:\n    a:\n      root: ",
         "line 5: policy.paths.a.root: the name is too long"},
        {"policy:\n  mounts:\n  - mount_point: /a\n    host_path: ",
         "line 5: policy.mounts[0].host_path: the name is too long"}};
    char name[NAME_MAX + 2], text[512];

    memset(name, 'a', NAME_MAX + 1);
    name[NAME_MAX + 1] = '\0';
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        snprintf(text, sizeof text, "%s%s", texts[i][0], name);
        assert_refused(text, texts[i][1]);
    }
}

/* --- Texts ---------------------------------------------------------------------------
 */

TEST(a_text_is_one_map)
{
    assert_no_config("", "line 1: the text is empty");
    assert_no_config("# nothing\n", "line 2: the text is empty");
    assert_no_config("[a]", "line 1: the text is not a map of keys");
    assert_no_config("native", "line 1: the text is not a map of keys");
    assert_no_config("type: native\n---\ntype: native\n",
                     "line 2: a second document starts here");
    assert_no_config("type: \xff\n", "line 1: the text is not UTF-8");
    cay_config *config = NULL;
    ASSERT_CODE(cay_config_parse(NULL, 0, NULL, NULL, &config, &err), CAY_E_INVALID);
}

TEST(too_much_is_refused)
{
    static char text[(1 << 20) + 2];
    cay_config *config = NULL;

    memset(text, ' ', sizeof text);
    ASSERT_CODE(cay_config_parse(text, sizeof text, "big", NULL, &config, &err),
                CAY_E_INVALID);
    ASSERT_STR(err.message, "the configuration is too large");

    size_t len = (size_t)snprintf(text, sizeof text, "type: trial\ntexts: [");
    for (int i = 0; i < 5000; i++)
        len += (size_t)snprintf(text + len, sizeof text - len, "a,");
    snprintf(text + len, sizeof text - len, "]\n");
    assert_no_config(text, "line 2: texts[4096]: has too many entries");

    for (int i = 0; i < 200000; i++)
        len += (size_t)snprintf(text + len, sizeof text - len, "a,");
    snprintf(text + len, sizeof text - len, "]\n");
    assert_no_config(text, "line 2: there are too many values");

    len = (size_t)snprintf(text, sizeof text, "text: ");
    memset(text + len, '[', 100);
    text[len + 100] = '\0';
    assert_no_config(text, "line 1: the text is nested too deeply");
}

TEST(what_is_too_much_for_us_may_stand_beside_sandbox_config)
{
    static char text[1 << 20];
    AUTO(cay_config) config = NULL;
    size_t len = (size_t)snprintf(text, sizeof text, "tools: [");

    for (int i = 0; i < 200000; i++)
        len += (size_t)snprintf(text + len, sizeof text - len, "a,");
    snprintf(text + len, sizeof text - len,
             "]\nsandbox_config: {type: trial, text: b}\n");
    ASSERT_OK(parse_config(text, &config));
    ASSERT_STR(cay_config_text(config, "text"), "b");
}

/* --- Files ---------------------------------------------------------------------------
 */

TEST(relative_paths_start_where_the_file_is)
{
    AUTO(cay_config) config = NULL;
    char expected[512];

    register_trial();
    put_file("sub/cay.yaml", "type: trial\n"
                             "text: ${this_file_dir}/x\n"
                             "group: {deep: {path: lib.so}}\n"
                             "policy: {root: ../docs}\n");
    ASSERT_OK(cay_config_load(scratch_path("sub/cay.yaml"), &config, &err));
    snprintf(expected, sizeof expected, "%s/sub/x", scratch());
    ASSERT_STR(cay_config_text(config, "text"), expected);
    snprintf(expected, sizeof expected, "%s/sub/lib.so", scratch());
    ASSERT_STR(cay_config_text(config, "group.deep.path"), expected);
    struct cay_mount mount = {.size = sizeof mount};
    ASSERT(cay_policy_mount(cay_config_policy(config, "policy"), 0, &mount));
    snprintf(expected, sizeof expected, "%s/sub/../docs", scratch());
    ASSERT_STR(mount.host, expected);
}

TEST(a_relative_base_starts_at_the_current_directory)
{
    static const char text[] = "{type: trial, group: {deep: {path: a}}}";
    static const char *const bases[] = {NULL, ".", "sub"};
    char cwd[512], expected[1024];

    register_trial();
    ASSERT(getcwd(cwd, sizeof cwd));
    for (size_t i = 0; i < 3; i++) {
        AUTO(cay_config) config = NULL;
        ASSERT_OK(cay_config_parse(text, strlen(text), "x", bases[i], &config, &err));
        snprintf(expected, sizeof expected, "%s%s/a", cwd, i == 2 ? "/sub" : "");
        ASSERT_STR(cay_config_text(config, "group.deep.path"), expected);
    }
}

TEST(a_file_that_cannot_be_read_is_an_error)
{
    cay_config *config = NULL;

    ASSERT_CODE(cay_config_load(scratch_path("none"), &config, &err), CAY_E_NOT_FOUND);
    ASSERT_STR(err.op, "config.load");
    ASSERT_CODE(cay_config_load(scratch(), &config, &err), CAY_E_NOT_A_FILE);
    ASSERT(mkfifo(scratch_path("pipe"), 0600) == 0);
    ASSERT_CODE(cay_config_load(scratch_path("pipe"), &config, &err), CAY_E_NOT_A_FILE);
}
