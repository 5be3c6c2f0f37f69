/* SPDX-License-Identifier: Apache-2.0 */
#include "server/keeper/keeper.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"
#include "cay/approval.h"
#include "cay/volume.h"
#include "code/client.h"
#include "server/wire/bucket.h"
#include "sys/io.h"
#include "sys/rights.h"

enum {
    EVENTS = 32,
    PENDING_TTL_MS = 10000, /* until the row is written */
    START_TTL_MS = 660000,  /* the same, if the template has a start command */
    SPARES_TRIED = 4,       /* of a pool, if PID 1 of each was just killed */
    LIFE_RETRY_MS = 1000,
    WAIT_MS = 10000
};

static struct keeper self; /* the state of this process */

static const char user_op[] = "exec.user"; /* err->op if the user does not exist */

int64_t keeper_now_ms(void)
{
    return (int64_t)clock_ms();
}

/* --- The loop --- */

bool keeper_poll_add(struct keeper *keeper, int fd, unsigned events,
                     struct keeper_source *source)
{
    struct epoll_event event = {.events = events, .data.ptr = source};

    return epoll_ctl(keeper->epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

void keeper_poll_modify(struct keeper *keeper, int fd, unsigned events,
                        struct keeper_source *source)
{
    struct epoll_event event = {.events = events, .data.ptr = source};

    (void)epoll_ctl(keeper->epoll, EPOLL_CTL_MOD, fd, &event);
}

void keeper_poll_remove(struct keeper *keeper, int fd)
{
    (void)epoll_ctl(keeper->epoll, EPOLL_CTL_DEL, fd, NULL);
}

void keeper_add_task(struct keeper *keeper, struct task *task)
{
    task->next = keeper->tasks;
    keeper->tasks = task;
}

static void sweep(struct keeper *keeper, bool all)
{
    struct task **link = &keeper->tasks;

    if (all)
        names_close();
    while (*link) {
        struct task *task = *link;
        if (!task->is_over && !all) {
            link = &task->next;
            continue;
        }
        *link = task->next;
        if (task->channel >= 0)
            (void)close(task->channel);
        task->done(task);
    }
}

int keeper_wait_writable(int channel, struct cay_error *err)
{
    struct pollfd waiting = {.fd = channel, .events = POLLOUT};

    if (poll(&waiting, 1, WAIT_MS) == 1 && waiting.revents & POLLOUT)
        return CAY_OK;
    return cay_fail(err, CAY_E_TIMEOUT, 0, "server.answer", NULL,
                    "the client does not read the reply",
                    "read the response, or request less at a time");
}

static _Noreturn void exit_gone(const struct cay_sandbox_info *info)
{
    _exit(info->memory_kills ? KEEPER_OUT_OF_MEMORY : KEEPER_SANDBOX_GONE);
}

/* Removes the rest of the sandbox: cgroup, uid range, disk. */
_Noreturn void keeper_exit(void)
{
    struct cay_sandbox_info info = {0};

    if (self.is_stopped) /* its files are needed */
        _exit(0);
    if (self.sandbox) {
        (void)!cay_sandbox_inspect(self.sandbox, &info, NULL);
        (void)!cay_sandbox_remove(self.sandbox, NULL);
    }
    exit_gone(&info);
}

bool keeper_sandbox_is_gone(struct keeper *keeper, int code)
{
    struct cay_sandbox_info info = {0};

    if (keeper->is_stopped || !keeper->sandbox ||
        (code != CAY_E_NOT_FOUND && code != CAY_E_UNAVAILABLE && code != CAY_E_PROTOCOL))
        return false;
    return cay_sandbox_inspect(keeper->sandbox, &info, NULL) == CAY_E_NOT_FOUND ||
           info.state == CAY_STATE_STOPPED;
}

/* Nothing but the volume, whatever its links say. */
static int narrow(cay_files **files, struct cay_error *err)
{
    static const char *const list[] = {CAY_VOLUME_PATH};
    const struct cay_derive derive = {
        .size = sizeof derive, .allow_write = list, .allow_write_count = 1};
    cay_files *all = *files;
    int code = cay_files_derive(all, &derive, files, err);

    cay_files_free(all);
    return code;
}

cay_files *keeper_files(struct keeper *keeper, const char *user, struct cay_error *err)
{
    cay_files *files = NULL;
    char who[USER_MAX + 8];

    for (int i = 0; i < KEEPER_USERS; i++)
        if (keeper->users[i].files && strcmp(keeper->users[i].user, user) == 0)
            return keeper->users[i].files;
    /* As in E2B's cloud: the user owns the files, and the token grants root's rights. */
    snprintf(who, sizeof who, "root:%s", user);
    int code = cay_sandbox_files(keeper->sandbox, who, &files, err);
    if (code == CAY_E_UNSUPPORTED) /* the sandbox has no root user */
        code = cay_sandbox_files(keeper->sandbox,
                                 *user && !keeper->is_volume ? user : NULL, &files, err);
    if (!code && keeper->is_volume)
        code = narrow(&files, err);
    if (code) {
        if (code == CAY_E_NOT_FOUND && *user && err &&
            !keeper_sandbox_is_gone(keeper, code))
            cay_copy_text(err->op, sizeof err->op,
                          user_op); /* the same op as for commands */
        return NULL;
    }
    unsigned at = keeper->next_user++ % KEEPER_USERS;
    cay_files_free(keeper->users[at].files);
    keeper->users[at].files = files;
    cay_copy_text(keeper->users[at].user, USER_MAX, user);
    return files;
}

/* --- Usage --- */

/* Resource usage.  The CPU usage is measured between two samples that are neither too
 * close nor too far apart; a request without a suitable sample waits for the next one. */

enum { SAMPLE_MS = 100, SAMPLE_OLD_MS = 5000 };

/* False if the CPU usage is not known yet. */
static bool take_sample(struct keeper *keeper, const struct cay_sandbox_info *info)
{
    int64_t now_ms = keeper_now_ms(), passed = now_ms - keeper->sampled.at_ms;
    bool is_usable = keeper->sampled.at_ms && info->cpu_us >= keeper->sampled.cpu_us &&
                     passed <= SAMPLE_OLD_MS;

    if (is_usable && passed < SAMPLE_MS)
        return keeper->sampled.permille >= 0;
    keeper->sampled.permille =
        is_usable ? (int64_t)(info->cpu_us - keeper->sampled.cpu_us) / passed : -1;
    keeper->sampled.at_ms = now_ms;
    keeper->sampled.cpu_us = info->cpu_us;
    return is_usable;
}

/* A paused sandbox does not count. */
static void add_network(const struct keeper *keeper, const struct cay_sandbox_info *info,
                        int64_t *numbers)
{
    struct cay_network_counts counts;

    if (info->network <= CAY_NETWORK_HOST || info->state != CAY_STATE_RUNNING ||
        cay_sandbox_count_network(keeper->sandbox, &counts, NULL) != CAY_OK)
        return;
    numbers[USAGE_CONNECTIONS] = (int64_t)counts.allowed;
    numbers[USAGE_REFUSED] = (int64_t)counts.refused;
    numbers[USAGE_UP] = (int64_t)counts.up_bytes;
    numbers[USAGE_DOWN] = (int64_t)counts.down_bytes;
}

static void send_usage(const struct keeper *keeper, const struct cay_sandbox_info *info,
                       int channel)
{
    struct reply reply = {.kind = REPLY_DONE};

    reply.numbers[USAGE_CPU_PERMILLE] = keeper->sampled.permille;
    reply.numbers[USAGE_CPUS] = sysconf(_SC_NPROCESSORS_ONLN);
    reply.numbers[USAGE_MEMORY] = (int64_t)info->memory_used;
    reply.numbers[USAGE_MEMORY_MAX] = (int64_t)info->memory_bytes;
    if (info->disk_bytes) /* without a limit it would be the usage of the whole file
                             system */
        reply.numbers[USAGE_DISK] = (int64_t)info->disk_used;
    reply.numbers[USAGE_DISK_MAX] = (int64_t)info->disk_bytes;
    add_network(keeper, info, reply.numbers);
    (void)reply_send(channel, &reply, NULL, -1);
}

static void on_sample_tick(struct keeper *keeper, struct task *task)
{
    struct cay_sandbox_info info;
    struct cay_error error;

    if (keeper_now_ms() - keeper->sampled.at_ms < SAMPLE_MS &&
        keeper->sampled.permille < 0)
        return;
    int code = cay_sandbox_inspect(keeper->sandbox, &info, &error);
    if (!code && !take_sample(keeper, &info))
        return;
    if (code)
        (void)reply_send_error(task->channel, 0, &error);
    else
        send_usage(keeper, &info, task->channel);
    task->is_over = true;
}

static void task_done(struct task *task)
{
    free(task);
}

static int op_usage(struct keeper *keeper, struct keeper_request *request,
                    struct cay_error *err)
{
    struct cay_sandbox_info info;
    int code = cay_sandbox_inspect(keeper->sandbox, &info, err);

    if (code)
        return code;
    if (take_sample(keeper, &info)) {
        send_usage(keeper, &info, request->channel);
        return CAY_OK;
    }
    struct task *task = calloc(1, sizeof *task);
    if (!task)
        return cay_fail_memory(err, "server.usage");
    *task = (struct task){
        .channel = request->channel, .done = task_done, .tick = on_sample_tick};
    request->channel = -1;
    keeper_add_task(keeper, task);
    return CAY_OK;
}

/* --- Identity --- */

/* E2B_SANDBOX_ID and similar variables, for programs inside. */

static void set_identity(struct keeper *keeper, const char *id, const char *template_name,
                         const char *tenant)
{
    snprintf(keeper->identity.sandbox, sizeof keeper->identity.sandbox,
             "E2B_SANDBOX_ID=%s", id);
    snprintf(keeper->identity.template_name, sizeof keeper->identity.template_name,
             "E2B_TEMPLATE_ID=%s", template_name);
    snprintf(keeper->identity.team, sizeof keeper->identity.team, "E2B_TEAM_ID=%s",
             tenant);
    reply_set_tenant(tenant);
}

/* The files take twenty requests to PID 1, so the client does not wait for them; but
 * every request that could see them does. */
static void write_identity(struct keeper *keeper)
{
    if (!keeper->identity.is_unwritten)
        return;
    keeper->identity.is_unwritten = false;
    const char *const env[] = {IDENTITY_ENV(keeper)};
    /* A sandbox without its own root has no writable /run: it gets no files. */
    cay_files *files = keeper_files(keeper, "root", NULL);
    for (size_t i = 0; files && i < sizeof env / sizeof *env - 1;
         i++) { /* not the team */
        const char *value = strchr(env[i], '=') + 1;
        char path[64];
        AUTO_FD fd = -1;
        snprintf(path, sizeof path, "/run/e2b/.%.*s", (int)(value - env[i]) - 1, env[i]);
        if (cay_files_descriptor(files, path, CAY_DESCRIPTOR_WRITE, &fd, NULL) != CAY_OK)
            continue;
        (void)io_write(fd, value, strlen(value));
        (void)fchmod(fd, 0444);
    }
}

const char **keeper_identity_env(const struct keeper *keeper, const char *const *given)
{
    const char *const own[] = {IDENTITY_ENV(keeper)};
    enum { OWN = sizeof own / sizeof *own };
    size_t count = 0, used = 0;

    while (given[count])
        count++;
    const char **env = calloc(count + OWN + 1, sizeof *env);
    for (size_t i = 0; env && i < count; i++) {
        size_t len = strcspn(given[i], "=");
        bool hides = false;
        for (size_t j = 0; j < OWN; j++)
            hides |= strcspn(own[j], "=") == len && strncmp(given[i], own[j], len) == 0;
        if (!hides)
            env[used++] = given[i];
    }
    if (env)
        memcpy(env + used, own, sizeof own);
    return env;
}

/* --- The sandbox --- */

static void on_end(struct keeper *keeper, struct keeper_source *source, unsigned events)
{
    (void)keeper;
    (void)source;
    (void)events;
    keeper_exit();
}

/* Detects the end of the sandbox even without requests, which come first. */
static void watch_life(struct keeper *keeper)
{
    struct cay_sandbox_info info;
    int64_t now_ms = keeper_now_ms();

    if (keeper->life || !keeper->sandbox || keeper->is_stopped ||
        now_ms < keeper->life_at_ms)
        return;
    keeper->life_at_ms = now_ms + LIFE_RETRY_MS;
    int code = cay_sandbox_inspect(keeper->sandbox, &info, NULL);
    if (code == CAY_E_NOT_FOUND || (!code && info.state == CAY_STATE_STOPPED))
        keeper_exit();
    if (code || !info.init_pid)
        return;
    keeper->life_source.ready = on_end;
    int life = (int)syscall(SYS_pidfd_open, info.init_pid, 0);
    if (life < 0 && errno == ESRCH)
        keeper_exit();
    if (life > 0 && keeper_poll_add(keeper, life, EPOLLIN, &keeper->life_source))
        keeper->life = life;
    else if (life > 0)
        (void)close(life);
}

/* If the sandbox has ended already, a client that kills it must not get the credit. */
static void exit_if_ended(struct keeper *keeper)
{
    struct pollfd life = {.fd = keeper->life, .events = POLLIN};

    if (keeper->life > 0 && poll(&life, 1, 0) == 1)
        keeper_exit();
    keeper->life_at_ms = 0;
    watch_life(keeper);
}

static int create_with_network(struct keeper *keeper,
                               const struct keeper_request *request,
                               struct cay_sandbox_options *wanted, struct cay_error *err)
{
    const struct serve_options *options = keeper->options;
    const int64_t *numbers = request->head.numbers;
    bool has_internet = request->head.flags & CREATE_INTERNET;
    struct keeper_network network;
    struct keeper_headers headers = {0};
    cay_policy *policy = NULL;

    wanted->network = CAY_NETWORK_NONE; /* or that of the policy */
    uint64_t ask_ms = 0;
    if (request->head.flags & CREATE_APPROVE_EGRESS)
        ask_ms = wanted->approve_timeout_ms ? wanted->approve_timeout_ms
                                            : CAY_PENDING_TIMEOUT_MS;
    if (options->internet <= CAY_NETWORK_HOST) {
        wanted->network = has_internet ? options->internet : CAY_NETWORK_NONE;
        return cay_sandbox_create(wanted, &keeper->sandbox, err);
    }
    int code = keeper_network_init(options, has_internet, ask_ms,
                                   request->strings + CREATE_ENV_AT + numbers[CREATE_ENV],
                                   (size_t)numbers[CREATE_RULES], &network, err);
    if (!code)
        code = cay_policy_add_network(NULL, &network.config, &policy, err);
    wanted->policy = policy;
    if (!code)
        code = keeper_headers_init(request->strings + CREATE_ENV_AT +
                                       numbers[CREATE_ENV] + numbers[CREATE_RULES],
                                   (size_t)numbers[CREATE_HEADERS], &headers, err);
    wanted->headers = headers.list;
    wanted->header_count = headers.count;
    if (!code)
        code = cay_sandbox_create(wanted, &keeper->sandbox, err);
    keeper_headers_done(&headers);
    cay_policy_free(policy);
    keeper_network_done(&network);
    return code;
}

/* The volumes of the request; the caller frees the list. */
static struct cay_bind *take_volumes(const struct keeper_request *request)
{
    const int64_t *numbers = request->head.numbers;
    const char *const *mounts = request->strings + CREATE_ENV_AT + numbers[CREATE_ENV] +
                                numbers[CREATE_RULES] + numbers[CREATE_HEADERS];
    size_t count = (size_t)numbers[CREATE_VOLUMES] / 2;
    struct cay_bind *binds = calloc(count + 1, sizeof *binds);

    for (size_t i = 0; binds && i < count; i++)
        binds[i] = (struct cay_bind){mounts[2 * i], mounts[2 * i + 1], true};
    return binds;
}

static bool has_start(const struct keeper_request *request)
{
    return *request->strings[CREATE_START] || *request->strings[CREATE_READY];
}

/* What waits for approval, then create_with_network(). */
static int create_with_approvals(struct keeper *keeper,
                                 const struct keeper_request *request,
                                 struct cay_sandbox_options *wanted,
                                 struct cay_error *err)
{
    const char *text = request->strings[CREATE_APPROVE];
    struct keeper_approvals approvals;

    if (!*text)
        return create_with_network(keeper, request, wanted, err);
    int code = keeper_approvals_init(text, &approvals, err);
    if (!code)
        code = keeper_use_queue(keeper->options, request->strings[2], err);
    wanted->approve = approvals.patterns;
    wanted->approve_scope = approvals.scope;
    wanted->approve_timeout_ms = approvals.timeout_ms;
    if (!code)
        code = create_with_network(keeper, request, wanted, err);
    keeper_approvals_done(&approvals);
    keeper->asks_egress = request->head.flags & CREATE_APPROVE_EGRESS;
    return code;
}

static void drop_sandbox(struct keeper *keeper)
{
    (void)!cay_sandbox_remove(keeper->sandbox, NULL);
    cay_sandbox_free(TAKE_PTR(keeper->sandbox));
}

/* The claim of a spare awaits no reply, and PID 1 may have been killed just before it: a
 * request shows that.  Then another spare is tried, and in the end a new sandbox. */
static int create_living(struct keeper *keeper, const struct keeper_request *request,
                         struct cay_sandbox_options *wanted, struct cay_error *err)
{
    for (int i = 0; wanted->pool && i < SPARES_TRIED; i++) {
        TRY(create_with_approvals(keeper, request, wanted, err));
        if (cay_sandbox_set_ttl(keeper->sandbox, wanted->ttl_ms, NULL) == CAY_OK)
            return CAY_OK;
        drop_sandbox(keeper);
    }
    wanted->pool = NULL;
    return create_with_approvals(keeper, request, wanted, err);
}

static int create_sandbox(struct keeper *keeper, const struct keeper_request *request,
                          struct cay_error *err)
{
    static const char own[] = "E2B_SANDBOX=true";
    struct cay_sandbox_options wanted = keeper_sandbox_options(keeper->options);
    int64_t count = request->head.numbers[CREATE_ENV];
    AUTO_FREE const char **env = calloc((size_t)count + 2, sizeof *env);
    AUTO_FREE struct cay_bind *volumes = take_volumes(request);

    if (!env || !volumes)
        return cay_fail_memory(err, "server.create");
    wanted.binds = volumes;
    wanted.bind_count = (size_t)request->head.numbers[CREATE_VOLUMES] / 2;
    env[0] = own;
    for (int64_t i = 0; i < count; i++)
        env[i + 1] = request->strings[CREATE_ENV_AT + i];
    wanted.template_name = request->strings[0];
    wanted.env = env;
    wanted.ttl_ms = has_start(request) ? START_TTL_MS : PENDING_TTL_MS;
    const char *from = request->strings[CREATE_FROM];
    if (*request->strings[3] && !*from) /* "" would be the pool of cay pool start */
        wanted.pool = request->strings[3];
    if (*from) {
        wanted.from = from;
        wanted.template_name = NULL; /* that of the other sandbox */
    }
    return create_living(keeper, request, &wanted, err);
}

/* 0: no TTL. */
static int set_ttl(struct keeper *keeper, int64_t seconds, struct cay_error *err)
{
    return cay_sandbox_set_ttl(
        keeper->sandbox, seconds > 0 ? (uint64_t)seconds * 1000 + KEEPER_GRACE_MS : 0,
        err);
}

static const char pause_op[] = "server.pause";

static int op_create(struct keeper *keeper, struct keeper_request *request,
                     struct cay_error *err)
{
    struct reply reply = {.kind = REPLY_SANDBOX, .count = 1};
    AUTO_BUF strings = {.max = CAY_ID_MAX};
    (void)prctl(PR_SET_NAME, KEEPER_NAME);
    int code = create_sandbox(keeper, request, err);
    if (code == CAY_E_NOT_FOUND && strcmp(err->op, "volume.open") == 0)
        return cay_fail(err, CAY_E_INVALID, 0, err->op, NULL, "there is no such volume",
                        "create it first, or list the volumes");
    if (code)
        return code;
    keeper->is_pending = true;
    /* A sandbox that cannot be paused at its end would never end. */
    if (request->head.flags & CREATE_AUTO_PAUSE &&
        !(cay_sandbox_layers(keeper->sandbox) & CAY_LAYER_CGROUP)) {
        drop_sandbox(keeper);
        return cay_fail(err, CAY_E_UNSUPPORTED, 0, pause_op, NULL,
                        "sandboxes of this server cannot be paused",
                        "use onTimeout \"kill\", or run the server where cay doctor "
                        "finds cgroup2");
    }
    if (has_start(request))
        code = keeper_start_command(keeper->sandbox, request->strings[0],
                                    request->strings[CREATE_START],
                                    request->strings[CREATE_READY], NULL, NULL, err);
    if (code) {
        drop_sandbox(keeper);
        return code;
    }
    set_identity(keeper, cay_sandbox_id(keeper->sandbox) + strlen("sb-"),
                 request->strings[1], request->strings[2]);
    keeper->identity.is_unwritten = true;
    strings_add(&strings, cay_sandbox_id(keeper->sandbox));
    (void)reply_send(request->channel, &reply, &strings, -1);
    (void)keeper_files(keeper, "root", NULL); /* while the broker writes the row */
    keeper_watch_egress(keeper);
    return CAY_OK;
}

/* Ends all streams first, so that no client sees the end of a process instead. */
static int op_kill(struct keeper *keeper, struct keeper_request *request,
                   struct cay_error *err)
{
    exit_if_ended(keeper);
    sweep(keeper, true);
    int code = cay_sandbox_remove(keeper->sandbox, err);
    if (code == CAY_E_NOT_FOUND)
        keeper_exit(); /* another process removed it first */
    if (code)
        return code;
    (void)reply_send_done(request->channel);
    _exit(0);
}

static int op_pause(struct keeper *keeper, struct keeper_request *request,
                    struct cay_error *err)
{
    int code = CAY_E_BUSY;

    if (request->head.flags & PAUSE_COLD) {
        if (!keeper->is_stopped)
            TRY(keeper_stop(keeper, err));
        sweep(keeper, true);
        return KEEPER_DONE;
    }
    for (int i = 0; i < KEEPER_BUSY_TRIES && code == CAY_E_BUSY; i++) {
        code = cay_sandbox_pause(keeper->sandbox, err);
        if (code == CAY_E_BUSY)
            (void)poll(NULL, 0, TICK_MS); /* a command is just being started */
    }
    if (!code)
        code = cay_sandbox_set_ttl(keeper->sandbox, 0, err);
    if (code)
        return code;
    sweep(keeper, true);
    return KEEPER_DONE;
}

/* A kill does not wait until the sandbox is ready. */
static bool has_request(void *cookie)
{
    const struct keeper *keeper = cookie;
    struct pollfd socket = {.fd = keeper->socket, .events = POLLIN};

    return poll(&socket, 1, 0) == 1;
}

/* The broker confirms the TTL afterwards. */
static int start_again(struct keeper *keeper, const struct keeper_request *request,
                       struct cay_error *err)
{
    int64_t seconds = request->head.numbers[TIMEOUT_SECONDS];
    bool has_command = request->head.count == 3;

    TRY(keeper_start(keeper, err));
    if (has_command && seconds > 0 && seconds < START_TTL_MS / 1000)
        seconds = START_TTL_MS / 1000;
    TRY(set_ttl(keeper, seconds, err));
    keeper->identity.is_unwritten = true;
    write_identity(keeper);
    if (has_command) /* if it fails, the client still gets the files */
        (void)!keeper_start_command(keeper->sandbox, request->strings[0],
                                    request->strings[1], request->strings[2], has_request,
                                    keeper, NULL);
    return CAY_OK;
}

static int op_resume(struct keeper *keeper, struct keeper_request *request,
                     struct cay_error *err)
{
    int code = CAY_OK;

    if (request->head.flags & PAUSE_COLD && !keeper->is_stopped)
        TRY(keeper_stop(keeper, err));
    if (keeper->is_stopped) {
        TRY(start_again(keeper, request, err));
        keeper_watch_egress(keeper);
        return KEEPER_DONE;
    }
    code = set_ttl(keeper, request->head.numbers[TIMEOUT_SECONDS], err);
    if (!code)
        code = cay_sandbox_resume(keeper->sandbox, err);
    if (code == CAY_E_UNSUPPORTED) /* without a freezer it was never paused */
        code = CAY_OK;
    if (!code)
        keeper_watch_egress(keeper);
    return code ? code : KEEPER_DONE;
}

static int op_timeout(struct keeper *keeper, struct keeper_request *request,
                      struct cay_error *err)
{
    int code = set_ttl(keeper, request->head.numbers[TIMEOUT_SECONDS], err);

    return code ? code : KEEPER_DONE;
}

/* The store has the row: set the TTL that the client requested. */
static int op_confirm(struct keeper *keeper, struct keeper_request *request,
                      struct cay_error *err)
{
    AUTO_BUF note = {.max = CAY_SANDBOX_NOTE_MAX};

    /* Without the note, only the rebuild of a lost store is affected. */
    for (uint32_t i = 0; i < request->head.count; i++)
        strings_add(&note, request->strings[i]);
    if (!note.failed)
        (void)!cay_sandbox_set_note(cay_sandbox_id(keeper->sandbox), note.data, note.len,
                                    NULL);
    int code = op_timeout(keeper, request, err);
    if (code < 0)
        return code;
    keeper->is_pending = false;
    (void)reply_send_done(request->channel);
    write_identity(keeper);
    /* A keeper that was killed leaves the record of its sandbox. */
    cay_sandbox_tidy();
    return CAY_OK;
}

/* One string for each variable; those that do not fit are omitted. */
static int op_envs(struct keeper *keeper, struct keeper_request *request,
                   struct cay_error *err)
{
    static const char *const argv[] = {"/usr/bin/env", "-0", NULL};
    const char *const env[] = {IDENTITY_ENV(keeper), NULL};
    const struct cay_exec_options options = {
        .size = sizeof options, .argv = argv, .env = env, .timeout_ms = WAIT_MS};
    struct cay_exec_result result;
    struct reply reply = {.kind = REPLY_TEXT};
    AUTO_BUF strings = {.max = CHANNEL_PACKET};
    int code = keeper_allow_own(keeper->sandbox, &options, err);

    if (!code)
        code = cay_sandbox_exec(keeper->sandbox, &options, &result, err);
    if (!code && result.cause == CAY_CAUSE_TIMEOUT) {
        cay_exec_done(&result);
        code = cay_fail(err, CAY_E_TIMEOUT, 0, "server.envs", NULL,
                        "reading the environment timed out",
                        "check the processes of the sandbox");
    }
    if (code)
        return code;
    for (const char *at = result.out; at < result.out + result.out_len;) {
        size_t len = strlen(at) + 1;
        if (strings.len + len <= CHANNEL_PACKET) {
            strings_add(&strings, at);
            reply.count++;
        }
        at += len;
    }
    cay_exec_done(&result);
    (void)reply_send(request->channel, &reply, &strings, -1);
    return KEEPER_DONE;
}

/* Healthy if PID 1 responds. */
static int op_health(struct keeper *keeper, struct keeper_request *request,
                     struct cay_error *err)
{
    struct cay_sandbox_info info;
    int code = cay_sandbox_inspect(keeper->sandbox, &info, err);

    (void)request;
    if (!code && info.state == CAY_STATE_STOPPED)
        keeper_exit();
    return code ? code : KEEPER_DONE;
}

static int op_dial(struct keeper *keeper, struct keeper_request *request,
                   struct cay_error *err)
{
    struct reply reply = {.kind = REPLY_SOCKET, .count = request->head.count};
    AUTO_BUF strings = {.max = CHANNEL_PACKET};
    AUTO_FD fd = -1;
    int64_t port = request->head.numbers[DIAL_PORT];

    if (port < 1 || port > UINT16_MAX)
        return cay_fail(err, CAY_E_INVALID, 0, "server.dial", NULL, "invalid port",
                        "give a port from 1 to 65535");
    int code = cay_sandbox_dial(keeper->sandbox, (uint16_t)port, &fd, err);
    if (reply.count) /* the mask, for the front */
        strings_add(&strings, request->strings[0]);
    if (!code)
        (void)reply_send(request->channel, &reply, &strings, fd);
    return code;
}

/* --- Code --- */

/* To the code service of root, as in E2B's cloud. */
static int connect_code(struct keeper *keeper, struct code_client *client,
                        struct cay_error *err)
{
    static const char op[] = "server.code";
    int code = code_connect(client, keeper->sandbox, "root", op, err);

    if (code != CAY_E_UNSUPPORTED)
        return code;
    code_hang_up(client); /* the sandbox has no root user */
    return code_connect(client, keeper->sandbox, NULL, op, err);
}

/* The front sends the saved interpreter to the service, which needs Python.  If there is
 * none, one is saved for the next sandbox, by a process that does not belong to the
 * server. */
static int op_image(struct keeper *keeper, struct keeper_request *request,
                    struct cay_error *err)
{
    struct reply reply = {.kind = REPLY_DONE};
    struct code_client client;
    AUTO_FD image = -1;
    int code = connect_code(keeper, &client, err);

    if (!code)
        code = code_open_image(&client, NULL, &image, err);
    code_hang_up(&client);
    if (code)
        return code;
    (void)reply_send(request->channel, &reply, NULL,
                     request->head.flags & CODE_IMAGE ? image : -1);
    code_note_warm(&client, !(request->head.flags & CODE_MISFIT));
    return CAY_OK;
}

/* Strings: environment of new contexts. */
static int op_code(struct keeper *keeper, struct keeper_request *request,
                   struct cay_error *err)
{
    const char *const env[] = {IDENTITY_ENV(keeper)};
    struct reply reply = {.kind = REPLY_SOCKET, .count = sizeof env / sizeof *env};
    AUTO_BUF strings = {.max = CHANNEL_PACKET};
    struct code_client client;

    if (request->head.flags & (CODE_IMAGE | CODE_MISFIT))
        return op_image(keeper, request, err);
    int code = connect_code(keeper, &client, err);
    reply.numbers[SOCKET_MEMORY_KILLS] = (int64_t)client.memory_kills;
    for (size_t i = 0; i < reply.count; i++)
        strings_add(&strings, env[i]);
    if (!code && reply_send(request->channel, &reply, &strings, client.fd) == 0)
        (void)close(TAKE_FD(client.fd));
    code_hang_up(&client);
    return code;
}

/* --- Idle keepers --- */

/* Everything else that this process knows can be found again. */
static bool save_state(struct keeper *keeper, struct buf *state)
{
    (void)buf_append(state, keeper_watcher_ids(), sizeof(struct watcher_ids));
    keeper_save_commands(keeper, state);
    return !state->failed;
}

static void restore_state(struct keeper *keeper, const char *state, size_t len)
{
    size_t ids = sizeof(struct watcher_ids);

    if (len < ids)
        return;
    memcpy(keeper_watcher_ids(), state, ids);
    (void)keeper_restore_commands(keeper, state + ids, len - ids);
}

/* Milliseconds until the keeper is idle; -1: it is needed. */
static int idle_in_ms(const struct keeper *keeper)
{
    int64_t left_ms = keeper->busy_ms + KEEPER_IDLE_MS - keeper_now_ms();

    if (keeper->tasks || keeper->is_pending || keeper_has_watchers() ||
        (keeper->life <= 0 && !keeper->is_volume && !keeper->is_stopped))
        return -1;
    return left_ms > 0 ? (int)left_ms : 0;
}

/* The broker closes the socket if it has sent no further request.  A keeper whose state
 * is too large stays. */
static void report_idle(struct keeper *keeper)
{
    const struct idle_notice notice = {.version = CHANNEL_VERSION,
                                       .received = keeper->received};
    AUTO_BUF state = {.max = KEEPER_STATE_MAX};

    keeper->busy_ms = keeper_now_ms();
    if (keeper->is_stopped) { /* the broker needs nothing; the loop ends after the last
                                 request */
        (void)shutdown(keeper->socket, SHUT_RD);
        return;
    }
    if (keeper->is_volume) /* before the notice: another keeper may remove the volume */
        keeper_content_close(keeper);
    else if (!save_state(keeper, &state))
        return;
    const struct iovec parts[] = {{(void *)(uintptr_t)&notice, sizeof notice},
                                  {state.data, state.len}};
    (void)rights_send(keeper->socket, parts, 2, &keeper->life, !keeper->is_volume,
                      MSG_DONTWAIT);
}

/* --- Requests --- */

static keeper_op *const ops[OP_COUNT] = {
    [OP_CREATE] = op_create,
    [OP_KILL] = op_kill,
    [OP_PAUSE] = op_pause,
    [OP_RESUME] = op_resume,
    [OP_FORK] = keeper_op_fork,
    [OP_SNAPSHOT] = keeper_op_snapshot,
    [OP_SNAPSHOT_REMOVE] = keeper_op_snapshot_remove,
    [OP_SHARED_SYNC] = keeper_op_shared,
    [OP_SHARED_PUT] = keeper_op_shared,
    [OP_SHARED_GET] = keeper_op_shared,
    [OP_SHARED_RECORDS] = keeper_op_shared_records,
    [OP_CHECKPOINTS] = keeper_op_checkpoints,
    [OP_CHECKPOINT] = keeper_op_checkpoint,
    [OP_ROLLBACK] = keeper_op_rollback,
    [OP_DIFF] = keeper_op_diff,
    [OP_TIMEOUT] = op_timeout,
    [OP_CONFIRM] = op_confirm,
    [OP_USAGE] = op_usage,
    [OP_METRICS] = op_usage,
    [OP_HEALTH] = op_health,
    [OP_ENVS] = op_envs,
    [OP_NETWORK] = keeper_op_network,
    [OP_BUILD] = keeper_op_build,
    [OP_TEMPLATE_REMOVE] = keeper_op_remove_template,
    [OP_UPLOAD] = keeper_op_upload,
    [OP_VOLUMES] = keeper_op_volume,
    [OP_VOLUME] = keeper_op_volume,
    [OP_VOLUME_CREATE] = keeper_op_volume,
    [OP_VOLUME_REMOVE] = keeper_op_volume,
    [OP_CONTENT_STAT] = keeper_op_content,
    [OP_CONTENT_CHANGE] = keeper_op_content,
    [OP_CONTENT_REMOVE] = keeper_op_content,
    [OP_CONTENT_LIST] = keeper_op_content,
    [OP_CONTENT_MAKE_DIR] = keeper_op_content,
    [OP_CONTENT_READ] = keeper_op_content,
    [OP_CONTENT_WRITE] = keeper_op_content,
    [OP_APPROVALS] = keeper_op_approval,
    [OP_APPROVAL] = keeper_op_approval,
    [OP_APPROVAL_DECIDE] = keeper_op_approval,
    [OP_APPROVAL_RULES] = keeper_op_approval,
    [OP_APPROVAL_RULE_REMOVE] = keeper_op_approval,
    [OP_DIAL] = op_dial,
    [OP_EXECUTE] = op_code,
    [OP_CONTEXTS] = op_code,
    [OP_START] = keeper_op_start,
    [OP_ATTACH] = keeper_op_attach,
    [OP_PROCESSES] = keeper_op_processes,
    [OP_INPUT] = keeper_op_input,
    [OP_CLOSE_INPUT] = keeper_op_close_input,
    [OP_SIGNAL] = keeper_op_signal,
    [OP_RESIZE] = keeper_op_resize,
    [OP_STAT] = keeper_op_stat,
    [OP_MAKE_DIR] = keeper_op_make_dir,
    [OP_MOVE] = keeper_op_move,
    [OP_LIST_DIR] = keeper_op_list_dir,
    [OP_REMOVE] = keeper_op_remove,
    [OP_READ_FILE] = keeper_op_read_file,
    [OP_WRITE_FILE] = keeper_op_write_file,
    [OP_WATCH] = keeper_op_watch_dir,
    [OP_WATCHER_NEW] = keeper_op_watcher_new,
    [OP_WATCHER_EVENTS] = keeper_op_watcher_events,
    [OP_WATCHER_REMOVE] = keeper_op_watcher_remove,
};

/* Requests that were sent before the sandbox was stopped may come afterwards. */
static bool is_for_stopped(uint32_t op)
{
    return op == OP_KILL || op == OP_PAUSE || op == OP_RESUME || op == OP_TIMEOUT ||
           op == OP_CONFIRM || op == OP_USAGE;
}

static const char stopped_op[] = "server.stopped";

static int run_op(struct keeper *keeper, struct keeper_request *request,
                  struct cay_error *err)
{
    keeper_op *act = ops[request->head.op];

    if (!act)
        return cay_fail(err, CAY_E_UNSUPPORTED, 0, "server", NULL, "unknown request",
                        "restart the server; report a bug if it happens again");
    bool needs_sandbox = act != op_create && act != keeper_op_volume &&
                         act != keeper_op_content && act != keeper_op_snapshot_remove &&
                         act != keeper_op_build && act != keeper_op_remove_template &&
                         act != keeper_op_upload && act != keeper_op_approval &&
                         act != keeper_op_shared && act != keeper_op_shared_records;
    if (act != keeper_op_shared && act != keeper_op_shared_records &&
        act != keeper_op_snapshot_remove)
        bucket_drop_access();
    if (!keeper->sandbox && needs_sandbox)
        return cay_fail(err, CAY_E_NOT_FOUND, 0, "server", NULL,
                        "there is no sandbox yet", "try again");
    if (keeper->is_stopped && !is_for_stopped(request->head.op))
        return cay_fail(err, CAY_E_NOT_FOUND, 0, stopped_op, NULL,
                        "The sandbox was not found", "it is paused: connect to it");
    int code = act(keeper, request, err);
    if (code == KEEPER_DONE)
        (void)reply_send_done(request->channel);
    return code == KEEPER_DONE ? CAY_OK : code;
}

/* The HTTP status, or 0: that of the code. */
static int status_of(const struct cay_error *error)
{
    /* E2B reports an unknown user as an invalid credential. */
    if (error->code == CAY_E_NOT_FOUND && strcmp(error->op, user_op) == 0)
        return 401;
    if (error->code == CAY_E_UNSUPPORTED && strcmp(error->op, pause_op) == 0)
        return 501;
    return strcmp(error->op, stopped_op) == 0 ? 502 : 0;
}

static void receive_request(struct keeper *keeper)
{
    AUTO_FREE char *room = NULL;
    struct cay_error error = {0};
    int got = request_receive(keeper->socket, &keeper->request);

    if (got == -EAGAIN)
        return;
    if (got != 1) { /* the broker exited; a sandbox with a row keeps running */
        if (keeper->is_volume)
            keeper_content_close(keeper);
        else if (keeper->is_pending)
            (void)!cay_sandbox_remove(keeper->sandbox, NULL);
        _exit(0);
    }
    keeper->received++;
    keeper->busy_ms = keeper_now_ms();
    AUTO_FREE const char **strings = request_strings(&keeper->request, &room);
    struct keeper_request request = {keeper->request.head, keeper->request.channel,
                                     strings};
    keeper->request.channel = -1;
    request_packet_done(&keeper->request);
    int code = strings ? run_op(keeper, &request, &error)
                       : cay_fail(&error, CAY_E_PROTOCOL, 0, "server", NULL,
                                  "the request is malformed",
                                  "restart the server; report a bug if it happens again");
    if (code && request.head.op != OP_CREATE && keeper_sandbox_is_gone(keeper, code))
        keeper_exit();
    if (code)
        (void)reply_send_error(request.channel, status_of(&error), &error);
    if (request.channel >= 0)
        (void)close(request.channel);
    keeper->busy_ms = keeper_now_ms();
    if (!keeper->life && keeper->life_at_ms < keeper->busy_ms + TICK_MS)
        keeper->life_at_ms = keeper->busy_ms + TICK_MS;
    if (code && !keeper->sandbox)
        _exit(!keeper->is_volume); /* creating the sandbox failed */
    bool is_broken = code == CAY_E_UNAVAILABLE || code == CAY_E_PROTOCOL;
    for (int i = 0; i < KEEPER_USERS && is_broken; i++) {
        cay_files_free(keeper->users[i].files);
        keeper->users[i].files = NULL;
    }
}

/* The lesser of the time until the next tick and `wait_ms`; -1: none. */
static int next_tick_ms(const struct task *task, int64_t now_ms, int wait_ms)
{
    int64_t left_ms = task->due_ms - now_ms;
    int tick_ms = left_ms > TICK_MS ? (int)left_ms : TICK_MS;

    return wait_ms < 0 || tick_ms < wait_ms ? tick_ms : wait_ms;
}

/* A request is handled last, since it may end tasks that other events point to. */
static void loop(struct keeper *keeper)
{
    struct epoll_event events[EVENTS];
    bool has_request = false;
    int64_t now_ms = keeper_now_ms();
    int wait_ms = idle_in_ms(keeper);

    if (keeper->sandbox && !keeper->life && !keeper->is_stopped)
        wait_ms = (int)(keeper->life_at_ms > now_ms ? keeper->life_at_ms - now_ms : 0);
    for (const struct task *task = keeper->tasks; task; task = task->next)
        if (task->tick && !task->is_over)
            wait_ms = next_tick_ms(task, now_ms, wait_ms);
    int count = epoll_wait(keeper->epoll, events, EVENTS, wait_ms);

    for (int i = 0; i < count; i++) {
        struct keeper_source *source = events[i].data.ptr;
        if (source)
            source->ready(keeper, source, events[i].events);
        else
            has_request = true;
    }
    if (has_request) {
        sweep(keeper, false); /* a checkpoint is denied while an upload's file is open */
        receive_request(keeper);
    } else {
        watch_life(keeper);
    }
    now_ms = keeper_now_ms();
    for (struct task *task = keeper->tasks; task; task = task->next)
        if (task->tick && !task->is_over && now_ms >= task->due_ms)
            task->tick(keeper, task);
    if (keeper->tasks)
        keeper->busy_ms = keeper_now_ms();
    sweep(keeper, false);
    if (idle_in_ms(keeper) == 0)
        report_idle(keeper);
}

_Noreturn void keeper_run(int socket, const struct keeper_spec *spec,
                          const struct serve_options *options)
{
    const char *id = spec->id;
    char full[CAY_ID_MAX] = "sb-";
    struct cay_sandbox_info info = {0};
    struct cay_error error = {0};

    self =
        (struct keeper){.socket = socket, .options = options, .busy_ms = keeper_now_ms()};
    self.epoll = epoll_create1(EPOLL_CLOEXEC);
    if (self.epoll < 0 || !keeper_poll_add(&self, socket, EPOLLIN, NULL))
        _exit(1);
    cay_copy_text(full + 3, sizeof full - 3, id);
    /* First: opening it would remove what is left of it, and with it the reason. */
    if (*id && !spec->may_be_stopped &&
        cay_sandbox_collect_one(full, &info, NULL) == CAY_OK)
        exit_gone(&info);
    if (*id && cay_sandbox_open(full, &self.sandbox, &error) != CAY_OK) {
        if (cay_errno_is_shortage(error.sys_errno))
            _exit(1); /* it may still be running: the next keeper tries again */
        exit_gone(&info);
    }
    if (*id)
        set_identity(&self, id, spec->template_name, spec->tenant);
    /* Otherwise its commands would wait in the queue of this user. */
    if (spec->approves && keeper_use_queue(options, spec->tenant, NULL) != CAY_OK)
        _exit(1);
    self.asks_egress = spec->asks_egress;
    self.is_stopped = spec->may_be_stopped &&
                      cay_sandbox_inspect(self.sandbox, &info, NULL) == CAY_OK &&
                      info.state == CAY_STATE_STOPPED;
    restore_state(&self, spec->state, spec->state_len);
    keeper_watch_egress(&self);
    for (;;)
        loop(&self);
}
