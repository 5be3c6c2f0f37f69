/* SPDX-License-Identifier: Apache-2.0 */
#include "native/make/root-plan.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/env.h"
#include "base/error.h"
#include "init/protocol.h"
#include "sys/io.h"
#include "sys/path.h"

static const char op[] = "sandbox.plan";

enum { USUAL_STEPS = 96 };

void root_plan_init(struct root_plan *ret_root_plan)
{
    ret_root_plan->head = (struct plan){.version = PLAN_VERSION};
    ret_root_plan->filter = NULL;
    ret_root_plan->env = NULL;
    ret_root_plan->step_count = 0;
    ret_root_plan->overflow = false;
    ret_root_plan->binds = NULL;
    ret_root_plan->keeps_root = ret_root_plan->is_copy = false;
    ret_root_plan->inherited = NULL;
    ret_root_plan->authority = NULL;
    ret_root_plan->overlay = (struct overlay){
        .lower = -1, .usr = -1, .usr_above = -1, .top = -1, .disk = -1, .store = -1};
    ret_root_plan->store = (struct store)STORE_NONE;
    buf_borrow(&ret_root_plan->bytes, PLAN_BYTES_MAX, ret_root_plan->usual,
               sizeof ret_root_plan->usual);
    buf_append(&ret_root_plan->bytes, "", 1); /* offset 0 is "" */
}

void root_plan_done(struct root_plan *root_plan)
{
    store_done(&root_plan->store);
    buf_done(&root_plan->bytes);
}

static uint32_t keep_bytes(struct buf *bytes, const void *data, size_t len)
{
    uint32_t at = (uint32_t)bytes->len;

    if (!len)
        return 0;
    return buf_append(bytes, data, len) && buf_append(bytes, "", 1) ? at : 0;
}

struct plan_step *root_plan_add(struct root_plan *root_plan, enum plan_kind kind,
                                const char *path)
{
    if (root_plan->step_count == PLAN_STEPS_MAX) {
        root_plan->overflow = true;
        root_plan->step_count--;
    }
    struct plan_step *step = &root_plan->steps[root_plan->step_count++];
    *step = (struct plan_step){.kind = kind,
                               .path = keep_bytes(&root_plan->bytes, path, strlen(path))};
    return step;
}

struct plan_step *root_plan_add_data(struct root_plan *root_plan, enum plan_kind kind,
                                     const char *path, const void *data, size_t len)
{
    struct plan_step *step = root_plan_add(root_plan, kind, path);

    step->data_len = (uint32_t)len;
    step->data = keep_bytes(&root_plan->bytes, data, len);
    return step;
}

/* The library mounts the descriptors it has open; cay-init can only look the path up
 * again, and checks that it finds the same file. */
static void add_binds(struct root_plan *root_plan, const struct binds *binds)
{
    char path[PATH_MAX];

    root_plan->binds = binds;
    for (size_t i = 0; i < binds->count; i++) {
        const struct bind *bind = &binds->list[i];
        bool ours = root_plan->head.prepared;
        const char *source = ours ? bind->source : bind_path(bind, path);
        struct plan_step *step = root_plan_add_data(
            root_plan, PLAN_BIND, bind->target + 1, source, strlen(source));
        bool is_written = bind->writable && bind->changes < 0;
        step->flags = (is_written ? PLAN_WITH_WRITING : 0u) |
                      (bind->is_directory ? PLAN_ON_DIRECTORY : PLAN_ON_FILE);
        step->number = ours ? i + 1 : bind->inode;
        if (bind->changes >= 0 && !ours)
            root_plan_add_source(root_plan, PLAN_CHANGES, bind->changes)->flags =
                PLAN_WITH_WRITING;
    }
}

struct plan_step *root_plan_add_source(struct root_plan *root_plan, enum plan_kind kind,
                                       int fd)
{
    char path[PATH_MAX];
    struct stat st = {0};

    (void)path_name(fd, path); /* "" cannot be opened */
    struct plan_step *step = root_plan_add_data(root_plan, kind, "", path, strlen(path));
    (void)!fstat(fd, &st);
    step->number = st.st_ino;
    return step;
}

int root_plan_check_env(const char *const *env, size_t *ret_len, struct cay_error *err)
{
    size_t count = 0, len = 0;

    for (; env && env[count] && count <= ENV_COUNT_MAX && len <= ENV_MAX; count++) {
        len += strlen(env[count]) + 1;
        if (env[count][0] == '=' || !strchr(env[count], '='))
            return cay_fail(err, CAY_E_INVALID, 0, "sandbox.create", env[count],
                            "invalid environment variable", "write NAME=value");
    }
    if (count > ENV_COUNT_MAX || len > ENV_MAX)
        return cay_fail(err, CAY_E_LIMIT, 0, "sandbox.create", "env",
                        "the sandbox's environment is too large",
                        "the limit is %d variables and %d KiB in total; pass the rest "
                        "with each command",
                        ENV_COUNT_MAX, ENV_MAX >> 10);
    *ret_len = len;
    return CAY_OK;
}

int root_plan_env(struct root_plan *root_plan, const char *const *env,
                  struct cay_error *err)
{
    size_t len;

    TRY(root_plan_check_env(env, &len, err));
    root_plan->env = env;
    return CAY_OK;
}

const char *root_plan_text(const struct root_plan *root_plan, uint32_t offset)
{
    return root_plan->bytes.data + offset;
}

/* --- The finished plan --- */

static void copy_steps(const struct root_plan *root_plan, struct plan *head,
                       struct buf *steps, struct buf *bytes)
{
    buf_append(bytes, "", 1);
    for (uint32_t i = 0; i < root_plan->step_count; i++) {
        struct plan_step step = root_plan->steps[i];
        if (root_plan->head.prepared && root_plan_is_entry(&step))
            continue; /* created by the library */
        const char *path = root_plan_text(root_plan, step.path);
        const char *data = root_plan_text(root_plan, step.data);
        step.path = keep_bytes(bytes, path, strlen(path));
        bool ours = root_plan->head.prepared && step.kind != PLAN_REPLACE;
        step.data = keep_bytes(bytes, data, ours ? 0 : step.data_len);
        buf_append(steps, &step, sizeof step);
        head->step_count++;
    }
}

static int write_plan(int fd, const struct plan *head, const struct root_plan *root_plan,
                      const struct buf *steps, const struct buf *bytes)
{
    int error = io_write(fd, head, sizeof *head);

    if (!error)
        error =
            io_write(fd, root_plan->filter, head->filter_len * sizeof *root_plan->filter);
    if (!error)
        error = io_write(fd, steps->data, steps->len);
    if (!error)
        error = io_write(fd, bytes->data, bytes->len);
    return error ? error : io_seal(fd);
}

int root_plan_seal(struct root_plan *root_plan, int *ret_fd, struct cay_error *err)
{
    struct plan head = root_plan->head;
    char usual_steps[USUAL_STEPS * sizeof(struct plan_step)];
    char usual_bytes[PLAN_USUAL_BYTES];
    AUTO_BUF steps;
    AUTO_BUF bytes;

    buf_borrow(&steps, PLAN_STEPS_MAX * sizeof(struct plan_step), usual_steps,
               sizeof usual_steps);
    buf_borrow(&bytes, PLAN_BYTES_MAX, usual_bytes, sizeof usual_bytes);
    copy_steps(root_plan, &head, &steps, &bytes);
    head.env = (uint32_t)bytes.len;
    for (const char *const *env = root_plan->env; env && *env; env++)
        buf_append(&bytes, *env, strlen(*env) + 1);
    head.defaults.env_len = (uint32_t)bytes.len - head.env;
    if (root_plan->overflow || root_plan->bytes.failed || steps.failed || bytes.failed)
        return cay_fail(err, CAY_E_LIMIT, 0, op, NULL,
                        "the sandbox has too many mounts or files", "the limit is %d",
                        PLAN_STEPS_MAX / 4);
    head.bytes_len = (uint32_t)bytes.len;
    head.size = (uint32_t)(sizeof head + head.filter_len * sizeof *root_plan->filter +
                           steps.len + bytes.len);
    AUTO_FD fd = memfd_create("cay-plan", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int error = fd < 0 ? -errno : write_plan(fd, &head, root_plan, &steps, &bytes);
    if (error)
        return cay_fail_errno(err, -error, op, NULL);
    *ret_fd = TAKE_FD(fd);
    return CAY_OK;
}

/* --- Without a root of its own: landlock --- */

/* What programs need and every user may read.  Nothing of /home, /root, /var, /run or
 * /tmp, no host processes, and only those parts of /etc that reveal neither users nor
 * services. */
static const char *const readable[] = {
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc/adduser.conf",
    "/etc/alternatives",
    "/etc/bash.bashrc",
    "/etc/debian_version",
    "/etc/group",
    "/etc/inputrc",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/login.defs",
    "/etc/matplotlibrc",
    "/etc/mime.types",
    "/etc/nsswitch.conf",
    "/etc/os-release",
    "/etc/passwd",
    "/etc/protocols",
    "/etc/services",
    "/etc/shells",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/timezone",
    "/proc/cpuinfo",
    "/proc/filesystems",
    "/proc/loadavg",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/sys/kernel/ngroups_max",
    "/proc/sys/kernel/osrelease",
    "/proc/sys/kernel/ostype",
    "/proc/sys/kernel/pid_max",
    "/proc/sys/vm/overcommit_memory",
    "/proc/uptime",
    "/proc/version",
    "/sys/devices/system/cpu",
};

static const char *const for_network[] = {"/etc/hosts", "/etc/host.conf", "/etc/gai.conf",
                                          "/etc/resolv.conf"};

/* /dev/tty is the controlling terminal of the process, always one of the sandbox's
 * own. */
static const char *const devices[] = {"/dev/null",   "/dev/zero",    "/dev/full",
                                      "/dev/random", "/dev/urandom", "/dev/tty"};

static void add_all(struct root_plan *root_plan, enum plan_kind kind,
                    const char *const *paths, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (access(paths[i], R_OK) == 0)
            (void)root_plan_add(root_plan, kind, paths[i]);
}

void root_plan_landlock(struct root_plan *root_plan, bool with_network, const char *home,
                        const struct binds *binds)
{
    char path[PATH_MAX];

    add_all(root_plan, PLAN_READABLE, readable, sizeof readable / sizeof *readable);
    add_all(root_plan, PLAN_WRITABLE, devices, sizeof devices / sizeof *devices);
    if (with_network)
        add_all(root_plan, PLAN_READABLE, for_network,
                sizeof for_network / sizeof *for_network);
    (void)root_plan_add(root_plan, PLAN_WRITABLE, home);
    for (size_t i = 0; i < binds->count; i++) {
        const struct bind *bind = &binds->list[i];
        root_plan_add(root_plan, bind->writable ? PLAN_WRITABLE : PLAN_READABLE,
                      bind_path(bind, path))
            ->number = bind->inode;
    }
}

/* --- Sources --- */

static const char create_op[] = "sandbox.create";

static int add_env(struct root_sources *sources, const char *const *env,
                   struct cay_error *err)
{
    const char *const *image = (const char *const *)sources->template.info.env;
    size_t used = 0, more = env_count(image);

    sources->env = calloc(env_count(env) + more + 1, sizeof *sources->env);
    if (!sources->env)
        return cay_fail_memory(err, create_op);
    for (; env && *env; env++)
        if (!env_sets(env + 1, *env)) /* the last variable with a name takes effect */
            sources->env[used++] = *env;
    for (size_t i = 0; i < more; i++)
        if (!env_sets(sources->env, image[i]))
            sources->env[used++] = image[i];
    return CAY_OK;
}

int root_sources_open(struct cay_sandbox_options *options, const char *start,
                      struct root_sources *ret_sources, struct cay_error *err)
{
    const char *name = options->template_name;
    int code = CAY_OK;

    *ret_sources = (struct root_sources){
        .template = TEMPLATE_NONE, .storage = STORAGE_NONE, .is_start = start != NULL};
    if (name && strcmp(name, "base") == 0)
        code = template_base_open(options->network == CAY_NETWORK_NONE,
                                  &ret_sources->template, err);
    else if (name && strcmp(name, "host") != 0)
        code = template_open(name, start != NULL, &ret_sources->template, err);
    if (!code && ret_sources->template.usr_above >= 0)
        code = template_base_env(options->network == CAY_NETWORK_NONE,
                                 &ret_sources->template, err);
    const struct cay_template_info *image = &ret_sources->template.info.shown;
    if (!code && !options->user && *image->user)
        options->user = image->user;
    if (!code && !options->workdir && *image->workdir == '/')
        options->workdir = image->workdir;
    if (!code)
        code = binds_open(options, start != NULL,
                          template_layer_with(&ret_sources->template, "etc/passwd"),
                          &ret_sources->binds, err);
    if (!code && start)
        code = storage_lock(start, &ret_sources->storage, err);
    if (!code)
        code = add_env(ret_sources, options->env, err);
    return code;
}

void root_sources_close(struct root_sources *sources)
{
    storage_done(&sources->storage);
    binds_done(&sources->binds);
    template_done(&sources->template);
    free(sources->env);
    sources->env = NULL;
}

static int add_bottom(struct root_plan *root_plan, uint64_t size, struct cay_error *err)
{
    int error = store_create(size, &root_plan->store);

    if (error)
        return cay_fail_errno(err, -error, create_op, "tmpfs");
    if (root_plan->store.top >= 0)
        (void)root_plan_add(root_plan, PLAN_BOTTOM, "");
    root_plan->overlay.store = root_plan->store.dir;
    return CAY_OK;
}

int root_sources_plan(const struct root_sources *sources,
                      const struct cay_sandbox_options *options,
                      struct root_plan *root_plan, struct cay_error *err)
{
    uint64_t size = options->disk_bytes;
    int code = CAY_OK;

    /* With storage on disk only tmpfs mounts such as /dev/shm are in memory. */
    if (options->storage == CAY_STORAGE_DISK)
        size = options->memory_bytes < CAY_DISK_DEFAULT ? options->memory_bytes
                                                        : CAY_DISK_DEFAULT;
    root_plan->overlay.disk = sources->storage.disk;
    root_plan->inherited = sources->inherited;
    root_plan->is_copy = sources->inherited || sources->template.is_host;
    root_plan->keeps_root = sources->is_start || root_plan->is_copy;
    bool is_snapshot = sources->template.is_host || sources->template.usr_above >= 0;
    if (is_snapshot && !root_plan->head.prepared)
        return cay_fail(err, CAY_E_UNSUPPORTED, 0, create_op,
                        sources->template.info.shown.name,
                        "only sandboxes at isolation level \"root\" can be created from "
                        "this snapshot",
                        "create the sandbox as root");
    if (root_plan->head.prepared)
        TRY(add_bottom(root_plan, size, err));
    if (sources->storage.disk >= 0 && !root_plan->head.prepared) {
        struct plan_step *step =
            root_plan_add_source(root_plan, PLAN_DISK, sources->storage.disk);
        step->flags = PLAN_WITH_WRITING;
        step->mode = sources->is_start ? 0 : 0755;
    }
    /* The library mounts the overlay of "base"; without that, "base" is like "host". */
    if (sources->template.root < 0 || sources->template.is_host ||
        (sources->template.usr >= 0 && !root_plan->head.prepared))
        root_plan_host(root_plan, &sources->template, size);
    else
        code = root_plan_template(root_plan, &sources->template, size, err);
    add_binds(root_plan, &sources->binds);
    return code;
}
