/* SPDX-License-Identifier: Apache-2.0 */
#include "tls/http.h"

#include <string.h>
#include <strings.h>

static const char version[] = " HTTP/1.1";

static bool is_letter(char byte)
{
    return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z');
}

static bool is_digit(char byte)
{
    return byte >= '0' && byte <= '9';
}

static bool is_token(char byte)
{
    return byte && (is_letter(byte) || is_digit(byte) || strchr("!#$%&'*+-.^_`|~", byte));
}

bool http_is_name(const struct http_text *name, const char *lower)
{
    return name->len == strlen(lower) && strncasecmp(name->at, lower, name->len) == 0;
}

static char plain(char byte)
{
    return is_letter(byte) ? (char)(byte | 0x20) : byte == '_' ? '-' : byte;
}

bool http_is_like(const struct http_text *name, const char *other)
{
    bool same = name->len == strlen(other);

    for (size_t i = 0; same && i < name->len; i++)
        same = plain(name->at[i]) == plain(other[i]);
    return same;
}

/* --- The first line --- */

static bool is_method_refused(const struct http_text *method)
{
    return http_is_name(method, "trace") || http_is_name(method, "connect");
}

/* A fault, or NULL. */
static const char *read_first_line(const char *line, size_t len,
                                   struct http_request *request)
{
    size_t at = 0, tail = sizeof version - 1;

    while (at < len && line[at] >= 'A' && line[at] <= 'Z')
        at++;
    request->method = (struct http_text){line, at};
    if (at == 0 || at > 32 || at == len || line[at] != ' ')
        return "a request begins with a method in capital letters";
    if (is_method_refused(&request->method))
        return "TRACE and CONNECT are not relayed";
    at++;
    if (len < at + tail + 1 || memcmp(line + len - tail, version, tail) != 0)
        return "only HTTP/1.1 is relayed";
    request->target = (struct http_text){line + at, len - tail - at};
    if (line[at] != '/')
        return "the target of a request begins with \"/\"";
    for (size_t i = 0; i < request->target.len; i++)
        if (line[at + i] <= ' ' || line[at + i] >= 0x7F || line[at + i] == '#')
            return "the target of a request has only visible ASCII characters, no \"#\"";
    return NULL;
}

/* --- Headers --- */

static bool is_disguised(const struct http_text *name)
{
    static const char *const names[] = {"content-length", "transfer-encoding"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (http_is_like(name, names[i]) && !http_is_name(name, names[i]))
            return true;
    return false;
}

static const char *read_host(const struct http_text *value, struct http_request *request)
{
    const char *colon = memchr(value->at, ':', value->len);
    size_t len = colon ? (size_t)(colon - value->at) : value->len;
    size_t digits = colon ? value->len - len - 1 : 0;

    if (request->host[0])
        return "a request has one header Host";
    if (network_name_clean(value->at, len, request->host) || (colon && !digits) ||
        digits > 5)
        return "the header Host names a host, and a port if needed";
    for (size_t i = 0; i < digits; i++) {
        if (!is_digit(colon[1 + i]))
            return "the header Host names a host, and a port if needed";
        request->port = request->port * 10 + (unsigned)(colon[1 + i] - '0');
    }
    return NULL;
}

static const char *read_length(const struct http_text *value,
                               struct http_request *request)
{
    enum { DIGITS_MAX = 18 };

    if (request->body != HTTP_BODY_NONE)
        return "a request has one Content-Length or one Transfer-Encoding";
    if (value->len == 0 || value->len > DIGITS_MAX)
        return "a Content-Length is a number";
    for (size_t i = 0; i < value->len; i++) {
        if (!is_digit(value->at[i]))
            return "a Content-Length is a number";
        request->body_len = request->body_len * 10 + (uint64_t)(value->at[i] - '0');
    }
    request->body = HTTP_BODY_LENGTH;
    return NULL;
}

static const char *read_known(const struct http_header *header,
                              struct http_request *request)
{
    if (http_is_name(&header->name, "host"))
        return read_host(&header->value, request);
    if (http_is_name(&header->name, "content-length"))
        return read_length(&header->value, request);
    if (http_is_name(&header->name, "transfer-encoding")) {
        if (request->body != HTTP_BODY_NONE)
            return "a request has one Content-Length or one Transfer-Encoding";
        if (!http_is_name(&header->value, "chunked"))
            return "a Transfer-Encoding is \"chunked\"";
        request->body = HTTP_BODY_CHUNKED;
    }
    return is_disguised(&header->name) ? "a header's name has \"_\" instead of \"-\""
                                       : NULL;
}

static const char *read_header(const char *line, size_t len, struct http_request *request)
{
    struct http_header *header = &request->headers[request->header_count];
    size_t size = 0;

    if (request->header_count == HTTP_HEADERS_MAX)
        return "a request has at most 128 headers";
    while (size < len && is_token(line[size]))
        size++;
    if (size == 0 || size == len || line[size] != ':')
        return "a header is a name, a colon and a value on one line";
    const char *value = line + size + 1, *end = line + len;
    while (value < end && (*value == ' ' || *value == '\t'))
        value++;
    while (end > value && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    for (const char *at = value; at < end; at++)
        if (((unsigned char)*at < ' ' && *at != '\t') || *at == 0x7F)
            return "a header has no control characters";
    header->name = (struct http_text){line, size};
    header->value = (struct http_text){value, (size_t)(end - value)};
    request->header_count++;
    return read_known(header, request);
}

enum http_result http_read_request(const char *bytes, size_t len,
                                   struct http_request *ret_request,
                                   const char **ret_fault)
{
    const char *line = bytes, *stop = bytes + len, *fault = NULL, *end;

    ret_request->header_count = 0;
    ret_request->host[0] = '\0';
    ret_request->port = 0;
    ret_request->body = HTTP_BODY_NONE;
    ret_request->body_len = 0;
    for (; !fault && (end = memchr(line, '\n', (size_t)(stop - line))); line = end + 1) {
        size_t size = (size_t)(end - line);
        if (size == 0 || line[size - 1] != '\r')
            fault = "lines end with CR and LF";
        else if (size > 1)
            fault = line == bytes ? read_first_line(line, size - 1, ret_request)
                                  : read_header(line, size - 1, ret_request);
        else if (line == bytes)
            fault = "a request begins with a method in capital letters";
        else {
            ret_request->head_len = (size_t)(end + 1 - bytes);
            *ret_fault = "a request has one header Host";
            return ret_request->host[0] ? HTTP_DONE : HTTP_BAD;
        }
    }
    *ret_fault = fault ? fault : "the head of a request has at most 16 KiB";
    return fault || len >= HTTP_HEAD_MAX ? HTTP_BAD : HTTP_MORE;
}

/* --- Bodies --- */

/* The steps of a chunk: size, LF after the size, data, CR and LF after the data; after
 * the last chunk CR and LF. */
enum step { CHUNK_SIZE, CHUNK_SIZE_LF, CHUNK_DATA, CHUNK_CR, CHUNK_LF, LAST_CR, LAST_LF };

void http_framing_init(const struct http_request *request,
                       struct http_framing *ret_framing)
{
    *ret_framing = (struct http_framing){
        .body = request->body, .left = request->body_len, .step = CHUNK_SIZE};
    ret_framing->is_done = request->body == HTTP_BODY_NONE ||
                           (request->body == HTTP_BODY_LENGTH && request->body_len == 0);
}

static int digit_of(char byte)
{
    static const char digits[] = "0123456789abcdef";
    const char *at = byte ? strchr(digits, is_letter(byte) ? byte | 0x20 : byte) : NULL;

    return at ? (int)(at - digits) : -1;
}

static bool take_size(struct http_framing *framing, char byte)
{
    enum { DIGITS_MAX = 15 };
    int digit = digit_of(byte);

    if (byte == '\r' && framing->digits) {
        framing->step = CHUNK_SIZE_LF;
        return true;
    }
    framing->left = framing->left * 16 + (uint64_t)(digit < 0 ? 0 : digit);
    return digit >= 0 && ++framing->digits <= DIGITS_MAX;
}

/* Extensions of a chunk and trailers are refused. */
static bool take_byte(struct http_framing *framing, char byte)
{
    static const struct {
        char byte;
        int next;
    } fixed[] = {
        [CHUNK_SIZE_LF] = {'\n', CHUNK_DATA}, [CHUNK_CR] = {'\r', CHUNK_LF},
        [CHUNK_LF] = {'\n', CHUNK_SIZE},      [LAST_CR] = {'\r', LAST_LF},
        [LAST_LF] = {'\n', LAST_LF},
    };
    int step = framing->step;

    if (step == CHUNK_SIZE)
        return take_size(framing, byte);
    if (byte != fixed[step].byte)
        return false;
    framing->step = fixed[step].next;
    framing->is_done = step == LAST_LF;
    framing->digits = 0;
    if (step == CHUNK_SIZE_LF && framing->left == 0)
        framing->step = LAST_CR;
    return true;
}

ssize_t http_framing_take(struct http_framing *framing, const char *bytes, size_t len)
{
    size_t at = 0;

    while (at < len && !framing->is_done) {
        if (framing->body == HTTP_BODY_CHUNKED && framing->step != CHUNK_DATA) {
            if (!take_byte(framing, bytes[at++]))
                return -1;
            continue;
        }
        uint64_t taken = framing->left < len - at ? framing->left : len - at;
        framing->left -= taken;
        at += (size_t)taken;
        if (framing->left)
            continue;
        framing->is_done = framing->body == HTTP_BODY_LENGTH;
        framing->step = CHUNK_CR;
    }
    return (ssize_t)at;
}
