/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONFIG_POLICY_ENTRY_H
#define CONFIG_POLICY_ENTRY_H

#include "cay/policy.h"
#include "config/yaml.h"

/* One mount of a policy while it is parsed; owns what its `mount` points to. */
struct entry {
    struct cay_mount mount;
    char *name, *host, *origin;
    char **suffixes;
    unsigned line, name_line, host_line;
    const char *name_key,
        *host_key; /* where they are below the entry's own key, or NULL */
};

void entry_done(struct entry *entry);

/* Reads the rules of one mount, by the keys of its style, from the value that `first`
 * starts.  The caller has filled in the line and the defaults. */
int entry_read(struct yaml *yaml, enum cay_style style, const struct yaml_event *first,
               struct entry *entry, struct cay_error *err);

/* The next key of a map, or YAML_MAP_END. */
int entry_next_key(struct yaml *yaml, struct yaml_event *ret_key, struct cay_error *err);

/* `keys` ends with NULL. */
int entry_fail_unknown(struct yaml *yaml, unsigned line, const char *key,
                       const char *const *keys, struct cay_error *err);

#endif
