/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RELAY_CONFINE_H
#define RELAY_CONFINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a process may still do that reads hostile bytes outside the sandbox. */
struct confinement {
    uint32_t uid;     /* and its gid; 0: unchanged */
    const int *calls; /* numbers of system calls, beside mmap() without execution */
    size_t call_count;
    bool has_sockets; /* new ones of IP */
    uint64_t file_bytes, files, memory_bytes;
};

/* First of all: what the creator had set for itself. */
void confine_reset_inherited(void);

/* Drops every other right, for good.  0 or a negative errno. */
int confine_process(const struct confinement *confinement);

#endif
