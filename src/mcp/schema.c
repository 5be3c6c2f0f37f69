/* SPDX-License-Identifier: Apache-2.0 */
#include "mcp/schema.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/nearest.h"

static const char op[] = "mcp.arguments";

/* --- Schemas --- */

static void put_choices(struct json *json, const char *choices)
{
    json_put_key(json, "enum");
    json_put_array(json);
    while (*choices) {
        size_t len = strcspn(choices, "|");
        json_put_bytes(json, choices, len);
        choices += len + (choices[len] == '|');
    }
    json_put_end(json);
}

static void put_strings(struct json *json, const char *key)
{
    json_put_key(json, key);
    json_put_object(json);
    json_set_text(json, "type", "string");
    json_put_end(json);
}

/* Members of the schema of one field, whose object is open. */
static void put_type(struct json *json, const struct mcp_field *field)
{
    static const char *const types[] = {
        [MCP_STRING] = "string",   [MCP_BYTES] = "string",  [MCP_INTEGER] = "integer",
        [MCP_BOOLEAN] = "boolean", [MCP_STRINGS] = "array", [MCP_MAP] = "object",
        [MCP_OBJECT] = "object",   [MCP_LIST] = "array",
    };

    json_set_text(json, "type", types[field->type]);
    json_set_text(json, "description", field->help);
    if (field->fallback) {
        json_put_key(json, "default");
        json_put_raw(json, field->fallback);
    }
    if (field->choices)
        put_choices(json, field->choices);
    if (field->least || field->most) {
        json_set_int(json, "minimum", field->least);
        json_set_int(json, "maximum", field->most);
    }
    if (field->type == MCP_STRINGS)
        put_strings(json, "items");
    if (field->type == MCP_MAP)
        put_strings(json, "additionalProperties");
}

static void put_required(struct json *json, const struct mcp_field *fields)
{
    bool has_any = false;

    for (const struct mcp_field *field = fields; field->name; field++)
        has_any = has_any || field->is_required;
    if (!has_any)
        return;
    json_put_key(json, "required");
    json_put_array(json);
    for (const struct mcp_field *field = fields; field->name; field++)
        if (field->is_required)
            json_put_text(json, field->name);
    json_put_end(json);
}

/* NOLINTNEXTLINE(misc-no-recursion): the tables have two levels */
static void put_members(struct json *json, const struct mcp_field *fields, bool is_closed)
{
    json_put_key(json, "properties");
    json_put_object(json);
    for (const struct mcp_field *field = fields; field->name; field++) {
        json_put_key(json, field->name);
        json_put_object(json);
        put_type(json, field);
        if (field->fields && field->type == MCP_OBJECT)
            put_members(json, field->fields, is_closed);
        if (field->fields && field->type == MCP_LIST) {
            json_put_key(json, "items");
            mcp_schema_put(json, field->fields, is_closed);
        }
        json_put_end(json);
    }
    json_put_end(json);
    put_required(json, fields);
    if (is_closed)
        json_set_bool(json, "additionalProperties", false);
}

/* NOLINTNEXTLINE(misc-no-recursion) */
void mcp_schema_put(struct json *json, const struct mcp_field *fields, bool is_closed)
{
    json_put_object(json);
    json_set_text(json, "type", "object");
    put_members(json, fields, is_closed);
    json_put_end(json);
}

/* --- Checks --- */

static int fail(const char *name, const char *message, const char *allowed,
                struct cay_error *err)
{
    return cay_fail(err, CAY_E_INVALID, 0, op, name, message, "%s", allowed);
}

static bool has_nul(const json_t *text)
{
    return strlen(json_string_value(text)) != json_string_length(text);
}

static bool is_choice(const char *choices, const char *text)
{
    size_t len = strlen(text);

    for (const char *at = choices; *at;) {
        size_t one = strcspn(at, "|");
        if (one == len && memcmp(at, text, len) == 0)
            return true;
        at += one + (at[one] == '|');
    }
    return false;
}

static int check_string(const struct mcp_field *field, const json_t *value,
                        struct cay_error *err)
{
    char allowed[256];

    if (!json_is_string(value))
        return fail(field->name, "the argument is not a string", field->help, err);
    if (field->type != MCP_BYTES && has_nul(value))
        return fail(field->name, "the argument contains a NUL character",
                    "leave out the NUL character", err);
    if (!field->choices || is_choice(field->choices, json_string_value(value)))
        return CAY_OK;
    snprintf(allowed, sizeof allowed, "allowed: %s", field->choices);
    return fail(field->name, "invalid value", allowed, err);
}

static int check_integer(const struct mcp_field *field, const json_t *value,
                         struct cay_error *err)
{
    int64_t most = field->most ? field->most : INT64_MAX;
    char allowed[128];

    if (json_is_integer(value) && json_integer_value(value) >= field->least &&
        json_integer_value(value) <= most)
        return CAY_OK;
    snprintf(allowed, sizeof allowed, "a whole number from %lld to %lld",
             (long long)field->least, (long long)most);
    return fail(field->name, "invalid number", allowed, err);
}

static int check_strings(const struct mcp_field *field, const json_t *value,
                         struct cay_error *err)
{
    bool is_map = field->type == MCP_MAP, is_valid = true;
    const char *key;
    json_t *item;
    size_t i;

    if (is_map ? !json_is_object(value) : !json_is_array(value))
        return fail(field->name, "the argument has the wrong type",
                    is_map ? "an object with strings" : "an array of strings", err);
    json_array_foreach(value, i, item) is_valid =
        is_valid && json_is_string(item) && !has_nul(item);
    json_object_foreach((json_t *)(uintptr_t)value, key, item) is_valid =
        is_valid && json_is_string(item) && !has_nul(item);
    return is_valid
               ? CAY_OK
               : fail(field->name, "an item is not a string without NUL",
                      is_map ? "an object with strings" : "an array of strings", err);
}

/* NOLINTNEXTLINE(misc-no-recursion): the tables have two levels */
static int check_objects(const struct mcp_field *field, const json_t *value,
                         struct cay_error *err)
{
    json_t *item;
    size_t i;

    if (field->type == MCP_OBJECT)
        return json_is_object(value)
                   ? CAY_OK
                   : fail(field->name, "the argument is not an object", field->help, err);
    if (!json_is_array(value))
        return fail(field->name, "the argument is not an array", field->help, err);
    json_array_foreach(value, i, item) TRY(mcp_schema_check(field->fields, item, err));
    return CAY_OK;
}

/* NOLINTNEXTLINE(misc-no-recursion) */
static int check_value(const struct mcp_field *field, const json_t *value,
                       struct cay_error *err)
{
    switch (field->type) {
    case MCP_STRING:
    case MCP_BYTES:
        return check_string(field, value, err);
    case MCP_INTEGER:
        return check_integer(field, value, err);
    case MCP_BOOLEAN:
        return json_is_boolean(value)
                   ? CAY_OK
                   : fail(field->name, "the argument is not true or false",
                          "allowed: true, false", err);
    case MCP_STRINGS:
    case MCP_MAP:
        return check_strings(field, value, err);
    case MCP_OBJECT:
    case MCP_LIST:
        break;
    }
    return check_objects(field, value, err);
}

static const struct mcp_field *find_field(const struct mcp_field *fields,
                                          const char *name)
{
    while (fields->name && strcmp(fields->name, name) != 0)
        fields++;
    return fields->name ? fields : NULL;
}

static int fail_unknown(const struct mcp_field *fields, const char *name,
                        struct cay_error *err)
{
    char known[256] = "it takes no arguments";
    size_t used = 0, count = 0;

    for (; fields[count].name && used < sizeof known; count++)
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s",
                                 count ? ", " : "allowed: ", fields[count].name);
    const char *near = nearest_name(name, &fields->name, sizeof *fields, count);
    return cay_fail(err, CAY_E_INVALID, 0, op, name, "unknown argument", "%s%s%s%s",
                    near ? "did you mean " : "", near ? near : "", near ? "? " : "",
                    known);
}

/* NOLINTNEXTLINE(misc-no-recursion) */
int mcp_schema_check(const struct mcp_field *fields, const json_t *arguments,
                     struct cay_error *err)
{
    const char *name;
    json_t *value;

    if (arguments && !json_is_object(arguments))
        return fail("arguments", "the arguments are not an object", "pass an object",
                    err);
    json_object_foreach((json_t *)(uintptr_t)arguments, name, value)
    {
        const struct mcp_field *field = find_field(fields, name);
        if (!field)
            return fail_unknown(fields, name, err);
        if (!json_is_null(value) || field->is_required)
            TRY(check_value(field, value, err));
    }
    for (const struct mcp_field *field = fields; field->name; field++)
        if (field->is_required && !json_object_get(arguments, field->name))
            return fail(field->name, "an argument is missing", field->help, err);
    return CAY_OK;
}
