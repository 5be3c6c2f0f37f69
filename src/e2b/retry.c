/* SPDX-License-Identifier: Apache-2.0 */

/* When a request is sent again.  A command that ran twice can do harm that nobody finds;
 * one that was not sent is told to the caller, who can decide.  So: if nothing of it
 * left this machine; if the server says that it did nothing (429, or Should-Retry); else
 * only what is `repeatable`. */
#include <sys/random.h>

#include "e2b/http.h"

enum { FIRST_MS = 200, LONGEST_MS = 8000 };

static bool was_not_sent(const struct e2b_request *request)
{
    long sent = 0;

    if (request->sent)
        return false;
    if (request->easy)
        libcurl.curl_easy_getinfo(request->easy, CURLINFO_REQUEST_SIZE, &sent);
    return sent == 0;
}

static bool is_passing(CURLcode result)
{
    return result == CURLE_COULDNT_CONNECT || result == CURLE_COULDNT_RESOLVE_HOST ||
           result == CURLE_GOT_NOTHING || result == CURLE_RECV_ERROR ||
           result == CURLE_SEND_ERROR || result == CURLE_PARTIAL_FILE;
}

static bool may_repeat(const struct e2b_request *request)
{
    if (request->read_body && request->sent)
        return false; /* what was read from it is gone */
    if (request->result)
        return is_passing(request->result) &&
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

static uint64_t pause_ms(const struct e2b_request *request, unsigned attempt)
{
    uint64_t most = FIRST_MS;
    uint32_t random = 0;

    if (request->retry_after_s >= 0)
        return (uint64_t)request->retry_after_s * 1000;
    for (; attempt > 0 && most < LONGEST_MS; attempt--)
        most *= 2;
    if (most > LONGEST_MS)
        most = LONGEST_MS;
    (void)!getrandom(&random, sizeof random, GRND_NONBLOCK);
    return most / 2 + random % (most / 2 + 1);
}

bool e2b_http_again(struct e2b_http *http, const struct e2b_request *request,
                    unsigned attempt, unsigned retries, uint64_t until_ms)
{
    if (attempt >= retries || !may_repeat(request))
        return false;
    uint64_t pause = pause_ms(request, attempt), end = clock_ms() + pause;
    if (end >= until_ms || pause >= E2B_REPLY_MS) /* content may take all time */
        return false;
    while (clock_ms() < end)
        e2b_http_step(http, end);
    return true;
}

int e2b_http_send(struct e2b_http *http, struct e2b_request *request, unsigned retries,
                  uint64_t until_ms, struct cay_error *err)
{
    struct cay_error error;
    unsigned attempt = 0;
    int code;

    do
        code = e2b_http_perform(http, request, until_ms, &error);
    while (code != CAY_E_NO_MEMORY &&
           e2b_http_again(http, request, attempt++, retries, until_ms));
    if (code && err)
        *err = error;
    return code;
}
