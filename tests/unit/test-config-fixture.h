/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_CONFIG_FIXTURE_H
#define TESTS_CONFIG_FIXTURE_H

#include <stdio.h>

#include "cay/backend.h"
#include "cay/config.h"
#include "harness.h"

/* A backend that has a field of each type; nobody makes a sandbox of it. */
static const char *const trial_choices[] = {"red", "green", NULL};

static const struct cay_field trial_fields[] = {
    {"text", "words", CAY_FIELD_TEXT, "hello", "a text", NULL, 0, 0},
    {"secret", NULL, CAY_FIELD_SECRET, "${env.TRIAL_SECRET}", "a secret", NULL, 0, 0},
    {"integer", NULL, CAY_FIELD_INTEGER, "7", "a number", NULL, -3, 300},
    {"any", NULL, CAY_FIELD_INTEGER, NULL, "any number", NULL, 0, 0},
    {"number", NULL, CAY_FIELD_NUMBER, "0.5", "a number", NULL, 0, 0},
    {"boolean", NULL, CAY_FIELD_BOOLEAN, NULL, "yes or no", NULL, 0, 0},
    {"group.bytes", NULL, CAY_FIELD_BYTES, "1 KiB", "a size", NULL, 0, 1 << 30},
    {"choice", NULL, CAY_FIELD_CHOICE, "red", "a colour", trial_choices, 0, 0},
    {"texts", NULL, CAY_FIELD_TEXTS, "[one, two]", "some texts", NULL, 0, 0},
    {"map", NULL, CAY_FIELD_MAP, "{a: b}", "a map", NULL, 0, 0},
    {"group.deep.path", NULL, CAY_FIELD_PATH, NULL, "a path", NULL, 0, 0},
    {"group.deep.size", NULL, CAY_FIELD_BYTES, NULL, "a size", NULL, 0, 0},
    {"policy", NULL, CAY_FIELD_POLICY, NULL, "a policy", NULL, 0, 0},
};

static inline void auto_cay_config(cay_config **config)
{
    cay_config_free(*config);
}

static inline void register_as(const char *name, const struct cay_field *fields,
                               size_t count)
{
    static struct cay_backend tables[16];
    static size_t used;
    struct cay_backend *table = &tables[used++];

    ASSERT(used <= sizeof tables / sizeof *tables);
    *table = *cay_backend_find("native");
    table->name = name;
    table->fields = fields;
    table->field_count = count;
    ASSERT_OK(cay_backend_register(table, &err));
}

static inline void register_trial(void)
{
    if (!cay_backend_find("trial"))
        register_as("trial", trial_fields, sizeof trial_fields / sizeof *trial_fields);
}

static inline int parse_config(const char *text, cay_config **ret_config)
{
    register_trial();
    return cay_config_parse(text, strlen(text), "cay.yaml", "/base", ret_config, &err);
}

/* What is read of "type: trial" and the lines given. */
static inline cay_config *trial(const char *lines)
{
    char text[4096];
    cay_config *config = NULL;

    snprintf(text, sizeof text, "type: trial\n%s", lines);
    ASSERT_OK(parse_config(text, &config));
    return config;
}

/* The text is refused with exactly this message, which names line and key. */
static inline void assert_no_config(const char *text, const char *message)
{
    cay_config *config = NULL;

    ASSERT_CODE(parse_config(text, &config), CAY_E_INVALID);
    ASSERT(!config);
    ASSERT_STR(err.message, message);
    ASSERT_STR(err.op, "config.parse");
    ASSERT_STR(err.subject, "cay.yaml");
}

/* The same for lines that follow "type: trial". */
static inline void assert_refused(const char *lines, const char *message)
{
    char text[4096];

    snprintf(text, sizeof text, "type: trial\n%s", lines);
    assert_no_config(text, message);
}

/* The configuration as JSON; reading that gives the same again. */
static inline void assert_json(const cay_config *config, const char *expected)
{
    AUTO_FREE char *json = NULL;
    AUTO_FREE char *again = NULL;
    AUTO(cay_config) copy = NULL;

    ASSERT_OK(cay_config_json(config, &json, &err));
    ASSERT_STR(json, expected);
    ASSERT_OK(cay_config_parse(json, strlen(json), "json", "/elsewhere", &copy, &err));
    ASSERT_OK(cay_config_json(copy, &again, &err));
    ASSERT_STR(again, json);
}

#endif
