/* SPDX-License-Identifier: Apache-2.0 */
#include "native/doctor/inspect.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/auto.h"
#include "base/error.h"
#include "native/make/join.h"
#include "native/process/command.h"
#include "native/process/wire.h"
#include "native/record/cgroup.h"
#include "native/record/remove.h"
#include "native/record/storage.h"
#include "native/record/volume.h"

static const char op[] = "sandbox.inspect";

enum { REPLY_MS = 100 };

__attribute__((format(printf, 3, 4))) static void
enforce(struct cay_sandbox_info *info, unsigned layer, const char *by, ...)
{
    va_list values;

    if (info->enforced_count == CAY_LAYERS_MAX)
        return;
    struct cay_enforced *entry = &info->enforced[info->enforced_count++];
    entry->layer = layer;
    info->layers |= layer;
    va_start(values, by);
    vsnprintf(entry->by, sizeof entry->by, by, values);
    va_end(values);
}

static void say_user(const struct record *record, struct cay_sandbox_info *info)
{
    switch ((enum cay_level)record->level) {
    case CAY_LEVEL_ROOT:
        enforce(info, CAY_LAYER_USER, "user ids 0x%x+%u", record->id_base,
                record->id_count);
        return;
    case CAY_LEVEL_RANGE:
        enforce(info, CAY_LAYER_USER, "user ids %u+%u of /etc/subuid", record->id_base,
                record->id_count);
        return;
    case CAY_LEVEL_SINGLE:
        enforce(info, CAY_LAYER_USER, "user namespace with one user id, %u",
                record->id_base);
        return;
    case CAY_LEVEL_BEST:
    case CAY_LEVEL_LANDLOCK:
    case CAY_LEVEL_NONE:
        return;
    }
}

static void say_namespaces(const struct record *record, struct cay_sandbox_info *info)
{
    if (record->layers & CAY_LAYER_USER)
        say_user(record, info);
    if (record->layers & CAY_LAYER_PID)
        enforce(info, CAY_LAYER_PID, "PID namespace");
    if (record->layers & CAY_LAYER_MOUNT)
        enforce(info, CAY_LAYER_MOUNT, "mount namespace, own root");
    if (record->layers & CAY_LAYER_NETWORK)
        enforce(info, CAY_LAYER_NETWORK, "%s",
                record->is_relayed               ? "network namespace, relayed by cay-net"
                : record->layers & CAY_LAYER_PID ? "network namespace, loopback only"
                                                 : "seccomp: no sockets");
    if (record->layers & CAY_LAYER_IPC)
        enforce(info, CAY_LAYER_IPC, "IPC namespace");
    if (record->layers & CAY_LAYER_UTS)
        enforce(info, CAY_LAYER_UTS, "UTS namespace");
    if (record->layers & CAY_LAYER_CGROUP)
        enforce(info, CAY_LAYER_CGROUP, "cgroup v2, one per command");
    if (record->layers & CAY_LAYER_SECCOMP)
        enforce(info, CAY_LAYER_SECCOMP, "seccomp, %u calls allowed", record->calls);
    if (record->layers & CAY_LAYER_LANDLOCK)
        enforce(info, CAY_LAYER_LANDLOCK, "landlock ABI %u", record->landlock_abi);
}

/* A limit is only listed if the kernel still has it. */
static void say_limits(const struct record *record, struct cay_sandbox_info *info)
{
    static const unsigned layers[] = {CAY_LAYER_MEMORY, CAY_LAYER_PIDS, CAY_LAYER_CPU};
    char by[64];

    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
        if (record->layers & layers[i] &&
            cgroup_has_limit(&record->cgroup, layers[i], by, sizeof by))
            enforce(info, layers[i], "%s", by);
        else if (layers[i] == CAY_LAYER_PIDS && record->pids_by_rlimit)
            enforce(info, CAY_LAYER_PIDS, "RLIMIT_NPROC per user inside");
    if (record->layers & CAY_LAYER_DISK)
        enforce(info, CAY_LAYER_DISK, "%s",
                record->storage == CAY_STORAGE_DISK ? "ext4 on a loop device"
                                                    : "tmpfs size");
}

static void copy_record(const struct record *record, struct cay_sandbox_info *info)
{
    memcpy(info->id, record->id, sizeof info->id);
    info->level = (enum cay_level)record->level;
    info->network = (enum cay_network)record->network;
    info->storage = (enum cay_storage)record->storage;
    info->ephemeral = record->ephemeral;
    memcpy(info->template_name, record->template_name, sizeof info->template_name);
    memcpy(info->user, record->user, sizeof info->user);
    memcpy(info->workdir, record->workdir, sizeof info->workdir);
    memcpy(info->name, record->name, sizeof info->name);
    memcpy(info->networks, record->networks, sizeof info->networks);
    memcpy(info->volumes, record->volumes, sizeof info->volumes);
    info->created_ms = record->created_ms;
    info->memory_bytes = record->memory_bytes;
    info->disk_bytes = record->disk_bytes;
    info->pids = record->pids;
    info->cpu_percent = record->cpu_percent;
    info->id_base = record->id_base;
    info->id_count = record->id_count;
    cay_copy_text(info->type, sizeof info->type,
                  runtime_is_local(record) ? "local" : "native");
}

/* Without a cgroup, processes are counted one by one, except for those that have
 * ended. */
static int count_processes(struct native *native, struct cay_sandbox_info *info)
{
    struct cay_process_info *processes = NULL;
    size_t count = 0;

    int code = native_processes.list(native, &processes, &count, NULL);
    for (size_t i = 0; i < count; i++) {
        if (processes[i].has_ended)
            continue;
        info->pids_used++;
        info->memory_used += processes[i].memory_bytes;
        info->cpu_us += processes[i].cpu_us;
    }
    free(processes);
    return code;
}

static int measure(struct native *native, struct cay_sandbox_info *info)
{
    struct cgroup_usage usage;
    int code = CAY_OK;

    cgroup_usage(&native->record.cgroup, &usage);
    info->state = native->record.is_spare ? CAY_STATE_SPARE
                  : usage.frozen          ? CAY_STATE_PAUSED
                                          : CAY_STATE_RUNNING;
    if (!usage.has_pids || !usage.has_memory || !usage.has_cpu)
        code = count_processes(native, info);
    if (usage.has_pids)
        info->pids_used = usage.pids;
    if (usage.has_memory)
        info->memory_used = usage.memory;
    if (usage.has_cpu)
        info->cpu_us = usage.cpu_us;
    return code == CAY_E_TIMEOUT ? code : CAY_OK;
}

static void take_state(const struct native *native, const struct state *state,
                       struct cay_sandbox_info *info)
{
    if (native->record.layers & CAY_LAYER_DISK) /* else it is shared with others */
        info->disk_used = state->disk_used;
    if (state->ttl_left_ms != UINT64_MAX) /* 0 would mean no time to live */
        info->ttl_left_ms = state->ttl_left_ms ? state->ttl_left_ms : 1;
}

/* The cgroup of an ended sandbox stays until the sandbox is removed. */
static uint64_t count_memory_kills(const struct record *record)
{
    AUTO_FD fd = *record->cgroup.memory_events
                     ? open(record->cgroup.memory_events, O_RDONLY | O_CLOEXEC)
                     : -1;
    const struct limit_events events = {.memory = fd, .pids = -1};

    return command_memory_kills(command_mark(&events, 0), 0);
}

/* Everything except the reply of init.  CAY_E_TIMEOUT: init does not reply. */
static int look_outside(struct native *native, struct cay_sandbox_info *ret_info)
{
    const struct record *record = &native->record;

    memset(ret_info, 0, sizeof *ret_info);
    copy_record(record, ret_info);
    ret_info->memory_kills = count_memory_kills(record);
    if (!runtime_is_alive(record)) {
        ret_info->state = CAY_STATE_STOPPED;
        return CAY_OK;
    }
    ret_info->init_pid = record->init;
    say_namespaces(record, ret_info);
    say_limits(record, ret_info);
    return measure(native, ret_info);
}

/* Reports what is known outside even if init does not reply. */
static void look(struct native *native, struct cay_sandbox_info *ret_info)
{
    struct state state;
    int code = look_outside(native, ret_info);

    if (!code && ret_info->state != CAY_STATE_STOPPED &&
        native_init_state(native, &state, NULL) == CAY_OK)
        take_state(native, &state, ret_info);
}

/* A sandbox with a disk that is not running. */
static int look_at_stopped(const char *id, struct cay_sandbox_info *ret_info,
                           struct cay_error *err)
{
    struct storage_saved saved;
    int code = storage_load(id, &saved, err);

    if (code)
        return code;
    const struct cay_sandbox_options *options = &saved.options;
    *ret_info = (struct cay_sandbox_info){
        .state = CAY_STATE_STOPPED,
        .network = options->network,
        .storage = CAY_STORAGE_DISK,
        .ephemeral = options->ephemeral,
        .created_ms = saved.created_ms,
        .memory_bytes = options->memory_bytes,
        .disk_bytes = options->disk_bytes,
        .pids = options->pids,
        .cpu_percent = options->cpu_percent,
        .type = "native",
    };
    cay_copy_text(ret_info->id, sizeof ret_info->id, id);
    cay_copy_text(ret_info->template_name, sizeof ret_info->template_name,
                  options->template_name ? options->template_name : "host");
    cay_copy_text(ret_info->user, sizeof ret_info->user,
                  options->user ? options->user : "user");
    cay_copy_text(ret_info->workdir, sizeof ret_info->workdir, options->workdir);
    cay_copy_text(ret_info->name, sizeof ret_info->name, options->name);
    (void)!join_plan(options->networks, options->name ? options->name : id,
                     ret_info->networks, NULL);
    for (size_t i = 0; i < options->bind_count; i++)
        if (cay_volume_is_source(options->binds[i].source))
            (void)volume_add_name(ret_info->volumes, options->binds[i].source);
    storage_saved_done(&saved);
    return CAY_OK;
}

/* Usage of the cgroups, and what was recovered without the record. */
static void look_at_damaged(const char *id, struct cay_sandbox_info *ret_info)
{
    struct record record;
    struct cgroup_usage usage;

    memset(ret_info, 0, sizeof *ret_info);
    (void)record_recover(id, &record);
    copy_record(&record, ret_info);
    cgroup_usage(&record.cgroup, &usage);
    ret_info->state = CAY_STATE_DAMAGED;
    ret_info->init_pid = record.init;
    ret_info->created_ms = runtime_changed_ms(id);
    ret_info->memory_used = usage.memory;
    ret_info->pids_used = usage.pids;
    ret_info->cpu_us = usage.cpu_us;
}

/* Another handle may have changed or ended it. */
int inspect_sandbox(void *cookie, struct cay_sandbox_info *ret_info,
                    struct cay_error *err)
{
    struct native *native = cookie;
    struct record now;
    struct cay_error why;
    int code = runtime_load(native->record.id, &now, &why);

    if (code == CAY_E_INTERNAL) {
        look_at_damaged(native->record.id, ret_info);
        return CAY_OK;
    }
    if (native->record.storage == CAY_STORAGE_DISK && (code || !runtime_is_alive(&now)))
        return look_at_stopped(native->record.id, ret_info, err);
    if (!code) {
        native->record = now;
        look(native, ret_info);
    } else if (err) {
        *err = why;
    }
    return code;
}

/* --- Lists --- */

/* Sandboxes with a pending state request: each needs a descriptor. */
enum { PENDING_MAX = 64 };

struct pending {
    struct native native;
    size_t index; /* in the list */
};

struct listing {
    struct cay_sandbox_info *infos;
    size_t count, room;
    struct pending *pending; /* PENDING_MAX entries */
    size_t pending_count;
    int reply_ms;  /* for each; reduced after one sandbox did not reply */
    bool is_brief; /* only what records contain */
    bool failed;
};

/* A new entry, or NULL. */
static struct cay_sandbox_info *add(struct listing *listing)
{
    listing->failed = !array_reserve(&listing->infos, &listing->room, listing->count + 1,
                                     sizeof *listing->infos);
    return listing->failed ? NULL : &listing->infos[listing->count];
}

/* The requests were sent together, so one slow sandbox does not delay the others. */
static void fetch_pending(struct listing *listing)
{
    for (size_t i = 0; i < listing->pending_count; i++) {
        struct pending *one = &listing->pending[i];
        struct state state;
        one->native.reply_ms = listing->reply_ms;
        int code =
            wire_receive(&one->native, op, MESSAGE_STATE, &state, sizeof state, NULL);
        if (!code)
            take_state(&one->native, &state, &listing->infos[one->index]);
        if (code == CAY_E_TIMEOUT)
            listing->reply_ms = REPLY_MS;
        native_close(&one->native);
    }
    listing->pending_count = 0;
}

/* False if it could not be inspected or requested: there may be too few descriptors
 * left. */
static bool try_living(struct listing *listing, const char *id)
{
    struct pending *one = &listing->pending[listing->pending_count];
    struct native *native = &one->native;

    *native = NATIVE_NONE;
    native->reply_ms = listing->reply_ms;
    int code = runtime_load(id, &native->record, NULL);
    if (code == CAY_E_INTERNAL && add(listing))
        look_at_damaged(id, &listing->infos[listing->count++]);
    if (code || !runtime_is_alive(&native->record) || !add(listing))
        return !code || code == CAY_E_INTERNAL || code == CAY_E_NOT_FOUND;
    one->index = listing->count++;
    if (listing->is_brief) {
        struct cay_sandbox_info *info = &listing->infos[one->index];
        *info = (struct cay_sandbox_info){
            .state = native->record.is_spare ? CAY_STATE_SPARE : CAY_STATE_RUNNING,
            .init_pid = native->record.init};
        copy_record(&native->record, info);
        return true;
    }
    code = look_outside(native, &listing->infos[one->index]);
    if (!code)
        code = wire_send(native, op, MESSAGE_STATUS, NULL, 0, NULL);
    if (code == CAY_E_TIMEOUT)
        listing->reply_ms = REPLY_MS;
    if (code)
        native_close(native);
    else
        listing->pending_count++;
    return !code || code == CAY_E_TIMEOUT || code == CAY_E_NOT_FOUND;
}

/* A sandbox that ends meanwhile is left out; cay_sandbox_collect() removes those that
 * ended by themselves. */
static void add_living(const char *id, void *cookie)
{
    struct listing *listing = cookie;
    size_t count = listing->count;

    if (listing->failed)
        return;
    if (!try_living(listing, id) && listing->pending_count) {
        fetch_pending(listing);
        listing->count = count;
        (void)try_living(listing, id);
    }
    if (listing->pending_count == PENDING_MAX)
        fetch_pending(listing);
}

static void add_stopped(const char *id, void *cookie)
{
    struct listing *listing = cookie;
    struct record record;
    int code = runtime_load(id, &record, NULL);

    if (listing->failed || code == CAY_E_INTERNAL ||
        (!code && runtime_is_alive(&record)) || !add(listing))
        return;
    if (look_at_stopped(id, &listing->infos[listing->count], NULL) == CAY_OK)
        listing->count++;
}

static int by_age(const void *a, const void *b)
{
    const struct cay_sandbox_info *one = a, *other = b;

    if (one->created_ms != other->created_ms)
        return one->created_ms < other->created_ms ? -1 : 1;
    return strcmp(one->id, other->id);
}

static int list(bool is_brief, struct cay_sandbox_info **ret_infos, size_t *ret_count,
                struct cay_error *err)
{
    AUTO_FREE struct pending *pending = calloc(PENDING_MAX, sizeof *pending);
    struct listing listing = {
        .reply_ms = NATIVE_REPLY_MS, .pending = pending, .is_brief = is_brief};
    int code = pending ? runtime_visit(add_living, &listing, err) : CAY_OK;

    listing.failed |= !pending;
    fetch_pending(&listing);
    if (!code)
        code = storage_visit(add_stopped, &listing, err);
    if (!code && listing.failed)
        code = cay_fail_memory(err, op);
    if (code) {
        free(listing.infos);
        return code;
    }
    if (listing.count > 1)
        qsort(listing.infos, listing.count, sizeof *listing.infos, by_age);
    *ret_infos = listing.infos;
    *ret_count = listing.count;
    return CAY_OK;
}

int cay_sandbox_list(struct cay_sandbox_info **ret_infos, size_t *ret_count,
                     struct cay_error *err)
{
    return list(false, ret_infos, ret_count, err);
}

int cay_sandbox_list_brief(struct cay_sandbox_info **ret_infos, size_t *ret_count,
                           struct cay_error *err)
{
    return list(true, ret_infos, ret_count, err);
}
