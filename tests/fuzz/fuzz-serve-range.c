/* SPDX-License-Identifier: Apache-2.0 */
/* Lines that stand in the headers of a download: Range, If-Range, If-Modified-Since,
 * Accept-Encoding, and other conditions.  What comes is the bytes that the answer says it
 * has. */
#include <zlib.h>

#include "base/auto.h"
#include "front.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_bytes(const struct buf *body, size_t from, size_t len)
{
    CHECK(body->len == len && from + len <= TALK_FILE);
    for (size_t i = 0; i < len; i++)
        CHECK((unsigned char)body->data[i] == talk_byte(from + i));
}

static void check_part(const struct response *response)
{
    static const char name[] = "\r\nContent-Range: bytes ";
    const char *text = strstr(response->head, name);
    char *end;

    CHECK(text);
    size_t from = strtoul(text + sizeof name - 1, &end, 10);
    CHECK(*end == '-');
    size_t to = strtoul(end + 1, &end, 10);
    CHECK(*end == '/' && strtoul(end + 1, NULL, 10) == TALK_FILE);
    CHECK(from <= to && to < TALK_FILE);
    check_bytes(&response->body, from, to - from + 1);
}

static void check_packed(const struct buf *packed)
{
    AUTO_BUF plain = {0};
    z_stream stream = {.next_in = (unsigned char *)(uintptr_t)packed->data,
                       .avail_in = (unsigned)packed->len};

    buf_init(&plain, TALK_FILE + 1);
    CHECK(buf_reserve(&plain, TALK_FILE));
    stream.next_out = (unsigned char *)plain.data;
    stream.avail_out = TALK_FILE;
    CHECK(inflateInit2(&stream, 15 + 16) == Z_OK);
    CHECK(inflate(&stream, Z_FINISH) == Z_STREAM_END && !stream.avail_in);
    plain.len = TALK_FILE - stream.avail_out;
    (void)inflateEnd(&stream);
    check_bytes(&plain, 0, TALK_FILE);
}

static void check(const struct response *response)
{
    CHECK(response->is_whole);
    switch (response->status) {
    case 200:
        if (response_has(response, "Content-Encoding: gzip"))
            check_packed(&response->body);
        else
            check_bytes(&response->body, 0, TALK_FILE);
        break;
    case 206:
        check_part(response);
        break;
    case 304:
        CHECK(response->body.len == 0);
        break;
    case 416:
        CHECK(response_has(response, "Content-Range: bytes */1000"));
        break;
    case 406:
    case 412:
        break;
    default:
        CHECK(response->status == 400); /* bytes that no header may have */
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = {
        "Range",    "If-Range",      "If-Modified-Since",  "Accept-Encoding",
        "If-Match", "If-None-Match", "If-Unmodified-Since"};
    AUTO_BUF request = {0};
    char text[1024];
    struct talk heard;
    struct response response;
    size_t len = size < sizeof text ? size : sizeof text - 1;

    memcpy(text, data, len);
    text[len] = '\0';
    buf_init(&request, 8 << 10);
    buf_text(&request, "GET /files?path=x HTTP/1.1\r\nHost: localhost\r\nConnection: "
                       "close\r\nE2b-Sandbox-Id: abc\r\nX-Access-Token: t\r\n");
    char *at = text;
    for (size_t i = 0; i < sizeof names / sizeof *names && at; i++) {
        char *line = strsep(&at, "\n");
        for (char *byte = line; *byte; byte++)
            if ((unsigned char)*byte < ' ' || *byte == 0x7f)
                *byte = ' ';
        line += strspn(line, " ");
        if (*line)
            buf_format(&request, "%s: %s\r\n", names[i], line);
    }
    buf_text(&request, "\r\n");
    talk(request.data, request.len, NULL, 0, &heard);
    const char *end = response_parse(heard.response.data, heard.response.len, &response);
    CHECK(end && end == heard.response.data + heard.response.len);
    check(&response);
    response_done(&response);
    talk_done(&heard);
    return 0;
}
