/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_INSPECT_H
#define NATIVE_INSPECT_H

#include "backend/native/native.h"

/* What is so now: the record, what the kernel and init say, and whether it lives. */
int inspect_one(void *cookie, struct cay_sandbox_info *ret_info, struct cay_error *err);

#endif
