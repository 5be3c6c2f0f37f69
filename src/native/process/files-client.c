/* SPDX-License-Identifier: Apache-2.0 */

/* Init may have been taken over by what runs inside, so nothing it sends is believed:
 * what is not exactly the answer to the question ends the connection. */
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

/* Longer than init ever takes: then it is stuck, or does not want to answer. */
enum { ANSWER_MS = 60000 };

/* Some 25 microseconds. */
enum { LOOKS = 64 };

struct inside {
    char user[USER_NAME_MAX];

    pthread_mutex_t mutex; /* guards what follows */
    int socket;
    pid_t owner; /* who connected it, and no child of a fork */
    int broken;  /* why there is no socket: an errno */
    int looks;   /* before we sleep for an answer */
    struct packet packet;
};

void inside_free(struct inside *inside)
{
    if (!inside)
        return;
    if (inside->socket >= 0)
        rights_let_go(inside->socket, inside->owner);
    pthread_mutex_destroy(&inside->mutex);
    free(inside);
}

static void auto_inside(struct inside **inside)
{
    inside_free(*inside);
}

const char *inside_user(const struct inside *inside)
{
    return inside->user;
}

void call_done(struct call *call)
{
    if (call->fd >= 0)
        (void)close(call->fd);
    if (call->dir >= 0)
        (void)close(call->dir);
}

static int break_off(struct inside *inside, int sys_errno)
{
    if (inside->socket >= 0)
        rights_hang_up(inside->socket);
    inside->socket = -1;
    inside->broken = sys_errno;
    return -sys_errno;
}

int inside_refuse(struct inside *inside)
{
    pthread_mutex_lock(&inside->mutex);
    int error = break_off(inside, EPROTO);
    pthread_mutex_unlock(&inside->mutex);
    return error;
}

static int send_call(const struct inside *inside, struct call *call)
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
    return packet_send(inside->socket, MESSAGE_FILE, payload, len + name + other, fds,
                       count);
}

/* Takes an answer apart; false if it is none. */
static bool take_answer(struct packet *packet, struct call *call)
{
    struct file_reply *answer = &call->answer;
    size_t len = packet->head.len;
    const char *text = packet->payload + sizeof *answer;

    if (packet->head.kind != MESSAGE_FILE_DONE || len < sizeof *answer)
        return false;
    memcpy(answer, packet->payload, sizeof *answer);
    bool has_fd = answer->flags & FILE_HAS_FD, has_dir = answer->flags & FILE_HAS_DIR;
    size_t text_len = answer->flags & FILE_HAS_TEXT ? (size_t)answer->text_len + 1 : 0;
    size_t looks_len = answer->error ? 0 : call->look_count * sizeof *call->looks;
    if (answer->error > 0 || answer->error < -4095 || text_len > PATH_MAX ||
        (text_len && looks_len) || len != sizeof *answer + text_len + looks_len ||
        packet->head.fd_count != (unsigned)has_fd + has_dir ||
        (answer->error && packet->head.fd_count) ||
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

/* A packet comes without its descriptors where there is no room for them. */
static bool has_room(int fd)
{
    AUTO_FD one = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    AUTO_FD other = fcntl(fd, F_DUPFD_CLOEXEC, 3);

    return one >= 0 && other >= 0;
}

/* An answer is mostly there before we could sleep and be woken again. */
static int receive(struct inside *inside)
{
    for (int i = 0; i < inside->looks; i++) {
        int got = packet_poll(inside->socket, &inside->packet);
        if (got != -EAGAIN)
            return got;
    }
    return packet_receive(inside->socket, &inside->packet);
}

static int exchange(struct inside *inside, struct call *call)
{
    if (inside->socket < 0)
        return -inside->broken;
    int error = send_call(inside, call);
    if (error == -ENAMETOOLONG)
        return error;
    int got = error ? 0 : receive(inside);
    if (error == -EAGAIN || got == -EAGAIN)
        return break_off(inside, ETIME);
    if (got == 0)
        return break_off(inside, ECONNRESET);
    if (got < 0)
        return has_room(inside->socket) ? break_off(inside, EPROTO) : -EMFILE;
    bool fine = take_answer(&inside->packet, call);
    packet_close_fds(&inside->packet);
    return fine ? call->answer.error : break_off(inside, EPROTO);
}

int inside_ask(struct inside *inside, struct call *call)
{
    pthread_mutex_lock(&inside->mutex);
    int error = exchange(inside, call);
    pthread_mutex_unlock(&inside->mutex);
    return error;
}

/* --- The beginning -------------------------------------------------------------------
 */

/* Where there is one processor only, init waits for it. */
static int count_looks(void)
{
    cpu_set_t processors;

    return sched_getaffinity(0, sizeof processors, &processors) == 0 &&
                   CPU_COUNT(&processors) == 1
               ? 0
               : LOOKS;
}

static struct inside *allocate(void)
{
    struct inside *inside = malloc(sizeof *inside);

    if (!inside)
        return NULL;
    pthread_mutex_init(&inside->mutex, NULL);
    inside->user[0] = '\0';
    inside->socket = -1;
    inside->owner = getpid();
    inside->broken = 0;
    inside->looks = count_looks();
    return inside;
}

static int fail_beginning(int sys_errno, struct cay_error *err)
{
    return sys_errno == EPROTO
               ? cay_fail(err, CAY_E_PROTOCOL, sys_errno, op, NULL,
                          "the sandbox's init answered what it was not asked",
                          "do not trust it any more: kill the sandbox")
               : cay_fail(err, CAY_E_UNAVAILABLE, sys_errno, op, NULL,
                          "the sandbox does not answer", "it has ended; make a new one");
}

static int take_failure(const struct packet *packet, struct cay_error *err)
{
    struct cay_error failure;
    size_t len = packet->head.fd_count ? 0 : packet->head.len;
    int code = wire_error(packet->payload, len, &failure);

    return cay_fail(err, code, failure.sys_errno, op, failure.subject, failure.message,
                    "%s", failure.hint);
}

/* "start\0user\0", both within their bounds. */
static bool take_beginning(const struct packet *packet, struct inside *inside,
                           char ret_start[PATH_MAX])
{
    size_t len = packet->head.len;
    size_t start = strnlen(packet->payload, len) + 1;

    if (packet->head.kind != MESSAGE_FILES_READY || packet->head.fd_count ||
        start > PATH_MAX || start >= len || packet->payload[0] != '/')
        return false;
    size_t user = strnlen(packet->payload + start, len - start) + 1;
    if (user > sizeof inside->user || start + user != len)
        return false;
    memcpy(ret_start, packet->payload, start);
    memcpy(inside->user, packet->payload + start, user);
    wire_make_text(inside->user, user - 1);
    return true;
}

static int begin(struct inside *inside, const char *user, uint32_t answer_ms,
                 char ret_start[PATH_MAX], struct cay_error *err)
{
    const struct timeval limit = {.tv_sec = answer_ms / 1000,
                                  .tv_usec = answer_ms % 1000 * 1000};
    struct packet *packet = &inside->packet;

    if (setsockopt(inside->socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) != 0 ||
        setsockopt(inside->socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) != 0)
        return cay_fail_errno(err, errno, op, NULL);
    int got = packet_send(inside->socket, MESSAGE_FILES, user, strlen(user) + 1, NULL, 0);
    if (!got)
        got = packet_receive(inside->socket, packet);
    if (got != 1)
        return fail_beginning(got == -EPROTO ? EPROTO : ECONNRESET, err);
    packet_close_fds(packet);
    if (packet->head.kind == MESSAGE_FAILED)
        return take_failure(packet, err);
    return take_beginning(packet, inside, ret_start) ? CAY_OK
                                                     : fail_beginning(EPROTO, err);
}

int inside_new(int socket, const char *user, uint32_t answer_ms,
               struct inside **ret_inside, char ret_start[PATH_MAX],
               struct cay_error *err)
{
    AUTO_FD own = socket;

    if (user && (!*user || strlen(user) >= FILES_USER_MAX))
        return cay_fail(err, CAY_E_NOT_FOUND, 0, op, user,
                        "there is no such user in the sandbox",
                        "a name has 1 to %d characters", USER_NAME_MAX - 1);
    __attribute__((cleanup(auto_inside))) struct inside *inside = allocate();
    if (!inside)
        return cay_fail_memory(err, op);
    inside->socket = TAKE_FD(own);
    int code = begin(inside, user ? user : "", answer_ms ? answer_ms : ANSWER_MS,
                     ret_start, err);
    if (!code)
        *ret_inside = TAKE_PTR(inside);
    return code;
}
