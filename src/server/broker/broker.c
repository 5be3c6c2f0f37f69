/* SPDX-License-Identifier: Apache-2.0 */

/* The broker checks the credential of each request from the front and forwards it.  It
 * never waits for a sandbox: the keeper of the sandbox does the work and replies to the
 * client's channel, or, if a record has to change, to a request of the broker's own
 * (keepers.c). */
#include "server/broker/broker.h"
#include "server/broker/journal.h"
#include "server/broker/keys.h"
#include "server/broker/session.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"
#include "server/broker/shared.h"
#include "server/wire/notify.h"
#include "server/wire/warn.h"

enum { EVENTS = 64, ASKS_AT_A_TIME = 32 };

bool broker_poll_add(struct broker *broker, int fd, struct source *source)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = source};

    return epoll_ctl(broker->epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

void broker_poll_remove(struct broker *broker, int fd)
{
    (void)epoll_ctl(broker->epoll, EPOLL_CTL_DEL, fd, NULL);
}

void broker_forget_source(struct broker *broker, const struct source *source)
{
    for (int i = 0; i < broker->event_count; i++)
        if (broker->events[i].data.ptr == source)
            broker->events[i].data.ptr = NULL;
}

void broker_wake_at(struct broker *broker, int64_t end_ms)
{
    int64_t boot_ms = end_ms > server_clock_offset() ? end_ms - server_clock_offset() : 0;
    struct itimerspec when = {.it_value = {boot_ms / 1000, boot_ms % 1000 * 1000000 + 1}};

    if (broker->next_end_ms && broker->next_end_ms <= end_ms)
        return;
    broker->next_end_ms = end_ms;
    (void)timerfd_settime(broker->timer, TFD_TIMER_ABSTIME, &when, NULL);
}

/* --- Refusals --- */

void broker_refuse_with(struct request_packet *request, int status,
                        const struct cay_error *error)
{
    request->refusal = status ? status : reply_status_of(error->code);
    (void)reply_send_error(request->channel, status, error);
    request_packet_done(request);
}

void broker_refuse(struct request_packet *request, int status, int code,
                   const char *message, const char *hint)
{
    struct cay_error error;

    cay_fail(&error, code, 0, "server", NULL, message, "%s", hint);
    broker_refuse_with(request, status, &error);
}

void broker_forward(struct broker *broker, struct request_packet *request, const char *id)
{
    int error = -EPIPE;

    for (int i = 0; i < 2 && error == -EPIPE; i++) {
        struct keeper_handle *keeper = keepers_find(broker, id);
        error = keeper ? keepers_forward(keeper, request) : -EAGAIN;
        if (keeper && error == -EPIPE)
            keepers_lost(broker, keeper); /* the next keeper finds out why */
    }
    /* A keeper that exits before it reads the request found no sandbox, or could not open
     * it. Close the channel, as if the keeper had exited while it handled the request. */
    if (error && error != -EPIPE)
        broker_refuse(request, 503, CAY_E_BUSY,
                      "the sandbox has too many pending requests",
                      "try again in a moment");
    else
        request_packet_done(request);
}

static void refuse_unknown(struct broker *broker, struct request_packet *request)
{
    node_refuse(broker, request, 502, "The sandbox was not found",
                "it has ended or never existed; list the sandboxes");
}

static void refuse_token(struct request_packet *request)
{
    broker_refuse(request, 401, CAY_E_DENIED, "invalid access token",
                  "send the sandbox's envdAccessToken as X-Access-Token");
}

/* --- Requests without a sandbox id --- */

struct search {
    struct broker *broker;
    struct request_packet *request;
    const char *path; /* NULL: the credential is a token, not a signature */
    struct record_row *found;
};

static bool has_token(struct broker *broker, const struct request_packet *request,
                      enum token_kind kind, const struct record_row *row)
{
    return secrets_is_token(&broker->secrets, kind, row->id, row->token_version,
                            request->head.credential);
}

/* --- API keys, and sessions of browsers --- */

/* The sender of a request with an API key or a session. */
struct identity {
    char tenant[TENANT_MAX];
    unsigned char key[KEY_HASH];
    bool is_valid; /* but for its key, which may be unknown */
    bool has_session;
    struct browser_session session;
};

/* CAY_E_NOT_FOUND: the key is unknown; the session is invalid, over, or its key is
 * unknown. */
static int identify(struct broker *broker, const char *credential,
                    struct identity *ret_identity, struct cay_error *err)
{
    int64_t now_s = clock_since_1970_ms() / 1000;

    *ret_identity = (struct identity){.has_session = browser_session_is_text(credential)};
    if (!ret_identity->has_session) {
        secrets_hash_key(credential, ret_identity->key);
    } else {
        if (!browser_session_parse(&broker->secrets, credential, now_s,
                                   &ret_identity->session))
            return CAY_E_NOT_FOUND;
        TRY(browser_session_check(broker->registry, &ret_identity->session, err));
        memcpy(ret_identity->key, ret_identity->session.key, KEY_HASH);
    }
    ret_identity->is_valid = true;
    return registry_find_key(broker->registry, ret_identity->key, ret_identity->tenant,
                             err);
}

bool broker_is_admin(struct broker *broker, const struct request_packet *request)
{
    struct identity identity;

    return identify(broker, request->head.credential, &identity, NULL) == CAY_OK &&
           keys_is_admin(broker->registry, identity.key);
}

/* The sandbox's own token, or a session of its tenant. */
static bool may_use(struct broker *broker, const struct request_packet *request,
                    const struct record_row *row)
{
    struct identity identity;

    if (!browser_session_is_text(request->head.credential))
        return has_token(broker, request, TOKEN_ENVD, row);
    int code = identify(broker, request->head.credential, &identity, NULL);
    if (code == CAY_E_NOT_FOUND && identity.is_valid &&
        index_knows_key(broker, identity.key, identity.tenant))
        code = CAY_OK;
    return !code && strcmp(identity.tenant, row->tenant) == 0;
}

/* OP_SESSION... */
static void handle_session(struct broker *broker, struct request_packet *request,
                           const struct identity *identity)
{
    struct reply reply = {.kind = REPLY_TEXT, .count = 1};
    int64_t now_s = clock_since_1970_ms() / 1000;
    bool is_new = request->head.op == OP_SESSION_NEW;
    AUTO_BUF strings = {.max = TENANT_MAX + CREDENTIAL_MAX};
    char text[CREDENTIAL_MAX];
    struct cay_error error;
    int code = CAY_OK;

    if (is_new == identity->has_session) {
        broker_refuse(request, 401, CAY_E_DENIED,
                      is_new ? "Invalid API key" : "the request has no session",
                      "sign in with an API key");
        return;
    }
    strings_add(&strings, identity->tenant);
    if (is_new)
        code = browser_session_new(&broker->secrets, identity->key, now_s, text, &error);
    else if (request->head.op == OP_SESSION_END)
        code = browser_session_end(broker->registry, &identity->session, now_s, &error);
    if (!code && request->head.op == OP_SESSION_END)
        index_session_ended(broker, &identity->session);
    if (code) {
        broker_refuse(request, code == CAY_E_NO_SPACE ? 507 : 503, code, error.message,
                      error.hint);
        return;
    }
    if (is_new) {
        strings_add(&strings, text);
        reply.count = 2;
        explicit_bzero(text, sizeof text);
    }
    reply.numbers[SESSION_EXPIRES_S] =
        is_new ? now_s + SESSION_S : identity->session.expires_s;
    reply.numbers[SESSION_IS_ADMIN] =
        !index_is_on(broker) && keys_is_admin(broker->registry, identity->key);
    (void)reply_send(request->channel, &reply, &strings, -1);
    explicit_bzero(strings.data, strings.len);
    request_packet_done(request);
}

static bool is_signed_by(struct broker *broker, const struct request_packet *request,
                         const char *path, const struct record_row *row)
{
    const char *operation = request->head.op == OP_READ_FILE ? "read" : "write";
    char token[TOKEN_MAX], signature[SIGNATURE_MAX];
    bool is_one = false;

    for (unsigned i = 0; i == 0 || i < broker->secrets.count; i++) {
        secrets_token_by(&broker->secrets, i, TOKEN_ENVD, row->id, row->token_version,
                         token);
        secrets_signature(path, operation, request->head.user, token,
                          request->head.numbers[FILE_EXPIRES], signature);
        is_one |= secrets_are_equal(request->head.credential, signature);
    }
    return is_one;
}

static bool compare(const struct record_row *row, void *cookie)
{
    struct search *search = cookie;

    if (!(search->path ? is_signed_by(search->broker, search->request, search->path, row)
                       : has_token(search->broker, search->request, TOKEN_ENVD, row)))
        return true;
    memcpy(search->found->id, row->id, sizeof row->id);
    return false;
}

/* Without a sandbox id, finds the sandbox by its token or by the signature made with it.
 * A token takes precedence over a signature. */
static bool find_by_credential(struct broker *broker, struct request_packet *request,
                               const char *path, struct record_row *row)
{
    const struct registry_filter filter = {.states = RECORD_LIVING};
    struct search search = {broker, request, path, row};

    if (registry_visit(broker->registry, &filter, compare, &search, NULL) != CAY_OK ||
        !*row->id)
        return false;
    memcpy(request->head.sandbox, row->id, sizeof row->id);
    return true;
}

/* The signature covers the path as it is in the URL, which is the last string. */
static bool check_signature(struct broker *broker, struct request_packet *request,
                            struct record_row *row)
{
    AUTO_FREE char *room = NULL;
    AUTO_FREE const char **strings = request_strings(request, &room);

    if (!strings) {
        broker_refuse(request, 400, CAY_E_INVALID, "the request is malformed", "");
        return false;
    }
    const char *path = strings[request->head.count - 1];
    int64_t expires = request->head.numbers[FILE_EXPIRES];
    if (expires >= 0 && expires < clock_since_1970_ms() / 1000) {
        broker_refuse(request, 401, CAY_E_DENIED, "signature is already expired",
                      "create a new URL");
        return false;
    }
    if (*row->id ? is_signed_by(broker, request, path, row)
                 : find_by_credential(broker, request, path, row))
        return true;
    broker_refuse(request, 401, CAY_E_DENIED, "invalid signature",
                  "create the URL with the SDK, for this sandbox, path and user");
    return false;
}

/* --- The data plane --- */

/* Checks the credential of a request; replies if it is not sufficient. */
static bool check_credential(struct broker *broker, struct request_packet *request,
                             struct record_row *row)
{
    enum credential wanted = request_credential((enum op)request->head.op);

    if (wanted == CREDENTIAL_FILE && request->head.flags & FILE_SIGNED)
        return check_signature(broker, request, row);
    if ((wanted == CREDENTIAL_TOKEN || wanted == CREDENTIAL_FILE) &&
        !may_use(broker, request, row)) {
        refuse_token(request);
        return false;
    }
    if (wanted == CREDENTIAL_PORT && row->flags & CREATE_PRIVATE_TRAFFIC &&
        !has_token(broker, request, TOKEN_TRAFFIC, row)) {
        broker_refuse(request, 403, CAY_E_DENIED,
                      "Missing or invalid traffic access token",
                      "send the sandbox's trafficAccessToken as "
                      "E2B-Traffic-Access-Token");
        return false;
    }
    return true;
}

/* The front gets the mask back from the keeper, with the connection. */
static void add_mask(struct request_packet *request, const struct record_row *row)
{
    const char *mask = broker_find_metadata(row, RECORD_MASK);
    size_t len = mask ? strlen(mask) + 1 : 0;

    if (request->head.op != OP_DIAL)
        return;
    request->head.count = request->head.strings_len = 0;
    if (request->memfd >= 0)
        (void)close(TAKE_FD(request->memfd));
    if (!mask || len > sizeof request->strings)
        return;
    memcpy(request->strings, mask, len);
    request->head.count = 1;
    request->head.strings_len = (uint32_t)len;
}

/* The living sandbox that the request may use; false: it was refused. */
static bool find_data_row(struct broker *broker, struct request_packet *request,
                          struct record_row *row)
{
    bool is_file = request_credential((enum op)request->head.op) == CREDENTIAL_FILE;

    if (!*request->head.sandbox && is_file && request->head.flags & FILE_SIGNED) {
        if (!check_signature(broker, request, row))
            return false;
    } else if (!*request->head.sandbox &&
               !find_by_credential(broker, request, NULL, row)) {
        if (is_file)
            refuse_token(request);
        else /* the sandbox of this token may have ended */
            refuse_unknown(broker, request);
        return false;
    }
    struct cay_error error;
    int code = record_is_id(request->head.sandbox)
                   ? broker_find_record(broker, request->head.sandbox, row, &error)
                   : CAY_E_NOT_FOUND;
    if (code) {
        if (code == CAY_E_NOT_FOUND)
            refuse_unknown(broker, request);
        else
            broker_refuse(request, 503, code, error.message, error.hint);
        return false;
    }
    const char *reason = broker_end_reason(broker, row);
    if (reason) {
        if (may_use(broker, request, row)) /* the reason is only for it */
            broker_refuse(request, 502, CAY_E_KILLED, "The sandbox was not found",
                          reason);
        else
            refuse_unknown(broker, request);
        return false;
    }
    return check_credential(broker, request, row);
}

/* A sandbox that this request resumes is one more that runs. */
static bool needs_check(const struct broker *broker, const struct record_row *row)
{
    return index_is_on(broker) && !broker->is_admitted &&
           !broker_request_find(broker, OP_RESUME, row->id);
}

void broker_handle_data(struct broker *broker, struct request_packet *request)
{
    AUTO_RECORD row = RECORD_INIT;

    if (!find_data_row(broker, request, &row))
        return;
    journal_set_tenant(broker, row.tenant);
    bool resumes = row.flags & CREATE_AUTO_RESUME && request->head.op != OP_HEALTH &&
                   control_is_paused(broker, &row) && !control_is_cold(broker, &row);
    if (resumes && needs_check(broker, &row)) {
        index_check_limit(broker, request, row.tenant, -1);
        return;
    }
    if (row.state == RECORD_RUNNING || row.flags & CREATE_AUTO_RESUME)
        journal_accept(broker, request);
    add_mask(request, &row);
    if (resumes)
        control_resume_for(broker, request, &row);
    else if (row.state == RECORD_RUNNING)
        broker_forward(broker, request, row.id);
    else
        refuse_unknown(broker, request);
}

void broker_refuse_key(struct request_packet *request)
{
    const char *credential = request->head.credential;

    broker_refuse(request, 401, CAY_E_DENIED,
                  !*credential                          ? "Missing API key"
                  : browser_session_is_text(credential) ? "the session is over"
                                                        : "Invalid API key",
                  browser_session_is_text(credential)
                      ? "sign in again"
                      : "send it as X-API-KEY; cay env prints one");
}

void broker_handle_as(struct broker *broker, struct request_packet *request,
                      const char *tenant)
{
    bool is_create = request->head.op == OP_CREATE;
    bool is_session =
        request->head.op >= OP_SESSION_NEW && request->head.op <= OP_SESSION_END;
    struct identity identity;

    reply_set_tenant(tenant);
    journal_set_tenant(broker, tenant);
    if (is_session) {
        (void)identify(broker, request->head.credential, &identity, NULL);
        cay_copy_text(identity.tenant, sizeof identity.tenant, tenant);
        handle_session(broker, request, &identity);
    } else {
        control_handle(broker, request, tenant);
    }
    reply_set_tenant("");
    if (is_create && request->refusal)
        stats_count_failure(&broker->stats, request->refusal);
}

static void handle_request(struct broker *broker, struct request_packet *request)
{
    enum credential credential = request_credential((enum op)request->head.op);
    struct identity identity;

    if (credential == CREDENTIAL_BROKER) {
        broker_refuse(request, 400, CAY_E_INVALID, "the request is malformed", "");
        return;
    }
    if (request->head.op == OP_READY) {
        node_handle_ready(broker, request);
        return;
    }
    if (credential != CREDENTIAL_KEY) {
        (credential == CREDENTIAL_VOLUME   ? broker_handle_content
         : credential == CREDENTIAL_UPLOAD ? broker_upload
                                           : broker_handle_data)(broker, request);
        return;
    }
    struct cay_error error;
    int code = identify(broker, request->head.credential, &identity, &error);
    bool is_shared =
        index_is_on(broker) && *request->head.credential && identity.is_valid;
    if (code == CAY_E_NOT_FOUND && is_shared)
        index_check_key(broker, request, identity.key);
    else if (code == CAY_E_NOT_FOUND)
        broker_refuse_key(request);
    else if (code)
        broker_refuse(request, 503, code, error.message, error.hint);
    else if (index_is_on(broker))
        index_check_limit(broker, request, identity.tenant, -1);
    else
        broker_handle_as(broker, request, identity.tenant);
    explicit_bzero(request->head.credential, sizeof request->head.credential);
}

/* --- The loop --- */

static void on_front(struct broker *broker, struct source *source)
{
    (void)source;
    for (int i = 0; i < ASKS_AT_A_TIME; i++) {
        int got = request_receive(broker->front, &broker->request);
        if (got == -EAGAIN)
            return;
        if (got == -EMFILE) /* the front sees that the channel is closed */
            continue;
        if (got != 1) { /* the front exited or sent an invalid packet */
            broker_poll_remove(broker, broker->front);
            (void)close(broker->front);
            broker->front = -1;
            return;
        }
        uint64_t held = broker->held_count;
        journal_begin(broker, &broker->request);
        handle_request(broker, &broker->request);
        if (broker->held_count == held) /* else it ends later */
            journal_end(broker, &broker->request);
        request_packet_done(&broker->request); /* unless another owner took it over */
    }
}

static void on_timer(struct broker *broker, struct source *source)
{
    uint64_t count;

    (void)source;
    (void)!read(broker->timer, &count, sizeof count);
    broker->next_end_ms = 0;
    broker_expire(broker);
}

/* The service manager waits for the drain. */
static void notify_drain(int64_t drain_ms)
{
    enum { SLACK_MS = 10000 };
    char lines[96];

    snprintf(lines, sizeof lines, "STOPPING=1\nEXTEND_TIMEOUT_USEC=%lld",
             (long long)(drain_ms + SLACK_MS) * 1000);
    notify_send(lines);
}

/* The first signal starts to drain; without a front there is nothing to finish. */
static void drain(struct broker *broker)
{
    static const char word = 'd';
    int64_t drain_ms = broker->options->drain_s * INT64_C(1000);

    if (broker->drain_end_ms || !drain_ms || broker->front < 0 ||
        send(broker->front, &word, 1, MSG_NOSIGNAL) != 1) {
        broker->is_over = true;
        return;
    }
    broker->drain_end_ms = (int64_t)clock_ms() + drain_ms;
    notify_drain(drain_ms);
}

static void on_signal(struct broker *broker, struct source *source)
{
    struct signalfd_siginfo info;
    int status;
    pid_t pid;

    (void)source;
    while (read(broker->signals, &info, sizeof info) == (ssize_t)sizeof info)
        if (info.ssi_signo == SIGUSR1)
            node_leave(broker);
        else if (info.ssi_signo == SIGUSR2)
            node_stay(broker);
        else if (info.ssi_signo != SIGCHLD)
            drain(broker);
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        keepers_reaped(broker, pid, status);
        broker_mcp_reaped(broker, pid, status);
        index_reaped(broker, pid);
        if (pid == broker->front_pid) {
            broker->front_pid = 0;
            broker->front_status = status;
        }
        broker_request_keeper_ended(broker, pid);
    }
}

int broker_open(struct broker *broker, struct cay_error *err)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGUSR2);
    sigprocmask(SIG_BLOCK, &set, NULL);
    broker->epoll = epoll_create1(EPOLL_CLOEXEC);
    broker->timer = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    broker->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    broker->pool.socket = broker->hooks.socket = -1;
    broker->stats.started_s = (uint64_t)clock_since_1970_ms() / 1000;
    broker->front_source.ready = on_front;
    broker->timer_source.ready = on_timer;
    broker->signal_source.ready = on_signal;
    if (broker->epoll < 0 || broker->timer < 0 || broker->signals < 0 ||
        !broker_poll_add(broker, broker->timer, &broker->timer_source) ||
        !broker_poll_add(broker, broker->signals, &broker->signal_source) ||
        !broker_poll_add(broker, broker->front, &broker->front_source))
        return cay_fail_errno(err, errno, "server.start", "epoll");
    broker_read_kept(broker);
    TRY(shared_open(broker, err));
    return node_open(broker, err);
}

static void kill_front(struct broker *broker)
{
    if (broker->front_pid <= 0)
        return;
    (void)kill(broker->front_pid, SIGKILL);
    (void)waitpid(broker->front_pid, &broker->front_status, 0);
    broker->front_pid = 0;
}

static bool restart_if_gone(struct broker *broker, int (*restart)(struct broker *broker))
{
    if (broker->front >= 0 || broker->drain_end_ms)
        return true;
    kill_front(broker); /* it closed the socket: do not leave it running */
    broker->stats.front_restarts++;
    broker->front = restart && !broker->is_over ? restart(broker) : -1;
    return broker->front >= 0 &&
           broker_poll_add(broker, broker->front, &broker->front_source);
}

/* Starts the new front without waiting for the old one to exit, which may be stuck in the
 * kernel. */
static void check_front(struct broker *broker)
{
    static struct warn warn;
    uint64_t now_ms = clock_ms();

    if (!broker->front_beats || broker->front < 0 ||
        now_ms - broker->heartbeat.checked_ms < HEARTBEAT_MS)
        return;
    broker->heartbeat.checked_ms = now_ms;
    if (!heartbeat_check(&broker->heartbeat, atomic_load(broker->front_beats),
                         heartbeat_cpu_ns(broker->front_pid)) ||
        broker->front_pid <= 0)
        return;
    warn_line(&warn, "the front (process %d) does not respond; replacing it",
              (int)broker->front_pid);
    broker->is_front_replaced = true;
    (void)kill(broker->front_pid, SIGKILL);
    broker->front_status = SIGKILL; /* in the format of wait(2) */
    broker->front_pid = 0;
    broker_poll_remove(broker, broker->front);
    (void)close(broker->front);
    broker->front = -1;
}

/* Until it exits, the front has the port, and log lines to write: wait a moment. */
static void end_front(struct broker *broker)
{
    enum { MOMENT_MS = 1000 };
    struct pollfd life = {.fd = -1, .events = POLLIN};

    if (broker->front >= 0)
        (void)close(broker->front);
    broker->front = -1;
    if (broker->front_pid > 0)
        life.fd = (int)syscall(SYS_pidfd_open, broker->front_pid, 0);
    if (life.fd >= 0) {
        (void)poll(&life, 1, MOMENT_MS);
        (void)close(life.fd);
    }
    kill_front(broker);
}

/* A build is not waited for: the next server reports it as failed. */
static bool has_work(const struct broker *broker)
{
    const struct broker_request *pending = broker->pending;

    while (pending && pending->op == OP_BUILD)
        pending = pending->next;
    return pending != NULL;
}

/* What the last server left. */
static void recover(struct broker *broker)
{
    struct cay_error error = {0};

    if (catalog_open(broker->registry, &error) != CAY_OK && broker->log_error)
        broker->log_error("the templates cannot be read", &error);
    broker_reconcile(broker);
    broker_reconcile_snapshots(broker);
    shared_reconcile_templates(broker);
    usage_open(broker);
    journal_open(broker);
    broker->is_keeper_lost = true;
    index_open(broker);
    broker_expire(broker);
}

/* How long to wait for events; -1: until there is one. */
static int wait_time(const struct broker *broker)
{
    int64_t left_ms = broker->drain_end_ms - (int64_t)clock_ms();
    int wait_ms = broker->drain_end_ms        ? (left_ms > 0 ? (int)left_ms : 0)
                  : keepers_want_next(broker) ? KEEPERS_QUIET_MS
                  : broker->front_beats       ? HEARTBEAT_MS
                                              : -1;

    return broker->front_beats && wait_ms > HEARTBEAT_MS ? HEARTBEAT_MS : wait_ms;
}

/* All but the front, which may have to finish. */
static void end_processes(struct broker *broker)
{
    while (broker->keepers)
        keepers_drop(broker, broker->keepers);
    if (broker->pool.socket >= 0)
        (void)close(broker->pool.socket); /* it ends its spares and exits */
    if (broker->hooks.socket >= 0)
        (void)close(broker->hooks.socket); /* it exits */
    index_close(broker);
    journal_close(broker);
    usage_close(broker);
    keepers_free_dropped(broker);
    broker_retry_writes(broker);
}

void broker_run(struct broker *broker, int (*restart_front)(struct broker *broker))
{
    recover(broker);
    notify_send("READY=1");
    while (!broker->is_over && restart_if_gone(broker, restart_front)) {
        struct epoll_event events[EVENTS];
        int wait_ms = wait_time(broker);
        int count = epoll_wait(broker->epoll, events, EVENTS, wait_ms);
        notify_watchdog();
        broker->events = events;
        broker->event_count = count > 0 ? count : 0;
        for (int i = 0; i < count; i++) {
            struct source *source = events[i].data.ptr;
            if (source)
                source->ready(broker, source);
        }
        broker->event_count = 0;
        if (count == 0)
            keepers_start_next(broker);
        keepers_free_dropped(broker);
        if (broker->drain_end_ms && ((broker->front < 0 && !has_work(broker)) ||
                                     (int64_t)clock_ms() >= broker->drain_end_ms))
            broker->is_over = true; /* all requests are finished, or out of time */
        check_front(broker);
        if (!broker->drain_end_ms && node_is_empty(broker))
            drain(broker);
    }
    end_processes(broker);
    end_front(broker);
}

/* --- Supervision of the front --- */

bool heartbeat_check(struct heartbeat *heartbeat, uint64_t beats, uint64_t cpu_ns)
{
    if (beats != heartbeat->beats)
        heartbeat->missed = 0;
    else
        heartbeat->missed += cpu_ns == heartbeat->cpu_ns ? HEARTBEAT_IDLE : 1;
    heartbeat->beats = beats;
    heartbeat->cpu_ns = cpu_ns;
    if (heartbeat->missed < HEARTBEAT_MISSED)
        return false;
    heartbeat->missed = 0;
    return true;
}

uint64_t heartbeat_cpu_ns(pid_t pid)
{
    struct timespec used;
    clockid_t clock;

    if (pid <= 0 || clock_getcpuclockid(pid, &clock) != 0 ||
        clock_gettime(clock, &used) != 0)
        return 0;
    return (uint64_t)used.tv_sec * 1000000000 + (uint64_t)used.tv_nsec;
}

bool restarts_allowed(struct restarts *restarts, int64_t now_ms)
{
    uint64_t count = restarts->count++;
    int64_t *oldest = &restarts->started_ms[count % RESTARTS_MAX];
    bool is_often = count >= RESTARTS_MAX && now_ms - *oldest < RESTARTS_MS;

    if (count > 0) {
        int64_t last = restarts->started_ms[(count - 1) % RESTARTS_MAX];
        restarts->deaths = now_ms - last < ALIVE_MS ? restarts->deaths + 1 : 0;
    }
    *oldest = now_ms;
    return !is_often && restarts->deaths < DEATHS_MAX;
}
