/* SPDX-License-Identifier: Apache-2.0 */
#include "server/wire/store.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

static const struct rule {
    uint32_t least, most; /* strings */
} rules[] = {
#define X(name, least, most) [STORE_##name] = {least, most},
    STORE_KINDS(X)
#undef X
};

static uint32_t count_strings(const char *data, size_t len)
{
    uint32_t count = 0;

    for (size_t i = 0; i < len; i++)
        count += data[i] == '\0';
    return count;
}

int store_send(int socket, struct store_message *message, const struct buf *strings)
{
    size_t len = strings ? strings->len : 0;
    struct iovec parts[] = {{message, sizeof *message},
                            {strings ? strings->data : NULL, len}};
    const struct msghdr packet = {.msg_iov = parts, .msg_iovlen = len ? 2 : 1};

    if (strings && (strings->failed || len > STORE_PACKET))
        return -EMSGSIZE;
    message->version = STORE_VERSION;
    message->len = (uint32_t)len;
    message->count = len ? count_strings(strings->data, len) : 0;
    ssize_t sent = sendmsg(socket, &packet, MSG_DONTWAIT | MSG_NOSIGNAL);
    return sent >= 0 ? 0 : errno == EWOULDBLOCK ? -EAGAIN : -errno;
}

static bool is_valid(const struct store_packet *packet, size_t len)
{
    const struct store_message *head = &packet->head;

    if (len < sizeof *head || head->version != STORE_VERSION ||
        head->kind == STORE_NONE || head->kind >= STORE_KIND_COUNT ||
        head->len != len - sizeof *head)
        return false;
    const struct rule *rule = &rules[head->kind];
    return head->count >= rule->least && head->count <= rule->most &&
           (!head->len || !packet->strings[head->len - 1]) &&
           count_strings(packet->strings, head->len) == head->count;
}

int store_receive(int socket, struct store_packet *ret_packet)
{
    struct iovec part = {ret_packet, sizeof *ret_packet};
    struct msghdr packet = {.msg_iov = &part, .msg_iovlen = 1};
    ssize_t len = recvmsg(socket, &packet, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

    if (len < 0)
        return errno == EAGAIN || errno == EINTR ? -EAGAIN
               : errno == ECONNRESET             ? 0
                                                 : -errno;
    if (len == 0)
        return 0;
    return !(packet.msg_flags & MSG_TRUNC) && is_valid(ret_packet, (size_t)len) ? 1
                                                                                : -EPROTO;
}

const char *store_next(const struct store_packet *packet, const char *before)
{
    const char *next = before ? before + strlen(before) + 1 : packet->strings;

    return next < packet->strings + packet->head.len ? next : NULL;
}

bool store_strings(const struct store_packet *packet, const char **ret_strings,
                   size_t count)
{
    const char *at = NULL;

    for (size_t i = 0; i < count; i++) {
        at = store_next(packet, at);
        if (!at)
            return false;
        ret_strings[i] = at;
    }
    return true;
}
