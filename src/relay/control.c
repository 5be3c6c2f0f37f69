/* SPDX-License-Identifier: Apache-2.0 */

/* Requests come from processes that may open the sandbox's control socket: those of its
 * creator's user. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "relay/member.h"
#include "sys/rights.h"

/* The client has given up, and has saved the old rules as those in force. */
static void take_back(struct server *server, struct network_rules **old)
{
    struct network_rules *refused = server->rules;

    server->rules = *old;
    *old = refused;
    hand_over_rules_again(server);
    link_cut_forbidden(server);
}

/* `ret_old` gets the rules that were in force. */
static int set_rules(struct server *server, const char *text, size_t len,
                     struct network_rules **ret_old, struct relay_reply *reply)
{
    struct network_rules *rules = NULL;
    struct cay_error error = {0};
    int code = network_rules_read(text, len, &rules, &error);

    if (code) {
        cay_copy_text(reply->message, sizeof reply->message, error.message);
        return code;
    }
    if (!hand_over_rules(server, text, len)) {
        network_rules_free(rules);
        cay_copy_text(reply->message, sizeof reply->message,
                      "the process that reads requests does not take new rules");
        return CAY_E_BUSY;
    }
    *ret_old = server->rules;
    server->rules = rules;
    link_cut_forbidden(server);
    return CAY_OK;
}

static int take_answer(struct server *server, const char *bytes, size_t len)
{
    struct relay_answer answer;

    if (len != sizeof answer)
        return CAY_E_INVALID;
    memcpy(&answer, bytes, sizeof answer);
    answer.to.name[sizeof answer.to.name - 1] = '\0';
    link_answer(server, &answer);
    return CAY_OK;
}

static int serve_request(struct server *server, const char *bytes, size_t len, int *fd,
                         struct network_rules **ret_old, struct relay_asked *asked)
{
    struct relay_reply *reply = &asked->reply;
    struct relay_request request;

    if (len < sizeof request)
        return CAY_E_INVALID;
    memcpy(&request, bytes, sizeof request);
    if (request.version != RELAY_VERSION)
        return CAY_E_UNSUPPORTED;
    switch (request.order) {
    case RELAY_RULES:
        return set_rules(server, bytes + sizeof request, len - sizeof request, ret_old,
                         reply);
    case RELAY_JOIN:
        return member_join(server, bytes + sizeof request, len - sizeof request, fd,
                           reply);
    case RELAY_HEADERS:
        return *fd >= 0 && hand_over_headers(server, bytes + sizeof request,
                                             len - sizeof request, *fd)
                   ? CAY_OK
                   : CAY_E_UNSUPPORTED;
    case RELAY_ANSWER:
        return take_answer(server, bytes + sizeof request, len - sizeof request);
    case RELAY_ASKED:
        link_list_asking(server, asked);
        return CAY_OK;
    case RELAY_COUNT:
        return CAY_OK;
    default:
        return CAY_E_UNSUPPORTED;
    }
}

/* Whether the reply is the longer one. */
static bool is_list(const char *bytes, size_t len)
{
    struct relay_request request;

    if (len != sizeof request)
        return false;
    memcpy(&request, bytes, sizeof request);
    return request.order == RELAY_ASKED;
}

static void on_client(struct server *server, struct source *source, uint32_t events)
{
    const size_t room = sizeof(struct relay_request) + NETWORK_TEXT_MAX;
    AUTO_FREE char *bytes = malloc(room);
    struct iovec part = {bytes, room};
    int given = -1;
    size_t count = 0;
    ssize_t got =
        bytes ? rights_receive(source->fd, &part, 1, &given, 1, &count, MSG_DONTWAIT) : 0;

    (void)events;
    if (got == -EAGAIN)
        return;
    AUTO_FD fd = given;
    if (got > 0) {
        struct relay_asked asked = {.reply.version = RELAY_VERSION};
        size_t len = is_list(bytes, (size_t)got) ? sizeof asked : sizeof asked.reply;
        AUTO_NETWORK_RULES old = NULL;
        asked.reply.code = serve_request(server, bytes, (size_t)got, &fd, &old, &asked);
        asked.reply.counts = server->counts;
        link_count_bytes(server, &asked.reply.counts);
        if (send(source->fd, &asked, len, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)len)
            return;
        if (old)
            take_back(server, &old);
    }
    (void)close(source->fd);
    free(source);
}

void control_accept(struct server *server, struct source *source, uint32_t events)
{
    AUTO_FD fd = accept4(source->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    struct source *client = fd < 0 ? NULL : calloc(1, sizeof *client);

    (void)events;
    if (!client)
        return;
    *client = (struct source){on_client, fd};
    if (server_watch(server, client, EPOLLIN) != 0) {
        free(client);
        return;
    }
    (void)TAKE_FD(fd);
}
