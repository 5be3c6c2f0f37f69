/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CAY_CONFIG_H
#define CAY_CONFIG_H

#include "cay/policy.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The description of a sandbox: YAML or JSON text, or the same structure built by a
 * program.  The backend that `type` names (backend.h) defines the keys, in addition to
 * those that every backend has.  A configuration is immutable. */
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
    CAY_FIELD_PATH = 11    /* a path of this machine; relative paths start at `base` */
};

/* One key that a backend understands. */
struct cay_field {
    const char *name;  /* "template"; "limits.memory" is memory: below limits: */
    const char *alias; /* another name of the same key, or NULL */
    enum cay_field_type type;
    const char *fallback;       /* default in its written form, or NULL: not set */
    const char *about;          /* one line for the reference page and the JSON schema */
    const char *const *choices; /* CAY_FIELD_CHOICE: NULL-terminated */
    int64_t least, most;        /* for CAY_FIELD_INTEGER and BYTES, unless most is 0 */
};

/* Reads the map below `sandbox_config:` and ignores its siblings; without that key, reads
 * the whole text.  The default of `type` is "local" in the first case and "native" in the
 * second.  A text that is itself a policy, with `root`, `paths` or `mounts`, is "native"
 * with that `policy`.
 *
 * "${env.NAME}" within a text is replaced after parsing, value by value.  A NAME that is
 * not set is CAY_E_INVALID.  So are unknown keys (the error names the nearest known key)
 * and values of the wrong type.  Each error names line and key.  Relative paths start at
 * `base` (NULL: the current directory). */
CAY_PUBLIC CAY_NODISC int cay_config_parse(const char *text, size_t len, const char *name,
                                           const char *base, cay_config **ret_config,
                                           struct cay_error *err);

/* The same from a file of at most 1 MiB.  `base` is the file's directory. */
CAY_PUBLIC CAY_NODISC int cay_config_load(const char *file, cay_config **ret_config,
                                          struct cay_error *err);

/* The same without loading a `library`, so that no code of the library runs.  If the
 * library defines the backend, the type is "unknown", only the keys that every backend
 * has are read and checked, and no sandbox can be created from the result. */
CAY_PUBLIC CAY_NODISC int cay_config_peek(const char *file, cay_config **ret_config,
                                          struct cay_error *err);
CAY_PUBLIC void cay_config_free(cay_config *config); /* NULL is allowed */

CAY_PUBLIC const char *cay_config_type(const cay_config *config); /* "native" */

/* Every key that is allowed: first those of all backends, then the backend's own in the
 * order of its table.  The backend's table may replace a common key.  NULL past the last
 * one. */
CAY_PUBLIC const struct cay_field *cay_config_field(const cay_config *config,
                                                    size_t index);

/* Whether the key was written, instead of left to its default. */
CAY_PUBLIC bool cay_config_has(const cay_config *config, const char *field);

/* The value, else the default, else NULL, 0 or false.  Pointers live as long as the
 * configuration.  A name that is not a field of this backend has no value. */
CAY_PUBLIC const char *cay_config_text(const cay_config *config, const char *field);
CAY_PUBLIC int64_t cay_config_integer(const cay_config *config, const char *field);
CAY_PUBLIC double cay_config_number(const cay_config *config, const char *field);
CAY_PUBLIC bool cay_config_boolean(const cay_config *config, const char *field);

/* Lists and maps: the number of items, and the item at `index`.  *ret_key is NULL in a
 * list. */
CAY_PUBLIC size_t cay_config_count(const cay_config *config, const char *field);
CAY_PUBLIC bool cay_config_item(const cay_config *config, const char *field, size_t index,
                                const char **ret_key, const char **ret_value);

CAY_PUBLIC const cay_policy *cay_config_policy(const cay_config *config,
                                               const char *field);

/* Returns JSON that cay_config_parse() can read: all fields that were written, in the
 * order of the backend's table, with relative paths converted to absolute ones and
 * "${...}" replaced.  A secret appears as the reference it was written as
 * ("${env.E2B_API_KEY}"); a secret written in clear is left out.  The entries of a map
 * keep their "${env.NAME}", since secrets reach a sandbox that way.  CAY_E_INVALID if an
 * absolute path is not UTF-8.  Free the result with cay_free(). */
CAY_PUBLIC CAY_NODISC int cay_config_json(const cay_config *config, char **ret_json,
                                          struct cay_error *err);

/* Reads the output of cay_config_json() in a possibly different environment.  A secret or
 * map entry whose variable is not set has no value, but cay_config_json() still returns
 * it.  So an existing sandbox can be reached and removed without the variables. */
CAY_PUBLIC CAY_NODISC int cay_config_restore(const char *json, cay_config **ret_config,
                                             struct cay_error *err);

/* The JSON schema of the configurations of every registered backend.  Free it with
 * cay_free(). */
CAY_PUBLIC CAY_NODISC int cay_config_schema(char **ret_json, struct cay_error *err);

#ifdef __cplusplus
}
#endif
#endif
