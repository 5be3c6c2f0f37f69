/* SPDX-License-Identifier: Apache-2.0 */

/* The table of the small program (see cli/front.c): without what reads configurations. */
#include "native/native.h"
#include "sandbox/backend.h"

const struct cay_backend backend_native = {
    .size = sizeof backend_native,
    .name = "native",
    NATIVE_CALLS,
    NATIVE_NETWORK,
    NATIVE_CHECKPOINTS,
    .rollback = native_rollback,
    .pause = native_pause,
    .resume = native_wake,
    .start = native_restart,
    .remove = native_remove,
    .dial = native_dial_port,
};
