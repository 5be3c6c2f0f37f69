/* SPDX-License-Identifier: Apache-2.0 */

/* cay-net-tls: reads the requests of one sandbox, see tls.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "relay/confine.h"
#include "sys/rights.h"
#include "tls/opener.h"

enum { EVENTS = 32 };

struct message {
    struct tls_start start;
    char texts[NETWORK_TEXT_MAX + SECRETS_TEXT_MAX];
};

/* False if the library is gone, or of another version. */
static bool receive_start(struct message *message, int fds[TLS_FDS])
{
    struct iovec part = {message, sizeof *message};
    size_t count = 0;
    ssize_t got = rights_receive(TLS_FD, &part, 1, fds, TLS_FDS, &count, 0);

    return got >= (ssize_t)sizeof message->start &&
           message->start.version == TLS_VERSION && count == TLS_FDS &&
           message->start.rules_len <= NETWORK_TEXT_MAX &&
           (size_t)got == sizeof message->start + message->start.rules_len +
                              message->start.secrets_len;
}

/* --- Confinement --- */

static const int calls[] = {
    SYS_epoll_pwait, SYS_epoll_ctl,  SYS_recvfrom,      SYS_recvmsg,
    SYS_sendto,      SYS_sendmsg,    SYS_shutdown,      SYS_close,
    SYS_read,        SYS_write,      SYS_pread64,       SYS_ppoll,
    SYS_fcntl,       SYS_getrandom,  SYS_clock_gettime, SYS_munmap,
    SYS_mremap,      SYS_madvise,    SYS_brk,           SYS_futex,
    SYS_getpid,      SYS_gettid,     SYS_getrusage,     SYS_gettimeofday,
    SYS_exit,        SYS_exit_group, SYS_rt_sigreturn,  SYS_restart_syscall,
    SYS_fstat,       SYS_getsockopt, SYS_newfstatat,
#ifdef SYS_epoll_wait
    SYS_epoll_wait,  SYS_poll,       SYS_time,
#endif
};

static int confine_self(uint32_t uid)
{
    const struct confinement confinement = {
        .uid = uid,
        .calls = calls,
        .call_count = sizeof calls / sizeof *calls,
        .file_bytes = 0,
        .files = 4 * 256 + 64,
        .memory_bytes = 256 << 20,
    };

    return confine_process(&confinement);
}

/* --- Names --- */

/* For the names that it may open; 0: every name. */
static int init_authority(struct opener *opener, bool is_any)
{
    static const char *names[NETWORK_RULES_MAX + SECRET_USES_MAX];
    const struct secrets *secrets = opener->secrets;
    size_t count = 0;

    if (is_any ||
        !network_rules_inspected(opener->rules, names, NETWORK_RULES_MAX, &count))
        return authority_init(&opener->authority, names, 0);
    for (size_t i = 0; i < secrets->use_count; i++)
        names[count++] = secrets->uses[i].host;
    return authority_init(&opener->authority, names, count);
}

static int begin(struct opener *opener, const struct message *message,
                 const int fds[TLS_FDS], struct tls_reply *reply)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = opener};
    struct cay_error error;

    opener->links = fds[TLS_LINKS];
    opener->roots = fds[TLS_ROOTS];
    const struct tls_start *start = &message->start;
    if (network_rules_read(message->texts, start->rules_len, &opener->rules, &error) ||
        secrets_read(message->texts + start->rules_len, start->secrets_len,
                     &opener->secrets, &error))
        return -EINVAL;
    if (gnutls_priority_init(&opener->priorities,
                             "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2", NULL) < 0 ||
        gnutls_session_ticket_key_generate(&opener->ticket_key) < 0 ||
        init_authority(opener, start->opens_any) < 0 ||
        authority_write(&opener->authority, reply->authority, sizeof reply->authority) <
            0)
        return -EPROTO;
    opener->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (opener->epoll < 0 ||
        epoll_ctl(opener->epoll, EPOLL_CTL_ADD, opener->links, &event) != 0)
        return -errno;
    return confine_self(message->start.uid);
}

/* --- Orders of cay-net --- */

struct order {
    struct tls_order_head head;
    char rules[NETWORK_TEXT_MAX];
};

static void take_rules(struct opener *opener, const char *text, size_t len)
{
    struct network_rules *rules = NULL;
    struct cay_error error;

    if (network_rules_read(text, len, &rules, &error))
        _exit(1); /* cay-net has accepted them: requests must not pass by the old ones */
    network_rules_free(opener->rules);
    opener->rules = rules;
}

/* The library has checked them with the same functions. */
static void take_headers(struct opener *opener, int fd)
{
    AUTO_FREE char *text = malloc(SECRETS_TEXT_MAX);
    struct secrets *headers = NULL;
    struct cay_error error;
    ssize_t len = text ? pread(fd, text, SECRETS_TEXT_MAX, 0) : -1;

    if (len < 0 || secrets_read(text, (size_t)len, &headers, &error))
        _exit(1);
    explicit_bzero(text, (size_t)len);
    secrets_free(opener->headers);
    opener->headers = headers;
}

static void take_order(struct opener *opener)
{
    static struct order order;
    struct iovec part = {&order, sizeof order};
    size_t count = 0;
    int fds[2];
    ssize_t got = rights_receive(opener->links, &part, 1, fds, 2, &count, MSG_DONTWAIT);

    if (got == -EAGAIN || got == -EMFILE)
        return;
    if (got < (ssize_t)sizeof order.head || order.head.version != TLS_VERSION)
        _exit(0); /* cay-net has ended */
    order.head.name[sizeof order.head.name - 1] = '\0';
    if (order.head.order == TLS_ORDER_LINK && count == 2) {
        exchange_new(opener, &order.head, fds);
        return;
    }
    if (order.head.order == TLS_ORDER_HEADERS && count == 1)
        take_headers(opener, fds[0]);
    while (count > 0) /* not rights_close(): it calls connect(2) */
        (void)close(fds[--count]);
    if (order.head.order == TLS_ORDER_RULES)
        take_rules(opener, order.rules, (size_t)got - sizeof order.head);
}

_Noreturn static void run(struct opener *opener)
{
    struct epoll_event events[EVENTS];

    for (;;) {
        int count = epoll_wait(opener->epoll, events, EVENTS,
                               exchange_timeout(opener, clock_ms()));
        if (count < 0 && errno != EINTR)
            _exit(1);
        for (int i = 0; i < count; i++)
            if (events[i].data.ptr == opener)
                take_order(opener);
            else
                exchange_continue(opener, events[i].data.ptr);
        exchange_continue_waiting(opener, clock_ms());
        exchange_free_dead(opener);
    }
}

int main(void)
{
    static struct opener opener;
    static struct tls_reply reply = {.version = TLS_VERSION};
    AUTO_FREE struct message *message = malloc(sizeof *message);
    int fds[TLS_FDS];

    (void)prctl(PR_SET_NAME, "cay-net-tls");
    (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    confine_reset_inherited();
    if (!message || !receive_start(message, fds))
        return 1;
    reply.code = begin(&opener, message, fds, &reply);
    explicit_bzero(message, sizeof *message);
    free(TAKE_PTR(message));
    if (send(TLS_FD, &reply, sizeof reply, MSG_NOSIGNAL) != sizeof reply || reply.code)
        return 1;
    (void)close(TLS_FD);
    run(&opener);
}
