/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes may come to the server's port: there is an answer that is one, or none. */
#include "front.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool has(const struct buf *bytes, const char *text)
{
    return bytes->data && memmem(bytes->data, bytes->len, text, strlen(text));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct talk heard;

    talk(data, size, NULL, 0, &heard);
    const char *response = heard.response.data;
    CHECK(!heard.response.len || strncmp(response, "HTTP/1.1 ", 9) == 0);
    CHECK(!heard.response.len || strncmp(response + 9, "500", 3) != 0);
    /* Bytes reach a port of a sandbox only as a request that was written anew. */
    if (heard.upstream.len) {
        CHECK(heard.request[OP_DIAL]);
        CHECK(has(&heard.upstream, " HTTP/1.1\r\n"));
        CHECK(has(&heard.upstream, "\r\nConnection: "));
    }
    talk_done(&heard);
    return 0;
}
