/* SPDX-License-Identifier: Apache-2.0 */

/* One thread, one epoll, and no blocking call: a reply that does not fit the socket
 * buffer at once closes the connection, and a child that has not executed yet is checked
 * again later.  Each connection is a peer; commands are in their own table, in process.c.
 */
#include "init/serve.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"
#include "init/file.h"
#include "init/filters.h"
#include "init/owner.h"
#include "init/prefork.h"
#include "init/process.h"
#include "init/report.h"
#include "init/service.h"
#include "init/subreaper.h"
#include "init/sudo.h"

enum { PEERS_MAX = 1024, EVENTS = 32 };

static LARGE struct peer *peers[PEERS_MAX + SUDO_PEERS_MAX];
static size_t peer_count, inside_count; /* all, and the sudo clients among them */
static bool some_are_gone;
static int epoll_fd, signal_fd, sudo_fd = -1;
static bool no_namespaces, has_cgroup;
static int proc_fd = -1;   /* /proc, for lists */
static uint64_t end_ns;    /* when the time to live ends; 0: never */
static uint64_t paused_ns; /* when the time to live was paused; 0: it runs */
static bool is_spare;      /* of a pool, and not claimed yet */
static uint64_t orphan_ns; /* when to end, since the pool has ended; 0: never */
static int pool_fd = -1;   /* the socket to the pool, after the claim */
static uint64_t pool_ns;   /* when to close it */
static LARGE struct packet packet;

int serve_watch(int fd, struct source *source)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = source};

    return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0 ? 0 : -errno;
}

void serve_forget(int fd)
{
    (void)epoll_ctl(epoll_fd, EPOLL_CTL_DEL, fd, NULL);
}

void serve_close(int fd)
{
    serve_forget(fd);
    (void)close(fd);
}

/* --- Peers --- */

void peer_send(struct peer *peer, enum message_kind kind, const void *payload, size_t len,
               int fd)
{
    if (!peer->gone && packet_send(peer->fd, kind, payload, len, &fd, fd >= 0) != 0)
        peer->gone = some_are_gone = true;
}

void peer_reply(struct peer *peer, enum message_kind kind, const void *payload,
                size_t len)
{
    peer_send(peer, kind, payload, len, -1);
}

void peer_fail(struct peer *peer, const struct cay_error *error)
{
    peer_reply(peer, MESSAGE_FAILED, error, sizeof *error);
}

/* After the events of a round, which may still point to peers. */
static void sweep(void)
{
    for (size_t i = peer_count; some_are_gone && i-- > 0;) {
        struct peer *peer = peers[i];
        if (!peer->gone)
            continue;
        process_detach(peer);
        peers[i] = peers[--peer_count];
        inside_count -= peer->is_inside;
        serve_close(peer->fd);
        free(peer->file_user);
        free(peer);
    }
    some_are_gone = false;
}

/* --- Requests --- */

/* The clock of the time to live, which stops while the sandbox is paused. */
static uint64_t life_ns(void)
{
    return paused_ns ? paused_ns : clock_ns();
}

static void set_ttl(uint64_t ttl_ms)
{
    uint64_t now = life_ns();

    end_ns = ttl_ms && ttl_ms < (UINT64_MAX - now) / 1000000 ? now + ttl_ms * 1000000 : 0;
}

static bool handle_ttl(struct peer *peer)
{
    uint64_t ttl_ms;

    if (packet.head.len != sizeof ttl_ms)
        return false;
    memcpy(&ttl_ms, packet.payload, sizeof ttl_ms);
    set_ttl(ttl_ms);
    peer_reply(peer, MESSAGE_DONE, NULL, 0);
    return true;
}

/* --- A spare of a pool --- */

enum { POOL_MS = 5, ORPHAN_MS = 1000 };

/* The creator has exited, and this sandbox ends with it. */
static void leave(struct source *source)
{
    (void)source;
    serve_end();
}

/* A spare ends with its pool, but waits for a CLAIM that is on its way: if the pool seems
 * to run when CLAIM has been sent, the library does not ask whether it arrived.  The
 * kernel closes the descriptors of a killed pool in any order, this one before others.
 * This event may come in the same round as CLAIM, and after it. */
static void lose_pool(struct source *source)
{
    (void)source;
    if (is_spare)
        orphan_ns = clock_ns() + ORPHAN_MS * 1000000ull;
    serve_forget(STATUS_FD);
}

static struct source leash = {leave}, pool_leash = {lose_pool};

static bool set_defaults(const struct plan_defaults *defaults, const char *env)
{
    if (!request_set_defaults(defaults, env))
        return false;
    if (defaults->kept_bytes)
        ring_set_budget(defaults->kept_bytes);
    set_ttl(defaults->ttl_ms);
    return true;
}

static bool fail_spare(struct peer *peer)
{
    struct cay_error error = {0};

    if (is_spare)
        cay_fail(&error, CAY_E_BUSY, 0, "sandbox.connect", NULL,
                 "the sandbox is a spare of a pool and not in use yet",
                 "create a sandbox: it uses a spare if one fits");
    else
        cay_fail(&error, CAY_E_BUSY, 0, "sandbox.claim", NULL,
                 "the spare of the pool is in use already", "create a sandbox");
    peer_fail(peer, &error);
    return true;
}

/* The end of this socket wakes the pool up.  Not while the first command is started,
 * which may share its only processor with the pool. */
static void keep_pool(void)
{
    serve_forget(STATUS_FD);
    pool_fd = STATUS_FD;
    pool_ns = clock_ns() + POOL_MS * 1000000ull;
}

static void leave_pool(void)
{
    if (pool_fd < 0 || clock_ns() < pool_ns)
        return;
    (void)close(pool_fd);
    pool_fd = -1;
}

/* The first claim wins.  There is no reply unless it fails: the next request follows
 * without a wait, and gets the error as its reply.  A spare whose claim fails halfway
 * ends: it would have parts of a request, or no leash. */
static bool claim(struct peer *peer)
{
    struct plan_defaults head;
    size_t len = packet.head.len;

    if (!is_spare)
        return fail_spare(peer);
    if (len < sizeof head || packet.head.fd_count > 1)
        return false;
    memcpy(&head, packet.payload, sizeof head);
    char *defaults = len - sizeof head == head.env_len ? malloc(len) : NULL;
    if (!defaults)
        return false;
    memcpy(defaults, packet.payload, len); /* stays: the environment points into it */
    if (!set_defaults((const struct plan_defaults *)defaults, defaults + sizeof head))
        serve_end();
    keep_pool();
    if (packet.head.fd_count && serve_watch(packet.fds[0], &leash) != 0)
        serve_end();
    packet.fds[0] = -1; /* the leash stays open */
    is_spare = false;
    orphan_ns = 0;
    prefork_set_limited(true);
    return true;
}

static bool reply_state(struct peer *peer)
{
    struct state state = {.ttl_left_ms = UINT64_MAX,
                          .is_paused = process_is_paused,
                          .peers = (uint32_t)(peer_count - inside_count)};
    struct statfs root;
    uint64_t now = life_ns();

    if (end_ns)
        state.ttl_left_ms = end_ns > now ? (end_ns - now + 999999) / 1000000 : 0;
    if (!no_namespaces && statfs("/", &root) == 0)
        state.disk_used =
            (uint64_t)(root.f_blocks - root.f_bfree) * (uint64_t)root.f_bsize;
    control_count(&state);
    peer_reply(peer, MESSAGE_STATE, &state, sizeof state);
    return true;
}

/* The library freezes the cgroup after this reply.  No child may be between clone and
 * execve then: it would count as stuck. */
static bool set_pause(struct peer *peer, bool paused)
{
    struct cay_error error = {0};

    if (paused && !process_all_executed()) {
        cay_fail(&error, CAY_E_BUSY, 0, "sandbox.pause", NULL,
                 "a command is being started", "try again");
        peer_fail(peer, &error);
        return true;
    }
    process_is_paused = paused;
    if (!paused && paused_ns && end_ns)
        end_ns += clock_ns() - paused_ns;
    paused_ns = paused ? life_ns() : 0;
    peer_reply(peer, MESSAGE_DONE, NULL, 0);
    return true;
}

/* What the library has frozen, unless it is a pause. */
static void thaw(void)
{
    AUTO_FD fd = has_cgroup && !process_is_paused
                     ? openat(CGROUP_FD, "cgroup.freeze", O_WRONLY | O_CLOEXEC)
                     : -1;

    if (fd >= 0)
        (void)!write(fd, "0", 1);
}

/* A library that dies ends the connection, and so the wait. */
static bool hold(struct peer *peer)
{
    struct pollfd wait = {.fd = peer->fd, .events = POLLIN};
    struct cay_error error = {0};

    if (process_all_executed()) {
        peer_reply(peer, MESSAGE_DONE, NULL, 0);
        (void)poll(&wait, 1, HOLD_MS);
        thaw();
        file_forget_root();
        return true;
    }
    cay_fail(&error, CAY_E_BUSY, 0, "sandbox.checkpoint", NULL,
             "a command is being started", "try again");
    peer_fail(peer, &error);
    return true;
}

/* A peer that may dial and nothing else. */
static void on_dial(struct source *source)
{
    struct peer *peer = (struct peer *)source;

    if (!peer->gone && !control_dial_own(peer->fd))
        peer->gone = some_are_gone = true;
}

/* cay-net, which asks for the owners of sockets and nothing else. */
static void on_owner(struct source *source)
{
    struct peer *peer = (struct peer *)source;

    if (!peer->gone && !owner_reply(peer->fd, proc_fd))
        peer->gone = some_are_gone = true;
}

static bool is_for_spare(uint32_t kind)
{
    return kind == MESSAGE_PING || kind == MESSAGE_STATUS || kind == MESSAGE_DIAL_ONLY ||
           kind == MESSAGE_OWNERS_ONLY;
}

/* False if the peer violated the protocol. */
static bool handle(struct peer *peer)
{
    if (peer->is_inside)
        return sudo_handle(peer, &packet);
    if (packet.head.kind == MESSAGE_CLAIM)
        return claim(peer);
    if (is_spare && !is_for_spare(packet.head.kind))
        return fail_spare(peer);
    if (packet.head.kind == MESSAGE_EXEC)
        return process_execute(peer, &packet);
    if (packet.head.kind == MESSAGE_FILES || packet.head.kind == MESSAGE_FILE)
        return file_handle(peer->fd, &packet, &peer->file_user);
    if (packet.head.fd_count != 0)
        return false;
    switch (packet.head.kind) {
    case MESSAGE_KILL:
        return control_kill(peer, &packet);
    case MESSAGE_PING:
        peer_reply(peer, MESSAGE_PONG, NULL, 0);
        return true;
    case MESSAGE_ATTACH:
        return control_attach(peer, &packet);
    case MESSAGE_READ:
        return output_read(peer);
    case MESSAGE_WRITE:
        return control_write(peer, &packet);
    case MESSAGE_CLOSE_INPUT:
        return control_close_input(peer);
    case MESSAGE_SKIP:
        return control_skip(peer);
    case MESSAGE_RESIZE:
        return control_resize(peer, &packet);
    case MESSAGE_SIGNAL:
        return control_signal(peer, &packet);
    case MESSAGE_FORGET:
        return control_forget(peer);
    case MESSAGE_LIST:
        return control_list(peer, &packet, proc_fd);
    case MESSAGE_STATUS:
        return reply_state(peer);
    case MESSAGE_TTL:
        return handle_ttl(peer);
    case MESSAGE_PAUSE:
        return set_pause(peer, true);
    case MESSAGE_RESUME:
        return set_pause(peer, false);
    case MESSAGE_HOLD:
        return hold(peer);
    case MESSAGE_DIAL:
        return control_dial(peer, &packet);
    case MESSAGE_DIAL_ONLY:
    case MESSAGE_OWNERS_ONLY:
        peer->source.ready = packet.head.kind == MESSAGE_DIAL_ONLY ? on_dial : on_owner;
        return true;
    case MESSAGE_CODE:
        return service_dial(peer, &packet);
    default:
        return false;
    }
}

static void on_message(struct source *source)
{
    struct peer *peer = (struct peer *)source;
    int got = peer->gone ? -EAGAIN : packet_receive(peer->fd, &packet);

    if (got == -EAGAIN)
        return;
    if (got != 1 || !handle(peer))
        peer->gone = some_are_gone = true;
    if (got == 1)
        packet_close_fds(&packet);
}

/* Only peers outside: their pid is 0 as seen from this PID namespace.  The mode of the
 * socket's directory decides who can reach the socket at all. */
static bool is_outside(int fd)
{
    struct ucred who;
    socklen_t len = sizeof who;

    /* Without namespaces there is no inside, and no command inherits such a socket. */
    if (no_namespaces)
        return true;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) == 0 && who.pid == 0;
}

static void refuse(int fd)
{
    struct cay_error error = {0};

    cay_fail(&error, CAY_E_BUSY, 0, "sandbox.connect", NULL,
             "too many connections to this sandbox are open",
             "the limit is %d; close some connections", PEERS_MAX);
    (void)packet_send(fd, MESSAGE_FAILED, &error, sizeof error, NULL, 0);
    (void)close(fd);
}

static bool add_peer(int fd, bool is_inside)
{
    bool is_full = is_inside ? inside_count == SUDO_PEERS_MAX
                             : peer_count - inside_count == PEERS_MAX;
    struct peer *peer = is_full ? NULL : calloc(1, sizeof *peer);

    if (!peer)
        return false;
    *peer = (struct peer){.source.ready = on_message, .fd = fd, .is_inside = is_inside};
    peers[peer_count++] = peer;
    inside_count += is_inside;
    if (serve_watch(fd, &peer->source) != 0)
        peer->gone = some_are_gone = true;
    return true;
}

static void accept_sudo(struct source *source)
{
    int fd = accept4(sudo_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    (void)source;
    if (fd >= 0 && (!sudo_may_connect(fd) || !add_peer(fd, true)))
        (void)close(fd);
}

static void accept_peer(struct source *source)
{
    int fd = accept4(LISTEN_FD, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    (void)source;
    if (fd < 0)
        return;
    if (!is_outside(fd)) {
        (void)close(fd);
        return;
    }
    if (!add_peer(fd, false))
        refuse(fd);
    else /* its first request is often there already: no need to wait for it */
        on_message(&peers[peer_count - 1]->source);
}

/* --- The loop --- */

/* Without a PID namespace the exit of PID 1 does not kill the commands. */
_Noreturn void serve_end(void)
{
    if (no_namespaces && has_cgroup) {
        AUTO_FD fd = openat(CGROUP_FD, "cgroup.kill", O_WRONLY | O_CLOEXEC);
        (void)!write(fd, "1", 1);
    } else if (no_namespaces) {
        subreaper_end_all();
    }
    _exit(0);
}

static void reap(struct source *source)
{
    struct signalfd_siginfo ignored;
    struct rusage used;
    int status;
    pid_t pid;

    (void)source;
    while (read(signal_fd, &ignored, sizeof ignored) > 0)
        if (ignored.ssi_signo == SIGTERM)
            serve_end();
    while ((pid = wait4(-1, &status, WNOHANG | WUNTRACED, &used)) > 0)
        if (WIFSTOPPED(status)) {
            process_stopped(pid);
        } else if (!prefork_reaped(pid)) {
            process_reaped(pid, status, &used);
            subreaper_reaped(pid);
        }
}

static int time_left_ms(void)
{
    uint64_t soonest = process_next_ns();

    if (end_ns && !paused_ns && end_ns < soonest)
        soonest = end_ns;
    if (pool_fd >= 0 && pool_ns < soonest)
        soonest = pool_ns;
    if (orphan_ns && orphan_ns < soonest)
        soonest = orphan_ns;
    if (soonest == UINT64_MAX)
        return -1;
    uint64_t now = clock_ns();
    uint64_t left = soonest > now ? (soonest - now + 999999) / 1000000 : 0;
    return left > INT_MAX ? INT_MAX : (int)left;
}

static void watch(int fd, struct source *source)
{
    int error = serve_watch(fd, source);

    if (error)
        report_failure(-error, "init.serve", "epoll");
}

static void prepare(const struct plan *plan)
{
    static struct source listening = {accept_peer}, dying = {reap},
                         inside = {accept_sudo};
    sigset_t all, child;

    no_namespaces = plan->no_namespaces;
    has_cgroup = plan->has_cgroup;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    if (plan->no_namespaces) /* the library ends such a sandbox by SIGTERM */
        sigaddset(&child, SIGTERM);
    signal_fd = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (signal_fd < 0 || epoll_fd < 0)
        report_failure(errno, "init.serve", "epoll");
    watch(LISTEN_FD, &listening);
    watch(signal_fd, &dying);
    sudo_fd = sudo_listen(plan);
    if (sudo_fd >= 0)
        watch(sudo_fd, &inside);
    proc_fd = openat(AT_FDCWD, "/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (plan->env > plan->bytes_len ||
        plan->defaults.env_len > plan->bytes_len - plan->env ||
        !set_defaults(&plan->defaults, plan_bytes(plan) + plan->env))
        report_failure(EINVAL, "init.plan", "defaults");
    process_prepare(plan);
    file_prepare(plan);
    filters_prepare(plan);
    is_spare = plan->spare;
    if (is_spare && has_cgroup) { /* without one, a command has a subreaper */
        prefork_set_limited(false);
        prefork_want(0);
    }
    report_ready();
    if (plan->ephemeral)
        watch(STATUS_FD, plan->spare ? &pool_leash : &leash);
    else
        (void)close(STATUS_FD);
}

/* The plan is a file of two or three pages.  Without an environment, all that is left of
 * it are the default user and directory, unless user.c needs the plan itself. */
static void release_plan(const struct plan *plan)
{
    static struct plan_defaults kept;

    if (plan->one_user || plan->unconfined || plan->defaults.env_len)
        return;
    kept = plan->defaults;
    (void)!request_set_defaults(&kept, "");
    (void)munmap((void *)(uintptr_t)plan, plan->size);
    (void)close(PLAN_FD);
}

_Noreturn void serve(const struct plan *plan)
{
    prepare(plan);
    release_plan(plan);
    for (;;) {
        struct epoll_event events[EVENTS];
        bool idle = prefork_is_due() && !process_is_paused;
        int count = epoll_wait(epoll_fd, events, EVENTS, idle ? 0 : time_left_ms());

        if (count == 0 && orphan_ns && clock_ns() >= orphan_ns)
            serve_end();
        if (idle && count == 0)
            process_prefork();
        for (int i = 0; i < count; i++) {
            struct source *source = events[i].data.ptr;
            source->ready(source);
        }
        if (end_ns && life_ns() >= end_ns)
            serve_end();
        leave_pool();
        process_update();
        sweep();
    }
}
