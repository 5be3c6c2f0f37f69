/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes are a configuration or an error that says why not, and never both; and one
 * that was written as JSON is the same when it is read again. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cay/backend.h"
#include "cay/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(condition)                                                                 \
    do {                                                                                 \
        if (!(condition)) {                                                              \
            fprintf(stderr, "line %d: not true: %s\n", __LINE__, #condition);            \
            abort();                                                                     \
        }                                                                                \
    } while (0)

static const char secret_value[] = "never-to-be-seen";
static const char *const colours[] = {"red", "green", NULL};

/* Types that native does not have, names that share their beginnings. */
static const struct cay_field fields[] = {
    {"key", "_key", CAY_FIELD_SECRET, NULL, "a secret", NULL, 0, 0},
    {"size", NULL, CAY_FIELD_BYTES, "1K", "a size", NULL, 0, 0},
    {"a.size", NULL, CAY_FIELD_BYTES, NULL, "a size", NULL, 1, 1 << 30},
    {"colour", NULL, CAY_FIELD_CHOICE, NULL, "a colour", colours, 0, 0},
    {"a.b.file", NULL, CAY_FIELD_PATH, NULL, "a file", NULL, 0, 0},
    {"a.list", NULL, CAY_FIELD_TEXTS, "[x]", "a list", NULL, 0, 0},
    {"map", NULL, CAY_FIELD_MAP, NULL, "a map", NULL, 0, 0},
    {"number", NULL, CAY_FIELD_NUMBER, "1", "a number", NULL, 0, 0},
    {"ab.c", NULL, CAY_FIELD_INTEGER, NULL, "a number", NULL, 0, 0},
    {"policy", NULL, CAY_FIELD_POLICY, NULL, "a policy", NULL, 0, 0},
};

static void set_up(void)
{
    static struct cay_backend table;
    struct cay_error err;

    table = *cay_backend_find("native");
    table.name = "odd";
    table.fields = fields;
    table.field_count = sizeof fields / sizeof *fields;
    CHECK(cay_backend_register(&table, &err) == CAY_OK);
    CHECK(setenv("A", "a ${b}\n: [", 1) == 0);
    CHECK(setenv("SECRET", secret_value, 1) == 0);
    CHECK(unsetenv("UNSET") == 0);
}

static void check_error(int code, const struct cay_error *err)
{
    CHECK(code == CAY_E_INVALID && err->code == code);
    CHECK(strcmp(err->op, "config.parse") == 0 && strcmp(err->subject, "fuzz") == 0);
    CHECK(*err->message && *err->hint && !strpbrk(err->message, "\n\r"));
    CHECK(!strstr(err->message, secret_value) && !strstr(err->hint, secret_value));
}

static void check_fields(const cay_config *config, const struct cay_field *table,
                         size_t count)
{
    const char *key, *value;

    for (size_t i = 0; i < count; i++) {
        const char *name = table[i].name;
        for (size_t k = 0; cay_config_item(config, name, k, &key, &value); k++)
            CHECK(value && (table[i].type == CAY_FIELD_MAP) == (key != NULL));
        if (cay_config_has(config, name) && table[i].most) {
            CHECK(cay_config_integer(config, name) >= table[i].least);
            CHECK(cay_config_integer(config, name) <= table[i].most);
        }
        if (cay_config_has(config, name) && table[i].type == CAY_FIELD_PATH)
            CHECK(cay_config_text(config, name)[0] == '/');
        if (cay_config_has(config, name) && table[i].type == CAY_FIELD_POLICY)
            CHECK(cay_config_policy(config, name));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cay_error err = {.code = 0};
    cay_config *config = NULL, *again = NULL;
    char *json = NULL, *json_again = NULL;

    if (!cay_backend_find("odd"))
        set_up();
    if (memmem(data, size, "lib", 3) /* loads what it names */ ||
        memmem(data, size, secret_value, strlen(secret_value)))
        return 0;
    int code = cay_config_parse((const char *)data, size, "fuzz", "/base", &config, &err);
    if (code) {
        CHECK(!config);
        check_error(code, &err);
        return 0;
    }
    CHECK(config && err.code == 0);
    const struct cay_backend *backend = cay_backend_find(cay_config_type(config));
    CHECK(backend);
    check_fields(config, backend->fields, backend->field_count);
    CHECK(cay_config_json(config, &json, &err) == CAY_OK);
    CHECK(cay_config_boolean(config, "persist_sandbox") ==
          (strcmp(cay_config_text(config, "status_after_run"), "stop") != 0));
    code = size % 2 ? cay_config_parse(json, strlen(json), "json", "/other", &again, &err)
                    : cay_config_restore(json, &again, &err);
    if (code)
        fprintf(stderr, "%s\n%s\n", json, err.message);
    CHECK(code == CAY_OK);
    CHECK(cay_config_json(again, &json_again, &err) == CAY_OK);
    if (strcmp(json, json_again) != 0)
        fprintf(stderr, "%s\n%s\n", json, json_again);
    CHECK(strcmp(json, json_again) == 0);
    cay_free(json);
    cay_free(json_again);
    cay_config_free(config);
    cay_config_free(again);
    return 0;
}
