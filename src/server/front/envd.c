/* SPDX-License-Identifier: Apache-2.0 */

/* The small routes of E2B's envd. */
#include <string.h>
#include <time.h>

#include "base/auto.h"
#include "server/front/front.h"

static void on_health(struct exchange *exchange, struct reply_packet *reply)
{
    (void)reply;
    exchange_respond_empty(exchange, 204);
}

static void on_metrics(struct exchange *exchange, struct reply_packet *reply)
{
    const int64_t *numbers = reply->head.numbers;
    AUTO_BUF text = {.max = 4096};
    struct json json;

    json_to_unicode(&json, &text);
    json_put_object(&json);
    json_set_int(&json, "ts", (int64_t)time(NULL));
    json_set_int(&json, "cpu_count", numbers[USAGE_CPUS]);
    json_set_int(&json, "cpu_used_pct", numbers[USAGE_CPU_PERMILLE] / 10);
    json_set_int(&json, "mem_used", numbers[USAGE_MEMORY]);
    json_set_int(&json, "mem_total", numbers[USAGE_MEMORY_MAX]);
    json_set_int(&json, "mem_cache", 0);
    json_set_int(&json, "mem_used_mib", numbers[USAGE_MEMORY] >> 20);
    json_set_int(&json, "mem_total_mib", numbers[USAGE_MEMORY_MAX] >> 20);
    json_set_int(&json, "disk_used", numbers[USAGE_DISK]);
    json_set_int(&json, "disk_total", numbers[USAGE_DISK_MAX]);
    json_put_end(&json);
    exchange_respond_json(exchange, 200, &text);
}

static void on_envs(struct exchange *exchange, struct reply_packet *reply)
{
    AUTO_BUF text = {.max = 8 * CHANNEL_PACKET};
    struct json json;

    json_to_unicode(&json, &text);
    json_put_object(&json);
    for (const char *at = reply_next(reply, NULL); at; at = reply_next(reply, at)) {
        char name[256];
        size_t len = strcspn(at, "=");
        if (len == 0 || len >= sizeof name || !at[len])
            continue;
        memcpy(name, at, len);
        name[len] = '\0';
        json_put_key(&json, name);
        json_put_bytes(&json, at + len + 1, strlen(at + len + 1));
    }
    json_put_end(&json);
    exchange_respond_json(exchange, 200, &text);
}

#define GET(route, operation, replied)                                                   \
    {                                                                                    \
        .method = "GET", .path = (route), .act = exchange_send_plain, .op = (operation), \
        .on_error = exchange_refuse_with, .on_reply = (replied)                          \
    }

const struct handler envd_handlers[] = {
    GET("/health", OP_HEALTH, on_health),
    GET("/metrics", OP_METRICS, on_metrics),
    GET("/envs", OP_ENVS, on_envs),
    {0},
};
