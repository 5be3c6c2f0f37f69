/* SPDX-License-Identifier: Apache-2.0 */

/* libcurl says which sockets it waits for and when it wants to be called again; an epoll
 * with a timer among its descriptors turns that into a single one that anybody can poll.
 */
#include <errno.h>
#include <limits.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "e2b/http.h"
#include "sys/sigpipe.h"

enum { EVENTS_MAX = 16, CONNECTIONS_KEPT = 4 };

static int watch_socket(CURL *easy, curl_socket_t socket, int what, void *cookie,
                        void *unused)
{
    const struct e2b_http *http = cookie;
    struct epoll_event event = {.data.fd = socket};

    (void)easy;
    (void)unused;
    if (what == CURL_POLL_REMOVE) {
        (void)epoll_ctl(http->epoll, EPOLL_CTL_DEL, socket, NULL);
        return 0;
    }
    if (what & CURL_POLL_IN)
        event.events |= EPOLLIN;
    if (what & CURL_POLL_OUT)
        event.events |= EPOLLOUT;
    if (epoll_ctl(http->epoll, EPOLL_CTL_MOD, socket, &event) == 0)
        return 0;
    return epoll_ctl(http->epoll, EPOLL_CTL_ADD, socket, &event) == 0 ? 0 : -1;
}

static int set_timer(CURLM *multi, long after_ms, void *cookie)
{
    const struct e2b_http *http = cookie;
    struct itimerspec when = {0};

    (void)multi;
    if (after_ms >= 0) {
        when.it_value.tv_sec = after_ms / 1000;
        when.it_value.tv_nsec = after_ms % 1000 * 1000000;
        if (after_ms == 0)
            when.it_value.tv_nsec = 1;
    }
    return timerfd_settime(http->timer, 0, &when, NULL) == 0 ? 0 : -1;
}

int e2b_http_init(struct e2b_http *http, const char *op, struct cay_error *err)
{
    struct epoll_event event = {.events = EPOLLIN};

    *http = (struct e2b_http){.epoll = -1, .timer = -1};
    int code = libcurl_load(op, err);
    if (code)
        return code;
    http->epoll = epoll_create1(EPOLL_CLOEXEC);
    http->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    event.data.fd = http->timer;
    if (http->epoll < 0 || http->timer < 0 ||
        epoll_ctl(http->epoll, EPOLL_CTL_ADD, http->timer, &event) != 0) {
        code = cay_fail_errno(err, errno, op, "epoll");
        e2b_http_done(http);
        return code;
    }
    http->multi = libcurl.curl_multi_init();
    if (!http->multi) {
        e2b_http_done(http);
        return cay_fail_memory(err, op);
    }
    libcurl.curl_multi_setopt(http->multi, CURLMOPT_SOCKETFUNCTION, watch_socket);
    libcurl.curl_multi_setopt(http->multi, CURLMOPT_SOCKETDATA, http);
    libcurl.curl_multi_setopt(http->multi, CURLMOPT_TIMERFUNCTION, set_timer);
    libcurl.curl_multi_setopt(http->multi, CURLMOPT_TIMERDATA, http);
    libcurl.curl_multi_setopt(http->multi, CURLMOPT_MAXCONNECTS, (long)CONNECTIONS_KEPT);
    libcurl.curl_multi_setopt(http->multi, CURLMOPT_PIPELINING, (long)CURLPIPE_NOTHING);
    return CAY_OK;
}

void e2b_http_done(struct e2b_http *http)
{
    sigset_t before;

    if (http->multi) { /* TLS says goodbye, perhaps to nobody */
        sigpipe_block(&before);
        libcurl.curl_multi_cleanup(http->multi);
        sigpipe_restore(&before);
    }
    if (http->epoll >= 0)
        (void)close(http->epoll);
    if (http->timer >= 0)
        (void)close(http->timer);
    *http = (struct e2b_http){.epoll = -1, .timer = -1};
}

static void serve(const struct e2b_http *http, const struct epoll_event *event)
{
    uint64_t times;
    int running, what = 0;

    if (event->data.fd == http->timer) {
        (void)!read(http->timer, &times, sizeof times);
        libcurl.curl_multi_socket_action(http->multi, CURL_SOCKET_TIMEOUT, 0, &running);
        return;
    }
    if (event->events & EPOLLIN)
        what |= CURL_CSELECT_IN;
    if (event->events & EPOLLOUT)
        what |= CURL_CSELECT_OUT;
    if (event->events & (EPOLLERR | EPOLLHUP))
        what |= CURL_CSELECT_ERR;
    libcurl.curl_multi_socket_action(http->multi, event->data.fd, what, &running);
}

static void note_ends(const struct e2b_http *http)
{
    const CURLMsg *message;
    int left;

    while ((message = libcurl.curl_multi_info_read(http->multi, &left))) {
        struct e2b_request *request = NULL;
        CURLcode result = message->data.result;
        if (message->msg != CURLMSG_DONE)
            continue;
        libcurl.curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE,
                                  (char **)&request);
        e2b_http_abort(request, result);
    }
}

void e2b_http_step(struct e2b_http *http, uint64_t until_ms)
{
    struct epoll_event events[EVENTS_MAX];
    uint64_t now = until_ms ? clock_ms() : 0;
    uint64_t left = until_ms > now ? until_ms - now : 0;
    sigset_t before;

    int count =
        epoll_wait(http->epoll, events, EVENTS_MAX, left > INT_MAX ? INT_MAX : (int)left);
    sigpipe_block(&before);
    for (int i = 0; i < count; i++)
        serve(http, &events[i]);
    note_ends(http);
    sigpipe_restore(&before);
}
