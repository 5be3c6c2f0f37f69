/* SPDX-License-Identifier: Apache-2.0 */

/* The connection to PostgreSQL: begun again after each failure, with a growing pause.
 * Each request is a transaction of its own in the pipeline. */
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "server/store/schema.h"
#include "server/store/store.h"

enum {
    PHASE_MS = 10000, /* for each step until the connection can be used */
    REPLY_MS = 6000,  /* for a request; the server itself stops it after 4 s */
    WAIT_MS = 100,    /* before the first new connection; then twice as long, up to ... */
    WAIT_MAX_MS = 5000,
    TAKEN_MS = 2000,    /* between two attempts to claim the name of the node */
    GIVE_UP_MS = 60000, /* then a new process reads password and resolv.conf again */
    TIDY_MS = 60 * 60 * 1000
};

static const char setup[] =
    "SET statement_timeout = 4000; SET synchronous_commit = off; SET client_min_messages "
    "= "
    "warning; SET idle_in_transaction_session_timeout = 10000; SET lock_timeout = 3000";

void database_open(struct database *database, const struct plan *plan, int socket)
{
    *database = (struct database){.plan = plan, .socket = socket, .wait_ms = WAIT_MS};
}

int database_socket(const struct database *database)
{
    return database->connection ? PQsocket(database->connection) : -1;
}

short database_events(const struct database *database)
{
    if (database->phase == PHASE_CONNECT)
        return database->wanted == PGRES_POLLING_WRITING ? POLLOUT : POLLIN;
    return (short)(POLLIN | (database->has_unsent ? POLLOUT : 0));
}

/* When something is late. */
static uint64_t end_ms(const struct database *database)
{
    if (database->phase == PHASE_AWAY)
        return database->again_ms;
    if (database->phase < PHASE_UP)
        return database->phase_ms + PHASE_MS;
    return database->count ? database->pending[database->first].sent_ms + REPLY_MS
                           : UINT64_MAX;
}

int database_wait_ms(const struct database *database)
{
    uint64_t end = end_ms(database), now_ms = clock_ms();

    return end == UINT64_MAX ? -1 : end > now_ms ? (int)(end - now_ms) : 0;
}

bool database_has_room(const struct database *database)
{
    return database->count < STORE_WINDOW;
}

/* --- Replies --- */

static void reply_done(const struct database *database, const struct pending *pending)
{
    struct store_message done = {
        .kind = STORE_DONE, .number = pending->number, .code = pending->code};
    AUTO_BUF why = {.max = sizeof pending->why};

    memcpy(done.numbers, pending->numbers, sizeof done.numbers);
    if (pending->code)
        (void)buf_append(&why, pending->why, strlen(pending->why) + 1);
    if (pending->number)
        store_reply(database->socket, &done, &why);
}

static void report(const struct database *database, enum store_kind kind,
                   const char *text)
{
    struct store_message message = {.kind = kind};
    AUTO_BUF strings = {.max = STORE_PACKET};

    if (text)
        (void)buf_append(&strings, text, strlen(text) + 1);
    message.numbers[STORE_UP_EPOCH] = database->epoch;
    message.numbers[STORE_UP_VERSION] = database->version;
    store_reply(database->socket, &message, &strings);
}

/* Messages of libpq have several lines, of which the first says what failed. */
static void copy_line(char *line, size_t room, const char *text)
{
    snprintf(line, room, "%.*s", (int)strcspn(text, "\n"), text);
}

/* --- Losing the connection --- */

static void fail_pending(struct database *database, const char *why)
{
    while (database->count) {
        struct pending *pending = &database->pending[database->first];
        database->first = (database->first + 1) % STORE_WINDOW;
        database->count--;
        pending->code = CAY_E_UNAVAILABLE;
        copy_line(pending->why, sizeof pending->why, why);
        reply_done(database, pending);
    }
}

/* `wait_ms`: before the next connection. */
static void disconnect(struct database *database, const char *why, uint64_t wait_ms)
{
    uint64_t now_ms = clock_ms();
    char line[256];

    copy_line(line, sizeof line, why); /* it may belong to the connection */
    PQfinish(database->connection);
    database->connection = NULL;
    database->phase = PHASE_AWAY;
    database->has_unsent = false;
    database->again_ms = now_ms + wait_ms;
    if (!database->failed_ms)
        database->failed_ms = now_ms;
    report(database, STORE_DOWN, line);
    fail_pending(database, line);
    if (*database->plan->strings[PLAN_PASSWORD_FILE] &&
        now_ms - database->failed_ms > GIVE_UP_MS)
        _exit(0);
}

static void fail(struct database *database)
{
    uint64_t wait_ms = database->wait_ms;
    const char *why =
        database->connection ? PQerrorMessage(database->connection) : "out of memory";

    database->wait_ms = wait_ms < WAIT_MAX_MS / 2 ? 2 * wait_ms : WAIT_MAX_MS;
    disconnect(database, why && *why ? why : "the connection is lost", wait_ms);
}

/* --- Connecting --- */

static void enter(struct database *database, enum phase phase)
{
    database->phase = phase;
    database->phase_ms = clock_ms();
}

static void connect_to(struct database *database)
{
    const struct plan *plan = database->plan;
    const char *const keys[] = {"connect_timeout",
                                "tcp_user_timeout",
                                "target_session_attrs",
                                "keepalives_idle",
                                "keepalives_interval",
                                "keepalives_count",
                                "dbname",
                                "gssencmode",
                                "client_encoding",
                                "application_name",
                                *plan->password ? "password" : NULL,
                                NULL};
    const char *const values[] = {"5",
                                  "5000",
                                  "read-write",
                                  "10",
                                  "5",
                                  "3",
                                  plan->strings[PLAN_URL],
                                  "disable",
                                  "UTF8",
                                  "cay-store",
                                  *plan->password ? plan->password : NULL,
                                  NULL};

    /* The URL may have other values for what comes before it. */
    database->connection = PQconnectStartParams(keys, values, 1);
    enter(database, PHASE_CONNECT);
    database->wanted = PGRES_POLLING_WRITING;
    if (!database->connection || PQstatus(database->connection) == CONNECTION_BAD)
        fail(database);
}

static bool ask_simply(struct database *database, enum phase phase, const char *text)
{
    enter(database, phase);
    return PQsendQuery(database->connection, text) == 1;
}

static bool ask_with(struct database *database, enum phase phase, const char *text,
                     int count, const char *const *values)
{
    enter(database, phase);
    return PQsendQueryParams(database->connection, text, count, NULL, values, NULL, NULL,
                             0) == 1;
}

static void come_up(struct database *database)
{
    enter(database, PHASE_UP);
    database->wait_ms = WAIT_MS;
    database->failed_ms = 0;
    database->tidied_ms = clock_ms();
    if (PQenterPipelineMode(database->connection) != 1) {
        fail(database);
        return;
    }
    report(database, STORE_UP, NULL);
}

/* Begins the step after this one. */
static void begin_next(struct database *database)
{
    const char *node = database->plan->strings[PLAN_NODE];
    const char *const claim[] = {node, database->plan->strings[PLAN_INSTANCE]};
    bool is_sent = true;

    switch (database->phase) {
    case PHASE_CONNECT:
        is_sent = ask_simply(database, PHASE_SET, setup);
        break;
    case PHASE_SET:
        is_sent = ask_simply(database, PHASE_MIGRATE, schema_migration);
        break;
    case PHASE_MIGRATE:
        if (*node)
            is_sent =
                ask_with(database, PHASE_CLAIM,
                         "SELECT cay.claim_node($1, $2, interval '30 s')", 2, claim);
        else
            come_up(database);
        break;
    case PHASE_CLAIM:
        is_sent = ask_with(
            database, PHASE_VERSION,
            "SELECT coalesce(max(version), 0) FROM cay.sandboxes WHERE node = $1", 1,
            claim);
        break;
    case PHASE_VERSION:
        is_sent = ask_simply(database, PHASE_EVENTS, "SELECT cay.keep_events()");
        break;
    case PHASE_EVENTS:
        is_sent =
            ask_simply(database, PHASE_LISTEN, "LISTEN cay_keys; LISTEN cay_sessions");
        break;
    case PHASE_LISTEN:
        come_up(database);
        break;
    case PHASE_AWAY:
    case PHASE_UP:
        break;
    }
    if (!is_sent)
        fail(database);
}

/* The result of a step; false: the connection was ended. */
static bool take_step(struct database *database, const PGresult *result)
{
    ExecStatusType status = PQresultStatus(result);
    char why[256];

    if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK) {
        uint64_t wait_ms = database->wait_ms;
        copy_line(why, sizeof why, PQresultErrorMessage(result));
        database->wait_ms = wait_ms < WAIT_MAX_MS / 2 ? 2 * wait_ms : WAIT_MAX_MS;
        disconnect(database, *why ? why : "the database refused a step", wait_ms);
        return false;
    }
    bool has_value = status == PGRES_TUPLES_OK && PQntuples(result) == 1 &&
                     PQnfields(result) == 1 && !PQgetisnull(result, 0, 0);
    int64_t value = has_value ? strtoll(PQgetvalue(result, 0, 0), NULL, 10) : 0;
    if (database->phase == PHASE_CLAIM && !has_value) {
        report(database, STORE_TAKEN, NULL);
        disconnect(database, "another server has the name of this node", TAKEN_MS);
        return false;
    }
    if (database->phase == PHASE_CLAIM)
        database->epoch = value;
    else if (database->phase == PHASE_VERSION)
        database->version = value;
    return true;
}

static void run_step(struct database *database)
{
    while (!PQisBusy(database->connection)) {
        PGresult *result = PQgetResult(database->connection);
        bool goes_on = !result || take_step(database, result);
        PQclear(result);
        if (!goes_on)
            return;
        if (!result) {
            begin_next(database);
            return;
        }
    }
}

/* --- Requests --- */

static void flush(struct database *database)
{
    int left = PQflush(database->connection);

    database->has_unsent = left > 0;
    if (left < 0)
        fail(database);
}

void database_ask(struct database *database, const struct store_packet *packet)
{
    struct pending *pending =
        &database->pending[(database->first + database->count) % STORE_WINDOW];

    *pending = (struct pending){.kind = (enum store_kind)packet->head.kind,
                                .number = packet->head.number,
                                .sent_ms = clock_ms()};
    if (database->phase != PHASE_UP) {
        pending->code = CAY_E_UNAVAILABLE;
        snprintf(pending->why, sizeof pending->why, "the database is away");
        reply_done(database, pending);
        return;
    }
    pending->count = statements_send(database, packet);
    if (pending->count == 0) {
        pending->code = CAY_E_INVALID;
        snprintf(pending->why, sizeof pending->why, "invalid request");
        reply_done(database, pending);
        return;
    }
    database->count++;
    if (pending->count < 0 || PQpipelineSync(database->connection) != 1)
        fail(database);
    else
        flush(database);
}

static void finish_first(struct database *database)
{
    struct pending *pending = &database->pending[database->first];
    bool is_taken = pending->is_taken;

    database->first = (database->first + 1) % STORE_WINDOW;
    database->count--;
    reply_done(database, pending);
    if (!is_taken)
        return;
    report(database, STORE_TAKEN, NULL);
    disconnect(database, "another server has the name of this node", TAKEN_MS);
}

static void take_results(struct database *database)
{
    int ends = 0; /* without a result in between */

    while (database->count && !PQisBusy(database->connection)) {
        struct pending *pending = &database->pending[database->first];
        PGresult *result = PQgetResult(database->connection);
        ends = result ? 0 : ends + 1;
        if (ends > 1) { /* a server that does not speak the protocol */
            fail(database);
            return;
        }
        if (!result)
            pending->statement++;
        else if (PQresultStatus(result) == PGRES_PIPELINE_SYNC)
            finish_first(database);
        else
            statements_take(database, pending, result);
        PQclear(result);
        if (!database->connection)
            return;
    }
}

static void take_notices(struct database *database)
{
    PGnotify *notice;

    while ((notice = PQnotifies(database->connection))) {
        bool is_key = strcmp(notice->relname, "cay_keys") == 0;
        report(database, is_key ? STORE_KEYS_CHANGED : STORE_SESSION_ENDED,
               notice->extra ? notice->extra : "");
        PQfreemem(notice);
    }
}

/* Once in an hour: the tables of days, sessions that would have expired, and rows of
 * sandboxes that ended yesterday. */
static void tidy(struct database *database)
{
    enum { TEXTS = 3 };
    static const char *const texts[TEXTS] = {
        "SELECT cay.keep_events()",
        "DELETE FROM cay.ended_sessions WHERE expires < now() - interval '1 hour'",
        "DELETE FROM cay.sandboxes WHERE id IN (SELECT id FROM cay.sandboxes WHERE node "
        "= "
        "$1 AND state = 3 AND written < now() - interval '1 day' LIMIT 20000)"};
    const char *const node[] = {database->plan->strings[PLAN_NODE]};

    if (clock_ms() - database->tidied_ms < TIDY_MS || !*node[0] ||
        !database_has_room(database))
        return;
    database->tidied_ms = clock_ms();
    database->pending[(database->first + database->count++) % STORE_WINDOW] =
        (struct pending){.kind = STORE_NONE, .sent_ms = clock_ms(), .count = TEXTS};
    for (int i = 0; i < TEXTS; i++)
        if (PQsendQueryParams(database->connection, texts[i], i == TEXTS - 1, NULL, node,
                              NULL, NULL, 0) != 1) {
            fail(database);
            return;
        }
    if (PQpipelineSync(database->connection) == 1)
        flush(database);
    else
        fail(database);
}

static void run_up(struct database *database, bool is_ready)
{
    if (is_ready && database->has_unsent)
        flush(database);
    if (database->connection && is_ready && PQconsumeInput(database->connection) != 1)
        fail(database);
    if (database->connection)
        take_results(database);
    if (database->connection)
        take_notices(database);
    if (database->connection)
        tidy(database);
}

static void run_connect(struct database *database)
{
    database->wanted = PQconnectPoll(database->connection);
    if (database->wanted == PGRES_POLLING_FAILED)
        fail(database);
    else if (database->wanted == PGRES_POLLING_OK) {
        if (PQsetnonblocking(database->connection, 1) == 0)
            begin_next(database);
        else
            fail(database);
    }
}

static bool is_late(const struct database *database)
{
    return clock_ms() >= end_ms(database);
}

void database_run(struct database *database, bool is_ready)
{
    if (database->phase == PHASE_AWAY) {
        if (is_late(database))
            connect_to(database);
        return;
    }
    if (database->phase == PHASE_CONNECT && is_ready)
        run_connect(database);
    else if (database->phase == PHASE_UP)
        run_up(database, is_ready);
    else if (is_ready) {
        (void)PQflush(database->connection);
        if (PQconsumeInput(database->connection) == 1)
            run_step(database);
        else
            fail(database);
    }
    if (database->phase != PHASE_AWAY && is_late(database))
        disconnect(database, "the database does not answer", WAIT_MS);
}
