/* SPDX-License-Identifier: Apache-2.0 */
/* What a configuration is where it says nothing, and whether what it says agrees. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "config/config.h"
#include "config/expand.h"

static const char op[] = "config.parse";

static void auto_yaml(struct yaml **yaml)
{
    yaml_free(*yaml);
}

/* A text as it would stand in a file. */
static int read_text(struct value *value, const char *text,
                     const struct value_place *place, struct cay_error *err)
{
    struct yaml *yaml __attribute__((cleanup(auto_yaml))) = NULL;
    struct yaml_event event = {.kind = YAML_SCALAR, .text = text, .len = strlen(text)};
    enum cay_field_type type = value->field->type;
    bool is_single =
        type != CAY_FIELD_TEXTS && type != CAY_FIELD_MAP && type != CAY_FIELD_POLICY;
    const struct yaml_source nothing = {.cookie = NULL};
    int code = is_single ? yaml_open_source(&nothing, op, place->name, &yaml, err)
                         : yaml_open(text, event.len, op, place->name, &yaml, err);

    if (!code && !is_single)
        code = yaml_next(yaml, &event, err);
    return code ? code : value_read(value, yaml, &event, place, err);
}

/* A fallback that is "${env.NAME}" is none if that is not set. */
static int read_fallback(const cay_config *config, struct value *value,
                         const struct value_place *place, struct cay_error *err)
{
    const char *text = value->field->fallback;
    struct cay_error own = {.code = 0};
    char name[128], message[256];

    if (expand_is_env(text)) {
        snprintf(name, sizeof name, "%.*s", (int)strcspn(text + 6, "}"), text + 6);
        text = getenv(name);
    }
    int code = text ? read_text(value, text, place, &own) : CAY_OK;
    if (code == CAY_E_INVALID) {
        snprintf(message, sizeof message, "the default of %s cannot be used",
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

/* Two spellings of what happens after a run, an older and a newer one: each follows from
 * the other, and with both there must be no doubt. */
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
                         "leave one of the two out; persist_sandbox: true is "
                         "status_after_run: pause, false is stop");
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
                             "a variable of envs has \"=\" in its name",
                             "write NAME: value");
    return CAY_OK;
}

int config_settle(cay_config *config, const struct yaml *yaml,
                  const struct value_place *place, struct cay_error *err)
{
    struct value *type = config_find(config, "type");

    for (size_t i = 0; i < config->count; i++) {
        struct value *value = &config->values[i];
        int code = value->is_set || value->reference || !value->field->fallback
                       ? CAY_OK
                       : read_fallback(config, value, place, err);
        if (code)
            return code;
    }
    int code = settle_after_run(config, yaml, err);
    if (!code)
        code = check_envs(config, yaml, err);
    if (!code && !type->is_set && !config->is_partial)
        code = set_text(type, config->backend->name, err);
    return code;
}
