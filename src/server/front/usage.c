/* SPDX-License-Identifier: Apache-2.0 */

/* Metrics of sandboxes, as E2B's SDKs and its command read them. */
#include <string.h>
#include <time.h>

#include "base/auto.h"
#include "base/clock.h"
#include "server/front/front.h"
#include "server/wire/usage.h"

enum { SAMPLE_S = 5, METRICS_MAX = 1 << 20, IDS_MAX = 100 };

static void put_metric(struct json *json, int64_t at_ms, const int64_t *numbers)
{
    json_put_object(json);
    connect_put_time(json, "timestamp", at_ms / 1000, at_ms % 1000, 3);
    json_set_int(json, "timestampUnix", at_ms / 1000);
    json_set_int(json, "cpuCount", numbers[USAGE_CPUS]);
    json_put_key(json, "cpuUsedPct");
    json_put_number(json, (double)numbers[USAGE_CPU_PERMILLE] / 10);
    json_set_int(json, "memUsed", numbers[USAGE_MEMORY]);
    json_set_int(json, "memTotal", numbers[USAGE_MEMORY_MAX]);
    json_set_int(json, "memCache", 0);
    json_set_int(json, "diskUsed", numbers[USAGE_DISK]);
    json_set_int(json, "diskTotal", numbers[USAGE_DISK_MAX]);
    json_set_int(json, "networkConnections", numbers[USAGE_CONNECTIONS]);
    json_set_int(json, "networkRefused", numbers[USAGE_REFUSED]);
    json_set_int(json, "networkUp", numbers[USAGE_UP]);
    json_set_int(json, "networkDown", numbers[USAGE_DOWN]);
    json_put_end(json);
}

/* --- One sandbox --- */

static const char *parse_period(const struct exchange *exchange, int64_t *ret_from,
                                int64_t *ret_to)
{
    const char *start = exchange_query(exchange, "start");
    const char *end = exchange_query(exchange, "end");

    *ret_from = 0;
    *ret_to = INT64_MAX;
    if ((start && !front_parse_number(start, 0, INT64_MAX, ret_from)) ||
        (end && !front_parse_number(end, 0, INT64_MAX, ret_to)) || *ret_from > *ret_to)
        return "start and end must be seconds since 1970, in this order";
    return NULL;
}

static void get_usage(struct exchange *exchange)
{
    struct request request;

    exchange_init_request(exchange, OP_USAGE, &request);
    const char *wrong =
        parse_period(exchange, &request.numbers[USAGE_FROM], &request.numbers[USAGE_TO]);
    if (wrong) {
        exchange_refuse(exchange, 400, wrong);
        return;
    }
    json_put_array(exchange_json(exchange, METRICS_MAX));
    exchange_send(exchange, &request, NO_STRINGS);
}

static void put_records(struct exchange *exchange, const struct reply_packet *reply)
{
    struct usage_record record;

    for (size_t at = 0; at + sizeof record <= reply->head.len; at += sizeof record) {
        memcpy(&record, reply->payload + at, sizeof record);
        put_metric(&exchange->json, record.at_ms, record.numbers);
    }
}

/* The stored samples from the broker, and then what is used now, from the keeper. */
static void on_usage(struct exchange *exchange, struct reply_packet *reply)
{
    int64_t from, to, now_ms = clock_since_1970_ms();

    if (reply->head.kind == REPLY_SAMPLES) {
        put_records(exchange, reply);
        return;
    }
    if (!parse_period(exchange, &from, &to) && from <= now_ms / 1000 &&
        to >= now_ms / 1000 - SAMPLE_S)
        put_metric(&exchange->json, now_ms, reply->head.numbers);
    exchange_end_json(exchange, 200);
}

/* --- Several sandboxes --- */

static void get_samples(struct exchange *exchange)
{
    const char *ids = exchange_query(exchange, "sandbox_ids");
    AUTO_BUF strings = {.max = CHANNEL_PACKET};
    struct request request;

    exchange_init_request(exchange, OP_SAMPLES, &request);
    while (ids && *ids && request.count <= IDS_MAX) {
        char id[SANDBOX_ID_MAX] = "";
        size_t len = strcspn(ids, ",");
        if (len < sizeof id)
            memcpy(id, ids, len);
        strings_add(&strings, record_is_id(id) ? id : "");
        request.count++;
        ids += len + (ids[len] == ',');
    }
    if (!request.count || request.count > IDS_MAX) {
        exchange_refuse(exchange, 400, "sandbox_ids must be 1 to 100 sandboxes");
        return;
    }
    struct json *json = exchange_json(exchange, METRICS_MAX);
    json_put_object(json);
    json_put_key(json, "sandboxes");
    json_put_object(json);
    exchange_send(exchange, &request, &strings);
}

static void on_samples(struct exchange *exchange, struct reply_packet *reply)
{
    if (reply->head.kind == REPLY_SAMPLE) {
        json_put_key(&exchange->json, reply->payload);
        put_metric(&exchange->json, reply->head.numbers[USAGE_AT_MS],
                   reply->head.numbers);
        return;
    }
    json_put_end(&exchange->json);
    exchange_end_json(exchange, 200);
}

#define ON(name, route, action, replied, operation)                                      \
    {                                                                                    \
        .method = (name), .path = (route), .act = (action),                              \
        .on_error = exchange_refuse_with, .on_reply = (replied), .op = (operation)       \
    }

const struct handler usage_handlers[] = {
    ON("GET", "/sandboxes/metrics", get_samples, on_samples, OP_SAMPLES),
    ON("GET", "/sandboxes/{id}/metrics", get_usage, on_usage, OP_USAGE),
    {0},
};
