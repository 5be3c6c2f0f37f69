/* SPDX-License-Identifier: Apache-2.0 */

/* Rows, including changes that are not written yet, and replies made from them. */
#include <errno.h>
#include <linux/sockios.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "server/broker/broker.h"

enum { AGAIN_MS = 1000 };

struct unwritten {
    struct unwritten *next;
    struct record_row row; /* without metadata, which does not change */
};

static struct unwritten **find_unwritten(struct broker *broker, const char *id)
{
    struct unwritten **link = &broker->unwritten;

    while (*link && strcmp((*link)->row.id, id) != 0)
        link = &(*link)->next;
    return link;
}

static void drop_unwritten(struct unwritten **link)
{
    struct unwritten *old = *link;

    if (old)
        *link = old->next;
    free(old);
}

const char *broker_find_metadata(const struct record_row *row, const char *key)
{
    const char *at = row->metadata.data, *end = at + row->metadata.len;

    while (at && at < end) {
        const char *value = at + strlen(at) + 1;
        if (strcmp(at, key) == 0)
            return value;
        at = value + strlen(value) + 1;
    }
    return NULL;
}

/* A full disk cannot undo what happened to a sandbox: keep the row in memory. */
void broker_write_record(struct broker *broker, const struct record_row *row)
{
    struct unwritten **link = find_unwritten(broker, row->id);
    struct cay_error error;

    if (registry_update(broker->registry, row, &error) == CAY_OK) {
        drop_unwritten(link);
        index_mark(broker, row->id, 0);
        return;
    }
    if (!*link) {
        if (broker->log_error)
            broker->log_error(row->id, &error);
        *link = calloc(1, sizeof **link);
    }
    if (*link) {
        (*link)->row = *row;
        (*link)->row.metadata = (struct buf){0};
    }
    index_mark(broker, row->id, 0);
    broker_wake_at(broker, server_clock_ms() + AGAIN_MS);
}

void broker_retry_writes(struct broker *broker)
{
    struct unwritten **link = &broker->unwritten;
    struct cay_error recovery;
    bool was_full = registry_is_exclusive(broker->registry);

    /* A store that was opened on a full disk is opened again. */
    if (was_full && !registry_recover(broker->registry)) {
        broker_wake_at(broker, server_clock_ms() + AGAIN_MS);
    } else if (was_full && broker->log_error) {
        cay_fail(&recovery, CAY_E_NO_SPACE, 0, "server", NULL, "the disk has space again",
                 "sandboxes can be created");
        broker->log_error("store", &recovery);
    }
    if (!*link)
        return;
    registry_set_waiting(broker->registry, false); /* other requests wait meanwhile */
    while (*link && registry_update(broker->registry, &(*link)->row, NULL) == CAY_OK)
        drop_unwritten(link);
    registry_set_waiting(broker->registry, true);
    if (*link)
        broker_wake_at(broker, server_clock_ms() + AGAIN_MS);
}

uint64_t broker_count_unwritten(const struct broker *broker)
{
    uint64_t count = 0;

    for (const struct unwritten *at = broker->unwritten; at; at = at->next)
        count++;
    return count;
}

void broker_apply_unwritten(struct broker *broker, struct record_row *row)
{
    const struct unwritten *unwritten = *find_unwritten(broker, row->id);
    struct buf metadata = row->metadata;

    if (!unwritten)
        return;
    *row = unwritten->row;
    row->metadata = metadata;
}

int broker_find_record(struct broker *broker, const char *id, struct record_row *ret_row,
                       struct cay_error *err)
{
    int code = registry_find(broker->registry, id, ret_row, err);

    if (!code)
        broker_apply_unwritten(broker, ret_row);
    return code;
}

const char *broker_end_reason(const struct broker *broker, const struct record_row *row)
{
    const struct broker_request *kill = broker_request_find(broker, OP_KILL, row->id);

    if (row->state == RECORD_GONE)
        return row->reason;
    return kill ? kill->row.reason : NULL;
}

/* --- Replies --- */

enum {
    LIST_MAX = 100,
    BESIDE_METADATA = 8 << 10 /* everything else in a REPLY_SANDBOX */
};

int broker_reply_sandbox(struct broker *broker, int channel, const struct record_row *row,
                         bool resumed)
{
    const struct serve_options *options = broker->options;
    struct reply reply = {.kind = REPLY_SANDBOX};
    AUTO_BUF strings = {.max = CHANNEL_PACKET};
    char token[TOKEN_MAX], traffic[TOKEN_MAX] = "";
    int64_t step_ms = server_clock_step_ms();

    secrets_token(&broker->secrets, TOKEN_ENVD, row->id, row->token_version, token);
    if (row->flags & CREATE_PRIVATE_TRAFFIC)
        secrets_token(&broker->secrets, TOKEN_TRAFFIC, row->id, row->token_version,
                      traffic);
    reply.numbers[SANDBOX_RESUMED] = resumed;
    reply.numbers[SANDBOX_STATE] = row->state;
    reply.numbers[SANDBOX_STARTED_MS] = row->started_ms + step_ms;
    reply.numbers[SANDBOX_END_MS] = row->end_ms + step_ms;
    reply.numbers[SANDBOX_FLAGS] = row->flags;
    static long cpus; /* sysconf() opens a file */

    if (!cpus)
        cpus = sysconf(_SC_NPROCESSORS_ONLN);
    reply.numbers[SANDBOX_CPUS] = cpus;
    reply.numbers[SANDBOX_MEMORY_MB] = (int64_t)(options->memory_bytes >> 20);
    reply.numbers[SANDBOX_DISK_MB] = (int64_t)(options->disk_bytes >> 20);
    strings_add(&strings, row->id);
    strings_add(&strings, row->template_name);
    strings_add(&strings, token);
    strings_add(&strings, traffic);
    strings_add(&strings, broker->domain);
    (void)buf_append(&strings, row->metadata.data, row->metadata.len);
    for (size_t i = 0; i < strings.len; i++)
        reply.count += strings.data[i] == '\0';
    return reply_send(channel, &reply, &strings, -1);
}

struct listing {
    struct broker *broker;
    struct request_packet *request;
    const char **wanted; /* metadata: key, value, ... */
    int64_t pairs, left, sent;
    unsigned states;
    int error; /* of sending, a negative errno */
    bool more;
};

static bool has_metadata(const struct record_row *row, const char *key, const char *value)
{
    const char *at = row->metadata.data, *end = at + row->metadata.len;

    while (at && at < end) {
        const char *text = at + strlen(at) + 1;
        if (text >= end)
            return false;
        if (strcmp(at, key) == 0)
            return strcmp(text, value) == 0;
        at = text + strlen(text) + 1;
    }
    return false;
}

/* Whether the channel has space for another packet and REPLY_DONE.  The kernel charges
 * more than the bytes, but less than twice as much. */
static bool has_room(int channel, const struct record_row *row)
{
    int sent = 0, most = 0;
    socklen_t len = sizeof most;

    return ioctl(channel, SIOCOUTQ, &sent) != 0 ||
           getsockopt(channel, SOL_SOCKET, SO_SNDBUF, &most, &len) != 0 || sent == 0 ||
           (size_t)sent + 2 * (row->metadata.len + BESIDE_METADATA) < (size_t)most;
}

static bool list_one(const struct record_row *written, void *cookie)
{
    struct listing *listing = cookie;
    struct record_row now = *written, *row = &now;

    broker_apply_unwritten(listing->broker, row);
    if (broker_end_reason(listing->broker, row) || !(listing->states >> row->state & 1))
        return true;
    for (int64_t i = 0; i < listing->pairs; i++)
        if (!has_metadata(row, listing->wanted[2 * i], listing->wanted[2 * i + 1]))
            return true;
    if (listing->left-- == 0 || !has_room(listing->request->channel, row)) {
        listing->more = true;
        return false;
    }
    listing->error =
        broker_reply_sandbox(listing->broker, listing->request->channel, row, false);
    listing->sent += !listing->error;
    if (listing->error == -EAGAIN &&
        listing->sent > 0) { /* it will be on the next page */
        listing->error = 0;
        listing->more = true;
        return false;
    }
    return !listing->error;
}

/* A time from a client, converted to the clock of the rows; 0: none. */
static int64_t since_start(int64_t shown_ms)
{
    return shown_ms ? shown_ms - server_clock_step_ms() : 0;
}

static unsigned wanted_states(const struct request *head)
{
    return (head->flags & LIST_RUNNING ? 1u << RECORD_RUNNING : 0) |
           (head->flags & LIST_PAUSED ? 1u << RECORD_PAUSED : 0);
}

static void list_alone(struct broker *broker, struct request_packet *request,
                       const char *tenant, const char **strings)
{
    const struct request *head = &request->head;
    struct cay_error error = {0};
    struct reply last = {.kind = REPLY_DONE};
    struct registry_filter filter = {
        .tenant = tenant,
        .template_name = *strings[0] ? strings[0] : NULL,
        .started_after_ms = since_start(head->numbers[LIST_STARTED_AFTER_MS]),
        .oldest_first = head->flags & LIST_OLDEST_FIRST,
        .after_ms = since_start(head->numbers[LIST_AFTER_MS]),
        .after_id = strings[1],
        .states = wanted_states(head),
    };
    struct listing listing = {.broker = broker,
                              .request = request,
                              .wanted = strings + 2,
                              .pairs = head->numbers[LIST_METADATA],
                              .states = filter.states,
                              .left = head->numbers[LIST_LIMIT]};
    int code = registry_visit(broker->registry, &filter, list_one, &listing, &error);
    if (!code)
        code = registry_count(broker->registry, tenant, RECORD_RUNNING,
                              &last.numbers[LISTED_RUNNING], &error);
    if (!code && listing.error)
        code = cay_fail_errno(&error, -listing.error, "server.list", "the reply");
    if (!code) {
        last.numbers[LISTED_HAS_MORE] = listing.more;
        (void)reply_send(request->channel, &last, NULL, -1);
    } else {
        (void)reply_send_error(request->channel, 0, &error);
    }
    request_packet_done(request);
}

/* --- Lists of all nodes --- */

struct shared_list {
    struct index_call call; /* first */
    struct index_held *held;
    struct listing listing;
    char *room;
    const char **strings;
    int64_t rows; /* that have arrived */
};

/* The node's own store knows best about its own sandboxes. */
static void list_shared_one(struct shared_list *list, struct record_row *row)
{
    struct listing *listing = &list->listing;
    struct broker *broker = listing->broker;
    AUTO_RECORD own = RECORD_INIT;
    int code = broker_find_record(broker, row->id, &own, NULL);
    bool is_own = code != CAY_E_NOT_FOUND;

    if (listing->more || listing->error || strcmp(row->tenant, list->held->tenant) != 0 ||
        (is_own ? code || strcmp(own.tenant, row->tenant) != 0
                : !node_is_foreign(broker, row->id)))
        return;
    reply_set_tenant(row->tenant);
    (void)list_one(is_own ? &own : row, listing);
    reply_set_tenant("");
}

static void end_shared(struct broker *broker, struct shared_list *list)
{
    index_let_go(broker, list->held);
    free(list->strings);
    free(list->room);
    free(list);
}

static void shared_done(struct broker *broker, struct index_call *call,
                        const struct store_packet *packet)
{
    struct shared_list *list = (struct shared_list *)call;
    struct request_packet *request = list->held->request;
    struct reply last = {.kind = REPLY_DONE};
    AUTO_RECORD row = RECORD_INIT;

    if (packet->head.kind == STORE_ROW) {
        list->rows++;
        if (index_read_row(packet, &row))
            list_shared_one(list, &row);
        return;
    }
    reply_set_tenant(list->held->tenant);
    if (packet->head.code && !list->listing.sent)
        list_alone(broker, request, list->held->tenant, list->strings);
    else if (!packet->head.code && !list->listing.error) {
        last.numbers[LISTED_HAS_MORE] =
            list->listing.more || list->rows > request->head.numbers[LIST_LIMIT];
        last.numbers[LISTED_RUNNING] = packet->head.numbers[STORE_LIST_RUNNING];
        (void)reply_send(request->channel, &last, NULL, -1);
    } else {
        broker_refuse(request, 503, CAY_E_UNAVAILABLE,
                      "the database went away during the list", "try again");
    }
    reply_set_tenant("");
    end_shared(broker, list);
}

static void ask_shared(struct broker *broker, struct shared_list *list)
{
    const struct request *head = &list->held->request->head;
    struct store_message message = {.kind = STORE_LIST};
    AUTO_BUF strings = {.max = STORE_PACKET};

    message.numbers[STORE_LIST_LIMIT] = head->numbers[LIST_LIMIT] + 1;
    message.numbers[STORE_LIST_STATES] = wanted_states(head);
    message.numbers[STORE_LIST_OLDEST_FIRST] = (head->flags & LIST_OLDEST_FIRST) != 0;
    message.numbers[STORE_LIST_AFTER_MS] = head->numbers[LIST_AFTER_MS];
    message.numbers[STORE_LIST_STARTED_AFTER_MS] = head->numbers[LIST_STARTED_AFTER_MS];
    strings_add(&strings, list->held->tenant);
    for (uint32_t i = 0; i < head->count; i++)
        strings_add(&strings, list->strings[i]);
    list->call.done = shared_done;
    index_ask(broker, &list->call, &message, &strings);
}

/* Takes the strings of the request. */
static void list_shared(struct broker *broker, struct request_packet *request,
                        const char *tenant, char **room, const char ***strings)
{
    struct shared_list *list = calloc(1, sizeof *list);

    if (!list) {
        request_packet_done(request);
        return;
    }
    list->held = index_hold(broker, request, tenant);
    if (!list->held) {
        free(list);
        return;
    }
    list->room = TAKE_PTR(*room);
    list->strings = TAKE_PTR(*strings);
    const struct request *head = &list->held->request->head;
    list->listing = (struct listing){.broker = broker,
                                     .request = list->held->request,
                                     .wanted = list->strings + 2,
                                     .pairs = head->numbers[LIST_METADATA],
                                     .states = wanted_states(head),
                                     .left = head->numbers[LIST_LIMIT]};
    ask_shared(broker, list);
}

void broker_list(struct broker *broker, struct request_packet *request,
                 const char *tenant)
{
    AUTO_FREE char *room = NULL;
    AUTO_FREE const char **strings = request_strings(request, &room);
    const struct request *head = &request->head;
    /* A page of sandboxes with all their metadata.  Without CAP_NET_ADMIN the buffer and
     * the pages are smaller. */
    int buffer = 32 << 20;

    if (!strings || head->numbers[LIST_LIMIT] < 1 ||
        head->numbers[LIST_LIMIT] > LIST_MAX || head->numbers[LIST_METADATA] < 0 ||
        2 + 2 * head->numbers[LIST_METADATA] != head->count) {
        broker_refuse(request, 400, CAY_E_INVALID, "the request is malformed", "");
        return;
    }
    (void)setsockopt(request->channel, SOL_SOCKET, SO_SNDBUFFORCE, &buffer,
                     sizeof buffer);
    if (index_is_up(broker))
        list_shared(broker, request, tenant, &room, &strings);
    else
        list_alone(broker, request, tenant, strings);
}
