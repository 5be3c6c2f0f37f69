/* SPDX-License-Identifier: Apache-2.0 */

/* filesystem.Filesystem of E2B's envd. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/auto.h"
#include "cay/files.h"
#include "server/front/fields.h"
#include "server/front/front.h"
#include "json/json.h"

/* --- EntryInfo --- */

static const char *type_name(int64_t type)
{
    return type == CAY_TYPE_FILE        ? "FILE_TYPE_FILE"
           : type == CAY_TYPE_DIRECTORY ? "FILE_TYPE_DIRECTORY"
           : type == CAY_TYPE_LINK      ? "FILE_TYPE_SYMLINK"
                                        : "FILE_TYPE_UNSPECIFIED";
}

/* "Lrwxrwxrwx" for a link, "urwxr-xr-x" for a program that is run as its owner, and
 * "dtrwxrwxrwx" for /tmp, as Go writes them. */
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

static void put_time(struct json *json, int64_t ns)
{
    int64_t rest = ns % 1000000000;
    time_t seconds = (time_t)(ns / 1000000000 - (rest < 0));
    char text[48], day[32];
    struct tm tm;

    gmtime_r(&seconds, &tm);
    strftime(day, sizeof day, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(text, sizeof text, "%s.%09lldZ", day,
             (long long)(rest < 0 ? rest + 1000000000 : rest));
    json_set_text(json, "modifiedTime", text);
}

static void set_bytes(struct json *json, const char *key, const char *text)
{
    json_put_key(json, key);
    json_put_bytes(json, text, strlen(text));
}

static void put_entry_at(struct json *json, const struct told *told,
                         const int64_t *numbers, const char *name)
{
    static const char *const keys[] = {"name", "path", "owner", "group"};
    const char *at = name;
    char size[24];

    json_put_object(json);
    for (int i = 0; i < 4 && at; i++, at = told_next(told, at))
        set_bytes(json, keys[i], at);
    json_set_text(json, "type", type_name(numbers[ENTRY_TYPE]));
    snprintf(size, sizeof size, "%lld", (long long)numbers[ENTRY_SIZE]);
    json_set_text(json, "size", size);
    json_set_int(json, "mode", numbers[ENTRY_MODE] & 0777);
    put_permissions(json, numbers);
    put_time(json, numbers[ENTRY_MTIME_NS]);
    if (at && *at)
        set_bytes(json, "symlinkTarget", at);
    at = at ? told_next(told, at) : NULL;
    if (at) {
        json_put_key(json, "metadata");
        json_put_object(json);
        while (at) {
            const char *value = told_next(told, at);
            if (!value)
                break;
            json_set_text(json, at, value);
            at = told_next(told, value);
        }
        json_put_end(json);
    }
    json_put_end(json);
}

static void put_entry(struct json *json, const struct told *told)
{
    put_entry_at(json, told, told->head.numbers, told_next(told, NULL));
}

static void put_entry_after(struct json *json, const struct told *told,
                            const char *before)
{
    put_entry_at(json, told, told->head.numbers + CHANGE_ENTRY, told_next(told, before));
}

enum { LIST_TEXT = 64 << 20 };

/* What a call has put together so far. */
struct reply {
    struct buf text;
    struct json json;
};

static void reply_done(struct exchange *exchange)
{
    struct reply *reply = exchange->state;

    buf_done(&reply->text);
    free(reply);
}

static struct reply *reply_new(struct exchange *exchange)
{
    struct reply *reply = calloc(1, sizeof *reply);

    if (!reply)
        return NULL;
    buf_init(&reply->text, LIST_TEXT);
    json_to_unicode(&reply->json, &reply->text);
    json_put_object(&reply->json);
    exchange->state = reply;
    exchange->state_done = reply_done;
    return reply;
}

/* --- Asking --- */

static const char not_basic[] = "Authorization is to be Basic";

typedef bool fill(struct fields *fields, struct ask *ask, struct buf *strings);

static void call(struct exchange *exchange, enum op op, fill *filler)
{
    json_t *root = connect_body(exchange, false);
    struct fields fields = {.object = root};
    char complaint[COMPLAINT_MAX];
    AUTO_BUF strings = {0};
    struct ask ask;

    buf_init(&strings, CHANNEL_PACKET);
    exchange_begin_ask(exchange, op, &ask);
    ask.count = 1;
    if (!root || !filler(&fields, &ask, &strings) || fields.wrong)
        connect_refuse(exchange, 400, "invalid_argument",
                       fields_complain(&fields, complaint));
    else if (!connect_user(exchange, ask.user))
        connect_refuse(exchange, 401, "unauthenticated", not_basic);
    else
        exchange_ask(exchange, &ask, &strings);
    json_decref(root);
}

static bool fill_path(struct fields *fields, struct ask *ask, struct buf *strings)
{
    const char *path = field_text(fields, "path");

    (void)ask;
    strings_add(strings, path ? path : "");
    return true;
}

static bool fill_move(struct fields *fields, struct ask *ask, struct buf *strings)
{
    const char *from = field_text(fields, "source"),
               *to = field_text(fields, "destination");

    ask->count = 2;
    strings_add(strings, from ? from : "");
    strings_add(strings, to ? to : "");
    return (from && to) || field_fail(fields, from ? "destination" : "source");
}

static bool fill_list(struct fields *fields, struct ask *ask, struct buf *strings)
{
    ask->numbers[LIST_DIR_DEPTH] = field_int(fields, "depth", 0, UINT32_MAX, 1);
    return fill_path(fields, ask, strings);
}

static bool fill_watch(struct fields *fields, struct ask *ask, struct buf *strings)
{
    if (field_bool(fields, "recursive", false))
        ask->flags |= WATCH_RECURSIVE;
    if (field_bool(fields, "includeEntry", false))
        ask->flags |= WATCH_ENTRIES;
    return fill_path(fields, ask, strings);
}

static bool fill_watcher(struct fields *fields, struct ask *ask, struct buf *strings)
{
    const char *id = field_text(fields, "watcherId");

    (void)ask;
    strings_add(strings, id ? id : "");
    return id || field_fail(fields, "watcherId");
}

/* --- Answers --- */

static void finish(struct exchange *exchange)
{
    struct reply *reply = exchange->state;

    json_put_end(&reply->json);
    exchange_reply_json(exchange, 200, &reply->text);
}

/* An entry, or nothing but that it was done. */
static void told_entry(struct exchange *exchange, struct told *told)
{
    struct reply *reply = reply_new(exchange);

    if (told->head.kind == TELL_FAILED) {
        connect_refuse_told(exchange, told);
    } else if (reply) {
        if (told->head.kind == TELL_ENTRY) {
            json_put_key(&reply->json, "entry");
            put_entry(&reply->json, told);
        }
        finish(exchange);
    }
}

static void told_list(struct exchange *exchange, struct told *told)
{
    struct reply *reply = exchange->state;

    if (!reply) {
        reply = reply_new(exchange);
        if (!reply)
            return;
        json_put_key(&reply->json, "entries");
        json_put_array(&reply->json);
    }
    if (told->head.kind == TELL_FAILED) {
        connect_refuse_told(exchange, told);
    } else if (told->head.kind == TELL_ENTRY) {
        put_entry(&reply->json, told);
        (void)connect_may_grow(exchange, &reply->text);
    } else {
        json_put_end(&reply->json);
        finish(exchange);
    }
}

static void stat_it(struct exchange *exchange)
{
    call(exchange, OP_STAT, fill_path);
}

static void make_dir(struct exchange *exchange)
{
    call(exchange, OP_MAKE_DIR, fill_path);
}

static void move(struct exchange *exchange)
{
    call(exchange, OP_MOVE, fill_move);
}

static void list_dir(struct exchange *exchange)
{
    call(exchange, OP_LIST_DIR, fill_list);
}

static void remove_it(struct exchange *exchange)
{
    call(exchange, OP_REMOVE, fill_path);
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

static void put_change(struct json *json, const struct told *told)
{
    int64_t type = told->head.numbers[CHANGE_WHAT];
    const char *name = told_next(told, NULL);
    bool known = type > 0 && type < (int64_t)(sizeof changes / sizeof *changes);

    json_put_object(json);
    json_put_key(json, "name");
    json_put_bytes(json, name, strlen(name));
    json_set_text(json, "type", changes[known ? type : 0]);
    if (told->head.count > 1) {
        json_put_key(json, "entry");
        put_entry_after(json, told, name);
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

static void told_change(struct exchange *exchange, struct told *told)
{
    struct json json;

    if (!connect_begin_stream(exchange, told, put_keepalive))
        return;
    if (told->head.kind == TELL_STARTED) {
        put_empty(exchange, "start");
    } else if (told->head.kind == TELL_CHANGE) {
        size_t begin = open_message(exchange, &json);
        json_put_key(&json, "filesystem");
        put_change(&json, told);
        json_put_end(&json);
        connect_close(&exchange->out, begin);
    } else {
        connect_end_stream(exchange, told->head.kind == TELL_FAILED ? told : NULL);
    }
}

static void watch_dir(struct exchange *exchange)
{
    json_t *root = connect_body(exchange, true);
    struct fields fields = {.object = root};
    char complaint[COMPLAINT_MAX];
    AUTO_BUF strings = {0};
    struct ask ask;

    buf_init(&strings, CHANNEL_PACKET);
    exchange_begin_ask(exchange, OP_WATCH, &ask);
    connect_set_deadline(exchange);
    ask.count = 1;
    if (!root || !fill_watch(&fields, &ask, &strings) || fields.wrong)
        connect_reply_stream(exchange, "invalid_argument",
                             fields_complain(&fields, complaint));
    else if (!connect_user(exchange, ask.user))
        connect_reply_stream(exchange, "unauthenticated", not_basic);
    else
        exchange_ask(exchange, &ask, &strings);
    json_decref(root);
}

static void watcher_new(struct exchange *exchange)
{
    call(exchange, OP_WATCHER_NEW, fill_watch);
}

static void watcher_events(struct exchange *exchange)
{
    call(exchange, OP_WATCHER_EVENTS, fill_watcher);
}

static void watcher_remove(struct exchange *exchange)
{
    call(exchange, OP_WATCHER_REMOVE, fill_watcher);
}

static void told_watcher(struct exchange *exchange, struct told *told)
{
    struct reply *reply = exchange->state ? exchange->state : reply_new(exchange);

    if (told->head.kind == TELL_FAILED)
        connect_refuse_told(exchange, told);
    else if (told->head.kind == TELL_TEXT && reply)
        json_set_text(&reply->json, "watcherId", told_next(told, NULL));
    else if (reply)
        finish(exchange);
}

static void told_events(struct exchange *exchange, struct told *told)
{
    struct reply *reply = exchange->state;

    if (!reply) {
        reply = reply_new(exchange);
        if (!reply)
            return;
        json_put_key(&reply->json, "events");
        json_put_array(&reply->json);
    }
    if (told->head.kind == TELL_FAILED) {
        connect_refuse_told(exchange, told);
    } else if (told->head.kind == TELL_CHANGE) {
        put_change(&reply->json, told);
        (void)connect_may_grow(exchange, &reply->text);
    } else {
        json_put_end(&reply->json);
        finish(exchange);
    }
}

#define CALL(name, action, answer, ...)                                                  \
    {                                                                                    \
        .method = "POST", .path = "/filesystem.Filesystem/" name, .body_max = 1 << 20,   \
        .act = (action), .told = (answer), __VA_ARGS__                                   \
    }

const struct handler filesystem_handlers[] = {
    CALL("Stat", stat_it, told_entry, .is_read = true),
    CALL("MakeDir", make_dir, told_entry),
    CALL("Move", move, told_entry),
    CALL("ListDir", list_dir, told_list, .is_read = true),
    CALL("Remove", remove_it, told_entry),
    CALL("WatchDir", watch_dir, told_change),
    CALL("CreateWatcher", watcher_new, told_watcher),
    CALL("GetWatcherEvents", watcher_events, told_events),
    CALL("RemoveWatcher", watcher_remove, told_watcher),
    {0},
};
