/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_DOCTOR_INSPECT_H
#define NATIVE_DOCTOR_INSPECT_H

#include "native/process/handle.h"

/* What is so now: the record, what the kernel and init say, and whether it lives. */
int inspect_sandbox(void *cookie, struct cay_sandbox_info *ret_info,
                    struct cay_error *err);

#endif
