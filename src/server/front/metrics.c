/* SPDX-License-Identifier: Apache-2.0 */

/* GET /metrics, for Prometheus and readers of OpenMetrics.  The broker writes the samples
 * that it knows (broker/stats.c), the front adds its own.  Labels have values of fixed
 * sets only, so that clients cannot add series. */
#include <stdio.h>
#include <string.h>

#include "base/auto.h"
#include "base/clock.h"
#include "server/front/front.h"
#include "server/wire/samples.h"

enum { METRICS_MAX = 512 << 10 };

/* --- Times --- */

static const uint32_t bounds_us[FRONT_BOUNDS] = {
    1000,   2500,   5000,    10000,   25000,   50000,   100000,
    250000, 500000, 1000000, 2500000, 5000000, 10000000};

void front_observe(struct front_times *times, uint64_t took_us)
{
    size_t at = 0;

    while (at < FRONT_BOUNDS && took_us > bounds_us[at])
        at++;
    times->counts[at]++;
    times->sum_us += took_us;
}

enum front_kind front_kind_of(const struct exchange *exchange)
{
    enum op op = exchange->handler ? exchange->handler->op : OP_NONE;

    if (exchange->route.plane == PLANE_PORT)
        return FRONT_PORT;
    if (exchange->handler && exchange->handler->kind)
        return exchange->handler->kind;
    return op == OP_START ? FRONT_EXEC : FRONT_OTHER;
}

static void put_times(struct samples *out, const char *name, const char *help,
                      const struct front_times *times)
{
    uint64_t below = 0;
    char label[48];

    samples_type(out, name, "histogram", help);
    for (size_t i = 0; i <= FRONT_BOUNDS; i++) {
        below += times->counts[i];
        if (i < FRONT_BOUNDS)
            snprintf(label, sizeof label, "le=\"%g\"", bounds_us[i] / 1e6);
        else
            snprintf(label, sizeof label, "le=\"+Inf\"");
        buf_format(out->text, "%s_bucket{%s} %llu\n", name, label,
                   (unsigned long long)below);
    }
    buf_format(out->text, "%s_count %llu\n%s_sum %.6f\n", name, (unsigned long long)below,
               name, (double)times->sum_us / 1e6);
}

/* --- The page --- */

static bool wants_open(const struct exchange *exchange)
{
    const char *accept = exchange_header(exchange, "Accept");

    return accept && strstr(accept, "application/openmetrics-text");
}

static void put_requests(struct samples *out, const struct front *front)
{
    static const char *const losses[] = {
        [LOSS_CLOSED] = "closed", [LOSS_MALFORMED] = "malformed", [LOSS_ERROR] = "error"};

    samples_one(out, "cay_requests_total", "counter", "Requests with a complete head",
                front->requests);
    samples_type(out, "cay_replies_total", "counter", "Replies by class of status");
    for (int i = 1; i < 6; i++) {
        char label[16];
        snprintf(label, sizeof label, "%dxx", i);
        samples_label(out, "cay_replies_total", "status", label, front->status[i]);
    }
    samples_one(out, "cay_requests_retried_total", "counter",
                "Requests that were repeated after their reply was lost", front->retried);
    samples_type(out, "cay_requests_lost_total", "counter",
                 "Requests whose reply from the broker or a keeper was lost");
    for (int i = 0; i < LOSS_KINDS; i++)
        samples_label(out, "cay_requests_lost_total", "reason", losses[i],
                      front->lost[i]);
}

static void put_connections(struct samples *out, const struct front *front)
{
    samples_one(out, "cay_connections", "gauge", "Open connections of clients",
                front->connections);
    samples_one(out, "cay_connections_max", "gauge", "Connections at which clients wait",
                front->connections_max);
    samples_one(out, "cay_connections_cut_total", "counter",
                "Connections closed because their client was too slow", front->refused);
    samples_one(out, "cay_streams", "gauge", "Open streams of output and events",
                front->streams);
    samples_one(out, "cay_front_body_bytes", "gauge",
                "Memory of the bodies of pending requests", front->body_charged);
    samples_one(out, "cay_front_log_bytes", "gauge",
                "Lines of the access log that are not written yet", front->log.len);
}

static void get_metrics(struct exchange *exchange)
{
    struct request request;

    exchange_init_request(exchange, OP_STATS, &request);
    request.flags = wants_open(exchange) ? STATS_OPEN : 0;
    buf_init(&exchange->out, METRICS_MAX);
    exchange_send(exchange, &request, NO_STRINGS);
}

static void on_metrics(struct exchange *exchange, struct reply_packet *reply)
{
    const struct front *front = exchange->front;
    struct samples out = {&exchange->out, wants_open(exchange)};

    if (reply->head.kind == REPLY_TEXT) {
        (void)buf_append(&exchange->out, reply->payload, strlen(reply->payload));
        return;
    }
    put_requests(&out, front);
    put_connections(&out, front);
    put_times(&out, "cay_create_seconds", "Time until a create was answered",
              &front->times[FRONT_CREATE]);
    put_times(&out, "cay_exec_start_seconds", "Time until a command had started",
              &front->times[FRONT_EXEC]);
    put_times(&out, "cay_file_seconds", "Time until a file was sent or written",
              &front->times[FRONT_FILE]);
    put_times(&out, "cay_port_seconds", "Time until a port of a sandbox responded",
              &front->times[FRONT_PORT]);
    put_times(&out, "cay_request_seconds", "Time until any other request was answered",
              &front->times[FRONT_OTHER]);
    if (out.is_open)
        (void)buf_text(&exchange->out, "# EOF\n");
    exchange_respond_text(exchange, 200,
                          out.is_open ? "application/openmetrics-text; version=1.0.0; "
                                        "charset=utf-8"
                                      : "text/plain; version=0.0.4; charset=utf-8",
                          &exchange->out);
}

#define ON(name, route, action, ...)                                                     \
    {                                                                                    \
        .method = (name), .path = (route), .act = (action),                              \
        .on_error = exchange_refuse_with, .on_reply = on_metrics, __VA_ARGS__            \
    }

const struct handler metrics_handlers[] = {
    ON("GET", "/metrics", get_metrics, .op = OP_STATS),
    {0},
};
