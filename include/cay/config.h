/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CAY_CONFIG_H
#define CAY_CONFIG_H

#include "cay/policy.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a sandbox is to be like, as somebody wrote it: a YAML or JSON text, or the same
 * structure made by a program.  Which keys there are is up to the backend that `type`
 * names (backend.h), beside those every backend has.  A configuration is immutable. */
typedef struct cay_config cay_config;

enum cay_field_type {
    CAY_FIELD_TEXT = 1,
    CAY_FIELD_SECRET = 2, /* text that is never stored, shown or put into an error */
    CAY_FIELD_INTEGER = 3,
    CAY_FIELD_NUMBER = 4,
    CAY_FIELD_BOOLEAN = 5,
    CAY_FIELD_BYTES = 6, /* 1073741824, "512M", "1 GiB" */
    CAY_FIELD_CHOICE = 7,
    CAY_FIELD_TEXTS = 8,   /* a list of texts */
    CAY_FIELD_MAP = 9,     /* texts by name */
    CAY_FIELD_POLICY = 10, /* what cay_policy_parse() reads below `policy:` */
    CAY_FIELD_PATH = 11    /* of this machine; relative ones start at `base` */
};

/* One key that a backend understands. */
struct cay_field {
    const char *name;  /* "template"; "limits.memory" is memory: below limits: */
    const char *alias; /* another spelling of the same, or NULL */
    enum cay_field_type type;
    const char *fallback;       /* as it would be written, or NULL: not set */
    const char *about;          /* one line for the reference page and the JSON schema */
    const char *const *choices; /* CAY_FIELD_CHOICE: NULL-terminated */
    int64_t least, most;        /* CAY_FIELD_INTEGER and BYTES, if most is not 0 */
};

/* Reads the map below `sandbox_config:`, whose siblings are left alone, or else the whole
 * text; without `type` the former is "local" and the latter "native".  A text that is a
 * policy by itself, with `root`, `paths` or `mounts`, is "native" with that `policy`.
 *
 * "${env.NAME}" within a text is replaced after parsing, value by value; a NAME that is
 * not set is CAY_E_INVALID.  So are unknown keys, with the nearest known one, and
 * whatever is not what its field wants; each error names line and key.  Relative paths
 * start at `base` (NULL: the current directory). */
CAY_PUBLIC CAY_NODISC int cay_config_parse(const char *text, size_t len, const char *name,
                                           const char *base, cay_config **ret_config,
                                           struct cay_error *err);

/* The same from a file of at most 1 MiB; `base` is its directory. */
CAY_PUBLIC CAY_NODISC int cay_config_load(const char *file, cay_config **ret_config,
                                          struct cay_error *err);

/* The same without loading a `library`: nobody's code runs.  Where that has the backend,
 * the type is "unknown", and of the keys only those that every backend has are looked at
 * and known; no sandbox can be made of it. */
CAY_PUBLIC CAY_NODISC int cay_config_peek(const char *file, cay_config **ret_config,
                                          struct cay_error *err);
CAY_PUBLIC void cay_config_free(cay_config *config); /* NULL is fine */

CAY_PUBLIC const char *cay_config_type(const cay_config *config); /* "native" */

/* Every key there may be: first those that all backends have, then the backend's own in
 * the order of its table, which may have one of the former instead.  NULL past the last.
 */
CAY_PUBLIC const struct cay_field *cay_config_field(const cay_config *config,
                                                    size_t index);

/* Whether it was written, rather than left to its fallback. */
CAY_PUBLIC bool cay_config_has(const cay_config *config, const char *field);

/* The value, else the fallback, else NULL, 0 or false.  Pointers live as long as the
 * configuration.  A name that is no field of this backend has no value. */
CAY_PUBLIC const char *cay_config_text(const cay_config *config, const char *field);
CAY_PUBLIC int64_t cay_config_integer(const cay_config *config, const char *field);
CAY_PUBLIC double cay_config_number(const cay_config *config, const char *field);
CAY_PUBLIC bool cay_config_boolean(const cay_config *config, const char *field);

/* Lists and maps: how many, and the one at `index`; *ret_key is NULL in a list. */
CAY_PUBLIC size_t cay_config_count(const cay_config *config, const char *field);
CAY_PUBLIC bool cay_config_item(const cay_config *config, const char *field, size_t index,
                                const char **ret_key, const char **ret_value);

CAY_PUBLIC const cay_policy *cay_config_policy(const cay_config *config,
                                               const char *field);

/* As JSON that cay_config_parse() reads again: all fields that were written, in the order
 * of the backend's table, with relative paths made absolute and "${...}" replaced.  But a
 * secret appears as the reference it was written as ("${env.E2B_API_KEY}"), and is left
 * out if it was written in clear; and the entries of a map keep their "${env.NAME}", for
 * that is how secrets reach a sandbox.  CAY_E_INVALID if a path that was made absolute is
 * not UTF-8.  cay_free() it. */
CAY_PUBLIC CAY_NODISC int cay_config_json(const cay_config *config, char **ret_json,
                                          struct cay_error *err);

/* Reads that again where the environment may be another: a secret and the entries of a
 * map that refer to a variable which is not set have no value, but are still there for
 * cay_config_json().  So what exists can be reached and removed. */
CAY_PUBLIC CAY_NODISC int cay_config_restore(const char *json, cay_config **ret_config,
                                             struct cay_error *err);

/* The JSON schema of every registered backend's configuration; cay_free() it. */
CAY_PUBLIC CAY_NODISC int cay_config_schema(char **ret_json, struct cay_error *err);

#ifdef __cplusplus
}
#endif
#endif
