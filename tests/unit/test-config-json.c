/* SPDX-License-Identifier: Apache-2.0 */
/* Configurations as JSON, and their schema. */
#include <jansson.h>

#include "test-config-fixture.h"

TEST(all_that_was_written_is_in_the_json_and_nothing_else)
{
    AUTO(cay_config) empty = trial("");
    AUTO(cay_config)
    full = trial("policy: {root: {root: docs, suffixes: []}}\n"
                 "group:\n"
                 "  deep: {size: 1K, path: a/b}\n"
                 "  bytes: \"2048\"\n"
                 "map: {b: 1.10, a: yes}\n"
                 "texts: [x, \"\"]\n"
                 "choice: red\n"
                 "boolean: on\n"
                 "number: 0.1\n"
                 "any: -5\n"
                 "words: \"a\\u0001\\\"\\\\b\\u00e9\"\n"
                 "env: {A: b}\n"
                 "_work_dir: /w\n"
                 "status_after_run: none\n");

    assert_json(empty, "{\"type\":\"trial\"}");
    assert_json(
        full,
        "{\"type\":\"trial\",\"work_dir\":\"/w\",\"envs\":{\"A\":\"b\"},"
        "\"status_after_run\":\"none\",\"text\":\"a\\u0001\\\"\\\\b\xc3\xa9\","
        "\"any\":-5,\"number\":0.1,\"boolean\":true,"
        "\"group\":{\"bytes\":2048,\"deep\":{\"path\":\"/base/a/b\",\"size\":1024}},"
        "\"choice\":\"red\",\"texts\":[\"x\",\"\"],"
        "\"map\":{\"b\":\"1.10\",\"a\":\"yes\"},"
        "\"policy\":{\"root\":{\"root\":\"/base/docs\",\"readonly\":false,"
        "\"suffixes\":[]}}}");
}

TEST(the_json_names_the_type_that_was_left_to_the_default)
{
    AUTO(cay_config) config = NULL;

    ASSERT_OK(parse_config("{user: me}", &config));
    assert_json(config, "{\"type\":\"native\",\"user\":\"me\"}");
}

TEST(policies_of_every_style_come_back_the_same)
{
    AUTO(cay_config)
    paths = trial(
        "policy: {paths: {\"a b\": {root: /x, mode: rw, write_approval: false, exec: "
        "rw},\n"
        "  c: {root: y, read_approval: true, max_file_bytes: 0, suffixes: [.A]}}}\n");
    AUTO(cay_config)
    mounts = trial(
        "policy: {mounts: [{host_path: \"/$${x}\", mount_point: /p/, exec: ro}]}\n");
    AUTO(cay_config) none = trial("policy: {paths: {}}\n");
    AUTO(cay_config)
    network = trial("policy: {root: /x, network: {allow: ['!B.test', 'db:*', "
                    "'GET a.test/$${x'], limits: {rate: 1M, connections: 7}}}\n");

    assert_json(paths,
                "{\"type\":\"trial\",\"policy\":{\"paths\":{"
                "\"a b\":{\"root\":\"/x\",\"mode\":\"rw\",\"write_approval\":false,"
                "\"read_approval\":false,\"exec\":\"rw\"},"
                "\"c\":{\"root\":\"/base/y\",\"mode\":\"ro\",\"write_approval\":true,"
                "\"read_approval\":true,\"suffixes\":[\".a\"],"
                "\"max_file_bytes\":0}}}}");
    assert_json(mounts,
                "{\"type\":\"trial\",\"policy\":{\"mounts\":[{"
                "\"host_path\":\"/$${x}\",\"mount_point\":\"/p\",\"mode\":\"ro\","
                "\"write_approval\":true,\"read_approval\":false,\"exec\":\"ro\"}]}}");
    assert_json(none, "{\"type\":\"trial\",\"policy\":{\"paths\":{}}}");
    assert_json(network, "{\"type\":\"trial\",\"policy\":{\"root\":{\"root\":\"/x\","
                         "\"readonly\":false},\"network\":{\"mode\":\"rules\","
                         "\"allow\":[\"db:*\",\"GET a.test/$${x\"],\"deny\":[\"b.test\"],"
                         "\"limits\":{\"connections\":7,\"rate\":1048576}}}}");
}

TEST(a_secret_is_written_as_where_it_came_from)
{
    static const char *const in_clear[] = {
        "secret: hush\n", "secret: \"x${env.TRIAL_A}\"\n",
        "secret: \"$${env.TRIAL_A}\"\n", "secret: \"${env.TRIAL_A}${env.TRIAL_A}\"\n",
        "secret: ${this_file_dir}\n"};

    setenv("TRIAL_A", "hush", 1);
    AUTO(cay_config) referred = trial("secret: ${env.TRIAL_A}\n");
    AUTO(cay_config)
    twice = trial("variables: {key: \"${env.TRIAL_A}\"}\n"
                  "secret: ${variables.key}\n");
    ASSERT_STR(cay_config_text(referred, "secret"), "hush");
    ASSERT_STR(cay_config_text(twice, "secret"), "hush");
    assert_json(referred, "{\"type\":\"trial\",\"secret\":\"${env.TRIAL_A}\"}");
    assert_json(twice, "{\"type\":\"trial\",\"secret\":\"${env.TRIAL_A}\"}");
    for (size_t i = 0; i < sizeof in_clear / sizeof *in_clear; i++) {
        AUTO(cay_config) config = trial(in_clear[i]);
        ASSERT(cay_config_has(config, "secret"));
        assert_json(config, "{\"type\":\"trial\"}");
    }
    unsetenv("TRIAL_A");
}

TEST(an_entry_of_a_map_keeps_what_it_takes_from_the_environment)
{
    setenv("TRIAL_A", "hush", 1);
    AUTO(cay_config)
    config = trial("variables: {v: \"x ${env.TRIAL_A}\", d: $}\n"
                   "envs:\n"
                   "  A: ${env.TRIAL_A}\n"
                   "  B: Bearer ${env.TRIAL_A} $${env.X}\n"
                   "  C: ${variables.v}\n"
                   "  D: ${this_file_dir}\n"
                   "  E: $${x}\n"
                   "  F: ${variables.d}{env.TRIAL_A}\n");
    const char *key, *value;
    ASSERT(cay_config_item(config, "envs", 1, &key, &value));
    ASSERT_STR(value, "Bearer hush ${env.X}");
    ASSERT(cay_config_item(config, "envs", 5, &key, &value));
    ASSERT_STR(value, "${env.TRIAL_A}");
    assert_json(config, "{\"type\":\"trial\",\"envs\":{"
                        "\"A\":\"${env.TRIAL_A}\","
                        "\"B\":\"Bearer ${env.TRIAL_A} $${env.X}\","
                        "\"C\":\"x ${env.TRIAL_A}\","
                        "\"D\":\"/base\","
                        "\"E\":\"$${x}\","
                        "\"F\":\"$${env.TRIAL_A}\"}}");
    unsetenv("TRIAL_A");
}

/* "$" and then "${env.X}" would be read as a plain "${env.X}"; what it became is not to
 * be seen. */
TEST(an_entry_that_could_not_keep_its_variable_is_refused)
{
    setenv("TRIAL_A", "hush", 1);
    assert_refused("variables: {d: cost$}\n"
                   "map: {a: \"${variables.d}${env.TRIAL_A}\"}\n",
                   "line 3: map.a: a \"$\" directly before \"${env.NAME}\" is ambiguous");
    AUTO(cay_config)
    config = trial("variables: {d: cost$}\n"
                   "map: {a: \"${variables.d} ${env.TRIAL_A}\"}\n"
                   "text: ${variables.d}${env.TRIAL_A}\n");
    assert_json(config, "{\"type\":\"trial\",\"text\":\"cost$hush\","
                        "\"map\":{\"a\":\"cost$ ${env.TRIAL_A}\"}}");
    unsetenv("TRIAL_A");
}

TEST(other_texts_are_what_they_became)
{
    setenv("TRIAL_A", "a ${b}", 1);
    AUTO(cay_config)
    config =
        trial("text: ${env.TRIAL_A}\ntexts: [\"${env.TRIAL_A}\"]\ngroup: {deep: {path: "
              "\"${env.TRIAL_A}\"}}\n");
    assert_json(config, "{\"type\":\"trial\",\"text\":\"a $${b}\","
                        "\"texts\":[\"a $${b}\"],"
                        "\"group\":{\"deep\":{\"path\":\"/base/a $${b}\"}}}");
    unsetenv("TRIAL_A");
}

/* --- Elsewhere -----------------------------------------------------------------------
 */

TEST(a_path_that_is_no_text_is_used_but_not_written)
{
    static const struct {
        const char *text, *field;
    } cases[] = {{"{type: local, work_dir: here}", "work_dir"},
                 {"{type: native, policy: {root: {root: here}}}", "policy"},
                 {"{type: native, mounts: [\"${this_file_dir}:/x\"]}", "mounts"},
                 {"{type: local, work_dir: /here}", NULL},
                 {"{type: local}", NULL}};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        AUTO(cay_config) config = NULL;
        AUTO_FREE char *json = NULL;
        ASSERT_OK(cay_config_parse(cases[i].text, strlen(cases[i].text), "test",
                                   "/caf\xE9", &config, &err));
        ASSERT_CODE(cay_config_json(config, &json, &err),
                    cases[i].field ? CAY_E_INVALID : CAY_OK);
        if (cases[i].field) {
            ASSERT_STR(err.subject, cases[i].field);
            ASSERT_HAS(err.message, "UTF-8");
        }
    }
}

TEST(what_was_stored_can_be_read_where_its_secrets_are_not)
{
    static const char json[] = "{\"type\":\"trial\",\"envs\":{\"C\":\"d\",\"E\":\"f\","
                               "\"A\":\"x ${env.TRIAL_A}\"},\"text\":\"x\","
                               "\"secret\":\"${env.TRIAL_A}\"}";
    AUTO_FREE char *again = NULL;
    AUTO(cay_config) config = NULL;
    AUTO(cay_config) at_home = NULL;
    const char *key, *value;

    register_trial();
    unsetenv("TRIAL_A");
    setenv("TRIAL_SECRET", "another", 1);
    ASSERT_OK(
        cay_config_restore("{\"type\":\"trial\",\"envs\":{\"A\":\"x ${env.TRIAL_A}\","
                           "\"C\":\"d\",\"E\":\"f\"},\"text\":\"x\","
                           "\"secret\":\"${env.TRIAL_A}\"}",
                           &config, &err));
    unsetenv("TRIAL_SECRET");
    ASSERT_STR(cay_config_text(config, "text"), "x");
    ASSERT_STR(cay_config_text(config, "secret"), NULL); /* and not another one */
    ASSERT(cay_config_has(config, "secret"));
    ASSERT_INT(cay_config_count(config, "envs"), 2);
    ASSERT(cay_config_item(config, "envs", 0, &key, &value));
    ASSERT_STR(key, "C");
    ASSERT_STR(value, "d");
    ASSERT(cay_config_item(config, "envs", 1, &key, &value));
    ASSERT_STR(value, "f");
    ASSERT(!cay_config_item(config, "envs", 2, &key, &value));
    ASSERT_OK(cay_config_json(config, &again, &err));
    ASSERT_STR(again, json);

    setenv("TRIAL_A", "hush", 1);
    ASSERT_OK(cay_config_restore(again, &at_home, &err));
    unsetenv("TRIAL_A");
    ASSERT_STR(cay_config_text(at_home, "secret"), "hush");
    ASSERT_INT(cay_config_count(at_home, "envs"), 3);
}

TEST(what_is_wrong_is_still_wrong_when_it_is_restored)
{
    cay_config *config = NULL;

    register_trial();
    ASSERT_CODE(
        cay_config_restore("{\"type\":\"trial\",\"integer\":\"x\"}", &config, &err),
        CAY_E_INVALID);
    ASSERT_CODE(cay_config_restore("{\"type\":\"gone\"}", &config, &err), CAY_E_INVALID);
    ASSERT_CODE(
        cay_config_restore("{\"type\":\"trial\",\"map\":{\"a\":null}}", &config, &err),
        CAY_E_INVALID);
    ASSERT_CODE(cay_config_restore("", &config, &err), CAY_E_INVALID);
    ASSERT(!config);
}

/* --- The schema ----------------------------------------------------------------------
 */

TEST(the_schema_has_every_field_of_every_backend)
{
    AUTO_FREE char *text = NULL;

    register_trial();
    ASSERT_OK(cay_config_schema(&text, &err));
    json_t *schema = json_loads(text, 0, NULL), *keys = NULL, *about = NULL;
    ASSERT(schema);
    ASSERT(json_unpack(schema, "{s:{s:{s:o}}}", "definitions", "trial", "properties",
                       &keys) == 0);
    for (size_t i = 0; i < sizeof trial_fields / sizeof *trial_fields; i++)
        if (!strchr(trial_fields[i].name, '.')) {
            ASSERT(json_unpack(keys, "{s:{s:o}}", trial_fields[i].name, "description",
                               &about) == 0);
            ASSERT_STR(json_string_value(about), trial_fields[i].about);
        }
    ASSERT(json_object_get(keys, "_work_dir") && json_object_get(keys, "words"));
    ASSERT(json_unpack(keys, "{s:{s:{s:{s:{s:{s:o}}}}}}", "group", "properties", "deep",
                       "properties", "size", "description", &about) == 0);
    json_int_t least = 0, most = 0, fallback = 0;
    ASSERT(json_unpack(keys, "{s:{s:I,s:[{s:I,s:I}]}}", "integer", "default", &fallback,
                       "anyOf", "minimum", &least, "maximum", &most) == 0);
    ASSERT_INT(fallback, 7);
    ASSERT_INT(least, -3);
    ASSERT_INT(most, 300);
    json_decref(schema);
}
