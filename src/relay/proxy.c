/* SPDX-License-Identifier: Apache-2.0 */
#include "relay/proxy.h"

#include <string.h>
#include <strings.h>

#include "relay/hello.h"

struct text {
    const char *at;
    size_t len;
};

static bool is_word(struct text text, const char *word)
{
    return text.len == strlen(word) && strncasecmp(text.at, word, text.len) == 0;
}

/* Cuts the text at `end`, which it need not contain, and returns what was before it. */
static struct text cut(struct text *text, char end)
{
    const char *found = text->len ? memchr(text->at, end, text->len) : NULL;
    struct text before = {text->at, found ? (size_t)(found - text->at) : text->len};

    text->at += before.len + (found ? 1 : 0);
    text->len -= before.len + (found ? 1 : 0);
    return before;
}

/* A line without its CRLF; false if it ends in another way, or has such bytes. */
static bool next_line(struct text *text, struct text *ret_line)
{
    *ret_line = cut(text, '\n');
    if (!ret_line->len || ret_line->at[ret_line->len - 1] != '\r')
        return false;
    ret_line->len--;
    for (size_t i = 0; i < ret_line->len; i++)
        if ((unsigned char)ret_line->at[i] < ' ' && ret_line->at[i] != '\t')
            return false;
    return true;
}

/* --- The target --- */

static bool read_port(struct text text, uint16_t *ret_port)
{
    unsigned port = 0;

    if (!text.len || text.len > 5)
        return false;
    for (size_t i = 0; i < text.len; i++) {
        if (text.at[i] < '0' || text.at[i] > '9')
            return false;
        port = port * 10 + (unsigned)(text.at[i] - '0');
    }
    *ret_port = (uint16_t)port;
    return port > 0 && port <= UINT16_MAX;
}

static bool read_host(struct text host, struct proxy_request *request)
{
    char text[NETWORK_ADDRESS_TEXT];

    if (!network_name_clean(host.at, host.len, request->name))
        return true;
    request->name[0] = '\0';
    if (host.len >= sizeof text)
        return false;
    memcpy(text, host.at, host.len);
    text[host.len] = '\0';
    return network_address_parse(text, &request->address);
}

/* "host", "host:80", "[2001:db8::1]:80"; port 0: the authority must have one. */
static bool read_authority(struct text text, uint16_t port, struct proxy_request *request)
{
    bool has_brackets = text.len && text.at[0] == '[';
    struct text host = cut(&text, has_brackets ? ']' : ':');

    request->port = port;
    if (has_brackets) {
        host.at++;
        host.len--;
        if (text.len && *text.at != ':')
            return false;
        (void)cut(&text, ':');
    }
    if (!read_host(host, request) || (has_brackets && request->address.len != 16))
        return false;
    return text.len ? read_port(text, &request->port) : port != 0;
}

static const char scheme[] = "http://";

static enum proxy_kind read_target(struct text line, struct proxy_request *request)
{
    struct text method = cut(&line, ' '), target = cut(&line, ' ');

    if (!method.len || !target.len || line.len != strlen("HTTP/1.x") ||
        memcmp(line.at, "HTTP/1.", 7) != 0)
        return PROXY_BAD;
    if (is_word(method, "CONNECT"))
        return read_authority(target, 0, request) ? PROXY_CONNECT : PROXY_BAD;
    if (target.len < sizeof scheme ||
        strncasecmp(target.at, scheme, sizeof scheme - 1) != 0)
        return PROXY_BAD;
    target.at += sizeof scheme - 1;
    target.len -= sizeof scheme - 1;
    size_t end = 0;
    while (end < target.len && !memchr("/?#@", target.at[end], 4))
        end++;
    if (end < target.len && target.at[end] != '/')
        return PROXY_BAD;
    return read_authority((struct text){target.at, end}, 80, request) ? PROXY_FORWARD
                                                                      : PROXY_BAD;
}

/* --- The head --- */

static bool is_header(struct text line)
{
    struct text name = line.len ? cut(&line, ':') : line;

    for (size_t i = 0; i < name.len; i++)
        if (name.at[i] <= ' ' || name.at[i] >= 0x7F)
            return false;
    return name.len && line.at > name.at + name.len;
}

enum proxy_kind proxy_read(const uint8_t *bytes, size_t len,
                           struct proxy_request *ret_request)
{
    const char *end = memmem(bytes, len, "\r\n\r\n", 4);
    struct text text = {(const char *)bytes, 0}, line;

    *ret_request = (struct proxy_request){.port = 0};
    if (!end)
        return len < HELLO_MAX ? PROXY_MORE : PROXY_BAD;
    text.len = ret_request->head_len = (size_t)(end - text.at) + 4;
    enum proxy_kind kind =
        next_line(&text, &line) ? read_target(line, ret_request) : PROXY_BAD;
    while (kind != PROXY_BAD && text.len > 2)
        if (!next_line(&text, &line) || !is_header(line))
            kind = PROXY_BAD;
    return kind;
}

/* Headers for the proxy, and those that are written anew. */
static bool is_dropped(struct text line)
{
    static const char *const names[] = {"host",
                                        "connection",
                                        "keep-alive",
                                        "proxy-connection",
                                        "proxy-authorization",
                                        "proxy-authenticate"};
    struct text name = cut(&line, ':');

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (is_word(name, names[i]))
            return true;
    return false;
}

bool proxy_rewrite(const uint8_t *bytes, size_t len, const struct proxy_request *request,
                   struct buf *ret_bytes)
{
    struct text text = {(const char *)bytes, request->head_len}, line;

    (void)next_line(&text, &line);
    struct text method = cut(&line, ' '), target = cut(&line, ' ');
    (void)cut(&target, '/');
    (void)cut(&target, '/');
    struct text authority = cut(&target, '/'); /* the target is now behind that "/" */
    buf_append(ret_bytes, method.at, method.len);
    buf_text(ret_bytes, " /");
    buf_append(ret_bytes, target.at, target.len);
    buf_format(ret_bytes, " %.*s\r\nHost: %.*s\r\nConnection: close\r\n", (int)line.len,
               line.at, (int)authority.len, authority.at);
    while (text.len > 2 && next_line(&text, &line))
        if (!is_dropped(line)) {
            buf_append(ret_bytes, line.at, line.len);
            buf_text(ret_bytes, "\r\n");
        }
    buf_text(ret_bytes, "\r\n");
    buf_append(ret_bytes, bytes + request->head_len, len - request->head_len);
    return !ret_bytes->failed;
}
