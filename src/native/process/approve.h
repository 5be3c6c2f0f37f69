/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_PROCESS_APPROVE_H
#define NATIVE_PROCESS_APPROVE_H

#include "native/process/handle.h"
#include "sandbox/approve.h"

/* Beside the record, which is to be saved afterwards. */
int native_save_approve(const struct cay_sandbox_options *options, struct record *record,
                        struct cay_error *err);

/* cay_backend.approve */
int native_approve(void *cookie, char **ret_text, size_t *ret_len, struct cay_error *err);

/* A fork's options get those of its source, unless they have some.  Zeroed first. */
struct approve_inherited {
    char *text;
    const char **patterns;
};
int approve_inherit(const struct record *record, struct cay_sandbox_options *options,
                    struct approve_inherited *ret_inherited, struct cay_error *err);
void approve_inherited_done(struct approve_inherited *inherited);

#endif
