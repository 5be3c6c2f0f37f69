/* SPDX-License-Identifier: Apache-2.0 */

/* Two members know each other when each cay-net has a connection to the other's PID 1.
 * The process that creates a sandbox makes these connections, under a lock on all named
 * networks of the user.  If it dies meanwhile, the next one that joins completes them. */
#include "native/make/join.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"
#include "init/packet.h"
#include "native/record/members.h"
#include "sys/rights.h"

static const char op[] = "sandbox.join";

enum { CONNECT_MS = 5000, REPLIES_MS = 5000, BATCH = 32 };

/* Requests to cay-net processes whose replies are pending. */
struct batch {
    struct pollfd at[BATCH];
    char ids[BATCH][CAY_ID_MAX];
    size_t count;
};

/* --- Texts --- */

static int fail_long(struct cay_error *err)
{
    return cay_fail(err, CAY_E_LIMIT, 0, op, "networks",
                    "the names of the sandbox in its networks are too long",
                    "use at most %d bytes in all", CAY_NETWORKS_MAX - 1);
}

int join_plan(const char *const *networks, const char *name,
              char ret_text[CAY_NETWORKS_MAX], struct cay_error *err)
{
    size_t len = 0;
    struct relay_join join;

    ret_text[0] = '\0';
    for (size_t i = 0; networks && networks[i]; i++) {
        TRY(members_parse(networks[i], name, &join, err));
        int more = snprintf(ret_text + len, CAY_NETWORKS_MAX - len, "%s%s:%s",
                            len ? " " : "", join.network, join.name);
        if (more < 0 || (size_t)more >= CAY_NETWORKS_MAX - len)
            return fail_long(err);
        len += (size_t)more;
    }
    return CAY_OK;
}

/* --- Connections --- */

/* A member that has ended meanwhile: it needs no connection. */
static bool is_gone(int error)
{
    return error == ENOENT || error == ECONNREFUSED || error == ECONNRESET ||
           error == EPIPE;
}

static int fail_connect(int error, const char *id, struct cay_error *err)
{
    if (error != EAGAIN)
        return cay_fail_errno(err, error, op, id);
    return cay_fail(err, CAY_E_TIMEOUT, error, op, id,
                    "a sandbox of the network does not respond",
                    "try again, or end it: cay kill %s", id);
}

/* A descriptor, or a negative errno. */
static int connect_to(const struct sockaddr_un *address)
{
    const struct timeval timeout = {.tv_sec = CONNECT_MS / 1000};
    AUTO_FD fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    if (fd < 0 ||
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout) != 0 ||
        connect(fd, (const struct sockaddr *)address, sizeof *address) != 0)
        return -errno;
    return TAKE_FD(fd);
}

int join_connect(const char *id, enum message_kind kind)
{
    struct sockaddr_un address;

    if (runtime_address(id, &address, NULL) != CAY_OK)
        return -ENOENT;
    AUTO_FD fd = connect_to(&address);
    if (fd < 0)
        return TAKE_FD(fd);
    int error = packet_send(fd, kind, NULL, 0, NULL, 0);
    return error ? error : TAKE_FD(fd);
}

/* --- Requests to cay-net --- */

static int read_reply(int socket, const char *id, struct cay_error *err)
{
    struct relay_reply reply;

    if (recv(socket, &reply, sizeof reply, MSG_DONTWAIT) != sizeof reply || !reply.code)
        return CAY_OK; /* it has ended, or accepts the member */
    reply.message[sizeof reply.message - 1] = '\0';
    return cay_fail(err, reply.code, 0, op, id, reply.message,
                    "all names in the networks of a sandbox are at most %d",
                    RELAY_MEMBERS_MAX);
}

/* A cay-net that does not reply in time is left behind: it gets the request later. */
static int wait_replies(struct batch *batch, struct cay_error *err)
{
    uint64_t end_ms = clock_ms() + REPLIES_MS;
    int code = CAY_OK;

    for (size_t left = batch->count; left > 0 && !code;) {
        uint64_t now_ms = clock_ms();
        int ready =
            now_ms < end_ms ? poll(batch->at, batch->count, (int)(end_ms - now_ms)) : 0;
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready <= 0)
            break;
        for (size_t i = 0; i < batch->count && !code; i++) {
            if (!batch->at[i].revents)
                continue;
            code = read_reply(batch->at[i].fd, batch->ids[i], err);
            (void)close(batch->at[i].fd);
            batch->at[i] = (struct pollfd){.fd = -1};
            left--;
        }
    }
    for (size_t i = 0; i < batch->count; i++)
        auto_close(&batch->at[i].fd);
    batch->count = 0;
    return code;
}

/* Tells the cay-net of sandbox `id` about `join`: another sandbox, or itself. */
static int tell(struct batch *batch, const char *id, const struct relay_join *join,
                struct cay_error *err)
{
    const struct relay_request request = {RELAY_VERSION, RELAY_JOIN};
    const struct iovec parts[] = {{(void *)(uintptr_t)&request, sizeof request},
                                  {(void *)(uintptr_t)join, sizeof *join}};
    bool is_own = strcmp(id, join->id) == 0;
    struct sockaddr_un address;

    if (batch->count == BATCH)
        TRY(wait_replies(batch, err));
    TRY(runtime_relay_address(id, &address, err));
    AUTO_FD dialer = is_own ? -1 : join_connect(join->id, MESSAGE_DIAL_ONLY);
    if (dialer < 0 && !is_own)
        return is_gone(-dialer) ? CAY_OK : fail_connect(-dialer, join->id, err);
    AUTO_FD socket = connect_to(&address);
    int error = socket < 0 ? socket : rights_send(socket, parts, 2, &dialer, !is_own, 0);
    if (error)
        return is_gone(-error) ? CAY_OK : fail_connect(-error, id, err);
    cay_copy_text(batch->ids[batch->count], CAY_ID_MAX, id);
    batch->at[batch->count++] = (struct pollfd){.fd = TAKE_FD(socket), .events = POLLIN};
    return CAY_OK;
}

/* --- Members --- */

static int connect_member(int dir, const struct members *members,
                          const struct relay_join *member, struct batch *batch,
                          struct cay_error *err)
{
    for (size_t i = 0; i < members->count; i++) {
        const struct relay_join *other = &members->at[i];
        if (strcmp(other->id, member->id) == 0)
            continue;
        TRY(tell(batch, other->id, member, err));
        TRY(tell(batch, member->id, other, err));
    }
    return members_confirm(dir, member, err);
}

/* Those that are not connected yet.  Each cay-net knows its own name in the network
 * before it gets those of others. */
static int connect_pending(int dir, const struct members *members, struct batch *batch,
                           struct cay_error *err)
{
    for (size_t i = 0; i < members->count; i++)
        if (members->is_pending[i])
            TRY(tell(batch, members->at[i].id, &members->at[i], err));
    TRY(wait_replies(batch, err));
    for (size_t i = 0; i < members->count; i++)
        if (members->is_pending[i])
            TRY(connect_member(dir, members, &members->at[i], batch, err));
    return CAY_OK;
}

static int join_one(int dir, const struct relay_join *join, struct batch *batch,
                    struct cay_error *err)
{
    struct members members;

    TRY(members_claim(dir, join, err));
    int code = members_load(dir, join->network, &members, err);
    if (!code)
        code = connect_pending(dir, &members, batch, err);
    members_done(&members);
    return code;
}

static int join_all(int dir, const struct record *record, struct batch *batch,
                    struct cay_error *err)
{
    const char *text = record->networks;
    char word[CAY_NETWORKS_MAX];
    struct relay_join join;

    while (members_next(&text, word)) {
        TRY(members_parse(word, "", &join, err));
        cay_copy_text(join.id, sizeof join.id, record->id);
        TRY(join_one(dir, &join, batch, err));
    }
    return CAY_OK;
}

int join_networks(const struct record *record, struct cay_error *err)
{
    struct batch batch = {.count = 0};
    int dir = members_lock(err);

    if (dir < 0)
        return dir;
    int code = join_all(dir, record, &batch, err);
    (void)close(dir); /* others join while the replies are on their way */
    int waited = wait_replies(&batch, code ? NULL : err);
    return code ? code : waited;
}
