/* SPDX-License-Identifier: Apache-2.0 */

/* Connections whose requests are read move to cay-net-tls, a process without a network:
 * it gets the client, and one end of a pair of sockets.  The other end takes the client's
 * place here, so bytes, limits and rules apply to it as before. */
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/buf.h"
#include "base/error.h"
#include "relay/server.h"
#include "relay/tls.h"
#include "sys/rights.h"

enum { EVENTS = 64 /* at a time */ };

bool hand_over_may_inspect(const struct server *server,
                           const struct network_answer *answer)
{
    return answer->verdict == NETWORK_INSPECT && server->opener.fd >= 0;
}

static bool has_line(const char *lines, const char *name)
{
    size_t len = strlen(name);

    for (const char *line = lines, *end; line && (end = strchr(line, '\n'));
         line = end + 1)
        if ((size_t)(end - line) == len && memcmp(line, name, len) == 0)
            return true;
    return false;
}

bool hand_over_is_opened(const struct server *server, const char *name)
{
    return has_line(server->opened, name) || has_line(server->header_hosts, name);
}

int hand_over_client(const struct server *server, const char *name, uint16_t port,
                     bool is_tls, uint64_t tag, int *client)
{
    struct tls_order_head head = {.version = TLS_VERSION,
                                  .order = TLS_ORDER_LINK,
                                  .port = port,
                                  .is_tls = is_tls,
                                  .tag = tag};
    const struct iovec part = {&head, sizeof head};
    int ends[2];

    cay_copy_text(head.name, sizeof head.name, name);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
        return -errno;
    AUTO_FD near = ends[0], far = ends[1];
    const int fds[] = {*client, far};
    int error =
        rights_send(server->opener.fd, &part, 1, fds, 2, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (error)
        return error;
    *client = TAKE_FD(near);
    return 0;
}

bool hand_over_headers(struct server *server, const char *hosts, size_t len, int fd)
{
    struct tls_order_head head = {.version = TLS_VERSION, .order = TLS_ORDER_HEADERS};
    const struct iovec part = {&head, sizeof head};

    if (server->opener.fd < 0)
        return len == 0; /* there were none */
    char *copy = strndup(hosts, len);
    if (!copy || rights_send(server->opener.fd, &part, 1, &fd, 1,
                             MSG_DONTWAIT | MSG_NOSIGNAL) != 0) {
        free(copy);
        return false;
    }
    free(server->header_hosts);
    server->header_hosts = copy;
    return true;
}

bool hand_over_rules(const struct server *server, const char *text, size_t len)
{
    struct tls_order_head head = {.version = TLS_VERSION, .order = TLS_ORDER_RULES};
    char copy[NETWORK_TEXT_MAX];
    const struct iovec parts[] = {{&head, sizeof head}, {copy, len}};

    if (server->opener.fd < 0)
        return true;
    memcpy(copy, text, len);
    return rights_send(server->opener.fd, parts, 2, NULL, 0,
                       MSG_DONTWAIT | MSG_NOSIGNAL) == 0;
}

void hand_over_rules_again(const struct server *server)
{
    AUTO_BUF text;

    buf_init(&text, NETWORK_TEXT_MAX);
    if (server->opener.fd >= 0 && (!network_rules_write(server->rules, &text) ||
                                   !hand_over_rules(server, text.data, text.len)))
        (void)shutdown(server->opener.fd, SHUT_RDWR); /* inspected hosts are refused */
}

static void report(struct server *server, struct tls_event *event)
{
    struct relay_event relayed = {.kind = RELAY_EVENT_REQUEST,
                                  .verdict = event->verdict,
                                  .protocol = IPPROTO_TCP,
                                  .port = event->port};

    event->name[sizeof event->name - 1] = '\0';
    event->rule[sizeof event->rule - 1] = '\0';
    cay_copy_text(relayed.name, sizeof relayed.name, event->name);
    cay_copy_text(relayed.rule, sizeof relayed.rule, event->rule);
    link_get_owner(server, event->tag, &relayed.owner);
    events_write(server, &relayed, event->tag);
    server->counts.refused += event->verdict == NETWORK_DENY;
}

void hand_over_events(struct server *server, struct source *source, uint32_t events)
{
    struct tls_event event;

    (void)events;
    for (int i = 0; i < EVENTS; i++) {
        ssize_t got = recv(source->fd, &event, sizeof event, MSG_DONTWAIT);
        if (got == sizeof event && event.version == TLS_VERSION) {
            report(server, &event);
            continue;
        }
        if (got < 0 && errno == EAGAIN)
            return;
        (void)close(source->fd); /* it has ended: inspected hosts are refused from now */
        source->fd = -1;
        return;
    }
}
