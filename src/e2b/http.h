/* SPDX-License-Identifier: Apache-2.0 */
#ifndef E2B_HTTP_H
#define E2B_HTTP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/clock.h"
#include "e2b/libcurl.h"
#include "e2b/origin.h"

/* HTTP/1.1 by libcurl, any number of requests at a time on one epoll.
 *
 * Every size and every wait has a limit; certificates are checked; redirects are not
 * followed, so that a secret never reaches a host other than the one it is for.  What is
 * not `repeatable` is sent at most once, unless it is certain that nobody saw it: libcurl
 * by itself would send a POST again when a connection that it had kept turns out dead. */

enum {
    E2B_HEADERS_MAX = 64 << 10,
    E2B_REPLY_MAX = 1 << 20,
    E2B_REFUSAL_MAX = 16 << 10, /* of a reply that is no success: the rest is not read */
    E2B_STALL_MS = 60000,       /* nothing moves */
    E2B_REPLY_MS = 60000        /* a small question and its answer, with repetitions */
};

/* --- The loop --- */

struct e2b_http {
    CURLM *multi;
    int epoll, timer;
    /* The last name that was looked up; there are two at most, of which one is used. */
    struct {
        char entry[512];
        uint64_t until_ms;
    } hosts[2];
};

int e2b_http_init(struct e2b_http *http, const char *op, struct cay_error *err);
void e2b_http_done(struct e2b_http *http); /* one that was never made is fine */

/* Does what is due, and waits for that until `until_ms` at most; 0: not at all. */
void e2b_http_step(struct e2b_http *http, uint64_t until_ms);

/* --- A request --- */

enum e2b_verdict { E2B_ACCEPT, E2B_PAUSE, E2B_ABORT };

struct e2b_request {
    /* What is asked: set these, then e2b_http_begin() or one of those below it. */
    const char *op;
    const char *method; /* "GET", "POST" or "DELETE" */
    const struct e2b_origin *origin;
    struct buf path; /* with the query */
    struct curl_slist *headers;
    bool is_out_of_memory; /* for a header */
    const void *body;
    size_t body_len;
    /* Instead of a body: fills in some bytes; 0 at the end, -1 to give up. */
    ssize_t (*read_body)(void *cookie, char *data, size_t room);
    int64_t read_body_len; /* -1: it ends when it ends */
    /* What comes with a success; NULL: it is kept in `reply`. */
    enum e2b_verdict (*on_body)(void *cookie, const char *data, size_t len);
    void *cookie;
    size_t reply_max; /* 0: E2B_REPLY_MAX */
    bool repeatable;  /* asking twice is as good as asking once */
    bool is_envd;     /* asked of the sandbox itself: 502 says that there is none */

    /* What came of it. */
    bool ended;
    CURLcode result;
    int status;
    struct buf reply;
    int64_t retry_after_s; /* -1: not said */
    int should_retry;      /* what the server says: 1, 0, or -1 */
    int64_t date_s;        /* the server's clock; 0: not said */
    char next_page[128];   /* of a list: what to ask for the rest with; "": none */
    bool is_too_large, is_refused;
    uint64_t active_ms; /* when anything last did */

    /* Its own. */
    CURL *easy;
    CURLM *multi; /* while it is there */
    struct curl_slist *resolve;
    size_t header_bytes, sent, received;
    bool is_paused;
    bool has_head,
        has_length; /* the headers are all there, and say where the rest ends */
};

/* Everything that is not set is zero. */
void e2b_request_init(struct e2b_request *request, const char *op, const char *method,
                      const struct e2b_origin *origin);
void e2b_request_done(struct e2b_request *request); /* ends it if need be */
#define E2B_REQUEST __attribute__((cleanup(e2b_request_done))) struct e2b_request

void e2b_request_header(struct e2b_request *request, const char *name, const char *value);

/* Appends the bytes to a path or query so that they mean themselves. */
void e2b_request_escape(struct e2b_request *request, const char *text);

/* Sends it on its way; e2b_http_step() until `ended`.  Fails only for lack of memory. */
int e2b_http_begin(struct e2b_http *http, struct e2b_request *request,
                   struct cay_error *err);
void e2b_http_unpause(struct e2b_request *request);
void e2b_http_abort(struct e2b_request *request, CURLcode result);

/* Until it has ended, by itself or because it is `until_ms`. */
int e2b_http_perform(struct e2b_http *http, struct e2b_request *request,
                     uint64_t until_ms, struct cay_error *err);

/* The same, and again at growing intervals, up to `retries` times, if that may help and
 * can do no harm.  Any answer is a success; cay_error has why there is none. */
int e2b_http_send(struct e2b_http *http, struct e2b_request *request, unsigned retries,
                  uint64_t until_ms, struct cay_error *err);

/* After one that has ended: rests and is true if it should be sent once more. */
bool e2b_http_again(struct e2b_http *http, const struct e2b_request *request,
                    unsigned attempt, unsigned retries, uint64_t until_ms);

/* Whether an answer came; if not, that is told. */
int e2b_http_check(const struct e2b_request *request, struct cay_error *err);

#endif
