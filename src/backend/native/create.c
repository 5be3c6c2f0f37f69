/* SPDX-License-Identifier: Apache-2.0 */

/* How a sandbox comes to be.  What takes long happens side by side: cay-init makes its
 * namespaces while we make its file systems and put it under its limits.
 *
 *   we                                   cay-init
 *   record, uid range, cgroup2
 *   clone3, execve                  ->   namespaces, loopback
 *   uid and gid maps, limits
 *   plan (memfd), control socket
 *   tmpfs, /dev, binds by descriptor
 *   go, with the descriptors        ->   root, /proc, masks, privileges, landlock,
 * seccomp record                          <-   ready
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "backend/native/blueprint.h"
#include "backend/native/filter.h"
#include "backend/native/launch.h"
#include "backend/native/native.h"
#include "backend/native/parts.h"
#include "base/auto.h"
#include "base/error.h"

static const char op[] = "sandbox.create";

enum { MAX_FILES = 65536 };

static int open_control(const struct record *record, struct cay_error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char path[PATH_MAX];
    int code = runtime_socket(record, path, err);

    if (code)
        return code;
    if (strlen(path) >= sizeof address.sun_path)
        return cay_fail_errno(err, ENAMETOOLONG, op, path);
    memcpy(address.sun_path, path, strlen(path) + 1);
    AUTO_FD fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (const struct sockaddr *)&address, sizeof address) != 0 ||
        listen(fd, 128) != 0)
        return cay_fail_errno(err, errno, op, path);
    return TAKE_FD(fd);
}

static int make_blueprint(const struct cay_sandbox_options *options,
                          const struct parts *parts, const struct record *record,
                          struct blueprint *blueprint, struct cay_error *err)
{
    struct plan *head = &blueprint->head;
    const char *hostname = options->hostname ? options->hostname : record->id;

    cay_copy_text(head->hostname, sizeof head->hostname, hostname);
    head->own_network = options->network == CAY_NETWORK_NONE;
    head->has_cgroup = 1;
    head->ephemeral = options->ephemeral;
    head->prepared = 1;
    head->max_files = MAX_FILES;
    head->ttl_ms = options->ttl_ms;
    head->kept_bytes = options->memory_bytes / 8;
    cay_copy_text(head->user, sizeof head->user, options->user);
    cay_copy_text(head->workdir, sizeof head->workdir, options->workdir);
    return parts_draw(parts, options, blueprint, err);
}

/* What cay-init is given, beside the mounts. */
struct gifts {
    int plan, listen, cgroup;
    int tasks[GROUPS_V1];
};

/* PID 1 makes a leaf below "work" for each command and clones into it.  For that the
 * kernel wants it to own cgroup.procs there and in the common ancestor, and it must own
 * "work" to make directories in it: these and no more, so that the limits stay the
 * host's.  PID 1 is not in "work" itself, which is what a pause freezes. */
static int open_groups(const struct record *record, struct gifts *gifts,
                       struct cay_error *err)
{
    static const char *const given[] = {"cgroup.procs", "work", "work/cgroup.procs"};

    gifts->cgroup = open(record->groups.unified, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (gifts->cgroup < 0 || mkdirat(gifts->cgroup, "work", 0755) != 0)
        return cay_fail_errno(err, errno, op, "cgroup");
    for (size_t i = 0; i < sizeof given / sizeof *given; i++)
        if (fchownat(gifts->cgroup, given[i], record->id_base, record->id_base,
                     AT_SYMLINK_NOFOLLOW) != 0)
            return cay_fail_errno(err, errno, op, "cgroup");
    return groups_open_tasks(&record->groups, gifts->tasks, err);
}

static int open_plan(const struct cay_sandbox_options *options, const struct parts *parts,
                     struct record *record, struct blueprint *blueprint,
                     struct gifts *gifts, struct cay_error *err)
{
    int code = make_blueprint(options, parts, record, blueprint, err);
    if (!code)
        code = blueprint_env(blueprint, parts->env, err);
    if (!code)
        code = filter_build(blueprint->head.own_network, &blueprint->filter,
                            &blueprint->head.filter_len, err);
    if (!code)
        code = blueprint_seal(blueprint, &gifts->plan, err);
    if (code)
        return code;
    gifts->listen = open_control(record, err);
    return gifts->listen < 0 ? gifts->listen : CAY_OK;
}

static void close_all(const int *fds, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (fds[i] >= 0)
            (void)close(fds[i]);
}

static int hand_over(const struct launch *launch, const struct gifts *gifts,
                     const int *mounts, size_t mount_count, struct cay_error *err)
{
    int fds[PLAN_GO_FDS_MAX] = {gifts->plan, gifts->listen, gifts->cgroup};
    struct plan_go go = {
        .version = PLAN_VERSION, .cgroup = 1, .mounts = (uint32_t)mount_count};
    size_t count = 3;

    for (size_t i = 0; i < GROUPS_V1 && gifts->tasks[i] >= 0; i++, go.tasks++)
        fds[count++] = gifts->tasks[i];
    memcpy(fds + count, mounts, mount_count * sizeof *mounts);
    return launch_go(launch, &go, fds, count + mount_count, err);
}

static int meet(const struct record *record, struct launch *launch, struct cay_error *err)
{
    int code = launch_meet(launch, err);

    return code ? code : launch_map(launch->pid, record->id_base, RUNTIME_IDS, err);
}

/* Roots that show other owners than they have need the sandbox's own map for it. */
static int furnish_mounts(const struct blueprint *blueprint, const struct record *record,
                          struct launch *launch, int mounts[PLAN_MOUNTS_MAX],
                          size_t *ret_count, struct cay_error *err)
{
    bool first = blueprint->overlay.lower >= 0 || blueprint->overlay.disk >= 0;
    int code = first ? meet(record, launch, err) : CAY_OK;

    if (!code)
        code = prepare_mounts(blueprint, launch->pid, record->id_base, mounts, ret_count,
                              err);
    return code || first ? code : meet(record, launch, err);
}

/* All that happens while cay-init makes its namespaces. */
static int furnish(const struct cay_sandbox_options *options, const struct parts *parts,
                   struct record *record, struct launch *launch, struct cay_error *err)
{
    const struct groups_limits limits = {options->memory_bytes, options->pids,
                                         options->cpu_percent};
    struct gifts gifts = {-1, -1, -1, {-1, -1, -1}};
    struct blueprint blueprint;
    int mounts[PLAN_MOUNTS_MAX];
    size_t count = 0;

    blueprint_init(&blueprint);
    int code = groups_limit(&record->groups, &limits, err);
    if (!code)
        code = open_groups(record, &gifts, err);
    if (!code)
        code = open_plan(options, parts, record, &blueprint, &gifts, err);
    if (!code)
        code = furnish_mounts(&blueprint, record, launch, mounts, &count, err);
    if (!code)
        code = hand_over(launch, &gifts, mounts, count, err);
    close_all(mounts, count);
    close_all((const int[]){gifts.plan, gifts.listen, gifts.cgroup}, 3);
    close_all(gifts.tasks, GROUPS_V1);
    blueprint_done(&blueprint);
    return code;
}

/* It lives, but only if nothing of this fails. */
static int raise_it(const struct cay_sandbox_options *options, const struct parts *parts,
                    struct record *record, struct launch *launch, struct cay_error *err)
{
    int code = furnish(options, parts, record, launch, err);
    record->init = launch->pid;
    record->init_start = runtime_start_time(launch->pid);
    record->layers = record->groups.layers | CAY_LAYER_USER | CAY_LAYER_PID |
                     CAY_LAYER_MOUNT | CAY_LAYER_IPC | CAY_LAYER_UTS | CAY_LAYER_CGROUP |
                     CAY_LAYER_SECCOMP | CAY_LAYER_LANDLOCK |
                     (options->storage == CAY_STORAGE_MEMORY ? CAY_LAYER_DISK : 0u) |
                     (options->network == CAY_NETWORK_NONE ? CAY_LAYER_NETWORK : 0u);
    if (!code)
        code = runtime_save(record, err);
    return code ? code : launch_wait(launch, err);
}

/* A disk has no limit that could be kept: this kernel has no quota for it. */
static int complete_disk(struct cay_sandbox_options *options, struct cay_error *err)
{
    if (options->storage == CAY_STORAGE_DISK && options->disk_bytes)
        return cay_fail(err, CAY_E_UNSUPPORTED, 0, op, "disk",
                        "nothing keeps a sandbox on disk to a size",
                        "leave the size out, or keep the sandbox in memory");
    if (options->storage == CAY_STORAGE_DISK)
        return CAY_OK;
    if (options->storage != CAY_STORAGE_MEMORY)
        return cay_fail(err, CAY_E_INVALID, 0, op, "storage",
                        "there is no such kind of storage",
                        "use one of enum cay_storage");
    if (!options->disk_bytes)
        options->disk_bytes = options->memory_bytes < CAY_DISK_DEFAULT
                                  ? options->memory_bytes
                                  : CAY_DISK_DEFAULT;
    if (options->disk_bytes > options->memory_bytes)
        return cay_fail(err, CAY_E_INVALID, 0, op, "disk",
                        "the disk lies in memory and is larger than the memory limit",
                        "raise the memory limit to at least the size of the disk");
    return CAY_OK;
}

/* Fills in the defaults and refuses what cannot be. */
static int complete(struct cay_sandbox_options *options, struct cay_error *err)
{
    if (!options->memory_bytes)
        options->memory_bytes = CAY_MEMORY_DEFAULT;
    if (!options->pids)
        options->pids = CAY_PIDS_DEFAULT;
    if ((options->user && strlen(options->user) >= sizeof((struct plan *)0)->user) ||
        (options->workdir &&
         (strlen(options->workdir) >= sizeof((struct plan *)0)->workdir ||
          options->workdir[0] != '/')))
        return cay_fail(
            err, CAY_E_INVALID, 0, op,
            options->workdir ? options->workdir : options->user,
            "this cannot be the default user or working directory",
            "a user has up to 63 bytes; a directory is absolute and has up to "
            "1,023");
    return complete_disk(options, err);
}

static int build(const struct cay_sandbox_options *options, const struct parts *parts,
                 struct native *native, struct cay_error *err)
{
    const struct groups_limits limits = {options->memory_bytes, options->pids,
                                         options->cpu_percent};
    struct record *record = &native->record;
    struct launch launch;
    AUTO_FD leaf = -1;

    record->storage = options->storage;
    record->template_dev = parts->template.dev;
    record->template_ino = parts->template.ino;
    int code = groups_name(record->id, &limits, &record->groups, err);
    if (!code)
        code = runtime_save(record, err);
    if (!code)
        code = groups_begin(&record->groups, &leaf, err);
    if (!code)
        code = launch_begin(leaf, options->network == CAY_NETWORK_NONE, record->id_base,
                            &launch, err);
    if (code)
        return code;
    AUTO_FD status = launch.status;
    code = raise_it(options, parts, record, &launch, err);
    launch_done(&launch, code == CAY_OK);
    native->pidfd = launch.pidfd;
    if (!code && options->ephemeral)
        native->leash = TAKE_FD(status);
    return code;
}

static int check_layers(const struct cay_sandbox_options *options,
                        const struct record *record, struct cay_error *err)
{
    unsigned missing = options->require & ~record->layers;

    return missing ? cay_fail(err, CAY_E_UNSUPPORTED, 0, op, "require",
                              "this host cannot enforce a layer that is required",
                              "missing: 0x%x of enum cay_layer", missing)
                   : CAY_OK;
}

static int create(const struct cay_sandbox_options *options, struct parts *parts,
                  struct native *native, struct cay_error *err)
{
    struct record *record = &native->record;
    bool is_new_disk = options->storage == CAY_STORAGE_DISK && !parts->is_start;

    /* Until it lives, or is gone again, so that nobody collects what is being made. */
    AUTO_FD lock = runtime_lock(record->id);
    int code = CAY_OK;
    if (lock < 0)
        code = cay_fail(err, CAY_E_BUSY, 0, op, record->id,
                        "somebody else holds the new sandbox's directory", "try again");
    if (!code && is_new_disk)
        code = storage_make(record->id, &parts->storage, err);
    if (!code)
        code = build(options, parts, native, err);
    if (!code)
        code = check_layers(options, record, err);
    if (!code && is_new_disk)
        code = storage_save(&parts->storage, options, &parts->binds, err);
    if (code)
        native_remove(record, native->pidfd);
    if (code && is_new_disk) {
        storage_done(&parts->storage);
        (void)storage_remove(record->id, NULL);
    }
    return code;
}

static int raise_from(const struct cay_sandbox_options *options, const char *start,
                      struct native *native, struct cay_error *err)
{
    struct cay_sandbox_options known = *options;
    struct parts parts;

    int code = complete(&known, err);
    if (code)
        return code;
    code = parts_open(&known, start, &parts, err);
    if (!code)
        code = runtime_reserve(start, &native->record, err);
    if (!code)
        code = create(&known, &parts, native, err);
    parts_close(&parts);
    return code;
}

int native_create(const struct cay_sandbox_options *options, struct native *native,
                  struct cay_error *err)
{
    return raise_from(options, NULL, native, err);
}

int native_start(const char *id, struct native *native, struct cay_error *err)
{
    struct storage_saved saved;

    int code = storage_load(id, &saved, err);
    if (code)
        return code;
    code = raise_from(&saved.options, id, native, err);
    storage_saved_done(&saved);
    return code;
}
