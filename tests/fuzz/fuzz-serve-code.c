/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes may come from the code service of a sandbox: the client of an execution gets
 * lines of JSON in ASCII, or one refusal; a list of contexts is JSON. */
#include "front.h"

static void send_to(const char *request, const uint8_t *data, size_t size, bool is_lines)
{
    struct talk heard;
    struct response response;

    talk(request, strlen(request), data, size, &heard);
    const char *end = response_parse(heard.response.data, heard.response.len, &response);
    CHECK(end && end == heard.response.data + heard.response.len);
    CHECK(response.is_whole || is_lines);
    const char *at = response.body.data;
    while (is_lines && response.status == 200 && response.is_whole &&
           at < response.body.data + response.body.len) {
        const char *newline = strchr(at, '\n');
        CHECK(newline);
        json_t *line = json_loadb(at, (size_t)(newline - at), JSON_ALLOW_NUL, NULL);
        CHECK(json_is_string(json_object_get(line, "type")));
        json_decref(line);
        for (; at < newline; at++)
            CHECK(*at >= ' ' && *at <= '~');
        at = newline + 1;
    }
    response_done(&response);
    talk_done(&heard);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
#define TO                                                                               \
    " HTTP/1.1\r\nHost: localhost\r\nE2b-Sandbox-Id: abc\r\n"                            \
    "E2b-Sandbox-Port: 49999\r\nConnection: close\r\n"
    static const char code[] = "POST /execute" TO "Content-Length: 12\r\n\r\n"
                               "{\"code\":\"1\"}";
    static const char named[] = "POST /execute" TO "Content-Length: 33\r\n\r\n"
                                "{\"code\":\"1\",\"context_id\":\"ctx-a\"}";
    static const char list[] = "GET /contexts" TO "\r\n";
    static const char create[] = "POST /contexts" TO "Content-Length: 2\r\n\r\n{}";

    send_to(code, data, size, true);
    send_to(named, data, size, true);
    send_to(list, data, size, false);
    send_to(create, data, size, false);
    return 0;
}
