/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_FILTER_H
#define NATIVE_FILTER_H

#include <stdbool.h>

#include "cay/error.h"
#include "init/plan.h"

/* The system calls a sandbox may make, as a BPF program: an allow-list.  What is known
 * and refused is EPERM, what nobody has heard of ENOSYS, so that programs fall back; a
 * call by another architecture's table kills.  Arguments are compared as the kernel uses
 * them: 32 bits to deny, all 64 to allow. */
int filter_build(bool own_network, const struct plan_filter **ret_filter,
                 uint32_t *ret_len, struct cay_error *err);

#endif
