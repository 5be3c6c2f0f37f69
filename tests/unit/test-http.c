/* SPDX-License-Identifier: Apache-2.0 */
#include "tls/http.h"

#include "harness.h"

static struct http_request request;
static const char *fault;

static enum http_result read_text(const char *text)
{
    return http_read_request(text, strlen(text), &request, &fault);
}

TEST(a_request_has_a_method_a_target_a_host_and_headers)
{
    static const char text[] = "POST /v1/x?y=1 HTTP/1.1\r\nHost: Api.Example:443\r\n"
                               "Content-Length: 12\r\nX-Empty:\r\n\r\nbody";

    ASSERT_INT(read_text(text), HTTP_DONE);
    ASSERT_INT(request.method.len, 4);
    ASSERT(memcmp(request.target.at, "/v1/x?y=1", request.target.len) == 0);
    ASSERT_INT(request.target.len, 9);
    ASSERT_STR(request.host, "api.example");
    ASSERT_INT(request.port, 443);
    ASSERT_INT(request.body, HTTP_BODY_LENGTH);
    ASSERT_INT(request.body_len, 12);
    ASSERT_INT(request.header_count, 3);
    ASSERT_INT(request.head_len, strlen(text) - 4);
}

TEST(a_request_waits_for_its_whole_head)
{
    static const char head[] = "GET / HTTP/1.1\r\nHost: a.example\r\nX: y\r\n\r\n";

    for (size_t len = 0; len < sizeof head - 1; len++)
        ASSERT_INT(http_read_request(head, len, &request, &fault), HTTP_MORE);
    ASSERT_INT(http_read_request(head, sizeof head - 1, &request, &fault), HTTP_DONE);
}

/* Each of these is one request for some servers and two for others, or none at all. */
TEST(a_request_that_servers_may_read_in_two_ways_is_refused)
{
    static const char *const texts[] = {
        "GET / HTTP/1.1\nHost: a.example\n\n",
        "GET / HTTP/1.1\r\nHost: a.example\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.example\r\nX: a\rb\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.example\r\n folded\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.example\r\nX : y\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.example\r\nHost: a.example\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.example, b.example\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.example:\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.example:8o\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: 10.0.0.1\r\n\r\n",
        "GET / HTTP/1.1\r\nX: y\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.example\r\nX\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.example\r\n: x\r\n\r\n",
        "GET / HTTP/1.0\r\nHost: a.example\r\n\r\n",
        "GET / HTTP/2.0\r\nHost: a.example\r\n\r\n",
        "GET /\r\nHost: a.example\r\n\r\n",
        "GET  / HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "GET / x HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "GET /#x HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "get / HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "TRACE / HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "CONNECT a.example:443 HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "\r\nGET / HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 1\r\n"
        "Transfer-Encoding: chunked\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n"
        "Content-Length: 1\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 1\r\n"
        "Content-Length: 1\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 1, 1\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: +1\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 0x1\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length:\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 9999999999999999999\r\n"
        "\r\n",
        "POST / HTTP/1.1\r\nHost: a.example\r\nContent_Length: 1\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: identity\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: xchunked\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n"
        "Transfer-Encoding: chunked\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a.example\r\ntransfer_encoding: chunked\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: \vchunked\r\n\r\n",
    };

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        ASSERT_INT(read_text(texts[i]), HTTP_BAD);
}

TEST(a_head_with_a_nul_or_more_than_16_kib_is_refused)
{
    static const char nul[] = "GET / HTTP/1.1\r\nHost: a.example\r\nX: a\0b\r\n\r\n";
    static char text[HTTP_HEAD_MAX];

    ASSERT_INT(http_read_request(nul, sizeof nul - 1, &request, &fault), HTTP_BAD);
    memset(text, 'x', sizeof text);
    memcpy(text, "GET /", 5);
    ASSERT_INT(http_read_request(text, sizeof text - 1, &request, &fault), HTTP_MORE);
    ASSERT_INT(http_read_request(text, sizeof text, &request, &fault), HTTP_BAD);
}

static void frame(enum http_body body, uint64_t len, struct http_framing *framing)
{
    request.body = body;
    request.body_len = len;
    http_framing_init(&request, framing);
}

TEST(a_body_ends_after_its_length)
{
    struct http_framing framing;

    frame(HTTP_BODY_NONE, 0, &framing);
    ASSERT(framing.is_done);
    frame(HTTP_BODY_LENGTH, 0, &framing);
    ASSERT(framing.is_done);
    frame(HTTP_BODY_LENGTH, 5, &framing);
    ASSERT_INT(http_framing_take(&framing, "abc", 3), 3);
    ASSERT(!framing.is_done);
    ASSERT_INT(http_framing_take(&framing, "deGET /", 7), 2);
    ASSERT(framing.is_done);
}

TEST(a_chunked_body_ends_after_its_last_chunk)
{
    static const char body[] = "3\r\nabc\r\nA\r\n0123456789\r\n000\r\n\r\nGET /";
    struct http_framing framing;

    frame(HTTP_BODY_CHUNKED, 0, &framing);
    ASSERT_INT(http_framing_take(&framing, body, sizeof body - 1), sizeof body - 6);
    ASSERT(framing.is_done);
    frame(HTTP_BODY_CHUNKED, 0, &framing);
    for (size_t i = 0; i < sizeof body - 6; i++) {
        ASSERT(!framing.is_done);
        ASSERT_INT(http_framing_take(&framing, body + i, 1), 1);
    }
    ASSERT(framing.is_done);
}

TEST(a_chunked_body_that_servers_may_read_in_two_ways_is_refused)
{
    static const char *const bodies[] = {
        "3\nabc\r\n",
        "3;x=y\r\nabc\r\n",
        "3 \r\nabc\r\n",
        "\r\n",
        "x\r\n",
        "-1\r\n",
        "3\r\nabcd\r\n",
        "3\r\nabc\n0\r\n",
        "0\r\nX: y\r\n\r\n",
        "0\r\n\n",
        "0x3\r\nabc\r\n",
        "1000000000000000\r\n",
        "3\r\nabc\r\r\n",
        " 3\r\nabc\r\n",
    };

    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        struct http_framing framing;
        frame(HTTP_BODY_CHUNKED, 0, &framing);
        ASSERT_INT(http_framing_take(&framing, bodies[i], strlen(bodies[i])), -1);
    }
}
