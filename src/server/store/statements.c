/* SPDX-License-Identifier: Apache-2.0 */

/* The SQL of each request.  What clients have chosen reaches the database by parameters
 * only. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "server/store/store.h"

/* What a result becomes. */
enum outcome {
    NOTHING,
    ROWS,    /* a STORE_ROW each */
    NUMBERS, /* of STORE_DONE */
    ADMITTED,
    CHANGED, /* CAY_E_NOT_FOUND if there is none */
    IS_OURS, /* BEAT: the name was taken if there is none */
    OTHERS,  /* STORE_NODES */
    KILLS    /* STORE_KILL */
};

/* `parameters`, one letter each: a digit: this number, a-e: this string, N: the node,
 * E: its epoch, I: its instance, L: the lease; M: metadata (PUT), P and Q: the same as
 * pairs (PUT, LIST). */
struct statement {
    const char *text, *parameters;
    enum outcome outcome;
    int numbers;       /* ROWS: the first columns */
    bool has_metadata; /* ROWS: the last column */
};

#define COLUMNS                                                                          \
    "s.version, s.state, s.started_ms, s.end_ms, s.flags, s.token_version, s.id, "       \
    "s.tenant, s.template, s.reason, s.metadata"
/* Those of nodes that are there. */
#define LIVING                                                                           \
    " FROM cay.sandboxes s JOIN cay.nodes n ON n.id = s.node AND n.epoch = s.epoch AND " \
    "n.seen >= now() - "
#define NOT_KILLED " AND NOT EXISTS (SELECT FROM cay.kills k WHERE k.id = s.id)"
#define PAGE(side, order)                                                                \
    "SELECT " COLUMNS LIVING "$1::interval WHERE s.tenant = $2 AND s.state < 3 AND ($3 " \
    "= '' OR s.template = $3) AND (1 << s.state) & $4::int <> 0 AND s.started_ms >= "    \
    "$5::bigint AND ($6::bigint = 0 OR (s.started_ms, s.id COLLATE \"C\") " side         \
    " ($6::bigint, $7)) AND s.pairs @> $8::text[]" NOT_KILLED                            \
    " ORDER BY s.started_ms " order ", s.id COLLATE \"C\" " order " LIMIT $9::int"
#define RUNNING                                                                          \
    "SELECT count(*)" LIVING "$1::interval WHERE s.tenant = $2 AND s.state = "           \
    "1" NOT_KILLED

static const struct statement put[] = {
    {"INSERT INTO cay.sandboxes AS s (id, node, epoch, version, tenant, template, state, "
     "started_ms, end_ms, flags, token_version, reason, metadata, pairs) VALUES ($1, $2, "
     "$3::bigint, $4::bigint, $5, $6, $7::int, $8::bigint, $9::bigint, $10::bigint, "
     "$11::bigint, $12, $13::bytea, $14::text[]) ON CONFLICT (id) DO UPDATE SET epoch = "
     "excluded.epoch, version = excluded.version, tenant = excluded.tenant, template = "
     "excluded.template, state = excluded.state, started_ms = excluded.started_ms, "
     "end_ms "
     "= excluded.end_ms, flags = excluded.flags, token_version = excluded.token_version, "
     "reason = excluded.reason, metadata = excluded.metadata, pairs = excluded.pairs, "
     "written = now() WHERE s.version < excluded.version AND s.epoch <= excluded.epoch "
     "AND s.node = excluded.node",
     "aNE0bc12345dMP", NOTHING, 0, false},
    {"SELECT cay.release($1::bigint, 1)", "6", NOTHING, 0, false}};
static const struct statement newest[] = {{PAGE("<", "DESC"), "Lab143cQ0", ROWS, 6, true},
                                          {RUNNING, "La", NUMBERS, 0, false}};
static const struct statement oldest[] = {{PAGE(">", "ASC"), "Lab143cQ0", ROWS, 6, true},
                                          {RUNNING, "La", NUMBERS, 0, false}};
static const struct statement own_rows[] = {
    {"SELECT " COLUMNS " FROM cay.sandboxes s WHERE s.node = $1 AND s.state < 3 AND s.id "
     "COLLATE \"C\" > $2 ORDER BY s.id COLLATE \"C\" LIMIT 256",
     "Na", ROWS, 6, true}};
static const struct statement key[] = {
    {"SELECT k.number, k.created_ms, coalesce(t.max_running, 0), k.tenant FROM cay.keys "
     "k "
     "LEFT JOIN cay.tenants t ON t.name = k.tenant WHERE k.hash = $1 AND k.revoked IS "
     "NULL",
     "a", ROWS, 3, false}};
static const struct statement key_add[] = {
    {"SELECT cay.add_key($1, $2, $3, $4::bigint)", "abc1", NUMBERS, 0, false}};
static const struct statement key_remove[] = {
    {"SELECT 1 WHERE cay.revoke_key($1::bigint)", "0", CHANGED, 0, false}};
static const struct statement keys[] = {
    {"SELECT k.number, k.created_ms, coalesce(t.max_running, 0), k.tenant, k.shown FROM "
     "cay.keys k LEFT JOIN cay.tenants t ON t.name = k.tenant WHERE k.revoked IS NULL "
     "ORDER BY k.number LIMIT 100000",
     "", ROWS, 3, false}};
static const struct statement tenant_set[] = {
    {"SELECT cay.set_tenant($1, $2::bigint)", "a2", NOTHING, 0, false}};
static const struct statement tenants[] = {
    {"SELECT 0, 0, t.max_running, (SELECT count(*)" LIVING
     "$1::interval WHERE s.tenant = t.name AND s.state = 1), t.name FROM cay.tenants t "
     "ORDER BY t.name LIMIT 100000",
     "L", ROWS, 4, false}};
static const struct statement admit[] = {
    {"SELECT cay.admit($1, $2::bigint, $3::interval)", "a1L", ADMITTED, 0, false}};
static const struct statement release[] = {
    {"SELECT cay.release($1::bigint, $2::bigint)", "01", NOTHING, 0, false}};
static const struct statement beat[] = {
    {"UPDATE cay.nodes SET seen = now(), running = $3::bigint, free = $4::int, state = "
     "$5::int WHERE id = $1 AND epoch = $2::bigint AND instance = $6",
     "NE012I", IS_OURS, 0, false},
    {"SELECT id || CASE WHEN seen >= now() - $1::interval THEN '+' ELSE '-' END FROM "
     "cay.nodes ORDER BY id LIMIT 10000",
     "L", OTHERS, 0, false},
    {"SELECT id FROM cay.kills WHERE node = $1 ORDER BY at LIMIT 256", "N", KILLS, 0,
     false}};
static const struct statement kill_lost[] = {
    {"WITH found AS (SELECT s.id, s.node FROM cay.sandboxes s WHERE s.id = $1 AND "
     "s.tenant = $2 AND s.state < 3 AND NOT cay.is_alive(s.node, s.epoch, $3::interval)) "
     "INSERT INTO cay.kills (id, node) SELECT id, node FROM found ON CONFLICT (id) DO "
     "NOTHING RETURNING 1",
     "abL", CHANGED, 0, false}};
static const struct statement killed[] = {
    {"DELETE FROM cay.kills WHERE id = $1 AND node = $2", "aN", NOTHING, 0, false}};
static const struct statement event[] = {{"INSERT INTO cay.events (at_ms, node, tenant, "
                                          "sandbox, what) VALUES ($1::bigint, $2, "
                                          "$3, $4, $5)",
                                          "0Nabc", NOTHING, 0, false}};
/* NOTIFY reaches all nodes, also the sender. */
static const struct statement session_end[] = {
    {"WITH added AS (INSERT INTO cay.ended_sessions VALUES ($1, "
     "to_timestamp($2::bigint)) "
     "ON CONFLICT (id) DO NOTHING RETURNING id) SELECT pg_notify('cay_sessions', id) "
     "FROM "
     "added",
     "a0", NOTHING, 0, false}};
static const struct statement sessions[] = {
    {"SELECT id FROM cay.ended_sessions WHERE id > $1 ORDER BY id LIMIT 256", "a", ROWS,
     0, false}};

#define LIST_OF(array)                                                                   \
    {                                                                                    \
        array, sizeof(array) / sizeof *(array)                                           \
    }
static const struct {
    const struct statement *statements;
    int count;
} requests[STORE_KIND_COUNT] = {
    [STORE_PUT] = LIST_OF(put),
    [STORE_LIST] = LIST_OF(newest),
    [STORE_OWN_ROWS] = LIST_OF(own_rows),
    [STORE_KEY] = LIST_OF(key),
    [STORE_KEY_ADD] = LIST_OF(key_add),
    [STORE_KEY_REMOVE] = LIST_OF(key_remove),
    [STORE_KEYS] = LIST_OF(keys),
    [STORE_TENANT_SET] = LIST_OF(tenant_set),
    [STORE_TENANTS] = LIST_OF(tenants),
    [STORE_ADMIT] = LIST_OF(admit),
    [STORE_RELEASE] = LIST_OF(release),
    [STORE_BEAT] = LIST_OF(beat),
    [STORE_KILL_LOST] = LIST_OF(kill_lost),
    [STORE_KILLED] = LIST_OF(killed),
    [STORE_EVENT] = LIST_OF(event),
    [STORE_SESSION_END] = LIST_OF(session_end),
    [STORE_SESSIONS] = LIST_OF(sessions),
};

/* --- Parameters --- */

enum {
    PARAMETERS_MAX = 16,
    STRINGS_MAX = 5,
    NUMBER_ROOM = 24,
    PUT_PAIRS = 4,
    LIST_PAIRS = 3
};

struct parameters {
    const char *values[PARAMETERS_MAX];
    int lens[PARAMETERS_MAX], formats[PARAMETERS_MAX];
    char numbers[PARAMETERS_MAX][NUMBER_ROOM];
    const char *strings[STRINGS_MAX];
    struct buf pairs;
};

/* As text of an array.  Everything but letters and digits is escaped, so that each
 * encoding of a database has it, and no value ends the array. */
static void add_escaped(struct buf *array, const char *text)
{
    for (; *text; text++)
        if (isalnum((unsigned char)*text) && (unsigned char)*text < 128)
            (void)buf_append(array, text, 1);
        else
            (void)buf_format(array, "%%%02x", (unsigned)(unsigned char)*text);
}

/* {key=value,...}, of the strings from `from` on. */
static void fill_pairs(const struct store_packet *packet, uint32_t from,
                       struct buf *array)
{
    const char *at = NULL, *value;

    for (uint32_t i = 0; i < from; i++)
        at = store_next(packet, at);
    (void)buf_text(array, "{");
    while ((at = store_next(packet, at)) && (value = store_next(packet, at))) {
        (void)buf_text(array, array->len > 1 ? "," : "");
        add_escaped(array, at);
        (void)buf_text(array, "=");
        add_escaped(array, value);
        at = value;
    }
    (void)buf_text(array, "}");
}

static void fill_metadata(const struct store_packet *packet, struct parameters *all,
                          int at)
{
    const char *next = NULL;

    for (int i = 0; i <= PUT_PAIRS; i++)
        next = store_next(packet, next);
    all->formats[at] = 1;
    all->values[at] = next ? next : "";
    all->lens[at] = next ? (int)(packet->strings + packet->head.len - next) : 0;
}

static bool fill_one(const struct database *database, const struct store_packet *packet,
                     struct parameters *all, int at, char letter)
{
    const struct plan *plan = database->plan;
    bool is_number = letter >= '0' && letter < '0' + STORE_NUMBERS;
    int64_t number = is_number       ? packet->head.numbers[letter - '0']
                     : letter == 'E' ? database->epoch
                                     : STORE_LEASE_S;

    snprintf(all->numbers[at], NUMBER_ROOM, letter == 'L' ? "%lld s" : "%lld",
             (long long)number);
    all->values[at] = letter == 'N'   ? plan->strings[PLAN_NODE]
                      : letter == 'I' ? plan->strings[PLAN_INSTANCE]
                      : letter >= 'a' ? all->strings[letter - 'a']
                                      : all->numbers[at];
    if (letter == 'M')
        fill_metadata(packet, all, at);
    if (letter == 'P' || letter == 'Q') {
        fill_pairs(packet, letter == 'P' ? PUT_PAIRS : LIST_PAIRS, &all->pairs);
        all->values[at] = all->pairs.data;
    }
    return all->values[at] != NULL && !all->pairs.failed;
}

static bool send_one(struct database *database, const struct store_packet *packet,
                     const struct statement *statement, struct parameters *all)
{
    int count = (int)strlen(statement->parameters);

    memset(all->formats, 0, sizeof all->formats);
    buf_init(&all->pairs, 4 * STORE_PACKET);
    bool is_valid = true;
    for (int i = 0; i < count && is_valid; i++)
        is_valid = fill_one(database, packet, all, i, statement->parameters[i]);
    bool is_sent =
        is_valid && PQsendQueryParams(database->connection, statement->text, count, NULL,
                                      all->values, all->lens, all->formats, 0) == 1;
    buf_done(&all->pairs);
    return is_sent;
}

/* The second statement of PUT is for those with a claim. */
static int count_of(const struct store_packet *packet)
{
    return packet->head.kind == STORE_PUT && !packet->head.numbers[STORE_ROW_CLAIM]
               ? 1
               : requests[packet->head.kind].count;
}

static const struct statement *statements_of(const struct store_packet *packet)
{
    bool is_oldest =
        packet->head.kind == STORE_LIST && packet->head.numbers[STORE_LIST_OLDEST_FIRST];

    return is_oldest ? oldest : requests[packet->head.kind].statements;
}

int statements_send(struct database *database, const struct store_packet *packet)
{
    static struct parameters all;
    int count = requests[packet->head.kind].statements ? count_of(packet) : 0;
    uint32_t pairs_at = packet->head.kind == STORE_PUT    ? PUT_PAIRS
                        : packet->head.kind == STORE_LIST ? LIST_PAIRS
                                                          : packet->head.count;

    if (!count || (packet->head.count - pairs_at) % 2)
        return 0;
    memset(all.strings, 0, sizeof all.strings);
    (void)store_strings(packet, all.strings,
                        packet->head.count < STRINGS_MAX ? packet->head.count
                                                         : STRINGS_MAX);
    for (int i = 0; i < count; i++)
        if (!send_one(database, packet, &statements_of(packet)[i], &all))
            return -1;
    return count;
}

/* --- Results --- */

/* Text as the database sends it, or the bytes of a bytea. */
static bool add_column(struct buf *strings, const PGresult *result, int row, int column,
                       bool is_bytes)
{
    const char *text = PQgetvalue(result, row, column);
    size_t len = 0;

    if (!is_bytes)
        return buf_append(strings, text, strlen(text) + 1);
    unsigned char *bytes = PQunescapeBytea((const unsigned char *)text, &len);
    bool is_added = bytes && buf_append(strings, bytes, len);
    PQfreemem(bytes);
    return is_added;
}

static void send_row(const struct database *database, const struct pending *pending,
                     const struct statement *statement, const PGresult *result, int row)
{
    struct store_message message = {.kind = STORE_ROW, .number = pending->number};
    AUTO_BUF strings = {.max = STORE_PACKET};
    int columns = PQnfields(result);

    for (int i = 0; i < statement->numbers && i < columns && i < STORE_NUMBERS; i++)
        message.numbers[i] = strtoll(PQgetvalue(result, row, i), NULL, 10);
    for (int i = statement->numbers; i < columns; i++)
        if (!add_column(&strings, result, row, i,
                        statement->has_metadata && i + 1 == columns))
            return;
    store_reply(database->socket, &message, &strings);
}

/* In several packets, if there are many. */
static void send_list(const struct database *database, enum store_kind kind,
                      const PGresult *result)
{
    enum { AT_A_TIME = 1000 };
    int count = PQntuples(result);

    for (int at = 0; at < count || (at == 0 && kind == STORE_NODES); at += AT_A_TIME) {
        struct store_message message = {.kind = kind};
        AUTO_BUF strings = {.max = STORE_PACKET};
        for (int i = at; i < count && i < at + AT_A_TIME; i++)
            (void)add_column(&strings, result, i, 0, false);
        if (kind == STORE_NODES)
            message.numbers[STORE_NODES_MORE] = at + AT_A_TIME < count;
        store_reply(database->socket, &message, &strings);
    }
}

/* Faults of the request; after the others it may be repeated. */
static void take_error(struct pending *pending, const PGresult *result)
{
    const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    const char *text = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    bool is_invalid =
        state && (strncmp(state, "22", 2) == 0 || strncmp(state, "23", 2) == 0);

    if (pending->code)
        return; /* the first one is why the others were not run */
    pending->code = is_invalid ? CAY_E_INVALID : CAY_E_UNAVAILABLE;
    snprintf(pending->why, sizeof pending->why, "%.*s",
             (int)strcspn(text ? text : "", "\n"), text ? text : "");
}

static void refuse(struct pending *pending, int code, const char *why)
{
    if (pending->code)
        return;
    pending->code = code;
    snprintf(pending->why, sizeof pending->why, "%s", why);
}

static int64_t first_number(const PGresult *result)
{
    return PQntuples(result) == 1 && PQnfields(result) > 0
               ? strtoll(PQgetvalue(result, 0, 0), NULL, 10)
               : 0;
}

static void take_admitted(const struct database *database, struct pending *pending,
                          const PGresult *result)
{
    struct store_message row = {.kind = STORE_ROW, .number = pending->number};

    row.numbers[STORE_CLAIM] = first_number(result);
    if (row.numbers[STORE_CLAIM] < 0)
        refuse(pending, CAY_E_LIMIT, "the tenant has as many sandboxes as it may");
    else
        store_reply(database->socket, &row, NULL);
}

void statements_take(const struct database *database, struct pending *pending,
                     PGresult *result)
{
    ExecStatusType status = PQresultStatus(result);
    const struct statement *list = requests[pending->kind].statements;

    if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK) {
        take_error(pending, result);
        return;
    }
    if (!list || pending->statement >= pending->count)
        return;
    const struct statement *statement = &list[pending->statement];
    bool is_empty = status == PGRES_TUPLES_OK ? PQntuples(result) == 0
                                              : strcmp(PQcmdTuples(result), "0") == 0;
    switch (statement->outcome) {
    case ROWS:
        for (int i = 0; i < PQntuples(result); i++)
            send_row(database, pending, statement, result, i);
        break;
    case NUMBERS:
        pending->numbers[0] = first_number(result);
        break;
    case ADMITTED:
        take_admitted(database, pending, result);
        break;
    case CHANGED:
        if (is_empty)
            refuse(pending, CAY_E_NOT_FOUND, "there is none");
        break;
    case IS_OURS:
        pending->is_taken = is_empty;
        break;
    case OTHERS:
    case KILLS:
        send_list(database, statement->outcome == KILLS ? STORE_KILL : STORE_NODES,
                  result);
        break;
    case NOTHING:
        break;
    }
}
