/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/signal.h"
#include "server/broker/broker.h"
#include "server/broker/hooks.h"
#include "server/broker/journal.h"
#include "server/wire/bucket.h"
#include "server/wire/warn.h"
#include "sys/rights.h"

enum { NEXT_RETRY_MS = 1000 };

/* Zeroes memory that is neither on the stack nor on the heap.  Whole pages are returned
 * to the kernel: writing to them would copy pages that a fork shares. */
static void zero_pages(void *memory, size_t len)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)memory;
    uintptr_t first = (from + page - 1) & ~(page - 1), last = (from + len) & ~(page - 1);

    if (first >= last ||
        madvise((char *)memory + (first - from), last - first, MADV_DONTNEED) != 0) {
        explicit_bzero(memory, len);
        return;
    }
    explicit_bzero(memory, first - from);
    explicit_bzero((char *)memory + (last - from), from + len - last);
}

/* Keepers, the pool and the sampler may reach sandboxes, but keep nothing else of the
 * broker: no row, no secret, no socket of another keeper.  The socket becomes KEPT_FD. */
/* `other` becomes KEPT_FD + 1; -1: none. */
static void leave_with(struct broker *broker, int socket, int other, const char *name)
{
    const bool has_other = other >= 0;
    sigset_t blocked;

    if (has_other && (other = fcntl(other, F_DUPFD_CLOEXEC, KEPT_FD + 2)) < 0)
        _exit(1);

    explicit_bzero(&broker->secrets, sizeof broker->secrets);
    zero_pages(&broker->request, sizeof broker->request);
    if ((socket != KEPT_FD && dup3(socket, KEPT_FD, O_CLOEXEC) != KEPT_FD) ||
        (has_other && dup3(other, KEPT_FD + 1, O_CLOEXEC) != KEPT_FD + 1) ||
        syscall(SYS_close_range, KEPT_FD + 1 + has_other, ~0u, 0) != 0)
        _exit(1);
    /* The broker ends its keepers after the drain; PID 1 of a sandbox resets the mask. */
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGINT);
    sigaddset(&blocked, SIGTERM);
    sigaddset(&blocked, SIGUSR1);
    sigaddset(&blocked, SIGUSR2);
    sigprocmask(SIG_SETMASK, &blocked, NULL);
    (void)prctl(PR_SET_NAME, name);
}

void keepers_leave_broker(struct broker *broker, int socket, const char *name)
{
    leave_with(broker, socket, -1, name);
    bucket_drop_access();
}

static _Noreturn void become_keeper(struct broker *broker, int socket,
                                    const struct keeper_spec *spec)
{
    const struct serve_options options = *broker->options;

    leave_with(broker, socket, -1, *spec->id ? KEEPER_NAME : "cay-next");
    if (*spec->id) /* else when it gets one */
        bucket_drop_access();
    keeper_run(KEPT_FD, spec, &options);
}

/* --- Idle keepers --- */

static void forget_idle(struct broker *broker, struct keeper_handle *keeper)
{
    if (keeper->life >= 0) {
        broker_poll_remove(broker, keeper->life);
        (void)close(keeper->life);
    }
    keeper->life = -1;
    free(keeper->state);
    keeper->state = NULL;
    keeper->state_len = 0;
}

static void close_socket(struct broker *broker, struct keeper_handle *keeper)
{
    if (keeper->socket < 0)
        return;
    broker_poll_remove(broker, keeper->socket);
    (void)close(keeper->socket);
    keeper->socket = -1;
}

/* Takes over `life`, unless it fails. */
static bool become_idle(struct broker *broker, struct keeper_handle *keeper, int life,
                        const char *state, size_t len)
{
    char *copy = malloc(len + 1);

    if (!copy || !broker_poll_add(broker, life, &keeper->source)) {
        free(copy);
        return false;
    }
    memcpy(copy, state, len);
    keeper->state = copy;
    keeper->state_len = len;
    keeper->life = life;
    close_socket(broker, keeper); /* it exits */
    return true;
}

/* A request that the keeper had not received when it sent the notice keeps it. */
static void receive_notice(struct broker *broker, struct keeper_handle *keeper)
{
    static char state[KEEPER_STATE_MAX];
    struct idle_notice notice = {0};
    struct iovec parts[] = {{&notice, sizeof notice}, {state, sizeof state}};
    int life;
    size_t count;
    ssize_t len =
        rights_receive(keeper->socket, parts, 2, &life, 1, &count, MSG_DONTWAIT);

    if (len == -EAGAIN || len == -EMFILE || len == -EPROTO)
        return; /* the keeper repeats the notice */
    if (len <= 0) {
        broker_poll_remove(broker, keeper->socket); /* SIGCHLD follows */
        return;
    }
    bool is_valid = len >= (ssize_t)sizeof notice && notice.version == CHANNEL_VERSION &&
                    notice.received == keeper->sent;
    if (is_valid && *keeper->volume) /* it has no sandbox now, and exits */
        keepers_drop(broker, keeper);
    if (!is_valid || life < 0 || !*keeper->id ||
        !become_idle(broker, keeper, life, state, (size_t)len - sizeof notice))
        rights_close(&life, count);
}

/* A notice of the keeper; or, without a keeper, the end of the sandbox: the next keeper
 * removes the rest of it and finds the reason. */
static void on_keeper(struct broker *broker, struct source *source)
{
    struct keeper_handle *keeper = (struct keeper_handle *)source;
    struct pollfd life = {.fd = keeper->life, .events = POLLIN};

    if (keeper->socket >= 0)
        receive_notice(broker, keeper);
    else if (keeper->life >= 0 && poll(&life, 1, 0) == 1 &&
             !keepers_find(broker, keeper->id))
        forget_idle(broker, keeper); /* a request finds out later */
}

/* --- Processes --- */

/* Starts the process of a handle. */
static bool launch(struct broker *broker, struct keeper_handle *keeper)
{
    AUTO_RECORD row = RECORD_INIT;
    struct keeper_spec spec = {.state = keeper->state, .state_len = keeper->state_len};
    int ends[2];

    if (*keeper->id)
        (void)broker_find_record(broker, keeper->id, &row, NULL);
    cay_copy_text(spec.id, sizeof spec.id, keeper->id);
    cay_copy_text(spec.template_name, sizeof spec.template_name, row.template_name);
    cay_copy_text(spec.tenant, sizeof spec.tenant, row.tenant);
    spec.may_be_stopped = row.flags & RECORD_COLD;
    spec.approves = broker_find_metadata(&row, RECORD_APPROVE);
    spec.asks_egress = row.flags & CREATE_APPROVE_EGRESS;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
        return false;
    pid_t pid =
        broker_poll_add(broker, ends[0], &keeper->source)
            ? fork() /* allow: fork one process for each sandbox; no threads here */
            : -1;
    if (pid == 0)
        become_keeper(broker, ends[1], &spec);
    (void)close(ends[1]);
    if (pid < 0) {
        broker_poll_remove(broker, ends[0]);
        (void)close(ends[0]);
        return false;
    }
    forget_idle(broker, keeper);
    keeper->pid = pid;
    keeper->socket = ends[0];
    keeper->sent = 0;
    return true;
}

static struct keeper_handle *start(struct broker *broker, const char *id)
{
    AUTO_FREE struct keeper_handle *keeper = calloc(1, sizeof *keeper);

    if (!keeper)
        return NULL;
    keeper->source.ready = on_keeper;
    keeper->socket = keeper->life = -1;
    cay_copy_text(keeper->id, sizeof keeper->id, id);
    if (!launch(broker, keeper))
        return NULL;
    keeper->next = broker->keepers;
    broker->keepers = keeper;
    return TAKE_PTR(keeper);
}

struct keeper_handle *keepers_start(struct broker *broker, const char *id)
{
    struct keeper_handle *next = *id ? NULL : broker->next_keeper;

    if (!next)
        return start(broker, id);
    broker->next_keeper = NULL;
    return next;
}

/* Not while sandboxes are created: their clients need the processors. */
bool keepers_want_next(const struct broker *broker)
{
    return !broker->next_keeper && !broker->pending && !broker->drain_end_ms &&
           clock_ms() >= broker->next_keeper_ms;
}

void keepers_start_next(struct broker *broker)
{
    if (!keepers_want_next(broker))
        return;
    broker->next_keeper = start(broker, "");
    if (!broker->next_keeper)
        broker->next_keeper_ms = clock_ms() + NEXT_RETRY_MS;
}

struct keeper_handle *keepers_find(struct broker *broker, const char *id)
{
    for (struct keeper_handle *keeper = broker->keepers; keeper; keeper = keeper->next)
        if (strcmp(keeper->id, id) == 0)
            return keeper->socket >= 0 || launch(broker, keeper) ? keeper : NULL;
    return keepers_start(broker, id);
}

struct keeper_handle *keepers_find_volume(struct broker *broker, const char *volume)
{
    struct keeper_handle *keeper = broker->keepers;

    while (keeper && strcmp(keeper->volume, volume) != 0)
        keeper = keeper->next;
    if (!keeper && (keeper = keepers_start(broker, "")))
        cay_copy_text(keeper->volume, sizeof keeper->volume, volume);
    return keeper;
}

int keepers_forward(struct keeper_handle *keeper, const struct request_packet *request)
{
    int error = request_forward(keeper->socket, request);

    keeper->sent += !error;
    return error;
}

void keepers_drop(struct broker *broker, struct keeper_handle *keeper)
{
    struct keeper_handle **link = &broker->keepers;

    while (*link && *link != keeper)
        link = &(*link)->next;
    if (!*link)
        return;
    *link = keeper->next;
    if (broker->next_keeper == keeper) { /* it was killed */
        broker->next_keeper = NULL;
        broker->next_keeper_ms = clock_ms() + NEXT_RETRY_MS;
    }
    close_socket(broker, keeper);
    forget_idle(broker, keeper);
    keeper->next = broker->dropped;
    broker->dropped = keeper;
}

void keepers_free_dropped(struct broker *broker)
{
    while (broker->dropped) {
        struct keeper_handle *keeper = broker->dropped;
        broker->dropped = keeper->next;
        free(keeper);
    }
}

/* --- The pool --- */

enum { POOL_AGAIN_MS = 1000 }; /* before a process that was killed is replaced */

static void on_pool(struct broker *broker, struct source *source)
{
    struct pool_process *pool = (struct pool_process *)source;
    char name[POOL_NAME_MAX];
    ssize_t len = recv(pool->socket, name, sizeof name, MSG_DONTWAIT | MSG_TRUNC);

    if (len > 0 && len <= (ssize_t)sizeof name && !name[len - 1])
        cay_copy_text(pool->name, sizeof pool->name, name);
    else if (len >= 0 || errno != EAGAIN)
        broker_poll_remove(broker, pool->socket); /* SIGCHLD follows */
}

static void lose_pool(struct broker *broker)
{
    broker_poll_remove(broker, broker->pool.socket);
    (void)close(broker->pool.socket);
    broker->pool = (struct pool_process){.socket = -1};
    broker->stats.pool_restarts++;
    broker_wake_at(broker, server_clock_ms() + POOL_AGAIN_MS);
}

void keepers_start_pool(struct broker *broker)
{
    struct pool_process *pool = &broker->pool;
    const struct serve_options options = *broker->options;
    int ends[2];

    if (!options.pool || pool->pid || broker->drain_end_ms)
        return;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) !=
        0) {
        broker_wake_at(broker, server_clock_ms() + POOL_AGAIN_MS);
        return;
    }
    pool->source.ready = on_pool;
    pool->socket = ends[0];
    pool->pid = broker_poll_add(broker, ends[0], &pool->source)
                    ? fork() /* allow: fork one process for the pool; no threads here */
                    : -1;
    if (pool->pid == 0) {
        keepers_leave_broker(broker, ends[1], "cay-pool");
        pool_run(KEPT_FD, &options);
    }
    (void)close(ends[1]);
    if (pool->pid < 0)
        lose_pool(broker);
}

pid_t keepers_start_mcp(struct broker *broker, int socket, int notes,
                        const struct keeper_mcp *spec)
{
    const struct serve_options options = *broker->options;
    const struct keeper_mcp wanted = *spec; /* leave_broker() frees the broker's */
    pid_t pid = fork(); /* allow: fork one process for each session; no threads here */

    if (pid == 0) {
        leave_with(broker, socket, notes, "cay-mcp");
        bucket_drop_access();
        keeper_serve_mcp(KEPT_FD, KEPT_FD + 1, &wanted, &options);
    }
    return pid;
}

struct keeper_handle *keepers_by_pid(const struct broker *broker, pid_t pid)
{
    struct keeper_handle *keeper = broker->keepers;

    while (keeper && keeper->pid != pid)
        keeper = keeper->next;
    return keeper;
}

/* Logs exits other than at the end of the sandbox or on request. */
static void note_end(struct broker *broker, struct keeper_handle *keeper, bool is_signal,
                     int status)
{
    static struct warn warn;
    bool is_gone =
        !is_signal && (status == KEEPER_SANDBOX_GONE || status == KEEPER_OUT_OF_MEMORY);

    bool is_failure = is_signal || (status != 0 && !is_gone);

    broker->stats.keeper_failures += is_failure;
    if (is_failure)
        warn_line(&warn, "the keeper of %s%s (process %d) exited with %s %d%s%s",
                  *keeper->id       ? "sandbox "
                  : *keeper->volume ? "volume "
                                    : "no sandbox yet",
                  *keeper->id ? keeper->id : keeper->volume, (int)keeper->pid,
                  is_signal ? "signal" : "status", status, is_signal ? ", " : "",
                  is_signal ? signal_words(status) : "");
    if (*keeper->id && is_failure) {
        broker->is_keeper_lost = true;
        broker_wake_at(broker, server_clock_ms() + NEXT_RETRY_MS);
    }
    if (*keeper->id && is_gone)
        broker_sandbox_ended(broker, keeper->id, status == KEEPER_OUT_OF_MEMORY);
    keepers_drop(broker, keeper);
}

void keepers_lost(struct broker *broker, struct keeper_handle *keeper)
{
    siginfo_t end = {0};

    (void)kill(keeper->pid, SIGKILL); /* it might never exit */
    (void)waitid(P_PID, (id_t)keeper->pid, &end, WEXITED | WNOWAIT);
    note_end(broker, keeper, end.si_code != CLD_EXITED, end.si_status);
}

void keepers_reaped(struct broker *broker, pid_t pid, int status)
{
    struct keeper_handle *keeper = keepers_by_pid(broker, pid);

    if (pid == broker->pool.pid)
        lose_pool(broker);
    usage_reaped(broker, pid);
    hooks_reaped(broker, pid);
    /* A keeper that was not needed any more exits with 0. */
    if (keeper && keeper->socket < 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0)
        keeper->pid = 0;
    else if (keeper)
        note_end(broker, keeper, WIFSIGNALED(status),
                 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

/* --- Requests --- */

void broker_request_free(struct broker *broker, struct broker_request *pending)
{
    struct broker_request **link = &broker->pending;

    while (*link && *link != pending)
        link = &(*link)->next;
    if (*link)
        *link = pending->next;
    const int fds[] = {pending->channel, pending->client};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        if (fds[i] >= 0)
            (void)close(fds[i]);
    if (pending->held)
        request_packet_done(pending->held);
    free(pending->held);
    if (pending->forks)
        fork_report_failed(pending->forks, 500, "creating the sandbox failed");
    fork_plan_free(pending->plan);
    index_release(broker, pending->claim, pending->claim_count);
    free(pending->snapshot);
    if (pending->env.data)
        explicit_bzero(pending->env.data, pending->env.len);
    buf_done(&pending->env);
    record_done(&pending->row);
    free(pending);
}

void broker_request_fail(struct broker_request *pending, int status,
                         const struct cay_error *error)
{
    if (pending->op == OP_CREATE)
        stats_count_failure(&pending->broker->stats, status);
    if (pending->id)
        journal_write_failure(pending->broker, pending, status, error->message);
    if (pending->failed)
        pending->failed(pending->broker, pending, error);
    if (pending->client >= 0)
        (void)reply_send_error(pending->client, status, error);
    if (pending->forks)
        fork_report_failed(pending->forks, status, error->message);
    pending->forks = NULL;
    if (pending->held) /* data-plane clients expect 502 for a sandbox that ended */
        (void)reply_send_error(pending->held->channel, status == 404 ? 502 : status,
                               error);
}

static void on_keeper_reply(struct broker *broker, struct source *source);

struct broker_request *broker_request_new(struct broker *broker, enum op op,
                                          const struct record_row *row,
                                          struct request_packet *request)
{
    struct broker_request *pending = calloc(1, sizeof *pending);

    if (!pending)
        return NULL;
    pending->source.ready = on_keeper_reply;
    pending->broker = broker;
    pending->op = op;
    pending->channel = pending->client = -1;
    pending->row = (struct record_row)RECORD_INIT;
    pending->env.max = CHANNEL_STRINGS;
    if (row) {
        struct buf metadata = pending->row.metadata;
        pending->row = *row;
        pending->row.metadata = metadata;
        (void)buf_append(&pending->row.metadata, row->metadata.data, row->metadata.len);
    }
    if (request) {
        pending->client = request->channel;
        pending->id = request->head.id;
        request->channel = -1;
        request_packet_done(request);
    }
    struct broker_request **link = &broker->pending;
    while (*link) /* oldest first */
        link = &(*link)->next;
    *link = pending;
    return pending;
}

/* 0, or a negative errno. */
static int send_to(struct broker *broker, struct broker_request *pending,
                   struct keeper_handle *keeper, const struct request *request,
                   const struct buf *strings)
{
    int ends[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
        return -errno;
    int error = request_send(keeper->socket, request, strings, ends[1]);
    (void)close(ends[1]);
    keeper->sent += !error;
    if (!error && !broker_poll_add(broker, ends[0], &pending->source))
        error = -EMFILE;
    if (error) {
        (void)close(ends[0]);
        return error;
    }
    pending->channel = ends[0];
    pending->keeper = keeper->pid;
    return 0;
}

static void fail_busy(struct broker *broker, struct broker_request *pending)
{
    struct cay_error error;

    cay_fail(&error, CAY_E_BUSY, 0, "server", NULL, "the server is overloaded",
             "try again in a moment");
    broker_request_fail(pending, 503, &error);
    broker_request_free(broker, pending);
}

void broker_request_send_to(struct broker *broker, struct broker_request *pending,
                            struct request *request, const struct buf *strings)
{
    struct keeper_handle *keeper = NULL;
    const char *id = pending->row.id;
    int error = -EPIPE;

    request->version = CHANNEL_VERSION;
    request->op = (uint32_t)pending->op;
    request->strings_len = (uint32_t)strings->len;
    for (int i = 0; i < 2 && error == -EPIPE; i++) {
        keeper = *id                ? keepers_find(broker, id)
                 : *pending->volume ? keepers_find_volume(broker, pending->volume)
                                    : keepers_start(broker, "");
        error = keeper ? send_to(broker, pending, keeper, request, strings) : -EAGAIN;
        if (keeper && error == -EPIPE) {
            keepers_lost(broker, keeper); /* the next keeper finds out why */
            keeper = NULL;
        }
    }
    if (error && keeper && !*id) /* it exits, and removes its sandbox */
        keepers_drop(broker, keeper);
    if (error)
        fail_busy(broker, pending);
}

void broker_request_send(struct broker *broker, struct broker_request *pending,
                         int64_t number)
{
    struct request request = {.numbers = {[TIMEOUT_SECONDS] = number},
                              .flags = pending->is_cold ? PAUSE_COLD : 0};

    pending->number = number;
    broker_request_send_to(broker, pending, &request, NO_STRINGS);
}

void broker_request_resend(struct broker *broker, struct broker_request *pending)
{
    broker_request_send(broker, pending, pending->number);
}

bool broker_request_is_pending(const struct broker *broker, const char *id)
{
    const struct broker_request *pending = broker->pending;

    while (pending && (pending->op == OP_TIMEOUT || strcmp(pending->row.id, id) != 0))
        pending = pending->next;
    return pending != NULL;
}

const struct broker_request *broker_request_find(const struct broker *broker, enum op op,
                                                 const char *id)
{
    const struct broker_request *pending = broker->pending;

    while (pending && (pending->op != op || strcmp(pending->row.id, id) != 0))
        pending = pending->next;
    return pending;
}

/* --- Results --- */

static int status_of(int code)
{
    static const struct {
        int code, status;
    } statuses[] = {
        {CAY_E_NOT_FOUND, 404}, {CAY_E_BUSY, 409},        {CAY_E_INVALID, 400},
        {CAY_E_LIMIT, 429},     {CAY_E_UNSUPPORTED, 501}, {CAY_E_UNAVAILABLE, 503},
        {CAY_E_NO_SPACE, 507},  {CAY_E_EXISTS, 400},
    };

    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++)
        if (statuses[i].code == code)
            return statuses[i].status;
    return 500;
}

static void report_failure(struct broker *broker, struct broker_request *pending,
                           const struct reply_packet *reply)
{
    struct cay_error error;
    const char *message = reply_next(reply, NULL);
    const char *hint = message ? reply_next(reply, message) : NULL;
    int code = reply->head.code < 0 ? reply->head.code : CAY_E_INTERNAL;

    cay_fail(&error, code, 0, "server", NULL,
             message ? message : "the sandbox does not respond", "%s",
             hint ? hint : "try again");
    /* Errors of this machine are for its operator: log them, and hide them from the
     * client. */
    if (pending->op == OP_CREATE && status_of(code) >= 500 && !reply->head.status) {
        if (broker->log_error)
            broker->log_error("creating a sandbox failed", &error);
        cay_fail(&error, code, 0, "server", NULL, "creating the sandbox failed",
                 "see the server's standard error");
    }
    if (pending->op == OP_PAUSE && pending->is_cold)
        control_pause_failed(broker, pending->row.id);
    bool was_decided = pending->op == OP_APPROVAL_DECIDE && code == CAY_E_EXISTS;
    broker_request_fail(pending, was_decided ? 409 : status_of(code), &error);
}

/* Either the sandbox ended meanwhile, which its row says, or only its keeper was killed.
 */
static void finish_unanswered(struct broker *broker, struct broker_request *pending)
{
    char message[160];
    struct cay_error error;
    AUTO_RECORD row = RECORD_INIT;
    const char *reason = NULL;
    enum op op = pending->op;
    void (*retry)(struct broker * broker, struct broker_request * pending) =
        pending->retry;

    if (op == OP_KILL)
        pending->op = OP_NONE; /* do not count this request as the reason */
    if (*pending->row.id &&
        broker_find_record(broker, pending->row.id, &row, NULL) == CAY_OK)
        reason = broker_end_reason(broker, &row);
    if (!reason && retry) {
        pending->op = op;
        (void)close(pending->channel);
        pending->channel = -1;
        pending->has_no_reply = pending->is_lost = false;
        pending->keeper = 0;
        pending->retry = NULL;
        retry(broker, pending);
        return;
    }
    snprintf(message, sizeof message, "sandbox \"%s\" %s", pending->row.id,
             reason ? reason : "does not respond");
    if (reason)
        cay_fail(&error, CAY_E_NOT_FOUND, 0, "server", NULL, message,
                 "list the sandboxes");
    else
        cay_fail(&error, CAY_E_UNAVAILABLE, 0, "server", NULL,
                 *pending->row.id           ? message
                 : pending->op == OP_CREATE ? "creating the sandbox failed"
                                            : "the request failed",
                 "try again in a moment");
    broker_request_fail(pending, status_of(error.code), &error);
    broker_request_free(broker, pending);
}

void broker_request_force_late(struct broker *broker)
{
    int64_t now_ms = server_clock_ms();

    for (struct broker_request *pending = broker->pending; pending;
         pending = pending->next) {
        if (!pending->force_ms || pending->is_lost)
            continue;
        if (pending->force_ms > now_ms) {
            broker_wake_at(broker, pending->force_ms);
            continue;
        }
        pending->force_ms = 0;
        const struct keeper_handle *keeper = keepers_by_pid(broker, pending->keeper);
        int unread = 0;
        if (!keeper || ioctl(keeper->socket, SIOCOUTQ, &unread) != 0 || unread <= 0)
            continue;
        pending->retry = broker_request_resend;
        (void)kill(pending->keeper, SIGKILL);
    }
}

/* In the order of their arrival, since pause and resume must not be swapped; so all of
 * them must have lost their channel first. */
static void finish_all_unanswered(struct broker *broker, pid_t keeper)
{
    struct broker_request *next;

    for (const struct broker_request *pending = broker->pending; pending;
         pending = pending->next)
        if (pending->keeper == keeper && !pending->has_no_reply)
            return;
    for (struct broker_request *pending = broker->pending; pending; pending = next) {
        next = pending->next;
        if (pending->keeper == keeper)
            finish_unanswered(broker, pending);
    }
}

void broker_request_keeper_ended(struct broker *broker, pid_t keeper)
{
    for (struct broker_request *pending = broker->pending; pending;
         pending = pending->next)
        pending->is_lost |= pending->keeper == keeper;
    finish_all_unanswered(broker, keeper);
}

static void on_keeper_reply(struct broker *broker, struct source *source)
{
    static struct reply_packet reply;
    struct broker_request *pending = (struct broker_request *)source;
    struct cay_error error = {0};
    int got = reply_receive(pending->channel, &reply);

    if (got == -EAGAIN)
        return;
    broker_poll_remove(broker, pending->channel);
    if (got == 1 && reply.fd >= 0)
        (void)close(reply.fd);
    pid_t lost = pending->is_lost ? pending->keeper : 0;
    if (got != 1) { /* the exit status of the keeper shows the cause */
        pending->has_no_reply = true;
        if (lost)
            finish_all_unanswered(broker, lost);
        return;
    }
    reply_set_tenant(pending->row.tenant);
    if (reply.head.kind == REPLY_FAILED)
        report_failure(broker, pending, &reply);
    else if (pending->done && pending->done(broker, pending, &reply, &error))
        broker_request_fail(pending, status_of(error.code), &error);
    reply_set_tenant("");
    broker_request_free(broker, pending);
    if (lost)
        finish_all_unanswered(broker, lost);
}
