/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_PROCESS_FILES_H
#define NATIVE_PROCESS_FILES_H

#include "cay/files.h"
#include "native/record/cgroup.h"
#include "native/record/idmap.h"

struct files_target {
    int socket;       /* to a sandbox's init; owned by the callee, also on failure */
    const char *user; /* inside; NULL: the default one */
    struct idmap_shown users, groups;
    const struct cgroup *cgroups; /* that account files in memory; NULL: none */
    uint64_t memory_bytes;        /* their limit */
    bool is_in_memory;            /* the root, possibly an overlay */
    uint32_t reply_ms;            /* how long init may take to reply; 0: a minute */
};

/* The files of the sandbox. */
int files_open_sandbox(const struct files_target *sandbox, cay_files **ret_files,
                       struct cay_error *err);

#endif
