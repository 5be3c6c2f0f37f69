/* SPDX-License-Identifier: Apache-2.0 */
#include "server/wire/channel.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/auto.h"
#include "sys/io.h"
#include "sys/rights.h"

static const struct rule {
    unsigned char credential;
    uint32_t least, most; /* strings */
} rules[] = {
#define X(name, credential, least, most)                                                 \
    [OP_##name] = {CREDENTIAL_##credential, least, most},
    OPS(X)
#undef X
};

enum credential ask_credential(enum op op)
{
    return (enum credential)rules[op].credential;
}

void strings_add(struct buf *strings, const char *text)
{
    (void)buf_append(strings, text, strlen(text) + 1);
}

/* --- Asks --- */

static bool ends(const char *text, size_t room)
{
    return memchr(text, 0, room) != NULL;
}

static bool is_ask(const struct asked *asked, size_t len)
{
    const struct ask *head = &asked->head;

    if (len < sizeof *head || head->version != CHANNEL_VERSION || head->op == OP_NONE ||
        head->op >= OP_COUNT || head->flags & ~(unsigned)ASK_FLAGS ||
        !ends(head->credential, sizeof head->credential) ||
        !ends(head->sandbox, sizeof head->sandbox) ||
        !ends(head->user, sizeof head->user))
        return false;
    const struct rule *rule = &rules[head->op];
    size_t here = len - sizeof *head;
    return head->count >= rule->least && head->count <= rule->most &&
           head->strings_len <= CHANNEL_STRINGS &&
           here == (asked->memfd >= 0 ? 0 : head->strings_len) && asked->channel >= 0;
}

int ask_receive(int socket, struct asked *ret_asked)
{
    struct iovec parts[] = {{&ret_asked->head, sizeof ret_asked->head},
                            {ret_asked->strings, sizeof ret_asked->strings}};
    int fds[CHANNEL_FDS];
    size_t count;
    ssize_t len =
        rights_receive(socket, parts, 2, fds, CHANNEL_FDS, &count, MSG_DONTWAIT);

    if (len <= 0)
        return (int)len;
    ret_asked->channel = fds[0];
    ret_asked->memfd = fds[1];
    if (is_ask(ret_asked, (size_t)len))
        return 1;
    asked_done(ret_asked);
    return -EPROTO;
}

void asked_done(struct asked *asked)
{
    int fds[CHANNEL_FDS] = {asked->channel, asked->memfd};

    rights_close(fds, CHANNEL_FDS);
    asked->channel = asked->memfd = -1;
}

/* Who has ended is the same whether he had read all that was sent to him or not. */
static int send_ask(int socket, const struct iovec *parts, const int *fds, size_t count)
{
    int error = rights_send(socket, parts, 2, fds, count, MSG_DONTWAIT);

    return error == -ECONNRESET ? -EPIPE : error;
}

int ask_forward(int socket, const struct asked *asked)
{
    const int fds[] = {asked->channel, asked->memfd};
    const struct iovec parts[] = {{(void *)(uintptr_t)&asked->head, sizeof asked->head},
                                  {(void *)(uintptr_t)asked->strings,
                                   asked->memfd >= 0 ? 0 : asked->head.strings_len}};

    return send_ask(socket, parts, fds, asked->memfd >= 0 ? 2 : 1);
}

static int put_in_memfd(const struct buf *strings)
{
    AUTO_FD fd = memfd_create("ask", MFD_CLOEXEC);

    if (fd < 0)
        return -errno;
    int error = io_write(fd, strings->data, strings->len);
    return error ? error : TAKE_FD(fd);
}

int ask_send(int socket, const struct ask *ask, const struct buf *strings, int channel)
{
    bool fits = strings->len <= CHANNEL_PACKET;

    if (strings->failed || strings->len > CHANNEL_STRINGS)
        return -EMSGSIZE;
    AUTO_FD memfd = fits ? -1 : put_in_memfd(strings);
    if (!fits && memfd < 0)
        return memfd;
    const int fds[] = {channel, memfd};
    const struct iovec parts[] = {{(void *)(uintptr_t)ask, sizeof *ask},
                                  {strings->data, fits ? strings->len : 0}};
    return send_ask(socket, parts, fds, fits ? 1 : 2);
}

static const char **split(const struct asked *asked, const char *text, size_t len)
{
    uint32_t count = asked->head.count;
    const char **strings = calloc((size_t)count + 1, sizeof *strings);
    const char *at = text, *end = text + len;

    if (!strings || (len > 0 && end[-1] != '\0'))
        goto wrong;
    for (uint32_t i = 0; i < count; i++) {
        if (at >= end)
            goto wrong;
        strings[i] = at;
        at += strlen(at) + 1;
    }
    if (at == end)
        return strings;
wrong:
    free(strings);
    return NULL;
}

const char **ask_strings(const struct asked *asked, char **ret_room)
{
    size_t len = asked->head.strings_len;
    AUTO_FREE char *room = malloc(len + 1);

    if (!room)
        return NULL;
    if (asked->memfd >= 0 && io_pread(asked->memfd, room, len, 0) != (ssize_t)len)
        return NULL;
    if (asked->memfd < 0)
        memcpy(room, asked->strings, len);
    const char **strings = split(asked, room, len);
    if (strings)
        *ret_room = TAKE_PTR(room);
    return strings;
}

/* --- Answers --- */

int tell_bytes(int channel, struct tell *tell, const void *data, size_t len)
{
    tell->version = CHANNEL_VERSION;
    tell->len = (uint32_t)len;
    const struct iovec parts[] = {{tell, sizeof *tell}, {(void *)(uintptr_t)data, len}};
    return rights_send(channel, parts, 2, NULL, 0, MSG_DONTWAIT);
}

int tell_send(int channel, struct tell *tell, const struct buf *strings, int fd)
{
    if (strings && (strings->failed || strings->len > CHANNEL_PACKET))
        return -EMSGSIZE;
    tell->version = CHANNEL_VERSION;
    tell->len = strings ? (uint32_t)strings->len : 0;
    const struct iovec parts[] = {{tell, sizeof *tell},
                                  {strings ? strings->data : NULL, tell->len}};
    return rights_send(channel, parts, 2, &fd, fd >= 0 ? 1 : 0, MSG_DONTWAIT);
}

int tell_done(int channel)
{
    struct tell tell = {.kind = TELL_DONE};

    return tell_send(channel, &tell, NULL, -1);
}

int tell_failed(int channel, int status, const struct cay_error *err)
{
    struct tell tell = {
        .kind = TELL_FAILED, .status = status, .code = err->code, .count = 2};
    AUTO_BUF strings = {0};

    buf_init(&strings, CHANNEL_PACKET);
    if (*err->subject)
        buf_format(&strings, "%s: ", err->subject);
    strings_add(&strings, err->message);
    strings_add(&strings, err->hint);
    return tell_send(channel, &tell, &strings, -1);
}

static bool is_tell(const struct told *told, size_t len)
{
    const struct tell *head = &told->head;

    if (len < sizeof *head || head->version != CHANNEL_VERSION || head->kind == 0 ||
        head->len != len - sizeof *head ||
        (head->count && (head->len == 0 || told->payload[head->len - 1])))
        return false;
    uint32_t count = 0;
    for (uint32_t i = 0; head->count && i < head->len; i++)
        count += told->payload[i] == '\0';
    return count == head->count;
}

int tell_receive(int channel, struct told *ret_told)
{
    struct iovec parts[] = {{&ret_told->head, sizeof ret_told->head},
                            {ret_told->payload, CHANNEL_PACKET}};
    int fds[CHANNEL_FDS];
    size_t count;
    ssize_t len =
        rights_receive(channel, parts, 2, fds, CHANNEL_FDS, &count, MSG_DONTWAIT);

    if (len <= 0)
        return (int)len;
    if (count > 1 || !is_tell(ret_told, (size_t)len)) {
        rights_close(fds, CHANNEL_FDS);
        return -EPROTO;
    }
    ret_told->payload[ret_told->head.len] = '\0';
    ret_told->fd = fds[0];
    return 1;
}

const char *told_next(const struct told *told, const char *before)
{
    const char *next = before ? before + strlen(before) + 1 : told->payload;

    return told->head.count && next < told->payload + told->head.len ? next : NULL;
}
