/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONFIG_REGISTRY_H
#define CONFIG_REGISTRY_H

#include "cay/backend.h"

/* The built-in backends, ended by NULL.  The table is in src/builtins.c, above all of
 * them. */
extern const struct cay_backend *const registry_builtins[];

#endif
