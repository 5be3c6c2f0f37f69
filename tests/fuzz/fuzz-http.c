/* SPDX-License-Identifier: Apache-2.0 */
/* The input is what a program in a sandbox sends: the head of a request, and a chunked
 * body.  A head that is complete stays what it is with more bytes after it, and a body is
 * the same in one piece and byte by byte. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tls/http.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(condition)                                                                 \
    do {                                                                                 \
        if (!(condition)) {                                                              \
            fprintf(stderr, "line %d: not true: %s\n", __LINE__, #condition);            \
            abort();                                                                     \
        }                                                                                \
    } while (0)

static void check_head(const char *text, size_t size)
{
    static struct http_request whole, part;
    const char *fault = NULL;

    if (http_read_request(text, size, &whole, &fault) == HTTP_BAD)
        CHECK(fault);
    if (http_read_request(text, size / 2, &part, &fault) != HTTP_DONE)
        return;
    CHECK(part.head_len <= size / 2 && part.host[0] && part.target.at[0] == '/');
    CHECK(http_read_request(text, size, &whole, &fault) == HTTP_DONE);
    CHECK(whole.head_len == part.head_len && whole.body == part.body &&
          whole.header_count == part.header_count);
}

static void check_body(const char *text, size_t size)
{
    const struct http_request request = {.body = HTTP_BODY_CHUNKED};
    struct http_framing whole, bytes;
    ssize_t len = 0;

    http_framing_init(&request, &whole);
    http_framing_init(&request, &bytes);
    ssize_t all = http_framing_take(&whole, text, size);
    for (size_t i = 0; i < size && !bytes.is_done && len >= 0; i++)
        len = http_framing_take(&bytes, text + i, 1) == 1 ? len + 1 : -1;
    CHECK(all == len && (all < 0 || whole.is_done == bytes.is_done));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check_head((const char *)data, size);
    check_body((const char *)data, size);
    return 0;
}
