/* SPDX-License-Identifier: Apache-2.0 */

/* One thread creates the spares and offers them (make/spare.h).  PID 1 of a spare closes
 * its socket to the pool when it is claimed, which wakes the thread up to create the next
 * one. */
#include "cay/pool.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"
#include "native/make/spare.h"
#include "native/native.h"
#include "native/record/remove.h"

enum {
    QUIET_MS = 5,         /* without a claim, before a spare is replaced */
    CLAIM_MS = 15000,     /* a claim that takes longer was given up */
    RETRY_MS = 1000,      /* after a failure, doubled each time... */
    RETRY_MAX_MS = 60000, /* ...up to this */
    LOOK_MS = 1000,       /* between looks at the machine's memory */
    YIELD_MS = 10000,     /* without spares after a shortage of memory */
    SHORT_PERCENT = 5,    /* of the machine's memory: below it is short */
    ENOUGH_PERCENT = 10,
    NAME_LEN = 24
};

struct spare {
    struct native *native; /* its leash ends it */
    struct spare_key key;
    uint64_t taken_ms; /* when its offer was first found removed; 0: not so far */
};

struct cay_pool {
    pid_t owner;
    pthread_t thread;
    bool has_thread;
    int wake; /* eventfd: the pool is to end */
    char name[NAME_LEN];
    struct cay_sandbox_options options;
    struct cay_bind *binds;
    char **texts; /* copies that the options point to */
    size_t text_count;
    uint64_t memory_bytes;

    pthread_mutex_t mutex; /* for all that follows */
    pthread_cond_t changed;
    struct cay_pool_stats stats;
    bool is_ending;

    /* Used by the thread only, and by cay_pool_create() before it starts. */
    struct spare *spares;
    size_t spare_count;
    uint64_t refill_ms; /* not before */
    uint64_t retry_ms;
    uint64_t look_ms;
};

/* --- Options --- */

static const char *keep(cay_pool *pool, const char *text)
{
    char *copy = text ? strdup(text) : NULL;

    if (copy)
        pool->texts[pool->text_count++] = copy;
    return copy;
}

static int copy_options(cay_pool *pool, const struct cay_sandbox_options *given,
                        struct cay_error *err)
{
    struct cay_sandbox_options *own = &pool->options;

    *own = (struct cay_sandbox_options){.size = sizeof *own};
    int code = given ? cay_take_struct(own, sizeof *own, given, "pool.create", err) : 0;
    if (code)
        return code;
    size_t binds = own->bind_count;
    pool->texts = calloc(2 * binds + 4, sizeof *pool->texts);
    pool->binds = calloc(binds + 1, sizeof *pool->binds);
    if (!pool->texts || !pool->binds)
        return cay_fail_memory(err, "pool.create");
    own->template_name = keep(pool, own->template_name);
    own->hostname = keep(pool, own->hostname);
    own->user = keep(pool, own->user);
    own->workdir = keep(pool, own->workdir);
    for (size_t i = 0; i < binds; i++) {
        pool->binds[i] = own->binds[i];
        pool->binds[i].source = keep(pool, own->binds[i].source);
        pool->binds[i].target = keep(pool, own->binds[i].target);
        if (!pool->binds[i].source || !pool->binds[i].target)
            return cay_fail_memory(err, "pool.create");
    }
    own->binds = pool->binds;
    own->pool = pool->name;
    return CAY_OK;
}

/* --- Memory --- */

/* MemAvailable in percent of MemTotal; 100 if unknown. */
static unsigned available_percent(void)
{
    unsigned long long total = 0, available = 0;
    char text[512] = "";
    AUTO_FD fd = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);

    if (fd < 0 || read(fd, text, sizeof text - 1) <= 0)
        return 100;
    const char *at = strstr(text, "MemAvailable:");
    if (sscanf(text, "MemTotal: %llu", &total) != 1 || !total || !at ||
        sscanf(at, "MemAvailable: %llu", &available) != 1)
        return 100;
    return (unsigned)(available * 100 / total);
}

static uint64_t memory_used(const cay_pool *pool)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < pool->spare_count; i++) {
        struct cgroup_usage usage;
        cgroup_usage(&pool->spares[i].native->record.cgroup, &usage);
        sum += usage.has_memory ? usage.memory : 0;
    }
    return sum;
}

/* --- Spares --- */

static void forget(cay_pool *pool, size_t i)
{
    native_free(pool->spares[i].native);
    pool->spares[i] = pool->spares[--pool->spare_count];
}

/* If a claim is under way it finds the spare gone, and takes another one. */
static void end_spare(cay_pool *pool, size_t i)
{
    struct spare *spare = &pool->spares[i];

    (void)spare_withdraw(&spare->key, spare->native->record.id);
    (void)!native_remove(spare->native, NULL);
    forget(pool, i);
}

static int add_spare(cay_pool *pool, struct cay_error *err)
{
    struct spare *spare = &pool->spares[pool->spare_count];
    AUTO_NATIVE native = native_new();

    if (!native)
        return cay_fail_memory(err, "pool.create");
    int code = create_spare(&pool->options, &spare->key, native, err);
    if (code)
        return code;
    code = spare_offer(&spare->key, native->record.id, err);
    if (code) {
        (void)!native_remove(native, NULL);
        return code;
    }
    spare->native = TAKE_PTR(native);
    spare->taken_ms = 0;
    pool->spare_count++;
    return CAY_OK;
}

static void publish(cay_pool *pool)
{
    uint64_t used = memory_used(pool);
    uint32_t ready = 0;

    for (size_t i = 0; i < pool->spare_count; i++)
        ready += !pool->spares[i].taken_ms;
    uint64_t each = pool->spare_count ? used / pool->spare_count : 0;
    pthread_mutex_lock(&pool->mutex);
    pool->stats.ready = ready;
    pool->stats.memory_used = used;
    pool->stats.is_full = used + each > pool->memory_bytes;
    pthread_cond_broadcast(&pool->changed);
    pthread_mutex_unlock(&pool->mutex);
}

static void refill(cay_pool *pool)
{
    int code = add_spare(pool, NULL);
    uint64_t now = clock_ms();

    pthread_mutex_lock(&pool->mutex);
    ++*(code ? &pool->stats.failed : &pool->stats.created);
    pthread_mutex_unlock(&pool->mutex);
    if (code) {
        pool->refill_ms = now + pool->retry_ms;
        pool->retry_ms =
            pool->retry_ms < RETRY_MAX_MS / 2 ? 2 * pool->retry_ms : RETRY_MAX_MS;
    } else {
        pool->retry_ms = RETRY_MS;
    }
    publish(pool);
}

/* The socket to PID 1 is closed: it was claimed, or has ended. */
static void lose(cay_pool *pool, size_t i)
{
    struct spare *spare = &pool->spares[i];
    bool is_claimed = !spare_withdraw(&spare->key, spare->native->record.id);

    if (!is_claimed) {
        end_spare(pool, i);
        return;
    }
    pool->refill_ms = clock_ms() + (pool->spare_count > 1 ? QUIET_MS : 0);
    forget(pool, i);
    pthread_mutex_lock(&pool->mutex);
    pool->stats.claimed++;
    pthread_mutex_unlock(&pool->mutex);
}

/* Spares whose claiming process was killed before PID 1 heard of it. */
static void end_abandoned(cay_pool *pool)
{
    uint64_t now = clock_ms();

    for (size_t i = pool->spare_count; i-- > 0;) {
        struct spare *spare = &pool->spares[i];
        if (spare->taken_ms && now >= spare->taken_ms + CLAIM_MS)
            end_spare(pool, i);
        else if (!spare->taken_ms &&
                 !spare_is_offered(&spare->key, spare->native->record.id))
            spare->taken_ms = now;
    }
}

static void yield_memory(cay_pool *pool)
{
    unsigned percent = available_percent();
    bool is_short = percent < SHORT_PERCENT;

    if (is_short) {
        while (pool->spare_count)
            end_spare(pool, pool->spare_count - 1);
        pool->refill_ms = clock_ms() + YIELD_MS;
    }
    pthread_mutex_lock(&pool->mutex);
    pool->stats.is_yielding =
        is_short || (pool->stats.is_yielding && percent < ENOUGH_PERCENT);
    pthread_mutex_unlock(&pool->mutex);
}

/* --- The thread --- */

static bool wants_more(cay_pool *pool)
{
    return pool->spare_count < pool->stats.count && !pool->stats.is_full &&
           !pool->stats.is_yielding;
}

static int next_timeout(cay_pool *pool)
{
    uint64_t now = clock_ms();
    uint64_t until = pool->look_ms;

    if (wants_more(pool) && pool->refill_ms < until)
        until = pool->refill_ms;
    return until > now ? (int)(until - now) : 0;
}

static void watch(cay_pool *pool, struct pollfd *fds)
{
    size_t count = pool->spare_count;

    fds[0] = (struct pollfd){.fd = pool->wake, .events = POLLIN};
    for (size_t i = 0; i < count; i++)
        fds[i + 1] = (struct pollfd){.fd = pool->spares[i].native->leash};
    if (poll(fds, count + 1, next_timeout(pool)) <= 0)
        return;
    for (size_t i = count; i-- > 0;)
        if (fds[i + 1].revents)
            lose(pool, i);
}

static void *run(void *cookie)
{
    cay_pool *pool = cookie;
    struct pollfd *fds = calloc(pool->stats.count + 1, sizeof *fds);

    while (fds) {
        watch(pool, fds);
        if (fds[0].revents)
            break;
        if (clock_ms() >= pool->look_ms) {
            end_abandoned(pool);
            yield_memory(pool);
            publish(pool);
            pool->look_ms = clock_ms() + LOOK_MS;
        }
        if (wants_more(pool) && clock_ms() >= pool->refill_ms)
            refill(pool);
    }
    while (pool->spare_count)
        end_spare(pool, pool->spare_count - 1);
    free(fds);
    return NULL;
}

/* --- Public functions --- */

static void free_all(cay_pool *pool)
{
    for (size_t i = 0; i < pool->text_count; i++)
        free(pool->texts[i]);
    free(pool->texts);
    free(pool->binds);
    free(pool->spares);
    auto_close(&pool->wake);
    pthread_cond_destroy(&pool->changed);
    pthread_mutex_destroy(&pool->mutex);
    free(pool);
}

void cay_pool_free(cay_pool *pool)
{
    if (!pool)
        return;
    if (pool->owner == getpid() && pool->has_thread) {
        (void)!write(pool->wake, &(uint64_t){1}, sizeof(uint64_t));
        pthread_join(pool->thread, NULL);
    }
    if (pool->owner == getpid())
        while (pool->spare_count)
            end_spare(pool, pool->spare_count - 1);
    free_all(pool);
}

/* The program's signal handlers do not run in the thread. */
static int start_thread(cay_pool *pool)
{
    sigset_t all, before;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&pool->thread, NULL, run, pool);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pool->has_thread = !error;
    return error;
}

static cay_pool *new_pool(const struct cay_pool_options *options)
{
    cay_pool *pool = calloc(1, sizeof *pool);
    uint64_t random = 0;

    if (!pool)
        return NULL;
    pool->owner = getpid();
    pthread_mutex_init(&pool->mutex, NULL);
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&pool->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    pool->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pool->retry_ms = RETRY_MS;
    pool->memory_bytes =
        options->memory_bytes ? options->memory_bytes : CAY_POOL_MEMORY_DEFAULT;
    pool->stats.count = options->count ? options->count : CAY_POOL_COUNT_DEFAULT;
    pool->spares = calloc(pool->stats.count, sizeof *pool->spares);
    (void)!getrandom(&random, sizeof random, 0);
    if (!options->is_shared)
        snprintf(pool->name, sizeof pool->name, "p-%016llx", (unsigned long long)random);
    return pool;
}

int cay_pool_create(const struct cay_pool_options *options, cay_pool **ret_pool,
                    struct cay_error *err)
{
    static const char op[] = "pool.create";
    struct cay_pool_options known;
    int code = cay_take_struct(&known, sizeof known, options, op, err);

    if (code)
        return code;
    if (known.count > CAY_POOL_COUNT_MAX)
        return cay_fail(err, CAY_E_INVALID, 0, op, "count", "too many spares",
                        "the limit is %d", CAY_POOL_COUNT_MAX);
    cay_pool *pool = new_pool(&known);
    if (!pool)
        return cay_fail_memory(err, op);
    if (!pool->spares || pool->wake < 0)
        code = cay_fail_errno(err, pool->spares ? errno : ENOMEM, op, "pool");
    if (!code)
        code = copy_options(pool, known.sandbox, err);
    if (!code)
        code = add_spare(pool, err);
    if (!code) {
        pool->stats.created = 1;
        pool->look_ms = clock_ms() + LOOK_MS;
        publish(pool);
        int error = start_thread(pool);
        code = error ? cay_fail_errno(err, error, op, "thread") : CAY_OK;
    }
    if (code)
        cay_pool_free(pool);
    else
        *ret_pool = pool;
    return code;
}

const char *cay_pool_name(const cay_pool *pool)
{
    return pool->name;
}

void cay_pool_get_stats(cay_pool *pool, struct cay_pool_stats *ret_stats)
{
    pthread_mutex_lock(&pool->mutex);
    *ret_stats = pool->stats;
    pthread_mutex_unlock(&pool->mutex);
}

int cay_pool_wait(cay_pool *pool, uint32_t count, uint64_t timeout_ms,
                  struct cay_error *err)
{
    static const char op[] = "pool.wait";
    struct timespec end;
    int error = 0;

    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += (time_t)(timeout_ms / 1000);
    end.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
    if (end.tv_nsec >= 1000000000) {
        end.tv_sec++;
        end.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&pool->mutex);
    if (!count || count > pool->stats.count)
        count = pool->stats.count;
    while (!error && pool->stats.ready < count && !pool->stats.is_full)
        error = pthread_cond_timedwait(&pool->changed, &pool->mutex, &end);
    struct cay_pool_stats now = pool->stats;
    pthread_mutex_unlock(&pool->mutex);
    if (now.ready >= count)
        return CAY_OK;
    return now.is_full ? cay_fail(err, CAY_E_LIMIT, 0, op, "memory",
                                  "the memory limit of the pool allows no more spares",
                                  "raise the limit, or use fewer spares")
                       : cay_fail(err, CAY_E_TIMEOUT, 0, op, "count",
                                  "the spares are not ready yet", "wait longer");
}
