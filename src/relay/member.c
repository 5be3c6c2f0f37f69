/* SPDX-License-Identifier: Apache-2.0 */
#include "relay/member.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/auto.h"
#include "base/error.h"
#include "sys/rights.h"

enum {
    REPLIES = 64, /* read at a time */
    /* Pending at a time: their replies fit the socket of a PID 1, which closes the
     * connection rather than wait for this process. */
    REQUESTS = 64
};

/* --- Replies of PID 1, which is another sandbox's and untrusted --- */

static void lose(struct server *server, struct member *member)
{
    struct member **at = &server->members;

    while (*at != member)
        at = &(*at)->next;
    *at = member->next;
    server->member_count--;
    link_lose_member(server, member);
    rights_dismiss(member->dialer.fd);
    free(member);
}

static void on_reply(struct server *server, struct source *source, uint32_t events)
{
    struct member *member = (struct member *)source;
    struct relay_dialled reply;
    struct iovec part = {&reply, sizeof reply};

    (void)events;
    for (int i = 0; i < REPLIES; i++) {
        int fd;
        size_t count;
        ssize_t got = rights_receive(source->fd, &part, 1, &fd, 1, &count, MSG_DONTWAIT);
        if (got == -EAGAIN)
            return;
        /* -EMFILE: the socket of this reply is lost. */
        if ((got != sizeof reply && got != -EMFILE) || member->received == member->sent) {
            rights_close(&fd, 1);
            lose(server, member);
            return;
        }
        link_dialled(server, member, member->received++, fd);
    }
}

int member_dial(struct member *member, uint16_t port, uint64_t *ret_request)
{
    if (member->sent - member->received == REQUESTS)
        return -EAGAIN;
    struct relay_dial request = {port};
    const struct iovec part = {&request, sizeof request};
    int error = rights_send(member->dialer.fd, &part, 1, NULL, 0, MSG_DONTWAIT);
    if (!error)
        *ret_request = member->sent++;
    return error;
}

/* --- Joining --- */

static bool is_text(const char *field, size_t room)
{
    return field[0] && memchr(field, '\0', room);
}

static bool read_join(const void *bytes, size_t len, struct relay_join *ret_join)
{
    char name[NETWORK_NAME_MAX];

    if (len != sizeof *ret_join)
        return false;
    memcpy(ret_join, bytes, sizeof *ret_join);
    return is_text(ret_join->id, sizeof ret_join->id) &&
           is_text(ret_join->network, sizeof ret_join->network) &&
           is_text(ret_join->name, sizeof ret_join->name) &&
           !network_name_clean(ret_join->name, strlen(ret_join->name), name) &&
           strcmp(name, ret_join->name) == 0;
}

static bool is_same(const struct relay_join *a, const struct relay_join *b)
{
    return strcmp(a->id, b->id) == 0 && strcmp(a->network, b->network) == 0 &&
           strcmp(a->name, b->name) == 0;
}

/* Its end may not have been reported yet. */
static bool is_alive(const struct member *member)
{
    char byte;

    return member->dialer.fd < 0 ||
           recv(member->dialer.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) != 0;
}

/* Where an entry of this network belongs: own names after all others, members behind the
 * own names of their network and before older members, which may have ended. */
static struct member **find_place(struct server *server, const char *network, bool is_own)
{
    struct member **place = &server->members;
    bool is_after = false;

    for (struct member **at = place; *at; at = &(*at)->next) {
        bool is_match =
            is_own || ((*at)->dialer.fd < 0 && strcmp((*at)->join.network, network) == 0);
        if (is_match)
            place = &(*at)->next;
        is_after |= is_match;
    }
    return is_own || is_after ? place : NULL;
}

static int refuse(struct relay_reply *reply, int code, const char *why)
{
    cay_copy_text(reply->message, sizeof reply->message, why);
    return code;
}

int member_join(struct server *server, const void *bytes, size_t len, int *fd,
                struct relay_reply *reply)
{
    struct relay_join join;

    if (!read_join(bytes, len, &join))
        return refuse(reply, CAY_E_INVALID, "invalid member");
    for (struct member *member = server->members; member; member = member->next)
        if (is_same(&member->join, &join) && is_alive(member))
            return CAY_OK;
    struct member **place = find_place(server, join.network, *fd < 0);
    if (!place)
        return refuse(reply, CAY_E_INVALID, "the sandbox has not joined this network");
    if (server->member_count == RELAY_MEMBERS_MAX)
        return refuse(reply, CAY_E_LIMIT, "the sandbox has too many members to reach");
    struct member *member = calloc(1, sizeof *member);
    if (!member)
        return CAY_E_NO_MEMORY;
    *member = (struct member){.dialer = {on_reply, *fd}, .next = *place, .join = join};
    if (*fd >= 0 && (fcntl(*fd, F_SETFL, O_NONBLOCK) != 0 ||
                     server_watch(server, &member->dialer, EPOLLIN) != 0)) {
        free(member);
        return CAY_E_INTERNAL;
    }
    *fd = -1;
    *place = member;
    server->member_count++;
    return CAY_OK;
}

/* --- Names --- */

struct member *member_find(const struct server *server, const char *name)
{
    struct member *member = server->members;

    while (member && strcmp(member->join.name, name) != 0)
        member = member->next;
    return member;
}

bool member_answer(struct server *server, const struct dns_question *question,
                   struct dns_answer *ret_answer)
{
    char name[NETWORK_NAME_MAX];

    if (!server->members ||
        network_name_clean(question->name, strlen(question->name), name))
        return false;
    const struct member *member = member_find(server, name);
    if (!member)
        return false;
    *ret_answer = (struct dns_answer){.code = DNS_OK};
    if (question->type != DNS_TYPE_A)
        return true;
    ret_answer->address =
        member->dialer.fd < 0 ? COLLECT_OWN : hosts_address(&server->hosts, name);
    if (!ret_answer->address)
        ret_answer->code = DNS_FAILED;
    server->counts.names = (uint32_t)server->hosts.count;
    return true;
}
