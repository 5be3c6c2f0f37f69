/* SPDX-License-Identifier: Apache-2.0 */
#include "native/native.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"
#include "native/doctor/inspect.h"
#include "native/make/program.h"
#include "native/make/root-plan.h"
#include "native/make/spare.h"
#include "native/process/process.h"
#include "native/record/members.h"
#include "native/record/names.h"
#include "native/record/remove.h"
#include "native/record/storage.h"
#include "native/record/try.h"
#include "native/template/template.h"
#include "sandbox/backend.h"
#include "sys/rights.h"
#include "sys/state-home.h"

enum { TIDY_MS = 1000, TIDY_RECORDS = 32, REMOVE_MS = 10000 };

int native_check_defaults(struct native *native,
                          const struct cay_sandbox_options *options,
                          struct cay_error *err)
{
    int code = CAY_OK;

    if (options->make_workdir && options->workdir)
        code = create_workdir(native, options, err);
    else if (options->user || options->workdir)
        code = create_check_defaults(native, options, err);
    if (code)
        (void)native_remove(native, NULL);
    return code;
}

int native_create(const struct cay_sandbox_options *options, const char *id,
                  void **ret_cookie, struct cay_error *err)
{
    struct cay_sandbox_options known;
    AUTO_NATIVE native = native_new();

    if (!native)
        return cay_fail_memory(err, "sandbox.create");
    int code = cay_take_struct(&known, sizeof known, options, "sandbox.create", err);
    if (!code)
        code = fork_or_create(&known, id, NULL, native, err);
    if (code)
        return code;
    code = native_check_defaults(native, &known, err);
    if (!code)
        *ret_cookie = TAKE_PTR(native);
    return code;
}

/* For a sandbox on disk that is not running. */
static void fill_stopped_record(const char *id, struct record *ret_record)
{
    *ret_record = (struct record){.storage = CAY_STORAGE_DISK};
    memcpy(ret_record->id, id, strlen(id) + 1);
}

static int find(const char *id, struct record *ret_record, struct cay_error *err)
{
    struct storage_saved saved;
    struct cay_error why;
    int found = runtime_load(id, ret_record, &why);

    if (found != CAY_E_NOT_FOUND) {
        if (found && err)
            *err = why;
        return found;
    }
    int code = storage_load(id, &saved, NULL);
    if (code && code != CAY_E_IO) /* a damaged one can be removed */
        return runtime_load(id, ret_record, err);
    storage_saved_done(&saved);
    fill_stopped_record(id, ret_record);
    return CAY_OK;
}

/* A caller that opens an isolated sandbox must not get a local one. */
static int check_kind(const struct record *record, bool is_local, struct cay_error *err)
{
    if (runtime_is_local(record) == is_local)
        return CAY_OK;
    return cay_fail(
        err, CAY_E_INVALID, 0, "sandbox.open", record->id,
        is_local ? "this sandbox is not of the backend \"local\""
                 : "this sandbox is of the backend \"local\", which has no isolation",
        "open it with the backend \"%s\"", is_local ? "native" : "local");
}

/* Which process finds an ended sandbox: gc; the creator, which may remove it or start it
 * again; or another process. */
enum collector { COLLECTOR_GC, COLLECTOR_CREATOR, COLLECTOR_OTHER };

/* The caller holds the lock.  The disk of an ephemeral sandbox is removed with it, unless
 * the creator may start it again; other processes leave both to gc, which finds the disk
 * by the record. */
static size_t collect(const char *id, enum collector collector)
{
    struct record record;
    int code = runtime_load(id, &record, NULL);

    if (code == CAY_E_NOT_FOUND && !runtime_is_old(id))
        return 0; /* its creator is about to write it */
    bool is_damaged = code == CAY_E_NOT_FOUND || code == CAY_E_INTERNAL;
    if (is_damaged ? record_recover(id, &record) != 0 : code || runtime_is_alive(&record))
        return 0;
    bool goes_whole = record.ephemeral && record.storage == CAY_STORAGE_DISK;
    if (goes_whole && collector == COLLECTOR_OTHER)
        return 0;
    code = CAY_OK;
    if (goes_whole && collector == COLLECTOR_GC)
        code = storage_remove(id, NULL);
    if (code == CAY_E_NOT_FOUND && storage_in_other_home(&record))
        return 0; /* its disk can only be removed with that CAY_HOME */
    if (code && code != CAY_E_NOT_FOUND)
        return 0; /* keep the record, so that the next collect tries again */
    return record_remove(&record, -1, NULL) == CAY_OK;
}

static void collect_one(const char *id, void *cookie)
{
    size_t *count = cookie;

    if (runtime_is_running(id)) /* most are, and need no lock */
        return;
    AUTO_FD lock = runtime_lock(id);
    if (lock >= 0)
        *count += collect(id, COLLECTOR_GC);
}

void native_collect(const char *id)
{
    size_t count = 0;

    collect_one(id, &count);
}

int native_open(const char *id, bool is_local, void **ret_cookie, struct cay_error *err)
{
    char named[CAY_ID_MAX] = "";
    struct cay_error why;
    size_t ended = 0;
    AUTO_NATIVE native = native_new();

    if (!native)
        return cay_fail_memory(err, "sandbox.open");
    int code = names_is_valid(id) ? names_find(id, named, err) : CAY_OK;
    if (code)
        return code;
    code = find(*named ? named : id, &native->record, &why);
    if (code == CAY_E_INTERNAL) {
        native->is_damaged = true;
        (void)record_recover(*named ? named : id, &native->record);
        *ret_cookie = TAKE_PTR(native);
        return CAY_OK;
    }
    if (code && err)
        *err = why;
    if (!code)
        code = check_kind(&native->record, is_local, err);
    /* A running sandbox that does not reply can still be killed. */
    if (!code && runtime_is_alive(&native->record))
        (void)native_connect(native, NULL);
    else if (!code && native->record.storage != CAY_STORAGE_DISK) {
        collect_one(native->record.id, &ended);
        code = wire_fail_gone("sandbox.open", id, 0, err);
    }
    if (!code)
        *ret_cookie = TAKE_PTR(native);
    return code;
}

/* It may have ended by itself, or another process may be ending it. */
static void collect_locked(const char *id, enum collector collector)
{
    AUTO_FD lock = runtime_wait_lock(id);

    if (lock >= 0)
        (void)collect(id, collector);
}

int cay_sandbox_collect(size_t *ret_count, struct cay_error *err)
{
    *ret_count = 0;
    int code = runtime_visit(collect_one, ret_count, err);
    *ret_count += storage_sweep() + template_sweep() + volume_sweep() + try_sweep() +
                  runtime_sweep();
    root_plan_host_sweep();
    program_sweep();
    names_sweep();
    members_sweep();
    spare_sweep();
    state_home_sweep(STATE_WARM, STATE_WARM_S);
    if (!code)
        runtime_mark_collected();
    return code;
}

int cay_sandbox_collect_one(const char *id, struct cay_sandbox_info *ret_info,
                            struct cay_error *err)
{
    struct native native = NATIVE_NONE;
    int code = runtime_load(id, &native.record, err);

    if (code)
        return code;
    if (native.record.storage == CAY_STORAGE_DISK || runtime_is_alive(&native.record))
        return cay_fail(err, CAY_E_BUSY, 0, "sandbox.collect", id,
                        "the sandbox has not ended, or is on disk",
                        "use cay_sandbox_remove()");
    code = inspect_sandbox(&native, ret_info, err);
    if (!code)
        collect_locked(id, COLLECTOR_GC);
    return code;
}

/* A few records, drawn from all by their order in the directory. */
struct sample {
    char ids[TIDY_RECORDS][CAY_ID_MAX];
    size_t count; /* of all */
    uint64_t random;
};

static void draw_record(const char *id, void *cookie)
{
    struct sample *sample = cookie;
    size_t i = sample->count++;

    if (i >= TIDY_RECORDS) {
        sample->random = sample->random * UINT64_C(6364136223846793005) + 1;
        i = (size_t)(sample->random >> 33) % sample->count;
    }
    if (i < TIDY_RECORDS)
        cay_copy_text(sample->ids[i], sizeof sample->ids[i], id);
}

/* Commands call it, so it must not take longer the more sandboxes there are. */
void cay_sandbox_tidy(void)
{
    struct sample sample = {.random = clock_ns()};
    size_t count = 0;

    if (runtime_was_collected(TIDY_MS))
        return;
    (void)!runtime_visit(draw_record, &sample, NULL);
    if (sample.count <= TIDY_RECORDS) {
        (void)!cay_sandbox_collect(&count, NULL);
        return;
    }
    for (size_t i = 0; i < TIDY_RECORDS; i++)
        collect_one(sample.ids[i], &count);
    state_home_sweep(STATE_WARM, STATE_WARM_S);
    runtime_mark_collected();
}

/* The record may belong to the next sandbox with this id, if another process was
 * faster. */
static int kill_locked(const struct native *native, struct cay_error *err)
{
    const struct record *own = &native->record;
    struct record now;
    struct cay_error why;
    AUTO_FD lock = runtime_wait_lock(own->id);

    if (lock < 0 && errno == EWOULDBLOCK)
        return cay_fail(err, CAY_E_BUSY, 0, "sandbox.kill", own->id,
                        "another process is removing this sandbox", "try again");
    if (lock < 0 && errno != ENOENT)
        return cay_fail_errno(err, errno, "sandbox.kill", own->id);
    int code = lock < 0 ? CAY_E_NOT_FOUND : runtime_load(own->id, &now, &why);
    if (code == CAY_E_INTERNAL && native->is_damaged)
        return record_remove_damaged(own->id, err);
    if (code && code != CAY_E_NOT_FOUND && code != CAY_E_INTERNAL) {
        if (err)
            *err = why;
        return code;
    }
    bool is_another =
        !code && (now.init != own->init || now.init_start != own->init_start);
    if (code != CAY_E_NOT_FOUND && !is_another)
        return record_remove(own, native->pidfd, err);
    /* Its other resources are gone already. */
    if (native->pidfd >= 0 && !record_stop_init(own, native->pidfd))
        return record_fail_end(own, EBUSY, err);
    return CAY_OK;
}

/* The name is released with the lock: once the record is gone, it may be another
 * sandbox's. */
static void hide(const struct record *record)
{
    AUTO_FD lock = record->name[0] ? runtime_wait_lock(record->id) : -1;

    if (!record->name[0] || lock >= 0)
        runtime_hide(record);
}

/* Ends a sandbox of a pool, unless it has ended with its last command, and leaves the
 * rest to the pool: what this caller waits for is the end of its processes.  False if the
 * pool has ended, which must be checked last: see spare_has_pool(). */
static bool end_for_pool(const struct native *native)
{
    const struct record *record = &native->record;
    AUTO_FD pidfd = -1;

    if (!record->pool[0] || record->is_spare || native->is_damaged ||
        record_kill_init(record, &pidfd, NULL) != CAY_OK ||
        (pidfd >= 0 && !record_wait_init(pidfd)))
        return false;
    hide(record);
    return spare_has_pool(record);
}

static int finish(struct native *native, enum collector collector, struct cay_error *err)
{
    int code = CAY_OK;

    if (end_for_pool(native))
        return CAY_OK;
    if (native->is_damaged || native_check(native, NULL) == CAY_OK)
        code = kill_locked(native, err);
    else
        collect_locked(native->record.id, collector);
    if (code)
        return code;
    if (native->record.storage == CAY_STORAGE_DISK) {
        native_close(native);
        native->record.init = 0;
        native->is_damaged = false;
    }
    return CAY_OK;
}

int native_kill(void *cookie, struct cay_error *err)
{
    struct native *native = cookie;

    return finish(native, native->leash >= 0 ? COLLECTOR_CREATOR : COLLECTOR_OTHER, err);
}

int native_remove(void *cookie, struct cay_error *err)
{
    struct native *native = cookie;
    uint64_t end = clock_ms() + REMOVE_MS;
    bool has_disk = native->record.storage == CAY_STORAGE_DISK;
    struct cay_error why;
    int code = has_disk ? storage_check(native->record.id, err) : CAY_OK;

    if (code == CAY_E_NOT_FOUND && native_check(native, NULL) == CAY_OK)
        return cay_fail(err, code, 0, "sandbox.remove", native->record.id,
                        "the sandbox's disk is not in this state directory",
                        "set CAY_HOME to its value when the sandbox was created; cay "
                        "kill ends the sandbox");
    if (code)
        return code;
    /* A process that is just starting the sandbox is waited for. */
    for (;;) {
        code = finish(native, COLLECTOR_CREATOR, &why);
        if (!code && has_disk)
            code = storage_remove(native->record.id, &why);
        if (code != CAY_E_BUSY || clock_ms() >= end)
            break;
        clock_sleep_ms(10);
    }
    if (code && err)
        *err = why;
    return code;
}

/* A sandbox that is about to end is alive but does not reply: kill it. */
static bool is_responsive(struct native *native)
{
    struct state state;

    if (native_check(native, NULL) != CAY_OK)
        return false;
    if (native->socket >= 0)
        rights_hang_up(native->socket);
    native->socket = -1;
    if (native_init_state(native, &state, NULL) == CAY_OK)
        return true;
    (void)!kill_locked(native, NULL);
    return false;
}

int native_restart(void *cookie, struct cay_error *err)
{
    struct native *native = cookie;
    char id[CAY_ID_MAX];

    if (native->record.storage != CAY_STORAGE_DISK)
        return cay_fail(err, CAY_E_UNSUPPORTED, 0, "sandbox.start", native->record.id,
                        "a sandbox with storage in memory cannot be started again",
                        "create it with storage on disk");
    if (native->is_damaged)
        return native_fail_damaged(native->record.id, err);
    if (is_responsive(native))
        return CAY_OK;
    memcpy(id, native->record.id, sizeof id);
    collect_locked(id, COLLECTOR_CREATOR);
    native_close(native);
    int code = create_from_disk(id, native, err);
    if (code) {
        native_close(native);
        fill_stopped_record(id, &native->record);
    } else {
        (void)!storage_set_paused(id, false, NULL);
    }
    return code;
}

/* --- Pauses without memory --- */

int cay_sandbox_pause_disk(cay_sandbox *sandbox, struct cay_error *err)
{
    static const char op[] = "sandbox.pause";
    struct native *native = sandbox->cookie;

    if (sandbox->backend->start != native_restart)
        return backend_lacks(sandbox->backend, op, err);
    if (native->record.storage != CAY_STORAGE_DISK)
        return cay_fail(err, CAY_E_UNSUPPORTED, 0, op, native->record.id,
                        "the files of a sandbox with storage in memory end with it",
                        "create it with storage on disk, or store its files with cay "
                        "snapshot create");
    if (native->record.ephemeral)
        return cay_fail(err, CAY_E_UNSUPPORTED, 0, op, native->record.id,
                        "the files of an ephemeral sandbox are removed when it ends",
                        "create it without that option");
    TRY(native_check(native, err));
    /* First, since a resume of a running sandbox does not look at it. */
    TRY(storage_set_paused(native->record.id, true, err));
    int code = native_kill(native, err);
    if (code)
        (void)!storage_set_paused(native->record.id, false, NULL);
    return code;
}

int native_wake(void *cookie, struct cay_error *err)
{
    struct native *native = cookie;
    bool is_stopped = native->record.storage == CAY_STORAGE_DISK &&
                      native_check(native, NULL) != CAY_OK;

    return is_stopped && storage_is_paused(native->record.id)
               ? native_restart(native, err)
               : native_resume(native, err);
}

/* An ended sandbox in memory is gone; one on disk is stopped. */
int native_get_state(void *cookie, enum cay_state *ret_state, struct cay_error *err)
{
    struct native *native = cookie;
    bool has_disk = native->record.storage == CAY_STORAGE_DISK;
    struct storage_saved saved;
    struct state state = {0};

    if (native->is_damaged) {
        *ret_state = CAY_STATE_DAMAGED;
        return CAY_OK;
    }
    int code =
        native_check(native, NULL); /* fails only if a sandbox on disk is stopped */
    if (!code)
        code = native_init_state(native, &state, has_disk ? NULL : err);
    if (!code)
        *ret_state = native->record.is_spare ? CAY_STATE_SPARE
                     : state.is_paused       ? CAY_STATE_PAUSED
                                             : CAY_STATE_RUNNING;
    if (!code || !has_disk)
        return code;
    code = storage_load(native->record.id, &saved, err);
    if (!code) {
        storage_saved_done(&saved);
        *ret_state = CAY_STATE_STOPPED;
    }
    return code;
}

int native_mark_id(const char *mark, char ret_id[CAY_ID_MAX], struct cay_error *err)
{
    snprintf(ret_id, CAY_ID_MAX, "sb-%.20s", mark);
    return runtime_is_id(ret_id)
               ? CAY_OK
               : cay_fail(err, CAY_E_INVALID, 0, "sandbox.mark", mark, "invalid mark",
                          "a mark has 16 characters: letters a to z and digits 2 to 7");
}

struct mark_query {
    const char *mark;
    char id[CAY_ID_MAX];    /* the result, or "" */
    struct cay_error error; /* why there is none, or why that is not known */
};

static void compare_mark(const char *id, void *cookie)
{
    struct mark_query *query = cookie;
    struct cay_error error;
    struct record record;
    int code = runtime_load(id, &record, &error);

    if (!code && strcmp(record.mark, query->mark) == 0)
        memcpy(query->id, record.id, sizeof query->id);
    /* A record that cannot be read now may be the one, unless it is damaged. */
    if (code && code != CAY_E_NOT_FOUND && code != CAY_E_INTERNAL)
        query->error = error;
}

/* Records are searched for the mark: that happens after a crash only, and a link from the
 * mark to the id would have to be kept for every sandbox. */
int native_open_marked(const char *mark, bool is_local, void **ret_cookie,
                       struct cay_error *err)
{
    char id[CAY_ID_MAX];
    struct mark_query query = {.mark = id};
    size_t ended = 0;

    TRY(native_mark_id(mark, id, err));
    collect_one(id, &ended);
    int code = native_open(id, is_local, ret_cookie, &query.error);
    if (code == CAY_E_NOT_FOUND && !is_local) {
        TRY(runtime_visit(compare_mark, &query, err));
        if (query.id[0]) {
            collect_one(query.id, &ended);
            return native_open(query.id, false, ret_cookie, err);
        }
        code = query.error.code;
    }
    if (code && err)
        *err = query.error;
    return code;
}

int native_run(const struct cay_sandbox_options *options,
               const struct cay_exec_options *exec, void **ret_native, void **ret_process,
               struct cay_error *err)
{
    struct cay_sandbox_options known;
    struct cay_exec_options command;
    struct create_first first = {.options = &command};
    AUTO_NATIVE native = native_new();

    if (!native)
        return cay_fail_memory(err, "sandbox.run");
    int code = cay_take_struct(&known, sizeof known, options, "sandbox.run", err);
    if (!code)
        code = process_check_start(exec, &command, err);
    if (!code && known.make_workdir &&
        known.workdir) { /* it is created before the command */
        code = native_create(&known, NULL, ret_native, err);
        return code ? code : process_start(*ret_native, &command, ret_process, err);
    }
    if (!code)
        code = fork_or_create(&known, NULL, &first, native, err);
    AUTO_PROCESS process = first.process;
    if (code)
        return code;
    *ret_native = TAKE_PTR(native);
    code = process_finish_start(process, &command, err);
    if (!code)
        *ret_process = TAKE_PTR(process);
    return code;
}

/* --- Public functions for native sandboxes only --- */

int cay_sandbox_create(const struct cay_sandbox_options *options,
                       cay_sandbox **ret_sandbox, struct cay_error *err)
{
    cay_sandbox *sandbox = sandbox_new(&backend_native, err);

    if (!sandbox)
        return CAY_E_NO_MEMORY;
    return sandbox_finish(sandbox, native_create(options, NULL, &sandbox->cookie, err),
                          ret_sandbox);
}

int cay_sandbox_run(const struct cay_sandbox_options *options,
                    const struct cay_exec_options *exec, cay_sandbox **ret_sandbox,
                    cay_process **ret_process, struct cay_error *err)
{
    struct cay_sandbox_options known;
    struct cay_exec_options command;
    bool is_known =
        !cay_take_struct(&known, sizeof known, options, "sandbox.run", NULL) &&
        !cay_take_struct(&command, sizeof command, exec, "sandbox.run", NULL);
    /* A fork may have the patterns of its source. */
    if (is_known && (known.approve || known.from || command.approve)) {
        TRY(cay_sandbox_create(options, ret_sandbox, err));
        return cay_process_start(*ret_sandbox, exec, ret_process, err);
    }
    cay_sandbox *sandbox = sandbox_new(&backend_native, err);
    cay_process *process = sandbox ? sandbox_process_new(&backend_native, err) : NULL;
    int code = CAY_E_NO_MEMORY;

    if (process)
        code = native_run(options, exec, &sandbox->cookie, &process->cookie, err);
    bool is_made = process && sandbox->cookie;
    (void)!sandbox_process_finish(process, code, ret_process);
    (void)!sandbox_finish(sandbox, is_made ? CAY_OK : code, ret_sandbox);
    return code;
}

int cay_sandbox_open(const char *id, cay_sandbox **ret_sandbox, struct cay_error *err)
{
    cay_sandbox *sandbox = sandbox_new(&backend_native, err);

    if (!sandbox)
        return CAY_E_NO_MEMORY;
    return sandbox_finish(sandbox, native_open(id, false, &sandbox->cookie, err),
                          ret_sandbox);
}

/* --- Kill many --- */

/* Sandboxes killed at a time: each needs two descriptors. */
enum { BATCH = 64 };

struct victim {
    struct record record;
    int lock, pidfd;
    bool has_begun;
};

static void begin_kill(const char *id, struct victim *victim)
{
    victim->lock = runtime_lock(id);
    victim->pidfd = -1;
    victim->has_begun = victim->lock >= 0 &&
                        runtime_load(id, &victim->record, NULL) == CAY_OK &&
                        runtime_check_alive(&victim->record) > 0 &&
                        record_kill_init(&victim->record, &victim->pidfd, NULL) == CAY_OK;
    if (!victim->has_begun)
        auto_close(&victim->lock);
}

/* A sandbox that is being removed, is not running, or has a damaged record. */
static int kill_alone(const char *id, struct cay_error *err)
{
    void *native = NULL;
    int code = native_open(id, false, &native, err);

    if (code == CAY_E_INVALID) /* a local sandbox, or an invalid id */
        code = native_open(id, true, &native, err);
    if (!code)
        code = native_kill(native, err);
    native_free(native);
    return code;
}

static int finish_kill(const char *id, struct victim *victim, struct cay_error *err)
{
    if (!victim->has_begun)
        return kill_alone(id, err);
    int code = record_remove(&victim->record, victim->pidfd, err);
    auto_close(&victim->pidfd);
    auto_close(&victim->lock);
    return code;
}

int cay_sandbox_kill_many(const char *const *ids, size_t count,
                          struct cay_error *ret_errors)
{
    AUTO_FREE struct victim *victims = calloc(BATCH, sizeof *victims);
    int first = CAY_OK;

    for (size_t i = 0; i < count; i += BATCH) {
        size_t end = i + BATCH < count ? i + BATCH : count;
        for (size_t j = i; victims && j < end; j++)
            begin_kill(ids[j], &victims[j - i]);
        for (size_t j = i; j < end; j++) {
            ret_errors[j] = (struct cay_error){0};
            int code = victims ? finish_kill(ids[j], &victims[j - i], &ret_errors[j])
                               : kill_alone(ids[j], &ret_errors[j]);
            if (!code)
                ret_errors[j] = (struct cay_error){0};
            first = first ? first : code;
        }
    }
    return first;
}
