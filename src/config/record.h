/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONFIG_RECORD_H
#define CONFIG_RECORD_H

#include "base/buf.h"
#include "config/yaml.h"

/* Values of a text, stored as parser events, to be read when their meaning is known. They
 * are not validated before that: anchors in unused values are ignored.  Zero it except
 * for `max`, the maximum number of events. */
struct record {
    size_t max;
    struct record_node *nodes;
    size_t count, room;
    struct buf texts;
    unsigned line; /* of the first value that there was no room for, or 0 */
};

void record_done(struct record *record);

/* Adds a single event: the frame around values. */
int record_event(struct record *record, const struct yaml *yaml,
                 const struct yaml_event *event, bool is_key, struct cay_error *err);

/* Adds the whole value that `first` starts. */
int record_value(struct record *record, struct yaml *yaml, const struct yaml_event *first,
                 struct cay_error *err);

/* A reader of the record from its start, which expands "${...}" with `expand` and must
 * not outlive either.  `replay` is its position. */
struct replay {
    const struct record *record;
    struct expand *expand;
    size_t at;
};
int record_open(struct replay *replay, const struct yaml_origin *origin,
                struct yaml **ret_yaml, struct cay_error *err);

/* Whether the recorded map has this key; *ret_item is the kind of the first item of its
 * value if that is a list, YAML_MAP_END if it is a map, else YAML_END. */
bool record_has(const struct record *record, const char *key, enum yaml_kind *ret_item);

/* The scalar at the end of a chain of keys, "a.b", unexpanded; false if there is none.
 * *ret_twice is the line of a duplicate of those keys, or 0. */
bool record_find(const struct record *record, const char *keys, size_t len,
                 struct yaml_event *ret_event, unsigned *ret_twice);

/* "${...}" within values, replaced after the text was parsed: whatever stands in the
 * environment becomes part of one value and is never read as YAML.
 *
 *     ${env.NAME}        the environment variable
 *     ${this_file_dir}   the directory that relative paths start at, absolute
 *     ${variables.a.b}   the value of b: below a: below variables:, in the same text;
 *                        the first two may be in it
 *     $${                a plain "${"
 */
struct expand {
    const char *directory;
    const struct record *variables;
    struct buf text;    /* the expanded text of the last event */
    struct buf written; /* the same with each "${env.NAME}" left, and "$${" */
    bool has_no_form;   /* it cannot be written so: `written` is of no use */
    bool has_env;       /* something came from the environment */
    bool is_lax; /* an unset variable makes the event missing instead of an error */
    bool is_missing;
    size_t
        spent; /* bytes produced so far, bounded: references can multiply a long text */
};

void expand_done(struct expand *expand);

/* Leaves an event without "${" unchanged.  The expanded text lives until the next call;
 * event->written is set if it came from the environment. */
int expand_event(struct expand *expand, const struct yaml *yaml, struct yaml_event *event,
                 struct cay_error *err);

/* The text is nothing but one "${env.NAME}". */
bool expand_is_env(const char *text);

#endif
