/* SPDX-License-Identifier: Apache-2.0 */

/* The table of the small program (see cli/front.c): without what reads configurations. */
#include "native/doctor/inspect.h"
#include "native/native.h"
#include "sandbox/backend.h"

const struct cay_backend backend_native = {
    .size = sizeof backend_native,
    .name = "native",
    .free = native_free,
    .id = native_id,
    .layers = native_layers,
    .state = native_get_state,
    .inspect = inspect_sandbox,
    .open_files = native_files,
    .exec = native_exec,
    .pause = native_pause,
    .resume = native_resume,
    .set_ttl = native_set_ttl,
    .kill = native_kill,
    .start = native_restart,
    .remove = native_remove,
    .processes = &native_processes,
};
