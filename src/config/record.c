/* SPDX-License-Identifier: Apache-2.0 */
#include "config/record.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/utf8.h"

/* Escapes such as "\L" make a text longer than its source, and each text has a NUL. */
#define TEXTS_MAX ((size_t)4 << 20)

struct record_node {
    enum yaml_kind kind;
    unsigned line;
    bool plain, is_key;
    const struct yaml_refusal *refusal;
    size_t text, len; /* a scalar's: where in the texts */
    size_t end;       /* the index after the value that starts here */
};

void record_done(struct record *record)
{
    free(record->nodes);
    buf_done(&record->texts);
}

int record_event(struct record *record, const struct yaml *yaml,
                 const struct yaml_event *event, bool is_key, struct cay_error *err)
{
    if (record->count == record->max && !record->line)
        record->line = event->line;
    if (record->line)
        return CAY_OK;
    record->texts.max = TEXTS_MAX;
    size_t text = record->texts.len;
    bool is_scalar = event->kind == YAML_SCALAR;
    if (!array_reserve(&record->nodes, &record->room, record->count + 1,
                       sizeof *record->nodes) ||
        (is_scalar && !(buf_append(&record->texts, event->text, event->len) &&
                        buf_append(&record->texts, "", 1))))
        return yaml_fail_memory(err, yaml);
    record->nodes[record->count] = (struct record_node){
        .kind = event->kind,
        .line = event->line,
        .plain = event->plain,
        .is_key = is_key,
        .refusal = event->refusal,
        .text = text,
        .len = event->len,
        .end = record->count + 1,
    };
    record->count++;
    return CAY_OK;
}

int record_value(struct record *record, struct yaml *yaml, const struct yaml_event *first,
                 struct cay_error *err)
{
    struct level {
        size_t start;
        bool is_map, wants_key;
    } levels[YAML_DEPTH_MAX] = {{.start = 0}}, nobody = {.start = 0};
    struct yaml_event event = *first;
    size_t depth = 0;
    int code;

    do {
        bool opens = event.kind == YAML_MAP || event.kind == YAML_LIST;
        bool ends = event.kind == YAML_MAP_END || event.kind == YAML_LIST_END;
        depth -= ends;
        struct level *around = depth > 0 ? &levels[depth - 1] : &nobody;
        size_t index = record->count;
        code = record_event(record, yaml, &event,
                            !ends && around->is_map && around->wants_key, err);
        if (opens)
            levels[depth++] = (struct level){index, event.kind == YAML_MAP, true};
        else
            around->wants_key = !around->wants_key;
        if (ends && !record->line && !code)
            record->nodes[levels[depth].start].end = record->count;
        if (!code && depth > 0)
            code = yaml_next(yaml, &event, err);
    } while (!code && depth > 0);
    return code;
}

static struct yaml_event event_of(const struct record *record,
                                  const struct record_node *node)
{
    return (struct yaml_event){
        .kind = node->kind,
        .line = node->line,
        .plain = node->plain,
        .text = node->kind == YAML_SCALAR ? record->texts.data + node->text : NULL,
        .len = node->len,
    };
}

static int replay_next(void *cookie, const struct yaml *yaml,
                       struct yaml_event *ret_event, struct cay_error *err)
{
    struct replay *replay = cookie;
    const struct record *record = replay->record;
    struct yaml_event event = {.kind = YAML_END};

    if (replay->at < record->count) {
        const struct record_node *node = &record->nodes[replay->at++];
        event = event_of(record, node);
        if (node->refusal)
            return yaml_fail(err, yaml, node->line, node->refusal->message, "%s",
                             node->refusal->hint);
        if (node->kind == YAML_SCALAR && !node->is_key)
            TRY(expand_event(replay->expand, yaml, &event, err));
    }
    *ret_event = event;
    return CAY_OK;
}

static void replay_skip(void *cookie)
{
    struct replay *replay = cookie;

    replay->at = replay->record->nodes[replay->at - 1].end;
}

int record_open(struct replay *replay, const struct yaml_origin *origin,
                struct yaml **ret_yaml, struct cay_error *err)
{
    const struct yaml_source source = {
        .cookie = replay, .next = replay_next, .skip = replay_skip};

    return yaml_open_source(&source, origin, ret_yaml, err);
}

/* From a key, or the end, of a map on. */
static const struct record_node *find_next(const struct record *record,
                                           const struct record_node *node,
                                           const char *key, size_t len)
{
    while (node->kind != YAML_MAP_END) {
        const struct record_node *value = &record->nodes[node->end];
        if (node->kind == YAML_SCALAR && node->len == len &&
            memcmp(record->texts.data + node->text, key, len) == 0)
            return value;
        node = &record->nodes[value->end];
    }
    return NULL;
}

static const struct record_node *find_key(const struct record *record,
                                          const struct record_node *map, const char *key,
                                          size_t len)
{
    return map->kind == YAML_MAP ? find_next(record, map + 1, key, len) : NULL;
}

bool record_has(const struct record *record, const char *key, enum yaml_kind *ret_item)
{
    const struct record_node *node =
        record->count > 0 ? find_key(record, record->nodes, key, strlen(key)) : NULL;

    if (!node)
        return false;
    *ret_item = node->kind == YAML_LIST  ? node[1].kind
                : node->kind == YAML_MAP ? YAML_MAP_END
                                         : YAML_END;
    return true;
}

bool record_find(const struct record *record, const char *keys, size_t len,
                 struct yaml_event *ret_event, unsigned *ret_twice)
{
    const struct record_node *node = record->count > 0 ? record->nodes : NULL;

    *ret_twice = 0;
    while (node && len > 0) {
        const char *dot = memchr(keys, '.', len);
        size_t step = dot ? (size_t)(dot - keys) : len;
        node = find_key(record, node, keys, step);
        const struct record_node *other =
            node ? find_next(record, &record->nodes[node->end], keys, step) : NULL;
        if (other)
            *ret_twice = other->line;
        step += dot != NULL;
        keys += step;
        len -= step;
    }
    if (!node || node->kind != YAML_SCALAR || node->refusal)
        return false;
    *ret_event = event_of(record, node);
    return true;
}

/* --- "${...}" --- */

#define EXPANDED_MAX ((size_t)1 << 20)
#define NAME_LEN_MAX 128

/* One text while it is replaced. */
struct pass {
    struct expand *expand;
    const struct yaml *yaml;
    unsigned line;
    bool in_variable;
};

void expand_done(struct expand *expand)
{
    buf_done(&expand->text);
    buf_done(&expand->written);
}

static size_t name_len(const char *text, size_t len)
{
    size_t at = 0;

    while (at < len && ((text[at] >= 'A' && text[at] <= 'Z') ||
                        (text[at] >= 'a' && text[at] <= 'z') || text[at] == '_' ||
                        (at > 0 && text[at] >= '0' && text[at] <= '9')))
        at++;
    return at;
}

/* The rest of `text` after the word, or NULL. */
static const char *after(const char *text, size_t len, const char *word)
{
    size_t word_len = strlen(word);

    return len >= word_len && memcmp(text, word, word_len) == 0 ? text + word_len : NULL;
}

bool expand_is_env(const char *text)
{
    const char *name = after(text, strlen(text), "${env.");
    size_t len = name ? name_len(name, strlen(name)) : 0;

    return len > 0 && strcmp(name + len, "}") == 0;
}

/* The error never quotes the text: it may be part of a secret. */
static int fail_unknown(const struct pass *pass, struct cay_error *err)
{
    return yaml_fail(err, pass->yaml, pass->line, "invalid \"${...}\" reference",
                     "use %s, or write \"$${\" for a literal \"${\"",
                     pass->in_variable
                         ? "${env.NAME} or ${this_file_dir} in variables"
                         : "${env.NAME}, ${this_file_dir} or ${variables.NAME}");
}

static int append(const struct pass *pass, struct buf *buf, const char *text, size_t len,
                  struct cay_error *err)
{
    struct expand *expand = pass->expand;

    expand->spent += len;
    if (expand->spent > EXPANDED_MAX)
        return yaml_fail(err, pass->yaml, pass->line, "the expanded texts are too long",
                         "the limit for all of them together is 1 MiB");
    buf->max = EXPANDED_MAX;
    if (!buf_append(buf, text, len))
        return yaml_fail_memory(err, pass->yaml);
    return CAY_OK;
}

/* A "$" at the end of one piece and "{" at the start of the next would form a reference.
 */
static bool joins_well(const struct buf *buf, const char *text, size_t len)
{
    bool is_open = buf->len > 0 && buf->data[buf->len - 1] == '$';

    return !is_open || len == 0 ||
           !(text[0] == '{' || (len > 1 && memcmp(text, "${", 2) == 0));
}

/* Adds to both forms. */
static int append_both(const struct pass *pass, const char *text, size_t len,
                       const char *written, size_t written_len, struct cay_error *err)
{
    int code = append(pass, &pass->expand->text, text, len, err);

    if (!joins_well(&pass->expand->written, written, written_len))
        pass->expand->has_no_form = true;
    return code ? code : append(pass, &pass->expand->written, written, written_len, err);
}

static int append_env(const struct pass *pass, const char *name, size_t len,
                      struct cay_error *err)
{
    char message[256], reference[NAME_LEN_MAX + 8], word[NAME_LEN_MAX + 1];

    if (len == 0 || len > NAME_LEN_MAX || name_len(name, len) != len)
        return fail_unknown(pass, err);
    memcpy(word, name, len);
    word[len] = '\0';
    const char *value = getenv(word);
    if (!value && pass->expand->is_lax) {
        pass->expand->is_missing = true;
        value = "";
    }
    if (!value) {
        snprintf(message, sizeof message, "the environment variable %s is not set", word);
        return yaml_fail(err, pass->yaml, pass->line, message,
                         "set the variable, or write the value itself");
    }
    if (!utf8_is_valid(value, strlen(value))) {
        snprintf(message, sizeof message, "the environment variable %s is not UTF-8",
                 word);
        return yaml_fail(err, pass->yaml, pass->line, message,
                         "set the variable to UTF-8 text");
    }
    pass->expand->has_env = true;
    snprintf(reference, sizeof reference, "${env.%s}", word);
    return append_both(pass, value, strlen(value), reference, strlen(reference), err);
}

static int replace(const struct pass *pass, const char *text, size_t len,
                   struct cay_error *err);

static int append_variable(const struct pass *pass, const char *name, size_t len,
                           struct cay_error *err)
{
    const struct record *variables = pass->expand->variables;
    struct pass within = *pass;
    struct yaml_event value;
    unsigned twice;

    if (pass->in_variable || len == 0)
        return fail_unknown(pass, err);
    if (variables->line)
        return yaml_fail(err, pass->yaml, variables->line, "there are too many variables",
                         "the limit is %zu values", variables->max / 2);
    bool is_found = record_find(variables, name, len, &value, &twice);
    if (twice)
        return yaml_fail(err, pass->yaml, twice, "a variable is given twice",
                         "keep one of the two");
    if (!is_found)
        return yaml_fail(err, pass->yaml, pass->line,
                         "no variable of this name has a text value",
                         "define it below variables: at the top of the file; maps and "
                         "lists cannot be inserted into a text");
    within.in_variable = true;
    return replace(&within, value.text, value.len, err);
}

/* The directory may have "${" in its own name. */
static int append_directory(const struct pass *pass, struct cay_error *err)
{
    const char *text = pass->expand->directory;
    int code = CAY_OK;

    while (!code && *text) {
        const char *start = strstr(text, "${");
        size_t len = start ? (size_t)(start - text) : strlen(text);
        code = append_both(pass, text, len, text, len, err);
        if (!code && start)
            code = append_both(pass, "${", 2, "$${", 3, err);
        text += start ? len + 2 : len;
    }
    return code;
}

/* `text` is the part between "${" and "}". */
static int append_named(const struct pass *pass, const char *text, size_t len,
                        struct cay_error *err)
{
    const char *env = after(text, len, "env.");
    const char *variable = after(text, len, "variables.");
    const char *directory = after(text, len, "this_file_dir");

    if (env)
        return append_env(pass, env, (size_t)(text + len - env), err);
    if (variable)
        return append_variable(pass, variable, (size_t)(text + len - variable), err);
    if (directory == text + len)
        return append_directory(pass, err);
    return fail_unknown(pass, err);
}

static int replace(const struct pass *pass, const char *text, size_t len,
                   struct cay_error *err)
{
    const char *end = text + len;
    int code = CAY_OK;

    while (!code && text < end) {
        const char *start = memmem(text, (size_t)(end - text), "${", 2);
        bool is_plain = start && start > text && start[-1] == '$'; /* "$${" */
        size_t before = (size_t)((start ? start : end) - text) - is_plain;

        code = append_both(pass, text, before, text, before, err);
        if (code || !start)
            break;
        if (is_plain) {
            code = append_both(pass, "${", 2, "$${", 3, err);
            text = start + 2;
            continue;
        }
        const char *close = memchr(start, '}', (size_t)(end - start));
        if (!close)
            return fail_unknown(pass, err);
        code = append_named(pass, start + 2, (size_t)(close - start - 2), err);
        text = close + 1;
    }
    return code;
}

int expand_event(struct expand *expand, const struct yaml *yaml, struct yaml_event *event,
                 struct cay_error *err)
{
    const struct pass pass = {.expand = expand, .yaml = yaml, .line = event->line};

    if (!memmem(event->text, event->len, "${", 2))
        return CAY_OK;
    expand->text.len = expand->written.len = 0;
    expand->has_no_form = expand->has_env = expand->is_missing = false;
    int code = append_both(&pass, "", 0, "", 0, err); /* "${env.EMPTY}" is "", not NULL */
    if (!code)
        code = replace(&pass, event->text, event->len, err);
    if (code)
        return code;
    event->text = expand->text.data;
    event->len = expand->text.len;
    event->is_missing = expand->is_missing;
    event->written = expand->has_no_form ? "" : expand->written.data;
    event->is_unwritable = expand->has_no_form && expand->has_env;
    return CAY_OK;
}
