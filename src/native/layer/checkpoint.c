/* SPDX-License-Identifier: Apache-2.0 */

/* A checkpoint replaces the root by an overlay with the old upper layer below and an
 * empty one above, so nothing is copied.  A rollback does the same over the layers of an
 * older checkpoint.  PID 1 is held meanwhile, so no command starts.
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
#include "native/layer/running.h"
#include "native/layer/switch.h"
#include "native/layer/tree.h"
#include "native/make/overlay.h"
#include "native/process/wire.h"
#include "native/record/names.h"
#include "native/template/template.h"
#include "sys/path.h"
#include "sys/shift.h"

enum { LOCK_MS = 10000 };

/* One change of a sandbox's layers. */
struct change {
    struct native *native;
    const char *op;
    int namespace;
    int mount; /* of the store: it exists while this is open */
    int store; /* locked */
    struct layer_tree tree;
    struct template template;
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
    if (record->storage != CAY_STORAGE_MEMORY)
        return fail_unsupported(change, "a sandbox on disk has no checkpoints yet",
                                "create it with storage in memory", err);
    if (!record->cgroup.unified[0])
        return fail_unsupported(change, "this sandbox has no cgroup of version 2",
                                "mount cgroup2, and create a new sandbox", err);
    return CAY_OK;
}

static int lock_store(const struct change *change, struct cay_error *err)
{
    uint64_t end = clock_ms() + LOCK_MS;

    while (flock(change->store, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK)
            return cay_fail_errno(err, errno, change->op, "lock");
        if (clock_ms() >= end)
            return cay_fail(err, CAY_E_BUSY, 0, change->op, change->native->record.id,
                            "another process changes the checkpoints of this sandbox",
                            "try again");
        clock_sleep_ms(1);
    }
    return CAY_OK;
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

/* Names the layer below the live one a checkpoint. */
static int seal(const struct change *change, uint32_t id, uint32_t parent,
                const char *name, const char *cause,
                struct cay_checkpoint *ret_checkpoint, struct cay_error *err)
{
    *ret_checkpoint = (struct cay_checkpoint){
        .id = id, .parent = parent, .created_ms = clock_since_1970_ms()};
    cay_copy_text(ret_checkpoint->name, sizeof ret_checkpoint->name, name ? name : "");
    cay_copy_text(ret_checkpoint->cause, sizeof ret_checkpoint->cause, cause);
    return layer_save(change->store, ret_checkpoint, err);
}

/* Finishes or drops a switch whose process died. */
static int recover(struct change *change, struct cay_error *err)
{
    struct layer_tree *tree = &change->tree;
    struct cay_checkpoint checkpoint;
    uint64_t device = 0;

    /* Sealed before the switch, which did not happen. */
    if (!tree->next)
        return layer_unseal(change->store, tree->live, err);
    TRY(root_device(change, &device, err));
    if (device != tree->device) {
        if (layer_load(change->store, tree->live, &checkpoint, NULL) != CAY_OK)
            TRY(seal(change, tree->live, tree->parent, NULL, "recovered", &checkpoint,
                     err));
        tree->live = tree->next;
        tree->parent = tree->next_parent;
    }
    tree->next = tree->next_parent = 0;
    TRY(layer_unseal(change->store, tree->live, err));
    return layer_tree_save(change->store, tree, err);
}

static int open_store(struct change *change, struct cay_error *err)
{
    const struct record *record = &change->native->record;

    TRY(native_check(change->native, err));
    TRY(check_kind(change, err));
    change->namespace = switch_open(record->init);
    /* The pid is that of another process if the sandbox has ended, and in another PID
     * namespace. */
    if (record->pid_namespace != runtime_pid_namespace())
        return fail_unsupported(change,
                                "the sandbox was created in another PID namespace",
                                "run this command where the sandbox was created", err);
    if (change->namespace < 0 || runtime_check_alive(record) != 1)
        return wire_fail_gone(change->op, record->id, 0, err);
    int mount = change->mount = switch_open_store(change->namespace);
    if (mount == -ENOENT)
        return fail_unsupported(change, "this kernel has no checkpoints",
                                "use Linux 6.15 or newer, and create a new sandbox", err);
    if (mount < 0)
        return cay_fail_errno(err, -mount, change->op, "mount namespace");
    change->store = path_open(mount, ".", O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
    if (change->store < 0)
        return cay_fail_errno(err, -change->store, change->op, "store");
    return CAY_OK;
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
    int code = open_store(ret_change, err);
    if (!code)
        code = lock_store(ret_change, err);
    if (!code)
        code = layer_tree_load(ret_change->store, &ret_change->tree, err);
    return code ? code : recover(ret_change, err);
}

static void end(struct change *change)
{
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
static int mount_part(const struct change *change, uint32_t parent, int top,
                      const int *below, size_t below_count, const char *part,
                      const char *work, int *ret_mount, struct cay_error *err)
{
    struct layer_stack stack;
    int lowers[LAYER_DEPTH_MAX + OVERLAY_BELOW_MAX + 1];

    TRY(layer_stack_open(change->store, parent, part, &stack, err));
    memcpy(lowers, stack.fds, stack.count * sizeof *lowers);
    if (below_count)
        memcpy(lowers + stack.count, below, below_count * sizeof *lowers);
    *ret_mount = overlay_create(lowers, stack.count + below_count, top, part, work);
    layer_stack_close(&stack);
    return *ret_mount < 0 ? cay_fail_errno(err, -*ret_mount, change->op, "overlay")
                          : CAY_OK;
}

struct new_root {
    int root, usr;
    int below[OVERLAY_BELOW_MAX + 1], below_usr; /* of the template */
    size_t below_count;
};

static void auto_new_root(struct new_root *root)
{
    const int fds[] = {root->root, root->usr, root->below_usr};

    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        auto_close(&fds[i]);
    for (size_t i = 0; i < root->below_count; i++)
        auto_close(&root->below[i]);
}

static int mount_root(struct change *change, uint32_t id, uint32_t parent,
                      struct new_root *root, struct cay_error *err)
{
    const struct overlay overlay = {.lower = change->template.root,
                                    .below = change->template.below,
                                    .below_count = change->template.below_count,
                                    .usr = change->template.usr};
    AUTO_FD top = layer_open(change->store, id);

    if (top < 0)
        return cay_fail_errno(err, -top, change->op, "layer");
    if (change->template.root >= 0) {
        AUTO_FD map = shift_of_process(change->native->record.init);
        int error = map < 0 ? map
                            : overlay_below(&overlay, map, root->below,
                                            &root->below_count, &root->below_usr);
        if (error)
            return cay_fail_errno(err, -error, change->op, "template");
    }
    TRY(mount_part(change, parent, top, root->below, root->below_count, "upper", "work",
                   &root->root, err));
    if (root->below_usr < 0)
        return CAY_OK;
    return mount_part(change, parent, top, &root->below_usr, 1, "usr", "usr-work",
                      &root->usr, err);
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

/* The live layer becomes `id`, over the layers of `parent`. */
static int switch_to(struct change *change, uint32_t id, uint32_t parent,
                     struct cay_error *err)
{
    __attribute__((cleanup(auto_new_root))) struct new_root root = {
        .root = -1, .usr = -1, .below_usr = -1};
    struct switch_failure failure;
    struct layer_tree next = change->tree;

    TRY(mount_root(change, id, parent, &root, err));
    TRY(root_device(change, &next.device, err));
    next.next = id;
    next.next_parent = parent;
    TRY(layer_tree_save(change->store, &next, err));
    int error = switch_root(change->namespace, change->native->record.init, root.root,
                            root.usr, &failure);
    if (error) {
        (void)layer_tree_save(change->store, &change->tree, NULL);
        return fail_switch(change, error, &failure, err);
    }
    change->tree = (struct layer_tree){.live = id, .parent = parent};
    return layer_tree_save(change->store, &change->tree, err);
}

/* --- Processes --- */

static int hold(const struct change *change, struct cay_error *err)
{
    return wire_request(change->native, change->op, MESSAGE_HOLD, NULL, 0, MESSAGE_DONE,
                        NULL, 0, err);
}

/* Any message ends it. */
static int release(const struct change *change, int code, struct cay_error *err)
{
    int answer = wire_request(change->native, change->op, MESSAGE_PING, NULL, 0,
                              MESSAGE_PONG, NULL, 0, code ? NULL : err);

    return code ? code : answer;
}

static int require_idle(const struct change *change, bool kills, struct cay_error *err)
{
    const struct record *record = &change->native->record;
    int error = kills ? running_kill(record) : running_count(record);

    if (error < 0)
        return cay_fail_errno(err, -error, change->op, "cgroup");
    if (error == 0)
        return CAY_OK;
    return cay_fail(err, CAY_E_BUSY, 0, change->op, record->id,
                    "a process runs in the sandbox, and its open files and working "
                    "directory would stay in the sealed files",
                    "wait for it, end it, or pass the option that stops all processes");
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

/* *ret_is_same: nothing has changed since that checkpoint. */
static int find_same(const struct change *change, bool *ret_is_same,
                     struct cay_checkpoint *ret_checkpoint, struct cay_error *err)
{
    const struct layer_tree *tree = &change->tree;
    int empty = tree->parent ? layer_is_empty(change->store, tree->live) : 0;

    if (empty < 0)
        return cay_fail_errno(err, -empty, change->op, "layer");
    *ret_is_same = empty;
    return empty ? layer_load(change->store, tree->parent, ret_checkpoint, err) : CAY_OK;
}

/* Puts an empty layer on the live one and gives that the record of a checkpoint. */
static int seal_live(struct change *change, const char *name,
                     struct cay_checkpoint *ret_checkpoint, struct cay_error *err)
{
    uint32_t live = change->tree.live, parent = change->tree.parent;
    struct cay_checkpoint record;
    int next = layer_create(change->store, live, change->template.usr >= 0, err);

    if (next < 0)
        return next;
    /* The stack is found by the records, so this one is written first. */
    int code = seal(change, live, parent, name, "checkpoint", &record, err);
    if (!code)
        code = switch_to(change, (uint32_t)next, live, err);
    if (!code) {
        *ret_checkpoint = record;
        return CAY_OK;
    }
    (void)layer_unseal(change->store, live, NULL);
    layer_drop(change->store, (uint32_t)next);
    return code;
}

static int checkpoint(struct change *change, const struct cay_checkpoint_options *options,
                      struct cay_checkpoint *ret_checkpoint, struct cay_error *err)
{
    bool is_same = false;

    TRY(require_idle(change, options->mode == CAY_CHECKPOINT_STOP, err));
    TRY(find_same(change, &is_same, ret_checkpoint, err));
    if (!is_same)
        TRY(seal_live(change, options->name, ret_checkpoint, err));
    ret_checkpoint->is_current = true;
    if (!is_same || !options->name || strcmp(options->name, ret_checkpoint->name) == 0)
        return CAY_OK;
    cay_copy_text(ret_checkpoint->name, sizeof ret_checkpoint->name, options->name);
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
        code = open_template(&change, err);
    if (!code)
        code = hold(&change, err);
    if (!code)
        code = release(&change, checkpoint(&change, options, ret_checkpoint, err), err);
    end(&change);
    return code;
}

static int rollback(struct change *change, const char *which,
                    struct cay_checkpoint *ret_undone, struct cay_error *err)
{
    struct cay_checkpoint target, same;
    uint32_t live = change->tree.live, parent = change->tree.parent;
    bool is_same = false;

    *ret_undone = (struct cay_checkpoint){0};
    TRY(layer_find(change->store, which, &target, err));
    TRY(require_idle(change, true, err));
    TRY(find_same(change, &is_same, &same, err));
    if (is_same && target.id == parent)
        return CAY_OK;
    int next = layer_create(change->store, target.id, change->template.usr >= 0, err);
    if (next < 0)
        return next;
    int code = switch_to(change, (uint32_t)next, target.id, err);
    if (code)
        layer_drop(change->store, (uint32_t)next);
    else if (is_same)
        layer_drop(change->store, live);
    else
        code = seal(change, live, parent, NULL, "rollback", ret_undone, err);
    return code;
}

int native_rollback(void *cookie, const char *which, struct cay_checkpoint *ret_undone,
                    struct cay_error *err)
{
    struct change change;
    int code = begin(cookie, "sandbox.rollback", &change, err);

    if (!code)
        code = open_template(&change, err);
    if (!code)
        code = hold(&change, err);
    if (!code)
        code = release(&change, rollback(&change, which, ret_undone, err), err);
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
    for (size_t i = 0; !code && i < *ret_count; i++)
        (*ret_list)[i].is_current = (*ret_list)[i].id == change.tree.parent;
    end(&change);
    return code;
}
