/* SPDX-License-Identifier: Apache-2.0 */
/* A policy from text: cay-policy(5) describes the form. */
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/error.h"
#include "config/policy-network.h"
#include "config/value.h"
#include "config/yaml.h"
#include "policy/policy.h"

static const char op[] = "policy.parse";

/* One mount of a policy while it is parsed; owns what its `mount` points to. */
struct entry {
    struct cay_mount mount;
    char *name, *host, *origin;
    char **suffixes;
    unsigned line, name_line, host_line;
    const char *name_key,
        *host_key; /* where they are below the entry's own key, or NULL */
};

static void entry_done(struct entry *entry)
{
    for (size_t i = 0; i < entry->mount.suffix_count; i++)
        free(entry->suffixes[i]);
    free(entry->suffixes);
    free(entry->name);
    free(entry->host);
    free(entry->origin);
}

/* --- Values --------------------------------------------------------------------------
 */

static int take_bool(struct yaml *yaml, const struct yaml_event *event, bool *ret_value,
                     struct cay_error *err)
{
    if ((!event->plain && !event->written) ||
        !(yaml_is_word(event, "true") || yaml_is_word(event, "false")))
        return yaml_fail(err, yaml, event->line, "must be true or false",
                         "write true or false without quotes");
    *ret_value = yaml_is_word(event, "true");
    return CAY_OK;
}

static int take_access(struct yaml *yaml, const struct yaml_event *event,
                       bool *ret_writable, struct cay_error *err)
{
    if (!yaml_is_word(event, "ro") && !yaml_is_word(event, "rw"))
        return yaml_fail(err, yaml, event->line, "must be ro or rw",
                         "ro is read-only, rw is readable and writable");
    *ret_writable = yaml_is_word(event, "rw");
    return CAY_OK;
}

/* --- Keys ----------------------------------------------------------------------------
 */

static int take_host(struct yaml *yaml, const struct yaml_event *event,
                     struct entry *entry, struct cay_error *err)
{
    int code = yaml_take_text(yaml, event, &entry->host, err);

    entry->host_line = event->line;
    if (!code && !*entry->host)
        return yaml_fail(err, yaml, event->line, "must not be empty",
                         "name a directory; \".\" is the base of relative paths");
    return code;
}

static int take_mount_point(struct yaml *yaml, const struct yaml_event *event,
                            struct entry *entry, struct cay_error *err)
{
    entry->name_line = event->line;
    return yaml_take_text(yaml, event, &entry->name, err);
}

static int take_mode(struct yaml *yaml, const struct yaml_event *event,
                     struct entry *entry, struct cay_error *err)
{
    return take_access(yaml, event, &entry->mount.writable, err);
}

static int take_readonly(struct yaml *yaml, const struct yaml_event *event,
                         struct entry *entry, struct cay_error *err)
{
    bool readonly = false;
    int code = take_bool(yaml, event, &readonly, err);

    entry->mount.writable = !readonly;
    return code;
}

static int take_exec(struct yaml *yaml, const struct yaml_event *event,
                     struct entry *entry, struct cay_error *err)
{
    bool writable = false;
    int code = take_access(yaml, event, &writable, err);

    entry->mount.exec = writable ? CAY_EXEC_RW : CAY_EXEC_RO;
    return code;
}

static int take_max_file_bytes(struct yaml *yaml, const struct yaml_event *event,
                               struct entry *entry, struct cay_error *err)
{
    if (yaml_is_null(event)) {
        entry->mount.max_file_bytes = CAY_NO_LIMIT;
        return CAY_OK;
    }
    if (event->kind != YAML_SCALAR || (!event->plain && !event->written) ||
        event->len == 0 || strspn(event->text, "0123456789") != event->len)
        return yaml_fail(err, yaml, event->line, "must be a number of bytes, or null",
                         "write a whole number of 0 or more, digits only");
    errno = 0;
    long long number = strtoll(event->text, NULL, 10);
    if (errno)
        return yaml_fail(err, yaml, event->line, "the number is too large",
                         "the maximum is %jd; null means no limit", INTMAX_MAX);
    entry->mount.max_file_bytes = number;
    return CAY_OK;
}

/* One that no file can have would silently allow nothing. */
static int check_suffix(struct yaml *yaml, const struct yaml_event *event,
                        const char *suffix, struct cay_error *err)
{
    const char *dot = strrchr(suffix, '.');

    if (!*suffix || dot == suffix)
        return CAY_OK;
    return yaml_fail(err, yaml, event->line,
                     dot ? "only the last suffix of a name counts"
                         : "a suffix starts with a dot",
                     "write %s%s", dot ? "" : ".", dot ? dot : suffix);
}

static int add_suffix(struct yaml *yaml, const struct yaml_event *event,
                      struct entry *entry, struct cay_error *err)
{
    size_t count = entry->mount.suffix_count;
    char **grown = reallocarray(entry->suffixes, count + 1, sizeof *grown);

    if (!grown)
        return yaml_fail_memory(err, yaml);
    entry->suffixes = grown;
    size_t mark = yaml_enter_index(yaml, count);
    int code = yaml_take_text(yaml, event, &grown[count], err);
    entry->mount.suffix_count += !code;
    if (!code)
        code = check_suffix(yaml, event, grown[count], err);
    yaml_leave(yaml, mark);
    return code;
}

static int take_suffixes(struct yaml *yaml, const struct yaml_event *event,
                         struct entry *entry, struct cay_error *err)
{
    struct yaml_event item;

    if (yaml_is_null(event))
        return CAY_OK;
    if (event->kind != YAML_LIST)
        return yaml_fail(err, yaml, event->line, "must be a list of suffixes, or null",
                         "[.txt, .md] allows these two, [] allows none, null allows all");
    entry->mount.limit_suffixes = true;
    for (;;) {
        TRY(yaml_next(yaml, &item, err));
        if (item.kind == YAML_LIST_END)
            return CAY_OK;
        TRY(add_suffix(yaml, &item, entry, err));
    }
}

/* --- Maps --- */

enum {
    ROOT = 1 << CAY_STYLE_ROOT,
    PATHS = 1 << CAY_STYLE_PATHS,
    MOUNTS = 1 << CAY_STYLE_MOUNTS
};

static const struct field {
    const char *key;
    int styles;
    int (*take)(struct yaml *yaml, const struct yaml_event *event, struct entry *entry,
                struct cay_error *err);
    size_t at; /* if there is no function: the boolean in struct entry */
} fields[] = {
    {"root", ROOT | PATHS, take_host, 0},
    {"host_path", MOUNTS, take_host, 0},
    {"mount_point", MOUNTS, take_mount_point, 0},
    {"readonly", ROOT, take_readonly, 0},
    {"mode", PATHS | MOUNTS, take_mode, 0},
    {"suffixes", ROOT | PATHS | MOUNTS, take_suffixes, 0},
    {"max_file_bytes", ROOT | PATHS | MOUNTS, take_max_file_bytes, 0},
    {"write_approval", PATHS | MOUNTS, NULL,
     offsetof(struct entry, mount.write_approval)},
    {"read_approval", PATHS | MOUNTS, NULL, offsetof(struct entry, mount.read_approval)},
    {"exec", ROOT | PATHS | MOUNTS, take_exec, 0},
};
enum { FIELD_COUNT = sizeof fields / sizeof *fields };

static int read_field(struct yaml *yaml, enum cay_style style,
                      const struct yaml_event *key, unsigned *seen, struct entry *entry,
                      struct cay_error *err)
{
    const char *keys[FIELD_COUNT + 1] = {NULL};
    const struct field *field = NULL;
    struct yaml_event value;
    size_t count = 0;

    for (size_t i = 0; i < FIELD_COUNT; i++) {
        if (!(fields[i].styles >> style & 1))
            continue;
        keys[count++] = fields[i].key;
        if (strcmp(fields[i].key, key->text) == 0)
            field = &fields[i];
    }
    if (!field)
        return yaml_fail_unknown(yaml, key->line, key->text, keys, err);
    size_t mark = yaml_enter(yaml, key->text);
    unsigned bit = 1u << (field - fields);
    if (*seen & bit)
        return yaml_fail(err, yaml, key->line, "is given twice", "keep one of the two");
    *seen |= bit;
    int code = yaml_next(yaml, &value, err);
    if (!code)
        code = field->take
                   ? field->take(yaml, &value, entry, err)
                   : take_bool(yaml, &value, (bool *)((char *)entry + field->at), err);
    if (!code)
        yaml_leave(yaml, mark);
    return code;
}

static int check_complete(struct yaml *yaml, enum cay_style style,
                          const struct entry *entry, struct cay_error *err)
{
    bool is_mount = style == CAY_STYLE_MOUNTS;

    if (!entry->host)
        return yaml_fail(err, yaml, entry->line,
                         is_mount ? "host_path is missing" : "root is missing",
                         "name the host directory");
    if (is_mount && !entry->name)
        return yaml_fail(err, yaml, entry->line, "mount_point is missing",
                         "name the path in the sandbox, for example /data");
    return CAY_OK;
}

/* Reads the rules of one mount, by the keys of its style, from the value that `first`
 * starts.  The caller has filled in the line and the defaults. */
static int entry_read(struct yaml *yaml, enum cay_style style,
                      const struct yaml_event *first, struct entry *entry,
                      struct cay_error *err)
{
    bool is_mount = style == CAY_STYLE_MOUNTS;
    unsigned seen = 0;
    struct yaml_event key;

    if (style == CAY_STYLE_ROOT && yaml_is_text(first))
        return take_host(yaml, first, entry, err);
    entry->host_key = is_mount ? "host_path" : "root";
    entry->name_key = is_mount ? "mount_point" : NULL;
    if (first->kind != YAML_MAP)
        return yaml_fail(err, yaml, first->line,
                         style == CAY_STYLE_ROOT ? "must be a string or a map of rules"
                                                 : "must be a map of rules",
                         "write at least \"%s: DIRECTORY\" below it", entry->host_key);
    for (;;) {
        TRY(yaml_next_key(yaml, &key, err));
        if (key.kind == YAML_MAP_END)
            return check_complete(yaml, style, entry, err);
        TRY(read_field(yaml, style, &key, &seen, entry, err));
    }
}

/* --- The whole policy --- */

struct draft {
    struct yaml *yaml;
    enum cay_style style; /* 0 until one of root, paths and mounts was read */
    unsigned line;        /* of that key */
    bool has_policy;      /* "policy:" was there */
    char *unknown;        /* the first unknown top-level key, or NULL */
    unsigned unknown_line;
    struct entry *entries;
    size_t count;
    struct network_key network;
};

static void draft_done(struct draft *draft)
{
    network_key_done(&draft->network);
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
    if (asprintf(&entry->origin, "%s:%u: %s", yaml_origin(draft->yaml)->name, line,
                 yaml_key(draft->yaml)) < 0) {
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
        TRY(yaml_next_key(draft->yaml, &key, err));
        if (key.kind == YAML_MAP_END)
            return CAY_OK;
        AUTO_FREE char *name = strdup(key.text);
        if (!name)
            return cay_fail_memory(err, op);
        size_t mark = yaml_enter(draft->yaml, name);
        unsigned line = key.line;
        TRY(yaml_next(draft->yaml, &value, err));
        TRY(add_entry(draft, TAKE_PTR(name), line, &value, err));
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
        TRY(yaml_next(draft->yaml, &item, err));
        if (item.kind == YAML_LIST_END && draft->count == 0)
            return yaml_fail(err, draft->yaml, draft->line, "the list of mounts is empty",
                             "add at least one mount");
        if (item.kind == YAML_LIST_END)
            return CAY_OK;
        size_t mark = yaml_enter_index(draft->yaml, draft->count);
        TRY(add_entry(draft, NULL, item.line, &item, err));
        yaml_leave(draft->yaml, mark);
    }
}

static const char *const styles[] = {
    [CAY_STYLE_ROOT] = "root",
    [CAY_STYLE_PATHS] = "paths",
    [CAY_STYLE_MOUNTS] = "mounts",
    "network",
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
    TRY(yaml_next(draft->yaml, &value, err));
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

static int read_network(struct draft *draft, unsigned line, struct cay_error *err)
{
    struct yaml_event value;

    if (draft->network.line)
        return yaml_fail(err, draft->yaml, line, "is given twice",
                         "line %u already has it; keep one of the two",
                         draft->network.line);
    TRY(yaml_next(draft->yaml, &value, err));
    return network_key_read(draft->yaml, &value, &draft->network, err);
}

/* The value of a key that find_key() knows. */
static int read_key(struct draft *draft, const char *name, unsigned line,
                    struct cay_error *err)
{
    enum cay_style style = find_style(name);
    size_t mark = yaml_enter(draft->yaml, name);

    TRY(style ? read_style(draft, style, line, err) : read_network(draft, line, err));
    yaml_leave(draft->yaml, mark);
    return CAY_OK;
}

static bool is_key(const char *name)
{
    return find_style(name) || strcmp(name, "network") == 0;
}

/* The map below "policy:". */
static int read_styles(struct draft *draft, const struct yaml_event *first,
                       struct cay_error *err)
{
    struct yaml_event key;

    if (first->kind != YAML_MAP)
        return yaml_fail(err, draft->yaml, first->line, "must be a map",
                         "write one of root, paths and mounts, or network, below it");
    for (;;) {
        TRY(yaml_next_key(draft->yaml, &key, err));
        if (key.kind == YAML_MAP_END)
            return CAY_OK;
        if (!is_key(key.text))
            return yaml_fail_unknown(draft->yaml, key.line, key.text,
                                     styles + CAY_STYLE_ROOT, err);
        TRY(read_key(draft, key.text, key.line, err));
    }
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
    TRY(yaml_next(draft->yaml, &value, err));
    return yaml_skip(draft->yaml, value.kind, err);
}

static int read_top_key(struct draft *draft, const struct yaml_event *key,
                        struct cay_error *err)
{
    struct yaml_event first;

    if (is_key(key->text))
        return read_key(draft, key->text, key->line, err);
    if (strcmp(key->text, "policy") != 0)
        return pass_over(draft, key, err);
    size_t mark = yaml_enter(draft->yaml, key->text);
    if (draft->has_policy)
        return yaml_fail(err, draft->yaml, key->line, "is given twice",
                         "keep one of the two");
    draft->has_policy = true;
    TRY(yaml_next(draft->yaml, &first, err));
    TRY(read_styles(draft, &first, err));
    yaml_leave(draft->yaml, mark);
    return CAY_OK;
}

static int read_top(struct draft *draft, struct cay_error *err)
{
    static const char *const keys[] = {"policy", "root",    "paths",
                                       "mounts", "network", NULL};
    struct yaml_event key;
    int code = yaml_next(draft->yaml, &key, err);

    if (!code && key.kind != YAML_MAP)
        return yaml_fail(err, draft->yaml, key.line,
                         key.kind == YAML_END ? "the text is empty"
                                              : "the text is not a map of keys",
                         "start with one of policy, root, paths, mounts and network");
    while (!code) {
        code = yaml_next_key(draft->yaml, &key, err);
        if (!code && key.kind == YAML_MAP_END)
            break;
        if (!code)
            code = read_top_key(draft, &key, err);
    }
    if (!code && draft->unknown && !draft->has_policy)
        return yaml_fail_unknown(draft->yaml, draft->unknown_line, draft->unknown, keys,
                                 err);
    if (!code && !draft->style && !draft->network.line)
        return yaml_fail(err, draft->yaml, 1, "no policy found",
                         "add one of root, paths and mounts, or network, at the top or "
                         "below policy");
    return code ? code : yaml_next(draft->yaml, &key, err);
}

/* An error of the policy itself, with the line and the key added. */
static int fail_rule(const struct draft *draft, const struct policy_fault *fault,
                     const struct cay_error *rule, struct cay_error *err)
{
    const struct entry *entry = fault->mount ? &draft->entries[fault->mount - 1] : NULL;
    const char *key =
        entry ? strstr(entry->origin + strlen(yaml_origin(draft->yaml)->name), ": ") + 2
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
    return cay_fail(err, CAY_E_INVALID, rule->sys_errno, yaml_origin(draft->yaml)->op,
                    yaml_origin(draft->yaml)->name, message, "%s", rule->hint);
}

static int build(const struct draft *draft, cay_policy **ret_policy,
                 struct cay_error *err)
{
    AUTO_FREE struct cay_mount *mounts = calloc(draft->count + 1, sizeof *mounts);
    cay_policy *policy = NULL;
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
        .style = draft->style ? draft->style : CAY_STYLE_PATHS,
        .mounts = mounts,
        .mount_count = draft->count,
        .base = yaml_origin(draft->yaml)->base,
    };
    int code = policy_build(&config, &policy, &fault, &rule);
    if (code == CAY_E_INVALID)
        return fail_rule(draft, &fault, &rule, err);
    if (code)
        return cay_fail_as(err, code, &rule);
    if (draft->network.line)
        code = network_key_apply(draft->yaml, &draft->network, &policy, err);
    if (code)
        cay_policy_free(policy);
    else
        *ret_policy = policy;
    return code;
}

int policy_read(struct yaml *yaml, const struct yaml_event *first,
                cay_policy **ret_policy, struct cay_error *err)
{
    struct draft draft __attribute__((cleanup(draft_done))) = {.yaml = yaml};

    int code = read_styles(&draft, first, err);
    if (!code && !draft.style && !draft.network.line)
        return yaml_fail(err, yaml, first->line, "no policy found",
                         "add one of root, paths and mounts, or network, below it");
    return code ? code : build(&draft, ret_policy, err);
}

int cay_policy_parse(const char *text, size_t len, const char *name, const char *base,
                     cay_policy **ret_policy, struct cay_error *err)
{
    const struct yaml_origin origin = {op, name ? name : "policy", base};
    AUTO_YAML *yaml = NULL;

    if (len > YAML_TEXT_MAX)
        return cay_fail(err, CAY_E_INVALID, 0, op, origin.name, "the policy is too large",
                        "the limit is 1 MiB");
    TRY(yaml_open(len > 0 ? text : "", len, &origin, &yaml, err));
    struct draft draft __attribute__((cleanup(draft_done))) = {.yaml = yaml};
    TRY(read_top(&draft, err));
    return build(&draft, ret_policy, err);
}

int cay_policy_load(const char *file, const char *base, cay_policy **ret_policy,
                    struct cay_error *err)
{
    AUTO_FREE char *directory = NULL;
    AUTO_BUF text = {.max = 0};

    TRY(yaml_load_file(file, "policy.load", &text, &directory, err));
    return cay_policy_parse(text.data, text.len, file, base ? base : directory,
                            ret_policy, err);
}
