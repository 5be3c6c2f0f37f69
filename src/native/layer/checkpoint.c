/* SPDX-License-Identifier: Apache-2.0 */

/* A checkpoint replaces the root by an overlay with the old upper layer below and an
 * empty one above, so nothing is copied.  A rollback does the same over the layers of an
 * older checkpoint.  PID 1 is held meanwhile, so no command starts.
 *
 * If processes run, their open files and working directories would stay in the old root.
 * So the root stays, and the checkpoint is a copy of the live layer (copy.h), over the
 * same layer below.
 *
 * "tree" names the next layer before the switch and the live one after it.  If a process
 * dies in between, the device of the root tells the next one whether the switch has
 * happened. */
#include "native/layer/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"
#include "native/layer/copy.h"
#include "native/layer/flatten.h"
#include "native/layer/restore.h"
#include "native/layer/running.h"
#include "native/layer/squash.h"
#include "native/layer/switch.h"
#include "native/make/layer.h"
#include "native/make/overlay.h"
#include "native/make/visit.h"
#include "native/process/wire.h"
#include "native/record/names.h"
#include "native/record/storage.h"
#include "native/template/template.h"
#include "sys/path.h"
#include "sys/shift.h"

enum {
    START_MS = 1000,
    COPY_MS = 8000 /* less than HOLD_MS, after which PID 1 thaws the processes */
};

/* One change of a sandbox's layers. */
struct change {
    struct native *native;
    const char *op;
    int namespace;
    int mount;                  /* of the store: it exists while this is open */
    int store;                  /* locked */
    struct inherited inherited; /* if the sandbox is a fork */
    struct layer_tree tree;
    struct template template;
    uint64_t held_ms;  /* when PID 1 was held */
    size_t above_flat; /* layers below the new live one, if the root was switched */
    bool is_torn;      /* "tree" may name a next layer, which must not be removed */
    const struct checkpoint_differ *differ;
};

/* --- The store --- */

static int fail_unsupported(const struct change *change, const char *why,
                            const char *hint, struct cay_error *err)
{
    return cay_fail(err, CAY_E_UNSUPPORTED, 0, change->op, change->native->record.id, why,
                    "%s", hint);
}

static int check_kind(const struct change *change, struct cay_error *err)
{
    const struct record *record = &change->native->record;

    if (record->level != CAY_LEVEL_ROOT)
        return fail_unsupported(
            change, "only sandboxes at isolation level \"root\" have checkpoints",
            "create the sandbox as root", err);
    if (!record->cgroup.unified[0])
        return fail_unsupported(change, "this sandbox has no cgroup of version 2",
                                "mount cgroup2, and create a new sandbox", err);
    return CAY_OK;
}

static int lock_store(const struct change *change, struct cay_error *err)
{
    int error = layer_lock(change->store);

    if (error == -EWOULDBLOCK)
        return cay_fail(err, CAY_E_BUSY, 0, change->op, change->native->record.id,
                        "another process changes the checkpoints of this sandbox",
                        "try again");
    return error ? cay_fail_errno(err, -error, change->op, "lock") : CAY_OK;
}

static int root_device(const struct change *change, uint64_t *ret_device,
                       struct cay_error *err)
{
    char path[64];
    struct stat st;

    snprintf(path, sizeof path, "/proc/%d/root", (int)change->native->record.init);
    if (stat(path, &st) != 0)
        return cay_fail_errno(err, errno, change->op, "root");
    *ret_device = st.st_dev;
    return CAY_OK;
}

static int repair(const struct change *change, struct cay_error *err)
{
    int error = switch_repair(change->namespace, change->native->record.init);

    return error ? cay_fail_errno(err, -error, change->op, "root") : CAY_OK;
}

/* Finishes or drops a switch whose process died. */
static int recover(struct change *change, struct cay_error *err)
{
    struct layer_tree *tree = &change->tree;
    uint64_t device = 0;

    /* Sealed before the switch, which did not happen. */
    if (!tree->next)
        return layer_unseal(change->store, tree->live, err);
    TRY(repair(change, err));
    TRY(root_device(change, &device, err));
    if (device != tree->device)
        TRY(layer_tree_adopt(change->store, tree, err));
    /* The layers are collected again by the next layer_create(). */
    tree->next = tree->next_parent = tree->last = 0;
    TRY(layer_unseal(change->store, tree->live, err));
    return layer_tree_save(change->store, tree, true, err);
}

static int open_ancestors(struct change *change, struct cay_error *err)
{
    struct inherited *inherited = &change->inherited;

    TRY(inherited_load(change->store, inherited, err));
    for (size_t i = 0; i < inherited->store_count; i++) {
        int store = visit_open_store(change->namespace, (int)i);
        if (store < 0)
            return cay_fail_errno(err, -store, change->op, "mount namespace");
        inherited->stores[i] = store;
    }
    return CAY_OK;
}

/* The layers on disk have the owners of inside. */
static int open_disk(struct change *change, struct cay_error *err)
{
    const struct record *record = &change->native->record;
    struct storage storage;

    TRY(storage_share(record->id, &storage, err));
    change->mount = overlay_open_disk(storage.disk, record->id_base);
    storage_done(&storage);
    return change->mount < 0 ? cay_fail_errno(err, -change->mount, change->op, "disk")
                             : CAY_OK;
}

static int open_store(struct change *change, struct cay_error *err)
{
    const struct record *record = &change->native->record;

    TRY(native_check(change->native, err));
    TRY(check_kind(change, err));
    if (record->pid_namespace != runtime_pid_namespace())
        return fail_unsupported(change,
                                "the sandbox was created in another PID namespace",
                                "run this command where the sandbox was created", err);
    change->namespace = visit_open(record->init);
    if (change->namespace < 0)
        return wire_fail_gone(change->op, record->id, 0, err);
    int mount = change->mount = visit_open_store(change->namespace, VISIT_OWN_STORE);
    if (mount == -ENOENT)
        return fail_unsupported(change, "this kernel has no checkpoints",
                                "use Linux 6.15 or newer, and create a new sandbox", err);
    if (mount < 0)
        return cay_fail_errno(err, -mount, change->op, "mount namespace");
    if (record->storage == CAY_STORAGE_DISK) {
        auto_close(&change->mount);
        change->mount = -1;
        TRY(open_disk(change, err));
    }
    change->store = path_open(change->mount, ".", O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
    if (change->store < 0)
        return cay_fail_errno(err, -change->store, change->op, "store");
    return open_ancestors(change, err);
}

/* After the lock: a sandbox on disk may have been started again.  The pid is that of
 * another process if the sandbox has ended. */
static int check_alive(const struct change *change, struct cay_error *err)
{
    const struct record *record = &change->native->record;

    return runtime_check_alive(record) == 1
               ? CAY_OK
               : wire_fail_gone(change->op, record->id, 0, err);
}

static int begin(struct native *native, const char *op, struct change *ret_change,
                 struct cay_error *err)
{
    *ret_change = (struct change){.native = native,
                                  .op = op,
                                  .namespace = -1,
                                  .mount = -1,
                                  .store = -1,
                                  .template = TEMPLATE_NONE};
    inherited_init(&ret_change->inherited);
    int code = open_store(ret_change, err);
    if (!code)
        code = lock_store(ret_change, err);
    if (!code)
        code = check_alive(ret_change, err);
    if (!code)
        code = layer_tree_load(ret_change->store, &ret_change->tree, err);
    return code ? code : recover(ret_change, err);
}

static void end(struct change *change)
{
    if (change->tree.parent)
        layer_reserve(change->store);
    inherited_done(&change->inherited);
    auto_close(&change->store);
    auto_close(&change->mount);
    auto_close(&change->namespace);
    template_done(&change->template);
}

/* --- The new root --- */

/* The template that the sandbox was created from: it cannot have been removed, but one
 * with the same name may be another one. */
static int open_template(struct change *change, struct cay_error *err)
{
    const struct record *record = &change->native->record;
    struct template *template = &change->template;
    const char *name = record->template_name;
    int code = CAY_OK;

    if (!record->template_ino)
        return CAY_OK;
    if (strcmp(name, "base") == 0)
        code = template_base_open(record->network == CAY_NETWORK_NONE, template, err);
    else
        code = template_open(name, true, template, err);
    if (code ||
        (template->dev == record->template_dev && template->ino == record->template_ino))
        return code;
    return cay_fail(err, CAY_E_UNSUPPORTED, 0, change->op, name,
                    "the template has changed since the sandbox was created",
                    "create a new sandbox");
}

/* An overlay of a part of the layers, and what is below them all. */
static int mount_part(struct change *change, uint32_t parent, int top, const int *below,
                      size_t below_count, const char *part, const char *work,
                      int *ret_mount, struct cay_error *err)
{
    struct layer_stack stack;
    int lowers[LAYER_DEPTH_MAX + OVERLAY_BELOW_MAX + 1];

    TRY(layer_stack_open(change->store, parent, &change->inherited, part, &stack, err));
    memcpy(lowers, stack.fds, stack.count * sizeof *lowers);
    if (below_count)
        memcpy(lowers + stack.count, below, below_count * sizeof *lowers);
    *ret_mount = overlay_create(lowers, stack.count + below_count, top, part, work);
    change->above_flat = stack.above_flat;
    layer_stack_close(&stack);
    return *ret_mount < 0 ? cay_fail_errno(err, -*ret_mount, change->op, "overlay")
                          : CAY_OK;
}

struct new_root {
    int root, usr;
    struct overlay_below below; /* of the template */
};

static void auto_new_root(struct new_root *root)
{
    auto_close(&root->root);
    auto_close(&root->usr);
    overlay_below_done(&root->below);
}

static int mount_root(struct change *change, uint32_t id, uint32_t parent,
                      struct new_root *root, struct cay_error *err)
{
    const struct overlay overlay = {.lower = change->template.root,
                                    .below = change->template.below,
                                    .below_count = change->template.below_count,
                                    .usr = change->template.usr,
                                    .usr_above = change->template.usr_above};
    AUTO_FD top = store_open_layer(change->store, id);

    if (top < 0)
        return cay_fail_errno(err, -top, change->op, "layer");
    if (change->template.root >= 0) {
        AUTO_FD map = shift_of_process(change->native->record.init);
        int error = map < 0 ? map : overlay_below(&overlay, map, &root->below);
        if (error)
            return cay_fail_errno(err, -error, change->op, "template");
    }
    TRY(mount_part(change, parent, top, root->below.lowers, root->below.count, "upper",
                   "work", &root->root, err));
    if (!root->below.usr_count)
        return CAY_OK;
    return mount_part(change, parent, top, root->below.usr, root->below.usr_count, "usr",
                      "usr-work", &root->usr, err);
}

static int fail_switch(const struct change *change, int error,
                       const struct switch_failure *failure, struct cay_error *err)
{
    bool is_missing = strcmp(failure->step, "place") == 0 && error == -ENOENT;

    if (error == -EBUSY && strcmp(failure->step, "writers") == 0)
        return cay_fail(err, CAY_E_BUSY, EBUSY, change->op, change->native->record.id,
                        "a file of the sandbox is open for writing",
                        "wait until the upload or the writing program has ended");
    if (is_missing)
        return cay_fail(err, CAY_E_NOT_FOUND, ENOENT, change->op, failure->path,
                        "the checkpoint has no file or directory for this mount",
                        "roll back to a checkpoint that has it");
    return cay_fail_errno(err, -error, change->op,
                          *failure->path ? failure->path : failure->step);
}

static bool has_switched(const struct change *change, uint64_t before)
{
    uint64_t device = before;

    return repair(change, NULL) == CAY_OK &&
           root_device(change, &device, NULL) == CAY_OK && device != before;
}

/* The live layer becomes `id`, over the layers of `parent`. */
static int switch_to(struct change *change, uint32_t id, uint32_t parent,
                     struct cay_error *err)
{
    __attribute__((cleanup(auto_new_root))) struct new_root root = {.root = -1,
                                                                    .usr = -1};
    struct switch_failure failure;
    struct layer_tree next = change->tree;

    TRY(mount_root(change, id, parent, &root, err));
    TRY(root_device(change, &next.device, err));
    next.next = id;
    next.next_parent = parent;
    change->is_torn = true;
    TRY(layer_tree_save(change->store, &next, true, err));
    int error = switch_root(change->namespace, change->native->record.init, root.root,
                            root.usr, &failure);
    if (error == -EIO && has_switched(change, next.device)) /* its clone was killed */
        error = 0;
    if (error) {
        change->is_torn =
            layer_tree_save(change->store, &change->tree, true, NULL) != CAY_OK;
        return fail_switch(change, error, &failure, err);
    }
    change->tree =
        (struct layer_tree){.live = id, .parent = parent, .last = change->tree.last};
    /* The root cannot change back: if this fails, the next change finishes it.  A start
     * reads the file above in the same way. */
    change->is_torn =
        layer_tree_save(change->store, &change->tree, false, NULL) != CAY_OK;
    return CAY_OK;
}

/* --- Processes --- */

/* CAY_E_BUSY: a command is between clone and execve. */
static int hold(struct change *change, struct cay_error *err)
{
    uint64_t end = clock_ms() + START_MS;
    struct cay_error own = {0};
    int code;

    while (change->held_ms = clock_ms(),
           (code = wire_request(change->native, change->op, MESSAGE_HOLD, NULL, 0,
                                MESSAGE_DONE, NULL, 0, &own)) == CAY_E_BUSY &&
               clock_ms() < end)
        clock_sleep_ms(1);
    if (code && err)
        *err = own;
    return code;
}

/* Any message ends it. */
static int release(const struct change *change, int code, struct cay_error *err)
{
    int answer = wire_request(change->native, change->op, MESSAGE_PING, NULL, 0,
                              MESSAGE_PONG, NULL, 0, code ? NULL : err);

    return code ? code : answer;
}

static int fail_running(const struct change *change, struct cay_error *err)
{
    return cay_fail(err, CAY_E_BUSY, 0, change->op, change->native->record.id,
                    "a process runs in the sandbox, and its open files and working "
                    "directory would stay in the sealed files",
                    "wait for it, end it, or use a mode that copies the files or stops "
                    "all processes");
}

/* What runs, for the report. */
static int list_ended(const struct record *record, struct cay_rollback *rollback)
{
    AUTO_FREE pid_t *pids = NULL;
    size_t count = 0;
    int error = running_list(record, &pids, &count);

    rollback->ended = error || !count ? NULL : calloc(count, sizeof *rollback->ended);
    if (error || !count)
        return error;
    if (!rollback->ended)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++)
        running_describe(pids[i], &rollback->ended[i]);
    rollback->ended_count = count;
    return 0;
}

/* `rollback` NULL: without a report. */
static int kill_all(const struct change *change, struct cay_rollback *rollback,
                    struct cay_error *err)
{
    const struct record *record = &change->native->record;
    struct running_freezer freezer;
    int error = running_freeze(record, &freezer);

    if (rollback && (!error || error == -ETIMEDOUT))
        error = list_ended(record, rollback);
    if (!error || error == -ETIMEDOUT)
        error = running_kill(record);
    running_thaw(&freezer);
    if (error < 0)
        return cay_fail_errno(err, -error, change->op, "cgroup");
    return error == 0 ? CAY_OK
                      : cay_fail(err, CAY_E_BUSY, 0, change->op, record->id,
                                 "a process in the sandbox does not end",
                                 "it may be waiting for the disk; try again");
}

/* --- Checkpoint and rollback --- */

static int check_name(const struct change *change, const char *name,
                      struct cay_error *err)
{
    if (!name || (names_is_valid(name) && strspn(name, "0123456789") != strlen(name)))
        return CAY_OK;
    return cay_fail(err, CAY_E_INVALID, 0, change->op, name,
                    "invalid name of a checkpoint",
                    "use at most %d letters, digits, \"_\", \".\" and \"-\", not only "
                    "digits",
                    CAY_NAME_MAX - 1);
}

static int check_cause(const struct change *change, const char *cause,
                       struct cay_error *err)
{
    enum { MOST = sizeof((struct cay_checkpoint *)NULL)->cause - 1 };

    return !cause || (names_is_valid(cause) && strlen(cause) <= MOST)
               ? CAY_OK
               : cay_fail(err, CAY_E_INVALID, 0, change->op, cause,
                          "invalid cause of a checkpoint",
                          "use at most %d letters, digits, \"_\", \".\" and \"-\"", MOST);
}

/* *ret_is_same: nothing has changed since that checkpoint. */
static int find_same(const struct change *change, bool *ret_is_same,
                     struct cay_checkpoint *ret_checkpoint, struct cay_error *err)
{
    const struct layer_tree *tree = &change->tree;
    int empty =
        tree->parent && !tree->copy ? layer_is_empty(change->store, tree->live) : 0;

    if (empty < 0)
        return cay_fail_errno(err, -empty, change->op, "layer");
    *ret_is_same = empty;
    return empty ? layer_load(change->store, tree->parent, ret_checkpoint, err) : CAY_OK;
}

/* Puts an empty layer on the live one and gives that the record of a checkpoint. */
static int seal_live(struct change *change, const char *name, const char *cause,
                     struct cay_checkpoint *ret_checkpoint, struct cay_error *err)
{
    uint32_t live = change->tree.live;
    struct cay_checkpoint record;
    int next =
        layer_create(change->store, &change->tree, live, change->template.usr >= 0, err);

    if (next < 0)
        return next;
    /* The stack is found by the records, so this one is written first. */
    int code = layer_seal(change->store, live, &change->tree, name, cause, &record, err);
    if (!code)
        code = switch_to(change, (uint32_t)next, live, err);
    if (!code) {
        *ret_checkpoint = record;
        return CAY_OK;
    }
    (void)layer_unseal(change->store, live, NULL);
    if (!change->is_torn)
        layer_drop(change->store, (uint32_t)next);
    return code;
}

/* --- Checkpoints of running processes --- */

static int fail_copy(const struct change *change, int error, struct cay_error *err)
{
    const char *id = change->native->record.id;

    if (error == -ETIME)
        return cay_fail(err, CAY_E_TIMEOUT, 0, change->op, id,
                        "copying the changed files takes too long for frozen processes",
                        "the limit is %d seconds; stop the processes, or create a "
                        "checkpoint before they start",
                        COPY_MS / 1000);
    if (error == -ETIMEDOUT)
        return cay_fail(err, CAY_E_TIMEOUT, 0, change->op, id,
                        "a process in the sandbox cannot be frozen now",
                        "it may be waiting for the disk; try again");
    if (error == -ENOSPC || error == -EDQUOT)
        return cay_fail(err, CAY_E_NO_SPACE, -error, change->op, id,
                        "the copy of the changed files exceeds the disk limit",
                        "stop the processes, so that nothing is copied, or create the "
                        "sandbox with a higher limit");
    return cay_fail_errno(err, -error, change->op, "files");
}

/* Copies the live layer to `next`, with all processes frozen. */
static int copy_frozen(const struct change *change, uint32_t next, bool *ret_is_same,
                       uint32_t *ret_processes)
{
    const struct record *record = &change->native->record;
    struct copy_mapped mapped;
    AUTO_FREE pid_t *pids = NULL;
    size_t count = 0;
    AUTO_FD live = store_open_layer(change->store, change->tree.live);
    int error = live < 0 ? TAKE_FD(live) : running_list(record, &pids, &count);

    if (!error)
        error = copy_find_mapped(record->init, pids, count, live, &mapped);
    *ret_processes = (uint32_t)count;
    if (error)
        return error;
    const struct copy_job job = {.store = change->store,
                                 .from = change->tree.live,
                                 .last = change->tree.copy,
                                 .to = next,
                                 .has_usr = change->template.usr >= 0,
                                 .mapped = &mapped,
                                 .end_ms = change->held_ms + COPY_MS};
    return copy_layer(&job, ret_is_same);
}

/* Data first: after a power failure the record must lead to whole files. */
static int seal_copy(struct change *change, uint32_t id, const char *name,
                     const char *cause, uint32_t processes,
                     struct cay_checkpoint *ret_checkpoint, struct cay_error *err)
{
    if (change->native->record.storage == CAY_STORAGE_DISK && syncfs(change->store) != 0)
        return cay_fail_errno(err, errno, change->op, "disk");
    TRY(layer_seal(change->store, id, &change->tree, name, cause, ret_checkpoint, err));
    ret_checkpoint->processes = processes;
    TRY(layer_save(change->store, ret_checkpoint, err));
    change->tree.copy = id;
    change->tree.origin = 0;
    return layer_tree_save(change->store, &change->tree, true, err);
}

static int copy_live(struct change *change, const char *name, const char *cause,
                     bool is_frozen, bool *ret_is_same,
                     struct cay_checkpoint *ret_checkpoint, struct cay_error *err)
{
    uint32_t live = change->tree.live, processes = 0;
    int next =
        layer_create(change->store, &change->tree, live, change->template.usr >= 0, err);

    if (next < 0)
        return next;
    struct running_freezer freezer = {.control = -1};
    int error = is_frozen ? 0 : running_freeze(&change->native->record, &freezer);
    if (!error)
        error = copy_frozen(change, (uint32_t)next, ret_is_same, &processes);
    running_thaw(&freezer);
    int code = error ? fail_copy(change, error, err) : CAY_OK;
    if (!code && *ret_is_same)
        code = layer_load(change->store, change->tree.copy, ret_checkpoint, err);
    else if (!code)
        return seal_copy(change, (uint32_t)next, name, cause, processes, ret_checkpoint,
                         err);
    layer_drop(change->store, (uint32_t)next);
    return code;
}

/* --- The three ways --- */

/* The present files become a checkpoint, unless they are one. */
static int take(struct change *change, enum cay_checkpoint_mode mode, const char *name,
                const char *cause, bool *ret_is_same,
                struct cay_checkpoint *ret_checkpoint, struct cay_error *err)
{
    struct cay_error busy = {0};
    int running = 0;

    if (mode == CAY_CHECKPOINT_STOP)
        TRY(kill_all(change, NULL, err));
    else
        running = running_count(&change->native->record);
    if (running < 0)
        return cay_fail_errno(err, -running, change->op, "cgroup");
    if (running && mode == CAY_CHECKPOINT_IDLE)
        return fail_running(change, err);
    TRY(find_same(change, ret_is_same, ret_checkpoint, err));
    if (*ret_is_same)
        return CAY_OK;
    if (!running) {
        int code = seal_live(change, name, cause, ret_checkpoint, &busy);
        if (code != CAY_E_BUSY || mode != CAY_CHECKPOINT_AUTO) {
            if (code && err)
                *err = busy;
            return code;
        }
    }
    return copy_live(change, name, cause, false, ret_is_same, ret_checkpoint, err);
}

static int checkpoint(struct change *change, const struct cay_checkpoint_options *options,
                      struct cay_checkpoint *ret_checkpoint, struct cay_error *err)
{
    bool is_same = false;

    TRY(take(change, options->mode, options->name,
             options->cause ? options->cause : "checkpoint", &is_same, ret_checkpoint,
             err));
    ret_checkpoint->is_current = true;
    bool was_removed = ret_checkpoint->flags & LAYER_REMOVED;
    if (!is_same || (!was_removed && !options->name))
        return CAY_OK;
    if (was_removed)
        ret_checkpoint->created_ms = clock_since_1970_ms();
    ret_checkpoint->flags &= ~(uint32_t)LAYER_REMOVED;
    if (was_removed || options->name)
        cay_copy_text(ret_checkpoint->name, sizeof ret_checkpoint->name,
                      options->name ? options->name : "");
    return layer_save(change->store, ret_checkpoint, err);
}

int native_checkpoint(void *cookie, const struct cay_checkpoint_options *options,
                      struct cay_checkpoint *ret_checkpoint, struct cay_error *err)
{
    struct change change;
    int code = begin(cookie, "sandbox.checkpoint", &change, err);

    if (!code)
        code = check_name(&change, options->name, err);
    if (!code)
        code = check_cause(&change, options->cause, err);
    if (!code)
        code = open_template(&change, err);
    if (!code)
        code = hold(&change, err);
    if (!code)
        code = release(&change, checkpoint(&change, options, ret_checkpoint, err), err);
    /* A checkpoint without it is complete; the next one tries again. */
    if (!code && change.above_flat >= SQUASH_DEPTH)
        (void)squash_layers(change.store, change.tree.parent, &change.inherited,
                            &change.template);
    end(&change);
    return code;
}

static int rollback(struct change *change, const char *which,
                    struct cay_rollback *ret_rollback, struct cay_error *err)
{
    struct cay_checkpoint *ret_undone = &ret_rollback->undone;
    const struct layer_tree before = change->tree;
    struct cay_checkpoint target, same;
    uint32_t live = before.live;
    bool is_same = false;

    TRY(layer_find(change->store, which, &target, err));
    TRY(kill_all(change, ret_rollback, err));
    TRY(find_same(change, &is_same, &same, err));
    if (is_same && target.id == before.parent)
        return CAY_OK;
    int next = layer_create(change->store, &change->tree, target.id,
                            change->template.usr >= 0, err);
    if (next < 0)
        return next;
    /* A layer without a record is lost if this process dies after the switch. */
    int code = is_same ? CAY_OK
                       : layer_seal(change->store, live, &before, NULL, "rollback",
                                    ret_undone, err);
    if (!code)
        code = switch_to(change, (uint32_t)next, target.id, err);
    if (code) {
        *ret_undone = (struct cay_checkpoint){0};
        (void)layer_unseal(change->store, live, NULL);
        if (!change->is_torn)
            layer_drop(change->store, (uint32_t)next);
    } else if (is_same && !change->is_torn) {
        layer_drop(change->store, live);
    }
    return code;
}

/* --- Rollbacks that keep processes --- */

/* The layers of a tree for a diff, the highest first. */
struct diff_tree {
    struct cay_diff_layer layers[LAYER_DEPTH_MAX + OVERLAY_BELOW_MAX + 2];
    size_t count;
};

static void add_layers(struct diff_tree *tree, const int *fds, size_t count,
                       uint32_t id_base)
{
    for (size_t i = 0; i < count; i++)
        tree->layers[tree->count++] =
            (struct cay_diff_layer){fds[i], CAY_DIFF_MARKS_TRUSTED, id_base};
}

static void fill_tree(const struct change *change, int live,
                      const struct layer_stack *stack, struct diff_tree *tree)
{
    const struct template *template = &change->template;
    uint32_t id_base = change->native->record.id_base;

    tree->count = 0;
    add_layers(tree, &live, live >= 0, id_base);
    add_layers(tree, stack->fds, stack->count, id_base);
    add_layers(tree, &template->root, template->root >= 0, 0);
    add_layers(tree, template->below, template->below_count, 0);
}

/* Ends the processes that have a file of the changes. */
static int end_concerned(const struct change *change, const struct restore *restore,
                         struct cay_rollback *rollback)
{
    AUTO_FREE pid_t *pids = NULL;
    size_t count = 0, ended = 0;
    int error = running_list(&change->native->record, &pids, &count);

    rollback->ended = error ? NULL : calloc(count + 1, sizeof *rollback->ended);
    if (error || !rollback->ended)
        return error ? error : -ENOMEM;
    for (size_t i = 0; i < count; i++) {
        int concerned = restore_concerns(restore, pids[i]);
        if (concerned < 0)
            return concerned;
        if (!concerned)
            continue;
        running_describe(pids[i], &rollback->ended[ended]);
        pids[ended++] = pids[i];
    }
    rollback->ended_count = ended;
    rollback->kept_count = count - ended;
    return running_kill_some(pids, ended) > 0 ? -ETIMEDOUT : 0;
}

static int apply(const struct change *change, const struct cay_change *changes,
                 size_t count, const struct diff_tree *after,
                 struct cay_rollback *rollback, struct cay_error *err)
{
    char path[64];
    struct restore restore = {.work = -1,
                              .after = after->layers,
                              .after_count = after->count,
                              .id_base = change->native->record.id_base,
                              .changes = changes,
                              .count = count};

    snprintf(path, sizeof path, "/proc/%d/root", (int)change->native->record.init);
    AUTO_FD root = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    restore.root = root;
    int error = root < 0 ? -errno : restore_init(&restore);
    if (!error)
        error = restore_stage(&restore, change->held_ms + COPY_MS);
    if (!error)
        error = end_concerned(change, &restore, rollback);
    if (!error)
        error = restore_apply(&restore);
    restore_done(&restore);
    if (error == -ETIME)
        return cay_fail(err, CAY_E_TIMEOUT, 0, change->op, change->native->record.id,
                        "writing the files takes too long for frozen processes",
                        "the limit is %d seconds, and nothing has changed; roll back "
                        "without the option that keeps them",
                        COPY_MS / 1000);
    return error ? cay_fail_errno(err, -error, change->op, "files") : CAY_OK;
}

/* Before PID 1 thaws the processes; 1 if none are left, since 0 is no limit. */
static uint32_t copy_ms_left(const struct change *change)
{
    uint64_t end = change->held_ms + COPY_MS, now = clock_ms();

    return now < end ? (uint32_t)(end - now) : 1;
}

static int compare_with(const struct change *change, const struct layer_stack *now,
                        const struct layer_stack *target, struct cay_rollback *rollback,
                        struct cay_error *err)
{
    const struct cay_diff_options options = {.size = sizeof options,
                                             .flags = CAY_DIFF_NO_RENAMES,
                                             .timeout_ms = copy_ms_left(change)};
    AUTO_FREE struct diff_tree *trees = calloc(2, sizeof *trees);
    AUTO_FD live = store_open_layer(change->store, change->tree.live);
    AUTO_FD upper =
        live < 0 ? live : path_open(live, "upper", O_PATH | O_DIRECTORY, 0, PATH_PLAIN);
    cay_diff *diff = NULL;

    if (!trees || upper < 0)
        return cay_fail_errno(err, trees ? -upper : ENOMEM, change->op, "layer");
    fill_tree(change, upper, now, &trees[0]);
    fill_tree(change, -1, target, &trees[1]);
    TRY(change->differ->compare(&(struct cay_diff_tree){trees[0].layers, trees[0].count},
                                &(struct cay_diff_tree){trees[1].layers, trees[1].count},
                                &options, &diff, err));
    size_t count;
    const struct cay_change *changes = change->differ->changes(diff, &count);
    int code = copy_ms_left(change) == 1 ? fail_copy(change, -ETIME, err)
               : change->differ->cut(diff)
                   ? cay_fail(err, CAY_E_LIMIT, 0, change->op, change->native->record.id,
                              "too many files differ to keep processes",
                              "roll back without the option that keeps them")
                   : apply(change, changes, count, &trees[1], rollback, err);
    change->differ->free(diff);
    return code;
}

static int restore_frozen(struct change *change, const struct cay_checkpoint *target,
                          struct cay_rollback *rollback, struct cay_error *err)
{
    struct layer_stack now, after;
    bool is_same = false;

    TRY(copy_live(change, NULL, "rollback", true, &is_same, &rollback->undone, err));
    if (is_same)
        rollback->undone.id = 0;
    TRY(layer_stack_open(change->store, change->tree.parent, &change->inherited, "upper",
                         &now, err));
    int code = layer_stack_open(change->store, target->id, &change->inherited, "upper",
                                &after, err);
    if (!code) {
        code = compare_with(change, &now, &after, rollback, err);
        layer_stack_close(&after);
    }
    layer_stack_close(&now);
    if (code)
        return code;
    change->tree.origin = target->id;
    return layer_tree_save(change->store, &change->tree, true, err);
}

static int rollback_keeping(struct change *change, const char *which,
                            struct cay_rollback *ret_rollback, struct cay_error *err)
{
    struct cay_checkpoint target;
    struct running_freezer freezer;
    int running = running_count(&change->native->record);

    if (running == 0)
        return rollback(change, which, ret_rollback, err);
    if (change->template.usr >= 0 || !change->differ)
        return fail_unsupported(
            change, "a rollback in the template \"base\" cannot keep processes",
            "leave out the option that keeps them", err);
    TRY(layer_find(change->store, which, &target, err));
    int error = running_freeze(&change->native->record, &freezer);
    int code = error ? fail_copy(change, error, err)
                     : restore_frozen(change, &target, ret_rollback, err);
    running_thaw(&freezer);
    return code;
}

int native_rollback(void *cookie, const char *which,
                    const struct cay_rollback_options *options,
                    struct cay_rollback *ret_rollback, struct cay_error *err)
{
    return checkpoint_rollback(cookie, which, options, NULL, ret_rollback, err);
}

int checkpoint_rollback(struct native *native, const char *which,
                        const struct cay_rollback_options *options,
                        const struct checkpoint_differ *differ,
                        struct cay_rollback *ret_rollback, struct cay_error *err)
{
    struct change change;
    int code = begin(native, "sandbox.rollback", &change, err);

    change.differ = differ;
    if (!code)
        code = open_template(&change, err);
    if (!code)
        code = hold(&change, err);
    if (!code)
        code = release(&change,
                       options->keep ? rollback_keeping(&change, which, ret_rollback, err)
                                     : rollback(&change, which, ret_rollback, err),
                       err);
    end(&change);
    return code;
}

bool native_checkpoint_each(const void *cookie)
{
    return ((const struct native *)cookie)->record.checkpoint_each;
}

int native_remove_checkpoint(void *cookie, const char *which, uint64_t *ret_freed,
                             struct cay_error *err)
{
    struct cay_checkpoint checkpoint;
    struct change change;
    int code = begin(cookie, "sandbox.checkpoint", &change, err);

    if (!code)
        code = layer_find(change.store, which, &checkpoint, err);
    if (!code)
        code = layer_remove(change.store, &change.tree, &checkpoint, ret_freed, err);
    end(&change);
    return code;
}

int native_checkpoints(void *cookie, struct cay_checkpoint **ret_list, size_t *ret_count,
                       struct cay_error *err)
{
    struct change change;
    int code = begin(cookie, "sandbox.checkpoints", &change, err);

    if (!code)
        code = layer_list(change.store, true, ret_list, ret_count, err);
    uint32_t origin = code ? 0 : layer_find_visible(change.store, &change.tree);
    for (size_t i = 0; !code && i < *ret_count; i++)
        (*ret_list)[i].is_current = (*ret_list)[i].id == origin;
    end(&change);
    return code;
}

/* --- Forks --- */

static int find_source(struct change *change, const char *which,
                       struct cay_checkpoint *ret_checkpoint, struct cay_error *err)
{
    if (which)
        return layer_find(change->store, which, ret_checkpoint, err);
    bool is_same = false;
    TRY(open_template(change, err));
    TRY(hold(change, err));
    return release(
        change,
        take(change, CAY_CHECKPOINT_AUTO, NULL, "fork", &is_same, ret_checkpoint, err),
        err);
}

static int fail_many(const struct change *change, int error, struct cay_error *err)
{
    return error == -E2BIG
               ? cay_fail(err, CAY_E_LIMIT, 0, change->op, change->native->record.id,
                          "the sandbox is a fork of a fork of too many others",
                          "the limit is %d; create a new sandbox", INHERIT_STORES_MAX)
               : cay_fail_errno(err, -error, change->op, "store");
}

static int inherit(struct change *change, uint32_t checkpoint,
                   struct inherited *ret_inherited, struct cay_error *err)
{
    const struct inherited *old = &change->inherited;
    uint32_t id = checkpoint, shown, below;

    const struct record *record = &change->native->record;
    bool is_disk = record->storage == CAY_STORAGE_DISK;

    if (is_disk)
        TRY(storage_share(record->id, &ret_inherited->disk, err));
    int error =
        inherited_add_store(ret_inherited, is_disk ? INHERIT_INSIDE : record->id_base);
    for (size_t i = 0; !error && i < old->store_count; i++)
        error = inherited_add_store(ret_inherited, old->bases[i]);
    if (error)
        return fail_many(change, error, err);
    for (; id && !error; id = below) {
        TRY(layer_step(change->store, id, &shown, &below, err));
        error = inherited_add_layer(ret_inherited, 0, shown);
    }
    for (size_t i = 0; !error && i < old->layer_count; i++)
        error = inherited_add_layer(ret_inherited, old->layers[i].store + 1,
                                    old->layers[i].id);
    ret_inherited->namespace = TAKE_FD(change->namespace);
    ret_inherited->template_dev = record->template_dev;
    ret_inherited->template_ino = record->template_ino;
    cay_copy_text(ret_inherited->source, sizeof ret_inherited->source, record->id);
    ret_inherited->life = is_disk ? (uint64_t)record->created_ms : record->init_start;
    ret_inherited->checkpoint = checkpoint;
    cay_copy_text(ret_inherited->below, sizeof ret_inherited->below,
                  is_disk ? record->id : record->below);
    ret_inherited->flatten = flatten_inherited;
    return error ? layer_fail_depth(err) : CAY_OK;
}

int checkpoint_inherit(struct native *native, const char *which,
                       struct inherited *ret_inherited, struct cay_error *err)
{
    struct cay_checkpoint checkpoint = {0};
    struct change change;
    int code = begin(native, "sandbox.fork", &change, err);

    inherited_init(ret_inherited);
    if (!code)
        code = find_source(&change, which, &checkpoint, err);
    if (!code && !(checkpoint.flags & LAYER_FORKED)) {
        code = layer_load(change.store, checkpoint.id, &checkpoint, err);
        checkpoint.flags |= LAYER_FORKED;
        if (!code)
            code = layer_save(change.store, &checkpoint, err);
    }
    if (!code)
        code = inherit(&change, checkpoint.id, ret_inherited, err);
    if (code)
        inherited_done(ret_inherited);
    end(&change);
    return code;
}

/* --- Differences --- */

/* The newest layer that both have.  A layer has a higher number than those below it. */
static int find_common(const struct change *change, uint32_t one, uint32_t other,
                       uint32_t *ret_common, struct cay_error *err)
{
    while (one != other) {
        uint32_t *higher = one > other ? &one : &other;
        TRY(layer_find_below(change->store, *higher, higher, err));
    }
    *ret_common = one;
    return CAY_OK;
}

static int add_upper(const struct change *change, uint32_t id, struct layer_stack *stack,
                     struct cay_error *err)
{
    if (stack->count == LAYER_DEPTH_MAX)
        return layer_fail_depth(err);
    AUTO_FD dir = store_open_layer(change->store, id);
    int fd = dir < 0 ? dir : path_open(dir, "upper", O_PATH | O_DIRECTORY, 0, PATH_PLAIN);
    if (fd < 0)
        return cay_fail_errno(err, -fd, change->op, "layer");
    stack->fds[stack->count++] = fd;
    return CAY_OK;
}

static int add_uppers(const struct change *change, uint32_t id, uint32_t end,
                      struct layer_stack *stack, struct cay_error *err)
{
    while (id != end) {
        TRY(add_upper(change, id, stack, err));
        TRY(layer_find_below(change->store, id, &id, err));
    }
    return CAY_OK;
}

static int open_pair(const struct change *change, const char *before, const char *after,
                     struct checkpoint_pair *pair, struct cay_error *err)
{
    struct cay_checkpoint one, other = {.id = change->tree.parent};
    uint32_t common;

    TRY(layer_find(change->store, before, &one, err));
    if (after)
        TRY(layer_find(change->store, after, &other, err));
    else
        TRY(add_upper(change, change->tree.live, &pair->after, err));
    TRY(find_common(change, one.id, other.id, &common, err));
    TRY(add_uppers(change, one.id, common, &pair->before, err));
    TRY(add_uppers(change, other.id, common, &pair->after, err));
    return layer_stack_open(change->store, common, &change->inherited, "upper",
                            &pair->shared, err);
}

int checkpoint_pair_open(struct native *native, const char *before, const char *after,
                         struct checkpoint_pair *ret_pair, struct cay_error *err)
{
    struct change change;
    int code = begin(native, "sandbox.diff", &change, err);

    ret_pair->before.count = ret_pair->after.count = ret_pair->shared.count = 0;
    if (!code)
        code = open_template(&change, err);
    if (!code && change.template.usr >= 0)
        code = fail_unsupported(
            &change, "the files of /usr in the template \"base\" cannot be compared",
            "use another template", err);
    if (!code)
        code = open_pair(&change, before, after, ret_pair, err);
    /* The descriptors are of these. */
    ret_pair->template = change.template;
    ret_pair->inherited = change.inherited;
    ret_pair->mount = TAKE_FD(change.mount);
    ret_pair->id_base = native->record.id_base;
    change.template = (struct template)TEMPLATE_NONE;
    inherited_init(&change.inherited);
    end(&change);
    if (code)
        checkpoint_pair_close(ret_pair);
    return code;
}

void checkpoint_pair_close(struct checkpoint_pair *pair)
{
    layer_stack_close(&pair->before);
    layer_stack_close(&pair->after);
    layer_stack_close(&pair->shared);
    template_done(&pair->template);
    inherited_done(&pair->inherited);
    auto_close(&pair->mount);
}

/* --- Files --- */

/* Adds a part of the layers of a store; on disk their owners are those inside. */
static int add_sources(int store, uint32_t id, const char *part,
                       const struct inherited *inherited, struct merge_source source,
                       struct merge_source *list, size_t *count, struct cay_error *err)
{
    struct layer_stack stack;

    TRY(layer_stack_open(store, id, inherited, part, &stack, err));
    for (size_t i = 0; i < stack.count; i++) {
        source.fd = stack.fds[i];
        list[(*count)++] = source;
    }
    return CAY_OK;
}

static void close_files(struct checkpoint_files *files)
{
    while (files->count > 0)
        auto_close(&files->upper[--files->count].fd);
    while (files->usr_count > 0)
        auto_close(&files->usr[--files->usr_count].fd);
}

static int open_part(const struct change *change, int disk, uint32_t id, const char *part,
                     struct merge_source *list, size_t *count, struct cay_error *err)
{
    static const struct inherited nothing = {.namespace = -1};
    const struct merge_source copied = {.id_base = change->native->record.id_base};

    if (disk >= 0) {
        TRY(add_sources(disk, id, part, &nothing,
                        (struct merge_source){.is_shared = true}, list, count, err));
        id = 0;
    }
    return add_sources(change->store, id, part, &change->inherited, copied, list, count,
                       err);
}

static int open_files(const struct change *change, uint32_t id,
                      struct checkpoint_files *files, struct cay_error *err)
{
    const struct record *record = &change->native->record;
    struct storage storage = STORAGE_NONE;

    files->template = &change->template;
    if (record->storage == CAY_STORAGE_DISK)
        TRY(storage_lock(record->id, &storage, err));
    int code =
        open_part(change, storage.disk, id, "upper", files->upper, &files->count, err);
    if (!code && change->template.usr >= 0)
        code = open_part(change, storage.disk, id, "usr", files->usr, &files->usr_count,
                         err);
    storage_done(&storage);
    return code;
}

static int find_files(struct change *change, const char *which,
                      enum cay_checkpoint_mode mode,
                      struct cay_checkpoint *ret_checkpoint, struct cay_error *err)
{
    const struct cay_checkpoint_options options = {.size = sizeof options, .mode = mode};

    TRY(open_template(change, err));
    if (which)
        return layer_find(change->store, which, ret_checkpoint, err);
    TRY(hold(change, err));
    return release(change, checkpoint(change, &options, ret_checkpoint, err), err);
}

int checkpoint_visit(struct native *native, const char *op, const char *which,
                     enum cay_checkpoint_mode mode, checkpoint_use *use, void *cookie,
                     struct cay_error *err)
{
    AUTO_FREE struct checkpoint_files *files = calloc(1, sizeof *files);
    struct cay_checkpoint found = {0};
    struct change change;

    if (!files)
        return cay_fail_memory(err, op);
    int code = begin(native, op, &change, err);
    if (!code)
        code = find_files(&change, which, mode, &found, err);
    if (!code)
        code = open_files(&change, found.id, files, err);
    if (!code)
        code = use(cookie, files, err);
    close_files(files);
    end(&change);
    return code;
}

/* --- Files of a stopped sandbox --- */

/* The next start writes to the live layer, so its files are copied. */
static int open_stopped_part(int disk, const struct layer_tree *tree, const char *part,
                             struct merge_source *list, size_t *count,
                             struct cay_error *err)
{
    static const struct inherited nothing = {.namespace = -1};
    AUTO_FD live = store_open_layer(disk, tree->live);
    int fd = live < 0 ? live : path_open(live, part, O_PATH | O_DIRECTORY, 0, PATH_PLAIN);

    if (fd < 0)
        return cay_fail_errno(err, -fd, "snapshot.create", part);
    list[(*count)++] = (struct merge_source){.fd = fd};
    return add_sources(disk, tree->parent, part, &nothing,
                       (struct merge_source){.is_shared = true}, list, count, err);
}

static int open_stopped(const char *name, struct template *ret_template,
                        struct cay_error *err)
{
    *ret_template = (struct template)TEMPLATE_NONE;
    if (!name || strcmp(name, "host") == 0)
        return CAY_OK;
    return strcmp(name, "base") == 0 ? template_base_open(false, ret_template, err)
                                     : template_open(name, true, ret_template, err);
}

static int open_stopped_files(const struct storage *storage, const char *name,
                              struct template *template, struct checkpoint_files *files,
                              struct cay_error *err)
{
    struct layer_tree tree;

    TRY(open_stopped(name, template, err));
    files->template = template;
    TRY(layer_tree_load(storage->disk, &tree, err));
    /* As a start does, if a process died in a switch. */
    if (tree.next)
        tree = (struct layer_tree){.live = tree.next, .parent = tree.next_parent};
    TRY(open_stopped_part(storage->disk, &tree, "upper", files->upper, &files->count,
                          err));
    if (template->usr < 0)
        return CAY_OK;
    return open_stopped_part(storage->disk, &tree, "usr", files->usr, &files->usr_count,
                             err);
}

int checkpoint_visit_stopped(const char *id, const char *op, checkpoint_use *use,
                             void *cookie, struct cay_error *err)
{
    AUTO_FREE struct checkpoint_files *files = calloc(1, sizeof *files);
    struct template template = TEMPLATE_NONE;
    struct storage storage;
    struct storage_saved saved;
    struct record record;

    if (!files)
        return cay_fail_memory(err, op);
    TRY(storage_load(id, &saved, err));
    int code = storage_lock(id, &storage, err);
    if (!code && runtime_load(id, &record, NULL) == CAY_OK && runtime_is_alive(&record))
        code = cay_fail(err, CAY_E_BUSY, 0, op, id,
                        "another process has just started this sandbox", "try again");
    if (!code)
        code = open_stopped_files(&storage, saved.options.template_name, &template, files,
                                  err);
    if (!code)
        code = use(cookie, files, err);
    close_files(files);
    template_done(&template);
    storage_done(&storage);
    storage_saved_done(&saved);
    return code;
}
