/* SPDX-License-Identifier: Apache-2.0 */

/* Links that are refused: by a rule, a limit, or because nothing answers. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/error.h"
#include "relay/link.h"

enum {
    ROUNDS = 16,          /* reads of what is dropped */
    FIRST_BYTES_MS = 200, /* of a client that is refused */
    DRAIN_MS = 2000       /* until a refused client has read the reply */
};

/* --- Replies --- */

static size_t format_refusal(const struct link *link, char *text, size_t room)
{
    const char *why = link->why ? link->why : "cay: out of memory";
    int len = snprintf(text, room,
                       "HTTP/1.1 %s\r\nContent-Type: text/plain\r\n"
                       "Content-Length: %zu\r\nConnection: close\r\n\r\n%s\n",
                       link->status == 403 ? "403 Forbidden" : "502 Bad Gateway",
                       strlen(why) + 1, why);

    return len < (int)room ? (size_t)len : room - 1;
}

/* What is unread when the socket is closed would turn the reply into a reset. */
bool link_drain(int fd)
{
    char bytes[4096];
    ssize_t got = 1;

    for (int i = 0; i < ROUNDS && got > 0; i++)
        got = recv(fd, bytes, sizeof bytes, 0);
    return got > 0 || (got < 0 && errno == EAGAIN);
}

static void reply_refused(struct server *server, struct link *link, enum hello_kind kind)
{
    static const uint8_t denied[] = {21, 3, 3, 0, 2, 2, 49},
                         failed[] = {21, 3, 3, 0, 2, 2, 80};
    char text[1536];
    size_t len = format_refusal(link, text, sizeof text);

    if (kind == HELLO_OTHER) {
        link_end(server, link, true);
        return;
    }
    bool is_open = link_drain(link->client.fd);
    if (kind == HELLO_TLS)
        (void)!send(link->client.fd, link->status == 403 ? denied : failed, sizeof denied,
                    MSG_NOSIGNAL);
    else
        (void)!send(link->client.fd, text, len, MSG_NOSIGNAL);
    (void)shutdown(link->client.fd, SHUT_WR);
    link->state = DRAINING;
    link_set_deadline(server, link, DRAIN_MS);
    if (!is_open)
        link_end(server, link, false);
}

/* The form of the refusal depends on the client's first bytes, which may be taken
 * already; a request need not be complete for that. */
void link_continue_refusal(struct server *server, struct link *link)
{
    uint8_t bytes[16];
    struct hello hello;
    ssize_t got = (ssize_t)link->first_len;

    if (link->is_proxied) {
        reply_refused(server, link, HELLO_HTTP);
        return;
    }

    if (link->first)
        memcpy(bytes, link->first, link->first_len < 16 ? link->first_len : 16);
    else
        got = recv(link->client.fd, bytes, sizeof bytes, MSG_PEEK);
    if (got <= 0) {
        if (got == 0 || errno != EAGAIN)
            link_end(server, link, true);
        return;
    }
    hello_read(bytes, got < 16 ? (size_t)got : 16, &hello);
    reply_refused(server, link,
                  hello.kind == HELLO_OTHER          ? HELLO_OTHER
                  : bytes[0] >= 20 && bytes[0] <= 24 ? HELLO_TLS
                                                     : HELLO_HTTP);
}

void link_refuse(struct server *server, struct link *link, int status, const char *format,
                 ...)
{
    char why[1024];
    va_list values;

    va_start(values, format);
    vsnprintf(why, sizeof why, format, values);
    va_end(values);
    link->why = strdup(why);
    link->status = status;
    link_report(server, link, RELAY_EVENT_OPEN,
                status == 403 ? NETWORK_DENY : NETWORK_ALLOW);
    server->counts.refused += status == 403;
    link_close_source(&link->server);
    link->state = REFUSING;
    link_set_deadline(server, link, FIRST_BYTES_MS);
    link_continue_refusal(server, link);
}

void link_refuse_by_rule(struct server *server, struct link *link,
                         const struct network_answer *answer)
{
    cay_copy_text(link->rule, sizeof link->rule, answer->rule);
    if (answer->verdict == NETWORK_INSPECT)
        link_refuse(
            server, link, 403,
            "cay: the rule \"%.300s\" is for some requests only, and requests are not "
            "inspected",
            answer->rule);
    else
        link_refuse(server, link, 403, "cay: %s", answer->why);
}

/* --- Limits --- */

void link_name_limit(const struct server *server, struct link *link,
                     enum network_limit limit)
{
    snprintf(link->rule, sizeof link->rule, "limit %s=%llu", network_limit_slug(limit),
             (unsigned long long)network_rules_limits(server->rules)->at[limit]);
}

void link_refuse_by_limit(struct server *server, struct link *link,
                          enum network_limit limit)
{
    link_name_limit(server, link, limit);
    link_refuse(server, link, 403, "cay: the sandbox's network is at its limit (%s%s)",
                link->rule + sizeof "limit",
                limit == NETWORK_CONNECTIONS ? " at a time" : " in all");
}

/* True if the link is refused. */
bool link_check_limits(struct server *server, struct link *link)
{
    const struct network_limits *limits = network_rules_limits(server->rules);
    uint64_t others = 0;

    for (const struct link *at = server->links; at; at = at->next)
        others += at != link && at->state <= RELAYING;
    if (limits->at[NETWORK_CONNECTIONS] && others >= limits->at[NETWORK_CONNECTIONS])
        link_refuse_by_limit(server, link, NETWORK_CONNECTIONS);
    else if (limit_is_over(&server->limiter, limits, 1))
        link_refuse_by_limit(server, link, NETWORK_BYTES);
    else
        return false;
    return true;
}
