/* SPDX-License-Identifier: Apache-2.0 */
/* A policy from text: cay-policy(5) describes the form. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/error.h"
#include "config/policy-entry.h"
#include "config/policy-file.h"
#include "config/yaml.h"
#include "policy/policy.h"

static const char op[] = "policy.parse";

struct draft {
    struct yaml *yaml;
    const char *name;     /* of the text, in errors and origins */
    enum cay_style style; /* 0 until one of root, paths and mounts was read */
    unsigned line;        /* of that key */
    bool has_policy;      /* "policy:" was there */
    char *unknown;        /* the first unknown top-level key, or NULL */
    unsigned unknown_line;
    struct entry *entries;
    size_t count;
};

static void draft_done(struct draft *draft)
{
    for (size_t i = 0; i < draft->count; i++)
        entry_done(&draft->entries[i]);
    free(draft->entries);
    free(draft->unknown);
}

/* Takes over `name`, which is NULL where the style has the name among the rules. */
static int add_entry(struct draft *draft, char *name, unsigned line,
                     const struct yaml_event *first, struct cay_error *err)
{
    struct entry *grown = reallocarray(draft->entries, draft->count + 1, sizeof *grown);

    if (!grown) {
        free(name);
        return cay_fail_memory(err, op);
    }
    draft->entries = grown;
    struct entry *entry = &grown[draft->count++];
    *entry = (struct entry){
        .mount = CAY_MOUNT_INIT, .name = name, .line = line, .name_line = line};
    entry->mount.writable = draft->style == CAY_STYLE_ROOT;
    if (asprintf(&entry->origin, "%s:%u: %s", draft->name, line, yaml_key(draft->yaml)) <
        0) {
        entry->origin = NULL;
        return cay_fail_memory(err, op);
    }
    return entry_read(draft->yaml, draft->style, first, entry, err);
}

static int read_paths(struct draft *draft, const struct yaml_event *first,
                      struct cay_error *err)
{
    struct yaml_event key, value;

    if (first->kind != YAML_MAP)
        return yaml_fail(err, draft->yaml, first->line, "must be a map of names",
                         "write \"NAME: {root: DIRECTORY}\" for each path");
    for (;;) {
        int code = entry_next_key(draft->yaml, &key, err);
        if (code || key.kind == YAML_MAP_END)
            return code;
        char *name = strdup(key.text);
        if (!name)
            return cay_fail_memory(err, op);
        size_t mark = yaml_enter(draft->yaml, name);
        unsigned line = key.line;
        code = yaml_next(draft->yaml, &value, err);
        if (code) {
            free(name);
            return code;
        }
        code = add_entry(draft, name, line, &value, err);
        if (code)
            return code;
        yaml_leave(draft->yaml, mark);
    }
}

static int read_mounts(struct draft *draft, const struct yaml_event *first,
                       struct cay_error *err)
{
    struct yaml_event item;

    if (first->kind != YAML_LIST)
        return yaml_fail(
            err, draft->yaml, first->line, "must be a list of mounts",
            "write \"- {host_path: DIRECTORY, mount_point: /data}\" for each");
    for (;;) {
        int code = yaml_next(draft->yaml, &item, err);
        if (!code && item.kind == YAML_LIST_END && draft->count == 0)
            return yaml_fail(err, draft->yaml, draft->line, "the list of mounts is empty",
                             "add at least one mount");
        if (code || item.kind == YAML_LIST_END)
            return code;
        size_t mark = yaml_enter_index(draft->yaml, draft->count);
        code = add_entry(draft, NULL, item.line, &item, err);
        if (code)
            return code;
        yaml_leave(draft->yaml, mark);
    }
}

static const char *const styles[] = {
    [CAY_STYLE_ROOT] = "root",
    [CAY_STYLE_PATHS] = "paths",
    [CAY_STYLE_MOUNTS] = "mounts",
    NULL,
};

static enum cay_style find_style(const char *key)
{
    for (int style = CAY_STYLE_ROOT; style <= CAY_STYLE_MOUNTS; style++)
        if (strcmp(styles[style], key) == 0)
            return (enum cay_style)style;
    return 0;
}

static int read_style(struct draft *draft, enum cay_style style, unsigned line,
                      struct cay_error *err)
{
    struct yaml_event value;

    if (draft->style)
        return yaml_fail(err, draft->yaml, line,
                         draft->style == style
                             ? "is given twice"
                             : "only one of root, paths and mounts may be used",
                         "line %u already has %s; keep one of them", draft->line,
                         styles[draft->style]);
    draft->style = style;
    draft->line = line;
    int code = yaml_next(draft->yaml, &value, err);
    if (code)
        return code;
    switch (style) {
    case CAY_STYLE_ROOT:
        return add_entry(draft, NULL, line, &value, err);
    case CAY_STYLE_PATHS:
        return read_paths(draft, &value, err);
    case CAY_STYLE_MOUNTS:
        return read_mounts(draft, &value, err);
    }
    return CAY_OK;
}

/* The map below "policy:". */
static int read_styles(struct draft *draft, const struct yaml_event *first,
                       struct cay_error *err)
{
    struct yaml_event key;
    int code = CAY_OK;

    if (first->kind != YAML_MAP)
        return yaml_fail(err, draft->yaml, first->line, "must be a map",
                         "write one of root, paths and mounts below it");
    while (!code) {
        code = entry_next_key(draft->yaml, &key, err);
        if (code || key.kind == YAML_MAP_END)
            return code;
        enum cay_style style = find_style(key.text);
        if (!style)
            return entry_fail_unknown(draft->yaml, key.line, key.text,
                                      styles + CAY_STYLE_ROOT, err);
        size_t mark = yaml_enter(draft->yaml, key.text);
        code = read_style(draft, style, key.line, err);
        if (!code)
            yaml_leave(draft->yaml, mark);
    }
    return code;
}

/* An unknown key is ignored if the text also has "policy:", which may come later. */
static int pass_over(struct draft *draft, const struct yaml_event *key,
                     struct cay_error *err)
{
    struct yaml_event value;

    if (!draft->unknown) {
        draft->unknown = strdup(key->text);
        draft->unknown_line = key->line;
        if (!draft->unknown)
            return cay_fail_memory(err, op);
    }
    int code = yaml_next(draft->yaml, &value, err);
    return code ? code : yaml_skip(draft->yaml, value.kind, err);
}

static int read_top_key(struct draft *draft, const struct yaml_event *key,
                        struct cay_error *err)
{
    enum cay_style style = find_style(key->text);

    if (!style && strcmp(key->text, "policy") != 0)
        return pass_over(draft, key, err);
    size_t mark = yaml_enter(draft->yaml, key->text);
    if (!style && draft->has_policy)
        return yaml_fail(err, draft->yaml, key->line, "is given twice",
                         "keep one of the two");
    draft->has_policy |= !style;
    struct yaml_event first;
    int code = style ? read_style(draft, style, key->line, err)
                     : yaml_next(draft->yaml, &first, err);
    if (!code && !style)
        code = read_styles(draft, &first, err);
    if (!code)
        yaml_leave(draft->yaml, mark);
    return code;
}

static int read_top(struct draft *draft, struct cay_error *err)
{
    static const char *const keys[] = {"policy", "root", "paths", "mounts", NULL};
    struct yaml_event key;
    int code = yaml_next(draft->yaml, &key, err);

    if (!code && key.kind != YAML_MAP)
        return yaml_fail(err, draft->yaml, key.line,
                         key.kind == YAML_END ? "the text is empty"
                                              : "the text is not a map of keys",
                         "start with one of policy, root, paths and mounts");
    while (!code) {
        code = entry_next_key(draft->yaml, &key, err);
        if (!code && key.kind == YAML_MAP_END)
            break;
        if (!code)
            code = read_top_key(draft, &key, err);
    }
    if (!code && draft->unknown && !draft->has_policy)
        return entry_fail_unknown(draft->yaml, draft->unknown_line, draft->unknown, keys,
                                  err);
    if (!code && !draft->style)
        return yaml_fail(err, draft->yaml, 1, "no policy found",
                         "add one of root, paths and mounts, at the top or below policy");
    return code ? code : yaml_next(draft->yaml, &key, err);
}

/* An error of the policy itself, with the line and the key added. */
static int fail_rule(const struct draft *draft, const struct policy_fault *fault,
                     const struct cay_error *rule, struct cay_error *err)
{
    const struct entry *entry = fault->mount ? &draft->entries[fault->mount - 1] : NULL;
    const char *key = entry ? strstr(entry->origin + strlen(draft->name), ": ") + 2
                            : styles[draft->style];
    const char *below = NULL;
    unsigned line = draft->line;
    char message[1024];

    if (entry) {
        below = fault->is_host ? entry->host_key : entry->name_key;
        line = fault->is_host ? entry->host_line : entry->name_line;
    }
    snprintf(message, sizeof message, "line %u: %s%s%s: %s", line, key, below ? "." : "",
             below ? below : "", rule->message);
    return cay_fail(err, CAY_E_INVALID, rule->sys_errno, yaml_op(draft->yaml),
                    draft->name, message, "%s", rule->hint);
}

static int build(const struct draft *draft, const char *base, cay_policy **ret_policy,
                 struct cay_error *err)
{
    AUTO_FREE struct cay_mount *mounts = calloc(draft->count + 1, sizeof *mounts);
    struct cay_error rule;
    struct policy_fault fault;

    if (!mounts)
        return cay_fail_memory(err, op);
    for (size_t i = 0; i < draft->count; i++) {
        const struct entry *entry = &draft->entries[i];

        mounts[i] = entry->mount;
        mounts[i].name = entry->name;
        mounts[i].host = entry->host;
        mounts[i].origin = entry->origin;
        mounts[i].suffixes = (const char *const *)entry->suffixes;
    }
    struct cay_policy_config config = {
        .size = sizeof config,
        .style = draft->style,
        .mounts = mounts,
        .mount_count = draft->count,
        .base = base,
    };
    int code = policy_build(&config, ret_policy, &fault, &rule);
    if (code == CAY_E_INVALID)
        return fail_rule(draft, &fault, &rule, err);
    if (code && err)
        *err = rule;
    return code;
}

int policy_read(struct yaml *yaml, const struct yaml_event *first, const char *name,
                const char *base, cay_policy **ret_policy, struct cay_error *err)
{
    struct draft draft
        __attribute__((cleanup(draft_done))) = {.yaml = yaml, .name = name};

    int code = read_styles(&draft, first, err);
    if (!code && !draft.style)
        return yaml_fail(err, yaml, first->line, "no policy found",
                         "add one of root, paths and mounts below it");
    return code ? code : build(&draft, base, ret_policy, err);
}

int cay_policy_parse(const char *text, size_t len, const char *name, const char *base,
                     cay_policy **ret_policy, struct cay_error *err)
{
    struct draft draft
        __attribute__((cleanup(draft_done))) = {.name = name ? name : "policy"};

    if (len > YAML_TEXT_MAX)
        return cay_fail(err, CAY_E_INVALID, 0, op, draft.name, "the policy is too large",
                        "the limit is 1 MiB");
    int code = yaml_open(len > 0 ? text : "", len, op, draft.name, &draft.yaml, err);
    if (!code)
        code = read_top(&draft, err);
    if (!code)
        code = build(&draft, base, ret_policy, err);
    yaml_free(draft.yaml);
    return code;
}

int cay_policy_load(const char *file, const char *base, cay_policy **ret_policy,
                    struct cay_error *err)
{
    AUTO_FREE char *directory = NULL;
    AUTO_BUF text = {.max = 0};

    int code = yaml_load_file(file, "policy.load", &text, &directory, err);
    if (code)
        return code;
    return cay_policy_parse(text.data, text.len, file, base ? base : directory,
                            ret_policy, err);
}
