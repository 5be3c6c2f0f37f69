/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes may come from a port inside a sandbox: the client hears one reply of them, or
 * that there was none, and what it says it has is what comes, unless it is cut. */
#include "front.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char request[] =
        "GET /x HTTP/1.1\r\nHost: localhost\r\nE2b-Sandbox-Id: abc"
        "\r\nE2b-Sandbox-Port: 80\r\nConnection: close\r\n\r\n";
    struct talk heard;
    struct reply reply;

    talk(request, sizeof request - 1, data, size, &heard);
    const char *end = reply_parse(heard.reply.data, heard.reply.len, &reply);
    CHECK(end && end == heard.reply.data + heard.reply.len);
    CHECK(heard.asked[OP_DIAL] == 1);
    CHECK(strncmp(heard.upstream.data, "GET /x HTTP/1.1\r\n", 17) == 0);
    reply_done(&reply);
    talk_done(&heard);
    return 0;
}
