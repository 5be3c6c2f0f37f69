/* SPDX-License-Identifier: Apache-2.0 */

/* Rows of this node's sandboxes on their way to the index.  The queue has ids, not rows:
 * what is sent is the row that the store has at that time, so only the newest row of each
 * sandbox is ever sent. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "server/broker/broker.h"
#include "server/broker/index.h"
#include "server/wire/samples.h"

enum {
    ENTRIES_MAX = 100000,
    BUCKETS = 4096,
    SENT_MAX = 24,  /* at a time, so that there is room for other requests */
    PAUSE_MS = 500, /* after a failure */
    REPLY_MS = 50,  /* that a client waits for its row */
    REPLIES_MAX = 1024,
    EVENTS_MAX = 1024
};

struct queued_row {
    struct index_call call;  /* first */
    struct queued_row *next; /* in its bucket */
    struct queued_row *next_queued;
    char id[SANDBOX_ID_MAX];
    int64_t claim, sent_claim;
    bool is_queued, is_sent;
};

struct late_reply {
    struct late_reply *next;
    int channel;
    enum index_reply kind;
    uint64_t end_ms;
    char id[SANDBOX_ID_MAX];
};

struct event {
    struct event *next;
    int64_t at_ms;
    char tenant[TENANT_MAX], sandbox[SANDBOX_ID_MAX], what[32];
};

struct index_rows {
    struct queued_row *buckets[BUCKETS];
    struct queued_row *queue, **last_queued;
    unsigned count, sent;
    bool has_overflowed; /* then all rows are compared again */
    int64_t version;
    uint64_t pause_ms; /* by clock_ms(): nothing is sent before; 0: no pause */
    struct late_reply *replies;
    unsigned reply_count;
    struct event *events, **last_event;
    unsigned event_count;
    uint64_t refused, dropped_events;
    struct compare {
        struct index_call call; /* first */
        bool is_sent;
        unsigned rows;
        char last[SANDBOX_ID_MAX];
    } compare;
};

struct index_rows *index_rows_new(void)
{
    struct index_rows *rows = calloc(1, sizeof *rows);

    if (!rows)
        return NULL;
    rows->last_queued = &rows->queue;
    rows->last_event = &rows->events;
    return rows;
}

void index_rows_free(struct index_rows *rows)
{
    if (!rows)
        return;
    for (size_t i = 0; i < BUCKETS; i++)
        for (struct queued_row *at; (at = rows->buckets[i]);) {
            rows->buckets[i] = at->next;
            free(at);
        }
    for (struct late_reply *at; (at = rows->replies);) {
        rows->replies = at->next;
        (void)close(at->channel);
        free(at);
    }
    for (struct event *at; (at = rows->events);) {
        rows->events = at->next;
        free(at);
    }
    free(rows);
}

/* --- The queue --- */

static struct queued_row **find_link(struct index_rows *rows, const char *id)
{
    struct queued_row **link = &rows->buckets[hash_bytes(id, strlen(id)) % BUCKETS];

    while (*link && strcmp((*link)->id, id) != 0)
        link = &(*link)->next;
    return link;
}

static void queue(struct index_rows *rows, struct queued_row *entry)
{
    if (entry->is_queued)
        return;
    entry->is_queued = true;
    entry->next_queued = NULL;
    *rows->last_queued = entry;
    rows->last_queued = &entry->next_queued;
}

static struct queued_row *take_queued(struct index_rows *rows)
{
    struct queued_row *first = rows->queue;

    rows->queue = first->next_queued;
    if (!rows->queue)
        rows->last_queued = &rows->queue;
    first->is_queued = false;
    return first;
}

static void send_reply(struct broker *broker, int channel, const char *id,
                       enum index_reply kind)
{
    AUTO_RECORD row = RECORD_INIT;

    if (kind == INDEX_REPLY_DONE)
        (void)reply_send_done(channel);
    else if (broker_find_record(broker, id, &row, NULL) == CAY_OK)
        (void)broker_reply_sandbox(broker, channel, &row, kind == INDEX_REPLY_RESUMED);
    (void)close(channel);
}

/* Those of this sandbox (NULL: of all) that wait until this time at most. */
static void send_replies(struct broker *broker, const char *id, uint64_t end_ms)
{
    struct index_rows *rows = broker->index_rows;

    for (struct late_reply **link = &rows->replies; *link;) {
        struct late_reply *at = *link;
        if ((id && strcmp(at->id, id) != 0) || at->end_ms > end_ms) {
            link = &at->next;
            continue;
        }
        *link = at->next;
        rows->reply_count--;
        send_reply(broker, at->channel, at->id, at->kind);
        free(at);
    }
}

static void remove_entry(struct broker *broker, struct queued_row *entry)
{
    struct index_rows *rows = broker->index_rows;
    struct queued_row **link = find_link(rows, entry->id);

    if (*link == entry)
        *link = entry->next;
    rows->count--;
    send_replies(broker, entry->id, UINT64_MAX);
    free(entry);
}

/* --- Sending rows --- */

static void fill_row(struct store_message *message, const struct record_row *row,
                     struct buf *strings)
{
    int64_t step_ms = server_clock_step_ms();

    message->kind = STORE_PUT;
    message->numbers[STORE_ROW_STATE] = row->state;
    message->numbers[STORE_ROW_STARTED_MS] = row->started_ms + step_ms;
    message->numbers[STORE_ROW_END_MS] = row->end_ms + step_ms;
    message->numbers[STORE_ROW_FLAGS] = row->flags;
    message->numbers[STORE_ROW_TOKEN] = row->token_version;
    strings_add(strings, row->id);
    strings_add(strings, row->tenant);
    strings_add(strings, row->template_name);
    strings_add(strings, row->reason);
    (void)buf_append(strings, row->metadata.data, row->metadata.len);
}

static void row_done(struct broker *broker, struct index_call *call,
                     const struct store_packet *packet)
{
    struct index_rows *rows = broker->index_rows;
    struct queued_row *entry = (struct queued_row *)call;
    struct cay_error error;

    if (packet->head.kind != STORE_DONE)
        return;
    rows->sent--;
    entry->is_sent = false;
    if (packet->head.code == CAY_OK)
        entry->sent_claim = 0;
    else if (packet->head.code == CAY_E_UNAVAILABLE) {
        rows->pause_ms = clock_ms() + PAUSE_MS;
        queue(rows, entry);
    } else {
        rows->refused++;
        cay_fail(&error, CAY_E_INVALID, 0, "serve.store", entry->id,
                 packet->head.len ? packet->strings : "invalid row",
                 "the database does not accept the row: lists of other nodes lack it");
        if (broker->log_error)
            broker->log_error(entry->id, &error);
    }
    if (!entry->is_queued)
        remove_entry(broker, entry);
}

static void send_row(struct broker *broker, struct queued_row *entry)
{
    struct index_rows *rows = broker->index_rows;
    AUTO_RECORD row = RECORD_INIT;
    AUTO_BUF strings = {.max = STORE_PACKET};
    struct store_message message = {0};
    int code = broker_find_record(broker, entry->id, &row, NULL);

    if (code && code != CAY_E_NOT_FOUND) {
        rows->pause_ms = clock_ms() + PAUSE_MS;
        queue(rows, entry);
        return;
    }
    if (code) { /* the comparison of all rows finds it */
        remove_entry(broker, entry);
        return;
    }
    if (entry->claim) {
        entry->sent_claim = entry->claim;
        entry->claim = 0;
    }
    fill_row(&message, &row, &strings);
    message.numbers[STORE_ROW_VERSION] = ++rows->version;
    message.numbers[STORE_ROW_CLAIM] = entry->sent_claim;
    entry->is_sent = true;
    entry->call.done = row_done;
    rows->sent++;
    index_ask(broker, &entry->call, &message, &strings);
}

void index_mark(struct broker *broker, const char *id, int64_t claim)
{
    struct index_rows *rows = broker->index_rows;

    if (!rows)
        return;
    struct queued_row **link = find_link(rows, id);
    if (!*link && rows->count < ENTRIES_MAX && (*link = calloc(1, sizeof **link))) {
        cay_copy_text((*link)->id, SANDBOX_ID_MAX, id);
        rows->count++;
    }
    if (!*link) {
        rows->has_overflowed = true;
        return;
    }
    if (claim)
        (*link)->claim = claim;
    queue(rows, *link);
    index_rows_run(broker);
}

/* --- Replies that wait for a row --- */

void index_reply(struct broker *broker, int *channel, const char *id,
                 enum index_reply kind)
{
    struct index_rows *rows = broker->index_rows;
    struct late_reply *reply = NULL;

    if (*channel < 0)
        return;
    if (index_is_up(broker) && rows->reply_count < REPLIES_MAX && *find_link(rows, id))
        reply = calloc(1, sizeof *reply);
    if (!reply) {
        send_reply(broker, TAKE_FD(*channel), id, kind);
        return;
    }
    reply->channel = TAKE_FD(*channel);
    reply->kind = kind;
    reply->end_ms = clock_ms() + REPLY_MS;
    cay_copy_text(reply->id, sizeof reply->id, id);
    reply->next = rows->replies;
    rows->replies = reply;
    rows->reply_count++;
    index_set_timer(broker);
}

/* --- Events --- */

void index_event(struct broker *broker, const char *what, const struct record_row *row)
{
    struct index_rows *rows = broker->index_rows;

    if (!rows)
        return;
    struct event *event =
        rows->event_count < EVENTS_MAX ? calloc(1, sizeof *event) : NULL;
    if (!event) {
        rows->dropped_events++;
        return;
    }
    event->at_ms = clock_since_1970_ms();
    cay_copy_text(event->tenant, sizeof event->tenant, row->tenant);
    cay_copy_text(event->sandbox, sizeof event->sandbox, row->id);
    cay_copy_text(event->what, sizeof event->what, what);
    *rows->last_event = event;
    rows->last_event = &event->next;
    rows->event_count++;
    index_rows_run(broker);
}

static void send_event(struct broker *broker)
{
    struct index_rows *rows = broker->index_rows;
    struct event *event = rows->events;
    struct store_message message = {.kind = STORE_EVENT};
    AUTO_BUF strings = {.max = STORE_PACKET};

    rows->events = event->next;
    if (!rows->events)
        rows->last_event = &rows->events;
    rows->event_count--;
    message.numbers[STORE_EVENT_AT_MS] = event->at_ms;
    strings_add(&strings, event->tenant);
    strings_add(&strings, event->sandbox);
    strings_add(&strings, event->what);
    free(event);
    index_send(broker, &message, &strings);
}

/* --- Comparing all rows --- */

static bool mark_one(const struct record_row *row, void *cookie)
{
    struct broker *broker = cookie;
    struct index_rows *rows = broker->index_rows;
    struct queued_row **link = find_link(rows, row->id);

    if (!*link && rows->count < ENTRIES_MAX && (*link = calloc(1, sizeof **link))) {
        cay_copy_text((*link)->id, SANDBOX_ID_MAX, row->id);
        rows->count++;
    }
    if (*link)
        queue(rows, *link);
    return *link != NULL;
}

/* The store has forgotten the sandbox, which ended while the database was away. */
static void end_forgotten(struct broker *broker, struct record_row *row)
{
    struct store_message message = {0};
    AUTO_BUF strings = {.max = STORE_PACKET};

    row->state = RECORD_GONE;
    cay_copy_text(row->reason, sizeof row->reason, "ended by itself");
    fill_row(&message, row, &strings);
    message.numbers[STORE_ROW_VERSION] = ++broker->index_rows->version;
    index_send(broker, &message, &strings);
}

static void ask_page(struct broker *broker);

static void page_done(struct broker *broker, struct index_call *call,
                      const struct store_packet *packet)
{
    struct compare *compare = (struct compare *)call;
    AUTO_RECORD row = RECORD_INIT, own = RECORD_INIT;

    if (packet->head.kind == STORE_DONE) {
        compare->is_sent = false;
        if (packet->head.code == CAY_OK && compare->rows >= STORE_PAGE)
            ask_page(broker);
        else if (packet->head.code)
            broker->index_rows->has_overflowed = true; /* once more */
        return;
    }
    if (!index_read_row(packet, &row))
        return;
    compare->rows++;
    memcpy(compare->last, row.id, sizeof row.id);
    int code = broker_find_record(broker, row.id, &own, NULL);
    if (code == CAY_OK && own.state == RECORD_GONE)
        index_mark(broker, row.id, 0);
    else if (code == CAY_E_NOT_FOUND)
        end_forgotten(broker, &row);
}

static void ask_page(struct broker *broker)
{
    struct compare *compare = &broker->index_rows->compare;
    struct store_message message = {.kind = STORE_OWN_ROWS};
    AUTO_BUF strings = {.max = SANDBOX_ID_MAX};

    strings_add(&strings, compare->last);
    compare->rows = 0;
    compare->is_sent = true;
    compare->call.done = page_done;
    index_ask(broker, &compare->call, &message, &strings);
}

static void compare_all(struct broker *broker)
{
    const struct registry_filter filter = {.states = RECORD_LIVING};
    struct index_rows *rows = broker->index_rows;

    rows->has_overflowed = false;
    (void)!registry_visit(broker->registry, &filter, mark_one, broker, NULL);
    if (rows->compare.is_sent)
        return;
    rows->compare.last[0] = '\0';
    ask_page(broker);
}

void index_rows_up(struct broker *broker, int64_t version)
{
    struct index_rows *rows = broker->index_rows;

    if (version > rows->version)
        rows->version = version;
    rows->pause_ms = 0;
    compare_all(broker);
    index_rows_run(broker);
}

/* --- The loop --- */

void index_rows_run(struct broker *broker)
{
    struct index_rows *rows = broker->index_rows;
    uint64_t now_ms = clock_ms();

    if (rows->replies)
        send_replies(broker, NULL, now_ms);
    if (now_ms < rows->pause_ms)
        return;
    rows->pause_ms = 0;
    while (rows->queue && rows->sent < SENT_MAX && index_has_room(broker) &&
           !rows->pause_ms) {
        struct queued_row *first = rows->queue;
        if (first->is_sent) /* its result comes first */
            break;
        send_row(broker, take_queued(rows));
    }
    while (rows->events && index_has_room(broker))
        send_event(broker);
    if (rows->has_overflowed && !rows->count && index_has_room(broker))
        compare_all(broker);
}

uint64_t index_rows_wake_ms(const struct broker *broker)
{
    const struct index_rows *rows = broker->index_rows;
    uint64_t end_ms = rows->pause_ms ? rows->pause_ms : UINT64_MAX;

    for (const struct late_reply *at = rows->replies; at; at = at->next)
        if (at->end_ms < end_ms)
            end_ms = at->end_ms;
    return end_ms;
}

void index_rows_put(struct samples *out, const struct broker *broker)
{
    const struct index_rows *rows = broker->index_rows;

    samples_one(out, "cay_store_queued_rows", "gauge",
                "Rows of sandboxes that PostgreSQL does not have yet", rows->count);
    samples_one(out, "cay_store_refused_rows_total", "counter",
                "Rows of sandboxes that PostgreSQL did not accept", rows->refused);
    samples_one(out, "cay_store_dropped_events_total", "counter",
                "Events that were not written to PostgreSQL", rows->dropped_events);
}

/* --- Rows of the index --- */

static bool copy_checked(char *field, size_t room, const char *text)
{
    size_t len = strlen(text);

    if (len >= room)
        return false;
    memcpy(field, text, len + 1);
    return true;
}

bool index_read_row(const struct store_packet *packet, struct record_row *row)
{
    enum { ROW_STRINGS = 4 };
    const int64_t *numbers = packet->head.numbers;
    const char *strings[ROW_STRINGS], *at;
    int64_t state = numbers[STORE_ROW_STATE];

    if (!store_strings(packet, strings, ROW_STRINGS) || !record_is_id(strings[0]) ||
        packet->head.count % 2 || state < RECORD_RUNNING || state > RECORD_GONE ||
        !options_is_tenant(strings[1]) ||
        !copy_checked(row->id, sizeof row->id, strings[0]) ||
        !copy_checked(row->tenant, sizeof row->tenant, strings[1]) ||
        !copy_checked(row->template_name, sizeof row->template_name, strings[2]) ||
        !copy_checked(row->reason, sizeof row->reason, strings[3]))
        return false;
    int64_t step_ms = server_clock_step_ms();
    row->state = (enum record_state)state;
    row->started_ms = numbers[STORE_ROW_STARTED_MS] - step_ms;
    row->end_ms = numbers[STORE_ROW_END_MS] - step_ms;
    row->flags = (uint32_t)numbers[STORE_ROW_FLAGS];
    row->token_version = (uint32_t)numbers[STORE_ROW_TOKEN];
    for (at = strings[3]; (at = store_next(packet, at));)
        strings_add(&row->metadata, at);
    return !row->metadata.failed;
}
