/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CAY_POOL_H
#define CAY_POOL_H

#include "cay/sandbox.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A pool creates native sandboxes before they are requested.  cay_sandbox_create() and
 * cay_sandbox_run() with the pool's name in their options then use such a spare, which
 * takes a fraction of the time, or create a sandbox as usual if none fits.
 *
 * A pool whose options have `from`, a checkpoint "ID:CHECKPOINT", is for forks of that
 * checkpoint.  Its spares keep the files if the sandbox of the checkpoint is removed.
 *
 * A spare fits if template, checkpoint, mounts, network, host name, disk limit and
 * isolation level are those of the pool; a pool with the network RULES or OPEN is for
 * both, and the rules and named networks are those of the request.  Name, environment,
 * user, working directory, time to live, the other limits and whether the sandbox is
 * ephemeral are those of the request.
 *
 * A spare is used once.  Spares end with the pool, and the pool with the program that
 * created it; sandboxes that were created from it live on.
 *
 * cay_sandbox_kill() of such a sandbox returns when its processes have ended.  Its
 * cgroups and its memory are released by the pool some milliseconds later, or by the call
 * itself if the pool has ended. */

typedef struct cay_pool cay_pool;

#define CAY_POOL_COUNT_DEFAULT  4
#define CAY_POOL_COUNT_MAX      1024
#define CAY_POOL_MEMORY_DEFAULT (256ull << 20)

struct cay_pool_options {
    size_t size;
    /* Storage in memory, no policy, and an isolation level with namespaces.  NULL: the
     * default options. */
    const struct cay_sandbox_options *sandbox;
    uint32_t count;        /* number of spares; 0: CAY_POOL_COUNT_DEFAULT */
    uint64_t memory_bytes; /* of all spares together; 0: CAY_POOL_MEMORY_DEFAULT */
    bool is_shared;        /* for all programs of this user: its name is "" */
    bool may_stop;         /* by cay_pool_stop() of any program of this user */
};

/* Returns when the first spare is ready; the others are created in a thread of this
 * process.  A claimed spare is replaced 5 ms after the last claim, or at once if it was
 * the last.  If the machine runs short of memory the spares are removed, and created
 * again later. */
CAY_PUBLIC CAY_NODISC int cay_pool_create(const struct cay_pool_options *options,
                                          cay_pool **ret_pool, struct cay_error *err);

/* Ends the spares.  NULL is allowed.  In a child of fork(2) it closes the child's copies
 * of descriptors and does not affect the parent's pool.  A child that neither calls it
 * nor execve(2) keeps the spares alive if the parent is killed. */
CAY_PUBLIC void cay_pool_free(cay_pool *pool);

/* As cay_pool_list() lists it. */
CAY_PUBLIC const char *cay_pool_id(const cay_pool *pool);

/* For cay_sandbox_options.pool; valid as long as the pool. */
CAY_PUBLIC const char *cay_pool_name(const cay_pool *pool);

struct cay_pool_stats {
    uint32_t count; /* requested */
    uint32_t ready;
    uint64_t created, claimed, failed; /* since the start of the pool */
    uint64_t memory_used;              /* by the spares, as far as the kernel counts it */
    bool is_full;                      /* memory_bytes allows no more spares */
    bool is_yielding; /* no spares at present: the machine is short of memory */
    bool is_stopped;  /* by cay_pool_stop(): there are no spares any more */
};

CAY_PUBLIC void cay_pool_get_stats(cay_pool *pool, struct cay_pool_stats *ret_stats);

/* Waits until `count` spares are ready (0: all), and returns CAY_E_TIMEOUT if that takes
 * longer than `timeout_ms`, or CAY_E_LIMIT if the memory does not suffice for so many. */
CAY_PUBLIC CAY_NODISC int cay_pool_wait(cay_pool *pool, uint32_t count,
                                        uint64_t timeout_ms, struct cay_error *err);

/* Waits until the pool is stopped: CAY_OK, or CAY_E_TIMEOUT. */
CAY_PUBLIC CAY_NODISC int cay_pool_wait_stop(cay_pool *pool, uint64_t timeout_ms,
                                             struct cay_error *err);

/* --- Pools of all programs of this user ----------------------------------------------
 */

#define CAY_POOL_ID_MAX 24

struct cay_pool_info {
    char id[CAY_POOL_ID_MAX];
    int pid; /* of the program, in its PID namespace */
    bool is_shared, may_stop;
    int64_t created_ms; /* since 1970 */
    char template_name[256];
    uint64_t memory_bytes;
    struct cay_pool_stats stats; /* at most a second old */
};

/* Oldest first.  Free the array with cay_free(). */
CAY_PUBLIC CAY_NODISC int cay_pool_list(struct cay_pool_info **ret_infos,
                                        size_t *ret_count, struct cay_error *err);

/* Ends the spares of a pool with may_stop and waits for that.  CAY_E_NOT_FOUND: there is
 * no such pool; CAY_E_DENIED: it may not be stopped. */
CAY_PUBLIC CAY_NODISC int cay_pool_stop(const char *id, struct cay_error *err);

#ifdef __cplusplus
}
#endif

#endif
