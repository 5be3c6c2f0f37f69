/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"
#include "server/front.h"

enum { HEADERS_MAX = 100 };

/* --- Framing: what libmicrohttpd lets pass though two readers could differ over it ---
 */

struct count {
    unsigned all, lengths, encodings, hosts;
    const char *wrong;
};

static bool is_token(const char *text)
{
    for (; *text; text++)
        if (!isalnum((unsigned char)*text) && !strchr("!#$%&'*+-.^_`|~", *text))
            return false;
    return true;
}

static bool is_digits(const char *text)
{
    return *text && strspn(text, "0123456789") == strlen(text) && strlen(text) < 19;
}

static enum MHD_Result look_at(void *cls, enum MHD_ValueKind kind, const char *key,
                               const char *value)
{
    struct count *count = cls;

    (void)kind;
    count->all++;
    if (!*key || !is_token(key))
        count->wrong = "a header has a name that is none";
    else if (strcasecmp(key, "Content-Length") == 0 &&
             (++count->lengths > 1 || !value || !is_digits(value)))
        count->wrong = "Content-Length is to be one number";
    else if (strcasecmp(key, "Transfer-Encoding") == 0 &&
             (++count->encodings > 1 || !value || strcasecmp(value, "chunked") != 0))
        count->wrong = "Transfer-Encoding is to be chunked";
    else if (strcasecmp(key, "Host") == 0 && ++count->hosts > 1)
        count->wrong = "there are two Hosts";
    return MHD_YES;
}

/* --- Names of this server --- */

/* Without the port; "[::1]" loses its brackets. */
static void host_of(const char *text, char *host, size_t room)
{
    size_t len = strcspn(text, ":");

    if (*text == '[') {
        text++;
        len = strcspn(text, "]");
    }
    snprintf(host, room, "%.*s", (int)(len < room ? len : room - 1), text);
}

static bool is_address(const char *host)
{
    struct in6_addr address;

    return inet_pton(AF_INET, host, &address) == 1 ||
           inet_pton(AF_INET6, host, &address) == 1;
}

static bool ends_with(const char *text, const char *end)
{
    size_t len = strlen(text), end_len = strlen(end);

    return end_len > 0 && len >= end_len && strcasecmp(text + len - end_len, end) == 0 &&
           (len == end_len || text[len - end_len - 1] == '.');
}

/* A page of somebody else's that has its name point to us is not to reach us. */
static bool is_ours(const struct front *front, const char *text)
{
    char host[256], domain[256];

    host_of(text, host, sizeof host);
    host_of(front->options->domain, domain, sizeof domain);
    return is_address(host) || ends_with(host, "localhost") || ends_with(host, domain);
}

static bool origin_is_ours(const struct front *front, const char *origin)
{
    const char *host = strstr(origin, "://");

    return host && is_ours(front, host + 3);
}

const char *route_check(struct exchange *exchange, unsigned *ret_status)
{
    struct count count = {0};
    const char *host = exchange_header(exchange, "Host");

    (void)MHD_get_connection_values(exchange->connection, MHD_HEADER_KIND, look_at,
                                    &count);
    *ret_status = 400;
    if (count.wrong)
        return count.wrong;
    if (count.lengths && count.encodings)
        return "Content-Length and Transfer-Encoding exclude each other";
    if (count.all > HEADERS_MAX) {
        *ret_status = 431;
        return "there are too many headers";
    }
    if (!host)
        return "there is no Host";
    if (!is_ours(exchange->front, host)) {
        *ret_status = 421;
        return "this server has no such name";
    }
    return NULL;
}

/* --- Which sandbox --- */

/* "49983-abc123.domain" */
static bool parse_label(const char *host, struct route *route)
{
    char *end;
    unsigned long port = isdigit((unsigned char)*host) ? strtoul(host, &end, 10) : 0;

    if (port == 0 || port > UINT16_MAX || *end != '-')
        return false;
    const char *id = end + 1;
    size_t len = strspn(id, "abcdefghijklmnopqrstuvwxyz0123456789");
    if (len == 0 || len >= SANDBOX_ID_MAX || id[len] != '.')
        return false;
    route->port = (uint16_t)port;
    memcpy(route->sandbox, id, len);
    route->sandbox[len] = '\0';
    return true;
}

static const char *parse_headers(const char *id, const char *port, struct route *route)
{
    if (strlen(id) >= SANDBOX_ID_MAX || !*id)
        return "E2b-Sandbox-Id is no sandbox";
    if (port && (!is_digits(port) || strlen(port) > 5 || strtoul(port, NULL, 10) == 0 ||
                 strtoul(port, NULL, 10) > UINT16_MAX))
        return "E2b-Sandbox-Port is no port";
    cay_copy_text(route->sandbox, SANDBOX_ID_MAX, id);
    route->port = port ? (uint16_t)strtoul(port, NULL, 10) : ENVD_PORT;
    return NULL;
}

/* The header counts only where the name does not already say which sandbox is meant. */
const char *route_find(struct exchange *exchange, unsigned *ret_status)
{
    struct route *route = &exchange->route;
    const char *id = exchange_header(exchange, "E2b-Sandbox-Id");
    const char *host = exchange_header(exchange, "Host");
    const char *origin = exchange_header(exchange, "Origin");

    *ret_status = 400;
    *route = (struct route){.plane = PLANE_CONTROL};
    if (parse_label(host, route)) {
        route->plane = route->port == ENVD_PORT ? PLANE_ENVD : PLANE_PORT;
    } else if (id) {
        const char *wrong =
            parse_headers(id, exchange_header(exchange, "E2b-Sandbox-Port"), route);
        if (wrong)
            return wrong;
        route->plane = route->port == ENVD_PORT ? PLANE_ENVD : PLANE_PORT;
    } else if (strcmp(exchange->url, "/files") == 0) {
        route->plane = PLANE_ENVD; /* the signature tells which */
    }
    if (origin && route->plane != PLANE_PORT && strcmp(origin, "null") != 0 &&
        !origin_is_ours(exchange->front, origin)) {
        *ret_status = 403;
        return "pages of other origins may not use this server";
    }
    return NULL;
}

bool route_matches(const char *pattern, const char *path, char part[PART_MAX])
{
    part[0] = '\0';
    while (*pattern) {
        if (*pattern == '{') {
            size_t len = strcspn(path, "/");
            if (len == 0 || len >= PART_MAX)
                return false;
            memcpy(part, path, len);
            part[len] = '\0';
            path += len;
            pattern += strcspn(pattern, "}") + 1;
        } else if (*pattern++ != *path++) {
            return false;
        }
    }
    return *path == '\0';
}
