/* SPDX-License-Identifier: Apache-2.0 */

/* Two sockets whose bytes go over to each other, a piece at a time: what one does not
 * take is not read from the other. */
#include "server/front/relay.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/auto.h"
#include "sys/rights.h"

enum { PIECE = 16 << 10, CLIENT = 0, UPSTREAM = 1 };

struct side {
    int fd;
    uv_poll_t *watch;
    bool has_ended; /* nothing more comes from it */
    size_t len, at; /* of what goes to it */
    char data[PIECE];
};

struct relay {
    struct front *front;
    struct MHD_UpgradeResponseHandle *upgrade;
    struct relay **owner; /* until it has begun */
    struct side sides[2];
};

void relay_free(struct relay *relay)
{
    exchange_stop_watching(&relay->sides[CLIENT].watch);
    exchange_stop_watching(&relay->sides[UPSTREAM].watch);
    if (relay->sides[UPSTREAM].fd >= 0)
        rights_dismiss(relay->sides[UPSTREAM].fd);
    if (relay->upgrade) {
        (void)MHD_upgrade_action(relay->upgrade, MHD_UPGRADE_ACTION_CLOSE);
        relay->front->has_resumed = true;
    }
    free(relay);
}

/* Both ways, as far as it goes now.  False if a side is broken. */
static bool flush(struct side *to)
{
    while (to->at < to->len) {
        ssize_t put = send(to->fd, to->data + to->at, to->len - to->at,
                           MSG_NOSIGNAL | MSG_DONTWAIT);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return errno == EAGAIN;
        to->at += (size_t)put;
    }
    to->at = to->len = 0;
    return true;
}

static bool fill(struct side *from, struct side *to)
{
    if (from->has_ended || to->len > 0)
        return true;
    ssize_t got = recv(from->fd, to->data, PIECE, MSG_DONTWAIT);
    if (got < 0)
        return errno == EAGAIN || errno == EINTR;
    if (got == 0) {
        from->has_ended = true;
        (void)shutdown(to->fd, SHUT_WR);
        return true;
    }
    to->len = (size_t)got;
    return flush(to);
}

static void hear(uv_poll_t *watch, int status, int events);

static void wait_for(struct relay *relay, int which)
{
    struct side *side = &relay->sides[which], *other = &relay->sides[!which];
    int events = (side->len ? UV_WRITABLE : 0) |
                 (!side->has_ended && !other->len ? UV_READABLE : 0);

    if (events)
        (void)uv_poll_start(side->watch, events, hear);
    else
        (void)uv_poll_stop(side->watch);
}

static void hear(uv_poll_t *watch, int status, int events)
{
    struct relay *relay = watch->data;
    struct side *sides = relay->sides;

    (void)events;
    bool fine = status == 0 && flush(&sides[CLIENT]) && flush(&sides[UPSTREAM]) &&
                fill(&sides[CLIENT], &sides[UPSTREAM]) &&
                fill(&sides[UPSTREAM], &sides[CLIENT]);
    bool over = sides[CLIENT].has_ended && sides[UPSTREAM].has_ended &&
                !sides[CLIENT].len && !sides[UPSTREAM].len;
    if (!fine || over) {
        relay_free(relay);
        return;
    }
    wait_for(relay, CLIENT);
    wait_for(relay, UPSTREAM);
}

static bool open_side(struct relay *relay, int which, int fd)
{
    struct side *side = &relay->sides[which];
    uv_poll_t *watch = malloc(sizeof *watch);

    side->fd = fd;
    if (!watch || uv_poll_init(&relay->front->loop, watch, fd) != 0) {
        free(watch);
        return false;
    }
    watch->data = relay;
    side->watch = watch;
    return true;
}

/* The client has its 101; what it sent since goes over first. */
static void begin(void *cls, struct MHD_Connection *connection, void *request,
                  const char *extra, size_t extra_len, MHD_socket socket,
                  struct MHD_UpgradeResponseHandle *upgrade)
{
    struct relay *relay = cls;
    struct side *sides = relay->sides;

    (void)connection;
    (void)request;
    relay->upgrade = upgrade;
    *relay->owner = NULL;
    bool fine = extra_len <= PIECE && open_side(relay, CLIENT, socket) &&
                open_side(relay, UPSTREAM, sides[UPSTREAM].fd);
    if (!fine) {
        relay_free(relay);
        return;
    }
    memcpy(sides[UPSTREAM].data, extra, extra_len);
    sides[UPSTREAM].len = extra_len;
    hear(sides[CLIENT].watch, 0, 0);
}

struct MHD_Response *relay_response(struct front *front, int *upstream, const char *first,
                                    size_t len, struct relay **ret_relay)
{
    struct relay *relay = calloc(1, sizeof *relay);

    if (!relay || len > PIECE) {
        free(relay);
        return NULL;
    }
    relay->front = front;
    relay->sides[CLIENT].fd = -1;
    relay->sides[CLIENT].len = len;
    memcpy(relay->sides[CLIENT].data, first, len);
    struct MHD_Response *response = MHD_create_response_for_upgrade(begin, relay);
    if (!response) {
        free(relay);
        return NULL;
    }
    relay->sides[UPSTREAM].fd = TAKE_FD(*upstream);
    relay->owner = ret_relay;
    *ret_relay = relay;
    return response;
}
