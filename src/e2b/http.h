/* SPDX-License-Identifier: Apache-2.0 */
#ifndef E2B_HTTP_H
#define E2B_HTTP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/clock.h"
#include "e2b/origin.h"
#include "sys/curl.h"

/* HTTP/1.1 by libcurl, any number of concurrent requests on one epoll.
 *
 * Every size and every wait has a limit.  Certificates are verified.  Redirects are not
 * followed, so that a secret never reaches another host.  A request that is not
 * `repeatable` is sent again only if the server cannot have acted on it: libcurl by
 * itself repeats a POST if a kept connection turns out to be closed. */

enum {
    E2B_REPLY_MAX = 1 << 20,
    E2B_REPLY_MS = 60000 /* for a small request, including retries */
};

struct e2b_http {
    CURLM *multi;
    int epoll, timer;
    /* The host names looked up last, for CURLOPT_RESOLVE: the service's and envd's. */
    struct {
        char entry[512];
        uint64_t until_ms;
    } hosts[2];
};

int e2b_http_init(struct e2b_http *http, const char *op, struct cay_error *err);
void e2b_http_done(struct e2b_http *http); /* may follow a failed init */

/* Waits for events until `until_ms` (0: does not wait) and handles them. */
void e2b_http_step(struct e2b_http *http, uint64_t until_ms);

enum e2b_verdict { E2B_ACCEPT, E2B_PAUSE, E2B_ABORT };

struct e2b_request {
    /* Set by the caller before e2b_http_begin() or e2b_http_send(). */
    const char *op;
    const char *method; /* "GET", "POST" or "DELETE" */
    const struct e2b_origin *origin;
    struct buf path; /* including the query */
    struct curl_slist *headers;
    bool is_out_of_memory; /* a header is missing */
    const void *body;
    size_t body_len;
    /* Replaces `body`: fills in some bytes; returns 0 at the end, -1 to abort. */
    ssize_t (*read_body)(void *cookie, char *data, size_t room);
    int64_t read_body_len; /* -1: unknown, send it chunked */
    /* Receives the body of a 2xx reply; NULL: it is collected in `reply`. */
    enum e2b_verdict (*on_body)(void *cookie, const char *data, size_t len);
    void *cookie;
    size_t reply_max; /* 0: E2B_REPLY_MAX */
    bool repeatable;  /* sending it twice does no harm */
    bool is_envd;     /* sent to the sandbox: 502 means that no sandbox is running */

    /* The result. */
    bool ended;
    CURLcode result;
    int status;
    struct buf reply;
    int64_t retry_after_s; /* -1: no such header */
    int should_retry;      /* the header Should-Retry: 1, 0, or -1 for none */
    int64_t date_s;        /* the server's clock; 0: unknown */
    char next_page[128];   /* the token for the next page of a list; "": none */
    bool is_too_large, is_refused;
    uint64_t active_ms; /* time of the last byte in either direction */

    /* Private. */
    CURL *easy;
    CURLM *multi; /* NULL before it begins and after it ended */
    struct curl_slist *resolve;
    size_t header_bytes, sent, received;
    bool is_paused;
    bool has_head, has_length; /* all headers arrived; they tell where the body ends */
};

void e2b_request_init(struct e2b_request *request, const char *op, const char *method,
                      const struct e2b_origin *origin);
void e2b_request_done(struct e2b_request *request); /* aborts it if it is under way */
#define E2B_REQUEST __attribute__((cleanup(e2b_request_done))) struct e2b_request

void e2b_request_header(struct e2b_request *request, const char *name, const char *value);

/* Appends `text` to the path or query, percent-encoded. */
void e2b_request_escape(struct e2b_request *request, const char *text);

static inline bool e2b_request_succeeded(const struct e2b_request *request)
{
    return request->status >= 200 && request->status < 300;
}

/* Begins to send it; the caller then runs e2b_http_step() until `ended`.  Fails only with
 * CAY_E_NO_MEMORY. */
int e2b_http_begin(struct e2b_http *http, struct e2b_request *request,
                   struct cay_error *err);
void e2b_http_unpause(struct e2b_request *request);
void e2b_http_abort(struct e2b_request *request, CURLcode result);

/* Sends it and waits for the reply.  Sends it again at growing intervals, up to `retries`
 * times, if that may help and does no harm.  Any status is a success. */
int e2b_http_send(struct e2b_http *http, struct e2b_request *request, unsigned retries,
                  uint64_t until_ms, struct cay_error *err);

/* After a request ended: waits and returns true if it should be sent again. */
bool e2b_http_again(struct e2b_http *http, const struct e2b_request *request,
                    unsigned attempt, unsigned retries, uint64_t until_ms);

/* Fails if the request ended without a reply. */
int e2b_http_check(const struct e2b_request *request, struct cay_error *err);

#endif
