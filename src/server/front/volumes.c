/* SPDX-License-Identifier: Apache-2.0 */

/* /volumes of E2B's API, and the volumes of a new sandbox. */
#include <ctype.h>
#include <string.h>

#include "base/auto.h"
#include "server/front/front.h"

enum { VOLUMES_TEXT = 1 << 20, VOLUME_BODY = 64 << 10, MOUNTS_MAX = 64 };

/* Its id and name; returns the name. */
static const char *put_volume(struct json *json, const struct reply_packet *reply,
                              const char *id)
{
    const char *name = reply_next(reply, id);

    json_put_object(json);
    json_set_text(json, "volumeID", id);
    json_set_text(json, "name", name);
    return name;
}

static void on_list(struct exchange *exchange, struct reply_packet *reply)
{
    struct json *json = exchange_json(exchange, VOLUMES_TEXT);

    json_put_array(json);
    const char *last = NULL;
    for (uint32_t i = 0; i + 1 < reply->head.count; i += 2) {
        last = put_volume(json, reply, reply_next(reply, last));
        json_put_end(json);
    }
    exchange_end_json(exchange, 200);
}

static void on_volume(struct exchange *exchange, struct reply_packet *reply)
{
    struct json *json = exchange_json(exchange, VOLUMES_TEXT);

    if (reply->head.count != 3) {
        exchange_refuse_with(exchange, reply);
        return;
    }
    const char *name = put_volume(json, reply, reply_next(reply, NULL));
    json_set_text(json, "token", reply_next(reply, name));
    exchange_end_json(exchange, exchange->handler->op == OP_VOLUME_CREATE ? 201 : 200);
}

static void send_name(struct exchange *exchange, const char *name)
{
    AUTO_BUF strings = {.max = CHANNEL_PACKET};
    struct request request;

    strings_add(&strings, name);
    exchange_init_request(exchange, exchange->handler->op, &request);
    request.count = 1;
    exchange_send(exchange, &request, &strings);
}

static void send_part(struct exchange *exchange)
{
    send_name(exchange, exchange->route.part);
}

static void create(struct exchange *exchange)
{
    json_t *root = exchange->body.len ? connect_body(exchange, false) : NULL;
    struct fields fields = {.object = root};
    char message[FIELDS_ERROR_MAX];
    const char *name = root ? field_text(&fields, "name") : NULL;

    if (root && !name)
        (void)field_reject(&fields, "name");
    if (!root)
        exchange_refuse(exchange, 400, "the body is not a JSON object");
    else if (fields.wrong)
        exchange_refuse(exchange, 400, fields_error(&fields, message));
    else
        send_name(exchange, name);
    json_decref(root);
}

/* --- The volumes of a sandbox --- */

static bool is_path(const char *path)
{
    if (!path || *path != '/')
        return false;
    for (; *path; path++)
        if (iscntrl((unsigned char)*path))
            return false;
    return true;
}

int64_t front_take_volumes(struct fields *fields, struct buf *strings, struct buf *shown)
{
    json_t *mounts = field_get(fields, "volumeMounts"), *mount;
    int64_t count = 0;
    size_t i;

    if (mounts && (!json_is_array(mounts) || json_array_size(mounts) > MOUNTS_MAX)) {
        (void)field_reject(fields, "volumeMounts");
        return 0;
    }
    json_array_foreach(mounts, i, mount)
    {
        const char *name = json_string_value(json_object_get(mount, "name"));
        const char *path = json_string_value(json_object_get(mount, "path"));
        if (!name || strpbrk(name, "\t\n") || !is_path(path)) {
            (void)field_reject(fields, "volumeMounts");
            return 0;
        }
        strings_add(strings, name);
        strings_add(strings, path);
        (void)buf_format(shown, "%s\t%s\n", name, path);
        count += 2;
    }
    return count;
}

int64_t front_add_volumes(const char *shown, struct buf *strings)
{
    int64_t count = 0;

    for (const char *at = shown; at && *at; at += strcspn(at, "\t\n") + 1, count++) {
        (void)buf_append(strings, at, strcspn(at, "\t\n"));
        (void)buf_append(strings, "", 1);
    }
    return count;
}

void front_put_volumes(struct json *json, const char *shown)
{
    AUTO_BUF strings = {.max = CHANNEL_PACKET};
    int64_t count = front_add_volumes(shown, &strings);
    const char *name = strings.failed ? NULL : strings.data;

    json_put_key(json, "volumeMounts");
    json_put_array(json);
    for (int64_t i = 0; name && i + 1 < count; i += 2) {
        const char *path = name + strlen(name) + 1;
        json_put_object(json);
        json_set_text(json, "name", name);
        json_set_text(json, "path", path);
        json_put_end(json);
        name = path + strlen(path) + 1;
    }
    json_put_end(json);
}

#define ON(name, route, action, replied, ...)                                            \
    {                                                                                    \
        .method = (name), .path = (route), .act = (action),                              \
        .on_error = exchange_refuse_with, .on_reply = (replied), __VA_ARGS__             \
    }

const struct handler volume_handlers[] = {
    ON("GET", "/volumes", exchange_send_plain, on_list, .op = OP_VOLUMES),
    ON("POST", "/volumes", create, on_volume, .op = OP_VOLUME_CREATE,
       .body_max = VOLUME_BODY),
    ON("GET", "/volumes/{id}", send_part, on_volume, .op = OP_VOLUME),
    ON("DELETE", "/volumes/{id}", send_part, exchange_on_done, .op = OP_VOLUME_REMOVE),
    {0},
};
