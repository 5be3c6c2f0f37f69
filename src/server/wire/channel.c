/* SPDX-License-Identifier: Apache-2.0 */
#include "server/wire/channel.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
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

enum credential request_credential(enum op op)
{
    return (enum credential)rules[op].credential;
}

void strings_add(struct buf *strings, const char *text)
{
    (void)buf_append(strings, text, strlen(text) + 1);
}

void request_name(uint64_t id, char ret_name[REQUEST_NAME])
{
    snprintf(ret_name, REQUEST_NAME, "req_%016" PRIx64, id);
}

/* --- Requests --- */

static bool ends(const char *text, size_t room)
{
    return memchr(text, 0, room) != NULL;
}

static bool is_request(const struct request_packet *request, size_t len)
{
    const struct request *head = &request->head;

    if (len < sizeof *head || head->version != CHANNEL_VERSION || head->op == OP_NONE ||
        head->op >= OP_COUNT || head->flags & ~(unsigned)REQUEST_FLAGS ||
        !ends(head->credential, sizeof head->credential) ||
        !ends(head->sandbox, sizeof head->sandbox) ||
        !ends(head->user, sizeof head->user))
        return false;
    const struct rule *rule = &rules[head->op];
    size_t here = len - sizeof *head;
    return head->count >= rule->least && head->count <= rule->most &&
           head->strings_len <= CHANNEL_STRINGS &&
           here == (request->memfd >= 0 ? 0 : head->strings_len) && request->channel >= 0;
}

int request_receive(int socket, struct request_packet *ret_request)
{
    struct iovec parts[] = {{&ret_request->head, sizeof ret_request->head},
                            {ret_request->strings, sizeof ret_request->strings}};
    int fds[CHANNEL_FDS];
    size_t count;
    ssize_t len =
        rights_receive(socket, parts, 2, fds, CHANNEL_FDS, &count, MSG_DONTWAIT);

    if (len <= 0)
        return (int)len;
    ret_request->refusal = 0;
    ret_request->channel = fds[0];
    ret_request->memfd = fds[1];
    if (is_request(ret_request, (size_t)len))
        return 1;
    request_packet_done(ret_request);
    return -EPROTO;
}

void request_packet_done(struct request_packet *request)
{
    int fds[CHANNEL_FDS] = {request->channel, request->memfd};

    rights_close(fds, CHANNEL_FDS);
    request->channel = request->memfd = -1;
}

/* A peer that closed with unread data causes ECONNRESET; report it as EPIPE, like one
 * that had read everything. */
static int send_packet(int socket, const struct iovec *parts, const int *fds,
                       size_t count)
{
    int error = rights_send(socket, parts, 2, fds, count, MSG_DONTWAIT);

    return error == -ECONNRESET ? -EPIPE : error;
}

int request_forward(int socket, const struct request_packet *request)
{
    const int fds[] = {request->channel, request->memfd};
    const struct iovec parts[] = {
        {(void *)(uintptr_t)&request->head, sizeof request->head},
        {(void *)(uintptr_t)request->strings,
         request->memfd >= 0 ? 0 : request->head.strings_len}};

    return send_packet(socket, parts, fds, request->memfd >= 0 ? 2 : 1);
}

int request_send(int socket, const struct request *request, const struct buf *strings,
                 int channel)
{
    bool fits = strings->len <= CHANNEL_PACKET;

    if (strings->failed || strings->len > CHANNEL_STRINGS)
        return -EMSGSIZE;
    AUTO_FD memfd = fits ? -1 : memfd_create("cay-request", MFD_CLOEXEC);
    if (!fits && memfd < 0)
        return -errno;
    int error = fits ? 0 : io_write(memfd, strings->data, strings->len);
    if (error)
        return error;
    const int fds[] = {channel, memfd};
    const struct iovec parts[] = {{(void *)(uintptr_t)request, sizeof *request},
                                  {strings->data, fits ? strings->len : 0}};
    return send_packet(socket, parts, fds, fits ? 1 : 2);
}

const char **request_strings(const struct request_packet *request, char **ret_room)
{
    size_t len = request->head.strings_len;
    uint32_t count = request->head.count, found = 0;
    AUTO_FREE char *room = malloc(len + 1);
    AUTO_FREE const char **strings = calloc((size_t)count + 1, sizeof *strings);

    if (!room || !strings)
        return NULL;
    if (request->memfd >= 0 && io_pread(request->memfd, room, len, 0) != (ssize_t)len)
        return NULL;
    if (request->memfd < 0)
        memcpy(room, request->strings, len);
    const char *at = room, *end = room + len;
    if (len > 0 && end[-1] != '\0')
        return NULL;
    for (; found < count && at < end; at += strlen(at) + 1)
        strings[found++] = at;
    if (found < count || at != end)
        return NULL;
    *ret_room = TAKE_PTR(room);
    return TAKE_PTR(strings);
}

/* --- Replies --- */

static char reply_tenant[TENANT_MAX];

void reply_set_tenant(const char *tenant)
{
    cay_copy_text(reply_tenant, sizeof reply_tenant, tenant);
}

int reply_send(int channel, struct reply *reply, const struct buf *strings, int fd)
{
    if (strings && (strings->failed || strings->len > CHANNEL_PACKET))
        return -EMSGSIZE;
    reply->version = CHANNEL_VERSION;
    reply->len = strings ? (uint32_t)strings->len : 0;
    memcpy(reply->tenant, reply_tenant, sizeof reply->tenant);
    const struct iovec parts[] = {{reply, sizeof *reply},
                                  {strings ? strings->data : NULL, reply->len}};
    return rights_send(channel, parts, 2, &fd, fd >= 0 ? 1 : 0, MSG_DONTWAIT);
}

int reply_send_done(int channel)
{
    struct reply reply = {.kind = REPLY_DONE};

    return reply_send(channel, &reply, NULL, -1);
}

int reply_send_error(int channel, int status, const struct cay_error *err)
{
    struct reply reply = {
        .kind = REPLY_FAILED, .status = status, .code = err->code, .count = 2};
    AUTO_BUF strings = {.max = CHANNEL_PACKET};

    if (*err->subject)
        buf_format(&strings, "%s: ", err->subject);
    strings_add(&strings, err->message);
    strings_add(&strings, err->hint);
    return reply_send(channel, &reply, &strings, -1);
}

int reply_status_of(int code)
{
    static const struct {
        int code, status;
    } statuses[] = {
        {CAY_E_INVALID, 400}, {CAY_E_NOT_A_FILE, 400}, {CAY_E_NOT_A_DIRECTORY, 400},
        {CAY_E_DENIED, 403},  {CAY_E_NOT_FOUND, 404},  {CAY_E_EXISTS, 409},
        {CAY_E_BUSY, 409},    {CAY_E_LIMIT, 429},      {CAY_E_UNSUPPORTED, 501},
        {CAY_E_TIMEOUT, 504}, {CAY_E_NO_SPACE, 507},   {CAY_E_NOT_APPROVED, 403},
    };

    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++)
        if (statuses[i].code == code)
            return statuses[i].status;
    return 500;
}

static bool is_reply(const struct reply_packet *reply, size_t len)
{
    const struct reply *head = &reply->head;

    if (len < sizeof *head || head->version != CHANNEL_VERSION || head->kind == 0 ||
        head->len != len - sizeof *head || !ends(head->tenant, sizeof head->tenant) ||
        (head->count && (head->len == 0 || reply->payload[head->len - 1])))
        return false;
    uint32_t count = 0;
    for (uint32_t i = 0; head->count && i < head->len; i++)
        count += reply->payload[i] == '\0';
    return count == head->count;
}

int reply_receive(int channel, struct reply_packet *ret_reply)
{
    struct iovec parts[] = {{&ret_reply->head, sizeof ret_reply->head},
                            {ret_reply->payload, CHANNEL_PACKET}};
    int fds[CHANNEL_FDS];
    size_t count;
    ssize_t len =
        rights_receive(channel, parts, 2, fds, CHANNEL_FDS, &count, MSG_DONTWAIT);

    if (len <= 0)
        return (int)len;
    if (count > 1 || !is_reply(ret_reply, (size_t)len)) {
        rights_close(fds, CHANNEL_FDS);
        return -EPROTO;
    }
    ret_reply->payload[ret_reply->head.len] = '\0';
    ret_reply->fd = fds[0];
    return 1;
}

const char *reply_next(const struct reply_packet *reply, const char *before)
{
    const char *next = before ? before + strlen(before) + 1 : reply->payload;

    return reply->head.count && next < reply->payload + reply->head.len ? next : NULL;
}
