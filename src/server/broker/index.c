/* SPDX-License-Identifier: Apache-2.0 */

/* The index in PostgreSQL: the process cay-store, and requests to it.  Each request ends,
 * at the latest after CALL_MS: nothing here waits for a database. */
#include "server/broker/index.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"
#include "server/broker/broker.h"
#include "server/wire/samples.h"
#include "server/wire/warn.h"

enum {
    CALL_MS = 2500,
    WAITING_MAX = 512, /* requests beyond the window */
    RESTART_MS = 200,  /* before a process that ended is replaced; then twice as long */
    RESTART_MAX_MS = 10000,
    PACKETS_AT_A_TIME = 128,
    NODES_MAX = 10000
};

/* Beyond the window. */
struct waiting {
    struct waiting *next;
    struct index_call *call;
    struct store_message message;
    struct buf strings;
};

struct node_name {
    char name[NODE_LEN + 1];
    bool is_lost;
};

struct index_timer {
    struct source source;
    int fd;
};

struct index {
    struct source source; /* of the socket */
    struct index_timer timer;
    pid_t pid;  /* 0: none */
    int socket; /* -1: none */
    int plan;   /* for the process */
    bool is_up, is_taken, has_warned;
    struct index_call *calls, **last_call; /* sent, the oldest first */
    unsigned call_count;
    struct waiting *waiting, **last_waiting;
    unsigned waiting_count;
    uint64_t number;
    uint64_t beat_ms, restart_ms, wait_ms;
    uint64_t nodes_ms; /* when the list of nodes came */
    struct node_name *nodes, *next_nodes;
    size_t node_count, next_count;
    uint64_t connects, restarts, failed_calls;
    struct store_packet packet;
};

bool index_is_on(const struct broker *broker)
{
    return broker->index != NULL;
}

bool index_is_up(const struct broker *broker)
{
    return broker->index && broker->index->is_up;
}

bool index_is_taken(const struct broker *broker)
{
    return broker->index && broker->index->is_taken;
}

/* --- The timer --- */

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

void index_set_timer(struct broker *broker)
{
    const struct index *index = broker->index;
    uint64_t now_ms = clock_ms(), end_ms = index_rows_wake_ms(broker);

    if (!index->pid)
        end_ms = earlier(end_ms, index->restart_ms);
    if (index->is_up)
        end_ms = earlier(end_ms, index->beat_ms);
    if (index->calls)
        end_ms = earlier(end_ms, index->calls->sent_ms + CALL_MS);
    if (index->waiting)
        end_ms = earlier(end_ms, index->waiting->call->sent_ms + CALL_MS);
    uint64_t left_ms = end_ms > now_ms ? end_ms - now_ms : 1;
    if (left_ms > STORE_BEAT_MS)
        left_ms = STORE_BEAT_MS;
    const struct itimerspec when = {
        .it_value = {(time_t)(left_ms / 1000), (long)(left_ms % 1000) * 1000000}};
    (void)timerfd_settime(index->timer.fd, 0, &when, NULL);
}

/* --- Calls --- */

static void end_call(struct broker *broker, struct index_call *call, int code)
{
    struct store_packet *packet = calloc(1, sizeof *packet);
    static struct store_packet spare;

    /* Within the call another one may end. */
    struct store_packet *used = packet ? packet : &spare;
    used->head =
        (struct store_message){.kind = STORE_DONE, .number = call->number, .code = code};
    broker->index->failed_calls++;
    call->done(broker, call, used);
    free(packet);
}

static void add_call(struct index *index, struct index_call *call)
{
    call->next = NULL;
    *index->last_call = call;
    index->last_call = &call->next;
    index->call_count++;
}

static void remove_call(struct index *index, struct index_call **link)
{
    struct index_call *call = *link;

    *link = call->next;
    if (index->last_call == &call->next)
        index->last_call = link;
    index->call_count--;
}

static void remove_waiting(struct index *index)
{
    struct waiting *first = index->waiting;

    index->waiting = first->next;
    if (!index->waiting)
        index->last_waiting = &index->waiting;
    index->waiting_count--;
    if (first->strings.data)
        explicit_bzero(first->strings.data, first->strings.len);
    buf_done(&first->strings);
    free(first);
}

static void fail_calls(struct broker *broker)
{
    struct index *index = broker->index;

    while (index->calls) {
        struct index_call *call = index->calls;
        remove_call(index, &index->calls);
        end_call(broker, call, CAY_E_UNAVAILABLE);
    }
    while (index->waiting) {
        struct index_call *call = index->waiting->call;
        remove_waiting(index);
        end_call(broker, call, CAY_E_UNAVAILABLE);
    }
}

/* False: the socket is full. */
static bool send_now(struct broker *broker, struct index_call *call,
                     struct store_message *message, const struct buf *strings)
{
    struct index *index = broker->index;
    int error = index->call_count < STORE_WINDOW
                    ? store_send(index->socket, message, strings)
                    : -EAGAIN;

    if (error == -EAGAIN)
        return false;
    if (error)
        end_call(broker, call, error == -EMSGSIZE ? CAY_E_INVALID : CAY_E_UNAVAILABLE);
    else
        add_call(index, call);
    return true;
}

static bool add_waiting(struct index *index, struct index_call *call,
                        const struct store_message *message, const struct buf *strings)
{
    struct waiting *one =
        index->waiting_count < WAITING_MAX ? calloc(1, sizeof *one) : NULL;

    if (!one)
        return false;
    one->call = call;
    one->message = *message;
    buf_init(&one->strings, STORE_PACKET);
    if (strings && !buf_append(&one->strings, strings->data, strings->len)) {
        buf_done(&one->strings);
        free(one);
        return false;
    }
    *index->last_waiting = one;
    index->last_waiting = &one->next;
    index->waiting_count++;
    return true;
}

void index_ask(struct broker *broker, struct index_call *call,
               struct store_message *message, const struct buf *strings)
{
    struct index *index = broker->index;

    call->sent_ms = clock_ms();
    call->number = message->number = ++index->number;
    if (!index->is_up)
        end_call(broker, call, CAY_E_UNAVAILABLE);
    else if ((index->waiting || !send_now(broker, call, message, strings)) &&
             !add_waiting(index, call, message, strings))
        end_call(broker, call, CAY_E_UNAVAILABLE);
    index_set_timer(broker);
}

static void send_waiting(struct broker *broker)
{
    struct index *index = broker->index;

    while (index->waiting) {
        struct waiting *first = index->waiting;
        struct index_call *call = first->call;
        struct store_message message = first->message;
        struct buf strings = first->strings;
        if (index->call_count >= STORE_WINDOW)
            return;
        first->strings = (struct buf){0};
        if (!send_now(broker, call, &message, &strings)) {
            first->strings = strings;
            return;
        }
        if (index->waiting == first) /* else the end of the call has removed all */
            remove_waiting(index);
        buf_done(&strings);
    }
}

struct sent {
    struct index_call call;
};

static void forget(struct broker *broker, struct index_call *call,
                   const struct store_packet *packet)
{
    (void)broker;
    if (packet->head.kind == STORE_DONE)
        free(call);
}

void index_send(struct broker *broker, struct store_message *message,
                const struct buf *strings)
{
    struct sent *sent = calloc(1, sizeof *sent);

    if (!sent)
        return;
    sent->call.done = forget;
    index_ask(broker, &sent->call, message, strings);
}

bool index_has_room(const struct broker *broker)
{
    return index_is_up(broker) && broker->index->call_count < STORE_WINDOW / 2;
}

static void end_late_calls(struct broker *broker)
{
    struct index *index = broker->index;
    uint64_t now_ms = clock_ms();

    while (index->calls && now_ms - index->calls->sent_ms >= CALL_MS) {
        struct index_call *call = index->calls;
        remove_call(index, &index->calls);
        end_call(broker, call, CAY_E_UNAVAILABLE);
    }
    while (index->waiting && now_ms - index->waiting->call->sent_ms >= CALL_MS) {
        struct index_call *call = index->waiting->call;
        remove_waiting(index);
        end_call(broker, call, CAY_E_UNAVAILABLE);
    }
}

/* --- Nodes --- */

static void send_beat(struct broker *broker)
{
    struct store_message beat = {.kind = STORE_BEAT};
    struct node_load load = node_load(broker);

    broker->index->beat_ms = clock_ms() + STORE_BEAT_MS;
    beat.numbers[STORE_BEAT_RUNNING] = (int64_t)load.running;
    beat.numbers[STORE_BEAT_FREE] = load.free;
    beat.numbers[STORE_BEAT_STATE] = load.state;
    index_send(broker, &beat, NULL);
}

static void add_node(struct index *index, const char *text)
{
    char name[NODE_LEN + 1] = "";

    if (strlen(text) != NODE_LEN + 1 || index->next_count >= NODES_MAX)
        return;
    memcpy(name, text, NODE_LEN);
    if (!options_is_node(name))
        return;
    struct node_name *more =
        realloc(index->next_nodes, (index->next_count + 1) * sizeof *more);
    if (!more)
        return;
    index->next_nodes = more;
    memcpy(more[index->next_count].name, name, sizeof name);
    more[index->next_count++].is_lost = text[NODE_LEN] == '-';
}

static void take_nodes(struct index *index)
{
    for (const char *at = NULL; (at = store_next(&index->packet, at));)
        add_node(index, at);
    if (index->packet.head.numbers[STORE_NODES_MORE])
        return;
    free(index->nodes);
    index->nodes = TAKE_PTR(index->next_nodes);
    index->node_count = index->next_count;
    index->next_count = 0;
    index->nodes_ms = clock_ms();
}

/* An old list says nothing. */
bool index_is_lost(const struct broker *broker, const char *id)
{
    const struct index *index = broker->index;

    if (!index || !index->is_up || !node_is_foreign(broker, id) ||
        clock_ms() - index->nodes_ms > STORE_LEASE_S * UINT64_C(1000))
        return false;
    for (size_t i = 0; i < index->node_count; i++)
        if (strncmp(index->nodes[i].name, id, NODE_LEN) == 0)
            return index->nodes[i].is_lost;
    return false;
}

/* --- Messages --- */

static void come_up(struct broker *broker)
{
    struct index *index = broker->index;

    index->is_up = true;
    index->is_taken = false;
    index->wait_ms = RESTART_MS;
    if (index->connects++ && index->has_warned) {
        static struct warn warn;
        warn_line(&warn, "store: the database is there again");
    }
    index->has_warned = false;
    send_beat(broker);
    index_keys_changed(broker, "");
    index_sessions_up(broker);
    index_rows_up(broker, index->packet.head.numbers[STORE_UP_VERSION]);
}

static void go_down(struct broker *broker, const char *why)
{
    static struct warn warn;
    struct index *index = broker->index;
    struct cay_error error;

    if (!index->has_warned && broker->log_error) {
        cay_fail(&error, CAY_E_UNAVAILABLE, 0, "serve.store", NULL, why,
                 "lists have only this node's sandboxes until the database is back");
        warn_line(&warn, "store: %s (%s)", error.message, error.hint);
    }
    index->has_warned = true;
    index->is_up = false;
    fail_calls(broker);
}

/* A reply; one that came too late belongs to no call. */
static void take_reply(struct broker *broker)
{
    struct index *index = broker->index;
    const struct store_message *head = &index->packet.head;
    struct index_call **link = &index->calls;

    while (*link && (*link)->number != head->number)
        link = &(*link)->next;
    struct index_call *call = *link;
    if (!call)
        return;
    if (head->kind == STORE_DONE)
        remove_call(index, link);
    call->done(broker, call, &index->packet);
}

static void take_packet(struct broker *broker)
{
    struct index *index = broker->index;

    switch (index->packet.head.kind) {
    case STORE_ROW:
    case STORE_DONE:
        take_reply(broker);
        break;
    case STORE_UP:
        come_up(broker);
        break;
    case STORE_DOWN:
        go_down(broker, index->packet.strings);
        break;
    case STORE_TAKEN:
        index->is_taken = true;
        break;
    case STORE_NODES:
        take_nodes(index);
        break;
    case STORE_KILL:
        index_kill(broker, &index->packet);
        break;
    case STORE_KEYS_CHANGED:
        index_keys_changed(broker, index->packet.strings);
        break;
    case STORE_SESSION_ENDED:
        index_take_session(broker, index->packet.strings);
        break;
    default: /* requests, which only the broker sends */
        break;
    }
}

/* It exits, or has: SIGCHLD follows. */
static void drop_socket(struct broker *broker)
{
    struct index *index = broker->index;

    broker_poll_remove(broker, index->socket);
    (void)close(TAKE_FD(index->socket));
    if (index->pid)
        (void)kill(index->pid, SIGKILL);
    go_down(broker, "cay-store has ended");
}

static void on_socket(struct broker *broker, struct source *source)
{
    struct index *index = (struct index *)source;

    for (int i = 0; i < PACKETS_AT_A_TIME && index->socket >= 0; i++) {
        int got = store_receive(index->socket, &index->packet);
        if (got == -EAGAIN)
            break;
        if (got == 1)
            take_packet(broker);
        else
            drop_socket(broker);
    }
    send_waiting(broker);
    index_rows_run(broker);
    index_set_timer(broker);
}

/* --- The process --- */

static void start(struct broker *broker)
{
    struct index *index = broker->index;

    index->restart_ms = clock_ms() + index->wait_ms;
    index->wait_ms =
        index->wait_ms < RESTART_MAX_MS / 2 ? 2 * index->wait_ms : RESTART_MAX_MS;
    pid_t pid = store_start(index->plan, &index->socket);
    if (pid < 0)
        return;
    index->pid = pid;
    if (!broker_poll_add(broker, index->socket, &index->source))
        (void)close(TAKE_FD(index->socket)); /* it exits */
}

static void on_timer(struct broker *broker, struct source *source)
{
    struct index *index = broker->index;
    uint64_t count, now_ms = clock_ms();

    (void)!read(((struct index_timer *)source)->fd, &count, sizeof count);
    if (!index->pid && now_ms >= index->restart_ms)
        start(broker);
    end_late_calls(broker);
    if (index->is_up && now_ms >= index->beat_ms) {
        send_beat(broker);
        index_sessions_run(broker);
    }
    send_waiting(broker);
    index_rows_run(broker);
    index_set_timer(broker);
}

void index_reaped(struct broker *broker, pid_t pid)
{
    struct index *index = broker->index;

    if (!index || !index->pid || index->pid != pid)
        return;
    if (index->socket >= 0)
        drop_socket(broker);
    index->pid = 0;
    index->restarts++;
    index->restart_ms = clock_ms() + index->wait_ms;
    index_set_timer(broker);
}

int index_prepare(struct broker *broker, struct serve_options *options,
                  struct cay_error *err)
{
    int plan;

    if (!options->store_url)
        return CAY_OK;
    TRY(store_plan(options, options->node, registry_identity(broker->registry), &plan,
                   err));
    struct index *index = calloc(1, sizeof *index);
    if (!index) {
        (void)close(plan);
        return cay_fail_memory(err, "serve.store");
    }
    broker->index = index;
    index->plan = plan;
    index->socket = index->timer.fd = -1;
    index->last_call = &index->calls;
    index->last_waiting = &index->waiting;
    index->wait_ms = RESTART_MS;
    broker->index_rows = index_rows_new();
    broker->index_keys = index_keys_new();
    broker->index_sessions = index_sessions_new();
    if (!broker->index_rows || !broker->index_keys || !broker->index_sessions)
        return cay_fail_memory(err, "serve.store");
    /* Only cay-store may know the password. */
    options_hide_store(options);
    options->store_url = "postgresql://";
    return CAY_OK;
}

void index_open(struct broker *broker)
{
    struct index *index = broker->index;

    if (!index)
        return;
    index->source.ready = on_socket;
    index->timer.source.ready = on_timer;
    index->timer.fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (index->timer.fd < 0 ||
        !broker_poll_add(broker, index->timer.fd, &index->timer.source))
        return;
    start(broker);
    index_set_timer(broker);
}

void index_close(struct broker *broker)
{
    struct index *index = broker->index;

    if (!index)
        return;
    index->is_up = false;
    fail_calls(broker);
    if (index->socket >= 0)
        (void)close(index->socket); /* it exits */
    if (index->timer.fd >= 0)
        (void)close(index->timer.fd);
    (void)close(index->plan);
    index_rows_free(broker->index_rows);
    index_keys_free(broker->index_keys);
    index_sessions_free(broker->index_sessions);
    free(index->nodes);
    free(index->next_nodes);
    free(index);
    broker->index = NULL;
    broker->index_rows = NULL;
    broker->index_keys = NULL;
    broker->index_sessions = NULL;
}

void index_put(struct samples *out, const struct broker *broker)
{
    const struct index *index = broker->index;

    if (!index)
        return;
    samples_one(out, "cay_store_up", "gauge", "Whether PostgreSQL can be reached",
                index->is_up);
    samples_one(out, "cay_store_connects_total", "counter",
                "Connections to PostgreSQL so far", index->connects);
    samples_one(out, "cay_store_failed_requests_total", "counter",
                "Requests to PostgreSQL that failed or were late", index->failed_calls);
    samples_one(out, "cay_store_pending", "gauge", "Requests that wait for PostgreSQL",
                index->call_count + index->waiting_count);
    samples_label(out, "cay_restarts_total", "process", "store", index->restarts);
    index_rows_put(out, broker);
}
