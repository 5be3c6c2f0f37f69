/* SPDX-License-Identifier: Apache-2.0 */
#include "e2b/http.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"

enum {
    PATH_ROOM = 64 << 10,
    CONNECT_MS = 20000,
    HOST_KNOWN_MS = 60000,
    WAIT_MAX_S = 1000000
};

/* --- What it is made of --- */

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

/* --- What libcurl calls --- */

static size_t give_some(char *data, size_t one, size_t room, void *cookie)
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

/* libcurl wants to send it once more, on another connection. */
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

static bool is_success(const struct e2b_request *request)
{
    return request->status >= 200 && request->status < 300;
}

static size_t take_some(char *data, size_t one, size_t len, void *cookie)
{
    struct e2b_request *request = cookie;

    len *= one;
    if (is_success(request) && request->on_body) {
        enum e2b_verdict took = request->on_body(request->cookie, data, len);
        request->active_ms = clock_ms();
        request->is_paused = took == E2B_PAUSE;
        request->is_refused = took == E2B_ABORT;
        if (took == E2B_PAUSE)
            return CURL_WRITEFUNC_PAUSE;
        request->received += took == E2B_ACCEPT ? len : 0;
        return took == E2B_ACCEPT ? len : 0;
    }
    request->active_ms = clock_ms();
    if (buf_append(&request->reply, data, len))
        return len;
    request->is_too_large = true;
    return 0;
}

/* The value, if the line has that name. */
static const char *header_value(const char *line, const char *name)
{
    size_t len = strlen(name);

    if (strncasecmp(line, name, len) != 0 || line[len] != ':')
        return NULL;
    return line + len + 1 + strspn(line + len + 1, " \t");
}

static void begin_reply(struct e2b_request *request)
{
    long status = 0;

    libcurl.curl_easy_getinfo(request->easy, CURLINFO_RESPONSE_CODE, &status);
    request->status = (int)status;
    request->next_page[0] = '\0';
    request->has_head = request->has_length = false;
    buf_done(&request->reply);
    buf_init(&request->reply, !is_success(request) ? E2B_REFUSAL_MAX
                              : request->reply_max ? request->reply_max
                                                   : E2B_REPLY_MAX);
}

static void note_header(struct e2b_request *request, const char *line)
{
    const char *value;
    char *end;

    if ((value = header_value(line, "Retry-After"))) {
        long seconds = strtol(value, &end, 10);
        if (isdigit((unsigned char)*value) && !*end && seconds >= 0)
            request->retry_after_s = seconds < WAIT_MAX_S ? seconds : WAIT_MAX_S;
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

static size_t take_header(char *data, size_t one, size_t len, void *cookie)
{
    struct e2b_request *request = cookie;
    char line[256];

    len *= one;
    request->active_ms = clock_ms();
    request->header_bytes += len;
    if (request->header_bytes > E2B_HEADERS_MAX) {
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
    note_header(request, line);
    return len;
}

static curl_socket_t open_socket(void *cookie, curlsocktype purpose,
                                 struct curl_sockaddr *address)
{
    (void)cookie;
    (void)purpose;
    return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

/* --- On its way --- */

#define SET(request, option, value)                                                      \
    libcurl.curl_easy_setopt((request)->easy, CURLOPT_##option, value)

static void set_safety(const struct e2b_request *request)
{
    const char *authorities = getenv("SSL_CERT_FILE");

    SET(request, NOSIGNAL, 1L);
    SET(request, PROTOCOLS_STR, "http,https");
    SET(request, FOLLOWLOCATION, 0L);
    SET(request, SSL_VERIFYPEER, 1L);
    SET(request, SSL_VERIFYHOST, 2L);
    SET(request, HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    SET(request, CONNECTTIMEOUT_MS, (long)CONNECT_MS);
    SET(request, OPENSOCKETFUNCTION, open_socket);
    if (authorities && *authorities)
        SET(request, CAINFO, authorities);
    if (!request->origin->is_tls) /* a proxy would see everything */
        SET(request, PROXY, "");
}

static void set_callbacks(struct e2b_request *request)
{
    SET(request, PRIVATE, request);
    SET(request, WRITEFUNCTION, take_some);
    SET(request, WRITEDATA, request);
    SET(request, HEADERFUNCTION, take_header);
    SET(request, HEADERDATA, request);
    SET(request, READFUNCTION, give_some);
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

/* Then it is the proxy that looks up names. */
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

/* Known for a while: a handle asks the same one or two hosts all the time. */
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
        http->hosts[slot].until_ms = now + HOST_KNOWN_MS;
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
    set_safety(request);
    set_callbacks(request);
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
    /* Of a refusal enough was read. */
    if (request->is_too_large && request->has_head && !is_success(request))
        result = CURLE_OK;
    /* For libcurl the end of the connection is an end like any other. */
    bool is_whole = request->has_head && (request->has_length || request->status == 204);
    request->result = result == CURLE_OK && !is_whole ? CURLE_RECV_ERROR : result;
}

int e2b_http_perform(struct e2b_http *http, struct e2b_request *request,
                     uint64_t until_ms, struct cay_error *err)
{
    int code = e2b_http_begin(http, request, err);

    while (!code && !request->ended) {
        uint64_t end = request->active_ms + E2B_STALL_MS;
        if (end > until_ms)
            end = until_ms;
        if (clock_ms() >= end)
            e2b_http_abort(request, CURLE_OPERATION_TIMEDOUT);
        else
            e2b_http_step(http, end);
    }
    return code ? code : e2b_http_check(request, err);
}

/* --- Why there is no answer --- */

static int fail_answer(const struct e2b_request *request, struct cay_error *err)
{
    return cay_fail(
        err, CAY_E_PROTOCOL, 0, request->op, request->origin->host,
        request->is_too_large ? "the server's answer is larger than any should be"
                              : "the server's answer broke off, or is not HTTP",
        "see whether %s is an E2B server; if it is, try again", request->origin->host);
}

static int fail_connect(const struct e2b_request *request, struct cay_error *err)
{
    bool no_name = request->result == CURLE_COULDNT_RESOLVE_HOST ||
                   request->result == CURLE_COULDNT_RESOLVE_PROXY;

    return cay_fail(err, CAY_E_UNAVAILABLE, 0, request->op, request->origin->host,
                    no_name ? "the server's name is not known"
                            : "nothing answers at the server's address",
                    "check api_url, domain and sandbox_url, and the network");
}

static int fail_certificate(const struct e2b_request *request, struct cay_error *err)
{
    return cay_fail(err, CAY_E_UNAVAILABLE, 0, request->op, request->origin->host,
                    "the server has no certificate that is trusted here",
                    "SSL_CERT_FILE names a file with the authorities that you trust; "
                    "force_http is for servers without TLS");
}

int e2b_http_check(const struct e2b_request *request, struct cay_error *err)
{
    if (!request->ended || request->result == CURLE_OK)
        return CAY_OK;
    if (request->is_refused)
        return fail_answer(request, err);
    switch ((int)request->result) {
    case CURLE_OUT_OF_MEMORY:
        return cay_fail_memory(err, request->op);
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_CONNECT:
        return fail_connect(request, err);
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_SSL_ISSUER_ERROR:
        return fail_certificate(request, err);
    case CURLE_OPERATION_TIMEDOUT:
        return cay_fail(err, CAY_E_TIMEOUT, 0, request->op, request->origin->host,
                        "the server does not answer in time",
                        "try again later; what was asked for may have been done");
    default:
        return fail_answer(request, err);
    }
}
