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
    struct response response;

    talk(request, sizeof request - 1, data, size, &heard);
    const char *end = response_parse(heard.response.data, heard.response.len, &response);
    CHECK(end && end == heard.response.data + heard.response.len);
    CHECK(heard.request[OP_DIAL] == 1);
    CHECK(strncmp(heard.upstream.data, "GET /x HTTP/1.1\r\n", 17) == 0);
    response_done(&response);
    talk_done(&heard);
    return 0;
}
