/* SPDX-License-Identifier: Apache-2.0 */

/* The front accepts connections itself and passes them to libmicrohttpd, since after
 * EMFILE libmicrohttpd polls its listening socket again only when it runs for another
 * reason, which without a connection never happens.
 *
 * The listener is polled unless connections_max is reached or accept4() failed for lack
 * of resources.  A closed connection resumes polling; after a shortage it resumes every
 * second. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"
#include "server/front/front.h"

enum {
    CONNECTIONS_MAX = 4096,
    CONNECTIONS_MIN = 4,
    RESERVED_FILES = 32,  /* event loop, log, and short-lived descriptors */
    CONNECTION_FILES = 3, /* socket, channel, and the file of an upload */
    ACCEPTS_AT_A_TIME = 16,
    STALLED_SWEEPS = 30 /* without an accepted connection although clients wait */
};

unsigned accept_limit(void)
{
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur == RLIM_INFINITY)
        return CONNECTIONS_MAX;
    if (files.rlim_cur < RESERVED_FILES + CONNECTION_FILES * CONNECTIONS_MIN)
        return CONNECTIONS_MIN;
    rlim_t room = (files.rlim_cur - RESERVED_FILES) / CONNECTION_FILES;
    return room < CONNECTIONS_MAX ? (unsigned)room : CONNECTIONS_MAX;
}

bool accept_is_full(const struct front *front)
{
    return front->connections >= front->connections_max;
}

bool accept_has_waiting(const struct front *front)
{
    struct pollfd listener = {.fd = front->options->listener, .events = POLLIN};

    return poll(&listener, 1, 0) == 1;
}

static void report_shortage(struct front *front, int error)
{
    if (!front->shortage)
        warn_line(&front->accept_warn,
                  "the front cannot accept connections (%s), %llu are open; new clients "
                  "wait (raise the limit of open files: ulimit -n, LimitNOFILE=)",
                  strerrorname_np(error), (unsigned long long)front->connections);
    front->shortage = error;
}

/* False if no connection waits, or none can be accepted now. */
static bool accept_one(struct front *front)
{
    struct sockaddr_storage address;
    socklen_t len = sizeof address;
    int fd = accept4(front->options->listener, (struct sockaddr *)&address, &len,
                     SOCK_NONBLOCK | SOCK_CLOEXEC);

    if (fd < 0 && cay_errno_is_shortage(errno))
        report_shortage(front, errno);
    if (fd < 0) /* otherwise the client disconnected before accept4() */
        return !cay_errno_is_shortage(errno) && errno != EAGAIN;
    if (front->shortage)
        warn_line(&front->accept_warn, "the front accepts connections again");
    front->shortage = 0;
    front->accepted++;
    /* It closes the socket on failure. */
    (void)MHD_add_connection(front->daemon, fd, (struct sockaddr *)&address, len);
    front->has_resumed = true; /* run the daemon before waiting */
    return true;
}

static void stop(struct front *front)
{
    (void)uv_poll_stop(&front->listener_poll);
    front->is_listening = false;
}

static void on_listener(uv_poll_t *poll, int status, int events)
{
    struct front *front = poll->data;
    int count = 0;

    (void)status;
    (void)events;
    while (count++ < ACCEPTS_AT_A_TIME && !accept_is_full(front) && accept_one(front))
        continue;
    if (accept_is_full(front) && !front->was_full)
        warn_line(&front->accept_warn,
                  "the front has %llu connections, the maximum; new clients wait",
                  (unsigned long long)front->connections);
    front->was_full = accept_is_full(front);
    if (front->shortage || front->was_full)
        stop(front);
}

void accept_resume(struct front *front)
{
    if (!front->is_listening && !accept_is_full(front))
        front->is_listening =
            uv_poll_start(&front->listener_poll, UV_READABLE, on_listener) == 0;
}

bool accept_open(struct front *front)
{
    front->listener_poll.data = front;
    if (uv_poll_init(&front->loop, &front->listener_poll, front->options->listener) != 0)
        return false;
    accept_resume(front);
    return front->is_listening;
}

/* The front is stalled if clients wait, there is room, no request is open, and none was
 * accepted within STALLED_SWEEPS.  Open requests free descriptors when they end; a new
 * front would abort them.  ENFILE and ENOMEM concern the whole machine: a new front would
 * not help. */
bool accept_sweep(struct front *front)
{
    bool is_ours = !front->shortage || front->shortage == EMFILE;

    accept_resume(front);
    if (front->accepted != front->accepted_before || accept_is_full(front) || !is_ours ||
        front->exchanges || !accept_has_waiting(front))
        front->stalled = 0;
    else
        front->stalled++;
    front->accepted_before = front->accepted;
    if (front->stalled < STALLED_SWEEPS)
        return true;
    warn_line(&front->accept_warn,
              "the front does not accept connections (%llu are open); it exits",
              (unsigned long long)front->connections);
    return false;
}
