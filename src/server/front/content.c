/* SPDX-License-Identifier: Apache-2.0 */

/* /volumecontent of E2B's API: the files of a volume, with its token.  Whole files are
 * handled like those of a sandbox: files.c and upload.c. */
#include <string.h>

#include "base/auto.h"
#include "cay/files.h"
#include "server/front/front.h"

enum { LIST_TEXT = 64 << 20, SECOND_NS = 1000000000, MODE_MAX = 01777, DEPTH_MAX = 1000 };

/* --- Requests --- */

/* A parameter of the query, or -1; false if it was refused. */
static bool take_number(struct exchange *exchange, const char *name, int64_t most,
                        int64_t *ret_number)
{
    const char *text = exchange_query(exchange, name);

    *ret_number = -1;
    if (!text || !*text || front_parse_number(text, 0, most, ret_number))
        return true;
    exchange_refuse_and_close(exchange, 400,
                              strcmp(name, "mode") == 0
                                  ? "mode must be a decimal number from 0 to 1023"
                              : strcmp(name, "depth") == 0
                                  ? "depth must be a number from 0 to 1000"
                                  : "uid and gid must be numbers from 0 to 4294967294");
    return false;
}

bool front_content_init(struct exchange *exchange, enum op op, struct request *request,
                        struct buf *strings)
{
    const char *path = exchange_query(exchange, "path");
    const char *force = exchange_query(exchange, "force");
    int64_t *numbers = request->numbers;

    exchange_init_request(exchange, op, request);
    *request->sandbox = '\0';
    strings_add(strings, exchange->route.part);
    strings_add(strings, path ? path : "");
    request->count = 2;
    if (force && strcmp(force, "true") == 0)
        request->flags |= CONTENT_FORCE;
    if (!path) {
        exchange_refuse_and_close(exchange, 400, "path is missing");
        return false;
    }
    return take_number(exchange, "mode", MODE_MAX, &numbers[CONTENT_MODE]) &&
           take_number(exchange, "uid", UINT32_MAX - 1, &numbers[CONTENT_UID]) &&
           take_number(exchange, "gid", UINT32_MAX - 1, &numbers[CONTENT_GID]);
}

static void act(struct exchange *exchange)
{
    AUTO_BUF strings = {.max = CHANNEL_PACKET};
    struct request request;

    if (!front_content_init(exchange, exchange->handler->op, &request, &strings))
        return;
    if (request.op == OP_CONTENT_LIST &&
        !take_number(exchange, "depth", DEPTH_MAX, &request.numbers[LIST_DIR_DEPTH]))
        return;
    exchange_send(exchange, &request, &strings);
}

static void change(struct exchange *exchange)
{
    json_t *root = connect_body(exchange, false);
    struct fields fields = {.object = root};
    char message[FIELDS_ERROR_MAX];
    AUTO_BUF strings = {.max = CHANNEL_PACKET};
    struct request request;

    if (!root) {
        exchange_refuse(exchange, 400, "the body is not a JSON object");
    } else if (front_content_init(exchange, OP_CONTENT_CHANGE, &request, &strings)) {
        int64_t *numbers = request.numbers;
        numbers[CONTENT_MODE] = field_int(&fields, "mode", 0, MODE_MAX, -1);
        numbers[CONTENT_UID] = field_int(&fields, "uid", 0, UINT32_MAX - 1, -1);
        numbers[CONTENT_GID] = field_int(&fields, "gid", 0, UINT32_MAX - 1, -1);
        if (fields.wrong)
            exchange_refuse(exchange, 400, fields_error(&fields, message));
        else
            exchange_send(exchange, &request, &strings);
    }
    json_decref(root);
}

/* --- Replies --- */

static void set_bytes(struct json *json, const char *key, const char *text)
{
    json_put_key(json, key);
    json_put_bytes(json, text, strlen(text));
}

static void put_time(struct json *json, const char *key, int64_t time_ns)
{
    int64_t ns = time_ns % SECOND_NS, before_1970 = ns < 0;

    connect_put_time(json, key, time_ns / SECOND_NS - before_1970,
                     ns + before_1970 * SECOND_NS, 9);
}

/* VolumeEntryStat, without the end of the object. */
static void put_entry(struct json *json, const struct reply_packet *reply)
{
    static const char *const types[] = {[CAY_TYPE_FILE] = "file",
                                        [CAY_TYPE_DIRECTORY] = "directory",
                                        [CAY_TYPE_LINK] = "symlink",
                                        [CAY_TYPE_OTHER] = "unknown"};
    const int64_t *numbers = reply->head.numbers;
    const char *path = reply_next(reply, NULL), *target = reply_next(reply, path);
    const char *name = front_file_base_name(path);
    int64_t type = numbers[CONTENT_TYPE];

    json_put_object(json);
    set_bytes(json, "name", *name ? name : path);
    json_set_text(
        json, "type",
        types[type < CAY_TYPE_FILE || type > CAY_TYPE_OTHER ? CAY_TYPE_OTHER : type]);
    set_bytes(json, "path", path);
    json_set_int(json, "size", numbers[CONTENT_SIZE]);
    json_set_int(json, "mode", numbers[CONTENT_PERMISSIONS]);
    json_set_int(json, "uid", numbers[CONTENT_OWNER]);
    json_set_int(json, "gid", numbers[CONTENT_GROUP]);
    put_time(json, "atime", numbers[CONTENT_ATIME_NS]);
    put_time(json, "mtime", numbers[CONTENT_MTIME_NS]);
    put_time(json, "ctime", numbers[CONTENT_CTIME_NS]);
    if (*target)
        set_bytes(json, "target", target);
}

void front_content_respond(struct exchange *exchange, const struct reply_packet *reply)
{
    bool is_new = exchange->handler->op == OP_CONTENT_MAKE_DIR ||
                  exchange->handler->op == OP_CONTENT_WRITE;

    if (reply->head.kind != REPLY_CONTENT || reply->head.count != 2) {
        exchange_refuse_with(exchange, reply);
        return;
    }
    put_entry(exchange_json(exchange, LIST_TEXT), reply);
    exchange_end_json(exchange, is_new ? 201 : 200);
}

static void on_entry(struct exchange *exchange, struct reply_packet *reply)
{
    front_content_respond(exchange, reply);
}

static void on_list(struct exchange *exchange, struct reply_packet *reply)
{
    if (!exchange->json.buf)
        json_put_array(exchange_json(exchange, LIST_TEXT));
    if (reply->head.kind != REPLY_CONTENT || reply->head.count != 2) {
        exchange_end_json(exchange, 200);
        return;
    }
    put_entry(&exchange->json, reply);
    json_put_end(&exchange->json);
    (void)connect_charge(exchange);
}

#define ON(name, route, operation, action, replied, ...)                                 \
    {                                                                                    \
        .method = (name), .path = (route), .op = (operation), .act = (action),           \
        .on_error = exchange_refuse_with, .on_reply = (replied), __VA_ARGS__             \
    }

const struct handler content_handlers[] = {
    ON("GET", "/volumecontent/{id}/path", OP_CONTENT_STAT, act, on_entry),
    ON("PATCH", "/volumecontent/{id}/path", OP_CONTENT_CHANGE, change, on_entry,
       .body_max = BODY_SMALL),
    ON("DELETE", "/volumecontent/{id}/path", OP_CONTENT_REMOVE, act, exchange_on_done),
    ON("GET", "/volumecontent/{id}/dir", OP_CONTENT_LIST, act, on_list),
    ON("POST", "/volumecontent/{id}/dir", OP_CONTENT_MAKE_DIR, act, on_entry),
    ON("GET", "/volumecontent/{id}/file", OP_CONTENT_READ, act, front_file_on_download),
    {.method = "PUT",
     .path = "/volumecontent/{id}/file",
     .op = OP_CONTENT_WRITE,
     .begin = front_file_upload_begin,
     .feed = front_file_upload_feed,
     .act = front_file_upload_finish,
     .on_reply = front_file_on_upload},
    {0},
};
