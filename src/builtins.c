/* SPDX-License-Identifier: Apache-2.0 */

/* The built-in backends: one line for each.  This file stands above all rooms, so that
 * the registry in config/ needs to know none of them. */
#include "config/registry.h"
#include "sandbox/backend.h"

const struct cay_backend *const registry_builtins[] = {
    &backend_native,
    &backend_local,
    &backend_e2b,
    NULL,
};
