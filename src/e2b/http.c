/* SPDX-License-Identifier: Apache-2.0 */

/* libcurl reports the sockets that it waits for and the time of its next timeout.  They
 * are in one epoll, the timeout as a timerfd, so that callers poll one descriptor. */
#include "e2b/http.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "sys/sigpipe.h"

enum {
    HEADERS_MAX = 64 << 10,
    REFUSAL_MAX = 16 << 10, /* of a reply other than 2xx; the rest is not read */
    PATH_ROOM = 64 << 10,
    CONNECT_MS = 20000,
    STALL_MS = 60000, /* without a byte in either direction */
    HOST_CACHED_MS = 60000,
    RETRY_AFTER_MAX_S = 1000000,
    RETRY_FIRST_MS = 200,
    RETRY_LONGEST_MS = 8000,
    EVENTS_MAX = 16,
    CONNECTIONS_KEPT = 4
};

/* --- The event loop --- */

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
        if (after_ms == 0) /* 0 would disarm the timer */
            when.it_value.tv_nsec = 1;
    }
    return timerfd_settime(http->timer, 0, &when, NULL) == 0 ? 0 : -1;
}

int e2b_http_init(struct e2b_http *http, const char *op, struct cay_error *err)
{
    struct epoll_event event = {.events = EPOLLIN};

    *http = (struct e2b_http){.epoll = -1, .timer = -1};
    int code = curl_load(op, err);
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

    if (http->multi) { /* the TLS shutdown may write to a closed connection: SIGPIPE */
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

void e2b_http_step(struct e2b_http *http, uint64_t until_ms)
{
    struct epoll_event events[EVENTS_MAX];
    uint64_t now = until_ms ? clock_ms() : 0;
    uint64_t left = until_ms > now ? until_ms - now : 0;
    const CURLMsg *message;
    sigset_t before;
    uint64_t times;
    int running, queued;

    int count =
        epoll_wait(http->epoll, events, EVENTS_MAX, left > INT_MAX ? INT_MAX : (int)left);
    sigpipe_block(&before);
    for (int i = 0; i < count; i++) {
        int fd = events[i].data.fd, what = 0;
        if (fd == http->timer) {
            (void)!read(http->timer, &times, sizeof times);
            fd = CURL_SOCKET_TIMEOUT;
        } else {
            what |= events[i].events & EPOLLIN ? CURL_CSELECT_IN : 0;
            what |= events[i].events & EPOLLOUT ? CURL_CSELECT_OUT : 0;
            what |= events[i].events & (EPOLLERR | EPOLLHUP) ? CURL_CSELECT_ERR : 0;
        }
        libcurl.curl_multi_socket_action(http->multi, fd, what, &running);
    }
    while ((message = libcurl.curl_multi_info_read(http->multi, &queued))) {
        struct e2b_request *request = NULL;
        CURLcode result = message->data.result;
        if (message->msg != CURLMSG_DONE)
            continue;
        libcurl.curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE,
                                  (char **)&request);
        e2b_http_abort(request, result);
    }
    sigpipe_restore(&before);
}

/* --- Building a request --- */

void e2b_request_init(struct e2b_request *request, const char *op, const char *method,
                      const struct e2b_origin *origin)
{
    *request = (struct e2b_request){.op = op,
                                    .method = method,
                                    .origin = origin,
                                    .read_body_len = -1,
                                    .retry_after_s = -1,
                                    .should_retry = -1};
    buf_init(&request->path, PATH_ROOM);
}

void e2b_request_done(struct e2b_request *request)
{
    e2b_http_abort(request, CURLE_ABORTED_BY_CALLBACK);
    if (request->easy)
        libcurl.curl_easy_cleanup(request->easy);
    if (request->headers)
        libcurl.curl_slist_free_all(request->headers);
    if (request->resolve)
        libcurl.curl_slist_free_all(request->resolve);
    request->easy = NULL;
    request->headers = request->resolve = NULL;
    buf_done(&request->path);
    buf_done(&request->reply);
}

void e2b_request_header(struct e2b_request *request, const char *name, const char *value)
{
    size_t len = strlen(name) + strlen(value) + 3;
    AUTO_FREE char *line = malloc(len);
    struct curl_slist *list = NULL;

    if (line) {
        snprintf(line, len, "%s: %s", name, value);
        list = libcurl.curl_slist_append(request->headers, line);
    }
    if (list)
        request->headers = list;
    else
        request->is_out_of_memory = true;
}

void e2b_request_escape(struct e2b_request *request, const char *text)
{
    for (; *text; text++) {
        unsigned char byte = (unsigned char)*text;
        if (byte < 0x80 && (isalnum(byte) || strchr("-._~", byte)))
            buf_append(&request->path, text, 1);
        else
            buf_format(&request->path, "%%%02X", byte);
    }
}

/* --- Callbacks of libcurl --- */

static size_t send_body(char *data, size_t one, size_t room, void *cookie)
{
    struct e2b_request *request = cookie;
    size_t left = request->body_len - request->sent;

    room *= one;
    if (request->read_body) {
        ssize_t got = request->read_body(request->cookie, data, room);
        request->active_ms = clock_ms();
        if (got < 0)
            return CURL_READFUNC_ABORT;
        request->sent += (size_t)got;
        return (size_t)got;
    }
    if (left > room)
        left = room;
    if (left)
        memcpy(data, (const char *)request->body + request->sent, left);
    request->sent += left;
    request->active_ms = clock_ms();
    return left;
}

/* libcurl rewinds the body to send it again, on another connection. */
static int rewind_body(void *cookie, curl_off_t offset, int origin)
{
    struct e2b_request *request = cookie;

    if (offset != 0 || origin != SEEK_SET)
        return CURL_SEEKFUNC_FAIL;
    if (request->sent == 0)
        return CURL_SEEKFUNC_OK;
    if (!request->repeatable || request->read_body)
        return CURL_SEEKFUNC_FAIL;
    request->sent = 0;
    return CURL_SEEKFUNC_OK;
}

static size_t receive_body(char *data, size_t one, size_t len, void *cookie)
{
    struct e2b_request *request = cookie;

    len *= one;
    if (e2b_request_succeeded(request) && request->on_body) {
        enum e2b_verdict verdict = request->on_body(request->cookie, data, len);
        request->active_ms = clock_ms();
        request->is_paused = verdict == E2B_PAUSE;
        request->is_refused = verdict == E2B_ABORT;
        if (verdict == E2B_PAUSE)
            return CURL_WRITEFUNC_PAUSE;
        if (verdict == E2B_ABORT)
            return 0;
        request->received += len;
        return len;
    }
    request->active_ms = clock_ms();
    if (buf_append(&request->reply, data, len))
        return len;
    request->is_too_large = true;
    return 0;
}

static void begin_reply(struct e2b_request *request)
{
    long status = 0;

    libcurl.curl_easy_getinfo(request->easy, CURLINFO_RESPONSE_CODE, &status);
    request->status = (int)status;
    request->next_page[0] = '\0';
    request->has_head = request->has_length = false;
    buf_done(&request->reply);
    buf_init(&request->reply, !e2b_request_succeeded(request) ? REFUSAL_MAX
                              : request->reply_max            ? request->reply_max
                                                              : E2B_REPLY_MAX);
}

/* The value, or NULL if the line has another name. */
static const char *header_value(const char *line, const char *name)
{
    size_t len = strlen(name);

    if (strncasecmp(line, name, len) != 0 || line[len] != ':')
        return NULL;
    return line + len + 1 + strspn(line + len + 1, " \t");
}

static void read_header(struct e2b_request *request, const char *line)
{
    const char *value;
    char *end;

    if ((value = header_value(line, "Retry-After"))) {
        long seconds = strtol(value, &end, 10);
        if (isdigit((unsigned char)*value) && !*end && seconds >= 0)
            request->retry_after_s =
                seconds < RETRY_AFTER_MAX_S ? seconds : RETRY_AFTER_MAX_S;
    } else if ((value = header_value(line, "Should-Retry"))) {
        request->should_retry = strcasecmp(value, "true") == 0;
    } else if (header_value(line, "Content-Length") ||
               header_value(line, "Transfer-Encoding")) {
        request->has_length = true;
    } else if ((value = header_value(line, "X-Next-Token"))) {
        cay_copy_text(request->next_page, sizeof request->next_page, value);
    } else if ((value = header_value(line, "Date"))) {
        request->date_s = libcurl.curl_getdate(value, NULL);
    }
}

static size_t receive_header(char *data, size_t one, size_t len, void *cookie)
{
    struct e2b_request *request = cookie;
    char line[256];

    len *= one;
    request->active_ms = clock_ms();
    request->header_bytes += len;
    if (request->header_bytes > HEADERS_MAX) {
        request->is_too_large = true;
        return 0;
    }
    if (len >= 5 && strncasecmp(data, "HTTP/", 5) == 0)
        begin_reply(request);
    if (len >= sizeof line)
        return len;
    memcpy(line, data, len);
    line[len] = '\0';
    line[strcspn(line, "\r\n")] = '\0';
    if (!*line)
        request->has_head = true;
    read_header(request, line);
    return len;
}

static curl_socket_t open_socket(void *cookie, curlsocktype purpose,
                                 struct curl_sockaddr *address)
{
    (void)cookie;
    (void)purpose;
    return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

/* --- Sending a request --- */

#define SET(request, option, value)                                                      \
    libcurl.curl_easy_setopt((request)->easy, CURLOPT_##option, value)

static void set_options(struct e2b_request *request)
{
    const char *authorities = getenv("SSL_CERT_FILE");

    SET(request, NOSIGNAL, 1L);
    SET(request, PROTOCOLS_STR, "http,https");
    SET(request, FOLLOWLOCATION, 0L);
    SET(request, SSL_VERIFYPEER, 1L);
    SET(request, SSL_VERIFYHOST, 2L);
    SET(request, HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    SET(request, CONNECTTIMEOUT_MS, (long)CONNECT_MS);
    if (authorities && *authorities)
        SET(request, CAINFO, authorities);
    if (!request->origin->is_tls) /* a proxy would see the secrets */
        SET(request, PROXY, "");
    SET(request, OPENSOCKETFUNCTION, open_socket);
    SET(request, PRIVATE, request);
    SET(request, WRITEFUNCTION, receive_body);
    SET(request, WRITEDATA, request);
    SET(request, HEADERFUNCTION, receive_header);
    SET(request, HEADERDATA, request);
    SET(request, READFUNCTION, send_body);
    SET(request, READDATA, request);
    SET(request, SEEKFUNCTION, rewind_body);
    SET(request, SEEKDATA, request);
}

static void set_method(struct e2b_request *request, bool is_first)
{
    int64_t len =
        request->read_body ? request->read_body_len : (int64_t)request->body_len;

    if (strcmp(request->method, "POST") != 0) {
        if (strcmp(request->method, "GET") != 0)
            SET(request, CUSTOMREQUEST, request->method);
        return;
    }
    SET(request, POST, 1L);
    SET(request, POSTFIELDSIZE_LARGE, (curl_off_t)len);
    if (is_first && len < 0)
        e2b_request_header(request, "Transfer-Encoding", "chunked");
    if (is_first)
        e2b_request_header(request, "Expect", "");
}

/* With a proxy, the proxy looks up the host name. */
static bool has_proxy(const struct e2b_origin *origin)
{
    static const char *const names[] = {"https_proxy", "HTTPS_PROXY", "all_proxy",
                                        "ALL_PROXY"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = getenv(names[i]);
        if (origin->is_tls && value && *value)
            return true;
    }
    return false;
}

static CURLcode set_host(struct e2b_http *http, struct e2b_request *request)
{
    const struct e2b_origin *origin = request->origin;
    char name[sizeof origin->host + 16];
    uint64_t now = clock_ms();
    size_t slot = 0;

    if (origin->is_address || has_proxy(origin))
        return CURLE_OK;
    size_t len =
        (size_t)snprintf(name, sizeof name, "%s:%u:", origin->host, origin->port);
    while (slot < 2 && strncmp(http->hosts[slot].entry, name, len) != 0)
        slot++;
    if (slot == 2) {
        http->hosts[1] = http->hosts[0];
        slot = 0;
        http->hosts[0].until_ms = 0;
    }
    if (http->hosts[slot].until_ms <= now) {
        if (e2b_origin_resolve(origin, http->hosts[slot].entry,
                               sizeof http->hosts[slot].entry) != 0)
            return CURLE_COULDNT_RESOLVE_HOST;
        http->hosts[slot].until_ms = now + HOST_CACHED_MS;
    }
    if (!request->resolve)
        request->resolve = libcurl.curl_slist_append(NULL, http->hosts[slot].entry);
    if (!request->resolve)
        return CURLE_OUT_OF_MEMORY;
    SET(request, RESOLVE, request->resolve);
    return CURLE_OK;
}

static CURLcode prepare(struct e2b_http *http, struct e2b_request *request)
{
    bool is_first = !request->easy;
    AUTO_BUF url;

    buf_init(&url, PATH_ROOM + sizeof request->origin->url);
    buf_text(&url, request->origin->url);
    buf_append(&url, request->path.data, request->path.len);
    if (!is_first)
        libcurl.curl_easy_cleanup(request->easy);
    request->easy = libcurl.curl_easy_init();
    if (!request->easy)
        return CURLE_OUT_OF_MEMORY;
    CURLcode result = set_host(http, request);
    if (result)
        return result;
    set_options(request);
    set_method(request, is_first);
    if (url.failed || request->path.failed || request->is_out_of_memory)
        return CURLE_OUT_OF_MEMORY;
    SET(request, URL, url.data);
    SET(request, HTTPHEADER, request->headers);
    return CURLE_OK;
}

int e2b_http_begin(struct e2b_http *http, struct e2b_request *request,
                   struct cay_error *err)
{
    request->ended = request->is_paused = false;
    request->is_too_large = request->is_refused = false;
    request->sent = request->received = request->header_bytes = 0;
    request->status = 0;
    request->retry_after_s = request->should_retry = -1;
    request->active_ms = clock_ms();
    CURLcode result = prepare(http, request);
    if (!result && libcurl.curl_multi_add_handle(http->multi, request->easy) != CURLM_OK)
        result = CURLE_OUT_OF_MEMORY;
    if (!result) {
        request->multi = http->multi;
        return CAY_OK;
    }
    request->result = result;
    request->ended = true;
    return result == CURLE_OUT_OF_MEMORY ? cay_fail_memory(err, request->op) : CAY_OK;
}

void e2b_http_unpause(struct e2b_request *request)
{
    if (!request->is_paused || !request->multi)
        return;
    request->is_paused = false;
    request->active_ms = clock_ms();
    libcurl.curl_easy_pause(request->easy, CURLPAUSE_CONT);
}

void e2b_http_abort(struct e2b_request *request, CURLcode result)
{
    if (!request->multi)
        return;
    libcurl.curl_multi_remove_handle(request->multi, request->easy);
    request->multi = NULL;
    request->ended = true;
    /* The first REFUSAL_MAX bytes of a refusal are enough. */
    if (request->is_too_large && request->has_head && !e2b_request_succeeded(request))
        result = CURLE_OK;
    /* libcurl also ends a body without a length when the connection closes, which proves
     * nothing. */
    bool is_whole = request->has_head && (request->has_length || request->status == 204);
    request->result = result == CURLE_OK && !is_whole ? CURLE_RECV_ERROR : result;
}

/* --- Retries --- */

static bool was_not_sent(const struct e2b_request *request)
{
    long sent = 0;

    if (request->sent)
        return false;
    if (request->easy)
        libcurl.curl_easy_getinfo(request->easy, CURLINFO_REQUEST_SIZE, &sent);
    return sent == 0;
}

static bool is_transient(CURLcode result)
{
    return result == CURLE_COULDNT_CONNECT || result == CURLE_COULDNT_RESOLVE_HOST ||
           result == CURLE_GOT_NOTHING || result == CURLE_RECV_ERROR ||
           result == CURLE_SEND_ERROR || result == CURLE_PARTIAL_FILE;
}

/* A command that runs twice can do harm that goes unnoticed; a caller that gets an error
 * can decide.  So a request is repeated if no byte of it left this machine, if the server
 * reports that it did nothing (429, or Should-Retry), or if it is `repeatable`. */
static bool may_repeat(const struct e2b_request *request)
{
    if (request->read_body && request->sent)
        return false; /* read_body() cannot rewind */
    if (request->result)
        return is_transient(request->result) &&
               (was_not_sent(request) || (request->repeatable && !request->received));
    if (request->should_retry >= 0)
        return request->should_retry &&
               (request->status == 429 || request->status >= 500);
    if (request->status == 429)
        return true;
    if (request->status == 502 && request->is_envd)
        return false;
    return request->repeatable && request->status >= 502 && request->status <= 504;
}

static uint64_t retry_delay_ms(const struct e2b_request *request, unsigned attempt)
{
    uint64_t most = RETRY_FIRST_MS;
    uint32_t random = 0;

    if (request->retry_after_s >= 0)
        return (uint64_t)request->retry_after_s * 1000;
    for (; attempt > 0 && most < RETRY_LONGEST_MS; attempt--)
        most *= 2;
    if (most > RETRY_LONGEST_MS)
        most = RETRY_LONGEST_MS;
    (void)!getrandom(&random, sizeof random, GRND_NONBLOCK);
    return most / 2 + random % (most / 2 + 1);
}

bool e2b_http_again(struct e2b_http *http, const struct e2b_request *request,
                    unsigned attempt, unsigned retries, uint64_t until_ms)
{
    if (attempt >= retries || !may_repeat(request))
        return false;
    uint64_t delay = retry_delay_ms(request, attempt), end = clock_ms() + delay;
    if (end >= until_ms || delay >= E2B_REPLY_MS) /* until_ms of a transfer is endless */
        return false;
    while (clock_ms() < end)
        e2b_http_step(http, end);
    return true;
}

static int send_once(struct e2b_http *http, struct e2b_request *request,
                     uint64_t until_ms, struct cay_error *err)
{
    int code = e2b_http_begin(http, request, err);

    while (!code && !request->ended) {
        uint64_t end = request->active_ms + STALL_MS;
        if (end > until_ms)
            end = until_ms;
        if (clock_ms() >= end)
            e2b_http_abort(request, CURLE_OPERATION_TIMEDOUT);
        else
            e2b_http_step(http, end);
    }
    return code ? code : e2b_http_check(request, err);
}

int e2b_http_send(struct e2b_http *http, struct e2b_request *request, unsigned retries,
                  uint64_t until_ms, struct cay_error *err)
{
    struct cay_error error;
    unsigned attempt = 0;
    int code;

    do
        code = send_once(http, request, until_ms, &error);
    while (code != CAY_E_NO_MEMORY &&
           e2b_http_again(http, request, attempt++, retries, until_ms));
    if (code && err)
        *err = error;
    return code;
}

int e2b_http_check(const struct e2b_request *request, struct cay_error *err)
{
    const char *op = request->op, *host = request->origin->host;

    if (!request->ended || request->result == CURLE_OK)
        return CAY_OK;
    switch (request->is_refused ? CURLE_RECV_ERROR : (int)request->result) {
    case CURLE_OUT_OF_MEMORY:
        return cay_fail_memory(err, op);
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
        return cay_fail(err, CAY_E_UNAVAILABLE, 0, op, host, "unknown host name",
                        "check api_url, domain and sandbox_url, and the network");
    case CURLE_COULDNT_CONNECT:
        return cay_fail(err, CAY_E_UNAVAILABLE, 0, op, host,
                        "cannot connect to the server",
                        "check api_url, domain and sandbox_url, and the network");
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_SSL_ISSUER_ERROR:
        return cay_fail(
            err, CAY_E_UNAVAILABLE, 0, op, host,
            "the server's certificate is not trusted",
            "set SSL_CERT_FILE to a file with the authorities that you trust; "
            "force_http is for servers without TLS");
    case CURLE_OPERATION_TIMEDOUT:
        return cay_fail(err, CAY_E_TIMEOUT, 0, op, host,
                        "the server does not reply in time",
                        "try again later; the server may have completed the request");
    default:
        return cay_fail(err, CAY_E_PROTOCOL, 0, op, host,
                        request->is_too_large
                            ? "the server's reply exceeds the size limit"
                            : "the server's reply is incomplete, or not HTTP",
                        "check that %s is an E2B server; if it is, try again", host);
    }
}
