/* SPDX-License-Identifier: Apache-2.0 */

/* What a client sends before its bytes are relayed: a hello, a question of DNS, or a
 * request to the proxy. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/auto.h"
#include "relay/link.h"
#include "relay/proxy.h"

/* --- The client's first bytes --- */

/* A client that sends pages of a file (sendfile(2), splice(2)) can change bytes that are
 * in the socket already.  The ones that were checked are copied and sent from here; false
 * if they are no longer the same. */
static bool take_first(struct link *link, const uint8_t *checked, size_t len)
{
    if (!len)
        return true;
    link->first = malloc(len);
    link->first_len = len;
    return link->first && recv(link->client.fd, link->first, len, 0) == (ssize_t)len &&
           memcmp(link->first, checked, len) == 0;
}

/* Those of an inspected link stay in the socket: cay-net-tls reads them. */
static void keep_first(struct server *server, struct link *link, const uint8_t *checked,
                       size_t len)
{
    if (limit_is_over(&server->limiter, network_rules_limits(server->rules), len))
        link_refuse_by_limit(server, link, NETWORK_BYTES);
    else if (!link->is_inspected && !take_first(link, checked, len))
        link_end(server, link, true);
    else if (!link->is_inspected)
        limit_take(&server->limiter, len);
}

/* True if they are checked, and not refused.  After the last bytes of the client
 * (`is_all`) an incomplete hello stays so, and no server understands it. */
bool link_check_hello(struct server *server, struct link *link, bool is_all)
{
    uint8_t bytes[HELLO_MAX];
    struct hello hello;
    ssize_t got = recv(link->client.fd, bytes, sizeof bytes, MSG_PEEK);

    if (got < 0)
        return false;
    hello_read(bytes, (size_t)got, &hello);
    if (hello.kind == HELLO_MORE && got > 0 && !is_all) {
        if (link->state == RELAYING && !link->has_begun)
            link_set_deadline(server, link, LINK_HELLO_MS);
        link->has_begun = true;
        return false;
    }
    link->is_checked = true;
    link->hello = hello.kind;
    if (hello.kind == HELLO_BAD)
        link_refuse(
            server, link, 403,
            "cay: the first bytes of the connection to port %d do not name one host",
            link->port);
    else if (link->named && hello.host[0] && strcmp(hello.host, link->named->name) != 0)
        link_refuse(server, link, 403,
                    "cay: a connection to %s names another host, %s (%s must match)",
                    link->named->name, hello.host,
                    hello.kind == HELLO_TLS ? "SNI" : "Host");
    else if (link->is_inspected && link->named && !hello.host[0] &&
             (link->is_http_only || hello.kind != HELLO_OTHER))
        link_refuse(
            server, link, 403,
            "cay: requests to %s are inspected, and this connection does not name it "
            "(SNI or Host)",
            link->named->name);
    else
        keep_first(server, link, bytes, (size_t)got);
    return link->state != REFUSING && link->state != DRAINING && link->state != DEAD;
}

/* --- Questions by TCP --- */

/* A message has its length before it.  The length of a whole one, with that; 0 if it has
 * not arrived yet, negative if none will. */
static ssize_t receive_question(int fd, uint8_t bytes[2 + DNS_MESSAGE_MAX])
{
    ssize_t got = recv(fd, bytes, 2 + DNS_MESSAGE_MAX, MSG_PEEK);

    if (got <= 0)
        return got < 0 && errno == EAGAIN ? 0 : -EPIPE;
    ssize_t need = got < 2 ? 2 : 2 + (bytes[0] << 8 | bytes[1]);
    if (need > 2 + DNS_MESSAGE_MAX)
        return -EMSGSIZE;
    return got < 2 || got < need ? 0 : recv(fd, bytes, (size_t)need, 0);
}

void link_answer_questions(struct server *server, struct link *link)
{
    uint8_t bytes[2 + DNS_MESSAGE_MAX], reply[2 + DNS_MESSAGE_MAX];
    ssize_t got;

    while ((got = receive_question(link->client.fd, bytes)) > 0) {
        const struct owner_flow flow = {IPPROTO_TCP, link->peer, link->accepted};
        size_t len = server_answer(server, bytes + 2, (size_t)got - 2, &flow, reply + 2);
        reply[0] = (uint8_t)(len >> 8);
        reply[1] = (uint8_t)len;
        if (!len ||
            send(link->client.fd, reply, len + 2, MSG_NOSIGNAL) != (ssize_t)(len + 2)) {
            link_end(server, link, true);
            return;
        }
        link_set_deadline(server, link, LINK_HELLO_MS);
    }
    if (got < 0)
        link_end(server, link, got != -EPIPE);
}

/* --- Requests to the proxy --- */

/* Takes the destination from a request to the proxy; a name has an address as if it had
 * been looked up, also one that the rules do not allow. */
static bool take_target(struct server *server, struct link *link,
                        const struct proxy_request *request)
{
    link->port = request->port;
    link->destination = request->address;
    if (!request->name[0])
        return true;
    uint32_t address = htonl(hosts_address(&server->hosts, request->name));
    server->counts.names = (uint32_t)server->hosts.count;
    link->destination = (struct network_address){.len = 4};
    memcpy(link->destination.bytes, &address, sizeof address);
    return address != 0;
}

/* A forwarded request is sent from a copy, which names the host of its target. */
static bool take_request(struct server *server, struct link *link, const uint8_t *bytes,
                         size_t len, const struct proxy_request *request)
{
    AUTO_BUF copy = {.max = 2 * HELLO_MAX};

    if (!take_first(link, bytes, len) || !proxy_rewrite(bytes, len, request, &copy))
        return false;
    free(link->first);
    link->first_len = copy.len;
    link->first = (uint8_t *)TAKE_PTR(copy.data);
    limit_take(&server->limiter, len);
    link->is_checked = true;
    return true;
}

/* What follows a request for a tunnel is for the server. */
static bool drop_head(const struct link *link, const uint8_t *read, size_t len)
{
    uint8_t bytes[HELLO_MAX];

    return recv(link->client.fd, bytes, len, 0) == (ssize_t)len &&
           memcmp(bytes, read, len) == 0;
}

void link_continue_proxy(struct server *server, struct link *link)
{
    uint8_t bytes[HELLO_MAX];
    struct proxy_request request;
    ssize_t got = recv(link->client.fd, bytes, sizeof bytes, MSG_PEEK);

    if (got <= 0) {
        if (got == 0 || errno != EAGAIN)
            link_end(server, link, true);
        return;
    }
    enum proxy_kind kind = proxy_read(bytes, (size_t)got, &request);
    if (kind == PROXY_MORE)
        return;
    link->is_proxied = true;
    link->is_tunnel = kind == PROXY_CONNECT;
    if (kind == PROXY_BAD || !take_target(server, link, &request)) {
        link_refuse(
            server, link, kind == PROXY_BAD ? 403 : 502,
            "cay: the proxy takes \"CONNECT host:port\" and requests with a target "
            "like http://host/path, for up to %d names",
            HOSTS_MAX);
        return;
    }
    if (!link->is_tunnel &&
        limit_is_over(&server->limiter, network_rules_limits(server->rules),
                      (size_t)got)) {
        link_refuse_by_limit(server, link, NETWORK_BYTES);
        return;
    }
    bool is_taken = link->is_tunnel
                        ? drop_head(link, bytes, request.head_len)
                        : take_request(server, link, bytes, (size_t)got, &request);
    if (!is_taken) {
        link_end(server, link, true);
        return;
    }
    link_decide(server, link);
    if (link->is_tunnel && !link->is_checked && link->state != ASKING &&
        link->state <= RELAYING)
        (void)link_check_hello(server, link, false);
}
