/* SPDX-License-Identifier: Apache-2.0 */

/* The fields about the network of a sandbox: what it may reach, and who may reach it. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/error.h"
#include "server/front/front.h"

enum { EGRESS_MAX = 16 << 10, RULES_MAX = 512, ADDRESS_MAX = 64, MASK_MAX = 256 };

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
    static const char *const names[] = {"rules", "egressProxy", "httpsPorts"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const json_t *value = field_get(network, names[i]);
        if (json_array_size(value) > 0 || json_object_size(value) > 0)
            return "header rules, proxies and httpsPorts are not supported by this "
                   "server";
    }
    return NULL;
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
    json_put_end(&json);
    return ret_egress->shown.failed || ret_egress->rules.failed
               ? "allowOut and denyOut are too long"
               : NULL;
}

void front_egress_init(struct front_egress *egress)
{
    *egress =
        (struct front_egress){.rules = {.max = EGRESS_MAX}, .shown = {.max = EGRESS_MAX}};
}

void front_egress_done(struct front_egress *egress)
{
    buf_done(&egress->rules);
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
    request.count = 1 + (uint32_t)egress.count;
    if (wrong)
        exchange_refuse(exchange, egress.status, wrong);
    else if (fields.wrong)
        exchange_refuse(exchange, 400, fields_error(&fields, message));
    else
        exchange_send(exchange, &request, &strings);
    front_egress_done(&egress);
    json_decref(root);
}
