/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONFIG_YAML_H
#define CONFIG_YAML_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/error.h"

/* Reads YAML, and so JSON, as events.  Only a plain subset: one document, UTF-8 without
 * NUL, at most 32 levels deep, no anchors, aliases or tags, few empty lines in a row. All
 * else is CAY_E_INVALID, and every such error names the line and the key of yaml_enter():
 * "line 7: paths.docs.mode: must be ro or rw". */
struct yaml;

#define YAML_DEPTH_MAX 32

enum yaml_kind {
    YAML_SCALAR,
    YAML_MAP,
    YAML_MAP_END,
    YAML_LIST,
    YAML_LIST_END,
    YAML_END
};

/* YAML features that are refused. */
struct yaml_refusal {
    const char *message, *hint;
};

struct yaml_event {
    enum yaml_kind kind;
    unsigned line;    /* from 1 */
    bool plain;       /* a scalar without quotes: may be a number, a boolean or null */
    const char *text; /* a scalar's; lives until the next event */
    size_t len;       /* more than strlen(text) if a NUL is in it */
    const char
        *written; /* the unexpanded text if "${...}" was replaced (record.h); else NULL */
    bool
        is_missing; /* an environment variable that it needs is unset, which is allowed */
    bool is_unwritable; /* it contains "${env.X}" that `written` cannot represent */
    const struct yaml_refusal *refusal; /* after yaml_tolerate(): NULL if all is well */
};

/* What a text is read for, and where it is from. */
struct yaml_origin {
    const char *op;
    const char *name; /* the subject of errors */
    const char *base; /* the directory of relative paths */
};

/* The text and the strings of the origin must outlive the reader. */
int yaml_open(const char *text, size_t len, const struct yaml_origin *origin,
              struct yaml **ret_yaml, struct cay_error *err);
void yaml_free(struct yaml *yaml); /* NULL is fine */
const struct yaml_origin *yaml_origin(const struct yaml *yaml);

static inline void auto_yaml(struct yaml **yaml)
{
    yaml_free(*yaml);
}
#define AUTO_YAML __attribute__((cleanup(auto_yaml))) struct yaml

/* A reader of events that come from elsewhere. */
struct yaml_source {
    void *cookie;
    int (*next)(void *cookie, const struct yaml *yaml, struct yaml_event *ret_event,
                struct cay_error *err);
    void (*skip)(void *cookie); /* past the value that the last event started */
};
int yaml_open_source(const struct yaml_source *source, const struct yaml_origin *origin,
                     struct yaml **ret_yaml, struct cay_error *err);

/* Anchors, aliases and the like no longer fail: the event has the refusal. */
void yaml_tolerate(struct yaml *yaml);

int yaml_next(struct yaml *yaml, struct yaml_event *ret_event, struct cay_error *err);

/* Passes over the rest of the value that `first` starts. */
int yaml_skip(struct yaml *yaml, enum yaml_kind first, struct cay_error *err);

/* Adds a key to those that errors name; yaml_leave() with the result takes it away. */
size_t yaml_enter(struct yaml *yaml, const char *key);
size_t yaml_enter_index(struct yaml *yaml, size_t index);
void yaml_leave(struct yaml *yaml, size_t mark);
const char *yaml_key(const struct yaml *yaml); /* "paths.docs" */

/* The hint is a format. */
int yaml_fail(struct cay_error *err, const struct yaml *yaml, unsigned line,
              const char *message, const char *hint, ...)
    __attribute__((format(printf, 5, 6)));

int yaml_fail_memory(struct cay_error *err, const struct yaml *yaml);

/* The next key of a map, or YAML_MAP_END. */
int yaml_next_key(struct yaml *yaml, struct yaml_event *ret_key, struct cay_error *err);

/* `keys`, the valid ones, ends with NULL. */
int yaml_fail_unknown(struct yaml *yaml, unsigned line, const char *key,
                      const char *const *keys, struct cay_error *err);

/* Scalars by YAML's rules.  An expanded "${env.X}" is text, and also any other type that
 * its text looks like. */

bool yaml_is_word(const struct yaml_event *event, const char *word);
bool yaml_is_null(const struct yaml_event *event);    /* explicit null */
bool yaml_is_nothing(const struct yaml_event *event); /* null, empty or missing */

/* `12` and `true` are a number and a boolean in YAML, and no text. */
bool yaml_is_text(const struct yaml_event *event);

int yaml_check_nul(const struct yaml *yaml, const struct yaml_event *event,
                   struct cay_error *err);
int yaml_take_text(const struct yaml *yaml, const struct yaml_event *event,
                   char **ret_text, struct cay_error *err);

#define YAML_TEXT_MAX ((size_t)1 << 20)

/* The content of a file, or more than YAML_TEXT_MAX of it, and its directory, which is
 * NULL for the current one. */
int yaml_load_file(const char *file, const char *op, struct buf *text,
                   char **ret_directory, struct cay_error *err);

#endif
