/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/backend.h"
#include "native/native.h"

static int find_marked(void *data, const cay_config *config, const char *mark,
                       void **ret_cookie, struct cay_error *err)
{
    (void)data;
    (void)config;
    return native_open_marked(mark, false, ret_cookie, err);
}

const struct cay_backend backend_native = {
    .size = sizeof backend_native,
    .name = "native",
    .about = "isolated by this machine's kernel: namespaces, cgroups, seccomp, landlock",
    .fields = native_fields,
    .field_count = NATIVE_FIELDS,
    .create = native_create_config,
    .connect = native_connect_config,
    NATIVE_CALLS,
    NATIVE_NETWORK,
    NATIVE_CHECKPOINTS,
    .rollback = native_rollback_full,
    .pause = native_pause,
    .resume = native_wake,
    .start = native_restart,
    .remove = native_remove,
    .create_marked = native_create_marked,
    .create_pooled = native_create_pooled,
    .find_marked = find_marked,
    .dial = native_dial_port,
    .check = native_check_config,
};
