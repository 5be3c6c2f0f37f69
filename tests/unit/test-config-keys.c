/* SPDX-License-Identifier: Apache-2.0 */
/* Which keys a configuration may have, and what those that all backends have mean. */
#include "test-config-fixture.h"

/* --- Keys ----------------------------------------------------------------------------
 */

TEST(an_unknown_key_is_an_error_with_the_nearest_known_one)
{
    assert_refused("\ntxet: a\n", "line 3: txet: unknown key");
    ASSERT_HAS(err.hint,
               "did you mean text? the keys here are sandbox_config, type, library");
    ASSERT_HAS(err.hint, "boolean, group, choice");
    assert_refused("intege: 3\n", "line 2: intege: unknown key");
    ASSERT_HAS(err.hint, "did you mean integer?");
    assert_refused("out: 3\n", "line 2: out: unknown key");
    ASSERT_HAS(err.hint, "did you mean output_char_threshold?");
    assert_refused("group:\n  deep:\n    pth: 3\n",
                   "line 4: group.deep.pth: unknown key");
    ASSERT_STR(err.hint, "did you mean path? the keys here are path, size");
    assert_refused("group: {memory: 3}\n", "line 2: group.memory: unknown key");
    ASSERT_STR(err.hint, "the keys here are bytes, deep");
    assert_refused("group.bytes: 3\n", "line 2: group.bytes: unknown key");
    assert_refused("\"\": 3\n", "line 2: unknown key");
    assert_no_config("sandbox_cofig: {}\n", "line 1: sandbox_cofig: unknown key");
    ASSERT_HAS(err.hint, "did you mean sandbox_config?");
    assert_refused("[text]: a\n", "line 2: a key must be a plain word");
}

TEST(a_key_of_another_backend_is_unknown)
{
    assert_no_config("text: a\n", "line 1: text: unknown key"); /* native has none */
    assert_refused("template: a\n", "line 2: template: unknown key");
}

TEST(a_very_long_key_is_unknown_too)
{
    char text[2048] = "type: trial\n", *end = text + strlen(text);

    memset(end, 'k', 1500);
    strcpy(end + 1500, ": x\n"); /* allow: strcpy a test's own room */
    cay_config *config = NULL;
    ASSERT_CODE(parse_config(text, &config), CAY_E_INVALID);
    ASSERT_HAS(err.message, "line 2: kkk");
    ASSERT_HAS(err.message, "unknown key");
}

TEST(a_key_given_twice_is_an_error)
{
    assert_refused("text: a\ntext: b\n", "line 3: text: is given twice");
    ASSERT_STR(err.hint, "already set in line 2; text and words are the same key");
    assert_refused("words: a\ntext: b\n", "line 3: text: is given twice");
    assert_refused("integer: 1\ninteger: 1\n", "line 3: integer: is given twice");
    ASSERT_STR(err.hint, "already set in line 2; keep one of the two");
    assert_refused("group: {bytes: 1}\ngroup: {}\n", "line 3: group: is given twice");
    assert_refused("group: {deep: {}, deep: {}}\n", "line 2: group.deep: is given twice");
    assert_refused("map: {a: b, c: d, a: e}\n", "line 2: map.a: is given twice");
    assert_no_config("type: trial\ntype: trial\n", "line 2: type: is given twice");
}

TEST(a_field_may_be_called_by_its_alias)
{
    AUTO(cay_config) config = trial("_work_dir: /w\nenv: {A: b}\nwords: x\n");

    ASSERT_STR(cay_config_text(config, "work_dir"), "/w");
    ASSERT_STR(cay_config_text(config, "_work_dir"), "/w");
    ASSERT_INT(cay_config_count(config, "envs"), 1);
    ASSERT_STR(cay_config_text(config, "text"), "x");
}

TEST(a_backend_may_have_its_own_idea_of_a_common_field)
{
    static const char *const choices[] = {"none", "stop", NULL};
    static const struct cay_field fields[] = {
        {"work_dir", "_work_dir", CAY_FIELD_PATH, NULL, "of this machine", NULL, 0, 0},
        {"status_after_run", NULL, CAY_FIELD_CHOICE, "none", "what then", choices, 0, 0},
    };
    AUTO(cay_config) config = NULL;

    register_as("own-fields", fields, 2);
    ASSERT_OK(parse_config("type: own-fields\n_work_dir: here\n", &config));
    ASSERT_STR(cay_config_text(config, "work_dir"), "/base/here");
    ASSERT_STR(cay_config_text(config, "status_after_run"), "none");
    ASSERT(cay_config_boolean(config, "persist_sandbox"));
}

TEST(a_common_field_may_even_be_of_another_type)
{
    static const char *const unused[] = {"none", NULL};
    static const struct cay_field fields[] = {
        {"status_after_run", NULL, CAY_FIELD_INTEGER, "3", "what then", unused, 0, 0},
    };
    AUTO(cay_config) config = NULL;

    register_as("other-types", fields, 1);
    ASSERT_OK(parse_config("type: other-types\n", &config));
    ASSERT_INT(cay_config_integer(config, "status_after_run"), 3);
    ASSERT_STR(cay_config_text(config, "status_after_run"), NULL);
}

TEST(a_fallback_that_cannot_be_is_the_backends_fault)
{
    static const struct cay_field fields[] = {
        {"port", NULL, CAY_FIELD_INTEGER, "${env.TRIAL_PORT}", "a port", NULL, 1, 65535}};
    cay_config *config = NULL;

    register_as("bad-fallback", fields, 1);
    setenv("TRIAL_PORT", "eighty", 1);
    ASSERT_CODE(parse_config("type: bad-fallback\n", &config), CAY_E_INVALID);
    unsetenv("TRIAL_PORT");
    ASSERT_STR(err.message, "the backend's default for port is invalid");
    ASSERT_HAS(err.hint, "${env.TRIAL_PORT}");
    ASSERT(!strstr(err.hint, "eighty"));
    ASSERT_OK(parse_config("type: bad-fallback\n", &config));
    ASSERT_INT(cay_config_integer(config, "port"), 0);
    cay_config_free(config);
}

/* --- After a run ---------------------------------------------------------------------
 */

TEST(what_follows_a_run_has_two_spellings)
{
    static const struct {
        const char *lines, *after;
        bool persists;
    } cases[] = {
        {"", "pause", true},
        {"persist_sandbox: true\n", "pause", true},
        {"persist_sandbox: false\n", "stop", false},
        {"status_after_run: stop\n", "stop", false},
        {"status_after_run: pause\n", "pause", true},
        {"status_after_run: none\n", "none", true},
        {"status_after_run: none\npersist_sandbox: true\n", "none", true},
        {"status_after_run: pause\npersist_sandbox: true\n", "pause", true},
        {"persist_sandbox: false\nstatus_after_run: stop\n", "stop", false},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        AUTO(cay_config) config = trial(cases[i].lines);
        ASSERT_STR(cay_config_text(config, "status_after_run"), cases[i].after);
        ASSERT_INT(cay_config_boolean(config, "persist_sandbox"), cases[i].persists);
    }
}

TEST(the_two_spellings_must_agree)
{
    static const char message[] =
        "line 3: persist_sandbox and status_after_run contradict each other";

    assert_refused("persist_sandbox: true\nstatus_after_run: stop\n", message);
    assert_refused("status_after_run: pause\npersist_sandbox: false\n", message);
    assert_refused("status_after_run: none\npersist_sandbox: false\n", message);
}

TEST(a_variable_has_no_equals_sign_in_its_name)
{
    assert_refused("envs:\n  A=B: c\n", "line 2: a variable name in envs contains \"=\"");
}

/* --- Libraries -----------------------------------------------------------------------
 */

TEST(a_library_that_cannot_be_loaded_is_told_with_its_line)
{
    cay_config *config = NULL;

    ASSERT_CODE(parse_config("type: x\nlibrary: no/such.so\n", &config), CAY_E_NOT_FOUND);
    ASSERT_HAS(err.message, "line 2: library: ");
    ASSERT_STR(err.subject, "/base/no/such.so");
}

/* --- A policy ------------------------------------------------------------------------
 */

static void expect_policy(const char *text, const char *json)
{
    AUTO(cay_config) config = NULL;

    ASSERT_OK(parse_config(text, &config));
    ASSERT_STR(cay_config_type(config), "native");
    ASSERT(cay_config_policy(config, "policy"));
    ASSERT(cay_config_has(config, "policy") && !cay_config_has(config, "mounts"));
    assert_json(config, json);
}

TEST(a_policy_by_itself_is_a_native_sandbox_with_it)
{
    expect_policy("root: {root: a, readonly: true}\n",
                  "{\"type\":\"native\",\"policy\":{\"root\":{\"root\":\"/base/a\","
                  "\"readonly\":true}}}");
    expect_policy(
        "mounts:\n- {host_path: a, mount_point: /m}\n",
        "{\"type\":\"native\",\"policy\":{\"mounts\":[{\"host_path\":\"/base/a\","
        "\"mount_point\":\"/m\",\"mode\":\"ro\",\"write_approval\":true,"
        "\"read_approval\":false}]}}");
    assert_no_config("paths:\n  a: {root: b, mode: x}\n",
                     "line 2: paths.a.mode: must be ro or rw");
    assert_no_config("paths: {a: {root: b}}\nuser: me\n", "line 2: user: unknown key");
    assert_no_config("paths: {}\nroot: a\n",
                     "line 2: root: only one of root, paths and mounts may be used");
}

TEST(a_backend_may_have_keys_of_a_policy)
{
    static const struct cay_field own[] = {
        {"root", NULL, CAY_FIELD_TEXT, NULL, "a text", NULL, 0, 0}};
    AUTO(cay_config) config = NULL;

    register_as("rooted", own, 1);
    ASSERT_OK(parse_config("root: deep\ntype: rooted\n", &config));
    ASSERT_STR(cay_config_text(config, "root"), "deep");
    assert_no_config("type: native\npaths: {a: {root: b}}\n",
                     "line 2: paths: unknown key");
}

TEST(mounts_of_a_configuration_are_texts)
{
    AUTO(cay_config) config = NULL;

    ASSERT_OK(parse_config("mounts: [/a:/b]\nuser: me\n", &config));
    ASSERT_INT(cay_config_count(config, "mounts"), 1);
    ASSERT(!cay_config_policy(config, "policy"));
    assert_no_config("sandbox_config: {type: native, paths: {a: {root: b}}}\n",
                     "line 1: sandbox_config.paths: unknown key");
}

/* --- Looking without running ---------------------------------------------------------
 */

static int peek(const char *text, cay_config **ret_config)
{
    register_trial();
    put_file("cay.yaml", text);
    return cay_config_peek(scratch_path("cay.yaml"), ret_config, &err);
}

TEST(a_peek_loads_no_library)
{
    AUTO(cay_config) config = NULL;

    put_file("mine.so", "no shared object at all");
    ASSERT_OK(peek("library: mine.so\nmine: [1, {a: 2}]\nenvs: {A: b}\nlimits: {x: 1}\n",
                   &config));
    ASSERT_STR(cay_config_type(config), "unknown");
    ASSERT(!cay_backend_find("unknown"));
    ASSERT_STR(cay_config_text(config, "type"), NULL);
    ASSERT_INT(cay_config_count(config, "envs"), 1);
    ASSERT_CODE(cay_backend_check(config, &err), CAY_E_NOT_FOUND);
    cay_config_free(config);
    config = NULL;
    ASSERT_OK(peek("type: trial\nlibrary: mine.so\ninteger: 3\n", &config));
    ASSERT_STR(cay_config_type(config), "trial");
    ASSERT_INT(cay_config_integer(config, "integer"), 3);
}

TEST(what_every_backend_has_is_checked_all_the_same)
{
    cay_config *config = NULL;

    put_file("mine.so", "");
    ASSERT_CODE(peek("library: mine.so\nmine: 1\npersist_sandbox: perhaps\n", &config),
                CAY_E_INVALID);
    ASSERT_STR(err.message, "line 3: persist_sandbox: must be true or false");
    ASSERT_CODE(peek("library: mine.so\nenvs: {}\nenvs: {}\n", &config), CAY_E_INVALID);
    ASSERT_CODE(peek("library: none.so\n", &config), CAY_E_NOT_FOUND);
    ASSERT_STR(err.message, "line 1: library: shared object not found");
    ASSERT_CODE(peek("type: trial\nlibrary: mine.so\nmine: 1\n", &config), CAY_E_INVALID);
    ASSERT_CODE(peek("type: other\n", &config), CAY_E_INVALID);
    ASSERT(!config);
}
