/* SPDX-License-Identifier: Apache-2.0 */

/* Creates a sandbox.  Slow steps run in parallel: cay-init creates its namespaces while
 * the library creates its file systems and sets its limits.
 *
 *   library                              cay-init
 *   record, uid range, cgroup2
 *   clone3, execve                  ->   namespaces, loopback
 *   limits, plan (memfd), control socket
 *   uid and gid maps
 *   begin, with the plan            ->   identity, /proc, terminals
 *   tmpfs, /dev, binds by descriptor
 *   go, with the mounts             ->   root, masks, privileges, landlock, seccomp
 *   record                          <-   ready
 */
#include "native/make/create.h"
#include "native/process/approve.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"
#include "init/protocol.h"
#include "native/make/headers.h"
#include "native/make/join.h"
#include "native/make/launch.h"
#include "native/make/level.h"
#include "native/make/network.h"
#include "native/make/preflight.h"
#include "native/make/root-plan.h"
#include "native/make/seccomp.h"
#include "native/make/spare.h"
#include "native/process/process.h"
#include "native/process/wire.h"
#include "native/record/names.h"
#include "native/record/remove.h"
#include "sys/fsid.h"
#include "sys/landlock.h"
#include "sys/path.h"
#include "sys/shift.h"
#include "sys/state-home.h"

static const char op[] = "sandbox.create";

enum { MAX_FILES = 65536 };

static int open_control(const struct record *record, struct cay_error *err)
{
    struct sockaddr_un address;
    int code = runtime_address(record->id, &address, err);

    if (code)
        return code;
    AUTO_FD fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (const struct sockaddr *)&address, sizeof address) != 0 ||
        fchmodat(AT_FDCWD, address.sun_path, 0600, 0) != 0 || listen(fd, 128) != 0)
        return runtime_fail(errno, record->id, err);
    return TAKE_FD(fd);
}

/* State of one creation. */
struct create_ctx {
    struct cay_sandbox_options options; /* completed by preflight_options() */
    struct root_sources sources;
    const char *id;    /* requested id, or NULL */
    const char *start; /* the id of a sandbox on disk that is started again, or NULL */
    const struct inherited *inherited; /* of a fork, or NULL */
    struct create_first *first;        /* or NULL */
    const struct storage_saved *saved; /* of one that is started again */
    int64_t created_ms;
    unsigned given; /* limits that the caller set: CAY_LAYER_... */
    enum cay_level level;
    const char *pool; /* the id of the pool whose spare this is, or NULL */
    struct idmap map;
    uint32_t owner; /* host uid of cay-init */
    struct record *record;
    struct launch launch;
    struct network network;
};

/* --- The plan --- */

/* Without the environment. */
static void fill_defaults(const struct cay_sandbox_options *options,
                          struct plan_defaults *ret_defaults)
{
    memset(ret_defaults, 0, sizeof *ret_defaults);
    ret_defaults->ttl_ms = options->ttl_ms;
    ret_defaults->kept_bytes = options->memory_bytes / 8;
    cay_copy_text(ret_defaults->user, sizeof ret_defaults->user, options->user);
    cay_copy_text(ret_defaults->workdir, sizeof ret_defaults->workdir, options->workdir);
}

static int fill_root_plan(const struct create_ctx *ctx, struct root_plan *root_plan,
                          struct cay_error *err)
{
    const struct cay_sandbox_options *options = &ctx->options;
    const struct record *record = ctx->record;
    struct plan *head = &root_plan->head;
    const char *hostname = options->hostname ? options->hostname : record->id;

    head->ephemeral = options->ephemeral;
    head->spare = ctx->pool != NULL;
    fill_defaults(options, &head->defaults);
    head->max_files = MAX_FILES;
    head->nice = getpriority(PRIO_PROCESS, 0);
    (void)!getrlimit(RLIMIT_CPU, &head->cpu_time);
    (void)!getrlimit(RLIMIT_FSIZE, &head->file_size);
    head->no_namespaces = !runtime_has_namespaces(record);
    head->unconfined = runtime_is_local(record);
    if (head->unconfined) {
        head->defaults.kept_bytes = 0;
        return CAY_OK;
    }
    head->no_set_ids = binds_are_writable(&ctx->sources.binds);
    cay_copy_text(head->hostname, sizeof head->hostname, hostname);
    head->own_network = options->network != CAY_NETWORK_HOST;
    head->is_relayed = ctx->network.rules != NULL;
    root_plan->authority = ctx->network.authority;
    head->has_cgroup = record->cgroup.unified[0] != '\0';
    head->prepared = ctx->level == CAY_LEVEL_ROOT;
    head->one_user = ctx->level >= CAY_LEVEL_SINGLE;
    if (ctx->level == CAY_LEVEL_SINGLE)
        head->uid = head->gid = PLAN_USER;
    if (ctx->level == CAY_LEVEL_LANDLOCK) {
        head->no_set_ids = true; /* the home is a directory of the host */
        head->uid = ctx->owner;
        head->gid = record->has_range ? ctx->owner : getegid();
    }
    head->max_processes = record->pids_by_rlimit ? options->pids : 0;
    /* A limit for each process, where no cgroup limits all of them together. */
    head->max_data = record->layers & CAY_LAYER_MEMORY ? 0 : options->memory_bytes;
    if (ctx->level != CAY_LEVEL_LANDLOCK)
        return root_sources_plan(&ctx->sources, options, root_plan, err);
    /* Landlock is the only layer for files, so it must also list what is readable. */
    record_home_path(record, head->home);
    root_plan_landlock(root_plan, options->network == CAY_NETWORK_HOST, head->home,
                       &ctx->sources.binds);
    return CAY_OK;
}

/* Environment of programs that cannot use /tmp and the host's configuration.  Variables
 * of the caller come first, so they take precedence. */
static int add_landlock_env(const struct create_ctx *ctx, struct root_plan *root_plan,
                            const char *env[ENV_COUNT_MAX + 3], char *directory,
                            size_t room, struct cay_error *err)
{
    const char *const *given = ctx->sources.env;
    size_t count = 0;

    while (given && given[count] && count < ENV_COUNT_MAX) {
        env[count] = given[count];
        count++;
    }
    snprintf(directory, room, "TMPDIR=%s/tmp", root_plan->head.home);
    env[count++] = directory;
    env[count++] = "GIT_CONFIG_NOSYSTEM=1";
    env[count] = NULL;
    return root_plan_env(root_plan, env, err);
}

static int build_filter(const struct create_ctx *ctx, struct root_plan *root_plan,
                        struct cay_error *err)
{
    bool host = ctx->options.network == CAY_NETWORK_HOST || ctx->network.rules;
    bool alone = ctx->level == CAY_LEVEL_LANDLOCK;
    struct filter filter;
    /* A network by rules has IPv6, as the host's has. */
    int code = filter_build(alone  ? host ? FILTER_ALONE_HOST_NETWORK : FILTER_ALONE
                            : host ? FILTER_HOST_NETWORK
                                   : FILTER_NETWORK,
                            &filter, err);

    if (!code) {
        root_plan->filter = filter.code;
        root_plan->head.filter_len = filter.len;
        root_plan->head.filter_pass_at = filter.pass_at;
        ctx->record->calls = filter.calls;
    }
    return code;
}

/* --- Descriptors for cay-init --- */

struct init_fds {
    int plan, listen, cgroup;
    int tasks[CGROUP_V1];
};

/* PID 1 creates a cgroup below "work" for each command and clones into it.  For that
 * the kernel requires it to own cgroup.procs there and in the common ancestor, and it
 * must own "work" to create directories, and cgroup.freeze to thaw the commands after a
 * checkpoint: nothing else is chowned, so that the limits stay under the host's control.
 * PID 1 itself is above "work", because a pause freezes "work".  An ordinary user owns
 * these files already, and nothing inside can reach them. */
static int open_cgroup(const struct create_ctx *ctx, int group, struct init_fds *init_fds,
                       struct cay_error *err)
{
    static const char *const given[] = {"cgroup.procs", "work", "work/cgroup.procs",
                                        "work/cgroup.freeze"};
    const struct record *record = ctx->record;

    if (group < 0)
        return cgroup_open_tasks(&record->cgroup, init_fds->tasks, err);
    if (mkdirat(group, "work", 0755) != 0)
        return cay_fail_errno(err, errno, op, "cgroup");
    for (size_t i = 0; record->has_range && i < sizeof given / sizeof *given; i++)
        if (fchownat(group, given[i], ctx->owner, ctx->owner, AT_SYMLINK_NOFOLLOW) != 0 &&
            errno != ENOENT) /* no freezer before Linux 5.2 */
            return cay_fail_errno(err, errno, op, "cgroup");
    init_fds->cgroup = openat(group, "work", O_PATH | O_DIRECTORY | O_CLOEXEC);
    return init_fds->cgroup < 0
               ? cay_fail_errno(err, errno, op, "cgroup")
               : cgroup_open_tasks(&record->cgroup, init_fds->tasks, err);
}

static int open_plan(const struct create_ctx *ctx, struct root_plan *root_plan,
                     struct init_fds *init_fds, struct cay_error *err)
{
    const char *env[ENV_COUNT_MAX + 3];
    char directory[sizeof root_plan->head.home + 16];

    int code = fill_root_plan(ctx, root_plan, err);
    if (!code)
        code =
            ctx->level == CAY_LEVEL_LANDLOCK
                ? add_landlock_env(ctx, root_plan, env, directory, sizeof directory, err)
                : root_plan_env(root_plan, ctx->sources.env, err);
    if (!code && !root_plan->head.unconfined)
        code = build_filter(ctx, root_plan, err);
    if (!code)
        code = root_plan_seal(root_plan, &init_fds->plan, err);
    if (code)
        return code;
    init_fds->listen = open_control(ctx->record, err);
    return init_fds->listen < 0 ? init_fds->listen : CAY_OK;
}

static void close_all(const int *fds, size_t count)
{
    for (size_t i = 0; i < count; i++)
        auto_close(&fds[i]);
}

/* Creates the cgroup of the first command while PID 1 is busy with its root.  PID 1
 * creates all others, and this one if it is missing. */
static void create_first_exec_cgroup(const struct create_ctx *ctx,
                                     const struct init_fds *init_fds)
{
    if (!ctx->first || init_fds->cgroup < 0 || !ctx->record->has_range)
        return;
    if (fsid_take(ctx->owner))
        (void)!mkdirat(init_fds->cgroup, "e0", 0755);
    (void)fsid_take(0);
}

static int send_begin(const struct launch *launch, const struct init_fds *init_fds,
                      struct cay_error *err)
{
    int fds[PLAN_BEGIN_FDS_MAX] = {init_fds->plan, init_fds->listen};
    struct plan_begin begin = {.version = PLAN_VERSION};
    size_t count = 2;

    if (init_fds->cgroup >= 0) {
        fds[count++] = init_fds->cgroup;
        begin.cgroup = 1;
    }
    for (size_t i = 0; i < CGROUP_V1 && init_fds->tasks[i] >= 0; i++, begin.tasks++)
        fds[count++] = init_fds->tasks[i];
    return launch_send(launch, &begin, sizeof begin, fds, count, err);
}

/* --- Steps --- */

static int set_limits(const struct create_ctx *ctx, struct cay_error *err)
{
    const struct cgroup_limits limits = preflight_limits(&ctx->options);
    struct record *record = ctx->record;
    int code = cgroup_set_limits(&record->cgroup, &limits, err);

    if (code)
        return code;
    record->layers = level_layers(record, record->cgroup.layers);
    record->pids_by_rlimit = record->layers & CAY_LAYER_PIDS & ~record->cgroup.layers;
    code = level_demand(record, record->layers, ctx->given, ctx->options.require, err);
    return code ? code : preflight_disk(&ctx->options, record->layers, err);
}

/* cay-init gets the plan once its ids are mapped, and the map can be written once it is
 * cloned. */
static int send_plan(const struct create_ctx *ctx, const struct init_fds *init_fds,
                     struct launch *launch, int *ret_users, struct cay_error *err)
{
    int code = launch->has_pid ? CAY_OK : launch_wait_clone(launch, err);

    if (!code && ctx->map.count)
        code = launch_map(launch, &ctx->map, err);
    /* Opened before cay-init starts on the plan, since it may fail and exit. */
    if (!code && ret_users)
        *ret_users = shift_of_process(launch->pid);
    if (!code && ret_users && *ret_users < 0) {
        int error = -*ret_users;
        if (error == ENOENT || error == ESRCH) /* its own report is more specific */
            code = launch_wait(launch, -1, err);
        if (!code)
            code = cay_fail_errno(err, error, op, "user namespace");
    }
    return code ? code : send_begin(launch, init_fds, err);
}

/* If cay-init is cloned already, it gets the plan first, so that both work in parallel:
 * its network may take longer than the mounts.  Idmapped roots need the sandbox's user
 * namespace, so they always come after the plan. */
static int setup_mounts(const struct create_ctx *ctx, const struct root_plan *root_plan,
                        const struct init_fds *init_fds, struct launch *launch,
                        int mounts[PLAN_MOUNTS_MAX], size_t *ret_count,
                        struct cay_error *err)
{
    AUTO_FD users = -1;
    bool shifts = root_plan->head.prepared &&
                  (root_plan->overlay.lower >= 0 || root_plan->overlay.disk >= 0);
    bool first = shifts || launch_is_cloned(launch);
    int code =
        first ? send_plan(ctx, init_fds, launch, shifts ? &users : NULL, err) : CAY_OK;

    if (!code && root_plan->head.prepared)
        code = prepare_mounts(root_plan, users, ctx->record->id_base, mounts, ret_count,
                              err);
    return code || first ? code : send_plan(ctx, init_fds, launch, NULL, err);
}

static int record_init(const struct create_ctx *ctx, const struct launch *launch,
                       struct cay_error *err)
{
    ctx->record->init = launch->pid;
    int error = runtime_start_time(launch->pid, &ctx->record->init_start);
    return error ? cay_fail_errno(err, -error, op, "cay-init")
                 : runtime_save(ctx->record, err);
}

/* Everything that is done while cay-init creates its namespaces.  Once it has the mounts
 * it may outlive this process; unless a cgroup contains it, its pid must be recorded
 * before. */
static int setup_root(const struct create_ctx *ctx, int group, struct launch *launch,
                      struct cay_error *err)
{
    struct init_fds init_fds = {-1, -1, -1, {-1, -1, -1}};
    struct root_plan root_plan;
    int mounts[PLAN_MOUNTS_MAX];
    size_t count = 0;

    root_plan_init(&root_plan);
    int code = ctx->map.by_helper ? launch_wait_clone(launch, err) : CAY_OK;
    if (!code)
        launch_start_map(launch, &ctx->map);
    if (!code)
        code = set_limits(ctx, err);
    if (!code)
        code = open_cgroup(ctx, group, &init_fds, err);
    if (!code)
        code = open_plan(ctx, &root_plan, &init_fds, err);
    if (!code)
        code = setup_mounts(ctx, &root_plan, &init_fds, launch, mounts, &count, err);
    if (!code && !ctx->record->cgroup.unified[0])
        code = record_init(ctx, launch, err);
    const struct plan_go go = {PLAN_VERSION, (uint32_t)count};
    if (!code)
        code = launch_send(launch, &go, sizeof go, mounts, count, err);
    if (!code)
        create_first_exec_cgroup(ctx, &init_fds);
    close_all(mounts, count);
    close_all((const int[]){init_fds.plan, init_fds.listen, init_fds.cgroup}, 3);
    close_all(init_fds.tasks, CGROUP_V1);
    root_plan_done(&root_plan);
    return code;
}

static int send_first(const struct create_ctx *ctx, struct native *native,
                      struct cay_error *err)
{
    struct create_first *first = ctx->first;

    if (!first)
        return CAY_OK;
    process_free(TAKE_PTR(first->process));
    return process_send_start(native, first->options, &first->process, err);
}

/* Connects to the control socket, and sends the first request, while cay-init gets ready:
 * the socket accepts connections before cay-init serves them. */
static int start_init(struct create_ctx *ctx, int group, struct launch *launch,
                      struct native *native, struct cay_error *err)
{
    struct cay_error own;
    int code = setup_root(ctx, group, launch, err);

    if (!code && ctx->network.rules)
        code = network_send(&ctx->network, launch, ctx->record, err);
    if (!code && (ctx->record->cgroup.unified[0] || ctx->network.rules))
        code = record_init(ctx, launch, err);
    /* These come before the first command runs. */
    bool has_headers = ctx->network.has_headers;
    if (!code && ctx->network.rules && (ctx->record->networks[0] || has_headers))
        code = network_wait(&ctx->network, err);
    if (!code && ctx->network.rules && ctx->record->networks[0])
        code = join_networks(ctx->record, err);
    if (!code && has_headers)
        code = headers_set(ctx->record->id, ctx->options.headers,
                           ctx->options.header_count, err);
    /* The pool sends nothing to a spare, and has descriptors of many. */
    bool is_connected =
        !code && !ctx->pool && native_prepare_exec(native, NULL) == CAY_OK;
    int sent = is_connected ? send_first(ctx, native, &own) : CAY_OK;
    bool has_request = is_connected && !sent && ctx->first;
    /* Its report is more specific than a failed connection. */
    if (!code)
        code = launch_wait(launch, has_request ? ctx->first->process->command.socket : -1,
                           err);
    if (!is_connected && !code)
        code = send_first(ctx, native, err);
    if (!code && sent && err)
        *err = own;
    return code ? code : sent;
}

/* A process with another CAY_HOME must know that the disk is not in its own. */
static void record_home(struct record *record)
{
    char path[PATH_MAX];

    if (state_home_path(path, NULL) == CAY_OK && strlen(path) < sizeof record->home)
        memcpy(record->home, path, strlen(path) + 1);
}

/* Fields that a claim of a spare changes. */
static void fill_claimed(const struct cay_sandbox_options *options, struct record *record)
{
    record->ephemeral = options->ephemeral;
    record->checkpoint_each = options->checkpoint_each;
    record->memory_bytes = options->memory_bytes;
    record->pids = options->pids;
    record->cpu_percent = options->cpu_percent;
    cay_copy_text(record->user, sizeof record->user,
                  options->user ? options->user : "user");
    cay_copy_text(record->workdir, sizeof record->workdir,
                  options->workdir ? options->workdir : "");
}

/* Fields that are only for later readers. */
static void fill_record(const struct create_ctx *ctx)
{
    const struct cay_sandbox_options *options = &ctx->options;
    struct record *record = ctx->record;

    record->created_ms = ctx->start ? ctx->created_ms : clock_since_1970_ms();
    record->is_spare = ctx->pool != NULL;
    cay_copy_text(record->pool, sizeof record->pool, ctx->pool ? ctx->pool : "");
    if (options->storage == CAY_STORAGE_DISK)
        record_home(record);
    record->template_dev = ctx->sources.template.dev;
    record->template_ino = ctx->sources.template.ino;
    memcpy(record->volumes, ctx->sources.binds.volumes, sizeof record->volumes);
    record->network =
        ctx->network.rules ? network_kind(ctx->network.rules) : options->network;
    record->is_relayed = ctx->network.rules != NULL;
    record->storage = options->storage;
    record->landlock_abi = runtime_is_local(record) ? 0 : landlock_abi();
    record->disk_bytes = options->disk_bytes;
    cay_copy_text(record->below, sizeof record->below,
                  ctx->inherited && options->storage == CAY_STORAGE_MEMORY
                      ? ctx->inherited->below
                      : "");
    cay_copy_text(record->template_name, sizeof record->template_name,
                  options->template_name ? options->template_name : "host");
    fill_claimed(options, record);
}

static enum setup_kind setup_kind(const struct create_ctx *ctx)
{
    if (runtime_is_local(ctx->record))
        return SETUP_HOST;
    if (!runtime_has_namespaces(ctx->record))
        return SETUP_NOTHING;
    if (ctx->record->network == CAY_NETWORK_HOST)
        return SETUP_FILES;
    return ctx->network.rules ? SETUP_RELAY : SETUP_NETWORK;
}

static int build(struct create_ctx *ctx, struct native *native, struct cay_error *err)
{
    const struct cgroup_limits limits = preflight_limits(&ctx->options);
    struct record *record = ctx->record;
    struct launch *launch = &ctx->launch;
    AUTO_FD group = -1;
    enum setup_kind kind = setup_kind(ctx);
    int code = CAY_OK;

    if (!runtime_is_local(record))
        code = cgroup_name(record->id, &limits, &record->cgroup, err);
    if (!code)
        code = preflight_layers(record, &ctx->options, ctx->given, err);
    if (!code)
        code = runtime_save(record, err);
    if (!code && !runtime_has_namespaces(record))
        code = record_create_home(record, ctx->owner, err);
    if (!code)
        code = cgroup_create(&record->cgroup, &group, err);
    if (!code && ctx->network.rules)
        code = network_start(group, record, &ctx->network, err);
    if (!code) /* without a user namespace cay-init gives up root itself */
        code = launch_begin(group, kind,
                            record->has_range && kind != SETUP_NOTHING ? ctx->owner : 0,
                            launch, err);
    if (code)
        return code;
    AUTO_FD status = launch->status;
    code = network_wait_authority(&ctx->network, err);
    if (!code)
        code = start_init(ctx, group, launch, native, err);
    if (!code && ctx->network.rules)
        code = network_wait(&ctx->network, err);
    launch_done(launch, code == CAY_OK);
    native->pidfd = launch->pidfd;
    if (!code && ctx->options.ephemeral)
        native->leash = TAKE_FD(status);
    return code;
}

/* Saves the options with resolved paths, because the next start may run in another
 * directory. */
static int save_options(const struct create_ctx *ctx, struct cay_error *err)
{
    const struct root_sources *sources = &ctx->sources;
    const char *name = ctx->options.template_name;
    char path[PATH_MAX];

    if (sources->template.root >= 0 && sources->template.dir < 0) {
        (void)path_name(sources->template.root, path);
        name = path;
    }
    if (ctx->network.rules)
        TRY(network_store(ctx->network.rules, ctx->record->id, err));
    return storage_save(&sources->storage, &ctx->options, &ctx->map, ctx->given, name,
                        &sources->binds, err);
}

/* With another map the files would belong to other users inside, or to none. */
static int check_map(const struct create_ctx *ctx, struct cay_error *err)
{
    char ids[IDMAP_TEXT];

    idmap_text(&ctx->map, ids);
    if (!ctx->saved || strcmp(ids, ctx->saved->map ? ctx->saved->map : "") == 0)
        return CAY_OK;
    return cay_fail(err, CAY_E_UNSUPPORTED, 0, op, ctx->start,
                    "the sandbox's files belong to other user ids than those it would "
                    "get now",
                    "restore the range it had in /etc/subuid and /etc/subgid, or remove "
                    "the sandbox");
}

static int build_locked(struct create_ctx *ctx, struct native *native,
                        struct cay_error *err)
{
    struct record *record = ctx->record;
    struct storage *storage = &ctx->sources.storage;
    bool is_new_disk = ctx->options.storage == CAY_STORAGE_DISK && !ctx->start;

    /* Held until the sandbox runs or is removed again, so that no collect removes it. */
    AUTO_FD lock = runtime_wait_lock(record->id);
    int code = CAY_OK;
    if (lock < 0)
        code =
            cay_fail(err, CAY_E_BUSY, 0, op, record->id,
                     "another process has locked the new sandbox's record", "try again");
    if (!code)
        code = level_identify(ctx->level, record, &ctx->map, &ctx->owner, err);
    if (!code)
        code = check_map(ctx, err);
    if (!code && is_new_disk)
        code = storage_create(record->id, ctx->options.disk_bytes, storage, err);
    if (!code)
        code = join_plan(ctx->options.networks,
                         ctx->options.name ? ctx->options.name : record->id,
                         record->networks, err);
    if (!code)
        code = native_save_approve(&ctx->options, record, err);
    if (!code) {
        fill_record(ctx);
        code = build(ctx, native, err);
    }
    if (!code && is_new_disk)
        code = save_options(ctx, err);
    if (code)
        (void)!record_remove(record, native->pidfd, NULL);
    if (code && is_new_disk) {
        storage_done(storage);
        (void)storage_remove(record->id, NULL);
        names_release(record->name, record->id);
    }
    return code;
}

/* After the record exists, because a link without a record counts as stale. */
static int claim_name(const struct create_ctx *ctx, struct cay_error *err)
{
    struct record *record = ctx->record;

    cay_copy_text(record->name, sizeof record->name, ctx->options.name);
    record->storage = ctx->options.storage;
    if (ctx->options.storage == CAY_STORAGE_DISK)
        record_home(record);
    int code = names_claim(record, err);
    if (code)
        runtime_release(record);
    return code;
}

/* Creates the sandbox at one isolation level, or fails. */
static int create_at_level(struct create_ctx *ctx, struct native *native,
                           struct cay_error *err)
{
    ctx->record = &native->record;
    ctx->launch = (struct launch){.is_dumpable = fsid_begin()};
    int code = level_check(ctx->level, &ctx->options, err);
    if (!code && ctx->level == CAY_LEVEL_ROOT && ctx->options.network != CAY_NETWORK_HOST)
        launch_network(&ctx->launch, ctx->network.rules != NULL);
    if (!code)
        code = runtime_reserve(ctx->id, ctx->options.id_prefix,
                               idmap_is_root() && ctx->level != CAY_LEVEL_NONE,
                               ctx->record, err);
    if (!code && ctx->options.name)
        code = claim_name(ctx, err);
    if (!code)
        code = build_locked(ctx, native, err);
    launch_cancel(&ctx->launch);
    network_done(&ctx->network);
    fsid_end();
    if (code)
        native_close(native);
    return code;
}

/* Tries isolation levels from the best available one down. */
static int create_at_best_level(struct create_ctx *ctx, struct native *native,
                                struct cay_error *err)
{
    struct cay_error first = {0}, now = {0};
    int error = idmap_check(); /* if the map is unreadable, root would be treated as an
                                  ordinary user */

    if (cay_errno_is_shortage(-error))
        return cay_fail_errno(err, -error, op, "uid_map");
    ctx->level = level_from(ctx->options.level);
    if (ctx->level == CAY_LEVEL_BEST)
        return level_fail_none(err);
    do {
        if (create_at_level(ctx, native, &now) == CAY_OK)
            return CAY_OK;
        /* Report why the best level failed, unless the last level only lacks a requested
         * option. */
        if (first.code == CAY_OK ||
            (now.code == CAY_E_UNSUPPORTED && ctx->level == CAY_LEVEL_LANDLOCK))
            first = now;
        ctx->level = level_from((enum cay_level)(ctx->level + 1));
    } while (level_may_fall(&now) && ctx->level != CAY_LEVEL_BEST);
    if (err)
        *err = first;
    return first.code;
}

/* --- Spares --- */

static int send_claim(const struct create_ctx *ctx, struct native *native, int leash,
                      struct cay_error *err)
{
    struct plan_defaults head;
    AUTO_BUF message;

    fill_defaults(&ctx->options, &head);
    buf_init(&message, MESSAGE_MAX);
    buf_append(&message, &head, sizeof head);
    for (const char *const *env = ctx->sources.env; env && *env; env++)
        buf_append(&message, *env, strlen(*env) + 1);
    if (message.failed)
        return cay_fail_memory(err, op);
    head.env_len = (uint32_t)(message.len - sizeof head);
    memcpy(message.data, &head, sizeof head);
    int code = native_connect(native, err);
    int error = code ? 0
                     : packet_send(native->socket, MESSAGE_CLAIM, message.data,
                                   message.len, &leash, leash >= 0);
    return error ? wire_fail_send(native->socket, op, native->record.id, -error, err)
                 : code;
}

enum { CLAIM_UNFIT = 1, CLAIM_SURE_MS = 1000 };

/* Whether PID 1 has been claimed, see spare.h.  The pool gives a slow claim up. */
static int check_claimed(struct native *native, uint64_t taken_ms, struct cay_error *err)
{
    if (spare_has_pool(&native->record) && clock_ms() - taken_ms < CLAIM_SURE_MS)
        return CAY_OK;
    return wire_request(native, op, MESSAGE_PING, NULL, 0, MESSAGE_PONG, NULL, 0, err);
}

/* The first request follows the claim at once: PID 1 wakes up once for both. */
static int claim_init(const struct create_ctx *ctx, struct native *native,
                      uint64_t taken_ms, struct cay_error *err)
{
    int ends[2] = {-1, -1};

    if (ctx->options.ephemeral &&
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        return cay_fail_errno(err, errno, op, "socketpair");
    AUTO_FD far = ends[1];
    native->leash = ends[0];
    TRY(send_claim(ctx, native, far, err));
    TRY(check_claimed(native, taken_ms, err));
    return send_first(ctx, native, err);
}

static int set_claimed_limits(const struct create_ctx *ctx, struct record *record,
                              struct cay_error *err)
{
    const struct cgroup_limits limits = preflight_limits(&ctx->options);

    if (record->memory_bytes == limits.memory_bytes && record->pids == limits.pids &&
        record->cpu_percent == limits.cpu_percent)
        return CAY_OK;
    return cgroup_change_limits(&record->cgroup, &limits, err);
}

/* What can fail because of the request, before the spare is changed. */
static int check_claim(const struct create_ctx *ctx, struct record *record,
                       struct cay_error *err)
{
    const char *name = ctx->options.name;

    TRY(level_demand(record, record->layers, ctx->given, ctx->options.require, err));
    TRY(join_plan(ctx->options.networks, name ? name : record->id, record->networks,
                  err));
    if (!name)
        return CAY_OK;
    cay_copy_text(record->name, sizeof record->name, name);
    return names_claim(record, err);
}

/* Without a cgroup the limits are rlimits, which no claim changes. */
static bool does_fit(const struct create_ctx *ctx, const struct record *record)
{
    const struct cgroup_limits limits = preflight_limits(&ctx->options);

    return (!record->pids_by_rlimit || record->pids == limits.pids) &&
           (record->layers & CAY_LAYER_MEMORY ||
            record->memory_bytes == limits.memory_bytes);
}

/* CAY_E_NOT_FOUND: it has ended; CLAIM_UNFIT: no spare with this key fits.  A request
 * that is refused leaves it in the pool, unless another sandbox has its name in a
 * network: it ends then, since it may have joined others. */
static int claim_one(struct create_ctx *ctx, const struct spare_key *key, const char *id,
                     struct native *native, struct cay_error *err)
{
    struct record *record = &native->record;
    uint64_t taken_ms = clock_ms();

    AUTO_FD lock = runtime_wait_lock(id);
    if (lock < 0 || runtime_load_locked(lock, id, record, NULL) != CAY_OK ||
        !record->is_spare)
        return CAY_E_NOT_FOUND;
    int code = does_fit(ctx, record) ? check_claim(ctx, record, err) : CLAIM_UNFIT;
    if (code) {
        (void)!spare_offer(key, id, NULL);
        return code;
    }
    code = set_claimed_limits(ctx, record, err);
    if (!code && ctx->network.rules &&
        network_change(record, ctx->network.rules, NULL) != CAY_OK)
        code = CAY_E_NOT_FOUND;
    if (!code) {
        record->is_spare = 0;
        record->created_ms = clock_since_1970_ms();
        fill_claimed(&ctx->options, record);
        code = native_save_approve(&ctx->options, record, err);
    }
    if (!code) {
        /* Saved before CLAIM: until then the sandbox ends with the pool, and from then on
         * it is found by its mark. */
        cay_copy_text(record->mark, sizeof record->mark, ctx->id);
        code = runtime_save(record, err);
    }
    if (!code && record->networks[0])
        code = join_networks(record, err);
    /* It may have ended with its pool: then the next one is tried. */
    if (!code && claim_init(ctx, native, taken_ms, NULL) != CAY_OK)
        code = CAY_E_NOT_FOUND;
    if (code) {
        (void)!record_remove(record, -1, NULL);
        native_close(native);
    }
    return code;
}

static int claim_any(struct create_ctx *ctx, struct spare_offers *offers,
                     struct native *native, struct cay_error *err)
{
    char id[CAY_ID_MAX];
    struct spare_key key;
    size_t env_len;
    int code = CAY_E_NOT_FOUND;

    if (!spare_key(&ctx->options, &ctx->sources, &key))
        return code;
    TRY(root_plan_check_env(ctx->sources.env, &env_len, err));
    if (env_len > MESSAGE_MAX - sizeof(struct plan_defaults))
        return code; /* does not fit the message */
    while (code == CAY_E_NOT_FOUND && spare_take(offers, &key, id))
        code = claim_one(ctx, &key, id, native, err);
    return code == CLAIM_UNFIT ? CAY_E_NOT_FOUND : code;
}

/* CAY_E_NOT_FOUND: there is no spare. */
static int claim_spare(struct create_ctx *ctx, struct native *native,
                       struct cay_error *err)
{
    struct spare_offers offers;

    if (!ctx->options.pool || ctx->start || ctx->network.is_inspected)
        return CAY_E_NOT_FOUND;
    bool is_any = spare_open_offers(&offers);
    int code = is_any ? claim_any(ctx, &offers, native, err) : CAY_E_NOT_FOUND;
    spare_close_offers(&offers);
    return code;
}

/* The layers of a fork are changes to one template. */
static int check_template(const struct create_ctx *ctx, struct cay_error *err)
{
    const struct template *template = &ctx->sources.template;

    if (template->dev == ctx->inherited->template_dev &&
        template->ino == ctx->inherited->template_ino)
        return CAY_OK;
    return cay_fail(err, CAY_E_INVALID, 0, op,
                    ctx->options.template_name ? ctx->options.template_name : "host",
                    "the sandbox that is forked has another template",
                    "leave the template out; if it was replaced, create a new sandbox");
}

static int open_sources(struct create_ctx *ctx, struct cay_error *err)
{
    int code = root_sources_open(&ctx->options, ctx->start, &ctx->sources, err);

    if (!code && ctx->inherited)
        code = check_template(ctx, err);
    ctx->sources.inherited = ctx->inherited;
    return code;
}

static int create_new(struct create_ctx *ctx, struct native *native,
                      struct cay_error *err)
{
    int code = preflight_options(&ctx->options, &ctx->given, err);

    if (code)
        return code;
    if (ctx->saved) /* the saved options have the default limits, too */
        ctx->given &= ctx->saved->given;
    code = network_take_rules(&ctx->options, ctx->start, &ctx->network, err);
    if (code) { /* the sources are not open */
        network_drop_rules(&ctx->network);
        return code;
    }
    if (ctx->network.env)
        ctx->options.env = ctx->network.env;
    code = open_sources(ctx, err);
    if (!code) {
        code = claim_spare(ctx, native, err);
        if (code == CAY_E_NOT_FOUND)
            code = create_at_best_level(ctx, native, err);
    }
    root_sources_close(&ctx->sources);
    network_drop_rules(&ctx->network);
    return code;
}

int create_spare(const struct cay_sandbox_options *options,
                 const struct inherited *inherited, const char *pool,
                 struct spare_key *ret_key, struct native *native, struct cay_error *err)
{
    struct create_ctx ctx = {.options = *options, .inherited = inherited, .pool = pool};
    struct cay_sandbox_options *own = &ctx.options;

    own->ephemeral = true;
    own->name = NULL;
    own->env = NULL;
    own->ttl_ms = 0;
    int code = preflight_options(own, &ctx.given, err);
    if (!code &&
        own->network > CAY_NETWORK_HOST) /* nothing is allowed before the claim */
        own->network = CAY_NETWORK_RULES;
    if (!code)
        code = network_take_rules(own, NULL, &ctx.network, err);
    if (code)
        return code;
    code = open_sources(&ctx, err);
    if (!code && (own->policy || !spare_key(own, &ctx.sources, ret_key)))
        code = cay_fail(err, CAY_E_UNSUPPORTED, 0, "pool.create", "sandbox",
                        "sandboxes with these options cannot be created ahead",
                        "use storage in memory, no policy (network rules and named "
                        "networks come with each sandbox), and an isolation level with "
                        "namespaces");
    if (!code)
        code = create_at_best_level(&ctx, native, err);
    root_sources_close(&ctx.sources);
    network_drop_rules(&ctx.network);
    return code;
}

int create_sandbox(const struct cay_sandbox_options *options, const char *id,
                   const struct inherited *inherited, struct create_first *first,
                   struct native *native, struct cay_error *err)
{
    struct create_ctx ctx = {
        .options = *options, .id = id, .inherited = inherited, .first = first};

    return create_new(&ctx, native, err);
}

int create_local(const struct cay_sandbox_options *options, const char *id,
                 struct native *native, struct cay_error *err)
{
    struct create_ctx ctx = {.options = *options, .id = id, .level = CAY_LEVEL_NONE};
    int code = root_sources_open(&ctx.options, NULL, &ctx.sources, err);

    if (!code)
        code = create_at_level(&ctx, native, err);
    root_sources_close(&ctx.sources);
    return code;
}

int create_from_disk(const char *id, struct native *native, struct cay_error *err)
{
    struct storage_saved saved;

    int code = storage_load(id, &saved, err);
    if (code)
        return code;
    struct create_ctx ctx = {.options = saved.options,
                             .id = id,
                             .start = id,
                             .saved = &saved,
                             .created_ms = saved.created_ms};
    code = create_new(&ctx, native, err);
    storage_saved_done(&saved);
    return code;
}

/* --- The working directory --- */

enum { WORKDIR_MS = 10000 };

/* Checked at creation, so that the caller gets the error before the first command. */
int create_check_defaults(void *cookie, const struct cay_sandbox_options *options,
                          struct cay_error *err)
{
    struct cay_stat found;
    cay_files *files = NULL;
    int code = native_files(cookie, options->user, &files, err);

    if (code || !options->workdir) {
        cay_files_free(files);
        return code;
    }
    code = cay_files_stat(files, options->workdir, false, &found, err);
    cay_files_free(files);
    if (code == CAY_E_NOT_FOUND)
        return cay_fail(err, code, ENOENT, op, options->workdir,
                        "the working directory does not exist inside the sandbox",
                        "use an existing directory such as /tmp, or mount one there");
    if (!code && found.type != CAY_TYPE_DIRECTORY)
        return cay_fail(err, CAY_E_INVALID, ENOTDIR, op, options->workdir,
                        "the working directory is not a directory",
                        "use the path of a directory");
    return code;
}

/* The template is untrusted: its programs may be missing, or never end. */
static int create_workdir_as_root(void *cookie, const struct cay_sandbox_options *options,
                                  struct cay_error *err)
{
    static const char script[] = "mkdir -p -- \"$1\" && chown -- \"$2\" \"$1\"";
    const struct native *native = cookie;
    const char *const argv[] = {"/bin/sh",           "-c", script, "sh", options->workdir,
                                native->record.user, NULL};
    const struct cay_exec_options exec = {.size = sizeof exec,
                                          .argv = argv,
                                          .user = "root",
                                          .cwd = "/",
                                          .timeout_ms = WORKDIR_MS};
    struct cay_exec_result result = {0};

    int code = native_exec(cookie, &exec, &result, err);
    bool made = !code && result.cause == CAY_CAUSE_EXITED && result.exit_code == 0;
    cay_exec_done(&result);
    if (made || (code && code != CAY_E_EXEC_FAILED && code != CAY_E_UNSUPPORTED))
        return code;
    return cay_fail(err, CAY_E_INVALID, 0, op, options->workdir,
                    "the working directory does not exist and cannot be created",
                    "use a directory below /home/user or /tmp");
}

/* As the user if permitted, so that the user owns every new directory of the path. */
int create_workdir(void *cookie, const struct cay_sandbox_options *options,
                   struct cay_error *err)
{
    const struct cay_name_options name = {.size = sizeof name,
                                          .flags = CAY_NAME_EXIST_OK};
    struct cay_error why;
    cay_files *files = NULL;

    int code = native_files(cookie, NULL, &files, &why);
    if (!code)
        code = cay_files_mkdir(files, options->workdir, &name, &why);
    cay_files_free(files);
    if (code == CAY_E_DENIED || code == CAY_E_READ_ONLY)
        return create_workdir_as_root(cookie, options, err);
    if (code && err)
        *err = why;
    return code;
}
