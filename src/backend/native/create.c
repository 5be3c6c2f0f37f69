/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/native/blueprint.h"
#include "backend/native/filter.h"
#include "backend/native/native.h"
#include "base/auto.h"
#include "base/error.h"
#include "sys/io.h"

static const char op[] = "sandbox.create";

/* cay-init itself, put into the library by src/init/embed. */
extern const unsigned char cay_init[];
extern const uint64_t cay_init_size;

enum { START_MS = 10000, MAX_FILES = 65536, ABOVE_ALL = 16 };

/* What goes into the new process, by its number there; plan.h names them. */
struct inherited {
    int plan, status, listen, cgroup, program;
};

/* A sealed copy: code inside can never change the program the next sandbox starts from.
 */
static int open_program(struct cay_error *err)
{
    /* MFD_EXEC is needed where memfds are not executable unless asked for, and unknown to
     * kernels before 6.3. */
    AUTO_FD fd = memfd_create("cay-init", MFD_CLOEXEC | MFD_ALLOW_SEALING | 0x0010u);
    if (fd < 0 && errno == EINVAL)
        fd = memfd_create("cay-init", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int error = fd < 0 ? -errno : io_write(fd, cay_init, cay_init_size);

    if (!error && fcntl(fd, F_ADD_SEALS,
                        F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) != 0)
        error = -errno;
    return error ? cay_fail_errno(err, -error, op, "cay-init") : TAKE_FD(fd);
}

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

static int make_plan(const struct cay_sandbox_options *options,
                     const struct record *record, int *ret_fd, struct cay_error *err)
{
    struct blueprint blueprint;
    int code = blueprint_init(&blueprint, err);

    if (code)
        return code;
    struct plan *plan = blueprint.plan;
    const char *hostname = options->hostname ? options->hostname : record->id;
    cay_copy_text(plan->hostname, sizeof plan->hostname, hostname);
    for (size_t i = 0; i < PLAN_GROUPS_MAX && record->groups.v1[i][0]; i++)
        snprintf(plan->groups[i], sizeof plan->groups[i], "%.200s/cgroup.procs",
                 record->groups.v1[i]);
    plan->id_base = record->id_base;
    plan->id_count = RUNTIME_IDS;
    plan->own_network = options->network == CAY_NETWORK_NONE;
    plan->has_cgroup = 1;
    plan->ephemeral = options->ephemeral;
    plan->disk_bytes = options->disk_bytes;
    plan->disk_inodes = options->disk_bytes / 4096 + 1024;
    plan->max_files = MAX_FILES;
    plan->ttl_ms = options->ttl_ms;
    plan->kept_bytes = options->memory_bytes / 8;
    cay_copy_text(plan->user, sizeof plan->user, options->user);
    cay_copy_text(plan->workdir, sizeof plan->workdir, options->workdir);
    blueprint_host(&blueprint, plan->hostname);
    for (size_t i = 0; i < options->bind_count; i++)
        blueprint_bind(&blueprint, options->binds[i].target + 1, options->binds[i].source,
                       options->binds[i].writable ? PLAN_BIND_WRITABLE : 0);
    code = blueprint_env(&blueprint, options->env, err);
    if (!code)
        code = filter_build(plan->own_network, plan, err);
    if (!code)
        code = blueprint_seal(&blueprint, ret_fd, err);
    blueprint_done(&blueprint);
    return code;
}

/* Out of the way of the numbers they are to have in the new process. */
static bool lift(struct inherited *given)
{
    int *fds[] = {&given->plan, &given->status, &given->listen, &given->cgroup,
                  &given->program};

    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++) {
        int high = fcntl(*fds[i], F_DUPFD_CLOEXEC, ABOVE_ALL);
        if (high < 0)
            return false;
        (void)close(*fds[i]);
        *fds[i] = high;
    }
    return true;
}

/* Starts cay-init with exactly those descriptors, /dev/null as its stdio, and nothing of
 * our environment. */
static int spawn(const struct inherited *given, pid_t *ret_pid)
{
    char *argv[] = {(char[]){"cay-init"}, NULL}, *env[] = {NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, all;

    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDWR, 0);
    posix_spawn_file_actions_adddup2(&actions, 0, 1);
    posix_spawn_file_actions_adddup2(&actions, 0, 2);
    posix_spawn_file_actions_adddup2(&actions, given->plan, 3);
    posix_spawn_file_actions_adddup2(&actions, given->status, 4);
    posix_spawn_file_actions_adddup2(&actions, given->listen, 5);
    posix_spawn_file_actions_adddup2(&actions, given->cgroup, 6);
    posix_spawn_file_actions_adddup2(&actions, given->program, 7);
    posix_spawn_file_actions_addclosefrom_np(&actions, 8);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    int error = posix_spawn(ret_pid, "/proc/self/fd/7", &actions, &attributes, argv, env);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    return -error;
}

/* One report of cay-init; a descriptor with it goes to *ret_fd. */
static int receive_report(int socket, int *ret_fd, struct cay_error *err)
{
    struct cay_error report;
    struct iovec part = {&report, sizeof report};
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.room,
                             .msg_controllen = sizeof control.room};
    struct pollfd waiting = {.fd = socket, .events = POLLIN};

    if (poll(&waiting, 1, START_MS) <= 0)
        return cay_fail(err, CAY_E_TIMEOUT, 0, op, "cay-init",
                        "the sandbox does not start",
                        "the machine may be overloaded; try again");
    if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != sizeof report)
        return cay_fail(err, CAY_E_KILLED, 0, op, "cay-init",
                        "the sandbox's first process died while it was being set up",
                        "the kernel's log may say why");
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (header && header->cmsg_type == SCM_RIGHTS &&
        header->cmsg_len == CMSG_LEN(sizeof(int)) && *ret_fd < 0)
        memcpy(ret_fd, CMSG_DATA(header), sizeof(int));
    if (report.code != CAY_OK) {
        report.op[sizeof report.op - 1] = '\0';
        report.subject[sizeof report.subject - 1] = '\0';
        report.message[sizeof report.message - 1] = '\0';
        report.hint[sizeof report.hint - 1] = '\0';
        if (err)
            *err = report;
    }
    return report.code;
}

static pid_t pid_of(int pidfd)
{
    char path[64], text[512];

    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", pidfd);
    AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t len = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (len <= 0)
        return -1;
    text[len] = '\0';
    const char *pid = strstr(text, "Pid:");
    return pid ? (pid_t)strtol(pid + 4, NULL, 10) : -1;
}

static void close_all(struct inherited *given)
{
    const int fds[] = {given->plan, given->status, given->listen, given->cgroup,
                       given->program};

    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        if (fds[i] >= 0)
            (void)close(fds[i]);
    *given = (struct inherited){-1, -1, -1, -1, -1};
}

static int start(struct inherited *given, int status, struct record *record,
                 int *ret_pidfd, struct cay_error *err)
{
    pid_t helper = -1;
    int none = -1;
    int error = lift(given) ? spawn(given, &helper) : -errno;

    close_all(given); /* our copy of its end of the socket too, so that its end is seen */
    if (error)
        return cay_fail_errno(err, -error, op, "cay-init");
    int code = receive_report(status, ret_pidfd, err);
    if (!code)
        code = receive_report(status, &none, err);
    while (waitpid(helper, NULL, 0) < 0 && errno == EINTR)
        continue;
    if (code)
        return code;
    record->init = pid_of(*ret_pidfd);
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
    if (options->template_name && strcmp(options->template_name, "host") != 0)
        return cay_fail(err, CAY_E_NOT_FOUND, 0, op, options->template_name,
                        "there is no such template", "the templates there are: host");
    return CAY_OK;
}

static int gather(const struct cay_sandbox_options *options, const struct record *record,
                  struct inherited *given, int *ret_status, struct cay_error *err)
{
    int ends[2];

    int code = make_plan(options, record, &given->plan, err);
    if (code)
        return code;
    given->listen = open_control(record, err);
    if (given->listen < 0)
        return given->listen;
    given->program = open_program(err);
    if (given->program < 0)
        return given->program;
    given->cgroup = open(record->groups.unified, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (given->cgroup < 0 ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        return cay_fail_errno(err, errno, op, "cgroup");
    *ret_status = ends[0];
    given->status = ends[1];
    return CAY_OK;
}

static int build(const struct cay_sandbox_options *options, struct native *native,
                 struct cay_error *err)
{
    struct record *record = &native->record;
    const struct groups_limits limits = {options->memory_bytes, options->pids,
                                         options->cpu_percent};
    struct inherited given = {-1, -1, -1, -1, -1};
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
    code = gather(options, record, &given, &status, err);
    if (!code)
        code = start(&given, status, record, &native->pidfd, err);
    close_all(&given);
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
