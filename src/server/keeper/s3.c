/* SPDX-License-Identifier: Apache-2.0 */
#include "server/keeper/s3.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"
#include "sys/curl.h"
#include "sys/io.h"
#include "sys/sigpipe.h"

static const char op[] = "server.s3";

enum {
    FIRST_WAIT_MS = 100, /* before the second try; three times that before each other */
    CONNECT_MS = 5000,
    STALL_S = 30, /* without STALL_BYTES in each second */
    STALL_BYTES = 100,
    SMALL_S = 120,        /* for a whole request without an archive */
    FREE_MIB = 512,       /* of the disk, which are left */
    FAULT_MAX = 16 << 10, /* bytes of the reply to a request that failed */
    URL_MAX = 8 << 10
};

/* One try. */
struct exchange {
    struct s3 *s3;
    const struct s3_request *request;
    struct curl_slist *headers;
    bool is_out_of_memory;
    uint64_t sent, received;
    int error; /* of a file, or ENOSPC for a buffer that is full */
    struct buf fault;
    char reason[S3_REASON_MAX]; /* "NoSuchBucket"; "": none */
};

static void exchange_done(struct exchange *exchange)
{
    if (exchange->headers)
        libcurl.curl_slist_free_all(exchange->headers);
    buf_done(&exchange->fault);
}
#define AUTO_EXCHANGE __attribute__((cleanup(exchange_done))) struct exchange

int s3_open(const struct serve_options *options, struct s3 *ret_s3, struct cay_error *err)
{
    *ret_s3 = (struct s3){0};
    TRY(bucket_parse(options, &ret_s3->bucket, err));
    TRY(curl_load(op, err));
    TRY(bucket_find_access(options, &ret_s3->access, err));
    ret_s3->easy = libcurl.curl_easy_init();
    if (ret_s3->easy)
        return CAY_OK;
    s3_close(ret_s3);
    return cay_fail_memory(err, op);
}

void s3_close(struct s3 *s3)
{
    explicit_bzero(&s3->access, sizeof s3->access);
    if (s3->easy)
        libcurl.curl_easy_cleanup(s3->easy);
    s3->easy = NULL;
}

/* --- Bodies --- */

static size_t send_body(char *room, size_t one, size_t count, void *cookie)
{
    struct exchange *exchange = cookie;
    const struct s3_request *request = exchange->request;
    uint64_t left = request->len - exchange->sent;
    size_t len = one * count < left ? one * count : (size_t)left;
    ssize_t got = (ssize_t)len;

    if (request->data)
        memcpy(room, request->data + exchange->sent, len);
    else
        got = io_pread(request->from, room, len, exchange->sent);
    if (got < 0 || (size_t)got != len) {
        exchange->error = got < 0 ? (int)-got : EIO;
        return CURL_READFUNC_ABORT;
    }
    exchange->sent += len;
    return len;
}

/* libcurl sends a body again on a connection that the server had closed. */
static int seek_body(void *cookie, curl_off_t offset, int origin)
{
    struct exchange *exchange = cookie;

    if (origin != SEEK_SET || offset < 0 || (uint64_t)offset > exchange->request->len)
        return CURL_SEEKFUNC_FAIL;
    exchange->sent = (uint64_t)offset;
    return CURL_SEEKFUNC_OK;
}

/* 0 or an errno.  A body without an end must not fill the disk. */
static int write_file(int fd, const char *data, size_t len)
{
    struct statvfs space;

    if (fstatvfs(fd, &space) == 0 &&
        (uint64_t)space.f_bavail * space.f_frsize < len + ((uint64_t)FREE_MIB << 20))
        return ENOSPC;
    return -io_write(fd, data, len);
}

static size_t receive_body(char *data, size_t one, size_t count, void *cookie)
{
    struct exchange *exchange = cookie;
    const struct s3_request *request = exchange->request;
    size_t len = one * count;
    long status = 0;

    libcurl.curl_easy_getinfo(exchange->s3->easy, CURLINFO_RESPONSE_CODE, &status);
    if (status != 200) { /* the rest of a long page about the failure is of no use */
        (void)(len <= FAULT_MAX - exchange->fault.len &&
               buf_append(&exchange->fault, data, len));
        return len;
    }
    if (request->body && !buf_append(request->body, data, len))
        exchange->error = ENOSPC;
    else if (!request->body && request->to >= 0)
        exchange->error = write_file(request->to, data, len);
    exchange->received += len;
    return exchange->error ? 0 : len;
}

/* --- The head --- */

static void add_header(struct exchange *exchange, const char *line)
{
    struct curl_slist *more = libcurl.curl_slist_append(exchange->headers, line);

    exchange->is_out_of_memory |= !more;
    if (more)
        exchange->headers = more;
}

static void add_signed(struct exchange *exchange, const char *path, const char *query)
{
    const struct s3 *s3 = exchange->s3;
    const struct s3_request *request = exchange->request;
    char own[S3_HEX + 1], when[S3_TIME + 1], value[S3_AUTHORIZATION_MAX];
    char line[sizeof s3->access.token + 64];
    const char *digest = request->digest;
    time_t now = time(NULL);
    struct tm parts;

    if (!digest)
        s3_digest(request->data ? request->data : "", request->data ? request->len : 0,
                  own);
    digest = digest ? digest : own;
    (void)strftime(when, sizeof when, "%Y%m%dT%H%M%SZ", gmtime_r(&now, &parts));
    const struct s3_head head = {.method = request->method,
                                 .host = s3->bucket.host,
                                 .path = path,
                                 .query = query,
                                 .time = when,
                                 .region = s3->bucket.region,
                                 .digest = digest};
    s3_sign(&head, &s3->access, value);
    snprintf(line, sizeof line, "Host: %s", s3->bucket.host);
    add_header(exchange, line);
    snprintf(line, sizeof line, "X-Amz-Date: %s", when);
    add_header(exchange, line);
    snprintf(line, sizeof line, "X-Amz-Content-Sha256: %s", digest);
    add_header(exchange, line);
    if (*s3->access.token) {
        snprintf(line, sizeof line, "X-Amz-Security-Token: %s", s3->access.token);
        add_header(exchange, line);
    }
    snprintf(line, sizeof line, "Authorization: %s", value);
    add_header(exchange, line);
    explicit_bzero(line, sizeof line);
    if (request->is_new)
        add_header(exchange, "If-None-Match: *");
}

#define SET(option, value) libcurl.curl_easy_setopt(easy, CURLOPT_##option, value)

static void set_options(struct exchange *exchange, const char *url)
{
    const struct s3_request *request = exchange->request;
    CURL *easy = exchange->s3->easy;
    const char *authorities = getenv("SSL_CERT_FILE");
    bool is_put = strcmp(request->method, "PUT") == 0;

    SET(URL, url);
    SET(NOSIGNAL, 1L);
    SET(PROTOCOLS_STR, exchange->s3->bucket.is_plain ? "http" : "https");
    SET(FOLLOWLOCATION, 0L);
    SET(SSL_VERIFYPEER, 1L);
    SET(SSL_VERIFYHOST, 2L);
    SET(HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    SET(CONNECTTIMEOUT_MS, (long)CONNECT_MS);
    SET(LOW_SPEED_LIMIT, (long)STALL_BYTES);
    SET(LOW_SPEED_TIME, (long)STALL_S);
    SET(TIMEOUT, request->from < 0 && request->to < 0 ? (long)SMALL_S : 0L);
    if (authorities && *authorities)
        SET(CAINFO, authorities);
    if (!exchange->s3->bucket.is_remote)
        SET(PROXY, "");
    SET(UPLOAD, is_put ? 1L : 0L);
    SET(INFILESIZE_LARGE, is_put ? (curl_off_t)request->len : (curl_off_t)-1);
    if (!is_put)
        SET(HTTPGET, 1L);
    SET(CUSTOMREQUEST, request->method);
    SET(HTTPHEADER, exchange->headers);
    SET(READFUNCTION, send_body);
    SET(READDATA, exchange);
    SET(SEEKFUNCTION, seek_body);
    SET(SEEKDATA, exchange);
    SET(WRITEFUNCTION, receive_body);
    SET(WRITEDATA, exchange);
}

/* --- What a failure means --- */

/* Only letters, for the log. */
static bool note_reason(void *cookie, const char *path, const char *value)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    struct exchange *exchange = cookie;
    size_t len = strlen(value);

    if (strcmp(path, "Error/Code") == 0 && len < S3_REASON_MAX &&
        strspn(value, letters) == len)
        memcpy(exchange->reason, value, len + 1);
    return true;
}

static int fail_status(const struct exchange *exchange, long status,
                       struct cay_error *err)
{
    const char *reason = exchange->reason;
    char shown[S3_REASON_MAX + 32];
    bool is_bucket = strcmp(reason, "NoSuchBucket") == 0;

    if (status == 404 && !is_bucket)
        return cay_fail(err, CAY_E_NOT_FOUND, 0, op, NULL, "the store has no such object",
                        "check the bucket and the prefix");
    if (exchange->request->is_new && (status == 412 || status == 409))
        return cay_fail(err, CAY_E_EXISTS, 0, op, NULL, "the object exists already",
                        "read it");
    snprintf(shown, sizeof shown, "status %ld%s%s", status, *reason ? ", " : "", reason);
    if (is_bucket)
        return cay_fail(err, CAY_E_UNAVAILABLE, ENODEV, op, NULL,
                        "the S3 store has no such bucket",
                        "create the bucket, or correct its name (%s)", shown);
    if (status == 401 || status == 403)
        return cay_fail(err, CAY_E_UNAVAILABLE, EACCES, op, NULL,
                        "the S3 store refuses the credentials",
                        "check them, what they permit, and the clock (%s)", shown);
    if (status >= 300 && status < 400)
        return cay_fail(err, CAY_E_UNAVAILABLE, ENODEV, op, NULL,
                        "the bucket is in another region",
                        "correct --shared-region or --shared-endpoint (%s)", shown);
    return cay_fail(err, CAY_E_UNAVAILABLE, status == 501 ? ENOSYS : EAGAIN, op, NULL,
                    "the S3 store fails", "look into its own log (%s)", shown);
}

static int fail_transfer(const struct exchange *exchange, CURLcode code,
                         struct cay_error *err)
{
    bool is_network =
        code == CURLE_COULDNT_CONNECT || code == CURLE_COULDNT_RESOLVE_HOST ||
        code == CURLE_COULDNT_RESOLVE_PROXY || code == CURLE_OPERATION_TIMEDOUT;
    const char *words = libcurl.curl_easy_strerror(code);

    if (exchange->error && exchange->request->body)
        return cay_fail(err, CAY_E_UNAVAILABLE, EAGAIN, op, NULL,
                        "the reply of the S3 store is too large",
                        "check that the endpoint is a store");
    if (exchange->error)
        return cay_fail_errno(err, exchange->error, op, "the copy of the archive");
    return cay_fail(err, CAY_E_UNAVAILABLE, is_network ? EHOSTUNREACH : EAGAIN, op, NULL,
                    "the S3 store cannot be reached",
                    "check --shared-endpoint and the network (%s)", words);
}

/* --- Tries --- */

static int try_once(struct s3 *s3, const struct s3_request *request, const char *path,
                    const char *query, bool *ret_is_passing, struct cay_error *err)
{
    AUTO_EXCHANGE exchange = {
        .s3 = s3, .request = request, .fault = {.max = FAULT_MAX + 1}};
    AUTO_BUF url = {.max = URL_MAX};
    sigset_t before;
    long status = 0;

    *ret_is_passing = false;
    if (request->body)
        request->body->len = 0;
    else if (request->to >= 0 &&
             (lseek(request->to, 0, SEEK_SET) != 0 || ftruncate(request->to, 0) != 0))
        return cay_fail_errno(err, errno, op, "the copy of the archive");
    (void)buf_format(&url, "%s%s%s%s", s3->bucket.endpoint, path, *query ? "?" : "",
                     query);
    add_signed(&exchange, path, query);
    if (exchange.is_out_of_memory || url.failed)
        return cay_fail_memory(err, op);
    set_options(&exchange, url.data);
    sigpipe_block(&before);
    CURLcode code = libcurl.curl_easy_perform(s3->easy);
    sigpipe_restore(&before);
    libcurl.curl_easy_getinfo(s3->easy, CURLINFO_RESPONSE_CODE, &status);
    if (code != CURLE_OK) {
        *ret_is_passing =
            !exchange.error && (code == CURLE_SEND_ERROR || code == CURLE_RECV_ERROR ||
                                code == CURLE_GOT_NOTHING || code == CURLE_PARTIAL_FILE);
        return fail_transfer(&exchange, code, err);
    }
    if (status == 200 || status == 204)
        return CAY_OK;
    if (exchange.fault.len &&
        !s3_read_xml(exchange.fault.data, exchange.fault.len, note_reason, &exchange))
        exchange.reason[0] = '\0';
    *ret_is_passing = status >= 500 ? status != 501 : status == 429;
    return fail_status(&exchange, status, err);
}

int s3_call(struct s3 *s3, const struct s3_request *request, struct cay_error *err)
{
    AUTO_BUF path = {.max = URL_MAX};
    int code = CAY_OK;
    bool is_passing = true;
    long wait_ms = FIRST_WAIT_MS;

    (void)buf_text(&path, s3->bucket.path);
    if (request->key)
        (void)buf_format(&path, "/%s%s", s3->bucket.prefix, request->key);
    if (path.failed)
        return cay_fail_memory(err, op);
    for (int i = 0; i < S3_TRIES && is_passing; i++) {
        if (i) {
            clock_sleep_ms(wait_ms);
            wait_ms *= 3;
        }
        code = try_once(s3, request, path.data, request->query ? request->query : "",
                        &is_passing, err);
        is_passing &= code != CAY_OK;
    }
    return code;
}
