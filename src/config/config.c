/* SPDX-License-Identifier: Apache-2.0 */
/* Parses a configuration in three steps, since the key that decides how to read the
 * others may come last.  The values are recorded as events; then the backend is chosen;
 * then the values are read by the backend's table of fields, with "${...}" replaced. */
#include "config/config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "base/nearest.h"
#include "base/words.h"
#include "config/record.h"
#include "config/yaml.h"

#define VALUES_MAX    65536
#define VARIABLES_MAX 4096

static const char op[] = "config.parse";

/* A text while it is read. */
struct draft {
    struct yaml_origin origin;
    char *base; /* absolute */
    struct record whole, below, variables;
    bool has_below;            /* "sandbox_config:" was there */
    bool loads;                /* whether to load "library:" */
    const struct record *used; /* one of the first two */
    struct expand expand;
};

static void draft_done(struct draft *draft)
{
    free(draft->base);
    record_done(&draft->whole);
    record_done(&draft->below);
    record_done(&draft->variables);
    expand_done(&draft->expand);
}

static void auto_config(cay_config **config)
{
    cay_config_free(*config);
}

/* --- Recording ------------------------------------------------------------------------
 */

static int record_key(struct draft *draft, struct yaml *yaml,
                      const struct yaml_event *key, struct cay_error *err)
{
    bool is_below = yaml_is_word(key, "sandbox_config");
    bool is_variables = yaml_is_word(key, "variables");
    struct record *record = is_below       ? &draft->below
                            : is_variables ? &draft->variables
                                           : &draft->whole;
    struct yaml_event value;

    if ((is_below || is_variables) && record->count > 0) {
        yaml_enter(yaml, key->text);
        return yaml_fail(err, yaml, key->line, "is given twice", "keep one of the two");
    }
    draft->has_below |= is_below;
    int code = CAY_OK;
    if (record == &draft->whole)
        code = record_event(record, yaml, key, true, err);
    if (!code)
        code = yaml_next(yaml, &value, err);
    return code ? code : record_value(record, yaml, &value, err);
}

static int record_top(struct draft *draft, struct yaml *yaml, struct cay_error *err)
{
    struct yaml_event event;
    int code = yaml_next(yaml, &event, err);

    if (!code && event.kind != YAML_MAP)
        return yaml_fail(err, yaml, event.line,
                         event.kind == YAML_END ? "the text is empty"
                                                : "the text is not a map of keys",
                         "write keys such as \"type: native\"; {} uses all defaults");
    if (!code)
        code = record_event(&draft->whole, yaml, &event, false, err);
    while (!code) {
        code = yaml_next_key(yaml, &event, err);
        if (!code && event.kind == YAML_MAP_END)
            break;
        if (!code)
            code = record_key(draft, yaml, &event, err);
    }
    if (!code)
        code = record_event(&draft->whole, yaml, &event, false, err);
    return code ? code : yaml_next(yaml, &event, err);
}

static int record_text(struct draft *draft, const char *text, size_t len,
                       struct cay_error *err)
{
    AUTO_YAML *yaml = NULL;

    TRY(yaml_open(len > 0 ? text : "", len, &draft->origin, &yaml, err));
    yaml_tolerate(yaml);
    int code = record_top(draft, yaml, err);
    draft->used = draft->has_below ? &draft->below : &draft->whole;
    if (!code && draft->used->line)
        return yaml_fail(err, yaml, draft->used->line, "there are too many values",
                         "the limit is %d", VALUES_MAX / 2);
    return code;
}

/* Whether the text is a policy itself, instead of having one below "policy:".  A backend
 * may have keys of the same names, so no key may name a backend; and "mounts:" and
 * "network:" are also keys of native, with strings as entries and as value. */
static bool is_policy(const struct draft *draft)
{
    const struct record *whole = &draft->whole;
    enum yaml_kind item;

    if (draft->has_below || record_has(whole, "type", &item) ||
        record_has(whole, "library", &item))
        return false;
    return record_has(whole, "root", &item) || record_has(whole, "paths", &item) ||
           (record_has(whole, "mounts", &item) && item == YAML_MAP) ||
           (record_has(whole, "network", &item) && item != YAML_END);
}

/* --- The backend ----------------------------------------------------------------------
 */

/* The text of a top-level key; unset if the key is missing or not a text: that error is
 * reported when all values are read. */
static int find_text(struct draft *draft, struct yaml *yaml, const char *key,
                     enum cay_field_type type, struct value *ret_value,
                     struct cay_error *err)
{
    const struct cay_field field = {.name = key, .type = type};
    struct yaml_event event;
    unsigned twice; /* reported when all values are read, too */
    int code = CAY_OK;

    *ret_value = (struct value){.field = &field};
    if (!record_find(draft->used, key, strlen(key), &event, &twice))
        return CAY_OK;
    size_t mark = yaml_enter(yaml, key);
    code = expand_event(&draft->expand, yaml, &event, err);
    if (!code)
        code = value_read(ret_value, yaml, &event, err);
    ret_value->line = event.line;
    ret_value->field = NULL;
    if (!code)
        yaml_leave(yaml, mark);
    return code;
}

static int fail_backend(struct yaml *yaml, const struct value *type, const char *fallback,
                        struct cay_error *err)
{
    const struct cay_backend *backend;
    struct words_list list = {.len = 0};
    const char *nearest = NULL;
    char message[128];

    for (size_t i = 0; (backend = cay_backend_at(i)); i++) {
        words_add(&list, backend->name);
        if (type->is_set && !nearest)
            nearest = nearest_name(type->text, &backend->name, 0, 1);
    }
    yaml_enter(yaml, "type");
    if (!type->is_set) {
        snprintf(message, sizeof message, "the default backend, %s, does not exist",
                 fallback);
        return yaml_fail(err, yaml, 1, message, "the backends are %s", words_end(&list));
    }
    return yaml_fail(err, yaml, type->line, "unknown backend",
                     "%s%s%sthe backends are %s; others can be loaded with library: or "
                     "registered by the program",
                     nearest ? "did you mean " : "", nearest ? nearest : "",
                     nearest ? "? " : "", words_end(&list));
}

/* A placeholder for a backend whose library is not loaded. */
static const struct cay_backend unknown = {
    .size = sizeof unknown, .name = "unknown", .about = "not loaded"};

static int load_library(struct yaml *yaml, const struct value *library, bool loads,
                        const struct cay_backend **ret_backend, struct cay_error *err)
{
    struct cay_error own = {.code = 0};
    char message[sizeof own.message + 64];
    int code = CAY_OK;

    if (loads)
        code = cay_backend_load(library->text, ret_backend, &own);
    else if (access(library->text, F_OK) == 0)
        *ret_backend = &unknown;
    else
        code = cay_fail(&own, CAY_E_NOT_FOUND, errno, "config.peek", library->text,
                        "shared object not found", "pass the path of the file");

    if (!code)
        return CAY_OK;
    yaml_enter(yaml, "library");
    snprintf(message, sizeof message, "line %u: %s: %s", library->line, yaml_key(yaml),
             own.message);
    return cay_fail(err, code, own.sys_errno, own.op, own.subject, message, "%s",
                    own.hint);
}

static int choose_backend(struct draft *draft, struct yaml *yaml,
                          const struct cay_backend **ret_backend, struct cay_error *err)
{
    const char *fallback = draft->has_below ? "local" : "native";
    __attribute__((cleanup(value_done))) struct value library, type = {.field = NULL};

    TRY(find_text(draft, yaml, "library", CAY_FIELD_PATH, &library, err));
    if (library.is_set)
        TRY(load_library(yaml, &library, draft->loads, ret_backend, err));
    TRY(find_text(draft, yaml, "type", CAY_FIELD_TEXT, &type, err));
    if (library.is_set && !type.is_set)
        return CAY_OK;
    const struct cay_backend *named =
        cay_backend_find(type.is_set ? type.text : fallback);
    if (!named && *ret_backend == &unknown)
        return CAY_OK;
    *ret_backend = named;
    return named ? CAY_OK : fail_backend(yaml, &type, fallback, err);
}

/* --- All ------------------------------------------------------------------------------
 */

static int read_values(struct draft *draft, cay_config **ret_config,
                       struct cay_error *err)
{
    struct replay replay = {.record = draft->used, .expand = &draft->expand};
    AUTO_YAML *yaml = NULL;
    cay_config *config __attribute__((cleanup(auto_config))) = NULL;
    const struct cay_backend *backend = NULL;
    bool only_policy = is_policy(draft);

    TRY(record_open(&replay, &draft->origin, &yaml, err));
    if (draft->has_below)
        yaml_enter(yaml, "sandbox_config");
    if (only_policy)
        backend = cay_backend_find("native");
    else
        TRY(choose_backend(draft, yaml, &backend, err));
    TRY(config_new(backend, &config, err));
    config->is_partial = backend == &unknown;
    TRY(only_policy ? config_read_policy(config, yaml, err)
                    : config_read(config, yaml, !draft->has_below, err));
    TRY(config_settle(config, yaml, err));
    *ret_config = TAKE_PTR(config);
    return CAY_OK;
}

static int find_base(struct draft *draft, const char *base, struct cay_error *err)
{
    AUTO_FREE char *cwd = NULL;

    if (!base || *base != '/') {
        cwd = getcwd(NULL, 0);
        if (!cwd)
            return errno == ENOMEM ? cay_fail_memory(err, op)
                                   : cay_fail_errno(err, errno, op, draft->origin.name);
    }
    if (!base || strcmp(base, ".") == 0)
        draft->base = TAKE_PTR(cwd);
    else if (*base == '/')
        draft->base = strdup(base);
    else if (asprintf(&draft->base, "%s/%s", cwd, base) < 0)
        draft->base = NULL;
    draft->origin.base = draft->base;
    return draft->base ? CAY_OK : cay_fail_memory(err, op);
}

enum { LOADS = 1, LAX = 2 };

static int parse(const char *text, size_t len, const char *name, const char *base,
                 unsigned flags, cay_config **ret_config, struct cay_error *err)
{
    __attribute__((cleanup(draft_done))) struct draft draft = {
        .origin = {.op = op, .name = name ? name : "configuration"},
        .loads = flags & LOADS,
        .whole = {.max = VALUES_MAX},
        .below = {.max = VALUES_MAX},
        .variables = {.max = VARIABLES_MAX},
        .expand = {.is_lax = flags & LAX},
    };

    if (len > YAML_TEXT_MAX)
        return cay_fail(err, CAY_E_INVALID, 0, op, draft.origin.name,
                        "the configuration is too large", "the limit is 1 MiB");
    int code = find_base(&draft, base, err);
    draft.expand.directory = draft.base;
    draft.expand.variables = &draft.variables;
    if (!code)
        code = record_text(&draft, text, len, err);
    return code ? code : read_values(&draft, ret_config, err);
}

int cay_config_parse(const char *text, size_t len, const char *name, const char *base,
                     cay_config **ret_config, struct cay_error *err)
{
    return parse(text, len, name, base, LOADS, ret_config, err);
}

int cay_config_restore(const char *json, cay_config **ret_config, struct cay_error *err)
{
    return parse(json, strlen(json), NULL, NULL, LOADS | LAX, ret_config, err);
}

static int load(const char *file, unsigned flags, cay_config **ret_config,
                struct cay_error *err)
{
    AUTO_FREE char *directory = NULL;
    AUTO_BUF text = {.max = 0};

    TRY(yaml_load_file(file, "config.load", &text, &directory, err));
    return parse(text.data, text.len, file, directory, flags, ret_config, err);
}

int cay_config_load(const char *file, cay_config **ret_config, struct cay_error *err)
{
    return load(file, LOADS, ret_config, err);
}

int cay_config_peek(const char *file, cay_config **ret_config, struct cay_error *err)
{
    return load(file, 0, ret_config, err);
}

void cay_config_free(cay_config *config)
{
    if (!config)
        return;
    for (size_t i = 0; i < config->count; i++)
        value_done(&config->values[i]);
    free(config->values);
    free(config);
}

/* --- Getters --- */

static const struct value none;

static const struct value *find(const cay_config *config, const char *field)
{
    const struct value *value = config_find(config, field);

    return value ? value : &none;
}

const char *cay_config_type(const cay_config *config)
{
    return config->backend->name;
}

const struct cay_field *cay_config_field(const cay_config *config, size_t index)
{
    return index < config->count ? config->values[index].field : NULL;
}

bool cay_config_has(const cay_config *config, const char *field)
{
    return find(config, field)->is_written;
}

const char *cay_config_text(const cay_config *config, const char *field)
{
    return find(config, field)->text;
}

int64_t cay_config_integer(const cay_config *config, const char *field)
{
    return find(config, field)->integer;
}

double cay_config_number(const cay_config *config, const char *field)
{
    return find(config, field)->number;
}

bool cay_config_boolean(const cay_config *config, const char *field)
{
    return find(config, field)->boolean;
}

size_t cay_config_count(const cay_config *config, const char *field)
{
    return find(config, field)->count;
}

bool cay_config_item(const cay_config *config, const char *field, size_t index,
                     const char **ret_key, const char **ret_value)
{
    const struct value *value = find(config, field);

    if (index >= value->count)
        return false;
    *ret_key = value->items[index].key;
    *ret_value = value->items[index].text;
    return true;
}

const cay_policy *cay_config_policy(const cay_config *config, const char *field)
{
    return find(config, field)->policy;
}
