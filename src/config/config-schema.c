/* SPDX-License-Identifier: Apache-2.0 */
/* The JSON schema of configurations, for editors that check them, generated from the
 * tables that parse them.  Definitions: one for each backend, with its keys; cay.below,
 * the value of sandbox_config:; cay.whole, a file without that key; cay.policy; and
 * cay.reference, a text with "${...}".
 *
 * A failed allocation makes its value NULL, and in the end the whole schema. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/quantity.h"
#include "config/config.h"

static const char op[] = "config.schema";

/* --- Pieces ---------------------------------------------------------------------------
 */

static json_t *add(json_t *array, json_t *item)
{
    if (json_array_append_new(array, item) == 0)
        return array;
    json_decref(array);
    return NULL;
}

static json_t *set(json_t *object, const char *key, json_t *value)
{
    if (json_object_set_new(object, key, value) == 0)
        return object;
    json_decref(object);
    return NULL;
}

static json_t *reference(const char *name)
{
    return json_pack("{s:s+}", "$ref", "#/definitions/", name);
}

static json_t *null_or(const char *type)
{
    return json_pack("{s:[s,s]}", "type", type, "null");
}

static json_t *text_like(const char *pattern)
{
    return json_pack("{s:s,s:s}", "type", "string", "pattern", pattern);
}

/* A value of another type may also be a text that contains "${...}". */
static json_t *or_reference(json_t *one)
{
    return json_pack("{s:[o,o]}", "anyOf", one, reference("cay.reference"));
}

/* --- Policies -------------------------------------------------------------------------
 */

static json_t *put_rules(json_t *object)
{
    object = set(object, "suffixes",
                 json_pack("{s:[s,s],s:{s:s}}", "type", "array", "null", "items", "type",
                           "string"));
    object = set(object, "max_file_bytes",
                 or_reference(json_pack("{s:[s,s],s:i}", "type", "integer", "null",
                                        "minimum", 0)));
    return set(object, "exec", text_like("^r[ow]$|\\$\\{"));
}

static json_t *put_approvals(json_t *object)
{
    static const char *const keys[] = {"write_approval", "read_approval"};

    object = set(object, "mode", text_like("^r[ow]$|\\$\\{"));
    for (size_t i = 0; i < 2; i++)
        object =
            set(object, keys[i], or_reference(json_pack("{s:s}", "type", "boolean")));
    return put_rules(object);
}

/* An object that has these keys and no others. */
static json_t *closed(json_t *properties, json_t *required)
{
    return json_pack("{s:s,s:b,s:o,s:o}", "type", "object", "additionalProperties", 0,
                     "required", required, "properties", properties);
}

static json_t *make_network(void)
{
    json_t *rules = json_pack("{s:[{s:s},{s:s,s:{s:s}}]}", "anyOf", "type", "string",
                              "type", "array", "items", "type", "string");
    json_t *limit = json_pack("{s:[s,s]}", "type", "string", "integer");
    json_t *limits = closed(
        json_pack("{s:O,s:O,s:o}", "connections", limit, "bytes", limit, "rate", limit),
        json_array());
    json_t *map = closed(json_pack("{s:o,s:O,s:O,s:{s:s,s:O},s:o}", "mode",
                                   text_like("^(rules|open)$|\\$\\{"), "allow", rules,
                                   "deny", rules, "groups", "type", "object",
                                   "additionalProperties", rules, "limits", limits),
                         json_array());
    json_decref(rules);
    return json_pack("{s:[o,{s:s,s:{s:s}},o]}", "anyOf", text_like("^open$|\\$\\{"),
                     "type", "array", "items", "type", "string", map);
}

static json_t *make_policy(void)
{
    json_t *root =
        closed(put_rules(json_pack("{s:{s:s},s:o}", "root", "type", "string", "readonly",
                                   or_reference(json_pack("{s:s}", "type", "boolean")))),
               json_pack("[s]", "root"));
    json_t *path = closed(put_approvals(json_pack("{s:{s:s}}", "root", "type", "string")),
                          json_pack("[s]", "root"));
    json_t *mount =
        closed(put_approvals(json_pack("{s:{s:s},s:{s:s}}", "host_path", "type", "string",
                                       "mount_point", "type", "string")),
               json_pack("[s,s]", "host_path", "mount_point"));

    return json_pack("{s:s,s:s,s:i,s:{s:[{s:[s,s]},{s:[s,s]},{s:[s,s]}]},s:b,"
                     "s:{s:{s:[{s:s},o]},s:{s:s,s:o},s:{s:s,s:i,s:o},s:o}}",
                     "type", "object", "description", "See cay-policy(5).",
                     "minProperties", 1, "not", "anyOf", "required", "root", "paths",
                     "required", "root", "mounts", "required", "paths", "mounts",
                     "additionalProperties", 0, "properties", "root", "anyOf", "type",
                     "string", root, "paths", "type", "object", "additionalProperties",
                     path, "mounts", "type", "array", "minItems", 1, "items", mount,
                     "network", make_network());
}

/* --- Fields ---------------------------------------------------------------------------
 */

static json_t *make_choice(const struct cay_field *field)
{
    json_t *words = json_array();

    for (const char *const *choice = field->choices; *choice; choice++)
        words = add(words, json_string(*choice));
    return or_reference(json_pack("{s:o}", "enum", add(words, json_null())));
}

static json_t *make_number(const struct cay_field *field)
{
    bool is_whole = field->type != CAY_FIELD_NUMBER;
    json_t *number = null_or(is_whole ? "integer" : "number");
    const char *pattern =
        field->type == CAY_FIELD_BYTES
            ? "^[0-9]+(\\.[0-9]*)?( ?([KMGTkmgt]([Ii]?[Bb])?|[Bb]))?$|\\$\\{"
        : is_whole ? "^[-+]?[0-9]+$|\\$\\{"
                   : "^[-+]?([0-9]+\\.?[0-9]*|\\.[0-9]+)([eE][-+]?[0-9]+)?$|\\$\\{";

    if (is_whole && (field->most || field->type == CAY_FIELD_BYTES))
        number = set(number, "minimum", json_integer(field->least));
    if (is_whole && field->most && field->most < INT64_MAX)
        number = set(number, "maximum", json_integer(field->most));
    return json_pack("{s:[o,o]}", "anyOf", number, text_like(pattern));
}

static json_t *make_boolean(void)
{
    return json_pack("{s:[o,{s:[i,i]},o]}", "anyOf", null_or("boolean"), "enum", 0, 1,
                     text_like("^([Tt][Rr][Uu][Ee]|[Ff][Aa][Ll][Ss][Ee]|[Yy][Ee][Ss]|"
                               "[Nn][Oo]|[Oo][Nn]|[Oo][Ff][Ff]|[01])$|\\$\\{"));
}

static json_t *make_form(const struct cay_field *field)
{
    switch (field->type) {
    case CAY_FIELD_TEXT:
    case CAY_FIELD_SECRET:
    case CAY_FIELD_PATH:
        return null_or("string");
    case CAY_FIELD_INTEGER:
    case CAY_FIELD_NUMBER:
    case CAY_FIELD_BYTES:
        return make_number(field);
    case CAY_FIELD_BOOLEAN:
        return make_boolean();
    case CAY_FIELD_CHOICE:
        return make_choice(field);
    case CAY_FIELD_TEXTS:
        return set(null_or("array"), "items", json_pack("{s:s}", "type", "string"));
    case CAY_FIELD_MAP:
        return set(null_or("object"), "additionalProperties",
                   json_pack("{s:[s,s,s]}", "type", "string", "number", "boolean"));
    case CAY_FIELD_POLICY:
        return json_pack("{s:[o,{s:s}]}", "anyOf", reference("cay.policy"), "type",
                         "null");
    }
    return NULL;
}

static json_t *put_default(json_t *object, const struct cay_field *field)
{
    const char *fallback = field->fallback;
    double number = 0;

    if (!fallback || strstr(fallback, "${"))
        return object;
    switch ((int)field->type) {
    case CAY_FIELD_TEXT:
    case CAY_FIELD_CHOICE:
    case CAY_FIELD_PATH:
    case CAY_FIELD_BYTES:
        return set(object, "default", json_string(fallback));
    case CAY_FIELD_INTEGER:
        return set(object, "default", json_integer(strtoll(fallback, NULL, 10)));
    case CAY_FIELD_NUMBER:
        (void)quantity_parse_number(fallback, &number);
        return set(object, "default", json_real(number));
    case CAY_FIELD_BOOLEAN:
        return set(object, "default", json_boolean(strcmp(fallback, "true") == 0));
    default:
        return object;
    }
}

static json_t *make_field(const struct cay_field *field)
{
    return put_default(set(make_form(field), "description", json_string(field->about)),
                       field);
}

/* --- Backends -------------------------------------------------------------------------
 */

/* The name that the field has in the map below the first `len` bytes of its own. */
static const char *key_of(const struct cay_field *field, size_t len,
                          char key[CONFIG_NAME_MAX])
{
    size_t rest = strcspn(field->name + len, ".");

    memcpy(key, field->name + len, rest);
    key[rest] = '\0';
    return key;
}

/* The keys below the first `len` bytes of `group`: "limits.". */
static json_t *make_properties(const cay_config *config, const char *group, size_t len)
{
    json_t *object = json_object();
    char key[CONFIG_NAME_MAX];

    for (size_t i = 0; i < config->count; i++) {
        const struct cay_field *field = config->values[i].field;
        if (strncmp(field->name, group, len) != 0 ||
            json_object_get(object, key_of(field, len, key)))
            continue;
        size_t end = len + strlen(key);
        if (field->name[end] == '.')
            object = set(object, key,
                         json_pack("{s:[s,s],s:b,s:o}", "type", "object", "null",
                                   "additionalProperties", 0, "properties",
                                   make_properties(config, field->name, end + 1)));
        else
            object = set(object, key, make_field(field));
        if (field->alias && len == 0 && field->name[end] != '.')
            object = set(object, field->alias, make_field(field));
    }
    return object;
}

static json_t *make_backend(const cay_config *config)
{
    return json_pack("{s:s,s:s,s:o}", "type", "object", "description",
                     config->backend->about, "properties",
                     make_properties(config, "", 0));
}

/* Every key that may stand beside others at the top. */
static json_t *make_names(json_t *properties, bool is_whole)
{
    json_t *names = json_array();
    const char *key;
    json_t *value;

    json_object_foreach(properties, key, value)
    {
        names = add(names, json_string(key));
    }
    return is_whole ? add(names, json_string("variables")) : names;
}

/* A configuration with this `type` has these keys; NULL: one without any. */
static json_t *make_case(const char *type, const char *name, json_t *names)
{
    json_t *condition = type ? json_pack("{s:[s],s:{s:{s:s}}}", "required", "type",
                                         "properties", "type", "const", type)
                             : json_pack("{s:{s:[{s:[s]},{s:[s]}]}}", "not", "anyOf",
                                         "required", "type", "required", "library");

    return json_pack("{s:o,s:{s:[o,{s:{s:o}}]}}", "if", condition, "then", "allOf",
                     reference(name), "propertyNames", "enum", names);
}

/* Any other type comes from a library. */
static json_t *make_types(void)
{
    const struct cay_backend *backend;
    json_t *names = json_array();

    for (size_t i = 0; (backend = cay_backend_at(i)); i++)
        names = add(names, json_string(backend->name));
    return json_pack("{s:{s:{s:[s]}},s:{s:{s:o}}}", "if", "not", "required", "library",
                     "then", "properties", "type",
                     or_reference(json_pack("{s:o}", "enum", add(names, json_null()))));
}

/* `below` and `whole`: cases by type. */
static json_t *make_choices(json_t *definitions, const char *fallback, bool is_whole)
{
    json_t *cases = add(json_array(), make_types());
    const struct cay_backend *backend;

    for (size_t i = 0; (backend = cay_backend_at(i)); i++) {
        json_t *properties =
            json_object_get(json_object_get(definitions, backend->name), "properties");
        cases = add(cases, make_case(backend->name, backend->name,
                                     make_names(properties, is_whole)));
        if (strcmp(backend->name, fallback) == 0)
            cases =
                add(cases, make_case(NULL, fallback, make_names(properties, is_whole)));
    }
    return json_pack("{s:[s,s],s:o}", "type", "object", "null", "allOf", cases);
}

/* --- All ------------------------------------------------------------------------------
 */

/* A text that is a policy by itself, or else a configuration. */
static json_t *make_top(void)
{
    json_t *condition = json_pack(
        "{s:{s:[{s:[s]},{s:[s]}]},"
        "s:[{s:[s]},{s:[s]},{s:[s],s:{s:{s:i,s:{s:s}}}},{s:[s],s:{s:{s:[s,s]}}}]}",
        "not", "anyOf", "required", "type", "required", "library", "anyOf", "required",
        "root", "required", "paths", "required", "mounts", "properties", "mounts",
        "minItems", 1, "items", "type", "object", "required", "network", "properties",
        "network", "type", "array", "object");

    return json_pack("{s:o,s:o,s:o}", "if", condition, "then", reference("cay.policy"),
                     "else", reference("cay.whole"));
}

static json_t *make_schema(json_t *definitions)
{
    definitions =
        set(definitions, "cay.below", make_choices(definitions, "local", false));
    definitions =
        set(definitions, "cay.whole", make_choices(definitions, "native", true));
    definitions = set(definitions, "cay.policy", make_policy());
    definitions = set(definitions, "cay.reference", text_like("\\$\\{"));
    return json_pack("{s:s,s:s,s:s,s:s,s:{s:[s]},s:{s:{s:o,s:{s:s}}},s:o,s:o}", "$schema",
                     "http://json-schema.org/draft-07/schema#", "title",
                     "Configuration of a sandbox", "description", "See cay-config(5).",
                     "type", "object", "if", "required", "sandbox_config", "then",
                     "properties", "sandbox_config", reference("cay.below"), "variables",
                     "type", "object", "else", make_top(), "definitions", definitions);
}

int cay_config_schema(char **ret_json, struct cay_error *err)
{
    json_t *definitions = json_object();
    const struct cay_backend *backend;
    int code = CAY_OK;

    for (size_t i = 0; !code && (backend = cay_backend_at(i)); i++) {
        cay_config *config = NULL;
        code = config_new(backend, &config, err);
        if (!code)
            definitions = set(definitions, backend->name, make_backend(config));
        cay_config_free(config);
    }
    if (code) {
        json_decref(definitions);
        return code;
    }
    json_t *schema = make_schema(definitions);
    char *text = schema ? json_dumps(schema, JSON_INDENT(2)) : NULL;
    json_decref(schema);
    if (!text)
        return cay_fail_memory(err, op);
    *ret_json = text;
    return CAY_OK;
}
