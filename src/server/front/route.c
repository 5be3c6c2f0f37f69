/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"
#include "server/front/front.h"

enum { HEADERS_MAX = 100 };

/* --- Ambiguous framing that libmicrohttpd accepts --- */

struct count {
    unsigned all, lengths, encodings, hosts, ids;
    const char *wrong;
    const char *end; /* end of the last value in the request buffer */
};

bool route_is_token(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (!isalnum((unsigned char)text[i]) && !strchr("!#$%&'*+-.^_`|~", text[i]))
            return false;
    return len > 0;
}

static bool is_digits(const char *text)
{
    return *text && strspn(text, "0123456789") == strlen(text) && strlen(text) < 19;
}

static enum MHD_Result check_header(void *cls, enum MHD_ValueKind kind, const char *key,
                                    const char *value)
{
    struct count *count = cls;

    (void)kind;
    count->all++;
    count->end = value ? value + strlen(value) : NULL;
    if (!route_is_token(key, strlen(key)))
        count->wrong = "invalid header name";
    else if (strcasecmp(key, "Content-Length") == 0 &&
             (++count->lengths > 1 || !value || !is_digits(value)))
        count->wrong = "invalid Content-Length";
    else if (strcasecmp(key, "Transfer-Encoding") == 0 &&
             (++count->encodings > 1 || !value || strcasecmp(value, "chunked") != 0))
        count->wrong = "invalid Transfer-Encoding: only chunked is supported";
    else if (strcasecmp(key, "Host") == 0 && ++count->hosts > 1)
        count->wrong = "duplicate Host header";
    else if (strcasecmp(key, "E2b-Sandbox-Id") == 0 && ++count->ids > 1)
        count->wrong = "duplicate E2b-Sandbox-Id header";
    return MHD_YES;
}

/* --- Names of this server --- */

/* The name without its port, in lower case; removes the brackets of "[::1]".  False if it
 * is invalid. */
static bool name_of(const char *text, char *name, size_t room)
{
    bool bracketed = *text == '[';
    size_t len = strcspn(text += bracketed, bracketed ? "]" : ":");
    const char *rest = text + len;

    if (bracketed && *rest++ != ']')
        return false;
    if (len == 0 || len >= room ||
        (*rest && (*rest != ':' || !is_digits(rest + 1) || strlen(rest + 1) > 5)))
        return false;
    for (size_t i = 0; i < len; i++)
        name[i] = (char)tolower((unsigned char)text[i]);
    name[len] = '\0';
    return true;
}

/* "49983-abc123" */
static bool parse_label(const char *label, struct route *route)
{
    size_t digits = strspn(label, "0123456789");
    unsigned long port = strtoul(label, NULL, 10);

    if (digits == 0 || digits > 5 || *label == '0' || port > UINT16_MAX ||
        label[digits] != '-' || !record_is_id(label + digits + 1))
        return false;
    route->port = (uint16_t)port;
    cay_copy_text(route->sandbox, SANDBOX_ID_MAX, label + digits + 1);
    return true;
}

enum host_kind route_host(const char *text, const char *domain, struct route *route)
{
    char name[256], own[256];
    struct in6_addr address;

    if (!name_of(text, name, sizeof name))
        return HOST_FOREIGN;
    if (!name_of(domain, own, sizeof own))
        own[0] = '\0';
    const char *const servers[] = {own, "localhost"};
    if (inet_pton(AF_INET, name, &address) == 1 ||
        inet_pton(AF_INET6, name, &address) == 1 || strcmp(name, own) == 0 ||
        strcmp(name, servers[1]) == 0)
        return HOST_SERVER;
    for (size_t i = 0; i < sizeof servers / sizeof *servers; i++) {
        size_t len = strlen(name), end = strlen(servers[i]);
        if (end == 0 || len <= end || name[len - end - 1] != '.' ||
            strcmp(name + len - end, servers[i]) != 0)
            continue;
        name[len - end - 1] = '\0';
        if (strcmp(name, "api") == 0 || strcmp(name, "sandbox") == 0)
            return HOST_SERVER; /* names that SDKs use if only a domain is configured */
        return parse_label(name, route) ? HOST_SANDBOX : HOST_MALFORMED;
    }
    return HOST_FOREIGN;
}

/* libmicrohttpd treats a line that begins with a colon as the end of the headers, and the
 * rest as the next request.  It does not report that line, but the whole head is in one
 * buffer, and only two line ends may follow the last value. */
static bool ends_with(const struct exchange *exchange, const char *last)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(
        exchange->connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    const char *head = exchange->method;

    return info && last && last > head &&
           (size_t)(last - head) + strlen("\r\n\r\n") == info->header_size;
}

const char *route_check(struct exchange *exchange, unsigned *ret_status)
{
    struct count count = {0};
    const char *host = exchange_header(exchange, "Host");

    (void)MHD_get_connection_values(exchange->connection, MHD_HEADER_KIND, check_header,
                                    &count);
    exchange->is_last = !ends_with(exchange, count.end);
    *ret_status = 400;
    if (count.wrong)
        return count.wrong;
    if (count.lengths && count.encodings)
        return "Content-Length and Transfer-Encoding are mutually exclusive";
    if (count.all > HEADERS_MAX) {
        *ret_status = 431;
        return "too many headers";
    }
    return host ? NULL : "missing Host header";
}

/* --- Routing --- */

static const char *parse_headers(const char *id, const char *port, struct route *route)
{
    if (strlen(id) >= SANDBOX_ID_MAX || !*id)
        return "invalid E2b-Sandbox-Id";
    if (port && (!is_digits(port) || strlen(port) > 5 || strtoul(port, NULL, 10) == 0 ||
                 strtoul(port, NULL, 10) > UINT16_MAX))
        return "invalid E2b-Sandbox-Port";
    cay_copy_text(route->sandbox, SANDBOX_ID_MAX, id);
    route->port = port ? (uint16_t)strtoul(port, NULL, 10) : ENVD_PORT;
    return NULL;
}

/* The envd of a sandbox has no such paths.  E2B's Python SDKs up to 2.26 also send the
 * sandbox headers with the connect request, which is for the control plane. */
static bool is_control(const char *url)
{
    url += strncmp(url, "/v2/", strlen("/v2/")) == 0 ? strlen("/v2") : 0;
    size_t len = strlen("/sandboxes");
    return strncmp(url, "/sandboxes", len) == 0 && (!url[len] || url[len] == '/');
}

/* The headers are ignored if the host name selects a sandbox. */
const char *route_find(struct exchange *exchange, unsigned *ret_status)
{
    struct route *route = &exchange->route;
    const char *id = exchange_header(exchange, "E2b-Sandbox-Id");
    const char *host = exchange_header(exchange, "Host");
    const char *origin = exchange_header(exchange, "Origin");

    *route = (struct route){.plane = PLANE_CONTROL};
    enum host_kind kind = route_host(host, exchange->front->options->domain, route);
    exchange->is_own_host = kind == HOST_SERVER;
    *ret_status = kind == HOST_FOREIGN ? 421 : 400;
    if (kind == HOST_FOREIGN)
        return "unknown host name";
    if (kind == HOST_MALFORMED)
        return "invalid sandbox host name (use PORT-ID)";
    if (kind == HOST_SERVER && id) {
        const char *wrong =
            parse_headers(id, exchange_header(exchange, "E2b-Sandbox-Port"), route);
        if (wrong)
            return wrong;
        if (route->port == ENVD_PORT && is_control(exchange->url))
            *route = (struct route){.plane = PLANE_CONTROL};
    }
    if (route->port)
        route->plane = route->port == ENVD_PORT   ? PLANE_ENVD
                       : route->port == CODE_PORT ? PLANE_CODE
                                                  : PLANE_PORT;
    /* Identified by the signature or token: older SDKs omit the sandbox headers, for
     * Python up to 2.26 after a connect, for JavaScript in health checks. */
    else if (strcmp(exchange->url, "/files") == 0 ||
             (exchange_header(exchange, "X-Access-Token") &&
              !exchange_header(exchange, "X-API-KEY") && !is_control(exchange->url)))
        route->plane = PLANE_ENVD;
    /* Decoding would cut the text there. */
    if (route->plane != PLANE_PORT && strstr(exchange->target, "%00"))
        return "the path or query contains a NUL";
    /* Only pages from the same host may use the API: not even pages of sandboxes. */
    const char *from = origin ? strstr(origin, "://") : NULL;
    if (origin && route->plane != PLANE_PORT &&
        !(from && strcasecmp(from + 3, host) == 0)) {
        *ret_status = 403;
        return "requests from other origins are not allowed";
    }
    return NULL;
}

/* Decodes one character of a path, and advances. */
static char decode(const char **at)
{
    char digits[3] = {**at ? (*at)[1] : '\0', **at && (*at)[1] ? (*at)[2] : '\0', '\0'};

    if (**at != '%' || !isxdigit((unsigned char)digits[0]) ||
        !isxdigit((unsigned char)digits[1]))
        return *(*at)++;
    *at += strlen("%00");
    return (char)strtoul(digits, NULL, 16);
}

bool route_first(const char *pattern, const char *path, char ret_part[PART_MAX])
{
    size_t names = 0, len = 0;

    for (const char *at = pattern; *at && *at != '{'; at++)
        names += *at == '/';
    const char *from = path;
    while (names-- > 0 && (from = strchr(from, '/')))
        from++;
    while (from && *from && *from != '/' && *from != '?' && len < PART_MAX - 1)
        ret_part[len++] = decode(&from);
    ret_part[len] = '\0';
    return len > 0;
}

bool route_matches(const char *pattern, const char *path, char part[PART_MAX])
{
    const char *end = path + strcspn(path, "?");

    part[0] = '\0';
    while (*pattern) {
        if (*pattern == '{') {
            size_t len = 0;
            while (path < end && *path != '/' && len < PART_MAX - 1)
                part[len++] = decode(&path);
            part[len] = '\0';
            if (len == 0 || (path < end && *path != '/'))
                return false;
            pattern += strcspn(pattern, "}") + 1;
        } else if (path >= end || *pattern++ != decode(&path)) {
            return false;
        }
    }
    return path >= end;
}
