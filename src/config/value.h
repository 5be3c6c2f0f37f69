/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONFIG_VALUE_H
#define CONFIG_VALUE_H

#include "cay/config.h"
#include "config/yaml.h"

struct item {
    char *key; /* NULL in a list */
    char *text;
    char *written; /* with "${env.X}" in it, or NULL */
};

/* The value of one field of a configuration. */
struct value {
    const struct cay_field *field;
    bool is_written; /* rather than left to the fallback */
    bool is_set;     /* false if an environment variable that it needs is unset */
    unsigned line;
    unsigned groups; /* bit N: this is the first field of the map N levels above */
    char *text;      /* TEXT, SECRET, CHOICE, PATH */
    char *reference; /* SECRET: the "${env.X}" that it is, or NULL */
    int64_t integer; /* INTEGER, BYTES */
    double number;
    bool boolean;
    struct item *items; /* TEXTS, MAP */
    size_t count,
        total; /* the last total - count items need unset variables and have no text */
    cay_policy *policy;
};

void value_done(struct value *value);

/* Reads the value that `first` starts by the type of the field.  Null leaves the value
 * unset. */
int value_read(struct value *value, struct yaml *yaml, const struct yaml_event *first,
               struct cay_error *err);

/* Parses a policy from the map that `first` starts: the value of "policy:"
 * (policy-file.c).
 */
int policy_read(struct yaml *yaml, const struct yaml_event *first,
                cay_policy **ret_policy, struct cay_error *err);

#endif
