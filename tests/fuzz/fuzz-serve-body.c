/* SPDX-License-Identifier: Apache-2.0 */
/* The first byte says what a request is, the others are its body: JSON, an envelope, a
 * form, a file, gzip.  However the body is cut into pieces, the answer is the same. */
#include <jansson.h>
#include <zlib.h>

#include "base/auto.h"
#include "front.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum kind { JSON, FORM, PLAIN, GZIP, GZIP_FORM };

#define UNARY  "Content-Type: application/json\r\n"
#define STREAM "Content-Type: application/connect+json\r\n"
#define OCTETS "Content-Type: application/octet-stream\r\n"
#define PARTS  "Content-Type: multipart/form-data; boundary=xyz\r\n"

static const struct {
    const char *path, *headers;
    enum kind kind;
} requests[] = {
    {"/v2/sandboxes", "", JSON},
    {"/sandboxes", "", JSON},
    {"/sandboxes/abc/timeout", "", JSON},
    {"/sandboxes/abc/connect", "", JSON},
    {"/filesystem.Filesystem/Stat", UNARY, JSON},
    {"/filesystem.Filesystem/ListDir", UNARY, JSON},
    {"/filesystem.Filesystem/Move", UNARY, JSON},
    {"/filesystem.Filesystem/CreateWatcher", UNARY, JSON},
    {"/filesystem.Filesystem/WatchDir", STREAM, JSON},
    {"/process.Process/Start", STREAM, JSON},
    {"/process.Process/Connect", STREAM, JSON},
    {"/process.Process/StreamInput", STREAM, JSON},
    {"/process.Process/SendInput", UNARY, JSON},
    {"/process.Process/SendSignal", UNARY, JSON},
    {"/process.Process/Update", UNARY, JSON},
    {"/process.Process/CloseStdin", UNARY, JSON},
    {"/files?path=x", OCTETS, PLAIN},
    {"/files", PARTS, FORM},
    {"/files?path=x", OCTETS "Content-Encoding: gzip\r\n", GZIP},
    {"/files", PARTS "Content-Encoding: gzip\r\n", GZIP_FORM},
};

enum { REQUESTS = sizeof requests / sizeof *requests, SIZE_MAX_BODY = 60 << 10 };

static void put_head(struct buf *text, size_t which)
{
    bool is_control = strstr(requests[which].path, "/sandboxes") != NULL;

    buf_format(text, "POST %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%s%s",
               requests[which].path, requests[which].headers,
               is_control ? "X-API-KEY: e2b_0\r\n"
                          : "E2b-Sandbox-Id: abc\r\nX-Access-Token: t\r\n");
}

static void put_whole(struct buf *text, size_t which, const uint8_t *data, size_t size)
{
    put_head(text, which);
    buf_format(text, "Content-Length: %zu\r\n\r\n", size);
    (void)buf_append(text, data, size);
}

/* Pieces of one byte, two, three... */
static void put_pieces(struct buf *text, size_t which, const uint8_t *data, size_t size)
{
    put_head(text, which);
    buf_text(text, "Transfer-Encoding: chunked\r\n\r\n");
    for (size_t at = 0, len = 1; at < size; at += len, len++) {
        len = len < size - at ? len : size - at;
        buf_format(text, "%zx\r\n", len);
        (void)buf_append(text, data + at, len);
        buf_text(text, "\r\n");
    }
    buf_text(text, "0\r\n\r\n");
}

/* --- What must come of it --- */

/* The content of exactly one gzip; 1, 0 if it is cut short, -1 if it is something else.
 */
static int unpack(const uint8_t *data, size_t size, struct buf *content)
{
    z_stream stream = {.next_in = (unsigned char *)(uintptr_t)data,
                       .avail_in = (unsigned)size};
    unsigned char piece[4096];
    int result = Z_OK;

    CHECK(inflateInit2(&stream, 15 + 16) == Z_OK);
    while (result == Z_OK) {
        stream.next_out = piece;
        stream.avail_out = sizeof piece;
        result = inflate(&stream, Z_NO_FLUSH);
        if (!buf_append(content, piece, sizeof piece - stream.avail_out))
            break;
    }
    size_t left = stream.avail_in;
    (void)inflateEnd(&stream);
    return content->failed || left  ? -1
           : result == Z_STREAM_END ? 1
           : result == Z_BUF_ERROR  ? 0
                                    : -1;
}

static void check_file(const struct talk *heard, unsigned status, const void *content,
                       size_t len)
{
    CHECK(status == 200 && heard->files == 1);
    CHECK(heard->file.len == len);
    CHECK(len == 0 || memcmp(heard->file.data, content, len) == 0);
}

static void check_gzip(const struct talk *heard, unsigned status, const uint8_t *data,
                       size_t size)
{
    AUTO_BUF content = {0};

    buf_init(&content, 1 << 20);
    int is_gzip = unpack(data, size, &content);
    if (is_gzip == 1)
        check_file(heard, status, content.data, content.len);
    else if (is_gzip == 0)
        CHECK(status == 400);
}

static void check_json(const struct response *response)
{
    json_t *root = json_loadb(response->body.data, response->body.len, 0, NULL);

    CHECK(root && json_is_object(root));
    if (response->status >= 400)
        CHECK(json_object_get(root, "code") &&
              json_is_string(json_object_get(root, "message")));
    json_decref(root);
}

static unsigned request(const struct buf *text, size_t which, const uint8_t *data,
                        size_t size, struct talk *heard)
{
    enum kind kind = requests[which].kind;
    struct response response;

    talk(text->data, text->len, NULL, 0, heard);
    const char *end =
        response_parse(heard->response.data, heard->response.len, &response);
    CHECK(end && end == heard->response.data + heard->response.len);
    CHECK(response.is_whole && response.status != 500);
    if (kind == PLAIN)
        check_file(heard, response.status, data, size);
    else if (kind == GZIP)
        check_gzip(heard, response.status, data, size);
    else if (kind == JSON && response.body.len &&
             response_has(&response, "Content-Type: application/json"))
        check_json(&response);
    unsigned status = response.status;
    response_done(&response);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO_BUF whole = {0}, pieces = {0};
    struct talk first, second;

    if (size == 0 || size > SIZE_MAX_BODY)
        return 0;
    size_t which = data[0] % REQUESTS;
    buf_init(&whole, 1 << 20);
    buf_init(&pieces, 1 << 20);
    put_whole(&whole, which, data + 1, size - 1);
    put_pieces(&pieces, which, data + 1, size - 1);
    CHECK(!whole.failed && !pieces.failed);
    unsigned one = request(&whole, which, data + 1, size - 1, &first);
    unsigned other = request(&pieces, which, data + 1, size - 1, &second);
    CHECK(one == other);
    if (one < 400) { /* else what came before the fault may have been taken, or not */
        CHECK(first.files == second.files && first.file.len == second.file.len);
        CHECK(requests[which].kind != JSON ||
              memcmp(first.request, second.request, sizeof first.request) == 0);
    }
    talk_done(&first);
    talk_done(&second);
    return 0;
}
