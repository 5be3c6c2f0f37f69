/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_MAKE_SECCOMP_H
#define NATIVE_MAKE_SECCOMP_H

#include "cay/error.h"
#include "init/plan.h"

/* What the sandbox shares with the host decides which system calls it may make. */
enum filter_kind {
    FILTER_NETWORK = 0,      /* shares nothing but the kernel */
    FILTER_HOST_NETWORK = 1, /* shares the network, or has one by rules */
    FILTER_ALONE = 2,        /* shares everything: no namespaces, and no sockets */
    FILTER_ALONE_HOST_NETWORK = 3,
    FILTER_KINDS = 4
};

struct filter {
    const struct plan_filter *code; /* owned by this module */
    uint32_t len;
    uint32_t calls;   /* number of allowed calls */
    uint32_t pass_at; /* see struct plan */
};

/* Builds the BPF program, an allow-list of system calls.  Known and refused calls return
 * EPERM, unknown ones ENOSYS, so that programs fall back; a call of another architecture
 * kills the process; installing a further filter needs PID 1's permission.  Arguments are
 * compared as the kernel uses them: 32 bits to deny, all 64 to allow. */
int filter_build(enum filter_kind kind, struct filter *ret_filter, struct cay_error *err);

#endif
