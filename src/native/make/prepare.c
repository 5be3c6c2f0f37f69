/* SPDX-License-Identifier: Apache-2.0 */

/* Mounts the file systems of a new sandbox from outside, while its init is still
 * starting. Files in them belong to the sandbox's ids: they are created with these as the
 * thread's file system identity (setfsuid), so nothing needs a chown. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "init/build.h"
#include "native/make/layer.h"
#include "native/make/root-plan.h"
#include "sys/fsid.h"

static const char op[] = "sandbox.mounts";

struct mount_ctx {
    const struct root_plan *root_plan;
    int users; /* the sandbox's user namespace, if its root needs one */
    uint32_t id_base;
    int *fds;     /* in the order of the steps */
    size_t count; /* steps done so far */
    int tree;     /* one of fds, or -1 */
    int usr;      /* a writable view of the host's /usr, or -1 */
    bool devices;
    bool knows_umask;
    unsigned umask; /* 0777, which has every mode set, until it is known */
    uint32_t identity;
};

static int take_identity(struct mount_ctx *mount_ctx, uint32_t id)
{
    bool is_taken = mount_ctx->identity == id || fsid_take(id);

    mount_ctx->identity = id;
    return is_taken ? 0 : -EPERM;
}

/* The umask belongs to the whole process, so a library must not change it.  The first
 * directory shows it. */
static int learn_umask(struct mount_ctx *mount_ctx, const char *path)
{
    struct stat st;

    if (mkdirat(mount_ctx->tree, path, 0777) != 0 ||
        fstatat(mount_ctx->tree, path, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return -errno;
    mount_ctx->umask = 0777 & ~st.st_mode;
    mount_ctx->knows_umask = true;
    return 0;
}

/* A part of the store, if there is one: its files count towards the same limit, and one
 * file system less saves memory in every cgroup of the machine.  /dev is not a directory
 * of the root, since it stays writable when the root becomes a layer. */
static int make_tree(const struct mount_ctx *mount_ctx, const struct plan_step *step)
{
    const struct store *store = &mount_ctx->root_plan->store;
    uint32_t uid = mount_ctx->id_base + step->uid;

    if (store->dir < 0)
        return build_tree(step, uid, mount_ctx->id_base + step->gid);
    if (*root_plan_text(mount_ctx->root_plan, step->path)) {
        int fd = fcntl(store->dev, F_DUPFD_CLOEXEC, 0);
        return fd >= 0 && fchownat(store->dir, "dev", uid, uid, AT_SYMLINK_NOFOLLOW) == 0
                   ? fd
                   : -errno;
    }
    int error = store_mkdir(store->dir, "upper", step->mode, uid);
    return error ? error : build_part(store->dir, "upper", step->flags);
}

static int make_bind(const struct bind *bind, uint32_t id_base)
{
    AUTO_FD mount = bind_mount(bind, id_base);

    if (mount < 0 || bind->changes < 0)
        return TAKE_FD(mount);
    AUTO_FD top = bind_mount_changes(bind, id_base);
    return top < 0 ? TAKE_FD(top) : overlay_mount_copy(mount, top);
}

static int make_mount(struct mount_ctx *mount_ctx, const struct plan_step *step)
{
    if (step->kind == PLAN_BOTTOM) {
        int fd = fcntl(mount_ctx->root_plan->store.top, F_DUPFD_CLOEXEC, 0);
        return fd < 0 ? -errno : fd;
    }
    if (step->kind == PLAN_ROOT && mount_ctx->root_plan->inherited)
        return inherit_mount(mount_ctx->root_plan->inherited,
                             &mount_ctx->root_plan->store, &mount_ctx->root_plan->overlay,
                             mount_ctx->users, mount_ctx->id_base, &mount_ctx->usr);
    if (step->kind == PLAN_ROOT && mount_ctx->root_plan->keeps_root &&
        mount_ctx->root_plan->overlay.disk >= 0)
        return layer_mount(&mount_ctx->root_plan->overlay, mount_ctx->users,
                           mount_ctx->id_base, &mount_ctx->usr);
    if (step->kind == PLAN_ROOT)
        return overlay_mount(&mount_ctx->root_plan->overlay, mount_ctx->users,
                             mount_ctx->id_base, &mount_ctx->usr);
    if (step->kind == PLAN_TREE)
        return make_tree(mount_ctx, step);
    if (step->flags & PLAN_WITH_LAYER)
        return TAKE_FD(mount_ctx->usr);
    if (step->number)
        return make_bind(&mount_ctx->root_plan->binds->list[step->number - 1],
                         mount_ctx->id_base);
    return build_bind(root_plan_text(mount_ctx->root_plan, step->data), step->flags);
}

/* The entries that follow belong to this mount.  A root over a template, or one filled
 * earlier, is not filled. */
static void enter_tree(struct mount_ctx *mount_ctx, const struct plan_step *step)
{
    bool is_empty =
        mount_ctx->root_plan->overlay.lower < 0 && !mount_ctx->root_plan->keeps_root;

    if (step->kind == PLAN_TREE || (step->kind == PLAN_ROOT && is_empty)) {
        mount_ctx->tree = mount_ctx->fds[mount_ctx->count - 1];
        mount_ctx->devices = step->flags & PLAN_WITH_DEVICES;
    }
}

static int add_mount(struct mount_ctx *mount_ctx, const struct plan_step *step)
{
    int error = take_identity(mount_ctx, 0);
    int fd = error ? error : make_mount(mount_ctx, step);
    if (fd < 0)
        return fd;
    mount_ctx->fds[mount_ctx->count - 1] = fd;
    return 0;
}

static int add_entry(struct mount_ctx *mount_ctx, const struct plan_step *step)
{
    const char *path = root_plan_text(mount_ctx->root_plan, step->path);
    const char *data = root_plan_text(mount_ctx->root_plan, step->data);
    bool is_first = !mount_ctx->knows_umask && step->kind == PLAN_DIRECTORY;

    if (mount_ctx->tree < 0)
        return 0;
    /* Only host root can create device nodes. */
    int error = take_identity(mount_ctx, mount_ctx->devices ? 0 : mount_ctx->id_base);
    if (!error)
        error = is_first ? learn_umask(mount_ctx, path)
                         : build_entry(step, path, data, mount_ctx->tree);
    unsigned has = is_first ? 0777 : step->mode;
    if (!error && step->kind != PLAN_LINK && (has & ~mount_ctx->umask) != step->mode &&
        fchmodat(mount_ctx->tree, path, step->mode, 0) != 0)
        error = -errno;
    return error;
}

/* Only host root can give a file away. */
static int chown_entry(const struct mount_ctx *mount_ctx, const struct plan_step *step)
{
    const char *path = root_plan_text(mount_ctx->root_plan, step->path);
    bool is_foreign =
        step->uid || step->gid || (mount_ctx->devices && step->kind == PLAN_DIRECTORY);

    if (mount_ctx->tree < 0 || !is_foreign ||
        fchownat(mount_ctx->tree, path, mount_ctx->id_base + step->uid,
                 mount_ctx->id_base + step->gid, AT_SYMLINK_NOFOLLOW) == 0)
        return 0;
    return -errno;
}

static int fail(const struct root_plan *root_plan, const struct plan_step *step,
                int error, struct cay_error *err)
{
    bool bind = step->kind == PLAN_BIND;
    const char *subject = root_plan_text(root_plan, bind ? step->data : step->path);

    if (error == -EOPNOTSUPP)
        return cay_fail(
            err, CAY_E_UNSUPPORTED, EOPNOTSUPP, op,
            step->kind == PLAN_ROOT ? "template" : subject,
            "its file system does not support idmapped mounts",
            "move it to ext4, xfs or btrfs, or copy the files into the sandbox");
    return cay_fail_errno(err, -error, op, subject);
}

/* The first pass creates file systems and files, the second one, as root, mounts of the
 * host: they need different identities, and switching takes time. */
static int take_steps(struct mount_ctx *mount_ctx, bool as_root, struct cay_error *err)
{
    const struct root_plan *root_plan = mount_ctx->root_plan;
    int error = as_root ? take_identity(mount_ctx, 0) : 0;

    mount_ctx->count = 0;
    mount_ctx->tree = -1;
    for (uint32_t i = 0; i < root_plan->step_count; i++) {
        const struct plan_step *step = &root_plan->steps[i];
        bool is_bind = step->kind == PLAN_BIND;
        bool is_mount = is_bind || step->kind == PLAN_TREE || step->kind == PLAN_ROOT ||
                        step->kind == PLAN_BOTTOM;
        if (!error && is_mount && mount_ctx->count++ == PLAN_MOUNTS_MAX)
            error = -E2BIG;
        if (!error && is_mount && is_bind == as_root)
            error = add_mount(mount_ctx, step);
        if (!error && is_mount)
            enter_tree(mount_ctx, step);
        else if (!error && root_plan_is_entry(step))
            error = as_root ? chown_entry(mount_ctx, step) : add_entry(mount_ctx, step);
        if (error)
            return fail(root_plan, step, error, err);
    }
    return CAY_OK;
}

int prepare_mounts(const struct root_plan *root_plan, int users, uint32_t id_base,
                   int ret_fds[PLAN_MOUNTS_MAX], size_t *ret_count, struct cay_error *err)
{
    struct mount_ctx mount_ctx = {.root_plan = root_plan,
                                  .users = users,
                                  .id_base = id_base,
                                  .fds = ret_fds,
                                  .tree = -1,
                                  .usr = -1,
                                  .umask = 0777};

    *ret_count = 0;
    while (*ret_count < PLAN_MOUNTS_MAX)
        ret_fds[(*ret_count)++] = -1;
    int code = take_steps(&mount_ctx, false, err);
    if (!code)
        code = take_steps(&mount_ctx, true, err);
    (void)take_identity(&mount_ctx, 0);
    auto_close(&mount_ctx.usr);
    if (!code)
        *ret_count = mount_ctx.count;
    return code;
}
