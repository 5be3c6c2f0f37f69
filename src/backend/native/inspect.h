/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_INSPECT_H
#define NATIVE_INSPECT_H

#include "backend/native/runtime.h"

/* What is so now: the record, what the kernel says of its cgroups, and whether it lives.
 */
void inspect_record(const struct record *record, struct cay_sandbox_info *ret_info);

/* Every sandbox of this user, oldest first. */
int inspect_all(struct cay_sandbox_info **ret_infos, size_t *ret_count,
                struct cay_error *err);

#endif
