/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SYS_WORKER_H
#define SYS_WORKER_H

#include <stdint.h>
#include <sys/types.h>

#include "cay/error.h"

/* A function in its own process that can only compute: it has two descriptors and cannot
 * open more, and its output is untrusted.  For code that parses hostile bytes. */

enum {
    WORKER_CHANNEL = 3, /* in the child: the other end of worker->channel */
    WORKER_INPUT = 4    /* in the child: job->input */
};

struct worker_job {
    void (*run)(void *cookie); /* in the child; the process ends when it returns */
    void *cookie;
    int input;            /* the one descriptor handed over, or -1 */
    uint64_t memory;      /* bytes it may map beyond its initial size */
    uint32_t cpu_seconds; /* after which it is killed */
};

struct worker {
    pid_t pid;
    int pidfd;
    int channel; /* SOCK_SEQPACKET: one write at one end is one read at the other */
};

/* Returns once the child is confined and about to run; CAY_E_UNAVAILABLE, with nothing
 * run, if it cannot be.  End it with worker_end() in every other case. */
int worker_start(const char *op, const struct worker_job *job, struct worker *ret_worker,
                 struct cay_error *err);

/* Kills the child if it still runs, reaps it and closes the channel. */
void worker_end(struct worker *worker);
#define WORKER_NONE                                                                      \
    {                                                                                    \
        .pid = -1, .pidfd = -1, .channel = -1                                            \
    }
#define AUTO_WORKER __attribute__((cleanup(worker_end))) struct worker

#endif
