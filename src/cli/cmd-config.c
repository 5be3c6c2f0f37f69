/* SPDX-License-Identifier: Apache-2.0 */
/* cay config: check configuration files. */
#include <jansson.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/auto.h"
#include "base/error.h"
#include "cay/backend.h"
#include "cli/cli.h"
#include "cli/options.h"
#include "cli/output.h"

enum { CHECK, SCHEMA, COUNT };

static call_runner check, print_schema;

static const struct subcommand subcommands[] = {
    [CHECK] = {"check", "FILE", "Check a configuration and print its values", 1, 1,
               check},
    [SCHEMA] = {"schema", "", "Print the JSON schema of configurations", 0, 0,
                print_schema},
};

#define BIT(word)   (UINT32_C(1) << (word))
#define FIELD(name) offsetof(struct options, name)

static const struct option_rule option_rules[] = {
    {"load", 0, OPTION_FLAG, BIT(CHECK), FIELD(load), NULL,
     "load the backend's library (runs its code) and check its keys"},
    {"output", 'o', OPTION_CHOICE, BIT(CHECK), FIELD(as_json), "text|json",
     "output format: text or json"},
    OPTIONS_HELP("show this help"),
};

const struct grammar config_grammar = {
    .program = "cay config",
    .usage = "COMMAND [ARGUMENT]...\nCheck configuration files of sandboxes.",
    .manual = "Manual: cay-config(1), cay-config(5).",
    .subcommands = subcommands,
    .subcommand_count = COUNT,
    .options = option_rules,
    .option_count = sizeof option_rules / sizeof *option_rules,
};

/* --- check --- */

static void add_row(struct table *table, const char *key, const char *from,
                    const char *value)
{
    table_cell(table, "%s", key);
    table_cell(table, "%s", from);
    table_cell(table, "%s", *value ? value : "\"\"");
}

static void add_written(struct table *table, const char *key, json_t *value);

/* `name` is "[3]" in a list. */
static void add_below(struct table *table, const char *key, const char *name,
                      json_t *item)
{
    AUTO_BUF full = {.max = 4096};

    if (buf_format(&full, "%s%s%s", key, *name == '[' ? "" : ".", name))
        add_written(table, full.data, item);
}

/* Each single value in a row of its own: "policy.paths.docs.mode". */
static void add_written(struct table *table, const char *key, json_t *value)
{
    const char *name;
    json_t *item;
    size_t i;
    char place[32];

    if (json_is_string(value)) {
        add_row(table, key, "file", json_string_value(value));
    } else if (json_object_size(value) > 0) {
        json_object_foreach(value, name, item)
        {
            add_below(table, key, name, item);
        }
    } else if (json_array_size(value) > 0) {
        json_array_foreach(value, i, item)
        {
            snprintf(place, sizeof place, "[%zu]", i);
            add_below(table, key, place, item);
        }
    } else {
        AUTO_FREE char *text = json_dumps(value, JSON_ENCODE_ANY);
        add_row(table, key, "file", text ? text : "?");
    }
}

/* The value of "limits.memory"; NULL if there is none. */
static json_t *find_value(json_t *values, const char *name)
{
    char key[128]; /* as long as a field's name may be */

    for (size_t len; *name; name += len + (name[len] == '.')) {
        len = strcspn(name, ".");
        snprintf(key, sizeof key, "%.*s", (int)len, name);
        values = json_object_get(values, key);
    }
    return values;
}

static const char *default_of(const cay_config *config, const struct cay_field *field)
{
    const char *text = cay_config_text(config, field->name);

    if (field->type == CAY_FIELD_SECRET)
        return text ? field->fallback : NULL;
    return text ? text : field->fallback;
}

static int show_as_table(struct call *call, const cay_config *config, json_t *values,
                         struct cay_error *err)
{
    const struct cay_field *field;
    struct table table;
    int code = table_open(&table, "KEY|FROM|VALUE", err);

    for (size_t i = 0; !code && (field = cay_config_field(config, i)); i++) {
        bool is_written = cay_config_has(config, field->name);
        const char *fallback = default_of(config, field);
        json_t *value = is_written ? find_value(values, field->name) : NULL;
        if (value)
            add_written(&table, field->name, value);
        else if (is_written) /* a secret in clear */
            add_row(&table, field->name, "file", "(hidden)");
        else if (fallback)
            add_row(&table, field->name, "default", fallback);
    }
    return code ? code : table_print(&table, &call->output, err);
}

static int show(struct call *call, const cay_config *config, struct cay_error *err)
{
    AUTO_FREE char *json = NULL;

    TRY(cay_config_json(config, &json, err));
    if (call->options.as_json) {
        fprintf(call->output.file, "%s\n", json);
        return CAY_OK;
    }
    json_t *values = json_loads(json, 0, NULL);
    if (!values)
        return cay_fail_memory(err, "cli.config");
    int code = show_as_table(call, config, values, err);
    json_decref(values);
    return code;
}

/* The keys of a backend in a library are unknown until the library is loaded. */
static int check_backend(const cay_config *config, const char *file,
                         struct cay_error *err)
{
    struct cay_error own = {0};
    char message[sizeof own.subject + sizeof own.message + 2];

    if (!cay_backend_find(cay_config_type(config))) {
        fputs("cay: note: the library was not loaded, so its keys were not checked and "
              "are not shown (--load runs its code)\n",
              stderr);
        return CAY_OK;
    }
    int code = cay_backend_check(config, &own);
    if (!code)
        return CAY_OK;
    snprintf(message, sizeof message, "%s: %s", own.subject, own.message);
    return cay_fail(err, code, own.sys_errno, own.op, file, message, "%s", own.hint);
}

static int check(struct call *call, struct cay_error *err)
{
    const char *file = call->line.arguments[0];
    AUTO(cay_config) config = NULL;

    TRY(call->options.load ? cay_config_load(file, &config, err)
                           : cay_config_peek(file, &config, err));
    TRY(check_backend(config, file, err));
    return show(call, config, err);
}

/* --- schema --- */

static int print_schema(struct call *call, struct cay_error *err)
{
    AUTO_FREE char *json = NULL;
    int code = cay_config_schema(&json, err);

    if (!code)
        fprintf(call->output.file, "%s\n", json);
    return code;
}
