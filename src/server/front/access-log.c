/* SPDX-License-Identifier: Apache-2.0 */

/* The access log: one line of JSON for each request.  Lines are written together, at the
 * latest before the loop waits.  If the log is a pipe that is not read, the lines stay in
 * the buffer, and new ones are dropped while it is full: the front never blocks. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "server/front/front.h"

enum {
    FLUSH = 48 << 10,
    ROOM = 64 << 10, /* more than that and the longest line */
    PIECE = 4096     /* a writable pipe takes as much without blocking (PIPE_BUF) */
};

void access_log_open(struct front *front)
{
    buf_init(&front->log, ROOM);
}

void access_log_flush(struct front *front)
{
    struct pollfd out = {.fd = front->options->log, .events = POLLOUT};
    struct buf *log = &front->log;
    size_t done = 0;

    while (done < log->len && poll(&out, 1, 0) == 1 && out.revents & POLLOUT) {
        size_t left = log->len - done;
        ssize_t got = write(out.fd, log->data + done, left < PIECE ? left : PIECE);
        if (got < 0 && errno == EAGAIN)
            break;
        done = got > 0 ? done + (size_t)got : log->len; /* a full disk: they are lost */
    }
    if (done)
        memmove(log->data, log->data + done, log->len - done);
    log->len -= done;
}

void access_log_write(struct exchange *exchange)
{
    struct front *front = exchange->front;
    struct buf *log = &front->log;
    uint64_t took = uv_now(&front->loop) - exchange->began_ms;
    size_t before = log->len;
    struct json json;

    if (front->options->log < 0)
        return;
    json_to_buf(&json, log);
    json_put_object(&json);
    json_set_int(&json, "time_ms", clock_since_1970_ms());
    json_set_text(&json, "method", exchange->method);
    json_put_key(&json, "path");
    json_put_bytes(&json, exchange->url, strnlen(exchange->url, 1024));
    if (*exchange->route.sandbox)
        json_set_text(&json, "sandbox", exchange->route.sandbox);
    if (exchange->route.plane == PLANE_PORT)
        json_set_int(&json, "port", exchange->route.port);
    json_set_int(&json, "status",
                 exchange->is_queued || exchange->is_refused ? (int64_t)exchange->status
                                                             : 499);
    json_set_int(&json, "ms", (int64_t)took);
    json_put_end(&json);
    if (!json_finish(&json) || !buf_text(log, "\n")) {
        log->len = before;
        log->failed = false;
    }
    if (log->len > FLUSH)
        access_log_flush(front);
}
