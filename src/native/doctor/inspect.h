/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_DOCTOR_INSPECT_H
#define NATIVE_DOCTOR_INSPECT_H

#include "native/process/handle.h"

/* The current state: from the record, the kernel and init. */
int inspect_sandbox(void *cookie, struct cay_sandbox_info *ret_info,
                    struct cay_error *err);

#endif
