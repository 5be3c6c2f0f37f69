/* SPDX-License-Identifier: Apache-2.0 */

/* cay-net: relays the connections of one sandbox, by its rules.
 *
 * Theory of operation.  The sandbox's network namespace leads nowhere; its connections
 * and its questions of DNS arrive on sockets that were created there (collect.h), and
 * this process has them.  It answers each allowed name with an address of its own
 * (hosts.h), so a connection's destination is a name; looks that name up, connects and
 * relays (link.c).  It ends when PID 1 ends.  If it dies before, the sandbox's
 * connections end and no new ones are made. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/auto.h"
#include "relay/confine.h"
#include "relay/server.h"
#include "sys/rights.h"

struct message {
    struct relay_start start;
    char texts[NETWORK_TEXT_MAX + RELAY_OPENED_MAX];
};

/* Descriptors behind the required ones.  A thread that writes "0" moves itself. */
static int join_cgroups(const int *tasks, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (write(tasks[i], "0", 1) != 1)
            return -errno;
        (void)close(tasks[i]);
    }
    return 0;
}

/* False if the library is gone, or of another version. */
static bool receive_start(struct message *message, int *fds, size_t *ret_count)
{
    struct iovec part = {message, sizeof *message};
    ssize_t got = rights_receive(RELAY_FD, &part, 1, fds, RELAY_FDS + RELAY_TASKS_MAX,
                                 ret_count, 0);

    return got >= (ssize_t)sizeof message->start &&
           message->start.version == RELAY_VERSION && *ret_count >= RELAY_FDS &&
           message->start.nameserver_count <= RELAY_NAMESERVERS_MAX &&
           message->start.rules_len <= NETWORK_TEXT_MAX &&
           (size_t)got == sizeof message->start + message->start.rules_len +
                              message->start.opened_len;
}

/* --- Confinement --- */

static const int calls[] = {
    SYS_epoll_pwait,     SYS_epoll_ctl,  SYS_accept4,    SYS_getsockname,
    SYS_getsockopt,      SYS_setsockopt, SYS_recvfrom,   SYS_recvmsg,
    SYS_sendto,          SYS_sendmsg,    SYS_connect,    SYS_shutdown,
    SYS_splice,          SYS_pipe2,      SYS_close,      SYS_read,
    SYS_pwrite64,        SYS_fcntl,      SYS_getrandom,  SYS_clock_gettime,
    SYS_munmap,          SYS_mremap,     SYS_madvise,    SYS_brk,
    SYS_futex,           SYS_exit,       SYS_exit_group, SYS_rt_sigreturn,
    SYS_restart_syscall, SYS_socketpair,
#ifdef SYS_epoll_wait
    SYS_epoll_wait,
#endif
};

static int confine_self(uint32_t uid)
{
    const struct confinement confinement = {
        .uid = uid,
        .calls = calls,
        .call_count = sizeof calls / sizeof *calls,
        .has_sockets = true,
        .file_bytes = RELAY_EVENTS_MAX * RELAY_EVENT_BYTES,
        .files = RELAY_LINKS_MAX * RELAY_LINK_FDS + RELAY_MEMBERS_MAX + 128,
        .memory_bytes = 32 << 20,
    };

    return confine_process(&confinement);
}

/* The library waits for the reply. */
static int begin(struct server *server, const struct message *message, const int *fds,
                 size_t count)
{
    const struct relay_start *start = &message->start;
    struct cay_error error;

    server->nameserver_count = start->nameserver_count;
    memcpy(server->nameservers, start->nameservers, sizeof server->nameservers);
    int code =
        network_rules_read(message->texts, start->rules_len, &server->rules, &error);
    if (!code && start->opened_len)
        server->opened = strndup(message->texts + start->rules_len, start->opened_len);
    if (code || (start->opened_len && !server->opened))
        return -EINVAL;
    code = join_cgroups(fds + RELAY_FDS, count - RELAY_FDS);
    if (!code)
        code = server_init(server, fds, start);
    return code ? code : confine_self(start->uid);
}

int main(void)
{
    static struct server server;
    AUTO_FREE struct message *message = malloc(sizeof *message);
    struct relay_reply reply = {.version = RELAY_VERSION};
    int fds[RELAY_FDS + RELAY_TASKS_MAX];
    size_t count = 0;

    (void)prctl(PR_SET_NAME, "cay-net");
    confine_reset_inherited();
    if (!message || !receive_start(message, fds, &count))
        return 1;
    int error = begin(&server, message, fds, count);
    free(TAKE_PTR(message));
    reply.code = error;
    if (send(RELAY_FD, &reply, sizeof reply, MSG_NOSIGNAL) != sizeof reply || error)
        return 1;
    (void)close(RELAY_FD);
    server_run(&server);
}
