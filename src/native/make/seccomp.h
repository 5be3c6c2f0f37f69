/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_MAKE_SECCOMP_H
#define NATIVE_MAKE_SECCOMP_H

#include "cay/error.h"
#include "init/plan.h"

/* What the sandbox shares with the host decides what it may ask of the kernel. */
enum filter_kind {
    FILTER_NETWORK = 0,      /* nothing but the kernel */
    FILTER_HOST_NETWORK = 1, /* its network */
    FILTER_ALONE = 2,        /* everything: there are no namespaces, and no sockets */
    FILTER_ALONE_HOST_NETWORK = 3,
    FILTER_KINDS = 4
};

struct filter {
    const struct plan_filter *code; /* kept by this module */
    uint32_t len;
    uint32_t calls;   /* how many it allows */
    uint32_t pass_at; /* see struct plan */
};

/* The system calls a sandbox may make, as a BPF program: an allow-list.  What is known
 * and refused is EPERM, what nobody has heard of ENOSYS, so that programs fall back; a
 * call by another architecture's table kills; a filter of the caller's own is PID 1's to
 * allow.  Arguments are compared as the kernel uses
 * them: 32 bits to deny, all 64 to allow. */
int filter_build(enum filter_kind kind, struct filter *ret_filter, struct cay_error *err);

#endif
