/* SPDX-License-Identifier: Apache-2.0 */

/* Content of files, straight between a descriptor and the connection. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "e2b/entry.h"

/* --- Both ways --- */

static void begin(const struct e2b *e2b, struct e2b_request *request, const char *op,
                  const char *method, const char *user, const char *path)
{
    e2b_request_init(request, op, method, &e2b->envd);
    buf_text(&request->path, "/files?path=");
    e2b_request_escape(request, path);
    if (!user && e2b->version < E2B_HAS_DEFAULT_USER)
        user = "user";
    if (user) {
        buf_text(&request->path, "&username=");
        e2b_request_escape(request, user);
    }
    e2b_envd_headers(e2b, request, user);
}

/* Somebody may have made it non-blocking. */
static bool try_again(int fd, short events)
{
    struct pollfd one = {.fd = fd, .events = events};

    return errno == EINTR || (errno == EAGAIN && poll(&one, 1, -1) >= 0);
}

/* The daemon says no more than that it is a bad request. */
static int fail_better(struct e2b *e2b, const char *op, const char *user,
                       const char *path, const char *subject, struct cay_error *err)
{
    struct e2b_entry entry;

    if (e2b_envd_stat(e2b, op, user, path, subject, &entry, NULL) == CAY_OK &&
        entry.stat.type != CAY_TYPE_FILE)
        return cay_fail(err, CAY_E_NOT_A_FILE, 0, op, subject, "this is not a file",
                        "list the directory to see what is in it");
    return CAY_E_INVALID;
}

/* --- Reading --- */

struct target {
    int fd;
    int error;
};

static enum e2b_verdict put(void *cookie, const char *data, size_t len)
{
    struct target *target = cookie;

    while (len > 0) {
        ssize_t done = write(target->fd, data, len);
        if (done < 0 && !try_again(target->fd, POLLOUT)) {
            target->error = errno;
            return E2B_ABORT;
        }
        data += done > 0 ? done : 0;
        len -= done > 0 ? (size_t)done : 0;
    }
    return E2B_ACCEPT;
}

int e2b_file_read(void *cookie, const char *user, const char *path, int fd,
                  struct cay_error *err)
{
    static const char op[] = "files.read";
    struct e2b *e2b = cookie;
    struct target target = {.fd = fd};
    AUTO_FREE char *whole = NULL;
    E2B_REQUEST request = {0};

    int code = e2b_path(e2b, op, path, &whole, err);
    if (code)
        return code;
    e2b_keep_alive(e2b, UINT64_MAX);
    begin(e2b, &request, op, "GET", e2b_envd_user(e2b, user), whole);
    request.on_body = put;
    request.cookie = &target;
    request.repeatable = true;
    code = e2b_http_send(&e2b->http, &request, e2b->settings.retries, UINT64_MAX, err);
    if (target.error)
        return cay_fail_errno(err, target.error, op, path);
    if (!code)
        code = e2b_reply_check(e2b, &request, path, CAY_E_IO, err);
    return code == CAY_E_INVALID ? fail_better(e2b, op, user, whole, path, err) : code;
}

int e2b_file_fetch(struct e2b *e2b, const char *op, const char *user, const char *path,
                   size_t max, struct buf *ret_content, struct cay_error *err)
{
    E2B_REQUEST request;

    begin(e2b, &request, op, "GET", user, path);
    request.reply_max = max;
    request.repeatable = true;
    int code = e2b_http_send(&e2b->http, &request, e2b->settings.retries,
                             clock_ms() + E2B_REPLY_MS, err);
    if (!code)
        code = e2b_reply_check(e2b, &request, path, CAY_E_IO, err);
    if (code)
        return code;
    *ret_content = request.reply;
    request.reply = (struct buf){0};
    return CAY_OK;
}

/* --- Writing --- */

/* Older daemons want the content between two lines, as a browser's form has it. */
struct source {
    int fd;
    int64_t left; /* -1: until it ends */
    int error;
    char head[256], tail[64];
    size_t head_at, tail_at;
};

static size_t give_text(const char *text, size_t *at, char *data, size_t room)
{
    size_t len = strlen(text + *at);

    if (len > room)
        len = room;
    memcpy(data, text + *at, len);
    *at += len;
    return len;
}

static ssize_t give_content(struct source *source, char *data, size_t room)
{
    if (source->left >= 0 && (uint64_t)source->left < room)
        room = (size_t)source->left;
    for (;;) {
        ssize_t got = room ? read(source->fd, data, room) : 0;
        if (got < 0 && try_again(source->fd, POLLIN))
            continue;
        if (got < 0 || (got == 0 && source->left > 0)) {
            source->error = got < 0 ? errno : ESTALE; /* it has become shorter */
            return -1;
        }
        source->left -= source->left >= 0 ? got : 0;
        return got;
    }
}

static ssize_t give(void *cookie, char *data, size_t room)
{
    struct source *source = cookie;
    size_t len = give_text(source->head, &source->head_at, data, room);

    if (len)
        return (ssize_t)len;
    ssize_t got = give_content(source, data, room);
    return got ? got : (ssize_t)give_text(source->tail, &source->tail_at, data, room);
}

/* What is left of a file is known; a pipe ends when it ends. */
static int64_t length_of(int fd)
{
    struct stat st;
    off_t at = lseek(fd, 0, SEEK_CUR);

    if (at < 0 || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size == 0)
        return -1;
    return st.st_size > at ? st.st_size - at : 0;
}

static void set_body(const struct e2b *e2b, struct e2b_request *request,
                     struct source *source)
{
    uint64_t number = 0;
    char type[128];

    request->read_body = give;
    request->cookie = source;
    request->read_body_len = source->left;
    if (e2b->version >= E2B_HAS_PLAIN_UPLOAD) {
        e2b_request_header(request, "Content-Type", "application/octet-stream");
        return;
    }
    (void)!getrandom(&number, sizeof number, 0);
    snprintf(type, sizeof type, "multipart/form-data; boundary=cay-%016llx",
             (unsigned long long)number);
    e2b_request_header(request, "Content-Type", type);
    snprintf(source->head, sizeof source->head,
             "--cay-%016llx\r\nContent-Disposition: form-data; name=\"file\"; "
             "filename=\"file\"\r\nContent-Type: application/octet-stream\r\n\r\n",
             (unsigned long long)number);
    snprintf(source->tail, sizeof source->tail, "\r\n--cay-%016llx--\r\n",
             (unsigned long long)number);
    if (source->left >= 0)
        request->read_body_len += (int64_t)(strlen(source->head) + strlen(source->tail));
}

static int check_write(struct e2b *e2b, const char *user, const char *path,
                       const char *subject, unsigned flags, struct cay_error *err)
{
    static const char op[] = "files.write";
    const unsigned known = CAY_WRITE_IN_PLACE | CAY_WRITE_NEW | CAY_WRITE_NO_PARENTS;
    int code = CAY_OK;

    if (flags & ~known)
        return cay_fail(err, CAY_E_UNSUPPORTED, 0, op, subject,
                        "an E2B sandbox cannot append, or write durably",
                        "write the whole file");
    if (flags & CAY_WRITE_NEW)
        code = e2b_entry_absent(e2b, op, user, path, subject, err);
    if (!code && flags & CAY_WRITE_NO_PARENTS)
        code = e2b_entry_parent(e2b, op, user, path, subject, err);
    return code;
}

int e2b_file_write(void *cookie, const char *user, const char *path, int fd,
                   unsigned flags, struct cay_error *err)
{
    static const char op[] = "files.write";
    struct e2b *e2b = cookie;
    struct source source = {.fd = fd, .left = length_of(fd)};
    AUTO_FREE char *whole = NULL;
    E2B_REQUEST request = {0};

    int code = e2b_path(e2b, op, path, &whole, err);
    if (!code)
        code = check_write(e2b, user, whole, path, flags, err);
    if (code)
        return code;
    e2b_keep_alive(e2b, UINT64_MAX);
    begin(e2b, &request, op, "POST", e2b_envd_user(e2b, user), whole);
    set_body(e2b, &request, &source);
    code = e2b_http_send(&e2b->http, &request, e2b->settings.retries, UINT64_MAX, err);
    if (source.error)
        return cay_fail_errno(err, source.error, op, path);
    if (!code)
        code = e2b_reply_check(e2b, &request, path, CAY_E_IO, err);
    return code == CAY_E_INVALID ? fail_better(e2b, op, user, whole, path, err) : code;
}
