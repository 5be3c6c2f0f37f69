/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_POOLS_H
#define TESTS_POOLS_H

#include <time.h>

#include "cay/pool.h"
#include "ledger.h"

static inline void auto_cay_pool(cay_pool **pool)
{
    cay_pool_free(*pool);
}

static inline void rest_ms(long ms)
{
    const struct timespec time = {ms / 1000, ms % 1000 * 1000000};

    (void)nanosleep(&time, NULL);
}

static inline cay_pool *make_pool_of(const struct cay_sandbox_options *given,
                                     uint32_t count, bool is_shared)
{
    struct cay_sandbox_options sandbox = {.size = sizeof sandbox};
    const struct cay_pool_options options = {.size = sizeof options,
                                             .sandbox = &sandbox,
                                             .count = count,
                                             .is_shared = is_shared,
                                             .may_stop = is_shared};
    cay_pool *pool = NULL;

    need_root();
    if (wanted_level() == CAY_LEVEL_LANDLOCK)
        SKIP("a pool needs namespaces");
    if (given)
        sandbox = *given;
    sandbox.level = wanted_level();
    ASSERT_OK(cay_pool_create(&options, &pool, &err));
    ASSERT_OK(cay_pool_wait(pool, 0, PATIENCE_MS, &err));
    return pool;
}

static inline cay_pool *make_pool(uint32_t count)
{
    return make_pool_of(NULL, count, false);
}

static inline uint64_t claimed(cay_pool *pool)
{
    struct cay_pool_stats stats;

    cay_pool_get_stats(pool, &stats);
    return stats.claimed;
}

/* The thread of the pool learns of a claim a moment later. */
static inline void await_claims(cay_pool *pool, uint64_t count)
{
    for (int i = 0; i < PATIENCE_MS && claimed(pool) < count; i++)
        rest_ms(1);
    ASSERT_INT(claimed(pool), count);
}

static inline cay_sandbox *claim(cay_pool *pool, const struct cay_sandbox_options *given)
{
    struct cay_sandbox_options options = {.size = sizeof options};

    if (given)
        options = *given;
    options.pool = cay_pool_name(pool);
    return make_sandbox(&options);
}

#endif
