/* SPDX-License-Identifier: Apache-2.0 */
#include "server/keeper/keeper.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"
#include "sys/io.h"

enum {
    EVENTS = 32,
    PENDING_TTL_MS = 10000, /* until the row is written; of a spare: renewed */
    SPARE_RENEW_MS = 3000,
    PAUSE_TRIES = 50,
    WAIT_MS = 10000
};

static struct keep kept; /* all that this process is about */

static const char no_user[] = "exec.user"; /* the step that fails for such */

int64_t keep_now_ms(void)
{
    return (int64_t)clock_ms();
}

/* --- The loop's parts --- */

bool keep_watch(struct keep *keep, int fd, unsigned events, struct keep_source *source)
{
    struct epoll_event event = {.events = events, .data.ptr = source};

    return epoll_ctl(keep->epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

void keep_change(struct keep *keep, int fd, unsigned events, struct keep_source *source)
{
    struct epoll_event event = {.events = events, .data.ptr = source};

    (void)epoll_ctl(keep->epoll, EPOLL_CTL_MOD, fd, &event);
}

void keep_forget(struct keep *keep, int fd)
{
    (void)epoll_ctl(keep->epoll, EPOLL_CTL_DEL, fd, NULL);
}

void keep_add(struct keep *keep, struct task *task)
{
    task->next = keep->tasks;
    keep->tasks = task;
}

static void sweep(struct keep *keep, bool all)
{
    struct task **link = &keep->tasks;

    if (all)
        names_forget();
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

int keep_wait(int channel, struct cay_error *err)
{
    struct pollfd waiting = {.fd = channel, .events = POLLOUT};

    if (poll(&waiting, 1, WAIT_MS) == 1 && waiting.revents & POLLOUT)
        return CAY_OK;
    return cay_fail(err, CAY_E_TIMEOUT, 0, "server.answer", NULL,
                    "nobody reads the answer", "read it");
}

/* What is left of it goes with us: its cgroup, its ids, its disk. */
_Noreturn void keep_end(void)
{
    struct cay_sandbox_info info = {0};

    if (kept.sandbox) {
        (void)!cay_sandbox_inspect(kept.sandbox, &info, NULL);
        (void)!cay_sandbox_remove(kept.sandbox, NULL);
    }
    _exit(info.memory_kills ? KEEPER_OUT_OF_MEMORY : KEEPER_SANDBOX_GONE);
}

bool keep_is_gone(struct keep *keep, int code)
{
    struct cay_sandbox_info info = {0};

    if (code != CAY_E_NOT_FOUND && code != CAY_E_UNAVAILABLE && code != CAY_E_PROTOCOL)
        return false;
    return cay_sandbox_inspect(keep->sandbox, &info, NULL) == CAY_E_NOT_FOUND ||
           info.state == CAY_STATE_STOPPED;
}

cay_files *keep_files(struct keep *keep, const char *user, struct cay_error *err)
{
    cay_files *files = NULL;
    char who[USER_MAX + 8];

    for (int i = 0; i < KEEP_USERS; i++)
        if (keep->users[i].files && strcmp(keep->users[i].user, user) == 0)
            return keep->users[i].files;
    /* As in the cloud: whose they are says the user, and what can be done the token. */
    snprintf(who, sizeof who, "root:%s", user);
    int code = cay_sandbox_files(keep->sandbox, who, &files, err);
    if (code == CAY_E_UNSUPPORTED) /* there is no root inside */
        code = cay_sandbox_files(keep->sandbox, *user ? user : NULL, &files, err);
    if (code) {
        if (code == CAY_E_NOT_FOUND && *user && err && !keep_is_gone(keep, code))
            cay_copy_text(err->op, sizeof err->op, no_user); /* as commands have it */
        return NULL;
    }
    unsigned at = keep->next_user++ % KEEP_USERS;
    cay_files_free(keep->users[at].files);
    keep->users[at].files = files;
    cay_copy_text(keep->users[at].user, USER_MAX, user);
    return files;
}

static void forget_files(struct keep *keep)
{
    for (int i = 0; i < KEEP_USERS; i++) {
        cay_files_free(keep->users[i].files);
        keep->users[i].files = NULL;
    }
}

/* --- Usage --- */

/* What a sandbox uses.  The use of the processor is that between two samples, which are
 * not too close and not too far apart; a request that finds no such sample waits for the
 * next one. */

enum { SAMPLE_MS = 100, SAMPLE_OLD_MS = 5000 };

/* False if it is not known yet. */
static bool take_sample(struct keep *keep, const struct cay_sandbox_info *info)
{
    int64_t now_ms = keep_now_ms(), passed = now_ms - keep->sampled.at_ms;
    bool is_usable = keep->sampled.at_ms && info->cpu_us >= keep->sampled.cpu_us &&
                     passed <= SAMPLE_OLD_MS;

    if (is_usable && passed < SAMPLE_MS)
        return keep->sampled.permille >= 0;
    keep->sampled.permille =
        is_usable ? (int64_t)(info->cpu_us - keep->sampled.cpu_us) / passed : -1;
    keep->sampled.at_ms = now_ms;
    keep->sampled.cpu_us = info->cpu_us;
    return is_usable;
}

static void send_usage(const struct keep *keep, const struct cay_sandbox_info *info,
                       int channel)
{
    struct tell tell = {.kind = TELL_DONE};

    tell.numbers[USAGE_CPU_PERMILLE] = keep->sampled.permille;
    tell.numbers[USAGE_CPUS] = sysconf(_SC_NPROCESSORS_ONLN);
    tell.numbers[USAGE_MEMORY] = (int64_t)info->memory_used;
    tell.numbers[USAGE_MEMORY_MAX] = (int64_t)info->memory_bytes;
    if (info->disk_bytes) /* else it would be that of all who share the disk */
        tell.numbers[USAGE_DISK] = (int64_t)info->disk_used;
    tell.numbers[USAGE_DISK_MAX] = (int64_t)info->disk_bytes;
    (void)tell_send(channel, &tell, NULL, -1);
}

static void wait_for_sample(struct keep *keep, struct task *task)
{
    struct cay_sandbox_info info;
    struct cay_error error;

    if (keep_now_ms() - keep->sampled.at_ms < SAMPLE_MS && keep->sampled.permille < 0)
        return;
    int code = cay_sandbox_inspect(keep->sandbox, &info, &error);
    if (!code && !take_sample(keep, &info))
        return;
    if (code)
        (void)tell_failed(task->channel, 0, &error);
    else
        send_usage(keep, &info, task->channel);
    task->is_over = true;
}

static void task_done(struct task *task)
{
    free(task);
}

static int keep_usage(struct keep *keep, struct question *question, struct cay_error *err)
{
    struct cay_sandbox_info info;
    int code = cay_sandbox_inspect(keep->sandbox, &info, err);

    if (code)
        return code;
    if (take_sample(keep, &info)) {
        send_usage(keep, &info, question->channel);
        return CAY_OK;
    }
    struct task *task = calloc(1, sizeof *task);
    if (!task)
        return cay_fail_memory(err, "server.usage");
    *task = (struct task){
        .channel = question->channel, .done = task_done, .tick = wait_for_sample};
    question->channel = -1;
    keep_add(keep, task);
    return CAY_OK;
}

/* --- Identity --- */

/* E2B_SANDBOX_ID and its like, which programs inside read to learn where they run. */

static void keep_identity_set(struct keep *keep, const char *id,
                              const char *template_name, const char *tenant)
{
    snprintf(keep->identity.sandbox, sizeof keep->identity.sandbox, "E2B_SANDBOX_ID=%s",
             id);
    snprintf(keep->identity.template_name, sizeof keep->identity.template_name,
             "E2B_TEMPLATE_ID=%s", template_name);
    snprintf(keep->identity.team, sizeof keep->identity.team, "E2B_TEAM_ID=%s", tenant);
}

static void write_file(cay_files *files, const char *variable)
{
    const char *value = strchr(variable, '=') + 1;
    char path[64];
    AUTO_FD fd = -1;

    snprintf(path, sizeof path, "/run/e2b/.%.*s", (int)(value - variable) - 1, variable);
    if (cay_files_descriptor(files, path, CAY_DESCRIPTOR_WRITE, &fd, NULL) != CAY_OK)
        return;
    (void)io_write(fd, value, strlen(value));
    (void)fchmod(fd, 0444);
}

static void keep_identity_give(struct keep *keep, const char *template_name,
                               const char *tenant)
{
    keep_identity_set(keep, cay_sandbox_id(keep->sandbox) + strlen("sb-"), template_name,
                      tenant);
    const char *const env[] = {IDENTITY_ENV(keep)};
    /* One without a root of its own has no /run to write to, and does without. */
    cay_files *files = keep_files(keep, "root", NULL);
    for (size_t i = 0; files && i < sizeof env / sizeof *env - 1; i++) /* not the team */
        write_file(files, env[i]);
}

static bool is_same_name(const char *left, const char *right)
{
    size_t len = strcspn(left, "=");

    return strcspn(right, "=") == len && strncmp(left, right, len) == 0;
}

const char **keep_identity_env(const struct keep *keep, const char *const *given)
{
    const char *const own[] = {IDENTITY_ENV(keep)};
    enum { OWN = sizeof own / sizeof *own };
    size_t count = 0, used = 0;

    while (given[count])
        count++;
    const char **env = calloc(count + OWN + 1, sizeof *env);
    for (size_t i = 0; env && i < count; i++) {
        bool hides = false;
        for (size_t j = 0; j < OWN; j++)
            hides |= is_same_name(given[i], own[j]);
        if (!hides)
            env[used++] = given[i];
    }
    if (env)
        memcpy(env + used, own, sizeof own);
    return env;
}

/* --- The sandbox's life --- */

static void hear_end(struct keep *keep, struct keep_source *source, unsigned events)
{
    (void)keep;
    (void)source;
    (void)events;
    keep_end();
}

/* That it ends is noticed, whether anybody asks or not. */
static void watch_life(struct keep *keep)
{
    struct cay_sandbox_info info;

    if (keep->life || !keep->sandbox ||
        cay_sandbox_inspect(keep->sandbox, &info, NULL) != CAY_OK || !info.init_pid)
        return;
    keep->life_source.ready = hear_end;
    int life = (int)syscall(SYS_pidfd_open, info.init_pid, 0);
    if (life < 0 && errno == ESRCH)
        keep_end();
    if (life > 0 && keep_watch(keep, life, EPOLLIN, &keep->life_source))
        keep->life = life;
    else if (life > 0)
        (void)close(life);
}

static bool has_ended(const struct keep *keep)
{
    struct pollfd life = {.fd = keep->life, .events = POLLIN};

    return keep->life > 0 && poll(&life, 1, 0) == 1;
}

/* What is left of the sandbox is removed; there may be another. */
static void forget(struct keep *keep)
{
    if (keep->life > 0)
        (void)close(keep->life);
    keep->life = 0;
    (void)!cay_sandbox_remove(keep->sandbox, NULL);
    cay_sandbox_free(TAKE_PTR(keep->sandbox));
}

static int make(struct keep *keep, const struct question *question, struct cay_error *err)
{
    static const char own[] = "E2B_SANDBOX=true";
    const struct serve_options *options = keep->options;
    int64_t count = question->head.numbers[CREATE_ENV];
    bool is_spare = question->head.numbers[CREATE_TIMEOUT] < 0;
    AUTO_FREE const char **env = calloc((size_t)count + 2, sizeof *env);

    if (!env)
        return cay_fail_memory(err, "server.create");
    env[0] = own;
    for (int64_t i = 0; i < count; i++)
        env[i + 1] = question->strings[CREATE_ENV_AT + i];
    const struct cay_sandbox_options wanted = {
        .size = sizeof wanted,
        .template_name = question->strings[0],
        .memory_bytes = options->has_memory ? options->memory_bytes : 0,
        .disk_bytes = options->has_disk && options->storage == CAY_STORAGE_MEMORY
                          ? options->disk_bytes
                          : 0,
        .storage = options->storage,
        .network =
            question->head.flags & CREATE_INTERNET ? options->internet : CAY_NETWORK_NONE,
        .env = env,
        .ttl_ms = PENDING_TTL_MS,
    };
    int code = cay_sandbox_create(&wanted, &keep->sandbox, err);
    keep->is_spare = !code && is_spare;
    return code;
}

/* 0: it does not end by itself. */
static int set_ttl(struct keep *keep, int64_t seconds, struct cay_error *err)
{
    return cay_sandbox_set_ttl(
        keep->sandbox, seconds > 0 ? (uint64_t)seconds * 1000 + KEEPER_GRACE_MS : 0, err);
}

static const char no_pause[] = "server.pause";

/* One that is to be paused at the end of its time would never end. */
static int check_pause(struct keep *keep, const struct ask *head, struct cay_error *err)
{
    if (!(head->flags & CREATE_AUTO_PAUSE) ||
        cay_sandbox_layers(keep->sandbox) & CAY_LAYER_CGROUP)
        return CAY_OK;
    forget(keep);
    return cay_fail(err, CAY_E_UNSUPPORTED, 0, no_pause, NULL,
                    "sandboxes of this server cannot be paused",
                    "let them end with their time, or start it where cay doctor finds "
                    "cgroup2");
}

static int create(struct keep *keep, struct question *question, struct cay_error *err)
{
    struct tell tell = {.kind = TELL_SANDBOX, .count = 1};
    AUTO_BUF strings = {0};
    int code = CAY_OK;

    /* One that was ready may have ended while it waited. */
    if (keep->sandbox &&
        (has_ended(keep) ||
         cay_sandbox_set_ttl(keep->sandbox, PENDING_TTL_MS, NULL) != CAY_OK))
        forget(keep);
    keep->is_spare = false;
    if (!keep->sandbox)
        code = make(keep, question, err);
    keep->is_pending = !code && !keep->is_spare;
    if (!code)
        code = check_pause(keep, &question->head, err);
    if (code)
        return code;
    if (!keep->is_spare)
        keep_identity_give(keep, question->strings[1], question->strings[2]);
    buf_init(&strings, CAY_ID_MAX);
    strings_add(&strings, cay_sandbox_id(keep->sandbox));
    (void)tell_send(question->channel, &tell, &strings, -1);
    return CAY_OK;
}

/* All that was asked of it goes with it, before anybody could hear of an end. */
static int end_it(struct keep *keep, struct question *question, struct cay_error *err)
{
    sweep(keep, true);
    int code = cay_sandbox_remove(keep->sandbox, err);
    if (code == CAY_E_NOT_FOUND)
        keep_end(); /* somebody was faster */
    if (code)
        return code;
    (void)tell_done(question->channel);
    _exit(0);
}

static int pause_it(struct keep *keep, struct question *question, struct cay_error *err)
{
    int code = CAY_E_BUSY;

    for (int i = 0; i < PAUSE_TRIES && code == CAY_E_BUSY; i++) {
        code = cay_sandbox_pause(keep->sandbox, err);
        if (code == CAY_E_BUSY)
            (void)poll(NULL, 0, TICK_MS); /* a command is just being started */
    }
    if (!code)
        code = cay_sandbox_set_ttl(keep->sandbox, 0, err);
    if (code)
        return code;
    sweep(keep, true);
    (void)tell_done(question->channel);
    return CAY_OK;
}

static int resume_it(struct keep *keep, struct question *question, struct cay_error *err)
{
    int code = set_ttl(keep, question->head.numbers[TIMEOUT_SECONDS], err);

    if (!code)
        code = cay_sandbox_resume(keep->sandbox, err);
    if (code == CAY_E_UNSUPPORTED) /* so it could not be paused, and runs */
        code = CAY_OK;
    if (!code)
        (void)tell_done(question->channel);
    return code;
}

static int change_ttl(struct keep *keep, struct question *question, struct cay_error *err)
{
    int code = set_ttl(keep, question->head.numbers[TIMEOUT_SECONDS], err);

    if (!code)
        (void)tell_done(question->channel);
    return code;
}

/* The store has the row: the sandbox may live for as long as the client has asked. */
static int confirm(struct keep *keep, struct question *question, struct cay_error *err)
{
    AUTO_BUF note = {0};

    /* Without it only a store that was lost cannot be rebuilt. */
    buf_init(&note, CAY_SANDBOX_NOTE_MAX);
    for (uint32_t i = 0; i < question->head.count; i++)
        strings_add(&note, question->strings[i]);
    if (!note.failed)
        (void)!cay_sandbox_set_note(cay_sandbox_id(keep->sandbox), note.data, note.len,
                                    NULL);
    int code = change_ttl(keep, question, err);
    keep->is_pending &= code != CAY_OK;
    return code;
}

/* One string for each variable; what does not fit is left out. */
static int tell_envs(struct keep *keep, struct question *question, struct cay_error *err)
{
    static const char *const argv[] = {"/usr/bin/env", "-0", NULL};
    const char *const env[] = {IDENTITY_ENV(keep), NULL};
    const struct cay_exec_options options = {
        .size = sizeof options, .argv = argv, .env = env, .timeout_ms = WAIT_MS};
    struct cay_exec_result result;
    struct tell tell = {.kind = TELL_TEXT};
    AUTO_BUF strings = {0};
    int code = cay_sandbox_exec(keep->sandbox, &options, &result, err);

    if (!code && result.cause == CAY_CAUSE_TIMEOUT) {
        cay_exec_done(&result);
        code = cay_fail(err, CAY_E_TIMEOUT, 0, "server.envs", NULL,
                        "a command that tells the environment does not end",
                        "see what else the sandbox runs");
    }
    if (code)
        return code;
    buf_init(&strings, CHANNEL_PACKET);
    for (const char *at = result.out; at < result.out + result.out_len;) {
        size_t len = strlen(at) + 1;
        if (strings.len + len <= CHANNEL_PACKET) {
            strings_add(&strings, at);
            tell.count++;
        }
        at += len;
    }
    cay_exec_done(&result);
    (void)tell_send(question->channel, &tell, &strings, -1);
    (void)tell_done(question->channel);
    return CAY_OK;
}

/* It answers if its init does. */
static int tell_health(struct keep *keep, struct question *question,
                       struct cay_error *err)
{
    struct cay_sandbox_info info;
    int code = cay_sandbox_inspect(keep->sandbox, &info, err);

    if (!code && info.state == CAY_STATE_STOPPED)
        keep_end();
    if (!code)
        (void)tell_done(question->channel);
    return code;
}

static int dial(struct keep *keep, struct question *question, struct cay_error *err)
{
    struct tell tell = {.kind = TELL_SOCKET};
    AUTO_FD fd = -1;
    int64_t port = question->head.numbers[DIAL_PORT];

    if (port < 1 || port > UINT16_MAX)
        return cay_fail(err, CAY_E_INVALID, 0, "server.dial", NULL,
                        "there is no such port", "ports are 1 to 65535");
    int code = cay_sandbox_dial(keep->sandbox, (uint16_t)port, &fd, err);
    if (!code)
        (void)tell_send(question->channel, &tell, NULL, fd);
    return code;
}

/* --- Asks --- */

static keep_answer *const answers[OP_COUNT] = {
    [OP_CREATE] = create,
    [OP_KILL] = end_it,
    [OP_PAUSE] = pause_it,
    [OP_RESUME] = resume_it,
    [OP_TIMEOUT] = change_ttl,
    [OP_CONFIRM] = confirm,
    [OP_USAGE] = keep_usage,
    [OP_METRICS] = keep_usage,
    [OP_HEALTH] = tell_health,
    [OP_ENVS] = tell_envs,
    [OP_DIAL] = dial,
    [OP_START] = keep_start,
    [OP_ATTACH] = keep_attach,
    [OP_PROCESSES] = keep_processes,
    [OP_INPUT] = keep_input,
    [OP_CLOSE_INPUT] = keep_close_input,
    [OP_SIGNAL] = keep_signal,
    [OP_RESIZE] = keep_resize,
    [OP_STAT] = keep_stat,
    [OP_MAKE_DIR] = keep_make_dir,
    [OP_MOVE] = keep_move,
    [OP_LIST_DIR] = keep_list_dir,
    [OP_REMOVE] = keep_remove,
    [OP_READ_FILE] = keep_read_file,
    [OP_WRITE_FILE] = keep_write_file,
    [OP_WATCH] = keep_watch_dir,
    [OP_WATCHER_NEW] = keep_watcher_new,
    [OP_WATCHER_EVENTS] = keep_watcher_events,
    [OP_WATCHER_REMOVE] = keep_watcher_remove,
};

static int answer(struct keep *keep, struct question *question, struct cay_error *err)
{
    keep_answer *act = answers[question->head.op];

    if (!act)
        return cay_fail(err, CAY_E_UNSUPPORTED, 0, "server", NULL,
                        "this cannot be asked of a sandbox", "see the manual");
    if (!keep->sandbox && question->head.op != OP_CREATE)
        return cay_fail(err, CAY_E_NOT_FOUND, 0, "server", NULL,
                        "there is no sandbox yet", "try again");
    return act(keep, question, err);
}

static void hear(struct keep *keep)
{
    AUTO_FREE char *room = NULL;
    struct cay_error error = {0};
    int got = ask_receive(keep->socket, &keep->asked);

    if (got == -EAGAIN)
        return;
    if (got != 1) { /* the broker has ended; a sandbox with a row lives on */
        if (keep->is_spare || keep->is_pending)
            (void)!cay_sandbox_remove(keep->sandbox, NULL);
        _exit(0);
    }
    AUTO_FREE const char **strings = ask_strings(&keep->asked, &room);
    struct question question = {keep->asked.head, keep->asked.channel, strings};
    keep->asked.channel = -1;
    asked_done(&keep->asked);
    int code = strings ? answer(keep, &question, &error)
                       : cay_fail(&error, CAY_E_PROTOCOL, 0, "server", NULL,
                                  "the request is malformed", "see the manual");
    if (code && question.head.op != OP_CREATE && keep_is_gone(keep, code))
        keep_end();
    /* To E2B a user whom nobody knows is a credential that is not valid. */
    bool is_user = code == CAY_E_NOT_FOUND && strcmp(error.op, no_user) == 0;
    bool is_pause = code == CAY_E_UNSUPPORTED && strcmp(error.op, no_pause) == 0;
    if (code)
        (void)tell_failed(question.channel, is_user ? 401 : is_pause ? 501 : 0, &error);
    if (question.channel >= 0)
        (void)close(question.channel);
    if (code && !keep->sandbox)
        _exit(1); /* it could not be made */
    if (code == CAY_E_UNAVAILABLE || code == CAY_E_PROTOCOL)
        forget_files(keep); /* connections that are of no more use */
}

static bool has_ticks(const struct keep *keep)
{
    for (const struct task *task = keep->tasks; task; task = task->next)
        if (task->tick && !task->is_over)
            return true;
    return false;
}

static void tick(struct keep *keep)
{
    for (struct task *task = keep->tasks; task; task = task->next)
        if (task->tick && !task->is_over)
            task->tick(keep, task);
}

static void renew(struct keep *keep)
{
    static int64_t renewed_ms;

    if (!keep->is_spare || keep_now_ms() - renewed_ms < SPARE_RENEW_MS)
        return;
    renewed_ms = keep_now_ms();
    if (cay_sandbox_set_ttl(keep->sandbox, PENDING_TTL_MS, NULL) != CAY_OK)
        keep_end();
}

/* An ask comes last, since it may end tasks that other events point to. */
static void loop(struct keep *keep)
{
    struct epoll_event events[EVENTS];
    bool is_asked = false;
    int wait_ms = has_ticks(keep) ? TICK_MS : keep->is_spare ? SPARE_RENEW_MS : -1;
    int count = epoll_wait(keep->epoll, events, EVENTS, wait_ms);

    for (int i = 0; i < count; i++) {
        struct keep_source *source = events[i].data.ptr;
        if (source)
            source->ready(keep, source, events[i].events);
        else
            is_asked = true;
    }
    if (is_asked)
        hear(keep);
    watch_life(keep);
    tick(keep);
    renew(keep);
    sweep(keep, false);
}

_Noreturn void keeper_run(int socket, const struct keeper_of_whom *whom,
                          const struct serve_options *options)
{
    const char *id = whom->id;
    char full[CAY_ID_MAX] = "sb-";
    struct cay_error error = {0};

    kept = (struct keep){.socket = socket, .options = options};
    kept.epoll = epoll_create1(EPOLL_CLOEXEC);
    if (kept.epoll < 0 || !keep_watch(&kept, socket, EPOLLIN, NULL))
        _exit(1);
    cay_copy_text(full + 3, sizeof full - 3, id);
    if (*id && cay_sandbox_open(full, &kept.sandbox, &error) != CAY_OK) {
        if (cay_errno_is_shortage(error.sys_errno))
            _exit(1); /* it may well live: the next keeper looks again */
        keep_end();
    }
    if (*id)
        keep_identity_set(&kept, id, whom->template_name, whom->tenant);
    for (;;)
        loop(&kept);
}
