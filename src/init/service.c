/* SPDX-License-Identifier: Apache-2.0 */

/* PID 1's side of the code services: one process for each user that runs code, with a
 * socket as its stdin.  PID 1 sends it one end of a new connection for each CODE message
 * and is not in the data path.  A service that has ended is found out when the next
 * connection cannot be sent to it, or when its place is needed. */
#include "init/service.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "init/code.h"
#include "init/process.h"
#include "init/user.h"
#include "sys/rights.h"

enum { SERVICES_MAX = 16 };

static struct service {
    int channel;
    uid_t uid;
    gid_t gid;
} services[SERVICES_MAX];
static size_t service_count;

static const char op[] = "code.connect";

static struct service *find(const struct user *user)
{
    for (size_t i = 0; i < service_count; i++)
        if (services[i].uid == user->uid && services[i].gid == user->gid)
            return &services[i];
    return NULL;
}

/* The service may have sent descriptors, which close(2) would wait for. */
static void forget(struct service *service)
{
    rights_hang_up(service->channel);
    *service = services[--service_count];
}

/* Their sockets have hung up. */
static void forget_ended(void)
{
    for (size_t i = service_count; i-- > 0;) {
        struct pollfd channel = {.fd = services[i].channel};
        if (poll(&channel, 1, 0) == 1)
            forget(&services[i]);
    }
}

/* 0 or a negative errno: EAGAIN if its queue is full, EPIPE if it has ended.  `is_again`:
 * the service replaces one that has ended. */
static int pass_on(const struct service *service, int fd, bool is_again)
{
    char byte = is_again;
    const struct iovec part = {&byte, 1};

    return rights_send(service->channel, &part, 1, &fd, 1, MSG_DONTWAIT);
}

static int start(const char *who, const struct user *user, struct service **ret_service,
                 struct cay_error *err)
{
    int ends[2];

    if (service_count == SERVICES_MAX)
        forget_ended();
    if (service_count == SERVICES_MAX)
        return cay_fail(err, CAY_E_LIMIT, 0, op, user->name,
                        "code of too many users is running in this sandbox",
                        "the limit is %d users; run the code as one of them",
                        SERVICES_MAX);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        return cay_fail_errno(err, errno, op, NULL);
    int code = process_start_own(who, CODE_PROGRAM, ends[1], err);
    if (code) {
        (void)close(ends[0]);
        return code;
    }
    services[service_count] = (struct service){ends[0], user->uid, user->gid};
    *ret_service = &services[service_count++];
    return CAY_OK;
}

static int connect_service(const char *who, int fd, struct cay_error *err)
{
    struct user user;

    if (process_is_paused)
        return cay_fail(err, CAY_E_BUSY, 0, op, NULL, "the sandbox is paused",
                        "resume it first");
    TRY(user_find(*who ? who : request_default_user(), &user, err));
    struct service *service = find(&user);
    int error = service ? pass_on(service, fd, false) : -EPIPE;
    if (error == -EPIPE || error == -ECONNRESET) {
        bool is_again = service != NULL;
        if (service)
            forget(service);
        TRY(start(who, &user, &service, err));
        error = pass_on(service, fd, is_again);
    }
    if (error == -EAGAIN)
        return cay_fail(err, CAY_E_BUSY, EAGAIN, op, user.name,
                        "the code service of the sandbox does not accept connections",
                        "try again, or kill the process %s inside", CODE_PROGRAM);
    return error ? cay_fail_errno(err, -error, op, user.name) : CAY_OK;
}

bool service_dial(struct peer *peer, const struct packet *packet)
{
    char who[CODE_USER_MAX] = "";
    struct cay_error error = {0};
    size_t len = packet->head.len;
    int ends[2];

    if (len >= sizeof who || memchr(packet->payload, 0, len))
        return false;
    memcpy(who, packet->payload, len);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
        cay_fail_errno(&error, errno, op, NULL);
        peer_fail(peer, &error);
        return true;
    }
    if (connect_service(who, ends[1], &error) == CAY_OK)
        peer_send(peer, MESSAGE_DIALLED, NULL, 0, ends[0]);
    else
        peer_fail(peer, &error);
    (void)close(ends[0]);
    (void)close(ends[1]);
    return true;
}
