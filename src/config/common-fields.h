/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONFIG_COMMON_FIELDS_H
#define CONFIG_COMMON_FIELDS_H

#include "cay/config.h"

/* What every backend has.  A backend may have a field of the same name, which then counts
 * instead. */
extern const struct cay_field common_fields[];
extern const size_t common_fields_count;

#endif
