/* SPDX-License-Identifier: Apache-2.0 */

/* A message about a request, to the user's own server.  Both directions are signed with a
 * secret that the two share, so that neither another server nor one in between can allow
 * anything: the signature of a reply covers that of the message, which has the time. */
#include <errno.h>
#include <jansson.h>
#include <nettle/hmac.h>
#include <nettle/memops.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"
#include "cay/approval.h"
#include "sys/curl.h"
#include "sys/sigpipe.h"
#include "json/json.h"

static const char op[] = "approval.webhook";

enum {
    HEX = 2 * SHA256_DIGEST_SIZE + 1,
    URL_MAX = 2048,
    SECRET_MIN = 16,
    SECRET_MAX = 4096,
    REPLY_MAX = 16 << 10,
    BODY_MAX = 6 * (int)CAY_PENDING_CONTENT_MAX + (128 << 10), /* escaped */
    USUAL_MS = 10000,
    LONGEST_MS = 60000
};

/* --- Checks --- */

/* Plain HTTP would show the content to the network. */
static bool is_local(const char *authority, size_t len)
{
    static const char *const hosts[] = {"127.0.0.1", "localhost", "[::1]"};

    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
        size_t host = strlen(hosts[i]);
        if (len >= host && strncasecmp(authority, hosts[i], host) == 0 &&
            (len == host ||
             (authority[host] == ':' &&
              strspn(authority + host + 1, "0123456789") + host + 1 == len)))
            return true;
    }
    return false;
}

static bool is_allowed(const char *url)
{
    bool is_tls = strncasecmp(url, "https://", 8) == 0;

    if (!is_tls && strncasecmp(url, "http://", 7) != 0)
        return false;
    const char *authority = url + (is_tls ? 8 : 7);
    size_t len = strcspn(authority, "/?#");
    return len && !memchr(authority, '@', len) && !strpbrk(url, " \t\r\n\\") &&
           strlen(url) < URL_MAX && (is_tls || is_local(authority, len));
}

static int check(const struct cay_webhook *hook, struct cay_error *err)
{
    size_t len = hook->secret ? strlen(hook->secret) : 0;

    if (!hook->url || !is_allowed(hook->url))
        return cay_fail(err, CAY_E_INVALID, 0, op, "url", "invalid address of a webhook",
                        "use https://HOST/PATH, or http:// for a server on 127.0.0.1");
    if (len < SECRET_MIN || len > SECRET_MAX)
        return cay_fail(
            err, CAY_E_INVALID, 0, op, "secret", "invalid secret of a webhook",
            "use a line of %d to %d random characters", SECRET_MIN, SECRET_MAX);
    if (hook->timeout_ms > LONGEST_MS)
        return cay_fail(err, CAY_E_INVALID, 0, op, "timeout", "the timeout is too long",
                        "the limit is 60 seconds");
    return CAY_OK;
}

/* --- Signatures --- */

/* Of `before`, a dot and the bytes. */
static void sign(const char *secret, const char *before, const void *bytes, size_t len,
                 char ret_hex[HEX])
{
    uint8_t digest[SHA256_DIGEST_SIZE];
    struct hmac_sha256_ctx hmac;

    hmac_sha256_set_key(&hmac, strlen(secret), (const uint8_t *)secret);
    hmac_sha256_update(&hmac, strlen(before), (const uint8_t *)before);
    hmac_sha256_update(&hmac, 1, (const uint8_t *)".");
    hmac_sha256_update(&hmac, len, bytes);
    hmac_sha256_digest(&hmac, sizeof digest, digest);
    explicit_bzero(&hmac, sizeof hmac);
    for (size_t i = 0; i < sizeof digest; i++)
        snprintf(ret_hex + 2 * i, 3, "%02x", digest[i]);
}

/* --- The message --- */

static void set_bytes(struct json *json, const char *key, const char *text, size_t len)
{
    json_put_key(json, key);
    json_put_bytes(json, text, len);
}

static int make_body(const char *id, struct buf *body, struct cay_error *err)
{
    AUTO_FREE struct cay_pending *pending = calloc(1, sizeof *pending);
    AUTO_FREE char *content = NULL;
    struct json json;

    if (!pending)
        return cay_fail_memory(err, op);
    TRY(cay_pending_find(id, pending, &content, err));
    json_to_unicode(&json, body);
    json_put_object(&json);
    json_set_text(&json, "id", pending->id);
    json_set_text(&json, "kind", pending->kind);
    set_bytes(&json, "scope", pending->scope, strlen(pending->scope));
    set_bytes(&json, "subject", pending->subject, strlen(pending->subject));
    set_bytes(&json, "summary", pending->summary, strlen(pending->summary));
    json_set_int(&json, "created_ms", pending->created_ms);
    json_set_int(&json, "expires_ms", pending->expires_ms);
    set_bytes(&json, "content", content, pending->content_len);
    json_put_end(&json);
    return json_finish(&json) ? CAY_OK : cay_fail_memory(err, op);
}

struct exchange {
    CURL *easy;
    struct curl_slist *headers;
    bool is_out_of_memory;
    struct buf reply;
    char signature[HEX]; /* of the reply; "": none */
};

static void exchange_done(struct exchange *exchange)
{
    if (exchange->headers)
        libcurl.curl_slist_free_all(exchange->headers);
    if (exchange->easy)
        libcurl.curl_easy_cleanup(exchange->easy);
    buf_done(&exchange->reply);
}

static size_t receive_body(char *data, size_t one, size_t len, void *cookie)
{
    struct exchange *exchange = cookie;

    return buf_append(&exchange->reply, data, one * len) ? one * len : 0;
}

static size_t receive_header(char *data, size_t one, size_t len, void *cookie)
{
    static const char name[] = "Cay-Signature: sha256=";
    struct exchange *exchange = cookie;
    const size_t start = sizeof name - 1;

    if (one * len >= start + HEX - 1 && strncasecmp(data, name, start) == 0) {
        memcpy(exchange->signature, data + start, HEX - 1);
        exchange->signature[HEX - 1] = '\0';
    }
    return one * len;
}

static void add_header(struct exchange *exchange, const char *line)
{
    struct curl_slist *more = libcurl.curl_slist_append(exchange->headers, line);

    exchange->is_out_of_memory |= !more;
    if (more)
        exchange->headers = more;
}

#define SET(option, value) libcurl.curl_easy_setopt(easy, CURLOPT_##option, value)

static void set_options(struct exchange *exchange, const struct cay_webhook *hook,
                        const struct buf *body)
{
    CURL *easy = exchange->easy;
    const char *authorities = getenv("SSL_CERT_FILE");
    uint64_t timeout = hook->timeout_ms ? hook->timeout_ms : USUAL_MS;

    SET(URL, hook->url);
    SET(NOSIGNAL, 1L);
    SET(PROTOCOLS_STR, "http,https");
    SET(FOLLOWLOCATION, 0L);
    SET(SSL_VERIFYPEER, 1L);
    SET(SSL_VERIFYHOST, 2L);
    SET(HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    SET(TIMEOUT_MS, (long)timeout);
    if (authorities && *authorities)
        SET(CAINFO, authorities);
    if (strncasecmp(hook->url, "http:", 5) == 0)
        SET(PROXY, "");
    SET(POST, 1L);
    SET(POSTFIELDS, body->data);
    SET(POSTFIELDSIZE_LARGE, (curl_off_t)body->len);
    SET(HTTPHEADER, exchange->headers);
    SET(WRITEFUNCTION, receive_body);
    SET(WRITEDATA, exchange);
    SET(HEADERFUNCTION, receive_header);
    SET(HEADERDATA, exchange);
}

static int perform(struct exchange *exchange, struct cay_error *err)
{
    sigset_t before;
    long status = 0;

    sigpipe_block(&before);
    CURLcode code = libcurl.curl_easy_perform(exchange->easy);
    sigpipe_restore(&before);
    libcurl.curl_easy_getinfo(exchange->easy, CURLINFO_RESPONSE_CODE, &status);
    if (code == CURLE_WRITE_ERROR)
        return cay_fail(err, CAY_E_PROTOCOL, 0, op, "reply",
                        "the reply of the webhook is too large", "the limit is 16 KiB");
    if (code != CURLE_OK)
        return cay_fail(err, CAY_E_UNAVAILABLE, 0, op, "webhook",
                        libcurl.curl_easy_strerror(code),
                        "start the server of the webhook, or correct its address");
    if (status < 200 || status > 299) {
        char why[64];
        snprintf(why, sizeof why, "the webhook replied with status %ld", status);
        return cay_fail(err, CAY_E_UNAVAILABLE, 0, op, "webhook", why,
                        "it has to reply with 200 or 204");
    }
    return CAY_OK;
}

/* --- The reply --- */

static int fail_reply(const char *why, struct cay_error *err)
{
    return cay_fail(err, CAY_E_PROTOCOL, 0, op, "reply", why,
                    "sign {\"verdict\": \"allow\", \"deny\" or \"remember\"} as "
                    "cay-approve(1) describes, or reply without a body");
}

static bool find_verdict(const char *word, enum cay_verdict *ret_verdict)
{
    static const struct {
        const char *word;
        enum cay_verdict verdict;
    } verdicts[] = {{"allow", CAY_VERDICT_APPROVE},
                    {"deny", CAY_VERDICT_DENY},
                    {"remember", CAY_VERDICT_REMEMBER}};

    for (size_t i = 0; word && i < sizeof verdicts / sizeof *verdicts; i++)
        if (strcmp(word, verdicts[i].word) == 0) {
            *ret_verdict = verdicts[i].verdict;
            return true;
        }
    return false;
}

static int apply_reply(const char *id, const struct exchange *exchange,
                       enum cay_decision *ret_decision, struct cay_error *err)
{
    json_t *reply = json_loadb(exchange->reply.data, exchange->reply.len,
                               JSON_REJECT_DUPLICATES, NULL);
    const char *note = json_string_value(json_object_get(reply, "note"));
    enum cay_verdict verdict = CAY_VERDICT_DENY;
    bool is_valid =
        find_verdict(json_string_value(json_object_get(reply, "verdict")), &verdict);
    int code = is_valid ? cay_pending_decide(id, verdict, note, err)
                        : fail_reply("the reply of the webhook has no verdict", err);

    json_decref(reply);
    if (!code)
        *ret_decision = verdict == CAY_VERDICT_DENY ? CAY_DECISION_NO : CAY_DECISION_YES;
    return code;
}

static int send_signed(const struct cay_webhook *hook, const struct buf *body,
                       struct exchange *exchange, char ret_signature[HEX],
                       struct cay_error *err)
{
    char line[HEX + 32], time[32];

    snprintf(time, sizeof time, "%lld", (long long)(clock_since_1970_ms() / 1000));
    sign(hook->secret, time, body->data, body->len, ret_signature);
    add_header(exchange, "Content-Type: application/json");
    add_header(exchange, "Expect:");
    snprintf(line, sizeof line, "Cay-Timestamp: %s", time);
    add_header(exchange, line);
    snprintf(line, sizeof line, "Cay-Signature: sha256=%s", ret_signature);
    add_header(exchange, line);
    if (exchange->is_out_of_memory)
        return cay_fail_memory(err, op);
    set_options(exchange, hook, body);
    return perform(exchange, err);
}

int cay_pending_notify(const struct cay_webhook *hook, const char *id,
                       enum cay_decision *ret_decision, struct cay_error *err)
{
    __attribute__((cleanup(exchange_done))) struct exchange exchange = {
        .reply = {.max = REPLY_MAX}};
    AUTO_BUF body = {.max = BODY_MAX};
    struct cay_webhook known;
    char sent[HEX], wanted[HEX];

    *ret_decision = CAY_DECISION_NONE;
    TRY(cay_take_struct(&known, sizeof known, hook, op, err));
    TRY(check(&known, err));
    TRY(curl_load(op, err));
    TRY(make_body(id, &body, err));
    exchange.easy = libcurl.curl_easy_init();
    if (!exchange.easy)
        return cay_fail_memory(err, op);
    TRY(send_signed(&known, &body, &exchange, sent, err));
    if (!exchange.reply.len)
        return CAY_OK;
    sign(known.secret, sent, exchange.reply.data, exchange.reply.len, wanted);
    if (!memeql_sec(wanted, exchange.signature, HEX))
        return fail_reply("the reply of the webhook is not signed with the secret", err);
    return apply_reply(id, &exchange, ret_decision, err);
}
