/* SPDX-License-Identifier: Apache-2.0 */

/* Sessions of browsers: /ui/session, and the cookie, which is a credential like the API
 * key of the login.
 *
 * A browser sends the cookie whoever causes the request, so it counts only if the request
 * is from the dashboard's own origin, and for requests that change something only with
 * the header X-Cay-Csrf, which pages of other origins cannot send: to the browser every
 * sandbox is the same site, so SameSite alone does not keep them away.  Its value is a
 * hash of the cookie, which the front can check without a key of the server. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "base/auto.h"
#include "base/error.h"
#include "server/front/front.h"

enum {
    CSRF_MAX = 2 * SHA256_DIGEST_SIZE + 1,
    COOKIES_MAX = 8, /* sessions in one request */
    MAX_AGE_S = 12 * 3600,
    HEADER_ROOM = 256
};

static const char cookie_name[] = "cay_session";
/* A cookie with this prefix cannot be set by a page of a sandbox. */
static const char host_prefix[] = "__Host-";

static void put_csrf(const char *session, char ret_csrf[CSRF_MAX])
{
    static const char purpose[] = "cay csrf ";
    unsigned char digest[SHA256_DIGEST_SIZE];
    struct sha256_ctx sha;

    sha256_init(&sha);
    sha256_update(&sha, strlen(purpose), (const uint8_t *)purpose);
    sha256_update(&sha, strlen(session), (const uint8_t *)session);
    sha256_digest(&sha, sizeof digest, digest);
    for (size_t i = 0; i < sizeof digest; i++)
        snprintf(ret_csrf + 2 * i, 3, "%02x", digest[i]);
}

/* In constant time. */
static bool is_csrf(const char *session, const char *given)
{
    char right[CSRF_MAX];
    unsigned char difference = 0;

    put_csrf(session, right);
    if (!given || strlen(given) != CSRF_MAX - 1)
        return false;
    for (size_t i = 0; i < CSRF_MAX - 1; i++)
        difference |= (unsigned char)(given[i] ^ right[i]);
    return difference == 0;
}

/* --- The cookie --- */

/* Takes the next "name=value" of a header, without spaces around it. */
static const char *next_cookie(const char **at, size_t *ret_len)
{
    const char *from = *at + strspn(*at, "; \t");

    *ret_len = strcspn(from, ";");
    *at = from + *ret_len;
    while (*ret_len && (from[*ret_len - 1] == ' ' || from[*ret_len - 1] == '\t'))
        (*ret_len)--;
    return *ret_len ? from : NULL;
}

/* The value of a cookie with this name, or NULL; *ret_len is its length. */
static const char *value_of(const char *cookie, const char *name, size_t *ret_len)
{
    size_t len = strlen(name);

    if (*ret_len <= len || strncmp(cookie, name, len) != 0 || cookie[len] != '=')
        return NULL;
    *ret_len -= len + 1;
    return cookie + len + 1;
}

/* Pages of sandboxes may have set cookies with this name for the whole domain: the header
 * selects the right one, and without it there must be only one. */
static void find_session(struct exchange *exchange)
{
    const char *at = exchange_header(exchange, "Cookie");
    const char *csrf = exchange_header(exchange, "X-Cay-Csrf"), *cookie;
    char name[32], value[CREDENTIAL_MAX];
    unsigned found = 0;
    size_t len;

    snprintf(name, sizeof name, "%s%s", exchange_is_secure(exchange) ? host_prefix : "",
             cookie_name);
    while (at && found < COOKIES_MAX && (cookie = next_cookie(&at, &len))) {
        const char *text = value_of(cookie, name, &len);
        if (!text || !len || len >= sizeof value)
            continue;
        memcpy(value, text, len);
        value[len] = '\0';
        if (strcmp(value, exchange->session) == 0)
            continue;
        found++;
        memcpy(exchange->session, value, len + 1);
        exchange->has_csrf = is_csrf(value, csrf);
        if (exchange->has_csrf)
            return;
    }
    if (found > 1)
        exchange->session[0] = '\0';
}

/* Browsers report where a request comes from, at least to servers with TLS. */
static bool is_own_page(const struct exchange *exchange)
{
    const char *site = exchange_header(exchange, "Sec-Fetch-Site");
    const char *origin = exchange_header(exchange, "Origin");

    if (site && strcmp(site, "same-origin") != 0 && strcmp(site, "none") != 0)
        return false;
    /* route_find() has compared the host. */
    return !origin || !exchange_is_secure(exchange) ||
           strncasecmp(origin, "https://", 8) == 0;
}

static bool has_other_credential(const struct exchange *exchange)
{
    const char *bearer = exchange_header(exchange, "Authorization");

    return exchange_header(exchange, "X-API-KEY") ||
           exchange_header(exchange, "X-Access-Token") ||
           (bearer && strncasecmp(bearer, "Bearer ", 7) == 0) ||
           (exchange->route.plane == PLANE_ENVD &&
            exchange_query(exchange, "signature")) ||
           (exchange->handler &&
            request_credential(exchange->handler->op) == CREDENTIAL_UPLOAD);
}

static bool is_safe(const struct exchange *exchange)
{
    return strcmp(exchange->method, "GET") == 0 || strcmp(exchange->method, "HEAD") == 0;
}

/* A link to a file cannot have headers. */
static void take_sandbox(struct exchange *exchange)
{
    const char *id = exchange_query(exchange, "sandbox");

    if (exchange->route.plane == PLANE_ENVD && !*exchange->route.sandbox && id &&
        is_safe(exchange))
        cay_copy_text(exchange->route.sandbox, SANDBOX_ID_MAX,
                      strlen(id) < SANDBOX_ID_MAX ? id : "-");
}

const char *front_session_take(struct exchange *exchange)
{
    if (!exchange->is_own_host || exchange->route.plane == PLANE_PORT ||
        exchange->handler->ignores_session || has_other_credential(exchange))
        return NULL;
    find_session(exchange);
    if (!*exchange->session)
        return NULL;
    if (!is_own_page(exchange)) {
        exchange->session[0] = '\0';
        return is_safe(exchange) ? NULL
                                 : "requests of other pages cannot use the session";
    }
    if (!is_safe(exchange) && !exchange->has_csrf)
        return "requests with the cookie of a session need the header X-Cay-Csrf; "
               "GET /ui/session returns its value";
    take_sandbox(exchange);
    if (exchange->route.plane != PLANE_CONTROL && !*exchange->route.sandbox)
        exchange->session[0] = '\0'; /* it cannot tell which one */
    return NULL;
}

void front_session_copy_cookies(const char *header, struct buf *to)
{
    bool is_first = true;
    const char *cookie;
    size_t len;

    while ((cookie = next_cookie(&header, &len))) {
        static const char other_name[] = "cay_csrf";
        size_t prefix = strncmp(cookie, host_prefix, strlen(host_prefix)) == 0
                            ? strlen(host_prefix)
                            : 0;
        const char *name = cookie + prefix;
        if (strncmp(name, cookie_name, strlen(cookie_name)) == 0 ||
            strncmp(name, other_name, strlen(other_name)) == 0)
            continue;
        buf_format(to, "%s%.*s", is_first ? "Cookie: " : "; ", (int)len, cookie);
        is_first = false;
    }
    if (!is_first)
        buf_text(to, "\r\n");
}

/* --- Logins, limited for each address --- */

/* A bucket has tokens, and gets one a second up to the most. */
enum { LOGINS_MOST = 30, ALL_MOST = 300, ALL_PER_S = 50, ADDRESSES = 256 };

struct bucket {
    unsigned char address[8]; /* IPv4, or the network of IPv6 */
    uint64_t since_ms;        /* tokens are counted from here */
    unsigned tokens;
};

static bool take_token(struct bucket *bucket, uint64_t now_ms, unsigned most,
                       unsigned per_s)
{
    uint64_t gained = (now_ms - bucket->since_ms) * per_s / 1000;

    if (gained) {
        bucket->tokens =
            bucket->tokens + gained > most ? most : bucket->tokens + (unsigned)gained;
        bucket->since_ms = now_ms;
    }
    if (!bucket->tokens)
        return false;
    bucket->tokens--;
    return true;
}

static void put_address(const struct sockaddr *from, unsigned char ret_address[8])
{
    const struct sockaddr_in *four = (const void *)from;
    const struct sockaddr_in6 *six = (const void *)from;

    memset(ret_address, 0, 8);
    if (from && from->sa_family == AF_INET)
        memcpy(ret_address, &four->sin_addr, 4);
    else if (from && from->sa_family == AF_INET6)
        memcpy(ret_address, &six->sin6_addr, 8);
}

static bool is_loopback(const struct sockaddr *from)
{
    const struct sockaddr_in *four = (const void *)from;
    const struct sockaddr_in6 *six = (const void *)from;

    return from &&
           (from->sa_family == AF_INET
                ? ntohl(four->sin_addr.s_addr) >> 24 == 127
                : from->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&six->sin6_addr));
}

/* The client's, or that which a proxy on this machine reports for it. */
static void find_address(const struct exchange *exchange, unsigned char ret_address[8])
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(exchange->connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    const char *forwarded = exchange_header(exchange, "X-Forwarded-For");
    struct in6_addr six;
    struct in_addr four;

    put_address(info ? info->client_addr : NULL, ret_address);
    if (!info || !forwarded || !is_loopback(info->client_addr))
        return;
    const char *last = strrchr(forwarded, ',');
    last = last ? last + 1 : forwarded;
    last += strspn(last, " \t");
    if (inet_pton(AF_INET, last, &four) == 1) {
        memset(ret_address, 0, 8);
        memcpy(ret_address, &four, sizeof four);
    } else if (inet_pton(AF_INET6, last, &six) == 1) {
        memcpy(ret_address, &six, 8);
    }
}

static bool may_sign_in(const struct exchange *exchange)
{
    static struct bucket buckets[ADDRESSES], all = {.tokens = ALL_MOST};
    static size_t count;
    uint64_t now_ms = uv_now(&exchange->front->loop);
    unsigned char address[8];
    struct bucket *oldest = buckets, *bucket = buckets;

    find_address(exchange, address);
    while (bucket < buckets + count && memcmp(bucket->address, address, 8) != 0) {
        oldest = bucket->since_ms < oldest->since_ms ? bucket : oldest;
        bucket++;
    }
    if (bucket == buckets + count) {
        bucket = count < ADDRESSES ? &buckets[count++] : oldest;
        *bucket = (struct bucket){.since_ms = now_ms, .tokens = LOGINS_MOST};
        memcpy(bucket->address, address, 8);
    }
    return take_token(bucket, now_ms, LOGINS_MOST, 1) &&
           take_token(&all, now_ms, ALL_MOST, ALL_PER_S);
}

/* --- /ui/session --- */

static void sign_in(struct exchange *exchange)
{
    json_t *root = exchange->body.len ? connect_body(exchange, false) : NULL;
    struct fields fields = {.object = root};
    struct request request;

    const char *key = root ? field_text(&fields, "apiKey") : NULL;
    if (!may_sign_in(exchange)) {
        exchange_refuse(exchange, 429, "too many logins from this address; wait a while");
    } else if (!key || fields.wrong) {
        exchange_refuse(exchange, 400, "the body must be {\"apiKey\": \"e2b_...\"}");
    } else {
        exchange_init_request(exchange, OP_SESSION_NEW, &request);
        memset(request.credential, 0, sizeof request.credential);
        cay_copy_text(request.credential, CREDENTIAL_MAX,
                      strlen(key) < CREDENTIAL_MAX ? key : "-");
        exchange_send(exchange, &request, NO_STRINGS);
        explicit_bzero(&request, sizeof request);
    }
    json_decref(root);
    if (exchange->body.data)
        explicit_bzero(exchange->body.data, exchange->body.len);
}

static void set_cookie(struct exchange *exchange, const char *name, const char *value,
                       bool is_hidden)
{
    bool secure = exchange_is_secure(exchange);
    char text[HEADER_ROOM + CREDENTIAL_MAX];

    if (!exchange->response)
        return;
    snprintf(text, sizeof text, "%s%s=%s; %sSameSite=Strict; Path=/; Max-Age=%d%s",
             is_hidden && secure ? host_prefix : "", name, value,
             is_hidden ? "HttpOnly; " : "", *value ? MAX_AGE_S : 0,
             secure ? "; Secure" : "");
    (void)MHD_add_response_header(exchange->response, "Set-Cookie", text);
    explicit_bzero(text, sizeof text);
}

/* "": removes the cookies. */
static void set_cookies(struct exchange *exchange, const char *session)
{
    char csrf[CSRF_MAX] = "";

    if (*session)
        put_csrf(session, csrf);
    set_cookie(exchange, cookie_name, session, true);
    set_cookie(exchange, "cay_csrf", csrf, false);
    if (exchange->response)
        (void)MHD_add_response_header(exchange->response, "Cache-Control", "no-store");
}

static void on_signed_in(struct exchange *exchange, struct reply_packet *reply)
{
    const char *tenant = reply_next(reply, NULL);
    const char *session = tenant ? reply_next(reply, tenant) : NULL;

    if (reply->head.kind != REPLY_TEXT || !session) {
        exchange_refuse_with(exchange, reply);
        return;
    }
    exchange_respond_empty(exchange, 204);
    set_cookies(exchange, session);
    explicit_bzero(reply->payload, reply->head.len);
}

static void use_session(struct exchange *exchange)
{
    if (*exchange->session)
        exchange_send_plain(exchange);
    else
        exchange_refuse(exchange, 401, "the request has no session; sign in");
}

static void on_session(struct exchange *exchange, struct reply_packet *reply)
{
    int64_t expires_s = reply->head.numbers[SESSION_EXPIRES_S];
    struct json *json = exchange_json(exchange, BODY_SMALL);
    char csrf[CSRF_MAX];

    put_csrf(exchange->session, csrf);
    json_put_object(json);
    json_set_text(json, "tenant", reply_next(reply, NULL));
    json_set_text(json, "csrf", csrf);
    json_set_bool(json, "admin", reply->head.numbers[SESSION_IS_ADMIN]);
    connect_put_time(json, "expiresAt", expires_s, 0, 3);
    exchange_end_json(exchange, 200);
    if (exchange->response)
        (void)MHD_add_response_header(exchange->response, "Cache-Control", "no-store");
}

static void on_signed_out(struct exchange *exchange, struct reply_packet *reply)
{
    (void)reply;
    exchange_respond_empty(exchange, 204);
    set_cookies(exchange, "");
}

/* The browser need not send it again. */
static void on_no_session(struct exchange *exchange, const struct reply_packet *reply)
{
    exchange_refuse_with(exchange, reply);
    if (exchange->status == 401)
        set_cookies(exchange, "");
}

#define ON(name, route, action, replied, operation, ...)                                 \
    {                                                                                    \
        .method = (name), .path = (route), .act = (action), .on_reply = (replied),       \
        .op = (operation), __VA_ARGS__                                                   \
    }

const struct handler session_handlers[] = {
    ON("POST", "/ui/session", sign_in, on_signed_in, OP_SESSION_NEW,
       .on_error = exchange_refuse_with, .body_max = 4096, .ignores_session = true),
    ON("GET", "/ui/session", use_session, on_session, OP_SESSION,
       .on_error = on_no_session),
    ON("DELETE", "/ui/session", use_session, on_signed_out, OP_SESSION_END,
       .on_error = on_no_session),
    {0},
};
