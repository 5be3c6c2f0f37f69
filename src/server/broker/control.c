/* SPDX-License-Identifier: Apache-2.0 */

/* The control plane: requests with an API key about an existing sandbox. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "server/broker/broker.h"
#include "server/broker/journal.h"
#include "server/broker/return.h"
#include "server/broker/shared.h"

enum {
    REMEMBERED_MS = 24 * 3600 * 1000,
    KILL_PATIENCE_MS = 2000 /* for a busy keeper, before it is killed */
};

void broker_reply_done(struct request_packet *request)
{
    (void)reply_send_done(request->channel);
    request_packet_done(request);
}

bool control_check_timeout(struct broker *broker, struct request_packet *request,
                           int64_t seconds)
{
    char message[96];

    if (seconds <= (int64_t)broker->options->max_timeout_s && seconds >= -1)
        return true;
    snprintf(message, sizeof message, "Timeout cannot be greater than %u hours",
             broker->options->max_timeout_s / 3600);
    broker_refuse(request, 400, CAY_E_INVALID,
                  seconds < -1 ? "Timeout is negative" : message,
                  "give a timeout between 0 and the limit of this server");
    return false;
}

bool control_check_rules(struct broker *broker, struct request_packet *request,
                         const char *const *rules, int64_t count)
{
    enum cay_network internet = broker->options->internet;
    bool allows = false;

    for (int64_t i = 0; i < count; i++)
        allows |= rules[i][0] != '!';
    if (internet == CAY_NETWORK_OPEN || !count ||
        (internet != CAY_NETWORK_HOST && !allows))
        return true;
    if (internet == CAY_NETWORK_RULES)
        broker_refuse(request, 400, CAY_E_DENIED,
                      "the server decides what sandboxes reach: allowOut is not allowed",
                      "leave it out; denyOut can deny more");
    else
        broker_refuse(request, 501, CAY_E_UNSUPPORTED,
                      "network rules are not supported by this server",
                      "start it with --internet open");
    return false;
}

void control_set_end(struct broker *broker, struct record_row *row, int64_t seconds)
{
    row->end_ms = server_clock_ms() + seconds * 1000;
    broker_wake_at(broker, row->end_ms);
}

/* --- Results --- */

static int killed(struct broker *broker, struct broker_request *pending,
                  const struct reply_packet *reply, struct cay_error *err)
{
    (void)reply;
    (void)err;
    pending->row.state = RECORD_GONE;
    pending->row.end_ms = server_clock_ms();
    stats_count_end(&broker->stats, pending->row.reason);
    broker_write_record(broker, &pending->row);
    journal_write_row(broker, "sandbox.end", pending->id, &pending->row, "reason",
                      pending->row.reason);
    index_reply(broker, &pending->client, pending->row.id, INDEX_REPLY_DONE);
    (void)registry_forget(broker->registry, server_clock_ms() - REMEMBERED_MS, NULL);
    return CAY_OK;
}

static int paused(struct broker *broker, struct broker_request *pending,
                  const struct reply_packet *reply, struct cay_error *err)
{
    (void)reply;
    (void)err;
    pending->row.state = RECORD_PAUSED;
    broker_write_record(broker, &pending->row);
    journal_write_row(broker, "sandbox.paused", pending->id, &pending->row, NULL, NULL);
    index_reply(broker, &pending->client, pending->row.id, INDEX_REPLY_DONE);
    return CAY_OK;
}

bool control_is_cold(const struct broker *broker, const struct record_row *row)
{
    const struct broker_request *pause = broker_request_find(broker, OP_PAUSE, row->id);

    return pause ? pause->is_cold : row->flags & RECORD_COLD;
}

/* The rules are in force.  The row may have changed meanwhile. */
static int network_changed(struct broker *broker, struct broker_request *pending,
                           const struct reply_packet *reply, struct cay_error *err)
{
    AUTO_RECORD now = RECORD_INIT;

    (void)reply;
    TRY(broker_find_record(broker, pending->row.id, &now, err));
    now.flags =
        (now.flags & ~(uint32_t)CREATE_INTERNET) | (pending->row.flags & CREATE_INTERNET);
    buf_done(&now.metadata);
    now.metadata = pending->row.metadata;
    pending->row.metadata = (struct buf){0};
    TRY(registry_set_metadata(broker->registry, now.id, &now.metadata, err));
    broker_write_record(broker, &now);
    broker_confirm(broker, &now); /* with a new note */
    if (pending->client >= 0)
        (void)reply_send_done(pending->client);
    return CAY_OK;
}

static int64_t seconds_until(int64_t end_ms)
{
    int64_t left_ms = end_ms - server_clock_ms();

    return left_ms > 0 ? (left_ms + 999) / 1000 : 1;
}

static int resumed(struct broker *broker, struct broker_request *pending,
                   const struct reply_packet *reply, struct cay_error *err)
{
    struct record_row *row = &pending->row;
    AUTO_RECORD now = RECORD_INIT;

    (void)reply;
    (void)err;
    bool is_awake = broker_find_record(broker, row->id, &now, NULL) == CAY_OK &&
                    now.state == RECORD_RUNNING;
    bool was_cold = row->flags & RECORD_COLD || pending->is_cold;
    row->state = RECORD_RUNNING;
    row->flags &= ~(uint32_t)RECORD_COLD;
    if (is_awake && now.end_ms > server_clock_ms() + pending->timeout_s * 1000) {
        /* A concurrent request has resumed the sandbox with a later end: keep that, and
         * set the sandbox's own TTL, which was just set from this request. */
        row->end_ms = now.end_ms;
        control_start(broker, OP_TIMEOUT, row, NULL, "", seconds_until(row->end_ms));
    } else {
        control_set_end(broker, row, pending->timeout_s);
    }
    broker_write_record(broker, row);
    journal_write_row(broker, "sandbox.resumed", pending->id, row, NULL, NULL);
    if (was_cold)
        broker_confirm(broker, row); /* it has no note */
    index_mark(broker, row->id, pending->claim);
    pending->claim = 0;
    index_reply(broker, &pending->client, row->id, INDEX_REPLY_RESUMED);
    if (pending->held)
        broker_forward(broker, pending->held, pending->row.id);
    return CAY_OK;
}

/* --- Existing sandboxes --- */

static bool find(struct broker *broker, struct request_packet *request,
                 const char *tenant, struct record_row *row)
{
    char message[160] = "invalid sandbox id (lower-case letters and digits)";
    struct cay_error error;
    bool is_id = record_is_id(request->head.sandbox);
    int code = is_id ? broker_find_record(broker, request->head.sandbox, row, &error)
                     : CAY_E_NOT_FOUND;
    bool known = !code && strcmp(row->tenant, tenant) == 0;
    const char *reason = known ? broker_end_reason(broker, row) : "does not exist";

    if (!reason)
        return true;
    if (code && code != CAY_E_NOT_FOUND) {
        broker_refuse(request, 503, code, error.message, error.hint);
        return false;
    }
    if (is_id)
        snprintf(message, sizeof message, "sandbox \"%s\" %s", request->head.sandbox,
                 reason);
    if (code == CAY_E_NOT_FOUND && request->head.op == OP_KILL &&
        index_is_lost(broker, request->head.sandbox))
        index_kill_lost(broker, request, tenant);
    else if (code == CAY_E_NOT_FOUND && request->head.op == OP_CONNECT &&
             return_start(broker, request, tenant))
        return false;
    else if (code == CAY_E_NOT_FOUND)
        node_refuse(broker, request, 404, message, "list the sandboxes");
    else
        broker_refuse(request, 404, CAY_E_NOT_FOUND, message, "list the sandboxes");
    return false;
}

/* Sends the timeout that the row has now. */
static void set_timeout_again(struct broker *broker, struct broker_request *pending)
{
    AUTO_RECORD row = RECORD_INIT;

    if (broker_find_record(broker, pending->row.id, &row, NULL) == CAY_OK &&
        row.state == RECORD_RUNNING)
        broker_request_send(broker, pending,
                            row.flags & CREATE_AUTO_PAUSE ? 0
                                                          : seconds_until(row.end_ms));
    else
        broker_request_free(broker, pending);
}

static void send_resume(struct broker *broker, struct broker_request *pending)
{
    struct request request = {.numbers = {[TIMEOUT_SECONDS] = pending->number},
                              .flags = pending->is_cold ? PAUSE_COLD : 0};
    AUTO_BUF strings = {.max = CHANNEL_STRINGS};

    if (pending->row.flags & RECORD_COLD)
        request.count = broker_add_start(broker, &pending->row, &strings);
    broker_request_send_to(broker, pending, &request, &strings);
}

static void start(struct broker *broker, enum op op, struct record_row *row,
                  struct request_packet *request, const char *reason, int64_t seconds,
                  bool cold)
{
    struct broker_request *pending = broker_request_new(broker, op, row, request);

    if (!pending)
        return;
    pending->done = op == OP_KILL     ? killed
                    : op == OP_PAUSE  ? paused
                    : op == OP_RESUME ? resumed
                                      : NULL;
    pending->retry = op == OP_TIMEOUT  ? set_timeout_again
                     : op == OP_RESUME ? send_resume
                                       : broker_request_resend;
    pending->timeout_s = seconds;
    pending->is_cold = cold;
    if (op == OP_RESUME) {
        pending->claim = broker->claim;
        pending->claim_count = 1;
        broker->claim = 0;
    }
    cay_copy_text(pending->row.reason, REASON_MAX, reason);
    if (op == OP_KILL) {
        pending->force_ms = server_clock_ms() + KILL_PATIENCE_MS;
        broker_wake_at(broker, pending->force_ms);
    }
    /* A sandbox that the broker pauses at its end must not kill itself. */
    bool sets_ttl = op == OP_TIMEOUT || op == OP_RESUME;
    pending->number = sets_ttl && !(row->flags & CREATE_AUTO_PAUSE) ? seconds : 0;
    (op == OP_RESUME ? send_resume : broker_request_resend)(broker, pending);
}

void control_start(struct broker *broker, enum op op, struct record_row *row,
                   struct request_packet *request, const char *reason, int64_t seconds)
{
    start(broker, op, row, request, reason, seconds, false);
}

/* The row has the flag before the sandbox is stopped: a server that is killed in between
 * must not take it for one that has ended. */
static void set_cold(struct broker *broker, struct record_row *row)
{
    row->flags |= RECORD_COLD;
    broker_write_record(broker, row);
}

void control_pause(struct broker *broker, struct record_row *row,
                   struct request_packet *request, bool cold)
{
    if (cold)
        set_cold(broker, row);
    start(broker, OP_PAUSE, row, request, "", 0, cold);
}

void control_pause_failed(struct broker *broker, const char *id)
{
    AUTO_RECORD row = RECORD_INIT;

    if (broker_find_record(broker, id, &row, NULL) != CAY_OK ||
        row.state != RECORD_RUNNING)
        return;
    row.flags &= ~(uint32_t)RECORD_COLD;
    broker_write_record(broker, &row);
}

/* `cold`: a sandbox that was paused with its memory loses that. */
static void resume(struct broker *broker, struct record_row *row,
                   struct request_packet *request, int64_t seconds, bool cold)
{
    if (cold)
        set_cold(broker, row);
    start(broker, OP_RESUME, row, request, "", seconds, cold);
}

static void set_timeout(struct broker *broker, struct record_row *row, int64_t seconds)
{
    control_set_end(broker, row, seconds);
    broker_write_record(broker, row);
    control_start(broker, OP_TIMEOUT, row, NULL, "", seconds);
}

bool control_is_paused(const struct broker *broker, const struct record_row *row)
{
    return row->state == RECORD_PAUSED || broker_request_find(broker, OP_PAUSE, row->id);
}

/* A running sandbox only gets more time. */
static void connect_to(struct broker *broker, struct request_packet *request,
                       struct record_row *row)
{
    int64_t seconds = request->head.numbers[TIMEOUT_SECONDS];

    if (!control_check_timeout(broker, request, seconds))
        return;
    if (seconds < 0)
        seconds = DEFAULT_LONG_TIMEOUT_S;
    if (control_is_paused(broker, row)) {
        resume(broker, row, request, seconds, request->head.flags & PAUSE_COLD);
        return;
    }
    if (server_clock_ms() + seconds * 1000 > row->end_ms)
        set_timeout(broker, row, seconds);
    (void)broker_reply_sandbox(broker, request->channel, row, false);
    request_packet_done(request);
}

static void change_timeout(struct broker *broker, struct request_packet *request,
                           struct record_row *row)
{
    int64_t seconds = request->head.numbers[TIMEOUT_SECONDS];

    if (!control_check_timeout(broker, request, seconds))
        return;
    bool only_more = request->head.op == OP_REFRESH;
    if (seconds < 0)
        seconds = DEFAULT_TIMEOUT_S;
    if (control_is_paused(broker, row)) {
        broker_refuse(request, 409, CAY_E_BUSY, "the sandbox is paused",
                      "connect to it first");
        return;
    }
    if (!only_more || server_clock_ms() + seconds * 1000 > row->end_ms)
        set_timeout(broker, row, seconds);
    broker_reply_done(request);
}

static void pause_or_resume(struct broker *broker, struct request_packet *request,
                            struct record_row *row)
{
    bool pauses = request->head.op == OP_PAUSE;
    int64_t seconds = request->head.numbers[TIMEOUT_SECONDS];

    if (control_is_paused(broker, row) == pauses) {
        char message[96];
        snprintf(message, sizeof message, "Sandbox '%s' is %s", row->id,
                 pauses ? "already paused" : "already running");
        broker_refuse(request, 409, CAY_E_BUSY, message, "");
    } else if (pauses) {
        control_pause(broker, row, request, request->head.flags & PAUSE_COLD);
    } else if (control_check_timeout(broker, request, seconds)) {
        resume(broker, row, request, seconds < 0 ? DEFAULT_TIMEOUT_S : seconds,
               request->head.flags & PAUSE_COLD);
    }
}

/* Replaces the value of a hidden key. */
static void set_hidden(struct buf *metadata, const char *key, const char *value)
{
    struct buf old = *metadata;

    buf_init(metadata, METADATA_MAX);
    for (const char *at = old.data, *end = at + old.len; at && at < end;) {
        const char *next = at + strlen(at) + 1;
        if (strcmp(at, key) != 0) {
            strings_add(metadata, at);
            strings_add(metadata, next);
        }
        at = next + strlen(next) + 1;
    }
    strings_add(metadata, key);
    strings_add(metadata, value);
    buf_done(&old);
}

static void change_network(struct broker *broker, struct request_packet *request,
                           struct record_row *row)
{
    AUTO_FREE char *room = NULL;
    AUTO_FREE const char **strings = request_strings(request, &room);
    AUTO_BUF sent = {.max = CHANNEL_STRINGS};
    struct request head = {.flags = request->head.flags & CREATE_INTERNET,
                           .count = request->head.count,
                           .numbers = {[NETWORK_ASK_MS] = broker_ask_ms(row)}};

    if (!strings) {
        broker_refuse(request, 400, CAY_E_INVALID, "the request is malformed", "");
        return;
    }
    if (control_is_paused(broker, row)) {
        broker_refuse(request, 409, CAY_E_BUSY, "the sandbox is paused",
                      "connect to it first");
        return;
    }
    if (broker->options->internet <= CAY_NETWORK_HOST) {
        broker_refuse(request, 501, CAY_E_UNSUPPORTED,
                      "network rules are not supported by this server",
                      "start it with --internet open");
        return;
    }
    int64_t header_count = request->head.numbers[NETWORK_HEADERS];
    if (header_count < 0 || header_count % 3 || header_count > head.count - 1) {
        broker_refuse(request, 400, CAY_E_INVALID, "the request is malformed", "");
        return;
    }
    uint32_t rules_end = head.count - (uint32_t)header_count;
    AUTO_BUF headers = {.max = CHANNEL_PACKET};
    if (!control_check_rules(broker, request, strings + 1, rules_end - 1) ||
        !broker_add_headers(broker, request, row->tenant, strings + rules_end,
                            header_count, &headers))
        return;
    struct broker_request *pending = broker_request_new(broker, OP_NETWORK, row, request);
    if (!pending)
        return;
    pending->done = network_changed;
    pending->row.flags = head.flags;
    set_hidden(&pending->row.metadata, RECORD_EGRESS, strings[0]);
    for (uint32_t i = 0; i < rules_end; i++)
        strings_add(&sent, strings[i]);
    (void)buf_append(&sent, headers.data, headers.len);
    head.numbers[NETWORK_HEADERS] = header_count / 3 * 4;
    head.count = rules_end + (uint32_t)head.numbers[NETWORK_HEADERS];
    broker_request_send_to(broker, pending, &head, &sent);
    explicit_bzero(sent.data, sent.len);
    if (headers.data)
        explicit_bzero(headers.data, headers.len);
}

void control_resume_for(struct broker *broker, struct request_packet *request,
                        const struct record_row *row)
{
    struct broker_request *pending = broker_request_new(broker, OP_RESUME, row, NULL);
    struct request_packet *held = malloc(sizeof *held);

    if (!pending || !held) {
        free(held);
        if (pending)
            broker_request_free(broker, pending);
        request_packet_done(request);
        return;
    }
    memcpy(held, request, sizeof *held);
    request->channel = request->memfd = -1;
    pending->held = held;
    pending->claim = broker->claim;
    pending->claim_count = 1;
    broker->claim = 0;
    pending->done = resumed;
    pending->retry = broker_request_resend;
    pending->timeout_s = DEFAULT_LONG_TIMEOUT_S;
    broker_request_send(broker, pending,
                        row->flags & CREATE_AUTO_PAUSE ? 0 : DEFAULT_LONG_TIMEOUT_S);
}

/* --- Dispatch --- */

/* False: it is about one sandbox. */
static bool handle_of_tenant(struct broker *broker, struct request_packet *request,
                             const char *tenant)
{
    enum op op = (enum op)request->head.op;

    if (shared_sync(broker, request, tenant))
        return true;
    if (op == OP_CREATE)
        broker_create(broker, request, tenant);
    else if (op == OP_LIST)
        broker_list(broker, request, tenant);
    else if (op >= OP_TEMPLATE && op <= OP_UPLOAD_LINK)
        broker_handle_template(broker, request, tenant);
    else if (op == OP_CHECK)
        broker_reply_done(request);
    else if (op == OP_MCP || op == OP_MCP_REMOVE)
        broker_start_mcp(broker, request, tenant);
    else if (op == OP_STATS)
        broker_send_stats(broker, request);
    else if (op == OP_SAMPLES)
        usage_send_latest(broker, request, tenant);
    else if (op == OP_SNAPSHOTS)
        broker_list_snapshots(broker, request, tenant);
    else if (op >= OP_SECRETS && op <= OP_SECRET_REMOVE)
        broker_handle_secret(broker, request, tenant);
    else if (op >= OP_KEYS && op <= OP_TENANTS)
        broker_handle_keys(broker, request, tenant);
    else if (op >= OP_VOLUMES && op <= OP_VOLUME_REMOVE)
        broker_handle_volume(broker, request, tenant);
    else if (op >= OP_APPROVALS && op <= OP_APPROVAL_RULE_REMOVE)
        broker_handle_approval(broker, request, tenant);
    else
        return false;
    return true;
}

void control_handle(struct broker *broker, struct request_packet *request,
                    const char *tenant)
{
    AUTO_RECORD row = RECORD_INIT;
    enum op op = (enum op)request->head.op;

    if (handle_of_tenant(broker, request, tenant) || !find(broker, request, tenant, &row))
        return;
    if (op == OP_CONNECT)
        connect_to(broker, request, &row);
    else if (op == OP_KILL)
        control_start(broker, OP_KILL, &row, request, "was killed", 0);
    else if (op == OP_TIMEOUT || op == OP_REFRESH)
        change_timeout(broker, request, &row);
    else if (op == OP_PAUSE || op == OP_RESUME)
        pause_or_resume(broker, request, &row);
    else if (op == OP_SNAPSHOT)
        broker_create_snapshot(broker, request, &row);
    else if (op == OP_FORK)
        broker_fork(broker, request, &row);
    else if (op == OP_NETWORK)
        change_network(broker, request, &row);
    else if (op == OP_INFO) {
        (void)broker_reply_sandbox(broker, request->channel, &row, false);
        request_packet_done(request);
    } else if (op >= OP_CHECKPOINTS && op <= OP_DIFF && control_is_paused(broker, &row))
        broker_refuse(request, 409, CAY_E_BUSY, "the sandbox is paused",
                      "connect to it first");
    else if (op == OP_LOGS)
        journal_send_logs(broker, request, row.id);
    else { /* only the keeper can answer */
        if (op == OP_USAGE)
            usage_send_history(broker, request, row.id);
        broker_forward(broker, request, row.id);
    }
}
