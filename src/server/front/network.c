/* SPDX-License-Identifier: Apache-2.0 */

/* The fields about the network of a sandbox: what it may reach, and who may reach it. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/error.h"
#include "server/front/front.h"

enum {
    EGRESS_MAX = 16 << 10,
    RULES_MAX = 512,
    ADDRESS_MAX = 64,
    MASK_MAX = 256,
    /* E2B's limits for header rules */
    HEADER_HOSTS_MAX = 10,
    HEADERS_MAX = 20,
    HEADER_HOST_MAX = 128,
    HEADER_NAME_MAX = 63,
    HEADER_VALUE_MAX = 2048
};

static const char everything[] = "0.0.0.0/0";

/* "192.0.2.1", "192.0.2.0/24", "2001:db8::/32" */
static bool is_range(const char *text)
{
    char address[ADDRESS_MAX];
    struct in6_addr bytes;
    size_t len = strcspn(text, "/");
    bool is_6 = memchr(text, ':', len);
    int64_t bits;

    if (len >= sizeof address)
        return false;
    memcpy(address, text, len);
    address[len] = '\0';
    return inet_pton(is_6 ? AF_INET6 : AF_INET, address, &bytes) == 1 &&
           (!text[len] || front_parse_number(text + len + 1, 0, is_6 ? 128 : 32, &bits));
}

/* A rule of Cay: an IPv6 range is in brackets. */
static void add_rule(struct buf *rules, const char *text, bool denies)
{
    bool is_6 = is_range(text) && strchr(text, ':');

    buf_format(rules, "%s%s%s%s", denies ? "!" : "", is_6 ? "[" : "", text,
               is_6 ? "]" : "");
    (void)buf_append(rules, "", 1);
}

struct list {
    const json_t *items;
    size_t count;
    bool has_names, has_everything;
};

static struct list take_list(struct fields *fields, const char *name)
{
    struct list list = {.items = field_get(fields, name)};

    list.count = json_array_size(list.items);
    if (list.items && !json_is_array(list.items))
        (void)field_reject(fields, name);
    for (size_t i = 0; i < list.count; i++) {
        const char *text = json_string_value(json_array_get(list.items, i));
        if (!text || !*text || strpbrk(text, "!\t\n "))
            (void)field_reject(fields, name);
        else if (!is_range(text))
            list.has_names = true;
        else if (strcmp(text, everything) == 0)
            list.has_everything = true;
    }
    return list;
}

static void put_list(struct json *json, const char *name, const struct list *list)
{
    json_put_key(json, name);
    json_put_array(json);
    for (size_t i = 0; i < list->count; i++)
        json_put_text(json, json_string_value(json_array_get(list->items, i)));
    json_put_end(json);
}

static const char *find_unsupported(struct fields *network)
{
    static const char *const names[] = {"egressProxy", "httpsPorts"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const json_t *value = field_get(network, names[i]);
        if (json_array_size(value) > 0 || json_object_size(value) > 0)
            return "proxies and httpsPorts are not supported by this server";
    }
    return NULL;
}

/* --- Header rules --- */

static const char *take_headers(const char *host, const json_t *headers,
                                struct front_egress *egress)
{
    const char *name;
    json_t *value;

    if (json_object_size(headers) > HEADERS_MAX)
        return "a rule of network.rules sets at most 20 headers";
    json_object_foreach((json_t *)(uintptr_t)headers, name, value)
    {
        const char *text = json_string_value(value);
        if (!text || strlen(text) > HEADER_VALUE_MAX ||
            !route_is_token(name, strlen(name)) || strlen(name) > HEADER_NAME_MAX)
            return "headers of network.rules have names of at most 63 and values of at "
                   "most 2048 bytes";
        if (strstr(text, "${e2b.identity.")) {
            egress->status = 501;
            return "identity tokens are not supported by this server";
        }
        strings_add(&egress->headers, host);
        strings_add(&egress->headers, name);
        strings_add(&egress->headers, text);
        egress->header_count += 3;
    }
    return NULL;
}

static const char *take_host(const char *host, const json_t *rules,
                             struct front_egress *egress)
{
    const json_t *transform = json_object_get(json_array_get(rules, 0), "transform");
    const json_t *headers = json_object_get(transform, "headers");

    if (is_range(host) || strchr(host, '*')) {
        egress->status = 501;
        return "network.rules are for complete host names only on this server";
    }
    if (!*host || strlen(host) > HEADER_HOST_MAX)
        return "a host of network.rules has 1 to 128 bytes";
    if (!json_is_array(rules) || json_array_size(rules) > 1)
        return "a host of network.rules has a list with one rule";
    if ((headers && !json_is_object(headers)) ||
        (transform && !json_is_object(transform)))
        return "a rule of network.rules is {\"transform\": {\"headers\": {...}}}";
    return take_headers(host, headers, egress);
}

static const char *take_rules(struct fields *fields, struct front_egress *egress)
{
    const json_t *rules = field_get(fields, "rules");
    const char *host, *wrong = NULL;
    json_t *list;

    if (rules && !json_is_object(rules))
        (void)field_reject(fields, "rules");
    if (json_object_size(rules) > HEADER_HOSTS_MAX)
        return "network.rules has at most 10 hosts";
    json_object_foreach((json_t *)(uintptr_t)rules, host, list)
    {
        if (!wrong)
            wrong = take_host(host, list, egress);
    }
    return wrong;
}

static void put_headers(struct json *json, json_t *headers)
{
    const char *name;
    json_t *value;

    json_object_foreach(headers, name, value)
    {
        json_set_text(json, name, json_string_value(value));
    }
}

static void put_rules(struct json *json, const json_t *rules)
{
    const char *host;
    json_t *list;

    json_put_key(json, "rules");
    json_put_object(json);
    json_object_foreach((json_t *)(uintptr_t)rules, host, list)
    {
        const json_t *transform = json_object_get(json_array_get(list, 0), "transform");
        json_put_key(json, host);
        json_put_array(json);
        json_put_object(json);
        json_put_key(json, "transform");
        json_put_object(json);
        json_put_key(json, "headers");
        json_put_object(json);
        put_headers(json, json_object_get(transform, "headers"));
        for (int i = 0; i < 3; i++)
            json_put_end(json);
        json_put_end(json);
    }
    json_put_end(json);
}

const char *front_take_egress(struct fields *fields, bool has_internet,
                              struct front_egress *ret_egress)
{
    struct json json;
    struct list allow = take_list(fields, "allowOut");
    struct list deny = take_list(fields, "denyOut");
    const char *unsupported = find_unsupported(fields);

    ret_egress->status = unsupported ? 501 : 400;
    if (unsupported)
        return unsupported;
    const char *wrong = take_rules(fields, ret_egress);
    if (wrong)
        return wrong;
    if ((fields->top ? fields->top : fields)->wrong)
        return NULL; /* the caller reports the field */
    if (deny.has_names)
        return "denyOut takes addresses and ranges of addresses only";
    if (allow.has_names && !deny.has_everything && has_internet)
        return "names in allowOut need 0.0.0.0/0 in denyOut: without it every name is "
               "allowed";
    ret_egress->count = (int64_t)(allow.count + deny.count);
    if (ret_egress->count > RULES_MAX)
        return "too many entries in allowOut and denyOut";
    for (size_t i = 0; i < allow.count; i++)
        add_rule(&ret_egress->rules, json_string_value(json_array_get(allow.items, i)),
                 false);
    for (size_t i = 0; i < deny.count; i++)
        add_rule(&ret_egress->rules, json_string_value(json_array_get(deny.items, i)),
                 true);
    json_to_buf(&json, &ret_egress->shown);
    json_put_object(&json);
    put_list(&json, "allowOut", &allow);
    put_list(&json, "denyOut", &deny);
    if (ret_egress->header_count)
        put_rules(&json, field_get(fields, "rules"));
    json_put_end(&json);
    return ret_egress->shown.failed || ret_egress->rules.failed ||
                   ret_egress->headers.failed
               ? "allowOut, denyOut and rules are too long"
               : NULL;
}

void front_egress_init(struct front_egress *egress)
{
    *egress = (struct front_egress){.rules = {.max = EGRESS_MAX},
                                    .headers = {.max = EGRESS_MAX},
                                    .shown = {.max = EGRESS_MAX}};
}

void front_egress_done(struct front_egress *egress)
{
    buf_done(&egress->rules);
    buf_done(&egress->headers);
    buf_done(&egress->shown);
}

/* --- Masks --- */

const char *front_take_mask(struct fields *network, const char **ret_mask)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "0123456789.-_:[]";
    const char *mask = field_text(network, "maskRequestHost");

    *ret_mask = mask;
    if (!mask)
        return NULL;
    const char *port = strstr(mask, "${PORT}");
    size_t before = port ? (size_t)(port - mask) : strlen(mask);
    if (!*mask || strlen(mask) >= MASK_MAX || strspn(mask, letters) != before ||
        (port && strspn(port + 7, letters) != strlen(port + 7)))
        return "maskRequestHost is a host name, which may contain ${PORT} once: "
               "\"app.example.com:${PORT}\"";
    return NULL;
}

void front_put_mask(const char *mask, unsigned port, struct buf *to)
{
    const char *at = strstr(mask, "${PORT}");

    if (at)
        buf_format(to, "%.*s%u%s", (int)(at - mask), mask, port, at + 7);
    else
        buf_text(to, mask);
}

/* --- Replies --- */

void front_put_network(struct json *json, const char *egress, const char *mask,
                       bool is_public)
{
    json_t *stored = egress ? json_loads(egress, 0, NULL) : NULL;
    const struct list allow = {.items = json_object_get(stored, "allowOut"),
                               .count =
                                   json_array_size(json_object_get(stored, "allowOut"))};
    const struct list deny = {.items = json_object_get(stored, "denyOut"),
                              .count =
                                  json_array_size(json_object_get(stored, "denyOut"))};

    json_put_key(json, "network");
    json_put_object(json);
    put_list(json, "allowOut", &allow);
    put_list(json, "denyOut", &deny);
    if (json_object_get(stored, "rules"))
        put_rules(json, json_object_get(stored, "rules"));
    json_set_bool(json, "allowPublicTraffic", is_public);
    if (mask)
        json_set_text(json, "maskRequestHost", mask);
    json_put_end(json);
    json_decref(stored);
}

/* --- PUT --- */

void front_change_network(struct exchange *exchange)
{
    json_t *root = exchange->body.len ? connect_body(exchange, false) : json_object();
    struct fields fields = {.object = root};
    char message[FIELDS_ERROR_MAX];
    struct front_egress egress;
    AUTO_BUF strings = {.max = CHANNEL_STRINGS};
    struct request request;

    if (!root) {
        exchange_refuse(exchange, 400, "the body is not a JSON object");
        return;
    }
    front_egress_init(&egress);
    exchange_init_request(exchange, OP_NETWORK, &request);
    if (field_bool(&fields, "allowInternetAccess", true))
        request.flags = CREATE_INTERNET;
    const char *wrong = front_take_egress(&fields, request.flags, &egress);
    strings_add(&strings, egress.shown.data ? egress.shown.data : "");
    (void)buf_append(&strings, egress.rules.data, egress.rules.len);
    (void)buf_append(&strings, egress.headers.data, egress.headers.len);
    request.numbers[NETWORK_HEADERS] = egress.header_count;
    request.count = 1 + (uint32_t)(egress.count + egress.header_count);
    if (wrong)
        exchange_refuse(exchange, egress.status, wrong);
    else if (fields.wrong)
        exchange_refuse(exchange, 400, fields_error(&fields, message));
    else
        exchange_send(exchange, &request, &strings);
    front_egress_done(&egress);
    json_decref(root);
}
