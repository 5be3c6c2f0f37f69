/* SPDX-License-Identifier: Apache-2.0 */
#include "config/record.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "config/expand.h"

/* Escapes such as "\L" make a text longer than it was written, and each has a NUL. */
#define TEXTS_MAX ((size_t)4 << 20)

struct record_node {
    enum yaml_kind kind;
    unsigned line;
    bool plain, is_key;
    const struct yaml_refusal *refusal;
    size_t text, len; /* a scalar's: where in the texts */
    size_t end;       /* the index of what follows the value that starts here */
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
        return cay_fail_memory(err, yaml_op(yaml));
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
        if (node->kind == YAML_SCALAR && !node->is_key) {
            int code = expand_event(replay->expand, yaml, &event, err);
            if (code)
                return code;
        }
    }
    *ret_event = event;
    return CAY_OK;
}

static void replay_skip(void *cookie)
{
    struct replay *replay = cookie;

    replay->at = replay->record->nodes[replay->at - 1].end;
}

int record_open(struct replay *replay, const char *op, const char *name,
                struct yaml **ret_yaml, struct cay_error *err)
{
    const struct yaml_source source = {
        .cookie = replay, .next = replay_next, .skip = replay_skip};

    return yaml_open_source(&source, op, name, ret_yaml, err);
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
    *ret_item = node->kind == YAML_LIST ? node[1].kind : YAML_END;
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
