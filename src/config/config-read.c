/* SPDX-License-Identifier: Apache-2.0 */
/* From a map of keys to the values of the fields they name. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/error.h"
#include "config/config.h"
#include "config/record.h"
#include "config/yaml.h"

#define GROUPS_MAX 8 /* levels of maps */

static const char op[] = "config.parse";

struct reader {
    cay_config *config;
    struct yaml *yaml;
    bool is_top;
    char name[CONFIG_NAME_MAX]; /* of the field or group: "limits.memory" */
    unsigned depth;             /* of the map that is read */
};

static const char *const after_run[] = {"stop", "pause", "none", NULL};

const struct cay_field config_common_fields[] = {
    {.name = "type",
     .type = CAY_FIELD_TEXT,
     .about = "the backend that runs the sandbox; the default is local below "
              "sandbox_config, else native"},
    {.name = "library",
     .type = CAY_FIELD_PATH,
     .about = "a shared object with a custom backend, loaded first; its code runs in "
              "this process, so it must be trusted"},
    {.name = "sandbox_id",
     .type = CAY_FIELD_TEXT,
     .about = "use the existing sandbox with this id instead of a new one"},
    {.name = "work_dir",
     .alias = "_work_dir",
     .type = CAY_FIELD_TEXT,
     .about = "working directory of commands, and base of relative paths inside"},
    {.name = "envs",
     .alias = "env",
     .type = CAY_FIELD_MAP,
     .about = "environment variables of every command"},
    {.name = "persist_sandbox",
     .type = CAY_FIELD_BOOLEAN,
     .fallback = "true",
     .about = "whether the sandbox outlives a run: true pauses it after the run, false "
              "stops it"},
    {.name = "status_after_run",
     .type = CAY_FIELD_CHOICE,
     .choices = after_run,
     .about = "what happens to the sandbox after a run; by default persist_sandbox "
              "decides, and the two must not contradict each other"},
    {.name = "output_char_threshold",
     .type = CAY_FIELD_INTEGER,
     .fallback = "10000",
     .most = INT32_MAX,
     .about = "with clean_output, output of this many characters or more is shortened"},
    {.name = "truncate_head_chars",
     .type = CAY_FIELD_INTEGER,
     .fallback = "5000",
     .most = INT32_MAX,
     .about = "characters kept of the start of shortened output"},
    {.name = "truncate_tail_chars",
     .type = CAY_FIELD_INTEGER,
     .fallback = "5000",
     .most = INT32_MAX,
     .about = "characters kept of the end of shortened output"},
    {.name = "clean_output",
     .type = CAY_FIELD_BOOLEAN,
     .fallback = "true",
     .about = "whether output is cleaned: escape sequences, overwritten and repeated "
              "lines are removed, and long output is shortened"},
    {.name = "raise_errors",
     .type = CAY_FIELD_BOOLEAN,
     .fallback = "false",
     .about = "whether expected failures are exceptions in Python instead of results"},
};

const size_t config_common_count =
    sizeof config_common_fields / sizeof *config_common_fields;

/* --- The fields -----------------------------------------------------------------------
 */

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
        calloc(config_common_count + backend->field_count, sizeof *values);

    if (!config || !values) {
        free(values);
        free(config);
        return cay_fail_memory(err, op);
    }
    config->backend = backend;
    config->values = values;
    for (size_t i = 0; i < config_common_count; i++)
        if (!is_replaced(backend, &config_common_fields[i]))
            values[config->count++].field = &config_common_fields[i];
    for (size_t i = 0; i < backend->field_count; i++)
        values[config->count++].field = &backend->fields[i];
    *ret_config = config;
    return CAY_OK;
}

struct value *config_find(const cay_config *config, const char *name)
{
    for (size_t i = 0; i < config->count; i++) {
        const struct cay_field *field = config->values[i].field;
        if (strcmp(field->name, name) == 0 ||
            (field->alias && strcmp(field->alias, name) == 0))
            return &config->values[i];
    }
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
    return yaml_fail_unknown(reader->yaml, line, key, keys, err);
}

static int fail_twice(const struct reader *reader, const struct value *value,
                      unsigned line, struct cay_error *err)
{
    const struct cay_field *field = value->field;

    if (field->alias)
        return yaml_fail(err, reader->yaml, line, "is given twice",
                         "already set in line %u; %s and %s are the same key",
                         value->line, field->name, field->alias);
    return yaml_fail(err, reader->yaml, line, "is given twice",
                     "already set in line %u; keep one of the two", value->line);
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
    TRY(yaml_next(reader->yaml, &event, err));
    if (yaml_is_nothing(&event))
        return CAY_OK;
    if (event.kind != YAML_MAP)
        return yaml_fail(err, reader->yaml, event.line, "must be a map of keys",
                         "write its keys below it, like \"%s\"",
                         first->field->name + strlen(reader->name) + 1);
    reader->depth++;
    int code = read_map(reader, err);
    reader->depth--;
    return code;
}

/* False for an invalid name; dots separate groups. */
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
        TRY(yaml_next(reader->yaml, &event, err));
        return yaml_skip(reader->yaml, event.kind, err);
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
            code = value_read(value, reader->yaml, &event, err);
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
        TRY(yaml_next_key(reader->yaml, &key, err));
        if (key.kind == YAML_MAP_END)
            return CAY_OK;
        TRY(read_key(reader, &key, err));
    }
}

int config_read(cay_config *config, struct yaml *yaml, bool is_top, struct cay_error *err)
{
    struct reader reader = {.config = config, .yaml = yaml, .is_top = is_top};
    struct yaml_event event;

    TRY(yaml_next(yaml, &event, err));
    if (yaml_is_nothing(&event))
        return CAY_OK;
    if (event.kind != YAML_MAP)
        return yaml_fail(err, yaml, event.line, "must be a map of keys",
                         "write keys such as \"type: native\" below it");
    return read_map(&reader, err);
}

int config_read_policy(cay_config *config, struct yaml *yaml, struct cay_error *err)
{
    struct value *policy = config_find(config, "policy");
    struct yaml_event event;
    int code = yaml_next(yaml, &event, err);

    if (!code)
        code = value_read(policy, yaml, &event, err);
    policy->line = 1;
    policy->is_written = policy->is_set;
    return code;
}

/* --- Defaults and contradictions --- */

/* A text as it would stand in a file. */
static int read_text(struct value *value, const char *text,
                     const struct yaml_origin *origin, struct cay_error *err)
{
    AUTO_YAML *yaml = NULL;
    struct yaml_event event = {.kind = YAML_SCALAR, .text = text, .len = strlen(text)};
    enum cay_field_type type = value->field->type;
    bool is_single =
        type != CAY_FIELD_TEXTS && type != CAY_FIELD_MAP && type != CAY_FIELD_POLICY;
    const struct yaml_source nothing = {.cookie = NULL};

    TRY(is_single ? yaml_open_source(&nothing, origin, &yaml, err)
                  : yaml_open(text, event.len, origin, &yaml, err));
    if (!is_single)
        TRY(yaml_next(yaml, &event, err));
    return value_read(value, yaml, &event, err);
}

/* A fallback "${env.NAME}" is ignored if the variable is not set. */
static int read_fallback(const cay_config *config, struct value *value,
                         const struct yaml_origin *origin, struct cay_error *err)
{
    const char *text = value->field->fallback;
    struct cay_error own = {.code = 0};
    char name[128], message[256];

    if (expand_is_env(text)) {
        snprintf(name, sizeof name, "%.*s", (int)strcspn(text + 6, "}"), text + 6);
        text = getenv(name);
    }
    int code = text ? read_text(value, text, origin, &own) : CAY_OK;
    if (code == CAY_E_INVALID) {
        snprintf(message, sizeof message, "the backend's default for %s is invalid",
                 value->field->name);
        return cay_fail(err, code, 0, op, config->backend->name, message,
                        "it is %s; %.300s", value->field->fallback, own.hint);
    }
    if (code && err)
        *err = own;
    return code;
}

static int set_text(struct value *value, const char *text, struct cay_error *err)
{
    free(value->text);
    value->text = strdup(text);
    value->is_set = value->text != NULL;
    return value->text ? CAY_OK : cay_fail_memory(err, op);
}

/* An older and a newer key for what happens after a run: each follows from the other, and
 * both together must agree. */
static int settle_after_run(cay_config *config, const struct yaml *yaml,
                            struct cay_error *err)
{
    struct value *persist = config_find(config, "persist_sandbox");
    struct value *after = config_find(config, "status_after_run");

    if (persist->field->type != CAY_FIELD_BOOLEAN ||
        after->field->type != CAY_FIELD_CHOICE)
        return CAY_OK; /* the backend's own idea of them */
    bool stops = after->is_set && strcmp(after->text, "stop") == 0;
    if (persist->is_written && after->is_written && persist->boolean == stops) {
        unsigned line = persist->line > after->line ? persist->line : after->line;
        return yaml_fail(err, yaml, line,
                         "persist_sandbox and status_after_run contradict each other",
                         "remove one of the two; persist_sandbox: true means "
                         "status_after_run: pause, false means stop");
    }
    if (after->is_written || (after->is_set && !persist->is_written)) {
        persist->boolean = !stops;
        return CAY_OK;
    }
    return set_text(after, persist->boolean ? "pause" : "stop", err);
}

static int check_envs(const cay_config *config, const struct yaml *yaml,
                      struct cay_error *err)
{
    const struct value *envs = config_find(config, "envs");

    for (size_t i = 0; i < envs->total; i++)
        if (envs->items[i].key && strchr(envs->items[i].key, '='))
            return yaml_fail(err, yaml, envs->line,
                             "a variable name in envs contains \"=\"",
                             "write NAME: value");
    return CAY_OK;
}

int config_settle(cay_config *config, const struct yaml *yaml, struct cay_error *err)
{
    struct value *type = config_find(config, "type");

    for (size_t i = 0; i < config->count; i++) {
        struct value *value = &config->values[i];
        TRY(value->is_set || value->reference || !value->field->fallback
                ? CAY_OK
                : read_fallback(config, value, yaml_origin(yaml), err));
    }
    TRY(settle_after_run(config, yaml, err));
    TRY(check_envs(config, yaml, err));
    if (!type->is_set && !config->is_partial)
        TRY(set_text(type, config->backend->name, err));
    return CAY_OK;
}
