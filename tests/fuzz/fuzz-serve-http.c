/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes may come to the server's port: there is an answer that is one, or none. */
#include "front.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct talk heard;

    talk(data, size, NULL, 0, &heard);
    const char *reply = heard.reply.data;
    CHECK(!heard.reply.len || strncmp(reply, "HTTP/1.1 ", 9) == 0);
    CHECK(!heard.reply.len || !memmem(reply, heard.reply.len, "HTTP/1.1 500", 12));
    /* Bytes reach a port of a sandbox only as a request that was written anew. */
    if (heard.upstream.len) {
        CHECK(heard.asked[OP_DIAL]);
        CHECK(memmem(heard.upstream.data, heard.upstream.len, " HTTP/1.1\r\n", 11));
        CHECK(memmem(heard.upstream.data, heard.upstream.len, "\r\nConnection: ", 14));
    }
    talk_done(&heard);
    return 0;
}
