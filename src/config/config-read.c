/* SPDX-License-Identifier: Apache-2.0 */
/* From a map of keys to the values of the fields they name. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "config/common-fields.h"
#include "config/config.h"
#include "config/policy-entry.h"
#include "config/scalar.h"

#define GROUPS_MAX 8 /* levels of maps */

static const char op[] = "config.parse";

struct reader {
    cay_config *config;
    struct yaml *yaml;
    const struct value_place *place;
    bool is_top;
    char name[CONFIG_NAME_MAX]; /* of the field or group: "limits.memory" */
    unsigned depth;             /* of the map that is read */
};

/* --- The fields -----------------------------------------------------------------------
 */

static bool is_usable(const struct cay_field *field)
{
    return field->name && *field->name && strlen(field->name) < CONFIG_NAME_MAX &&
           field->type >= CAY_FIELD_TEXT && field->type <= CAY_FIELD_PATH &&
           (field->type != CAY_FIELD_CHOICE || field->choices);
}

static bool is_replaced(const struct cay_backend *backend, const struct cay_field *field)
{
    for (size_t i = 0; i < backend->field_count; i++)
        if (backend->fields[i].name && strcmp(backend->fields[i].name, field->name) == 0)
            return true;
    return false;
}

int config_new(const struct cay_backend *backend, cay_config **ret_config,
               struct cay_error *err)
{
    cay_config *config = calloc(1, sizeof *config);
    struct value *values =
        calloc(common_fields_count + backend->field_count, sizeof *values);

    for (size_t i = 0; i < backend->field_count; i++)
        if (!is_usable(&backend->fields[i])) {
            free(values);
            free(config);
            return cay_fail(err, CAY_E_INVALID, 0, op, backend->name,
                            "the backend has a field that cannot be",
                            "a field has a name of 1 to %d bytes, one of the types of "
                            "cay/config.h, and choices if it is one",
                            CONFIG_NAME_MAX - 1);
        }
    if (!config || !values) {
        free(values);
        free(config);
        return cay_fail_memory(err, op);
    }
    config->backend = backend;
    config->values = values;
    for (size_t i = 0; i < common_fields_count; i++)
        if (!is_replaced(backend, &common_fields[i]))
            values[config->count++].field = &common_fields[i];
    for (size_t i = 0; i < backend->field_count; i++)
        values[config->count++].field = &backend->fields[i];
    *ret_config = config;
    return CAY_OK;
}

static bool is_called(const struct cay_field *field, const char *name)
{
    return strcmp(field->name, name) == 0 ||
           (field->alias && strcmp(field->alias, name) == 0);
}

struct value *config_find(const cay_config *config, const char *name)
{
    for (size_t i = 0; i < config->count; i++)
        if (is_called(config->values[i].field, name))
            return &config->values[i];
    return NULL;
}

/* The first field below a group, or NULL. */
static struct value *find_group(const cay_config *config, const char *name)
{
    size_t len = strlen(name);

    for (size_t i = 0; i < config->count; i++) {
        const char *field = config->values[i].field->name;
        if (strncmp(field, name, len) == 0 && field[len] == '.')
            return &config->values[i];
    }
    return NULL;
}

/* --- Reading --------------------------------------------------------------------------
 */

/* The keys that may stand in the map of which `prefix` ("limits.") is the name. */
static int fail_unknown(struct reader *reader, size_t prefix, unsigned line,
                        const char *key, struct cay_error *err)
{
    const cay_config *config = reader->config;
    size_t count = 0;
    AUTO_FREE char(*words)[CONFIG_NAME_MAX] = calloc(config->count + 1, sizeof *words);
    AUTO_FREE const char **keys = calloc(config->count + 2, sizeof *keys);

    if (!words || !keys)
        return cay_fail_memory(err, op);
    if (reader->is_top && prefix == 0)
        keys[count++] = "sandbox_config";
    for (size_t i = 0; i < config->count; i++) {
        const char *name = config->values[i].field->name;
        if (strncmp(name, reader->name, prefix) != 0)
            continue;
        size_t len = strcspn(name + prefix, ".");
        memcpy(words[count], name + prefix, len);
        if (count == 0 || strcmp(words[count], keys[count - 1]) != 0) {
            keys[count] = words[count];
            count++;
        } else {
            memset(words[count], 0, len);
        }
    }
    return entry_fail_unknown(reader->yaml, line, key, keys, err);
}

static int fail_twice(const struct reader *reader, const struct value *value,
                      unsigned line, struct cay_error *err)
{
    const struct cay_field *field = value->field;

    if (field->alias)
        return yaml_fail(err, reader->yaml, line, "is given twice",
                         "line %u has it already; %s and %s are the same", value->line,
                         field->name, field->alias);
    return yaml_fail(err, reader->yaml, line, "is given twice",
                     "line %u has it already; keep one of the two", value->line);
}

static int read_map(struct reader *reader, struct cay_error *err);

static int read_group(struct reader *reader, struct value *first, unsigned line,
                      struct cay_error *err)
{
    struct yaml_event event;

    if (first->groups >> reader->depth & 1)
        return yaml_fail(err, reader->yaml, line, "is given twice",
                         "keep one of the two");
    first->groups |= 1u << reader->depth;
    int code = yaml_next(reader->yaml, &event, err);
    if (code || scalar_is_nothing(&event))
        return code;
    if (event.kind != YAML_MAP)
        return yaml_fail(err, reader->yaml, event.line, "must be a map of keys",
                         "write its keys below it, like \"%s\"",
                         first->field->name + strlen(reader->name) + 1);
    reader->depth++;
    code = read_map(reader, err);
    reader->depth--;
    return code;
}

/* False if no field can have such a name; dots are only ours. */
static bool append_key(struct reader *reader, const char *key)
{
    size_t used = strlen(reader->name), room = sizeof reader->name - used;

    if (strchr(key, '.') || strlen(key) + 1 >= room)
        return false;
    snprintf(reader->name + used, room, "%s%s", used ? "." : "", key);
    return true;
}

static int read_key(struct reader *reader, const struct yaml_event *key,
                    struct cay_error *err)
{
    size_t prefix = strlen(reader->name);
    struct value *value = NULL, *group = NULL;
    struct yaml_event event;

    if (append_key(reader, key->text)) {
        value = config_find(reader->config, reader->name);
        group = find_group(reader->config, reader->name);
    }
    if (!value && !group && reader->config->is_partial) {
        reader->name[prefix] = '\0';
        int code = yaml_next(reader->yaml, &event, err);
        return code ? code : yaml_skip(reader->yaml, event.kind, err);
    }
    if (!value && (!group || reader->depth == GROUPS_MAX)) {
        reader->name[prefix] = '.';
        return fail_unknown(reader, prefix ? prefix + 1 : 0, key->line, key->text, err);
    }
    size_t mark = yaml_enter(reader->yaml, key->text);
    int code;
    if (!value) {
        code = read_group(reader, group, key->line, err);
    } else if (value->line) {
        return fail_twice(reader, value, key->line, err);
    } else {
        value->line = key->line;
        code = yaml_next(reader->yaml, &event, err);
        if (!code)
            code = value_read(value, reader->yaml, &event, reader->place, err);
        value->is_written = value->is_set || value->reference;
    }
    if (code)
        return code;
    yaml_leave(reader->yaml, mark);
    reader->name[prefix] = '\0';
    return CAY_OK;
}

static int read_map(struct reader *reader, struct cay_error *err)
{
    struct yaml_event key;

    for (;;) {
        int code = entry_next_key(reader->yaml, &key, err);
        if (code || key.kind == YAML_MAP_END)
            return code;
        code = read_key(reader, &key, err);
        if (code)
            return code;
    }
}

int config_read(cay_config *config, struct yaml *yaml, bool is_top,
                const struct value_place *place, struct cay_error *err)
{
    struct reader reader = {
        .config = config, .yaml = yaml, .place = place, .is_top = is_top};
    struct yaml_event event;
    int code = yaml_next(yaml, &event, err);

    if (code || scalar_is_nothing(&event))
        return code;
    if (event.kind != YAML_MAP)
        return yaml_fail(err, yaml, event.line, "must be a map of keys",
                         "write keys such as \"type: native\" below it");
    return read_map(&reader, err);
}

int config_read_policy(cay_config *config, struct yaml *yaml,
                       const struct value_place *place, struct cay_error *err)
{
    struct value *policy = config_find(config, "policy");
    struct yaml_event event;
    int code = yaml_next(yaml, &event, err);

    if (!code)
        code = value_read(policy, yaml, &event, place, err);
    policy->line = 1;
    policy->is_written = policy->is_set;
    return code;
}
