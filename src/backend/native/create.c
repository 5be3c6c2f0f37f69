/* SPDX-License-Identifier: Apache-2.0 */

/* How a sandbox comes to be.  What takes long happens side by side: cay-init makes its
 * namespaces while we make its file systems and put it under its limits.
 *
 *   we                                   cay-init
 *   record, uid range, cgroups
 *   plan (memfd), control socket
 *   clone3, execve                  ->   namespaces, loopback
 *   uid and gid maps, v1 limits
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

static void make_blueprint(const struct cay_sandbox_options *options,
                           const struct record *record, struct blueprint *blueprint)
{
    struct plan *head = &blueprint->head;
    const char *hostname = options->hostname ? options->hostname : record->id;

    cay_copy_text(head->hostname, sizeof head->hostname, hostname);
    head->own_network = options->network == CAY_NETWORK_NONE;
    head->has_cgroup = 1;
    head->ephemeral = options->ephemeral;
    head->prepared = 1;
    head->max_files = MAX_FILES;
    blueprint_host(blueprint, options->disk_bytes);
    for (size_t i = 0; i < options->bind_count; i++)
        blueprint_bind(blueprint, options->binds[i].target + 1, options->binds[i].source,
                       options->binds[i].writable ? PLAN_WITH_WRITING : 0);
}

/* PID 1 makes a leaf below "work" for each command and clones into it.  For that the
 * kernel wants it to own cgroup.procs there and in the common ancestor, and it must own
 * "work" to make directories in it: these and no more, so that the limits stay the
 * host's.  PID 1 is not in "work" itself, which is what a pause freezes. */
static int open_groups(const struct record *record, struct launch *launch,
                       struct cay_error *err)
{
    static const char *const given[] = {"cgroup.procs", "work", "work/cgroup.procs"};

    launch->cgroup = open(record->groups.unified, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (launch->cgroup < 0 || mkdirat(launch->cgroup, "init", 0755) != 0 ||
        mkdirat(launch->cgroup, "work", 0755) != 0)
        return cay_fail_errno(err, errno, op, "cgroup");
    launch->leaf = openat(launch->cgroup, "init", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (launch->leaf < 0)
        return cay_fail_errno(err, errno, op, "cgroup");
    for (size_t i = 0; i < sizeof given / sizeof *given; i++)
        if (fchownat(launch->cgroup, given[i], record->id_base, record->id_base,
                     AT_SYMLINK_NOFOLLOW) != 0)
            return cay_fail_errno(err, errno, op, "cgroup");
    return CAY_OK;
}

static int gather(struct blueprint *blueprint, const struct record *record,
                  struct launch *launch, int *ret_status, struct cay_error *err)
{
    int ends[2];

    int code = open_groups(record, launch, err);
    if (!code)
        code = blueprint_seal(blueprint, &launch->plan, err);
    if (code)
        return code;
    launch->listen = open_control(record, err);
    if (launch->listen < 0)
        return launch->listen;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        return cay_fail_errno(err, errno, op, "socket");
    *ret_status = ends[0];
    launch->status = ends[1];
    return CAY_OK;
}

static void close_launch(struct launch *launch)
{
    int *const fds[] = {&launch->plan, &launch->status, &launch->listen, &launch->cgroup,
                        &launch->leaf};

    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++) {
        if (*fds[i] >= 0)
            (void)close(*fds[i]);
        *fds[i] = -1;
    }
}

/* What cay-init cannot do for itself. */
static int furnish(const struct blueprint *blueprint, const struct record *record,
                   int status, struct cay_error *err)
{
    int fds[PLAN_MOUNTS_MAX];
    size_t count = 0;

    int code = launch_map(record->init, record->id_base, RUNTIME_IDS, err);
    if (!code)
        code = groups_join(&record->groups, record->init, err);
    if (!code)
        code = prepare_mounts(blueprint, record->id_base, fds, &count, err);
    if (!code)
        code = launch_go(status, fds, count, err);
    for (size_t i = 0; i < count; i++)
        (void)close(fds[i]);
    return code;
}

static int start(struct blueprint *blueprint, struct native *native, int *ret_status,
                 struct cay_error *err)
{
    struct launch launch = {-1, -1, -1, -1, -1};
    struct record *record = &native->record;

    int code = gather(blueprint, record, &launch, ret_status, err);
    if (!code)
        code = launch_init(&launch, &record->init, &native->pidfd, err);
    close_launch(&launch); /* our copy of its end of the socket too */
    if (!code)
        code = furnish(blueprint, record, *ret_status, err);
    if (!code)
        code = launch_wait(*ret_status, err);
    if (code)
        return code;
    record->init_start = runtime_start_time(record->init);
    return runtime_save(record, err);
}

/* Fills in the defaults and refuses what cannot be. */
static int complete(struct cay_sandbox_options *options, struct cay_error *err)
{
    if (!options->memory_bytes)
        options->memory_bytes = CAY_MEMORY_DEFAULT;
    if (!options->disk_bytes)
        options->disk_bytes = options->memory_bytes < CAY_DISK_DEFAULT
                                  ? options->memory_bytes
                                  : CAY_DISK_DEFAULT;
    if (!options->pids)
        options->pids = CAY_PIDS_DEFAULT;
    if (options->disk_bytes > options->memory_bytes)
        return cay_fail(err, CAY_E_INVALID, 0, op, "disk",
                        "the disk lies in memory and is larger than the memory limit",
                        "raise the memory limit to at least the size of the disk");
    if (options->template_name && strcmp(options->template_name, "host") != 0)
        return cay_fail(err, CAY_E_NOT_FOUND, 0, op, options->template_name,
                        "there is no such template", "the templates there are: host");
    return CAY_OK;
}

static int build(const struct cay_sandbox_options *options, struct native *native,
                 struct cay_error *err)
{
    struct record *record = &native->record;
    const struct groups_limits limits = {options->memory_bytes, options->pids,
                                         options->cpu_percent};
    struct blueprint blueprint;
    AUTO_FD status = -1;

    int code = groups_make(record->id, &limits, &record->groups, err);
    if (!code)
        code = runtime_save(record, err);
    if (code)
        return code;
    record->layers = record->groups.layers | CAY_LAYER_USER | CAY_LAYER_PID |
                     CAY_LAYER_MOUNT | CAY_LAYER_IPC | CAY_LAYER_UTS | CAY_LAYER_CGROUP |
                     CAY_LAYER_SECCOMP | CAY_LAYER_LANDLOCK | CAY_LAYER_DISK |
                     (options->network == CAY_NETWORK_NONE ? CAY_LAYER_NETWORK : 0u);
    blueprint_init(&blueprint);
    make_blueprint(options, record, &blueprint);
    code = filter_build(blueprint.head.own_network, &blueprint.filter,
                        &blueprint.head.filter_len, err);
    if (!code)
        code = start(&blueprint, native, &status, err);
    blueprint_done(&blueprint);
    if (!code && options->ephemeral)
        native->leash = TAKE_FD(status);
    return code;
}

int native_create(const struct cay_sandbox_options *options, struct native *native,
                  struct cay_error *err)
{
    struct cay_sandbox_options known = *options;

    int code = complete(&known, err);
    if (!code)
        code = runtime_reserve(&native->record, err);
    if (code)
        return code;
    /* Until it lives, or is gone again, so that nobody collects what is being made. */
    AUTO_FD lock = runtime_lock(native->record.id);
    if (lock < 0)
        code = cay_fail(err, CAY_E_BUSY, 0, op, native->record.id,
                        "somebody else holds the new sandbox's directory", "try again");
    if (!code)
        code = build(&known, native, err);
    if (!code && known.require & ~native->record.layers)
        code = cay_fail(err, CAY_E_UNSUPPORTED, 0, op, "require",
                        "this host cannot enforce a layer that is required",
                        "missing: 0x%x of enum cay_layer",
                        known.require & ~native->record.layers);
    if (code)
        native_remove(&native->record, native->pidfd);
    return code;
}
