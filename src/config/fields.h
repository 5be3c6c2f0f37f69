/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONFIG_FIELDS_H
#define CONFIG_FIELDS_H

#include "cay/config.h"

/* What every backend has.  A backend may have a field of the same name, which then counts
 * instead. */
extern const struct cay_field fields_common[];
extern const size_t fields_common_count;

/* `name` is the field's name or its alias. */
bool fields_match(const struct cay_field *field, const char *name);

#endif
