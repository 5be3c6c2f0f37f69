/* SPDX-License-Identifier: Apache-2.0 */

/* The Connect protocol with JSON, as far as the SDKs use it: unary calls with plain JSON
 * bodies, and server streams whose messages are in envelopes: one byte of flags and four
 * of length.  The last envelope of a stream contains its status; an aborted stream has
 * none. */
#include <ctype.h>
#include <errno.h>
#include <nettle/base64.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/auto.h"
#include "server/front/front.h"

enum { ENVELOPE = 5, END_STREAM = 2, DEPTH_MAX = 64, KEEPALIVE_S = 90 };
enum { VALUES_MAX = 1 << 17 }; /* per body; each takes up to 230 bytes of memory */

/* --- Errors --- */

static const struct mapping {
    const char *name;
    int code;
    unsigned status;
} mappings[] = {
    {"invalid_argument", CAY_E_INVALID, 400},
    {"invalid_argument", CAY_E_NOT_A_FILE, 400},
    {"invalid_argument", CAY_E_NOT_A_DIRECTORY, 400},
    {"invalid_argument", CAY_E_EXEC_FAILED, 400},
    {"permission_denied", CAY_E_DENIED, 403},
    {"permission_denied", CAY_E_READ_ONLY, 403},
    {"permission_denied", CAY_E_NOT_APPROVED, 403},
    {"failed_precondition", CAY_E_CHANGED, 412},
    {"not_found", CAY_E_NOT_FOUND, 404},
    {"already_exists", CAY_E_EXISTS, 409},
    {"unavailable", CAY_E_BUSY, 503},
    {"deadline_exceeded", CAY_E_TIMEOUT, 504},
    {"canceled", CAY_E_CANCELLED, 499},
    {"resource_exhausted", CAY_E_LIMIT, 429},
    {"resource_exhausted", CAY_E_NO_MEMORY, 429},
    {"resource_exhausted", CAY_E_NO_SPACE, 429},
    {"unimplemented", CAY_E_UNSUPPORTED, 501},
    {"unknown", CAY_E_PROTOCOL, 500},
};

/* A keeper reports an unknown user this way; the broker has other codes for keys and
 * tokens. */
static bool is_unknown_user(const struct reply_packet *reply)
{
    return reply->head.status == 401 && reply->head.code == CAY_E_NOT_FOUND;
}

/* The error comes from the broker, not from the call: respond like a proxy. */
static bool is_refused(const struct reply_packet *reply)
{
    return reply->head.kind == REPLY_FAILED && reply->head.status &&
           !is_unknown_user(reply);
}

const char *connect_code(const struct reply_packet *reply, unsigned *ret_status)
{
    if (is_unknown_user(reply)) {
        *ret_status = 401;
        return "unauthenticated";
    }
    for (size_t i = 0; i < sizeof mappings / sizeof *mappings; i++)
        if (mappings[i].code == reply->head.code) {
            *ret_status = mappings[i].status;
            return mappings[i].name;
        }
    *ret_status = 500;
    return "internal";
}

static void refuse(struct exchange *exchange, unsigned status, const char *code,
                   const char *message)
{
    struct json *json = exchange_json(exchange, 16 << 10);

    json_put_object(json);
    json_set_text(json, "code", code);
    json_set_text(json, "message", message);
    exchange_end_json(exchange, status);
}

void connect_refuse_with(struct exchange *exchange, const struct reply_packet *reply)
{
    const char *message = reply_next(reply, NULL);
    unsigned status;

    if (is_refused(reply)) {
        exchange_refuse_with(exchange, reply);
        return;
    }
    const char *code = connect_code(reply, &status);
    refuse(exchange, status, code, message ? message : "failed");
}

bool connect_charge(struct exchange *exchange)
{
    struct buf *text = &exchange->out;
    char message[128];

    if (text->failed)
        snprintf(message, sizeof message,
                 "the response exceeds %zu MiB; request less at a time", text->max >> 20);
    else if (exchange_charge_client(exchange, text->len))
        return true;
    else
        snprintf(message, sizeof message,
                 "unread responses for one sandbox exceed %u MiB; read them first",
                 (unsigned)CLIENT_CHARGE_MAX >> 20);
    buf_done(text);
    exchange->charged = 0;
    refuse(exchange, 429, "resource_exhausted", message);
    return false;
}

/* --- Envelopes --- */

size_t connect_open(struct buf *out)
{
    static const char empty[ENVELOPE];
    size_t begin = out->len;

    (void)buf_append(out, empty, ENVELOPE);
    return begin;
}

static void close_as(struct buf *out, size_t begin, unsigned char flags)
{
    size_t len = out->len - begin - ENVELOPE;

    if (out->failed)
        return;
    const unsigned char head[ENVELOPE] = {flags, (unsigned char)(len >> 24),
                                          (unsigned char)(len >> 16),
                                          (unsigned char)(len >> 8), (unsigned char)len};
    memcpy(out->data + begin, head, ENVELOPE);
}

void connect_close(struct buf *out, size_t begin)
{
    close_as(out, begin, 0);
}

/* `code`: NULL on success. */
static void put_last(struct buf *out, const char *code, const char *message)
{
    size_t begin = connect_open(out);
    struct json json;

    json_to_unicode(&json, out);
    json_put_object(&json);
    if (code) {
        json_put_key(&json, "error");
        json_put_object(&json);
        json_set_text(&json, "code", code);
        json_set_text(&json, "message", message ? message : "failed");
        json_put_end(&json);
    }
    json_put_end(&json);
    close_as(out, begin, END_STREAM);
}

void connect_begin_waiting(struct exchange *exchange, const char *header,
                           const char *value,
                           void (*keepalive)(struct exchange *exchange))
{
    int64_t seconds = exchange_number(exchange, "Keepalive-Ping-Interval", KEEPALIVE_S);

    exchange_stream(exchange, "application/connect+json", (uint64_t)seconds * 1000,
                    keepalive);
    if (exchange->response)
        (void)MHD_add_response_header(exchange->response, header, value);
}

bool connect_begin_stream(struct exchange *exchange, const struct reply_packet *reply,
                          void (*keepalive)(struct exchange *exchange))
{
    int64_t seconds = exchange_number(exchange, "Keepalive-Ping-Interval", KEEPALIVE_S);
    int64_t timeout_ms = exchange_number(exchange, "Connect-Timeout-Ms", 0);

    if (exchange->is_stream)
        return true;
    if (is_refused(reply)) {
        exchange_refuse_with(exchange, reply);
        return false;
    }
    exchange_stream(exchange, "application/connect+json", (uint64_t)seconds * 1000,
                    keepalive);
    if (timeout_ms && exchange->handler->op != OP_START)
        exchange->deadline_ms = exchange->began_ms + (uint64_t)timeout_ms;
    return true;
}

void connect_end_stream(struct exchange *exchange, const struct reply_packet *failure)
{
    unsigned status;

    connect_end_with(exchange, failure ? connect_code(failure, &status) : NULL,
                     failure ? reply_next(failure, NULL) : NULL);
}

void connect_end_with(struct exchange *exchange, const char *code, const char *message)
{
    put_last(&exchange->out, code, message);
    exchange_end(exchange, false);
}

void connect_respond_stream(struct exchange *exchange, const char *code,
                            const char *message)
{
    AUTO_BUF text = {.max = 4096};

    if (!code) {
        size_t begin = connect_open(&text);
        buf_text(&text, "{}");
        connect_close(&text, begin);
    }
    put_last(&text, code, message);
    struct MHD_Response *response =
        MHD_create_response_from_buffer(text.len, text.data, MHD_RESPMEM_MUST_COPY);
    if (response)
        (void)MHD_add_response_header(response, "Content-Type",
                                      "application/connect+json");
    exchange_respond(exchange, 200, response);
}

static void refuse_stream(struct exchange *exchange, unsigned status, const char *code,
                          const char *message)
{
    (void)status;
    connect_respond_stream(exchange, code, message);
}

void connect_put_time(struct json *json, const char *key, int64_t seconds,
                      int64_t fraction, int digits)
{
    time_t when = (time_t)seconds;
    char text[64];
    struct tm tm;

    gmtime_r(&when, &tm);
    size_t len = strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(text + len, sizeof text - len, ".%0*lldZ", digits, (long long)fraction);
    json_set_text(json, key, text);
}

void connect_put_pairs(struct json *json, const struct reply_packet *reply,
                       const char *at)
{
    json_put_key(json, "metadata");
    json_put_object(json);
    while (at) {
        const char *value = reply_next(reply, at);
        if (!value)
            break;
        if (*at != RECORD_HIDDEN)
            json_set_text(json, at, value);
        at = reply_next(reply, value);
    }
    json_put_end(json);
}

/* --- Requests --- */

bool connect_user(const struct exchange *exchange, char ret_user[USER_MAX])
{
    const char *text = exchange_header(exchange, "Authorization");
    struct base64_decode_ctx base64;
    unsigned char plain[BASE64_DECODE_LENGTH(256) + 1];
    size_t len = sizeof plain - 1;

    ret_user[0] = '\0';
    if (!text)
        return true;
    if (strncasecmp(text, "Basic ", 6) != 0 || strlen(text + 6) > 256)
        return false;
    base64_decode_init(&base64);
    if (!base64_decode_update(&base64, &len, plain, strlen(text + 6), text + 6) ||
        !base64_decode_final(&base64))
        return false;
    plain[len] = '\0';
    size_t name = strcspn((char *)plain, ":");
    if (name >= USER_MAX || strlen((char *)plain) != len)
        return false;
    memcpy(ret_user, plain, name);
    ret_user[name] = '\0';
    return true;
}

/* The parser recurses as deep as the text nests, and allocates memory for each value,
 * before the credentials are checked. */
static bool is_too_complex(const char *text, size_t len)
{
    bool in_string = false;
    unsigned depth = 0, values = 1;

    for (size_t i = 0; i < len; i++) {
        if (in_string && text[i] == '\\')
            i++;
        else if (text[i] == '"')
            in_string = !in_string;
        else if (!in_string && (text[i] == '{' || text[i] == '['))
            depth++;
        else if (!in_string && (text[i] == '}' || text[i] == ']'))
            depth -= depth > 0;
        values += !in_string && (text[i] == ',' || text[i] == '{' || text[i] == '[');
        if (depth > DEPTH_MAX || values > VALUES_MAX)
            return true;
    }
    return false;
}

json_t *connect_parse(const char *text, size_t len)
{
    if (is_too_complex(text, len))
        return NULL;
    json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
    if (root && !json_is_object(root)) {
        json_decref(root);
        return NULL;
    }
    return root;
}

json_t *connect_body(struct exchange *exchange, bool is_stream)
{
    const unsigned char *text = (const unsigned char *)exchange->body.data;
    size_t len = exchange->body.len;

    if (is_stream) {
        if (len < ENVELOPE || text[0] != 0)
            return NULL;
        size_t declared = (size_t)text[1] << 24 | (size_t)text[2] << 16 |
                          (size_t)text[3] << 8 | text[4];
        text += ENVELOPE;
        len -= ENVELOPE;
        if (declared != len)
            return NULL;
    }
    return connect_parse((const char *)text, len);
}

/* --- Fields --- */

bool field_reject(struct fields *fields, const char *name)
{
    struct fields *top = fields->top ? fields->top : fields;

    if (!top->wrong)
        top->wrong = name;
    return false;
}

const char *fields_error(const struct fields *fields, char ret_text[FIELDS_ERROR_MAX])
{
    if (!fields->object)
        return "the body is not a JSON object";
    if (!fields->wrong)
        return "invalid message for this call";
    snprintf(ret_text, FIELDS_ERROR_MAX, "%s is missing or invalid", fields->wrong);
    return ret_text;
}

json_t *field_get(struct fields *fields, const char *name)
{
    json_t *value = json_object_get(fields->object, name);
    char snake[64];
    size_t len = 0;

    if (!value) {
        for (; *name && len < sizeof snake - 2; name++) {
            if (isupper((unsigned char)*name))
                snake[len++] = '_';
            snake[len++] = (char)tolower((unsigned char)*name);
        }
        snake[len] = '\0';
        value = json_object_get(fields->object, snake);
    }
    return json_is_null(value) ? NULL : value;
}

const char *field_text(struct fields *fields, const char *name)
{
    const json_t *value = field_get(fields, name);

    if (value && !json_is_string(value))
        (void)field_reject(fields, name);
    return json_string_value(value);
}

bool field_bool(struct fields *fields, const char *name, bool unless_given)
{
    const json_t *value = field_get(fields, name);

    if (!value)
        return unless_given;
    if (!json_is_boolean(value))
        (void)field_reject(fields, name);
    return json_is_true(value);
}

int64_t field_int(struct fields *fields, const char *name, int64_t least, int64_t most,
                  int64_t unless_given)
{
    const json_t *value = field_get(fields, name);
    const char *text = json_string_value(value);
    int64_t number = unless_given;
    char *end = NULL;

    if (!value)
        return unless_given;
    errno = 0;
    if (json_is_integer(value))
        number = json_integer_value(value);
    else if (text && *text)
        number = strtoll(text, &end, 10);
    if ((!json_is_integer(value) && (!end || *end || errno)) || number < least ||
        number > most) {
        (void)field_reject(fields, name);
        return unless_given;
    }
    return number;
}

struct fields field_object(struct fields *fields, const char *name)
{
    const json_t *value = field_get(fields, name);

    if (value && !json_is_object(value))
        (void)field_reject(fields, name);
    return (struct fields){.object = json_is_object(value) ? value : NULL,
                           .top = fields->top ? fields->top : fields};
}

int64_t field_add_array(struct fields *fields, const char *name, struct buf *strings)
{
    const json_t *value = field_get(fields, name);
    size_t count = json_array_size(value);

    if (value && !json_is_array(value))
        (void)field_reject(fields, name);
    for (size_t i = 0; i < count; i++) {
        const char *text = json_string_value(json_array_get(value, i));
        if (!text)
            (void)field_reject(fields, name);
        strings_add(strings, text ? text : "");
    }
    return (int64_t)count;
}

int64_t field_add_pairs(struct fields *fields, const char *name, bool joined,
                        struct buf *strings)
{
    json_t *value = field_get(fields, name);
    const char *key;
    json_t *item;
    int64_t count = 0;

    if (value && !json_is_object(value))
        (void)field_reject(fields, name);
    json_object_foreach(value, key, item)
    {
        const char *text = json_string_value(item);
        if (!text || (joined && (!*key || strchr(key, '='))))
            (void)field_reject(fields, name);
        (void)buf_append(strings, key, strlen(key) + !joined);
        if (joined)
            (void)buf_append(strings, "=", 1);
        strings_add(strings, text ? text : "");
        count++;
    }
    return count;
}

/* --- Calls --- */

void connect_call(struct exchange *exchange)
{
    const struct handler *handler = exchange->handler;
    void (*refuse_as)(struct exchange * exchange, unsigned status, const char *code,
                      const char *message) = handler->is_stream ? refuse_stream : refuse;
    json_t *root = connect_body(exchange, handler->is_stream);
    struct fields fields = {.object = root};
    char message[FIELDS_ERROR_MAX];
    AUTO_BUF strings = {.max = handler->body_max == BODY_COMMAND ? CHANNEL_STRINGS
                                                                 : CHANNEL_PACKET};
    struct request request;

    exchange_init_request(exchange, handler->op, &request);
    request.count = 1;
    if (handler->op == OP_START) /* the sandbox ends the command */
        request.numbers[START_TIMEOUT_MS] =
            exchange_number(exchange, "Connect-Timeout-Ms", 0);
    if (!root || !handler->fill(&fields, &request, &strings) || fields.wrong) {
        refuse_as(exchange, 400, "invalid_argument", fields_error(&fields, message));
    } else if (!connect_user(exchange, request.user)) {
        refuse_as(exchange, 401, "unauthenticated",
                  "Authorization must be Basic, with a user of the sandbox");
    } else {
        if (handler->op == OP_INPUT) /* it waits until the process reads it */
            exchange_watch_client(exchange);
        exchange_send(exchange, &request, &strings);
    }
    json_decref(root);
}

/* --- Base64 --- */

typedef uint32_t words __attribute__((vector_size(16)));
typedef int8_t characters __attribute__((vector_size(16)));

enum { BASE64_IN = 12, BASE64_READ = 13, BASE64_OUT = sizeof(words) };

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "little-endian");

/* Twelve bytes at a time, three in each word: the bits aaaaaabb bbbbcccc ccdddddd become
 * 00aaaaaa 00bbbbbb 00cccccc 00dddddd, and then characters. */
static void encode_twelve(char *to, const unsigned char *from)
{
    uint32_t three[4];

    for (int i = 0; i < 4; i++)
        memcpy(&three[i], from + 3 * i, sizeof *three);
    const words in = {three[0], three[1], three[2], three[3]};
    const words sixes = (in >> 2 & 0x3f) | (in << 12 & 0x3000) | (in >> 4 & 0x0f00) |
                        (in << 10 & 0x3c0000) | (in >> 6 & 0x030000) |
                        (in << 8 & 0x3f000000);
    const characters at = (characters)sixes;
    const characters out = at + 'A' + ((at > 25) & ('a' - 'A' - 26)) -
                           ((at > 51) & ('a' - '0' + 26)) - ((at > 61) & 15) +
                           ((at > 62) & 3);
    memcpy(to, &out, sizeof out);
}

void connect_base64(char *to, const void *from, size_t len)
{
    const unsigned char *at = from;

    for (; len >= BASE64_READ; len -= BASE64_IN, at += BASE64_IN, to += BASE64_OUT)
        encode_twelve(to, at);
    base64_encode_raw(to, len, at);
}
