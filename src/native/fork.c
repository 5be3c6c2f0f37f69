/* SPDX-License-Identifier: Apache-2.0 */

/* Sandboxes that begin with the files of another one: its layers are below theirs, see
 * native/make/inherit.h. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "native/native.h"
#include "native/template/template.h"
#include "sandbox/backend.h"

static const char op[] = "sandbox.fork";

/* What the options leave out is the other sandbox's, as far as its limits are enforced.
 */
static void complete(struct cay_sandbox_options *options, const struct record *record)
{
    if (!options->template_name && record->template_ino)
        options->template_name = record->template_name;
    if (!options->memory_bytes && record->layers & CAY_LAYER_MEMORY)
        options->memory_bytes = record->memory_bytes;
    if (!options->disk_bytes && options->storage == (enum cay_storage)record->storage &&
        (!options->memory_bytes || record->disk_bytes <= options->memory_bytes))
        options->disk_bytes = record->disk_bytes;
    if (!options->pids && record->layers & CAY_LAYER_PIDS)
        options->pids = record->pids;
    if (!options->cpu_percent && record->layers & CAY_LAYER_CPU)
        options->cpu_percent = record->cpu_percent;
    if (!options->user)
        options->user = record->user;
    if (!options->workdir && *record->workdir)
        options->workdir = record->workdir;
}

/* "ID" or "ID:CHECKPOINT" */
static int open_source(const char *from, void **ret_source, const char **ret_checkpoint,
                       struct cay_error *err)
{
    char id[CAY_NAME_MAX];
    size_t len = strcspn(from, ":");

    if (len == 0 || len >= sizeof id || (from[len] && !from[len + 1]))
        return cay_fail(err, CAY_E_INVALID, 0, op, from,
                        "invalid sandbox or checkpoint to create from",
                        "use ID or ID:CHECKPOINT, with the names or numbers that cay ls "
                        "and cay checkpoints print");
    memcpy(id, from, len);
    id[len] = '\0';
    *ret_checkpoint = from[len] ? from + len + 1 : NULL;
    return native_open(id, false, ret_source, err);
}

/* A snapshot is a template. */
static int take_snapshot(struct cay_sandbox_options *options, struct cay_error *err)
{
    if (options->template_name && strcmp(options->template_name, options->from) != 0)
        return cay_fail(err, CAY_E_INVALID, 0, op, options->template_name,
                        "a snapshot has a template of its own", "leave the template out");
    options->template_name = options->from;
    options->from = NULL;
    return CAY_OK;
}

static int fail_ambiguous(const char *from, struct cay_error *err)
{
    return cay_fail(err, CAY_E_INVALID, 0, op, from,
                    "a sandbox and a snapshot have this name",
                    "use the id of the sandbox, or the snapshot as the template");
}

/* Each spare would be a checkpoint of another moment. */
static int fail_present(const char *from, struct cay_error *err)
{
    return cay_fail(err, CAY_E_INVALID, 0, "pool.create", from,
                    "a pool of forks needs a checkpoint",
                    "use ID:CHECKPOINT, with a checkpoint of cay checkpoint");
}

/* What options say of the files that a sandbox begins with. */
struct origin {
    struct cay_sandbox_options options; /* complete */
    struct native *source;              /* NULL: no fork */
    struct inherited inherited;
};

static int inherit(struct origin *origin, const char *checkpoint, struct cay_error *err)
{
    int code = checkpoint_inherit(origin->source, checkpoint, &origin->inherited, err);

    if (!code)
        complete(&origin->options, &origin->source->record);
    return code;
}

static int open_origin(const struct cay_sandbox_options *options, bool is_for_pool,
                       struct origin *ret_origin, struct cay_error *err)
{
    const char *from = options->from, *checkpoint = NULL;
    struct cay_error why = {0};
    void *source = NULL;

    *ret_origin = (struct origin){.options = *options};
    inherited_init(&ret_origin->inherited);
    if (!from)
        return CAY_OK;
    bool is_snapshot = template_is_snapshot(from);
    int code = open_source(from, &source, &checkpoint, &why);
    if (is_snapshot && code == CAY_E_NOT_FOUND)
        return take_snapshot(&ret_origin->options, err);
    if (code)
        return cay_fail_as(err, code, &why);
    ret_origin->source = source;
    if (is_snapshot)
        return fail_ambiguous(from, err);
    return is_for_pool && !checkpoint ? fail_present(from, err)
                                      : inherit(ret_origin, checkpoint, err);
}

static void close_origin(struct origin *origin)
{
    inherited_done(&origin->inherited);
    native_free(origin->source);
}

int fork_or_create(const struct cay_sandbox_options *options, const char *id,
                   struct create_first *first, struct native *native,
                   struct cay_error *err)
{
    struct approve_inherited approve = {NULL, NULL};
    struct origin origin;
    int code = open_origin(options, false, &origin, err);
    const struct inherited *inherited = origin.source ? &origin.inherited : NULL;

    if (!code && inherited)
        code = approve_inherit(&origin.source->record, &origin.options, &approve, err);
    if (!code)
        code = create_sandbox(&origin.options, id, inherited, first, native, err);
    approve_inherited_done(&approve);
    close_origin(&origin);
    return code;
}

int fork_or_create_spare(const struct cay_sandbox_options *options, const char *pool,
                         struct spare_key *ret_key, struct native *native,
                         struct cay_error *err)
{
    struct origin origin;
    int code = open_origin(options, true, &origin, err);

    if (!code)
        code = create_spare(&origin.options, origin.source ? &origin.inherited : NULL,
                            pool, ret_key, native, err);
    close_origin(&origin);
    return code;
}

/* --- Several --- */

enum { WORKERS_MAX = 16, WORKER_STACK = 1 << 20 };

/* Work of several threads, which take the next number until all are taken. */
struct job {
    struct cay_sandbox_options given, options; /* without and with those of the source */
    struct inherited inherited;
    cay_sandbox **sandboxes;
    struct cay_error *errors; /* NULL: the first error ends it all */
    size_t count;
    atomic_size_t next;
    pthread_mutex_t mutex; /* for the error of the lowest number */
    struct cay_error first;
    size_t first_at;
};

static int create_one(const struct job *job, cay_sandbox **ret_sandbox,
                      struct cay_error *err)
{
    AUTO_NATIVE native = native_new();
    cay_sandbox *sandbox = native ? sandbox_new(&backend_native, err) : NULL;

    *ret_sandbox = NULL;
    if (!sandbox)
        return cay_fail_memory(err, op);
    int code = create_sandbox(&job->options, NULL, &job->inherited, NULL, native, err);
    if (!code)
        code = native_check_defaults(native, &job->given, err);
    if (!code)
        sandbox->cookie = TAKE_PTR(native);
    return sandbox_finish(sandbox, code, ret_sandbox);
}

static void report(struct job *job, size_t i, const struct cay_error *error)
{
    pthread_mutex_lock(&job->mutex);
    if (!job->first.code || i < job->first_at) {
        job->first = *error;
        job->first_at = i;
    }
    pthread_mutex_unlock(&job->mutex);
    if (!job->errors)
        atomic_store(&job->next, job->count);
}

static void *work(void *cookie)
{
    struct job *job = cookie;
    size_t i;

    while ((i = atomic_fetch_add(&job->next, 1)) < job->count) {
        struct cay_error now = {0};
        int code = create_one(job, &job->sandboxes[i], &now);
        if (job->errors)
            job->errors[i] = now;
        if (code)
            report(job, i, &now);
    }
    return NULL;
}

/* PID 1 of a new sandbox and this process wait for each other, so there are two threads
 * for each processor. */
static size_t count_workers(size_t count)
{
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    size_t most = processors > 0 ? 2 * (size_t)processors : 2;

    most = most < WORKERS_MAX ? most : WORKERS_MAX;
    return count < most ? count : most;
}

/* This thread is one of them, so the work is done also if no other can be started.  The
 * program's signal handlers do not run in the others. */
static void work_together(struct job *job)
{
    pthread_t threads[WORKERS_MAX];
    size_t wanted = count_workers(job->count), count = 0;
    pthread_attr_t attributes;
    sigset_t all, before;

    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, WORKER_STACK);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (count + 1 < wanted &&
           pthread_create(&threads[count], &attributes, work, job) == 0)
        count++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    (void)work(job);
    while (count > 0)
        pthread_join(threads[--count], NULL);
}

/* All, or none if there is no room for the errors of each. */
static int create_all(struct job *job, struct cay_error *err)
{
    work_together(job);
    if (!job->first.code)
        return CAY_OK;
    for (size_t i = 0; !job->errors && i < job->count; i++)
        if (job->sandboxes[i]) {
            (void)!cay_sandbox_remove(job->sandboxes[i], NULL);
            cay_sandbox_free(TAKE_PTR(job->sandboxes[i]));
        }
    if (err)
        *err = job->first;
    return job->first.code;
}

int cay_sandbox_fork(cay_sandbox *sandbox, const char *checkpoint,
                     const struct cay_sandbox_options *options, size_t count,
                     cay_sandbox **ret_sandboxes, struct cay_error *ret_errors,
                     struct cay_error *err)
{
    static const struct cay_sandbox_options usual = {.size = sizeof usual};
    struct job job = {.sandboxes = ret_sandboxes,
                      .errors = ret_errors,
                      .count = count,
                      .mutex = PTHREAD_MUTEX_INITIALIZER};

    for (size_t i = 0; i < count; i++)
        ret_sandboxes[i] = NULL;
    if (sandbox->backend->checkpoint != native_checkpoint)
        return backend_lacks(sandbox->backend, op, err);
    struct native *native = sandbox->cookie;
    TRY(cay_take_struct(&job.given, sizeof job.given, options ? options : &usual, op,
                        err));
    if (job.given.name && count > 1)
        return cay_fail(err, CAY_E_INVALID, 0, op, job.given.name,
                        "several sandboxes cannot have one name", "leave the name out");
    TRY(checkpoint_inherit(native, checkpoint, &job.inherited, err));
    job.options = job.given;
    job.options.from = native->record.id;
    complete(&job.options, &native->record);
    struct approve_inherited approve = {NULL, NULL};
    int code = approve_inherit(&native->record, &job.options, &approve, err);
    if (!code)
        code = create_all(&job, err);
    approve_inherited_done(&approve);
    inherited_done(&job.inherited);
    return code;
}
