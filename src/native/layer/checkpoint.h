/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_LAYER_CHECKPOINT_H
#define NATIVE_LAYER_CHECKPOINT_H

#include "native/process/handle.h"

/* See cay/sandbox.h. */
int native_checkpoint(void *cookie, const struct cay_checkpoint_options *options,
                      struct cay_checkpoint *ret_checkpoint, struct cay_error *err);
int native_rollback(void *cookie, const char *which, struct cay_checkpoint *ret_undone,
                    struct cay_error *err);
int native_checkpoints(void *cookie, struct cay_checkpoint **ret_list, size_t *ret_count,
                       struct cay_error *err);

#endif
