/* SPDX-License-Identifier: Apache-2.0 */

/* Sessions of browsers that ended before their time, on all nodes.  The table of this
 * node's store decides, so that no request waits for the database.  The index has the
 * same rows: a node sends it each logout, takes those of others by NOTIFY, and on each
 * new connection exchanges all of them in both directions, since rows are only ever
 * added. */
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"
#include "server/broker/broker.h"
#include "server/broker/index.h"
#include "server/broker/session.h"

/* One direction: row after row, in the order of ids. */
struct direction {
    struct index_call call;
    bool is_sent, is_due; /* due: from the first row on, at the next chance */
    char last[SESSION_ID_MAX];
};

struct index_sessions {
    struct direction push, pull;
    unsigned rows; /* of the present page of `pull` */
};

struct index_sessions *index_sessions_new(void)
{
    return calloc(1, sizeof(struct index_sessions));
}

void index_sessions_free(struct index_sessions *sessions)
{
    free(sessions);
}

static int64_t now_s(void)
{
    return clock_since_1970_ms() / 1000;
}

/* --- From this node to the index --- */

static void send_session(struct broker *broker, struct index_call *call,
                         const struct browser_session *session)
{
    struct store_message message = {.kind = STORE_SESSION_END};
    AUTO_BUF strings = {.max = SESSION_ID_MAX};

    message.numbers[STORE_SESSION_EXPIRES_S] = session->expires_s;
    strings_add(&strings, session->id);
    index_ask(broker, call, &message, &strings);
}

static void ended_done(struct broker *broker, struct index_call *call,
                       const struct store_packet *packet)
{
    if (packet->head.kind != STORE_DONE)
        return;
    if (packet->head.code)
        broker->index_sessions->push.is_due = true;
    free(call);
}

void index_session_ended(struct broker *broker, const struct browser_session *session)
{
    struct index_sessions *sessions = broker->index_sessions;

    if (!sessions)
        return;
    struct index_call *call = calloc(1, sizeof *call);
    if (!call) {
        sessions->push.is_due = true;
        return;
    }
    call->done = ended_done;
    send_session(broker, call, session);
}

static void push_next(struct broker *broker);

static void push_done(struct broker *broker, struct index_call *call,
                      const struct store_packet *packet)
{
    struct direction *push = (struct direction *)call;

    if (packet->head.kind != STORE_DONE)
        return;
    push->is_sent = false;
    if (packet->head.code)
        push->is_due = true;
    else
        push_next(broker);
}

static void push_next(struct broker *broker)
{
    struct direction *push = &broker->index_sessions->push;
    struct browser_session session;
    int code =
        browser_session_next_ended(broker->registry, push->last, now_s(), &session, NULL);

    if (code) {
        push->is_due |= code != CAY_E_NOT_FOUND;
        return;
    }
    memcpy(push->last, session.id, sizeof push->last);
    push->is_sent = true;
    push->call.done = push_done;
    send_session(broker, &push->call, &session);
}

/* --- From the index to this node --- */

void index_take_session(struct broker *broker, const char *id)
{
    struct browser_session session;
    int64_t now = now_s();

    if (!browser_session_read_id(id, &session) || session.expires_s <= now ||
        session.expires_s > now + 2 * SESSION_S ||
        browser_session_check(broker->registry, &session, NULL) == CAY_E_NOT_FOUND)
        return;
    if (browser_session_end(broker->registry, &session, now, NULL) != CAY_OK)
        broker->index_sessions->pull.is_due = true;
}

static void ask_page(struct broker *broker);

static void page_done(struct broker *broker, struct index_call *call,
                      const struct store_packet *packet)
{
    struct index_sessions *sessions = broker->index_sessions;
    struct direction *pull = (struct direction *)call;

    if (packet->head.kind != STORE_DONE) {
        const char *id = store_next(packet, NULL);
        if (!id || strlen(id) >= sizeof pull->last)
            return;
        sessions->rows++;
        cay_copy_text(pull->last, sizeof pull->last, id);
        index_take_session(broker, id);
        return;
    }
    pull->is_sent = false;
    if (packet->head.code)
        pull->is_due = true;
    else if (sessions->rows >= STORE_PAGE)
        ask_page(broker);
}

static void ask_page(struct broker *broker)
{
    struct index_sessions *sessions = broker->index_sessions;
    struct store_message message = {.kind = STORE_SESSIONS};
    AUTO_BUF strings = {.max = SESSION_ID_MAX};

    sessions->rows = 0;
    sessions->pull.is_sent = true;
    sessions->pull.call.done = page_done;
    strings_add(&strings, sessions->pull.last);
    index_ask(broker, &sessions->pull.call, &message, &strings);
}

/* --- Both --- */

static bool begins(struct direction *direction)
{
    if (!direction->is_due || direction->is_sent)
        return false;
    direction->is_due = false;
    direction->last[0] = '\0';
    return true;
}

void index_sessions_run(struct broker *broker)
{
    struct index_sessions *sessions = broker->index_sessions;

    if (begins(&sessions->pull))
        ask_page(broker);
    if (begins(&sessions->push))
        push_next(broker);
}

void index_sessions_up(struct broker *broker)
{
    broker->index_sessions->push.is_due = broker->index_sessions->pull.is_due = true;
    index_sessions_run(broker);
}
