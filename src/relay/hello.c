/* SPDX-License-Identifier: Apache-2.0 */
#include "relay/hello.h"

#include <stdbool.h>
#include <string.h>
#include <strings.h>

/* --- TLS --- */

enum {
    RECORD_HEAD = 5,
    RECORD_HANDSHAKE = 22,
    HANDSHAKE_HELLO = 1,
    EXTENSION_SERVER_NAME = 0,
    NAME_TYPE_HOST = 0
};

/* A part of the message; `failed` once something did not fit. */
struct part {
    const uint8_t *at;
    size_t len;
    bool failed;
};

static const uint8_t *take(struct part *part, size_t len)
{
    const uint8_t *at = part->at;

    if (part->failed || len > part->len) {
        part->failed = true;
        part->len = 0;
        return NULL;
    }
    part->at += len;
    part->len -= len;
    return at;
}

static size_t take_number(struct part *part, size_t size)
{
    const uint8_t *at = take(part, size);
    size_t number = 0;

    for (size_t i = 0; at && i < size; i++)
        number = number << 8 | at[i];
    return number;
}

/* A vector whose length is a number of `size` bytes. */
static struct part take_vector(struct part *part, size_t size)
{
    size_t len = take_number(part, size);
    const uint8_t *at = take(part, len);

    return (struct part){at, at ? len : 0, !at};
}

/* False if it is malformed, or has more than one name. */
static bool read_server_name(struct part extension, char host[NETWORK_NAME_MAX])
{
    struct part list = take_vector(&extension, 2);
    size_t type = take_number(&list, 1);
    struct part name = take_vector(&list, 2);

    return !list.failed && !name.failed && list.len == 0 && extension.len == 0 &&
           type == NAME_TYPE_HOST && !*host &&
           !network_name_clean((const char *)name.at, name.len, host);
}

static bool read_extensions(struct part extensions, char host[NETWORK_NAME_MAX])
{
    while (extensions.len) {
        size_t type = take_number(&extensions, 2);
        struct part extension = take_vector(&extensions, 2);
        if (extensions.failed || extension.failed ||
            (type == EXTENSION_SERVER_NAME && !read_server_name(extension, host)))
            return false;
    }
    return true;
}

static bool read_client_hello(struct part body, char host[NETWORK_NAME_MAX])
{
    enum { VERSION_AND_RANDOM = 34 };

    (void)take(&body, VERSION_AND_RANDOM);
    (void)take_vector(&body, 1); /* session */
    (void)take_vector(&body, 2); /* ciphers */
    (void)take_vector(&body, 1); /* compression */
    if (body.failed)
        return false;
    if (body.len == 0)
        return true;
    struct part extensions = take_vector(&body, 2);
    return !extensions.failed && body.len == 0 && read_extensions(extensions, host);
}

/* The message may be spread over several records. */
static enum hello_kind read_tls(const uint8_t *bytes, size_t len,
                                char host[NETWORK_NAME_MAX])
{
    uint8_t message[HELLO_MAX];
    struct part rest = {bytes, len, false};
    size_t have = 0, need = 4;

    while (have < need) {
        if (rest.len < RECORD_HEAD)
            return HELLO_MORE;
        const uint8_t *head = take(&rest, RECORD_HEAD);
        size_t size = (size_t)head[3] << 8 | head[4];
        if (head[0] != RECORD_HANDSHAKE || head[1] != 3 || size == 0 ||
            size > sizeof message - have)
            return HELLO_BAD;
        size_t there = size < rest.len ? size : rest.len;
        memcpy(message + have, take(&rest, there), there);
        have += there;
        if (have < 4)
            continue;
        need = 4 + ((size_t)message[1] << 16 | (size_t)message[2] << 8 | message[3]);
        if (message[0] != HANDSHAKE_HELLO || need > sizeof message)
            return HELLO_BAD;
        if (there < size && have < need)
            return HELLO_MORE;
    }
    return read_client_hello((struct part){message + 4, need - 4, false}, host)
               ? HELLO_TLS
               : HELLO_BAD;
}

/* --- HTTP --- */

static const char *const methods[] = {"GET ",     "HEAD ",  "POST ",
                                      "PUT ",     "PATCH ", "DELETE ",
                                      "OPTIONS ", "TRACE ", "CONNECT "};

/* HELLO_MORE if the bytes may become a request. */
static enum hello_kind look_for_method(const char *text, size_t len)
{
    enum hello_kind kind = HELLO_OTHER;

    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        size_t size = strlen(methods[i]);
        if (memcmp(text, methods[i], len < size ? len : size) != 0)
            continue;
        if (len >= size)
            return HELLO_HTTP;
        kind = HELLO_MORE;
    }
    return kind;
}

/* The same by the end of the line, since servers take other methods in capital letters,
 * too.  The preface of HTTP/2 is no request. */
static enum hello_kind look_for_version(const char *text, size_t len)
{
    enum { METHOD_MAX = 64 };
    static const char version[] = " HTTP/1.x";
    const size_t version_len = sizeof version - 1;
    size_t method = 0, at = 0;

    while (method < len && method <= METHOD_MAX &&
           ((text[method] >= 'A' && text[method] <= 'Z') || text[method] == '-' ||
            text[method] == '_'))
        method++;
    if (method == 0 || method > METHOD_MAX || (method < len && text[method] != ' '))
        return HELLO_OTHER;
    while (at < len && text[at] >= ' ' && text[at] < 0x7F)
        at++;
    if (at == len)
        return HELLO_MORE;
    return (text[at] == '\r' || text[at] == '\n') && at > method + version_len &&
                   strncasecmp(text + at - version_len, version, version_len - 1) == 0
               ? HELLO_HTTP
               : HELLO_OTHER;
}

/* "host", "host:80", "[::1]:80"; an address is a host that is no name. */
static bool read_authority(const char *text, size_t len, char host[NETWORK_NAME_MAX])
{
    size_t end = 0;

    while (end < len && text[end] != ':')
        end++;
    for (size_t i = end + 1; i < len; i++)
        if (text[i] < '0' || text[i] > '9')
            return false;
    return !network_name_clean(text, end, host);
}

/* A target with a host of its own ("http://other/") overrides the header. */
static bool read_target(const char *line, size_t len, char host[NETWORK_NAME_MAX])
{
    static const char scheme[] = "http://";
    const char *target = memchr(line, ' ', len);

    if (!target)
        return false;
    target++;
    size_t size = (size_t)(line + len - target);
    const char *end = memchr(target, ' ', size);
    if (!end || (size_t)(line + len - end) != strlen(" HTTP/1.x") ||
        memcmp(end, " HTTP/1.", 8) != 0 || end == target)
        return false;
    if (*target == '/' || *target == '*')
        return true;
    size = (size_t)(end - target);
    if (strncasecmp(line, "CONNECT ", 8) != 0) {
        if (size < sizeof scheme || strncasecmp(target, scheme, sizeof scheme - 1) != 0)
            return false;
        target += sizeof scheme - 1;
        size -= sizeof scheme - 1;
        const char *slash = memchr(target, '/', size);
        size = slash ? (size_t)(slash - target) : size;
    }
    return read_authority(target, size, host);
}

/* False if servers may read the line in different ways, or it names another host. */
static bool read_header(const char *line, size_t len, bool *has_host,
                        char host[NETWORK_NAME_MAX])
{
    static const char name[] = "host";
    char named[NETWORK_NAME_MAX];
    const char *colon = memchr(line, ':', len);
    size_t size = colon ? (size_t)(colon - line) : 0;

    if (!size)
        return false;
    for (size_t i = 0; i < size; i++)
        if (line[i] <= ' ' || line[i] >= 0x7F)
            return false;
    if (size != sizeof name - 1 || strncasecmp(line, name, size) != 0)
        return true;
    const char *value = colon + 1, *end = line + len;
    while (value < end && (*value == ' ' || *value == '\t'))
        value++;
    while (end > value && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    if (*has_host || !read_authority(value, (size_t)(end - value), named) ||
        (*host && strcmp(host, named) != 0))
        return false;
    *has_host = true;
    memcpy(host, named, sizeof named);
    return true;
}

static enum hello_kind read_http(const char *text, size_t len,
                                 char host[NETWORK_NAME_MAX])
{
    bool has_host = false;

    for (const char *line = text, *end; (end = memchr(line, '\n', len)); line = end + 1) {
        size_t size = (size_t)(end - line);
        len -= size + 1;
        if (size == 0 || line[size - 1] != '\r' || memchr(line, '\0', size) ||
            memchr(line, '\r', size - 1))
            return HELLO_BAD;
        size--;
        if (size == 0)
            return line == text ? HELLO_BAD : HELLO_HTTP;
        if (line == text ? !read_target(line, size, host)
                         : !read_header(line, size, &has_host, host))
            return HELLO_BAD;
    }
    return HELLO_MORE;
}

/* Servers skip alerts and, some of them, other versions before the hello. */
static enum hello_kind look_for_record(const uint8_t *bytes, size_t len)
{
    enum { RECORD_FIRST = 20, RECORD_LAST = 24, VERSION_MAX = 0x10 };

    if (bytes[0] < RECORD_FIRST || bytes[0] > RECORD_LAST)
        return HELLO_OTHER;
    if (len < 2)
        return HELLO_MORE;
    if (bytes[1] >= VERSION_MAX)
        return HELLO_OTHER;
    return bytes[0] == RECORD_HANDSHAKE && bytes[1] == 3 ? HELLO_TLS : HELLO_BAD;
}

/* Servers skip empty lines before a request. */
static enum hello_kind look_for_request(const char *text, size_t len)
{
    size_t skipped = 0;

    while (skipped < len && (text[skipped] == '\r' || text[skipped] == '\n'))
        skipped++;
    if (skipped == len)
        return HELLO_MORE;
    enum hello_kind kind = look_for_method(text + skipped, len - skipped);
    if (kind == HELLO_OTHER)
        kind = look_for_version(text + skipped, len - skipped);
    return skipped && kind == HELLO_HTTP ? HELLO_BAD : kind;
}

void hello_read(const uint8_t *bytes, size_t len, struct hello *ret_hello)
{
    const char *text = (const char *)bytes;
    enum hello_kind kind = len ? look_for_record(bytes, len) : HELLO_MORE;

    ret_hello->host[0] = '\0';
    if (kind == HELLO_TLS)
        kind = read_tls(bytes, len, ret_hello->host);
    else if (kind == HELLO_OTHER)
        kind = look_for_request(text, len);
    if (kind == HELLO_HTTP)
        kind = read_http(text, len, ret_hello->host);
    ret_hello->kind = kind == HELLO_MORE && len >= HELLO_MAX ? HELLO_BAD : kind;
}
