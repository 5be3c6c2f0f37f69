/* SPDX-License-Identifier: Apache-2.0 */
#include "config/policy-entry.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/nearest.h"
#include "config/yaml.h"
#include "policy/words.h"

#define FIELDS_MAX 10

typedef int taker(struct yaml *yaml, const struct yaml_event *event, struct entry *entry,
                  struct cay_error *err);

struct field {
    const char *key;
    taker *take;
};

void entry_done(struct entry *entry)
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

static int take_write_approval(struct yaml *yaml, const struct yaml_event *event,
                               struct entry *entry, struct cay_error *err)
{
    return take_bool(yaml, event, &entry->mount.write_approval, err);
}

static int take_read_approval(struct yaml *yaml, const struct yaml_event *event,
                              struct entry *entry, struct cay_error *err)
{
    return take_bool(yaml, event, &entry->mount.read_approval, err);
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
        return cay_fail_memory(err, yaml_op(yaml));
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
        int code = yaml_next(yaml, &item, err);
        if (!code && item.kind == YAML_LIST_END)
            return CAY_OK;
        if (!code)
            code = add_suffix(yaml, &item, entry, err);
        if (code)
            return code;
    }
}

/* --- Maps ----------------------------------------------------------------------------
 */

static const struct field root_fields[] = {
    {"root", take_host},         {"readonly", take_readonly},
    {"suffixes", take_suffixes}, {"max_file_bytes", take_max_file_bytes},
    {"exec", take_exec},         {NULL, NULL},
};

static const struct field path_fields[] = {
    {"root", take_host},
    {"mode", take_mode},
    {"suffixes", take_suffixes},
    {"max_file_bytes", take_max_file_bytes},
    {"write_approval", take_write_approval},
    {"read_approval", take_read_approval},
    {"exec", take_exec},
    {NULL, NULL},
};

static const struct field mount_fields[] = {
    {"host_path", take_host},
    {"mount_point", take_mount_point},
    {"mode", take_mode},
    {"suffixes", take_suffixes},
    {"max_file_bytes", take_max_file_bytes},
    {"write_approval", take_write_approval},
    {"read_approval", take_read_approval},
    {"exec", take_exec},
    {NULL, NULL},
};

_Static_assert(sizeof mount_fields / sizeof *mount_fields <= FIELDS_MAX, "no room");

int entry_next_key(struct yaml *yaml, struct yaml_event *ret_key, struct cay_error *err)
{
    int code = yaml_next(yaml, ret_key, err);

    if (code || ret_key->kind == YAML_MAP_END)
        return code;
    if (ret_key->kind != YAML_SCALAR)
        return yaml_fail(err, yaml, ret_key->line, "a key must be a plain word",
                         "write \"key: value\"");
    return yaml_check_nul(yaml, ret_key, err);
}

int entry_fail_unknown(struct yaml *yaml, unsigned line, const char *key,
                       const char *const *keys, struct cay_error *err)
{
    struct words_list known = {.len = 0};
    size_t count = 0;

    for (; keys[count]; count++)
        words_add(&known, keys[count]);
    const char *nearest = nearest_name(key, keys, sizeof *keys, count);
    yaml_enter(yaml, key);
    if (nearest)
        return yaml_fail(err, yaml, line, "unknown key",
                         "did you mean %s? the keys here are %s", nearest,
                         words_end(&known));
    return yaml_fail(err, yaml, line, "unknown key", "the keys here are %s",
                     words_end(&known));
}

static int read_field(struct yaml *yaml, const struct field *fields,
                      const struct yaml_event *key, unsigned *seen, struct entry *entry,
                      struct cay_error *err)
{
    const char *keys[FIELDS_MAX] = {NULL};
    struct yaml_event value;
    size_t i = 0;

    while (fields[i].key && strcmp(fields[i].key, key->text) != 0) {
        keys[i] = fields[i].key;
        i++;
    }
    if (!fields[i].key)
        return entry_fail_unknown(yaml, key->line, key->text, keys, err);
    size_t mark = yaml_enter(yaml, key->text);
    if (*seen & 1u << i)
        return yaml_fail(err, yaml, key->line, "is given twice", "keep one of the two");
    *seen |= 1u << i;
    int code = yaml_next(yaml, &value, err);
    if (!code)
        code = fields[i].take(yaml, &value, entry, err);
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

int entry_read(struct yaml *yaml, enum cay_style style, const struct yaml_event *first,
               struct entry *entry, struct cay_error *err)
{
    const struct field *fields = style == CAY_STYLE_ROOT    ? root_fields
                                 : style == CAY_STYLE_PATHS ? path_fields
                                                            : mount_fields;
    unsigned seen = 0;
    struct yaml_event key;

    if (style == CAY_STYLE_ROOT && yaml_is_text(first))
        return take_host(yaml, first, entry, err);
    entry->host_key = fields[0].key;
    entry->name_key = style == CAY_STYLE_MOUNTS ? fields[1].key : NULL;
    if (first->kind != YAML_MAP)
        return yaml_fail(err, yaml, first->line,
                         style == CAY_STYLE_ROOT ? "must be a string or a map of rules"
                                                 : "must be a map of rules",
                         "write at least \"%s: DIRECTORY\" below it", fields[0].key);
    for (;;) {
        int code = entry_next_key(yaml, &key, err);
        if (!code && key.kind == YAML_MAP_END)
            return check_complete(yaml, style, entry, err);
        if (!code)
            code = read_field(yaml, fields, &key, &seen, entry, err);
        if (code)
            return code;
    }
}
