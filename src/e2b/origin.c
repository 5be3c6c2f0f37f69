/* SPDX-License-Identifier: Apache-2.0 */
#include "e2b/origin.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"

enum { ADDRESSES_MAX = 8 };

/* The URL itself is not shown: it may contain a password. */
static int fail_url(const char *op, const char *field, struct cay_error *err)
{
    return cay_fail(err, CAY_E_INVALID, 0, op, field, "invalid URL",
                    "for example https://api.example.com or http://127.0.0.1:8080");
}

static bool is_host_text(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (!isalnum((unsigned char)text[i]) && !strchr("-._", text[i]))
            return false;
    return len > 0 && text[0] != '.' && text[0] != '-';
}

static bool take_port(const char **text, uint16_t *port)
{
    if (**text != ':')
        return true;
    char *end;
    unsigned long value =
        isdigit((unsigned char)(*text)[1]) ? strtoul(*text + 1, &end, 10) : 0;
    if (value == 0 || value > 65535)
        return false;
    *port = (uint16_t)value;
    *text = end;
    return true;
}

/* Reads the host and the port and moves *text behind them. */
static bool take_host(const char **text, struct e2b_origin *origin)
{
    struct in6_addr address;
    bool brackets = **text == '[';
    const char *start = *text + brackets;
    size_t len = strcspn(start, brackets ? "]" : ":/");

    if (len == 0 || len >= sizeof origin->host)
        return false;
    memcpy(origin->host, start, len);
    origin->host[len] = '\0';
    *text = start + len;
    if (brackets) {
        if (**text != ']' || inet_pton(AF_INET6, origin->host, &address) != 1)
            return false;
        (*text)++;
    } else if (!is_host_text(origin->host, len)) {
        return false;
    }
    origin->is_address = brackets || inet_pton(AF_INET, origin->host, &address) == 1;
    return take_port(text, &origin->port);
}

int e2b_origin_parse(const char *url, const char *op, const char *field,
                     struct e2b_origin *ret_origin, struct cay_error *err)
{
    struct e2b_origin origin = {.port = 80};
    size_t len = strlen(url);
    const char *rest = url;

    while (len > 0 && url[len - 1] == '/')
        len--;
    if (len >= sizeof origin.url)
        return fail_url(op, field, err);
    if (strncasecmp(url, "https://", 8) == 0) {
        origin.is_tls = true;
        origin.port = 443;
        rest += 8;
    } else if (strncasecmp(url, "http://", 7) == 0) {
        rest += 7;
    } else {
        return fail_url(op, field, err);
    }
    memcpy(origin.url, url, len);
    if (!take_host(&rest, &origin) || (*rest && *rest != '/'))
        return fail_url(op, field, err);
    for (; *rest; rest++)
        if (!isalnum((unsigned char)*rest) && !strchr("/-._~", *rest))
            return fail_url(op, field, err);
    *ret_origin = origin;
    return CAY_OK;
}

bool e2b_origin_is_domain(const char *text)
{
    size_t len = strcspn(text, ":");
    uint16_t port;

    if (len > 253 || !is_host_text(text, len))
        return false;
    text += len;
    return take_port(&text, &port) && !*text;
}

/* RFC 6761: these names are never looked up. */
static bool is_localhost(const char *host)
{
    size_t len = strlen(host);

    return strcasecmp(host, "localhost") == 0 ||
           (len > 10 && strcasecmp(host + len - 10, ".localhost") == 0);
}

int e2b_origin_resolve(const struct e2b_origin *origin, char *ret_entry, size_t room)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG};
    struct addrinfo *list = NULL;
    size_t len = (size_t)snprintf(ret_entry, room, "%s:%u:", origin->host, origin->port);
    int count = 0;

    if (is_localhost(origin->host)) {
        snprintf(ret_entry + len, room - len, "127.0.0.1,[::1]");
        return 0;
    }
    int error = getaddrinfo(origin->host, NULL, &hints, &list);
    if (error)
        return error;
    for (const struct addrinfo *at = list; at && count < ADDRESSES_MAX;
         at = at->ai_next) {
        char text[NI_MAXHOST];
        bool is_six = at->ai_family == AF_INET6;
        if (getnameinfo(at->ai_addr, at->ai_addrlen, text, sizeof text, NULL, 0,
                        NI_NUMERICHOST) != 0 ||
            strchr(text, '%') || len + strlen(text) + 4 > room)
            continue;
        len += (size_t)snprintf(ret_entry + len, room - len, "%s%s%s%s", count ? "," : "",
                                is_six ? "[" : "", text, is_six ? "]" : "");
        count++;
    }
    freeaddrinfo(list);
    return count ? 0 : EAI_NONAME;
}
