/* SPDX-License-Identifier: Apache-2.0 */

/* Webhooks: a process of the server that follows the audit record and posts lines of it,
 * by the conventions of Standard Webhooks.  It is separate since the broker never waits,
 * and since neither the front nor a keeper may have the secret. */
#include "server/broker/hooks.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <gnutls/gnutls.h>
#include <netdb.h>
#include <nettle/base64.h>
#include <nettle/hmac.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/error.h"
#include "server/broker/audit.h"
#include "server/broker/broker.h"
#include "server/wire/warn.h"

enum {
    SECRET_LEAST = 16, /* bytes, decoded */
    SECRET_MOST = 64,
    PATIENCE_S = 10, /* for a connection, and for each part of the reply */
    LOOK_MS = 200,   /* between two looks at the record */
    WAIT_MS = 1000,  /* before the first repetition; doubled each time */
    WAIT_MAX_MS = 60000,
    TRIES = 20 /* about a quarter of an hour */
};

static const char op[] = "serve.webhook";

/* --- Options --- */

struct hook_url {
    bool has_tls;
    char host[256], port[8];
    char authority[272]; /* host and port, as in the URL */
    char path[1024];
};

static bool parse_url(const char *text, struct hook_url *ret_url)
{
    static const char plain[] = "http://", secure[] = "https://";
    struct hook_url *url = ret_url;

    *url = (struct hook_url){.has_tls = strncmp(text, secure, strlen(secure)) == 0};
    if (!url->has_tls && strncmp(text, plain, strlen(plain)) != 0)
        return false;
    for (const char *at = text; *at; at++)
        if (!isgraph((unsigned char)*at))
            return false;
    text += url->has_tls ? strlen(secure) : strlen(plain);
    size_t len = strcspn(text, "/?#"), rest = strlen(text + len);
    bool is_bracketed = *text == '[';
    size_t host = is_bracketed ? strcspn(text, "]") + 1 : strcspn(text, ":/?#");
    if (!len || len >= sizeof url->authority || rest + 1 >= sizeof url->path ||
        host > len || memchr(text, '@', len) || strchr(text, '#') ||
        host - 2 * is_bracketed >= sizeof url->host)
        return false;
    memcpy(url->authority, text, len);
    memcpy(url->host, text + is_bracketed, host - 2 * is_bracketed);
    snprintf(url->path, sizeof url->path, "%s%s", text[len] == '/' ? "" : "/",
             text + len);
    const char *port = url->authority + host;
    if (*port && (*port != ':' || strlen(port + 1) > 5 ||
                  strspn(port + 1, "0123456789") != strlen(port + 1)))
        return false;
    snprintf(url->port, sizeof url->port, "%s",
             *port && port[1] ? port + 1
             : url->has_tls   ? "443"
                              : "80");
    return *url->host;
}

struct hook_secret {
    uint8_t bytes[SECRET_MOST + 16];
    size_t len;
};

/* "whsec_" and base64. */
static int read_secret(const char *path, struct hook_secret *ret_secret,
                       struct cay_error *err)
{
    static const char prefix[] = "whsec_";
    char text[160] = "";
    struct base64_decode_ctx ctx;
    size_t len = sizeof ret_secret->bytes;
    AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof text - 1);

    if (got < 0)
        return cay_fail_errno(err, errno, op, path);
    text[strcspn(text, "\r\n")] = '\0';
    size_t room = strlen(text) < strlen(prefix) ? 0 : strlen(text) - strlen(prefix);
    base64_decode_init(&ctx);
    bool is_valid = room && BASE64_DECODE_LENGTH(room) <= sizeof ret_secret->bytes &&
                    strncmp(text, prefix, strlen(prefix)) == 0 &&
                    base64_decode_update(&ctx, &len, ret_secret->bytes, room,
                                         text + strlen(prefix)) &&
                    base64_decode_final(&ctx) && len >= SECRET_LEAST &&
                    len <= SECRET_MOST;
    explicit_bzero(text, sizeof text);
    if (!is_valid)
        return cay_fail(err, CAY_E_INVALID, 0, op, path, "invalid secret of a webhook",
                        "write whsec_ and 16 to 64 random bytes as base64: echo "
                        "whsec_$(openssl rand -base64 32)");
    ret_secret->len = len;
    return CAY_OK;
}

int hooks_check(const struct serve_options *options, const char *store,
                struct cay_error *err)
{
    struct hook_secret secret;
    struct hook_url url;

    if (!options->webhook)
        return CAY_OK;
    if (!parse_url(options->webhook, &url))
        return cay_fail(err, CAY_E_INVALID, 0, op, "--webhook", "invalid URL",
                        "give one like https://example.com/cay, without a user");
    if (!options->webhook_secret_file)
        return cay_fail(err, CAY_E_INVALID, 0, op, "--webhook",
                        "the secret for signatures is missing",
                        "give it with --webhook-secret-file");
    if (!options->audit_days || strcmp(store, ":memory:") == 0)
        return cay_fail(err, CAY_E_INVALID, 0, op, "--webhook",
                        "webhooks need the audit record",
                        "give --audit-days and a --store on disk");
    int code = read_secret(options->webhook_secret_file, &secret, err);
    explicit_bzero(&secret, sizeof secret);
    return code;
}

/* --- One request --- */

struct hooks {
    int socket; /* of the broker, which sends nothing */
    struct hook_url url;
    struct hook_secret secret;
    gnutls_certificate_credentials_t trust;
    char record[PATH_MAX], cursor_path[PATH_MAX];
    uint64_t cursor; /* number of the last line that is done */
    uint64_t saved;  /* in the file */
};

static int connect_to(const struct hook_url *url)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    const struct timeval patience = {.tv_sec = PATIENCE_S};
    struct addrinfo *found = NULL;
    int fd = -1;

    if (getaddrinfo(url->host, url->port, &hints, &found) != 0)
        return -1;
    for (const struct addrinfo *at = found; at && fd < 0; at = at->ai_next) {
        fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0)
            continue;
        (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
        (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
        if (connect(fd, at->ai_addr, at->ai_addrlen) != 0) {
            (void)close(fd);
            fd = -1;
        }
    }
    freeaddrinfo(found);
    return fd;
}

/* The status of the reply, from its first line; 0: none. */
static int parse_status(const char *reply, size_t len)
{
    static const char version[] = "HTTP/1.";
    const size_t at = strlen(version) + strlen("1 ");

    if (len < at + 3 || strncmp(reply, version, strlen(version)) != 0 ||
        reply[at - 1] != ' ')
        return 0;
    return (int)strtol((const char[]){reply[at], reply[at + 1], reply[at + 2], '\0'},
                       NULL, 10);
}

enum { REPLY_HEAD = 64 };

static int talk_plain(int fd, const struct buf *request)
{
    char reply[REPLY_HEAD];
    size_t sent = 0, len = 0;
    ssize_t got = 1;

    while (sent < request->len && got > 0) {
        got = send(fd, request->data + sent, request->len - sent, MSG_NOSIGNAL);
        sent += got > 0 ? (size_t)got : 0;
    }
    while (got > 0 && len < sizeof reply && !memchr(reply, '\n', len)) {
        got = recv(fd, reply + len, sizeof reply - len, 0);
        len += got > 0 ? (size_t)got : 0;
    }
    return parse_status(reply, len);
}

/* GnuTLS also returns after what is not data, such as the tickets of TLS 1.3. */
static ssize_t receive_tls(gnutls_session_t session, char *data, size_t room)
{
    uint64_t end_ms = clock_ms() + PATIENCE_S * UINT64_C(1000);
    ssize_t got;

    do
        got = gnutls_record_recv(session, data, room);
    while ((got == GNUTLS_E_AGAIN || got == GNUTLS_E_INTERRUPTED) && clock_ms() < end_ms);
    return got;
}

static int talk_tls(const struct hooks *hooks, int fd, const struct buf *request)
{
    char reply[REPLY_HEAD];
    size_t sent = 0, len = 0;
    ssize_t got = 1;
    gnutls_session_t session;

    if (gnutls_init(&session, GNUTLS_CLIENT | GNUTLS_NO_SIGNAL) != GNUTLS_E_SUCCESS)
        return 0;
    gnutls_transport_set_int(session, fd);
    gnutls_session_set_verify_cert(session, hooks->url.host, 0);
    gnutls_handshake_set_timeout(session, PATIENCE_S * 1000);
    bool is_ready = gnutls_set_default_priority(session) == GNUTLS_E_SUCCESS &&
                    gnutls_credentials_set(session, GNUTLS_CRD_CERTIFICATE,
                                           hooks->trust) == GNUTLS_E_SUCCESS &&
                    gnutls_server_name_set(session, GNUTLS_NAME_DNS, hooks->url.host,
                                           strlen(hooks->url.host)) == GNUTLS_E_SUCCESS &&
                    gnutls_handshake(session) == GNUTLS_E_SUCCESS;
    while (is_ready && sent < request->len && got > 0) {
        got = gnutls_record_send(session, request->data + sent, request->len - sent);
        sent += got > 0 ? (size_t)got : 0;
    }
    while (is_ready && got > 0 && len < sizeof reply && !memchr(reply, '\n', len)) {
        got = receive_tls(session, reply + len, sizeof reply - len);
        len += got > 0 ? (size_t)got : 0;
    }
    gnutls_deinit(session);
    return parse_status(reply, len);
}

/* "v1," and the HMAC of "ID.TIME.BODY" as base64. */
static void sign(const struct hook_secret *secret, const char *id, long long now_s,
                 const char *body, char ret_text[BASE64_ENCODE_RAW_LENGTH(32) + 1])
{
    uint8_t digest[SHA256_DIGEST_SIZE];
    struct hmac_sha256_ctx hmac;
    char head[AUDIT_HASH + 32];

    int len = snprintf(head, sizeof head, "%s.%lld.", id, now_s);
    hmac_sha256_set_key(&hmac, secret->len, secret->bytes);
    hmac_sha256_update(&hmac, (size_t)len, (const uint8_t *)head);
    hmac_sha256_update(&hmac, strlen(body), (const uint8_t *)body);
    hmac_sha256_digest(&hmac, sizeof digest, digest);
    base64_encode_raw(ret_text, sizeof digest, digest);
    ret_text[BASE64_ENCODE_RAW_LENGTH(sizeof digest)] = '\0';
}

/* The status; 0: no reply. */
static int post(const struct hooks *hooks, const char *id, const char *body)
{
    enum { HEAD_MAX = 4096 };
    const struct hook_url *url = &hooks->url;
    char signature[BASE64_ENCODE_RAW_LENGTH(SHA256_DIGEST_SIZE) + 1];
    AUTO_BUF request = {.max = AUDIT_LINE_MAX + HEAD_MAX};
    long long now_s = clock_since_1970_ms() / 1000;

    sign(&hooks->secret, id, now_s, body, signature);
    buf_format(&request,
               "POST %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: cay/" CAY_VERSION
               "\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n"
               "Connection: close\r\nwebhook-id: %s\r\nwebhook-timestamp: %lld\r\n"
               "webhook-signature: v1,%s\r\n\r\n",
               url->path, url->authority, strlen(body), id, now_s, signature);
    (void)buf_text(&request, body);
    AUTO_FD fd = request.failed ? -1 : connect_to(url);
    if (fd < 0)
        return 0;
    return url->has_tls ? talk_tls(hooks, fd, &request) : talk_plain(fd, &request);
}

/* --- The record --- */

static void wait_or_exit(const struct hooks *hooks, int ms)
{
    struct pollfd broker = {.fd = hooks->socket, .events = POLLIN};

    if (poll(&broker, 1, ms) != 0)
        _exit(0);
}

/* Replaced by a rename, so that it is never half written. */
static void save_cursor(struct hooks *hooks)
{
    char path[PATH_MAX + 8];
    AUTO_FD fd = -1;

    hooks->saved = hooks->cursor;
    snprintf(path, sizeof path, "%s.new", hooks->cursor_path);
    (void)unlink(path);
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd >= 0 && dprintf(fd, "%llu\n", (unsigned long long)hooks->cursor) > 0)
        (void)rename(path, hooks->cursor_path);
}

static bool load_cursor(struct hooks *hooks)
{
    char text[32] = "";
    AUTO_FD fd = open(hooks->cursor_path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

    if (fd < 0 || read(fd, text, sizeof text - 1) <= 0)
        return false;
    hooks->cursor = strtoull(text, NULL, 10);
    return true;
}

/* Quotes inside of values are escaped, so these can only be the members themselves. */
static bool is_wanted(const char *line)
{
    return strstr(line, ",\"action\":\"sandbox.") ||
           strstr(line, ",\"verdict\":\"deny\"");
}

/* Repeats it until it is received or too old: later lines wait, so that they arrive in
 * order. */
static void deliver(const struct hooks *hooks, const struct audit_line *line)
{
    static struct warn warn;
    int wait_ms = WAIT_MS, status = 0;

    for (int i = 0; i < TRIES; i++) {
        status = post(hooks, line->hash, line->text);
        if (status >= 200 && status < 300)
            return;
        if (i == 0)
            warn_line(&warn,
                      "the webhook did not accept an event (status %d); trying again",
                      status);
        wait_or_exit(hooks, wait_ms);
        wait_ms = wait_ms < WAIT_MAX_MS / 2 ? 2 * wait_ms : WAIT_MAX_MS;
    }
    warn_line(&warn, "the webhook did not accept event %llu (status %d); it is dropped",
              (unsigned long long)line->number, status);
}

static void on_line(const struct audit_line *line, void *cookie)
{
    struct hooks *hooks = cookie;

    if (line->number <= hooks->cursor)
        return;
    bool is_event = is_wanted(line->text);
    if (is_event)
        deliver(hooks, line);
    hooks->cursor = line->number;
    if (is_event) /* clients write the others by the thousand: these are saved together */
        save_cursor(hooks);
}

static void skip_line(const struct audit_line *line, void *cookie)
{
    struct hooks *hooks = cookie;

    hooks->cursor = line->number;
}

static _Noreturn void hooks_run(int socket, const struct serve_options *options,
                                const char *store)
{
    static struct hooks hooks;
    struct audit_place place = {0};
    struct cay_error error;

    hooks.socket = socket;
    snprintf(hooks.record, sizeof hooks.record, "%s%s", store, AUDIT_SUFFIX);
    snprintf(hooks.cursor_path, sizeof hooks.cursor_path, "%s-webhook", store);
    if (!parse_url(options->webhook, &hooks.url) ||
        read_secret(options->webhook_secret_file, &hooks.secret, &error) != CAY_OK ||
        gnutls_certificate_allocate_credentials(&hooks.trust) != GNUTLS_E_SUCCESS)
        _exit(1);
    (void)gnutls_certificate_set_x509_system_trust(hooks.trust);
    if (!load_cursor(&hooks)) { /* only what happens from now on */
        audit_follow(hooks.record, &place, skip_line, &hooks);
        save_cursor(&hooks);
    }
    for (;;) {
        audit_follow(hooks.record, &place, on_line, &hooks);
        if (hooks.saved != hooks.cursor)
            save_cursor(&hooks);
        wait_or_exit(&hooks, LOOK_MS);
    }
}

/* --- The process --- */

enum { AGAIN_MS = 1000 };

/* It sends nothing; SIGCHLD follows. */
static void on_socket(struct broker *broker, struct source *source)
{
    const struct hooks_process *process = (const struct hooks_process *)source;

    broker_poll_remove(broker, process->socket);
}

static void lose(struct broker *broker)
{
    struct hooks_process *process = &broker->hooks;

    broker_poll_remove(broker, process->socket);
    (void)close(process->socket);
    *process = (struct hooks_process){.socket = -1};
    broker_wake_at(broker, server_clock_ms() + AGAIN_MS);
}

void hooks_start(struct broker *broker)
{
    struct hooks_process *process = &broker->hooks;
    const struct serve_options options = *broker->options;
    int ends[2];

    if (!options.webhook || process->pid || broker->drain_end_ms)
        return;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) !=
        0) {
        broker_wake_at(broker, server_clock_ms() + AGAIN_MS);
        return;
    }
    process->source.ready = on_socket;
    process->socket = ends[0];
    process->pid = broker_poll_add(broker, ends[0], &process->source)
                       ? fork() /* allow: fork the webhooks; there are no threads */
                       : -1;
    if (process->pid == 0) {
        keepers_leave_broker(broker, ends[1], "cay-webhooks");
        hooks_run(KEPT_FD, &options, registry_path(broker->registry));
    }
    (void)close(ends[1]);
    if (process->pid < 0)
        lose(broker);
}

void hooks_reaped(struct broker *broker, pid_t pid)
{
    if (broker->hooks.pid && broker->hooks.pid == pid)
        lose(broker);
}
