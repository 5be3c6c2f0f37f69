/* SPDX-License-Identifier: Apache-2.0 */

/* Code inside may have taken over init, so every reply is untrusted: one that does not
 * match the request exactly ends the connection. */
#include "native/process/files-client.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "init/packet.h"
#include "init/user.h"
#include "native/process/wire.h"
#include "sys/rights.h"

static const char op[] = "sandbox.files";

/* Longer than init ever takes: afterwards it counts as stuck. */
enum { REPLY_MS = 60000 };

/* About 25 microseconds. */
enum { POLLS = 64 };

struct files_client {
    char user[USER_NAME_MAX];

    pthread_mutex_t mutex; /* guards the fields below */
    int socket;
    pid_t owner; /* the process that connected it, not a child of fork(2) */
    int broken;  /* why there is no socket: an errno */
    int polls;   /* number of polls before sleeping */
    struct packet packet;
};

void files_client_free(struct files_client *client)
{
    if (!client)
        return;
    if (client->socket >= 0)
        rights_let_go(client->socket, client->owner);
    pthread_mutex_destroy(&client->mutex);
    free(client);
}

static void auto_files_client(struct files_client **client)
{
    files_client_free(*client);
}

const char *files_client_user(const struct files_client *client)
{
    return client->user;
}

void files_call_done(struct files_call *call)
{
    auto_close(&call->fd);
    auto_close(&call->dir);
}

static int disconnect(struct files_client *client, int sys_errno)
{
    if (client->socket >= 0)
        rights_hang_up(client->socket);
    client->socket = -1;
    client->broken = sys_errno;
    return -sys_errno;
}

int files_client_fail(struct files_client *client)
{
    pthread_mutex_lock(&client->mutex);
    int error = disconnect(client, EPROTO);
    pthread_mutex_unlock(&client->mutex);
    return error;
}

static int send_call(const struct files_client *client, struct files_call *call)
{
    char payload[sizeof call->head + 2 * PATH_MAX];
    const char *texts[2] = {call->name ? call->name : "", call->other ? call->other : ""};
    size_t name = strlen(texts[0]) + 1, other = strlen(texts[1]) + 1;
    size_t len = sizeof call->head, count = 0;
    int fds[2];

    if (name > PATH_MAX || other > PATH_MAX)
        return -ENAMETOOLONG;
    for (unsigned i = 0; i < call->fd_count; i++) {
        if (call->fds[i] < 0)
            call->head.at_root |= 1u << i;
        else
            fds[count++] = call->fds[i];
    }
    memcpy(payload, &call->head, len);
    memcpy(payload + len, texts[0], name);
    memcpy(payload + len + name, texts[1], other);
    return packet_send(client->socket, MESSAGE_FILE, payload, len + name + other, fds,
                       count);
}

/* Parses a reply; false if it is invalid. */
static bool take_reply(struct packet *packet, struct files_call *call)
{
    struct file_reply *reply = &call->reply;
    size_t len = packet->head.len;
    const char *text = packet->payload + sizeof *reply;

    if (packet->head.kind != MESSAGE_FILE_DONE || len < sizeof *reply)
        return false;
    memcpy(reply, packet->payload, sizeof *reply);
    bool has_fd = reply->flags & FILE_HAS_FD, has_dir = reply->flags & FILE_HAS_DIR;
    size_t text_len = reply->flags & FILE_HAS_TEXT ? (size_t)reply->text_len + 1 : 0;
    size_t looks_len = reply->error ? 0 : call->look_count * sizeof *call->looks;
    if (reply->error > 0 || reply->error < -4095 || text_len > PATH_MAX ||
        (text_len && looks_len) || len != sizeof *reply + text_len + looks_len ||
        packet->head.fd_count != (unsigned)has_fd + has_dir ||
        (reply->error && packet->head.fd_count) ||
        (text_len && strnlen(text, text_len) != text_len - 1))
        return false;
    memcpy(call->text, text, text_len);
    if (looks_len)
        memcpy(call->looks, text, looks_len);
    if (has_fd)
        call->fd = TAKE_FD(packet->fds[0]);
    if (has_dir)
        call->dir = TAKE_FD(packet->fds[has_fd]);
    return true;
}

/* A packet loses its descriptors if there are too few free ones. */
static bool has_room(int fd)
{
    AUTO_FD one = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    AUTO_FD other = fcntl(fd, F_DUPFD_CLOEXEC, 3);

    return one >= 0 && other >= 0;
}

/* Polls first, since a reply mostly arrives sooner than a sleep and a wake-up take. */
static int receive(struct files_client *client)
{
    for (int i = 0; i < client->polls; i++) {
        int got = packet_poll(client->socket, &client->packet);
        if (got != -EAGAIN)
            return got;
    }
    return packet_receive(client->socket, &client->packet);
}

static int exchange(struct files_client *client, struct files_call *call)
{
    if (client->socket < 0)
        return -client->broken;
    int error = send_call(client, call);
    if (error == -ENAMETOOLONG)
        return error;
    int got = error ? 0 : receive(client);
    if (error == -EAGAIN || got == -EAGAIN)
        return disconnect(client, ETIME);
    if (got == 0)
        return disconnect(client, ECONNRESET);
    if (got < 0)
        return has_room(client->socket) ? disconnect(client, EPROTO) : -EMFILE;
    bool fine = take_reply(&client->packet, call);
    packet_close_fds(&client->packet);
    return fine ? call->reply.error : disconnect(client, EPROTO);
}

int files_client_request(struct files_client *client, struct files_call *call)
{
    pthread_mutex_lock(&client->mutex);
    int error = exchange(client, call);
    pthread_mutex_unlock(&client->mutex);
    return error;
}

/* --- Opening a session --- */

/* With a single CPU, init would have to wait for this process. */
static int count_polls(void)
{
    cpu_set_t processors;

    return sched_getaffinity(0, sizeof processors, &processors) == 0 &&
                   CPU_COUNT(&processors) == 1
               ? 0
               : POLLS;
}

static struct files_client *new_client(void)
{
    struct files_client *client = malloc(sizeof *client);

    if (!client)
        return NULL;
    pthread_mutex_init(&client->mutex, NULL);
    client->user[0] = '\0';
    client->socket = -1;
    client->owner = getpid();
    client->broken = 0;
    client->polls = count_polls();
    return client;
}

static int fail_open(int sys_errno, struct cay_error *err)
{
    return sys_errno == EPROTO ? cay_fail(err, CAY_E_PROTOCOL, sys_errno, op, NULL,
                                          "PID 1 of the sandbox sent an invalid reply",
                                          "kill the sandbox: it may be compromised")
                               : cay_fail(err, CAY_E_UNAVAILABLE, sys_errno, op, NULL,
                                          "the sandbox has ended", "create a new one");
}

static int take_failure(const struct packet *packet, struct cay_error *err)
{
    struct cay_error failure;
    size_t len = packet->head.fd_count ? 0 : packet->head.len;
    int code = wire_error(packet->payload, len, &failure);

    return cay_fail(err, code, failure.sys_errno, op, failure.subject, failure.message,
                    "%s", failure.hint);
}

/* "start\0user\0", both within their limits. */
static bool take_session(const struct packet *packet, struct files_client *client,
                         char ret_start[PATH_MAX])
{
    size_t len = packet->head.len;
    size_t start = strnlen(packet->payload, len) + 1;

    if (packet->head.kind != MESSAGE_FILES_READY || packet->head.fd_count ||
        start > PATH_MAX || start >= len || packet->payload[0] != '/')
        return false;
    size_t user = strnlen(packet->payload + start, len - start) + 1;
    if (user > sizeof client->user || start + user != len)
        return false;
    memcpy(ret_start, packet->payload, start);
    memcpy(client->user, packet->payload + start, user);
    wire_make_text(client->user, user - 1);
    return true;
}

static int open_session(struct files_client *client, const char *user, uint32_t reply_ms,
                        char ret_start[PATH_MAX], struct cay_error *err)
{
    const struct timeval limit = {.tv_sec = reply_ms / 1000,
                                  .tv_usec = reply_ms % 1000 * 1000};
    struct packet *packet = &client->packet;

    if (setsockopt(client->socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) != 0 ||
        setsockopt(client->socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) != 0)
        return cay_fail_errno(err, errno, op, NULL);
    int got = packet_send(client->socket, MESSAGE_FILES, user, strlen(user) + 1, NULL, 0);
    if (!got)
        got = packet_receive(client->socket, packet);
    if (got != 1)
        return fail_open(got == -EPROTO ? EPROTO : ECONNRESET, err);
    packet_close_fds(packet);
    if (packet->head.kind == MESSAGE_FAILED)
        return take_failure(packet, err);
    return take_session(packet, client, ret_start) ? CAY_OK : fail_open(EPROTO, err);
}

int files_client_new(int socket, const char *user, uint32_t reply_ms,
                     struct files_client **ret_client, char ret_start[PATH_MAX],
                     struct cay_error *err)
{
    AUTO_FD own = socket;

    if (user && (!*user || strlen(user) >= FILES_USER_MAX))
        return cay_fail(err, CAY_E_NOT_FOUND, 0, op, user,
                        "there is no such user in the sandbox",
                        "a user name has 1 to %d characters", USER_NAME_MAX - 1);
    __attribute__((cleanup(auto_files_client))) struct files_client *client =
        new_client();
    if (!client)
        return cay_fail_memory(err, op);
    client->socket = TAKE_FD(own);
    int code = open_session(client, user ? user : "", reply_ms ? reply_ms : REPLY_MS,
                            ret_start, err);
    if (!code)
        *ret_client = TAKE_PTR(client);
    return code;
}
