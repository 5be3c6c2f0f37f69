/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FILES_SESSION_H
#define FILES_SESSION_H

#include <pthread.h>
#include <stdatomic.h>

#include "cay/files.h"
#include "files/index.h"

enum { SESSION_INDEXES = 8, SESSION_APPROVALS_MAX = 4096 };

/* What a handle and those derived from it have in common.  The mutex guards everything
 * below it; it is never held while an approver is asked. */
struct session {
    atomic_uint references;
    unsigned flags; /* enum cay_files_flag */
    cay_approver approver;
    void *cookie;

    pthread_mutex_t mutex;
    uint64_t *approved; /* hashes of (access, mount, rel): "do not ask again" */
    size_t approved_count;
    struct text_index *indexes[SESSION_INDEXES]; /* most recently used first */
};

#endif
