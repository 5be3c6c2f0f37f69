/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONFIG_CONFIG_H
#define CONFIG_CONFIG_H

#include "cay/backend.h"
#include "config/value.h"

#define CONFIG_NAME_MAX 128 /* of a field, with its NUL */

/* One value for each field: first those that every backend has, then the backend's own
 * in their order. */
struct cay_config {
    const struct cay_backend *backend;
    struct value *values;
    size_t count;
    bool is_partial; /* unknown keys are allowed */
};

/* The fields of every backend.  A backend may have a field of the same name, which then
 * replaces the common one. */
extern const struct cay_field config_common_fields[];
extern const size_t config_common_count;

/* Nothing written; the caller fills in the values. */
int config_new(const struct cay_backend *backend, cay_config **ret_config,
               struct cay_error *err);

/* NULL if the field does not exist. */
struct value *config_find(const cay_config *config, const char *name);

/* Fills the values from the map that is read next; `is_top` if its keys are those of the
 * whole text. */
int config_read(cay_config *config, struct yaml *yaml, bool is_top,
                struct cay_error *err);

/* The same from the map of a policy, which is the whole text. */
int config_read_policy(cay_config *config, struct yaml *yaml, struct cay_error *err);

/* Fills in defaults; contradictions are an error. */
int config_settle(cay_config *config, const struct yaml *yaml, struct cay_error *err);

#endif
