/* SPDX-License-Identifier: Apache-2.0 */
#include "server/broker/journal.h"

#include <linux/sockios.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"
#include "server/broker/audit.h"
#include "server/broker/history.h"
#include "server/wire/samples.h"
#include "json/json.h"

enum {
    DETAILS = 4, /* of a request */
    DETAIL_MAX = 512,
    FIELDS_MAX = 16 << 10,  /* each byte of a detail may be escaped with six */
    REFUSALS_A_SECOND = 10, /* of unknown clients, who could fill the disk */
    DAY_MS = 24 * 3600 * 1000,
    LOGS_A_DAY = 1 << 30 /* bytes of all logs */
};

/* What a tenant has written on a day.  It gets no more of what is left than it had, so
 * that the others always have space: neither the audit record nor the logs can be
 * silenced by a tenant, and not by a program in a sandbox with what it connects to. */
enum share_kind { SHARE_AUDIT, SHARE_AUDIT_NETWORK, SHARE_LOGS };
struct share {
    struct share *next;
    enum share_kind kind;
    char tenant[TENANT_MAX]; /* "": unknown clients */
    int64_t day;
    uint64_t bytes;
    bool has_gap; /* a line of the day was left out */
};

/* A request that is being handled. */
struct journal_note {
    const char *action; /* NULL: it changes nothing */
    bool is_accepted;   /* it has an entry */
    char tenant[TENANT_MAX];
    const char *keys[DETAILS];
    char values[DETAILS][DETAIL_MAX];
    size_t count;
};

struct journal {
    struct audit *audit; /* NULL: none */
    struct journal_note note;
    int64_t second; /* of the last refusals of unknown clients */
    unsigned refusals;
    uint64_t left_out;
    struct share *shares;
    int64_t logs_day;
    uint64_t logs_bytes; /* on that day */
    uint64_t restarts;   /* of the broker, without an end of the one before */
};

/* --- Shares --- */

static struct share *find_share(struct journal *journal, enum share_kind kind,
                                const char *tenant, int64_t day)
{
    struct share *share = journal->shares;

    while (share && (share->kind != kind || strcmp(share->tenant, tenant) != 0))
        share = share->next;
    if (!share && (share = calloc(1, sizeof *share))) {
        share->kind = kind;
        cay_copy_text(share->tenant, sizeof share->tenant, tenant);
        share->next = journal->shares;
        journal->shares = share;
    }
    if (share && share->day != day) {
        share->day = day;
        share->bytes = 0;
        share->has_gap = false;
    }
    return share;
}

/* Whether the tenant may write so many bytes, of which `room` are left for all. */
static bool take_share(struct journal *journal, enum share_kind kind, const char *tenant,
                       int64_t now_ms, size_t len, uint64_t room)
{
    struct share *share =
        find_share(journal, kind, tenant ? tenant : "", now_ms / DAY_MS);

    if (!share || share->bytes + len > room) {
        journal->left_out++;
        return false;
    }
    share->bytes += len;
    return true;
}

static bool may_log(struct journal *journal, const char *tenant, int64_t now_ms,
                    size_t len)
{
    if (journal->logs_day != now_ms / DAY_MS) {
        journal->logs_day = now_ms / DAY_MS;
        journal->logs_bytes = 0;
    }
    if (!take_share(journal, SHARE_LOGS, tenant, now_ms, len,
                    LOGS_A_DAY - journal->logs_bytes))
        return false;
    journal->logs_bytes += len;
    return true;
}

static enum share_kind kind_of(const struct journal_entry *entry)
{
    static const char network[] = "network.";

    return strncmp(entry->action, network, strlen(network)) == 0 ? SHARE_AUDIT_NETWORK
                                                                 : SHARE_AUDIT;
}

/* The server's own lines are few. */
static bool may_record(struct journal *journal, const struct journal_entry *entry,
                       int64_t now_ms, size_t len)
{
    enum share_kind kind = kind_of(entry);

    return (!entry->tenant && !entry->request) ||
           take_share(journal, kind, entry->tenant, now_ms, len,
                      audit_room(journal->audit, now_ms) /
                          (kind == SHARE_AUDIT_NETWORK ? 4 : 1));
}

/* --- Entries --- */

static void put_request(struct json *json, uint64_t id)
{
    char name[REQUEST_NAME];

    if (!id)
        return;
    request_name(id, name);
    json_set_text(json, "request", name);
}

static const char *verdict_of(const struct journal_entry *entry)
{
    unsigned status = entry->status;

    if (entry->verdict)
        return entry->verdict;
    return !status ? "allow" : status == 401 || status == 403 ? "deny" : "fail";
}

static void put_details(struct json *json, const struct journal_entry *entry)
{
    char text[DETAIL_MAX];

    for (const char *const *at = entry->details; at && at[0]; at += 2) {
        cay_copy_text(text, sizeof text, at[1]);
        json_set_text(json, at[0], text);
    }
}

/* "process.start: /bin/bash -l -c true" */
static void write_log(struct broker *broker, const struct journal_entry *entry,
                      int64_t now_ms)
{
    struct history *history = usage_history(broker);
    AUTO_BUF fields = {.max = FIELDS_MAX};
    AUTO_BUF message = {.max = 2 * DETAIL_MAX};
    enum log_level level = entry->level    ? entry->level
                           : entry->status ? LOG_LEVEL_WARN
                                           : LOG_LEVEL_INFO;
    struct json json;

    if (!history || !entry->sandbox || !*entry->sandbox)
        return;
    json_to_unicode(&json, &fields);
    json_put_object(&json);
    json_set_text(&json, "action", entry->action);
    json_set_text(&json, "verdict", verdict_of(entry));
    put_request(&json, entry->request);
    put_details(&json, entry);
    json_put_end(&json);
    (void)buf_text(&message, entry->action);
    if (entry->details && entry->details[0]) {
        char text[DETAIL_MAX];
        cay_copy_text(text, sizeof text, entry->details[1]);
        buf_format(&message, ": %s", text);
    }
    if (entry->status)
        buf_format(&message, " (refused with %u)", entry->status);
    if (json_finish(&json) && !message.failed &&
        may_log(broker->journal, entry->tenant, now_ms, message.len + fields.len))
        history_add_log(history, entry->sandbox, now_ms, (int)level, message.data,
                        fields.data);
}

static void put_time(struct json *json, int64_t now_ms)
{
    time_t now = (time_t)(now_ms / 1000);
    char text[40];
    struct tm tm;

    gmtime_r(&now, &tm);
    size_t len = strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(text + len, sizeof text - len, ".%03dZ", (int)(now_ms % 1000));
    json_set_text(json, "time", text);
}

static void write_audit(const struct broker *broker, const struct journal_entry *entry,
                        int64_t now_ms);

/* A tenant that writes much must not have its next actions missing unnoticed: the record
 * itself says from where on it lacks lines of the day. */
static void note_gap(const struct broker *broker, const struct journal_entry *entry,
                     int64_t now_ms)
{
    const char *tenant = entry->tenant ? entry->tenant : "";
    enum share_kind kind = kind_of(entry);
    struct share *share = find_share(broker->journal, kind, tenant, now_ms / DAY_MS);
    const char *const details[] = {"of", tenant, "lines",
                                   kind == SHARE_AUDIT_NETWORK ? "network" : "requests",
                                   NULL};

    if (!share || share->has_gap)
        return;
    share->has_gap = true;
    write_audit(broker,
                &(struct journal_entry){
                    .action = "audit.gap", .verdict = "fail", .details = details},
                now_ms);
}

static void write_audit(const struct broker *broker, const struct journal_entry *entry,
                        int64_t now_ms)
{
    struct audit *audit = broker->journal->audit;
    AUTO_BUF text = {.max = FIELDS_MAX};
    struct json json;

    if (!audit)
        return;
    json_to_unicode(&json, &text);
    json_put_object(&json);
    put_time(&json, now_ms);
    json_set_text(&json, "actor", entry->request ? "client" : "server");
    json_set_text(&json, "tenant", entry->tenant);
    put_request(&json, entry->request);
    json_set_text(&json, "action", entry->action);
    json_set_text(&json, "sandbox", entry->sandbox);
    json_set_text(&json, "verdict", verdict_of(entry));
    if (entry->status)
        json_set_int(&json, "status", entry->status);
    json_put_key(&json, "details");
    json_put_object(&json);
    put_details(&json, entry);
    json_put_end(&json);
    json_put_end(&json);
    if (!json_finish(&json) || text.failed || text.len < 2) {
        audit_count_failure(audit);
        return;
    }
    text.data[text.len - 1] = '\0'; /* without its braces */
    if (may_record(broker->journal, entry, now_ms, text.len + 2 * AUDIT_HASH))
        audit_append(audit, now_ms, text.data + 1);
    else
        note_gap(broker, entry, now_ms);
}

void journal_write(struct broker *broker, const struct journal_entry *entry)
{
    int64_t now_ms = clock_since_1970_ms();

    if (!broker->journal)
        return;
    write_log(broker, entry, now_ms);
    write_audit(broker, entry, now_ms);
}

void journal_write_row(struct broker *broker, const char *action, uint64_t request,
                       const struct record_row *row, const char *key, const char *value)
{
    const char *const details[] = {key, value, NULL};
    bool is_failure = strcmp(row->reason, "ran out of memory") == 0;

    index_event(broker, action, row);
    journal_write(broker, &(struct journal_entry){.action = action,
                                                  .tenant = row->tenant,
                                                  .sandbox = row->id,
                                                  .request = request,
                                                  .level = is_failure ? LOG_LEVEL_ERROR
                                                                      : LOG_LEVEL_INFO,
                                                  .details = details});
}

/* --- Requests --- */

/* Names of the first strings of each request.  Values of secrets are not among them. */
static const struct {
    const char *action;
    const char *keys[2];
} actions[OP_COUNT] = {
    [OP_CREATE] = {"sandbox.create", {"template"}},
    [OP_CONNECT] = {"sandbox.connect"},
    [OP_KILL] = {"sandbox.kill"},
    [OP_TIMEOUT] = {"sandbox.timeout"},
    [OP_REFRESH] = {"sandbox.timeout"},
    [OP_PAUSE] = {"sandbox.pause"},
    [OP_RESUME] = {"sandbox.resume"},
    [OP_FORK] = {"sandbox.fork"},
    [OP_SNAPSHOT] = {"sandbox.snapshot", {"name"}},
    [OP_CHECKPOINT] = {"sandbox.checkpoint", {"name"}},
    [OP_ROLLBACK] = {"sandbox.rollback", {"checkpoint"}},
    [OP_NETWORK] = {"sandbox.network"},
    [OP_SESSION_NEW] = {"session.begin"},
    [OP_SESSION_END] = {"session.end"},
    [OP_TEMPLATE_NEW] = {"template.create", {"name"}},
    [OP_TEMPLATE_REMOVE] = {"template.remove", {"name"}},
    [OP_TAGS_SET] = {"template.tag", {"name"}},
    [OP_TAGS_REMOVE] = {"template.untag", {"name"}},
    [OP_BUILD] = {"template.build", {"template", "build"}},
    [OP_SECRET_SET] = {"secret.set", {"name"}},
    [OP_SECRET_REMOVE] = {"secret.remove", {"name"}},
    [OP_KEY_NEW] = {"key.create", {"name", "of"}},
    [OP_KEY_NAME] = {"key.rename", {"key", "name"}},
    [OP_KEY_REMOVE] = {"key.remove", {"key", "of"}},
    [OP_VOLUME_CREATE] = {"volume.create", {"name"}},
    [OP_VOLUME_REMOVE] = {"volume.remove", {"name"}},
    [OP_APPROVAL_DECIDE] = {"approval.decide", {"id", "approval"}},
    [OP_APPROVAL_RULE_REMOVE] = {"approval.rule.remove", {"id"}},
    [OP_MCP] = {"mcp.start", {"name"}},
    [OP_MCP_REMOVE] = {"mcp.remove", {"name"}},
    [OP_START] = {"process.start"},
    [OP_SIGNAL] = {"process.signal", {"process"}},
    [OP_EXECUTE] = {"code.run"},
    [OP_MAKE_DIR] = {"file.make_dir", {"path"}},
    [OP_MOVE] = {"file.move", {"from", "to"}},
    [OP_REMOVE] = {"file.remove", {"path"}},
    [OP_WRITE_FILE] = {"file.write"},
    [OP_CONTENT_CHANGE] = {"volume.file.change", {"volume", "path"}},
    [OP_CONTENT_REMOVE] = {"volume.file.remove", {"volume", "path"}},
    [OP_CONTENT_MAKE_DIR] = {"volume.file.make_dir", {"volume", "path"}},
    [OP_CONTENT_WRITE] = {"volume.file.write", {"volume", "path"}},
};

void journal_write_failure(struct broker *broker, const struct broker_request *pending,
                           int status, const char *message)
{
    const char *action = actions[pending->op].action;
    const char *const details[] = {"error", message, NULL};

    if (action)
        journal_write(broker, &(struct journal_entry){.action = action,
                                                      .tenant = pending->row.tenant,
                                                      .sandbox = pending->row.id,
                                                      .request = pending->id,
                                                      .status = (unsigned)status,
                                                      .details = details});
}

static char *add_detail(struct journal_note *note, const char *key, const char *value)
{
    char *room = note->values[note->count];

    note->keys[note->count++] = key;
    cay_copy_text(room, DETAIL_MAX, value);
    return room;
}

/* The command line, with spaces between its words. */
static void add_command(struct journal_note *note, const struct request *head,
                        const char *const *strings)
{
    int64_t count = head->numbers[START_ARGS];
    size_t len = 0;
    char *text = add_detail(note, "command", "");

    if (count < 0 || count > (int64_t)head->count - 2)
        return;
    for (int64_t i = 0; i < count && len < DETAIL_MAX - 1; i++) {
        int got =
            snprintf(text + len, DETAIL_MAX - len, "%s%s", i ? " " : "", strings[2 + i]);
        len += got > 0 ? (size_t)got : 0;
    }
    if (*strings[0])
        (void)add_detail(note, "directory", strings[0]);
}

static void add_number(struct journal_note *note, const char *key, int64_t number)
{
    char text[32];

    snprintf(text, sizeof text, "%lld", (long long)number);
    (void)add_detail(note, key, text);
}

static void add_details(struct journal_note *note, const struct request_packet *request)
{
    const struct request *head = &request->head;
    const int64_t *numbers = head->numbers;
    AUTO_FREE char *room = NULL;
    AUTO_FREE const char **strings = request_strings(request, &room);

    if (!strings)
        return;
    for (uint32_t i = 0; i < 2 && i < head->count && actions[head->op].keys[i]; i++)
        (void)add_detail(note, actions[head->op].keys[i], strings[i]);
    if (head->op == OP_START)
        add_command(note, head, strings);
    else if (head->op == OP_WRITE_FILE && numbers[FILE_METADATA] >= 0 &&
             numbers[FILE_METADATA] < head->count / 2)
        (void)add_detail(note, "path", strings[2 * numbers[FILE_METADATA]]);
    else if (head->op == OP_TIMEOUT || head->op == OP_REFRESH || head->op == OP_CONNECT)
        add_number(note, "seconds", numbers[TIMEOUT_SECONDS]);
    else if (head->op == OP_SIGNAL)
        add_number(note, "signal", numbers[SIGNAL_NUMBER]);
    if (*head->user)
        (void)add_detail(note, "user", head->user);
}

void journal_begin(struct broker *broker, const struct request_packet *request)
{
    if (!broker->journal)
        return;
    struct journal_note *note = &broker->journal->note;
    note->count = 0;
    note->tenant[0] = '\0';
    note->is_accepted = false;
    note->action = actions[request->head.op].action;
    if (note->action)
        add_details(note, request);
}

void journal_set_tenant(struct broker *broker, const char *tenant)
{
    if (broker->journal)
        cay_copy_text(broker->journal->note.tenant, TENANT_MAX, tenant);
}

/* Clients without a credential could write without end. */
static bool may_record_refusal(struct journal *journal)
{
    int64_t second = (int64_t)clock_ms() / 1000;

    if (journal->second != second)
        journal->refusals = 0;
    journal->second = second;
    if (++journal->refusals <= REFUSALS_A_SECOND)
        return true;
    journal->left_out++;
    return false;
}

/* A client may name the sandbox of another tenant, whose logs it must not write to; that
 * of requests about secrets, volumes and templates is a name that clients choose. */
static bool is_own(struct broker *broker, const struct request_packet *request,
                   const char *tenant)
{
    AUTO_RECORD row = RECORD_INIT;

    return *tenant && record_is_id(request->head.sandbox) &&
           broker_find_record(broker, request->head.sandbox, &row, NULL) == CAY_OK &&
           strcmp(row.tenant, tenant) == 0;
}

static void write_note(struct broker *broker, const struct request_packet *request)
{
    const struct journal_note *note = &broker->journal->note;
    const char *details[2 * DETAILS + 3] = {NULL};
    unsigned status = (unsigned)request->refusal;
    size_t count = *note->tenant ? note->count : 0; /* nothing of unknown clients */

    for (size_t i = 0; i < count; i++) {
        details[2 * i] = note->keys[i];
        details[2 * i + 1] = note->values[i];
    }
    bool is_known = is_own(broker, request, note->tenant);
    if (!is_known && record_is_id(request->head.sandbox)) {
        details[2 * count] = "named";
        details[2 * count + 1] = request->head.sandbox;
    }
    journal_write(broker, &(struct journal_entry){
                              .action = note->action ? note->action : "read",
                              .tenant = *note->tenant ? note->tenant : NULL,
                              .sandbox = is_known ? request->head.sandbox : NULL,
                              .request = request->head.id,
                              .status = status,
                              .details = details});
}

void journal_accept(struct broker *broker, const struct request_packet *request)
{
    if (!broker->journal || !broker->journal->note.action)
        return;
    write_note(broker, request);
    broker->journal->note.is_accepted = true;
}

void journal_end(struct broker *broker, const struct request_packet *request)
{
    struct journal *journal = broker->journal;
    unsigned status = (unsigned)request->refusal;

    if (!journal)
        return;
    const struct journal_note *note = &journal->note;
    bool is_denied = status == 401 || status == 403;
    if ((!note->action && !is_denied) || (note->is_accepted && !status))
        return;
    if (request->head.op == OP_CREATE && !status)
        return; /* when it has an id: create.c */
    if (!*note->tenant && !may_record_refusal(journal))
        return;
    write_note(broker, request);
}

/* --- Logs --- */

/* Whether the channel has space for another entry and REPLY_DONE. */
static bool has_room(int channel)
{
    enum { ENTRY = 2 * FIELDS_MAX };
    int sent = 0, most = 0;
    socklen_t len = sizeof most;

    return ioctl(channel, SIOCOUTQ, &sent) != 0 ||
           getsockopt(channel, SOL_SOCKET, SO_SNDBUF, &most, &len) != 0 ||
           sent + ENTRY < most;
}

static bool send_log(const struct history_log *log, void *cookie)
{
    const struct request_packet *request = cookie;
    struct reply reply = {
        .kind = REPLY_LOG,
        .count = 2,
        .numbers = {[LOG_AT_MS] = log->at_ms, [LOG_LEVEL] = log->level}};
    AUTO_BUF strings = {.max = CHANNEL_PACKET};

    strings_add(&strings, log->message);
    strings_add(&strings, log->fields);
    return has_room(request->channel) &&
           reply_send(request->channel, &reply, &strings, -1) == 0;
}

void journal_send_logs(struct broker *broker, struct request_packet *request,
                       const char *id)
{
    const int64_t *numbers = request->head.numbers;
    struct history *history = usage_history(broker);
    AUTO_FREE char *room = NULL;
    AUTO_FREE const char **strings = request_strings(request, &room);
    int buffer = 8 << 20;

    if (!strings || numbers[LOGS_LIMIT] < 0 || numbers[LOGS_LIMIT] > LOGS_MOST) {
        broker_refuse(request, 400, CAY_E_INVALID, "the request is malformed", "");
        return;
    }
    const struct history_filter filter = {
        .id = id,
        .from_ms = numbers[LOGS_FROM_MS],
        .limit = numbers[LOGS_LIMIT],
        .level = (int)numbers[LOGS_LEVEL],
        .newest_first = request->head.flags & LOGS_BACKWARD,
        .search = strings[0],
    };
    (void)setsockopt(request->channel, SOL_SOCKET, SO_SNDBUFFORCE, &buffer,
                     sizeof buffer);
    if (history)
        history_visit_logs(history, &filter, send_log, request);
    broker_reply_done(request);
}

/* --- The life of the journal --- */

/* The port distinguishes the servers of one store. */
static uint64_t note_life(const struct broker *broker, const char *text)
{
    struct sqlite3 *db = registry_db(broker->registry);
    sqlite3_stmt *statement = NULL;
    uint64_t restarts = 0;

    if (db && sqlite3_prepare_v2(db, text, -1, &statement, NULL) == SQLITE_OK) {
        sqlite3_bind_int(statement, 1, broker->options->port);
        while (sqlite3_step(statement) == SQLITE_ROW)
            restarts = (uint64_t)sqlite3_column_int64(statement, 0);
    }
    (void)sqlite3_finalize(statement);
    return restarts;
}

uint64_t journal_restarts(const struct broker *broker)
{
    return broker->journal ? broker->journal->restarts : 0;
}

void journal_open(struct broker *broker)
{
    const char *store = registry_path(broker->registry);
    char path[PATH_MAX];
    struct cay_error error;

    broker->journal = calloc(1, sizeof *broker->journal);
    if (broker->journal)
        broker->journal->restarts = note_life(
            broker, "INSERT INTO lives VALUES (?1, 1, 0) ON CONFLICT (port) DO UPDATE "
                    "SET restarts = restarts + runs, runs = 1 RETURNING restarts");
    if (!broker->journal || !broker->options->audit_days ||
        strcmp(store, ":memory:") == 0)
        return;
    snprintf(path, sizeof path, "%s%s", store, AUDIT_SUFFIX);
    if (audit_open(path, broker->options->audit_days, &broker->journal->audit, &error) !=
            CAY_OK &&
        broker->log_error)
        broker->log_error("the audit record is not written", &error);
    journal_write(broker, &(struct journal_entry){.action = "server.start"});
}

void journal_close(struct broker *broker)
{
    if (!broker->journal)
        return;
    journal_write(broker, &(struct journal_entry){.action = "server.stop"});
    (void)note_life(broker, "UPDATE lives SET runs = 0 WHERE port = ?1 RETURNING port");
    audit_close(broker->journal->audit);
    for (struct share *share; (share = broker->journal->shares);) {
        broker->journal->shares = share->next;
        free(share);
    }
    free(broker->journal);
    broker->journal = NULL;
}

void journal_put(struct samples *out, const struct broker *broker)
{
    const struct journal *journal = broker->journal;

    samples_one(out, "cay_audit_failures_total", "counter",
                "Lines of the audit record that could not be written",
                journal && journal->audit ? audit_failures(journal->audit) : 0);
    samples_one(out, "cay_audit_left_out_total", "counter",
                "Lines of clients and sandboxes that wrote too much, which are not in "
                "the audit record or in logs",
                journal ? journal->left_out : 0);
}
