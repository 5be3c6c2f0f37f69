/* SPDX-License-Identifier: Apache-2.0 */

/* filesystem.Filesystem of E2B's envd. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/auto.h"
#include "cay/files.h"
#include "server/front/front.h"
#include "json/json.h"

enum { SECOND_NS = 1000000000 };

/* --- EntryInfo --- */

/* "Lrwxrwxrwx" for a link, "urwxr-xr-x" for a setuid program, "dtrwxrwxrwx" for /tmp, as
 * in Go. */
static void put_permissions(struct json *json, const int64_t *numbers)
{
    static const char letters[] = "rwxrwxrwx";
    int64_t mode = numbers[ENTRY_MODE];
    const struct {
        char letter;
        bool is_set;
    } kinds[] = {
        {'d', numbers[ENTRY_TYPE] == CAY_TYPE_DIRECTORY && !numbers[ENTRY_IS_LINK]},
        {'L', numbers[ENTRY_IS_LINK]},
        {'u', mode & S_ISUID},
        {'g', mode & S_ISGID},
        {'t', mode & S_ISVTX}};
    char text[sizeof kinds / sizeof *kinds + sizeof letters];
    size_t len = 0;

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (kinds[i].is_set)
            text[len++] = kinds[i].letter;
    if (len == 0)
        text[len++] = '-';
    for (int i = 0; i < 9; i++)
        text[len++] = mode & 0400 >> i ? letters[i] : '-';
    text[len] = '\0';
    json_set_text(json, "permissions", text);
}

static void set_bytes(struct json *json, const char *key, const char *text)
{
    json_put_key(json, key);
    json_put_bytes(json, text, strlen(text));
}

static void put_entry_at(struct json *json, const struct reply_packet *reply,
                         const int64_t *numbers, const char *name)
{
    static const char *const keys[] = {"name", "path", "owner", "group"};
    const char *at = name;
    char size[24];

    json_put_object(json);
    for (int i = 0; i < 4 && at; i++, at = reply_next(reply, at))
        set_bytes(json, keys[i], at);
    json_set_text(json, "type",
                  numbers[ENTRY_TYPE] == CAY_TYPE_FILE        ? "FILE_TYPE_FILE"
                  : numbers[ENTRY_TYPE] == CAY_TYPE_DIRECTORY ? "FILE_TYPE_DIRECTORY"
                  : numbers[ENTRY_TYPE] == CAY_TYPE_LINK      ? "FILE_TYPE_SYMLINK"
                                                              : "FILE_TYPE_UNSPECIFIED");
    snprintf(size, sizeof size, "%lld", (long long)numbers[ENTRY_SIZE]);
    json_set_text(json, "size", size);
    json_set_int(json, "mode", numbers[ENTRY_MODE] & 0777);
    put_permissions(json, numbers);
    int64_t ns = numbers[ENTRY_MTIME_NS] % SECOND_NS, before_1970 = ns < 0;
    connect_put_time(json, "modifiedTime",
                     numbers[ENTRY_MTIME_NS] / SECOND_NS - before_1970,
                     ns + before_1970 * SECOND_NS, 9);
    if (at && *at)
        set_bytes(json, "symlinkTarget", at);
    at = at ? reply_next(reply, at) : NULL;
    if (at)
        connect_put_pairs(json, reply, at);
    json_put_end(json);
}

static void put_entry(struct json *json, const struct reply_packet *reply)
{
    put_entry_at(json, reply, reply->head.numbers, reply_next(reply, NULL));
}

enum { LIST_TEXT = 64 << 20 };

/* --- Requests to the broker --- */

static bool fill_path(struct fields *fields, struct request *request, struct buf *strings)
{
    const char *path = field_text(fields, "path");

    (void)request;
    strings_add(strings, path ? path : "");
    return true;
}

static bool fill_move(struct fields *fields, struct request *request, struct buf *strings)
{
    const char *from = field_text(fields, "source"),
               *to = field_text(fields, "destination");

    request->count = 2;
    strings_add(strings, from ? from : "");
    strings_add(strings, to ? to : "");
    return (from && to) || field_reject(fields, from ? "destination" : "source");
}

static bool fill_list(struct fields *fields, struct request *request, struct buf *strings)
{
    request->numbers[LIST_DIR_DEPTH] = field_int(fields, "depth", 0, UINT32_MAX, 1);
    return fill_path(fields, request, strings);
}

static bool fill_watch(struct fields *fields, struct request *request,
                       struct buf *strings)
{
    if (field_bool(fields, "recursive", false))
        request->flags |= WATCH_RECURSIVE;
    if (field_bool(fields, "includeEntry", false))
        request->flags |= WATCH_ENTRIES;
    return fill_path(fields, request, strings);
}

static bool fill_watcher(struct fields *fields, struct request *request,
                         struct buf *strings)
{
    const char *id = field_text(fields, "watcherId");

    (void)request;
    strings_add(strings, id ? id : "");
    return id || field_reject(fields, "watcherId");
}

/* --- Replies --- */

/* An entry, or an empty object. */
static void on_entry(struct exchange *exchange, struct reply_packet *reply)
{
    struct json *json = exchange_json(exchange, LIST_TEXT);

    json_put_object(json);
    if (reply->head.kind == REPLY_ENTRY) {
        json_put_key(json, "entry");
        put_entry(json, reply);
    }
    exchange_end_json(exchange, 200);
}

/* --- Watching --- */

static const char *const changes[] = {
    "EVENT_TYPE_UNSPECIFIED",
    [CHANGE_CREATE] = "EVENT_TYPE_CREATE",
    [CHANGE_WRITE] = "EVENT_TYPE_WRITE",
    [CHANGE_REMOVE] = "EVENT_TYPE_REMOVE",
    [CHANGE_RENAME] = "EVENT_TYPE_RENAME",
    [CHANGE_CHMOD] = "EVENT_TYPE_CHMOD",
};

static void put_change(struct json *json, const struct reply_packet *reply)
{
    int64_t type = reply->head.numbers[CHANGE_WHAT];
    const char *name = reply_next(reply, NULL);
    bool known = type > 0 && type < (int64_t)(sizeof changes / sizeof *changes);

    json_put_object(json);
    json_put_key(json, "name");
    json_put_bytes(json, name, strlen(name));
    json_set_text(json, "type", changes[known ? type : 0]);
    if (reply->head.count > 1) {
        json_put_key(json, "entry");
        put_entry_at(json, reply, reply->head.numbers + CHANGE_ENTRY,
                     reply_next(reply, name));
    }
    json_put_end(json);
}

static size_t open_message(struct exchange *exchange, struct json *json)
{
    size_t begin = connect_open(&exchange->out);

    json_to_unicode(json, &exchange->out);
    json_put_object(json);
    return begin;
}

static void put_empty(struct exchange *exchange, const char *name)
{
    struct json json;
    size_t begin = open_message(exchange, &json);

    json_put_key(&json, name);
    json_put_object(&json);
    json_put_end(&json);
    json_put_end(&json);
    connect_close(&exchange->out, begin);
}

static void put_keepalive(struct exchange *exchange)
{
    put_empty(exchange, "keepalive");
}

static void on_change(struct exchange *exchange, struct reply_packet *reply)
{
    struct json json;

    if (!connect_begin_stream(exchange, reply, put_keepalive))
        return;
    if (reply->head.kind == REPLY_STARTED) {
        put_empty(exchange, "start");
    } else if (reply->head.kind == REPLY_CHANGE) {
        size_t begin = open_message(exchange, &json);
        json_put_key(&json, "filesystem");
        put_change(&json, reply);
        json_put_end(&json);
        connect_close(&exchange->out, begin);
    } else {
        connect_end_stream(exchange, reply->head.kind == REPLY_FAILED ? reply : NULL);
    }
}

static void on_watcher(struct exchange *exchange, struct reply_packet *reply)
{
    if (!exchange->json.buf)
        json_put_object(exchange_json(exchange, LIST_TEXT));
    if (reply->head.kind == REPLY_TEXT)
        json_set_text(&exchange->json, "watcherId", reply_next(reply, NULL));
    else
        exchange_end_json(exchange, 200);
}

/* {"entries": [...]} or {"events": [...]} */
static void on_list(struct exchange *exchange, struct reply_packet *reply)
{
    struct json *json = &exchange->json;

    if (!json->buf) {
        json_put_object(exchange_json(exchange, LIST_TEXT));
        json_put_key(json, exchange->handler->op == OP_LIST_DIR ? "entries" : "events");
        json_put_array(json);
    }
    if (reply->head.kind != REPLY_ENTRY && reply->head.kind != REPLY_CHANGE) {
        json_put_end(json);
        exchange_end_json(exchange, 200);
        return;
    }
    if (reply->head.kind == REPLY_ENTRY)
        put_entry(json, reply);
    else
        put_change(json, reply);
    (void)connect_charge(exchange);
}

#define CALL(name, operation, filler, replied, ...)                                      \
    {                                                                                    \
        .method = "POST", .path = "/filesystem.Filesystem/" name,                        \
        .body_max = BODY_CONTROL, .act = connect_call, .op = (operation),                \
        .fill = (filler), .on_reply = (replied), __VA_ARGS__                             \
    }
#define UNARY .on_error = connect_refuse_with

const struct handler filesystem_handlers[] = {
    CALL("Stat", OP_STAT, fill_path, on_entry, UNARY, .is_read = true),
    CALL("MakeDir", OP_MAKE_DIR, fill_path, on_entry, UNARY),
    CALL("Move", OP_MOVE, fill_move, on_entry, UNARY),
    CALL("ListDir", OP_LIST_DIR, fill_list, on_list, UNARY, .is_read = true),
    CALL("Remove", OP_REMOVE, fill_path, on_entry, UNARY),
    CALL("CreateWatcher", OP_WATCHER_NEW, fill_watch, on_watcher, UNARY),
    CALL("GetWatcherEvents", OP_WATCHER_EVENTS, fill_watcher, on_list, UNARY),
    CALL("RemoveWatcher", OP_WATCHER_REMOVE, fill_watcher, on_watcher, UNARY),
    CALL("WatchDir", OP_WATCH, fill_watch, on_change, .is_stream = true),
    {0},
};
