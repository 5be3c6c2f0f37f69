/* SPDX-License-Identifier: Apache-2.0 */
/* What "${...}" in a value becomes. */
#include "test-config-fixture.h"

static void clean_environment(void)
{
    unsetenv("TRIAL_A");
    unsetenv("TRIAL_B");
}

/* The environment of one test. */
static void set_environment(const char *a, const char *b)
{
    harness_at_end(clean_environment);
    setenv("TRIAL_A", a, 1);
    setenv("TRIAL_B", b, 1);
}

static void assert_text(const char *line, const char *expected)
{
    AUTO(cay_config) config = trial(line);

    ASSERT_STR(cay_config_text(config, "text"), expected);
}

TEST(a_variable_is_replaced_wherever_it_stands)
{
    set_environment("one", "");
    assert_text("text: ${env.TRIAL_A}\n", "one");
    assert_text("text: a-${env.TRIAL_A}-b\n", "a-one-b");
    assert_text("text: \"${env.TRIAL_A}${env.TRIAL_B}${env.TRIAL_A}\"\n", "oneone");
    assert_text("text: ${env.TRIAL_B}\n", "");
    assert_text("text: |-\n  x ${env.TRIAL_A}\n  y\n", "x one\ny");
    assert_text("text: $\n", "$");
    assert_text("text: a$b\n", "a$b");
    assert_text("text: \"{}$\"\n", "{}$");
}

TEST(lists_maps_and_policies_are_values_too)
{
    struct cay_mount mount = {.size = sizeof mount};
    const char *key, *value;

    set_environment("one", "w");
    AUTO(cay_config)
    config = trial("texts: [\"${env.TRIAL_A}\", b]\n"
                   "map: {k: \"${env.TRIAL_B}!\"}\n"
                   "policy:\n"
                   "  paths:\n"
                   "    docs: {root: \"/${env.TRIAL_A}\", mode: \"r${env.TRIAL_B}\"}\n");
    ASSERT(cay_config_item(config, "texts", 0, &key, &value));
    ASSERT_STR(value, "one");
    ASSERT(cay_config_item(config, "map", 0, &key, &value));
    ASSERT_STR(value, "w!");
    ASSERT(cay_policy_mount(cay_config_policy(config, "policy"), 0, &mount));
    ASSERT_STR(mount.host, "/one");
    ASSERT(mount.writable);
}

TEST(keys_are_never_replaced)
{
    const char *key = "", *value;

    set_environment("text", "x");
    assert_refused("\"${env.TRIAL_A}\": b\n", "line 2: ${env.TRIAL_A}: unknown key");
    AUTO(cay_config) config = trial("map: {\"${env.TRIAL_A}\": b}\n");
    ASSERT(cay_config_item(config, "map", 0, &key, &value));
    ASSERT_STR(key, "${env.TRIAL_A}");
}

TEST(what_comes_from_outside_is_never_read_as_yaml)
{
    static const char hostile[] = "a\ninteger: 9\n\"}]: *x !!y # $";

    set_environment(hostile, "[1, 2]");
    assert_text("text: ${env.TRIAL_A}\n", hostile);
    assert_text("text: ${env.TRIAL_B}\n", "[1, 2]");
    assert_refused("texts: ${env.TRIAL_B}\n", "line 2: texts: must be a list of strings");
    set_environment("null", "${env.HOME}");
    assert_text("text: ${env.TRIAL_A}\n", "null");
    assert_text("text: ${env.TRIAL_B}\n", "${env.HOME}"); /* and not replaced again */
    set_environment("12", "true");
    assert_text("text: ${env.TRIAL_A}\n", "12");
    assert_text("text: ${env.TRIAL_B}\n", "true");
}

TEST(what_is_replaced_becomes_what_its_field_wants)
{
    set_environment("3", "yes");
    AUTO(cay_config)
    config = trial("integer: ${env.TRIAL_A}\n"
                   "any: ${env.TRIAL_A}00\n"
                   "number: ${env.TRIAL_A}.5\n"
                   "boolean: ${env.TRIAL_B}\n"
                   "group: {bytes: \"${env.TRIAL_A}K\"}\n");
    ASSERT_INT(cay_config_integer(config, "integer"), 3);
    ASSERT_INT(cay_config_integer(config, "any"), 300);
    ASSERT(cay_config_number(config, "number") == 3.5);
    ASSERT(cay_config_boolean(config, "boolean"));
    ASSERT_INT(cay_config_integer(config, "group.bytes"), 3072);

    set_environment("true", "100");
    AUTO(cay_config)
    other =
        trial("policy: {root: {root: a, readonly: \"${env.TRIAL_A}\", max_file_bytes: "
              "\"${env.TRIAL_B}\"}}\n");
    struct cay_mount mount = {.size = sizeof mount};
    ASSERT(cay_policy_mount(cay_config_policy(other, "policy"), 0, &mount));
    ASSERT(!mount.writable);
    ASSERT_INT(mount.max_file_bytes, 100);
}

TEST(a_variable_that_is_not_set_is_an_error_that_names_it)
{
    unsetenv("TRIAL_UNSET");
    assert_refused("text: ${env.TRIAL_UNSET}\n",
                   "line 2: text: the environment variable TRIAL_UNSET is not set");
    assert_refused("map:\n  a: b\n  c: x${env.TRIAL_UNSET}\n",
                   "line 4: map.c: the environment variable TRIAL_UNSET is not set");
    assert_refused("texts:\n- a\n- ${env.TRIAL_UNSET}\n",
                   "line 4: texts[1]: the environment variable TRIAL_UNSET is not set");
    assert_refused(
        "policy:\n  root: ${env.TRIAL_UNSET}\n",
        "line 3: policy.root: the environment variable TRIAL_UNSET is not set");
    assert_no_config("type: ${env.TRIAL_UNSET}\n",
                     "line 1: type: the environment variable TRIAL_UNSET is not set");
    assert_no_config(
        "sandbox_config: {type: trial, text: \"${env.TRIAL_UNSET}\"}\n",
        "line 1: sandbox_config.text: the environment variable TRIAL_UNSET is not set");
}

TEST(nothing_else_is_replaced)
{
    static const char *const bad[] = {"${HOME}",       "${env.}",
                                      "${env.A-B}",    "${env.1A}",
                                      "${env}",        "${",
                                      "a ${env.HOME",  "${this_file_dirx}",
                                      "${}",           "${ env.HOME}",
                                      "${variable}",   "${env.HOME:-x}",
                                      "${variables.}", "${env.H\xc3\xa9}"};
    char line[128];

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(line, sizeof line, "text: \"%s\"\n", bad[i]);
        assert_refused(line, "line 2: text: invalid \"${...}\" reference");
        ASSERT_HAS(err.hint, "${env.NAME}, ${this_file_dir} or ${variables.NAME}");
        ASSERT_HAS(err.hint, "write \"$${\" for a literal \"${\"");
    }
}

TEST(two_dollars_make_a_plain_one)
{
    set_environment("one", "two");
    assert_text("text: \"$${env.TRIAL_A}\"\n", "${env.TRIAL_A}");
    assert_text("text: \"$${\"\n", "${");
    assert_text("text: \"$$${x\"\n", "$${x");
    assert_text("text: \"$${${env.TRIAL_A}}\"\n", "${one}");
    assert_text("text: \"${env.TRIAL_A}$${env.TRIAL_B}\"\n", "one${env.TRIAL_B}");
    assert_text("text: \"$$ $$$\"\n", "$$ $$$");
}

TEST(a_variable_that_is_used_is_given_once)
{
    const char *message = "line 2: text: a variable is given twice";

    assert_refused("variables: {a: b, a: c}\ntext: ${variables.a}\n", message);
    assert_refused("variables: {a: {b: c}, a: d}\ntext: ${variables.a.b}\n", message);
    assert_text("variables: {a: b, c: d, c: e}\ntext: ${variables.a}\n", "b");
}

TEST(variables_are_those_of_the_file)
{
    AUTO(cay_config) config = NULL;

    set_environment("one", "two");
    ASSERT_OK(parse_config("sandbox_config:\n"
                           "  type: ${variables.kind}\n"
                           "  text: <${variables.a.b}|${variables.a.d}|${variables.e}>\n"
                           "variables:\n"
                           "  a: {b: \"${env.TRIAL_A}\", c: [x], d: 1.10}\n"
                           "  unused: ${env.TRIAL_UNSET}\n"
                           "  kind: trial\n"
                           "  e: $${x}\n",
                           &config));
    ASSERT_STR(cay_config_text(config, "text"), "<one|1.10|${x}>");
    assert_text("variables: {a: \"${this_file_dir}\"}\ntext: ${variables.a}\n", "/base");
}

TEST(a_variable_that_is_not_there_is_an_error)
{
    static const char message[] =
        "line 3: text: no variable of this name has a text value";

    assert_refused("variables: {a: {b: c}}\ntext: ${variables.b}\n", message);
    assert_refused("variables: {a: {b: c}}\ntext: ${variables.a}\n", message);
    assert_refused("variables: {a: {b: c}}\ntext: ${variables.a.b.c}\n", message);
    assert_refused("variables: {a: [b]}\ntext: ${variables.a}\n", message);
    assert_refused("variables: [a]\ntext: ${variables.a}\n", message);
    assert_refused("variables: a\ntext: ${variables.a}\n", message);
    assert_refused("variables: {a: *x}\ntext: ${variables.a}\n", message);
    assert_refused("text: ${variables.a}\n",
                   "line 2: text: no variable of this name has a text value");
    assert_refused("variables: {a: \"${variables.b}\", b: c}\ntext: ${variables.a}\n",
                   "line 3: text: invalid \"${...}\" reference");
    ASSERT_HAS(err.hint, "use ${env.NAME} or ${this_file_dir} in variables");
}

TEST(many_references_to_a_long_text_are_refused)
{
    static char text[1 << 20];
    size_t len = (size_t)snprintf(text, sizeof text, "type: trial\nvariables: {a: ");

    memset(text + len, 'x', 100000);
    len += 100000;
    len += (size_t)snprintf(text + len, sizeof text - len, "}\ntexts:\n");
    for (int i = 0; i < 1000; i++)
        len += (size_t)snprintf(text + len, sizeof text - len, "- ${variables.a}\n");
    assert_no_config(text, "line 9: texts[5]: the expanded texts are too long");
}

TEST(too_many_variables_hurt_only_who_uses_them)
{
    static char text[1 << 20];
    AUTO(cay_config) config = NULL;
    size_t len = (size_t)snprintf(text, sizeof text, "type: trial\nvariables:\n");

    for (int i = 0; i < 5000; i++)
        len += (size_t)snprintf(text + len, sizeof text - len, "  a%d: b\n", i);
    ASSERT_OK(parse_config(text, &config));
    snprintf(text + len, sizeof text - len, "text: ${variables.a1}\n");
    cay_config *none = NULL;
    ASSERT_CODE(parse_config(text, &none), CAY_E_INVALID);
    ASSERT_HAS(err.message, "text: there are too many variables");
}

TEST(a_variable_that_is_not_utf8_is_refused)
{
    set_environment("\xff\xfe", "x");
    assert_refused("text: ${env.TRIAL_A}\n",
                   "line 2: text: the environment variable TRIAL_A is not UTF-8");
}
