/* SPDX-License-Identifier: Apache-2.0 */

/* The table of the small program that runs one command (see cli/front.c).  It has what
 * that needs, and nothing that reads configurations. */
#include "native/native.h"
#include "sandbox/backend.h"

const struct cay_backend backend_native = {
    .size = sizeof backend_native,
    .name = "native",
    .free = native_free,
    .id = native_id,
    .layers = native_layers,
    .open_files = native_files,
    .exec = native_exec,
    .kill = native_kill,
    .remove = native_remove_it,
    .processes = &native_processes,
};
