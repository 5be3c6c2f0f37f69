/* SPDX-License-Identifier: Apache-2.0 */

/* Approvals of tenants: the broker says whose queue it is, and a keeper without a sandbox
 * reads or changes that, since its files may be locked. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/error.h"
#include "cay/approval.h"
#include "server/broker/broker.h"

enum { NOTE_MAX_BYTES = CAY_NOTE_MAX, WATCHED_AT_A_TIME = 1024 };

const char *broker_find_approvals(const struct record_row *row)
{
    const char *text = broker_find_metadata(row, RECORD_APPROVE);

    return text ? text : "";
}

int64_t broker_ask_ms(const struct record_row *row)
{
    int64_t ms = (int64_t)strtoull(broker_find_approvals(row), NULL, 10);

    if (!(row->flags & CREATE_APPROVE_EGRESS))
        return 0;
    return ms > 0 ? ms : (int64_t)CAY_PENDING_TIMEOUT_MS;
}

/* --- Requests --- */

/* Lists and contents come as several replies, or with a descriptor: the keeper has the
 * channel of the client. */
static void forward(struct broker *broker, struct request_packet *request,
                    const struct request *head, const struct buf *strings)
{
    struct keeper_handle *keeper = keepers_start(broker, "");
    int error =
        keeper ? request_send(keeper->socket, head, strings, request->channel) : -EAGAIN;

    if (keeper && error)
        keepers_drop(broker, keeper);
    else if (keeper)
        keeper->sent++;
    if (error)
        broker_refuse(request, 503, CAY_E_BUSY, "the server is overloaded",
                      "try again in a moment");
    else
        request_packet_done(request);
}

/* It is done, or the error is in the reply. */
static int decided(struct broker *broker, struct broker_request *pending,
                   const struct reply_packet *reply, struct cay_error *err)
{
    (void)broker;
    (void)reply;
    (void)err;
    (void)reply_send_done(pending->client);
    return CAY_OK;
}

void broker_handle_approval(struct broker *broker, struct request_packet *request,
                            const char *tenant)
{
    AUTO_FREE char *room = NULL;
    AUTO_FREE const char **strings = request_strings(request, &room);
    AUTO_BUF sent = {.max = CHANNEL_PACKET};
    enum op op = (enum op)request->head.op;
    bool changes = op == OP_APPROVAL_DECIDE || op == OP_APPROVAL_RULE_REMOVE;
    struct request head = {.version = CHANNEL_VERSION, .op = (uint32_t)op};

    strings_add(&sent, tenant);
    for (uint32_t i = 0; strings && i < request->head.count; i++)
        strings_add(&sent, strings[i]);
    if (!strings || sent.failed ||
        (op == OP_APPROVAL_DECIDE &&
         (request->head.count != 3 || strlen(strings[2]) >= NOTE_MAX_BYTES))) {
        broker_refuse(request, 400, CAY_E_INVALID, "the request is malformed", "");
        return;
    }
    head.count = 1 + request->head.count;
    head.strings_len = (uint32_t)sent.len;
    if (!changes) {
        forward(broker, request, &head, &sent);
        return;
    }
    struct broker_request *pending = broker_request_new(broker, op, NULL, request);
    if (!pending)
        return;
    cay_copy_text(pending->row.tenant, TENANT_MAX, tenant); /* for the audit record */
    pending->done = decided;
    broker_request_send_to(broker, pending, &head, &sent);
}

/* --- Connections --- */

/* Their keepers are never idle, but a server that was started again has none. */
struct watched {
    char ids[WATCHED_AT_A_TIME][SANDBOX_ID_MAX];
    size_t count;
};

static bool add_watched(const struct record_row *row, void *cookie)
{
    struct watched *watched = cookie;

    if (row->flags & CREATE_APPROVE_EGRESS && watched->count < WATCHED_AT_A_TIME)
        memcpy(watched->ids[watched->count++], row->id, sizeof row->id);
    return true;
}

void broker_watch_egress(struct broker *broker)
{
    const struct registry_filter filter = {.states = 1 << RECORD_RUNNING};
    AUTO_FREE struct watched *watched =
        broker->is_keeper_lost ? calloc(1, sizeof *watched) : NULL;

    if (!broker->is_keeper_lost || broker->drain_end_ms)
        return;
    broker->is_keeper_lost = false;
    if (!watched ||
        registry_visit(broker->registry, &filter, add_watched, watched, NULL) != CAY_OK)
        return;
    for (size_t i = 0; i < watched->count; i++)
        (void)keepers_find(broker, watched->ids[i]);
}
