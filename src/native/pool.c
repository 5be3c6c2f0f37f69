/* SPDX-License-Identifier: Apache-2.0 */

/* One thread creates the spares and offers them (make/spare.h).  PID 1 of a spare closes
 * its socket to the pool a moment after it is claimed, which wakes the thread up to
 * create the next one.
 *
 * The pool also removes what is left of claimed sandboxes: a caller that kills one waits
 * until its processes have ended, and no longer.  The mounts are the largest part of that
 * work.  They go with the last process, unless a descriptor of their namespace is open,
 * so the pool has one.  The descriptors are not in the table of this process but in a
 * socket's queue: a child that the program forks would inherit them, and with them the
 * files of sandboxes that have ended. */
#include "cay/pool.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"
#include "native/make/spare.h"
#include "native/native.h"
#include "native/record/remove.h"
#include "sys/io.h"
#include "sys/path.h"
#include "sys/rights.h"

enum {
    QUIET_MS = 5,         /* without a claim, before a spare is replaced */
    CLAIM_MS = 5000,      /* a claim that takes longer was given up */
    RETRY_MS = 1000,      /* after a failure, doubled each time... */
    RETRY_MAX_MS = 60000, /* ...up to this */
    LOOK_MS = 1000,       /* between looks at the machine's memory */
    YIELD_MS = 10000,     /* without spares after a shortage of memory */
    THREAD_STACK = 1 << 20,
    SHORT_PERCENT = 5, /* of the machine's memory: below it is short */
    ENOUGH_PERCENT = 10,
    STOP_MS = 30000,  /* for cay_pool_stop() */
    CLAIMED_MAX = 64, /* claimed sandboxes that the pool watches */
    MOUNTS_MAX = 128  /* mount namespaces: the kernel limits such descriptors per user */
};

struct spare {
    struct native *native; /* its leash ends it */
    struct spare_key key;
    uint64_t taken_ms; /* when its offer was first found removed; 0: not so far */
};

/* A claimed sandbox, until it has ended. */
struct claimed {
    char id[CAY_ID_MAX];
    int pidfd; /* of PID 1 */
};

struct cay_pool {
    pid_t owner;
    pthread_t thread;
    bool has_thread;
    int wake;   /* eventfd: the pool is to end */
    int status; /* its file in the runtime directory, locked */
    int notify; /* inotify: the file was removed */
    struct cay_pool_info info;
    struct cay_sandbox_options options;
    struct cay_bind *binds;
    char **texts; /* copies that the options point to */
    size_t text_count;

    pthread_mutex_t mutex; /* for all that follows */
    pthread_cond_t changed;
    struct cay_pool_stats stats;

    /* Used by the thread only, and by cay_pool_create() before it starts.  Changes of the
     * array hold the mutex: a child of fork(2) finds it whole. */
    struct spare *spares;
    size_t spare_count;
    struct claimed claimed[CLAIMED_MAX]; /* the oldest first */
    size_t claimed_count;
    bool has_unwatched; /* a claimed sandbox that is not among them */
    int mounts[2];      /* a socket whose queue has the mount namespaces, with the ids */
    size_t mounts_count;
    uint64_t refill_ms; /* not before */
    uint64_t retry_ms;
    uint64_t look_ms;
};

/* --- Options --- */

/* Replaces the text by a copy; false if memory is exhausted. */
static bool keep(cay_pool *pool, const char **text)
{
    if (!*text)
        return true;
    char *copy = strdup(*text);
    *text = copy;
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
    /* Network rules come with the claim, so of such a policy only the network counts. */
    if (own->policy && !cay_policy_mount_count(own->policy)) {
        if (own->network == CAY_NETWORK_NONE)
            own->network = cay_policy_network(own->policy);
        own->policy = NULL;
    }
    if (own->networks && own->networks[0] && own->network == CAY_NETWORK_NONE)
        own->network = CAY_NETWORK_RULES; /* they come with the claim, too */
    own->networks = NULL;
    size_t binds = own->bind_count;
    pool->texts = calloc(2 * binds + 6, sizeof *pool->texts);
    pool->binds = calloc(binds + 1, sizeof *pool->binds);
    if (!pool->texts || !pool->binds)
        return cay_fail_memory(err, "pool.create");
    bool is_kept = keep(pool, &own->template_name) && keep(pool, &own->hostname) &&
                   keep(pool, &own->user) && keep(pool, &own->workdir) &&
                   keep(pool, &own->id_prefix) && keep(pool, &own->from);
    for (size_t i = 0; is_kept && i < binds; i++) {
        pool->binds[i] = own->binds[i];
        is_kept =
            keep(pool, &pool->binds[i].source) && keep(pool, &pool->binds[i].target);
    }
    if (!is_kept)
        return cay_fail_memory(err, "pool.create");
    own->binds = pool->binds;
    cay_copy_text(pool->info.template_name, sizeof pool->info.template_name,
                  own->template_name ? own->template_name : "host");
    own->pool = cay_pool_name(pool);
    return CAY_OK;
}

/* --- Memory --- */

static uint64_t read_meminfo(const char *text, const char *name)
{
    const char *at = strstr(text, name);

    return at ? strtoull(at + strlen(name), NULL, 10) : 0;
}

/* MemAvailable in percent of MemTotal; 100 if unknown. */
static unsigned available_percent(void)
{
    char text[512] = "";
    ssize_t len = io_read_text(AT_FDCWD, "/proc/meminfo", text, sizeof text);
    uint64_t total = len > 0 ? read_meminfo(text, "MemTotal:") : 0;

    return total ? (unsigned)(read_meminfo(text, "MemAvailable:") * 100 / total) : 100;
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

/* --- The status file --- */

/* "pools/ID" in the runtime directory has a struct cay_pool_info.  The pool holds a lock
 * on it, and stops when it is removed. */
static const char directory[] = SPARE_POOLS;

/* Whether cay_pool_stop() has removed the file. */
static bool is_removed(const cay_pool *pool)
{
    struct stat st;

    return fstat(pool->status, &st) == 0 && st.st_nlink == 0;
}

/* Another process may remove the file as that of an ended pool before it is locked. */
static int open_status(cay_pool *pool, struct cay_error *err)
{
    char path[PATH_MAX];
    AUTO_FD dir = runtime_open_dir(directory, err);

    if (dir < 0)
        return dir;
    for (bool is_locked = false; !is_locked;) {
        auto_close(&pool->status);
        pool->status = openat(dir, pool->info.id, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (pool->status < 0 || fchmod(pool->status, 0600) != 0)
            return runtime_fail(errno, directory, err);
        is_locked = flock(pool->status, LOCK_EX | LOCK_NB) == 0;
        if (!is_locked && errno != EWOULDBLOCK)
            return runtime_fail(errno, directory, err);
        is_locked = is_locked && !is_removed(pool);
    }
    pool->notify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    snprintf(path, sizeof path, "/proc/self/fd/%d", pool->status);
    if (pool->notify < 0 || inotify_add_watch(pool->notify, path, IN_ATTRIB) < 0)
        return runtime_fail(errno, directory, err);
    return CAY_OK;
}

static void remove_status(cay_pool *pool)
{
    AUTO_FD dir = runtime_open_dir(directory, NULL);

    if (pool->status >= 0 && dir >= 0)
        (void)unlinkat(dir, pool->info.id, 0);
}

/* --- Mounts --- */

static void queue_mounts(cay_pool *pool, const char id[CAY_ID_MAX], int fd)
{
    struct iovec part = {(void *)(uintptr_t)id, CAY_ID_MAX};

    if (fd >= 0 &&
        rights_send(pool->mounts[0], &part, 1, &fd, 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 0)
        pool->mounts_count++;
}

/* The mounts of the host's directories go at once: their file systems may be unmounted
 * next.  Without the privilege to open the namespace, all go at once. */
static void keep_mounts(cay_pool *pool, const struct record *record)
{
    char path[64];

    if (pool->options.bind_count || pool->mounts_count == MOUNTS_MAX)
        return;
    snprintf(path, sizeof path, "/proc/%d/ns/mnt", (int)record->init);
    AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC);
    queue_mounts(pool, record->id, fd);
}

/* Closes the descriptor of this sandbox and puts the others back.  Without a free
 * descriptor the kernel closes those that are received: these mounts go early. */
static void release_mounts(cay_pool *pool, const char *id)
{
    char found[CAY_ID_MAX];
    struct iovec part = {found, sizeof found};
    size_t fd_count;
    bool is_found = false;

    for (size_t left = pool->mounts_count; !is_found && left > 0; left--) {
        AUTO_FD fd = -1;
        ssize_t got =
            rights_receive(pool->mounts[1], &part, 1, &fd, 1, &fd_count, MSG_DONTWAIT);
        pool->mounts_count--;
        is_found = got > 0 && memcmp(found, id, sizeof found) == 0;
        if (got > 0 && !is_found)
            queue_mounts(pool, found, fd);
    }
}

/* --- Claimed sandboxes --- */

static void unwatch(cay_pool *pool, size_t i)
{
    auto_close(&pool->claimed[i].pidfd);
    release_mounts(pool, pool->claimed[i].id);
    memmove(&pool->claimed[i], &pool->claimed[i + 1],
            (--pool->claimed_count - i) * sizeof *pool->claimed);
}

/* For the oldest of too many, the caller that kills it waits for the mounts, and the rest
 * is removed by the look after all sandboxes. */
static void watch_claimed(cay_pool *pool, struct native *native)
{
    if (pool->claimed_count == CLAIMED_MAX) {
        unwatch(pool, 0);
        pool->has_unwatched = true;
    }
    struct claimed *claimed = &pool->claimed[pool->claimed_count++];
    memcpy(claimed->id, native->record.id, sizeof claimed->id);
    claimed->pidfd = TAKE_FD(native->pidfd);
}

static bool has_ended(int pidfd)
{
    struct pollfd ended = {.fd = pidfd, .events = POLLIN};

    return poll(&ended, 1, 0) > 0;
}

/* Removes what is left of the sandboxes that have ended. */
static void sweep(cay_pool *pool)
{
    for (size_t i = pool->claimed_count; i-- > 0;)
        if (has_ended(pool->claimed[i].pidfd)) {
            char id[CAY_ID_MAX];
            memcpy(id, pool->claimed[i].id, sizeof id);
            unwatch(pool, i);
            native_collect(id);
        }
}

/* --- Spares --- */

static void forget(cay_pool *pool, size_t i)
{
    struct native *native = pool->spares[i].native;

    pthread_mutex_lock(&pool->mutex);
    pool->spares[i] = pool->spares[--pool->spare_count];
    pthread_mutex_unlock(&pool->mutex);
    native_free(native);
}

/* A spare whose offer is gone may be claimed already, so only its leash is closed: if it
 * is not claimed, it ends; the claim then finds it gone and takes another one. */
static void end_spare(cay_pool *pool, size_t i)
{
    struct spare *spare = &pool->spares[i];

    if (spare_withdraw(&spare->key, spare->native->record.id)) {
        release_mounts(pool, spare->native->record.id);
        (void)!native_remove(spare->native, NULL);
    } else {
        watch_claimed(pool, spare->native);
    }
    forget(pool, i);
}

static int add_spare(cay_pool *pool, struct cay_error *err)
{
    struct spare *spare = &pool->spares[pool->spare_count];
    AUTO_NATIVE native = native_new();

    if (!native)
        return cay_fail_memory(err, "pool.create");
    int code =
        fork_or_create_spare(&pool->options, pool->info.id, &spare->key, native, err);
    if (code)
        return code;
    keep_mounts(pool, &native->record);
    code = spare_offer(&spare->key, native->record.id, err);
    if (code) {
        release_mounts(pool, native->record.id);
        (void)!native_remove(native, NULL);
        return code;
    }
    pthread_mutex_lock(&pool->mutex);
    spare->native = TAKE_PTR(native);
    spare->taken_ms = 0;
    pool->spare_count++;
    pthread_mutex_unlock(&pool->mutex);
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
    pool->stats.is_full = used + each > pool->info.memory_bytes;
    pool->info.stats = pool->stats;
    pthread_cond_broadcast(&pool->changed);
    pthread_mutex_unlock(&pool->mutex);
    (void)!pwrite(pool->status, &pool->info, sizeof pool->info, 0);
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

    if (spare_is_offered(&spare->key, spare->native->record.id)) {
        end_spare(pool, i);
        return;
    }
    pool->refill_ms = clock_ms() + (pool->spare_count > 1 ? QUIET_MS : 0);
    watch_claimed(pool, spare->native);
    forget(pool, i);
    pthread_mutex_lock(&pool->mutex);
    pool->stats.claimed++;
    pool->stats.ready -= pool->stats.ready > 0;
    pool->stats.is_full = false;
    pthread_mutex_unlock(&pool->mutex);
}

/* Spares whose claiming process was killed before PID 1 heard of it. */
static void end_abandoned(cay_pool *pool)
{
    uint64_t now = clock_ms();

    for (size_t i = pool->spare_count; i-- > 0;) {
        struct spare *spare = &pool->spares[i];
        if (spare_is_offered(&spare->key, spare->native->record.id))
            spare->taken_ms = 0; /* or offered again: the request was refused */
        else if (!spare->taken_ms)
            spare->taken_ms = now;
        else if (now >= spare->taken_ms + CLAIM_MS)
            end_spare(pool, i);
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

enum { WAKE, NOTIFY, SPARES };

/* A sandbox was claimed or has ended, so a caller is busy, perhaps on the only processor:
 * the work of the pool waits, unless no spare is left. */
static void rest(const struct cay_pool *pool, struct pollfd *fds, size_t count)
{
    if (fds[WAKE].revents || fds[NOTIFY].revents || pool->spare_count == 1)
        return;
    (void)poll(fds, SPARES, QUIET_MS);
    (void)poll(fds, count, 0);
}

static void watch(cay_pool *pool, struct pollfd *fds)
{
    size_t spares = pool->spare_count, count = SPARES;

    fds[WAKE] = (struct pollfd){.fd = pool->wake, .events = POLLIN};
    fds[NOTIFY] = (struct pollfd){.fd = pool->notify, .events = POLLIN};
    for (size_t i = 0; i < spares; i++)
        fds[count++] = (struct pollfd){.fd = pool->spares[i].native->leash};
    for (size_t i = 0; i < pool->claimed_count; i++)
        fds[count++] = (struct pollfd){.fd = pool->claimed[i].pidfd, .events = POLLIN};
    if (poll(fds, count, next_timeout(pool)) <= 0)
        return;
    rest(pool, fds, count);
    for (size_t i = spares; i-- > 0;)
        if (fds[SPARES + i].revents)
            lose(pool, i);
    sweep(pool);
}

/* See spare_has_pool() for the order. */
static void end(cay_pool *pool)
{
    size_t count;

    remove_status(pool);
    while (pool->spare_count)
        end_spare(pool, pool->spare_count - 1);
    sweep(pool);
    while (pool->claimed_count)
        unwatch(pool, 0);
    if (pool->has_unwatched)
        (void)!cay_sandbox_collect(&count, NULL);
    pool->has_unwatched = false;
}

static void *run(void *cookie)
{
    cay_pool *pool = cookie;
    struct pollfd *fds = calloc(SPARES + pool->stats.count + CLAIMED_MAX, sizeof *fds);

    while (fds) {
        watch(pool, fds);
        if (fds[WAKE].revents || (fds[NOTIFY].revents && is_removed(pool)))
            break;
        if (clock_ms() >= pool->look_ms) {
            cay_sandbox_tidy(); /* what killed programs left of claimed spares */
            end_abandoned(pool);
            yield_memory(pool);
            publish(pool);
            pool->look_ms = clock_ms() + LOOK_MS;
        }
        if (wants_more(pool) && clock_ms() >= pool->refill_ms)
            refill(pool);
    }
    end(pool);
    free(fds);
    pthread_mutex_lock(&pool->mutex);
    pool->stats.is_stopped = true;
    pthread_mutex_unlock(&pool->mutex);
    publish(pool);
    (void)flock(pool->status, LOCK_UN); /* cay_pool_stop() waits for this */
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
    auto_close(&pool->status);
    auto_close(&pool->notify);
    auto_close(&pool->mounts[0]);
    auto_close(&pool->mounts[1]);
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
    if (pool->owner == getpid()) {
        end(pool);
    } else if (pthread_mutex_trylock(&pool->mutex) == 0) {
        /* An open leash in this child would keep the spares alive after the parent. */
        pthread_mutex_unlock(&pool->mutex);
        while (pool->spare_count)
            forget(pool, pool->spare_count - 1);
    }
    free_all(pool);
}

/* The program's signal handlers do not run in the thread. */
static int start_thread(cay_pool *pool)
{
    pthread_attr_t attributes;
    sigset_t all, before;

    /* To create a sandbox takes 100 KiB of stack; musl gives 128 KiB. */
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, THREAD_STACK);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&pool->thread, &attributes, run, pool);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
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
    pool->status = pool->notify = -1;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pool->mounts) != 0)
        pool->mounts[0] = pool->mounts[1] = -1;
    pool->retry_ms = RETRY_MS;
    pool->stats.count = options->count ? options->count : CAY_POOL_COUNT_DEFAULT;
    pool->spares = calloc(pool->stats.count, sizeof *pool->spares);
    (void)!getrandom(&random, sizeof random, 0);
    pool->info = (struct cay_pool_info){
        .pid = getpid(),
        .is_shared = options->is_shared,
        .may_stop = options->may_stop,
        .created_ms = clock_since_1970_ms(),
        .memory_bytes =
            options->memory_bytes ? options->memory_bytes : CAY_POOL_MEMORY_DEFAULT,
    };
    snprintf(pool->info.id, sizeof pool->info.id, "p-%016llx",
             (unsigned long long)random);
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
        code = open_status(pool, err);
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

const char *cay_pool_id(const cay_pool *pool)
{
    return pool->info.id;
}

const char *cay_pool_name(const cay_pool *pool)
{
    return pool->info.is_shared ? "" : pool->info.id;
}

void cay_pool_get_stats(cay_pool *pool, struct cay_pool_stats *ret_stats)
{
    pthread_mutex_lock(&pool->mutex);
    *ret_stats = pool->stats;
    pthread_mutex_unlock(&pool->mutex);
}

static struct timespec time_in(uint64_t ms)
{
    uint64_t now = clock_ns(), most = (INT64_MAX - now) / 1000000;
    uint64_t ns = now + (ms < most ? ms : most) * 1000000;

    return (struct timespec){(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
}

int cay_pool_wait(cay_pool *pool, uint32_t count, uint64_t timeout_ms,
                  struct cay_error *err)
{
    static const char op[] = "pool.wait";
    struct timespec end = time_in(timeout_ms);
    int error = 0;

    pthread_mutex_lock(&pool->mutex);
    if (!count || count > pool->stats.count)
        count = pool->stats.count;
    while (!error && pool->stats.ready < count && !pool->stats.is_full &&
           !pool->stats.is_stopped)
        error = pthread_cond_timedwait(&pool->changed, &pool->mutex, &end);
    struct cay_pool_stats now = pool->stats;
    pthread_mutex_unlock(&pool->mutex);
    if (now.ready >= count)
        return CAY_OK;
    if (now.is_stopped)
        return cay_fail(err, CAY_E_NOT_FOUND, 0, op, pool->info.id,
                        "the pool was stopped", "create a new one");
    if (now.is_full)
        return cay_fail(err, CAY_E_LIMIT, 0, op, "memory",
                        "the memory limit of the pool allows no more spares",
                        "raise the limit, or use fewer spares");
    return cay_fail(err, CAY_E_TIMEOUT, 0, op, "count", "the spares are not ready yet",
                    "wait longer");
}

int cay_pool_wait_stop(cay_pool *pool, uint64_t timeout_ms, struct cay_error *err)
{
    struct timespec end = time_in(timeout_ms);
    int error = 0;

    pthread_mutex_lock(&pool->mutex);
    while (!error && !pool->stats.is_stopped)
        error = pthread_cond_timedwait(&pool->changed, &pool->mutex, &end);
    bool is_stopped = pool->stats.is_stopped;
    pthread_mutex_unlock(&pool->mutex);
    return is_stopped ? CAY_OK
                      : cay_fail(err, CAY_E_TIMEOUT, 0, "pool.wait", pool->info.id,
                                 "the pool runs", "wait longer");
}

/* --- Pools of all programs --- */

/* A pool whose program has ended is removed.  0: it has ended. */
static bool read_status(int dir, const char *id, struct cay_pool_info *ret_info)
{
    AUTO_FD fd = openat(dir, id, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

    if (fd < 0)
        return false;
    if (flock(fd, LOCK_SH | LOCK_NB) == 0) {
        (void)unlinkat(dir, id, 0);
        return false;
    }
    if (io_pread(fd, ret_info, sizeof *ret_info, 0) != (ssize_t)sizeof *ret_info)
        return false;
    ret_info->id[sizeof ret_info->id - 1] = '\0';
    ret_info->template_name[sizeof ret_info->template_name - 1] = '\0';
    return strcmp(ret_info->id, id) == 0;
}

static int compare(const void *a, const void *b)
{
    const struct cay_pool_info *one = a, *other = b;

    return (one->created_ms > other->created_ms) - (one->created_ms < other->created_ms);
}

int cay_pool_list(struct cay_pool_info **ret_infos, size_t *ret_count,
                  struct cay_error *err)
{
    AUTO_FREE struct cay_pool_info *infos = NULL;
    size_t count = 0, room = 0;
    int code = CAY_OK;
    AUTO_FD dir = runtime_open_dir(directory, err);
    AUTO_DIR list = dir < 0 ? NULL : path_list(dir);

    if (!list)
        return dir < 0 ? dir : cay_fail_errno(err, errno, "pool.list", directory);
    for (struct dirent *entry; !code && (entry = readdir(list));) {
        if (count == room) {
            room = 2 * room + 8;
            struct cay_pool_info *more = reallocarray(infos, room, sizeof *infos);
            code = more ? CAY_OK : cay_fail_memory(err, "pool.list");
            infos = more ? more : infos;
        }
        if (!code && strncmp(entry->d_name, "p-", 2) == 0)
            count += read_status(dir, entry->d_name, &infos[count]);
    }
    if (code)
        return code;
    if (count)
        qsort(infos, count, sizeof *infos, compare);
    *ret_infos = TAKE_PTR(infos);
    *ret_count = count;
    return CAY_OK;
}

int cay_pool_stop(const char *id, struct cay_error *err)
{
    static const char op[] = "pool.stop";
    const struct timespec moment = {.tv_nsec = 1000000};
    uint64_t end = clock_ms() + STOP_MS;
    struct cay_pool_info info;
    AUTO_FD dir = runtime_open_dir(directory, err);

    if (dir < 0)
        return dir;
    if (strncmp(id, "p-", 2) != 0 || strchr(id, '/') || !read_status(dir, id, &info))
        return cay_fail(err, CAY_E_NOT_FOUND, 0, op, id, "there is no such pool",
                        "cay pool ls lists the pools");
    if (!info.may_stop)
        return cay_fail(err, CAY_E_DENIED, 0, op, id,
                        "this pool belongs to a program and ends with it",
                        "end the program, process %d", info.pid);
    AUTO_FD fd = openat(dir, id, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || unlinkat(dir, id, 0) != 0)
        return errno == ENOENT ? CAY_OK : cay_fail_errno(err, errno, op, id);
    while (flock(fd, LOCK_SH | LOCK_NB) != 0) {
        if (clock_ms() >= end)
            return cay_fail(err, CAY_E_TIMEOUT, 0, op, id,
                            "the pool has not ended its spares yet",
                            "check whether process %d is stopped", info.pid);
        nanosleep(&moment, NULL);
    }
    return CAY_OK;
}
