/* SPDX-License-Identifier: Apache-2.0 */
#include "json/json.h"

#include <inttypes.h>
#include <langinfo.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/utf8.h"

#define DEPTH_MAX 64

void json_to_buf(struct json *json, struct buf *buf)
{
    *json = (struct json){.buf = buf};
}

void json_to_unicode(struct json *json, struct buf *buf)
{
    *json = (struct json){.buf = buf, .is_unicode = true};
}

void json_to_ascii(struct json *json, struct buf *buf)
{
    *json = (struct json){.buf = buf, .is_unicode = true, .is_ascii = true};
}

void json_to_file(struct json *json, FILE *file)
{
    *json = (struct json){.file = file};
}

static void put(struct json *json, const void *data, size_t len)
{
    if (json->failed)
        return;
    json->failed = json->buf ? !buf_append(json->buf, data, len)
                             : len > 0 && fwrite(data, 1, len, json->file) != len;
}

static bool in_object(const struct json *json)
{
    return json->depth > 0 && (json->objects >> (json->depth - 1) & 1);
}

/* Writes the separator before a value; fails where no value is allowed. */
static void begin_value(struct json *json)
{
    if (in_object(json) ? !json->has_key : json->depth == 0 && json->comma)
        json->failed = true;
    if (!in_object(json) && json->comma)
        put(json, ",", 1);
    json->has_key = false;
    json->comma = true;
}

static void open_level(struct json *json, bool is_object)
{
    begin_value(json);
    if (json->depth == DEPTH_MAX) {
        json->failed = true;
        return;
    }
    put(json, is_object ? "{" : "[", 1);
    json->objects &= ~(UINT64_C(1) << json->depth);
    json->objects |= (uint64_t)is_object << json->depth;
    json->depth++;
    json->comma = false;
}

void json_put_object(struct json *json)
{
    open_level(json, true);
}

void json_put_array(struct json *json)
{
    open_level(json, false);
}

void json_put_end(struct json *json)
{
    if (json->depth == 0 || json->has_key) {
        json->failed = true;
        return;
    }
    put(json, in_object(json) ? "}" : "]", 1);
    json->depth--;
    json->comma = true;
}

static void put_unit(struct json *json, uint32_t unit)
{
    static const char digits[] = "0123456789abcdef";
    static const char from[] = "\"\\\n\t\r\b\f", to[] = "\"\\ntrbf";
    const char *known = unit < 0x80 && unit ? strchr(from, (int)unit) : NULL;

    if (known) {
        put(json, (char[]){'\\', to[known - from]}, 2);
        return;
    }
    put(json,
        (char[]){'\\', 'u', digits[unit >> 12 & 15], digits[unit >> 8 & 15],
                 digits[unit >> 4 & 15], digits[unit & 15]},
        6);
}

static void put_escape(struct json *json, uint32_t code)
{
    if (code > 0xFFFF) {
        put_unit(json, 0xD800u + ((code - 0x10000) >> 10));
        code = 0xDC00u | (code & 0x3FF);
    }
    put_unit(json, code);
}

static bool is_plain_above_ascii(const struct json *json, uint32_t code)
{
    return code >= 0xA0 && !json->is_ascii;
}

static void put_string(struct json *json, const char *text, size_t len)
{
    size_t plain = 0; /* start of the run that is written unchanged */

    put(json, "\"", 1);
    for (size_t i = 0; i < len;) {
        uint32_t code;
        size_t size = utf8_next(text + i, len - i, &code);
        bool is_valid = code != UTF8_INVALID;
        bool is_plain = is_valid && code >= 0x20 && code != '"' && code != '\\' &&
                        (code < 0x7F || is_plain_above_ascii(json, code));
        if (!is_valid)
            size = 1;
        if (!is_plain) {
            put(json, text + plain, i - plain);
            put_escape(json, is_valid           ? code
                             : json->is_unicode ? 0xFFFDu
                                                : 0xDC00u | (unsigned char)text[i]);
            plain = i + size;
        }
        i += size;
    }
    put(json, text + plain, len - plain);
    put(json, "\"", 1);
}

void json_put_key(struct json *json, const char *key)
{
    if (!in_object(json) || json->has_key)
        json->failed = true;
    if (json->comma)
        put(json, ",", 1);
    put_string(json, key, strlen(key));
    put(json, ":", 1);
    json->has_key = true;
}

void json_put_bytes(struct json *json, const void *bytes, size_t len)
{
    begin_value(json);
    put_string(json, bytes, len);
}

void json_put_text(struct json *json, const char *text)
{
    if (text)
        json_put_bytes(json, text, strlen(text));
    else
        json_put_null(json);
}

void json_put_int(struct json *json, int64_t value)
{
    char text[24];

    begin_value(json);
    put(json, text, (size_t)snprintf(text, sizeof text, "%" PRId64, value));
}

void json_put_uint(struct json *json, uint64_t value)
{
    char text[24];

    begin_value(json);
    put(json, text, (size_t)snprintf(text, sizeof text, "%" PRIu64, value));
}

/* The fewest digits that are read as the same number, with a point in every locale. */
void json_put_number(struct json *json, double value)
{
    const char *radix = nl_langinfo(RADIXCHAR);
    char text[40];
    int digits = 15;

    do
        snprintf(text, sizeof text, "%.*g", digits, value);
    while (strtod(text, NULL) != value && digits++ < 17);
    const char *point = strstr(text, radix);
    if (!isfinite(value))
        json->failed = true;
    begin_value(json);
    put(json, text, point ? (size_t)(point - text) : strlen(text));
    if (point) {
        put(json, ".", 1);
        put(json, point + strlen(radix), strlen(point + strlen(radix)));
    }
}

void json_put_bool(struct json *json, bool value)
{
    begin_value(json);
    put(json, value ? "true" : "false", value ? 4 : 5);
}

void json_put_null(struct json *json)
{
    begin_value(json);
    put(json, "null", 4);
}

/* These characters can only be inside a string. */
void json_put_raw(struct json *json, const char *text)
{
    size_t len = strlen(text), plain = 0;

    begin_value(json);
    for (size_t i = 0; i < len;) {
        uint32_t code;
        size_t size = utf8_next(text + i, len - i, &code);
        if (code >= 0x7F && code != UTF8_INVALID && !is_plain_above_ascii(json, code)) {
            put(json, text + plain, i - plain);
            put_escape(json, code);
            plain = i + size;
        }
        i += size;
    }
    put(json, text + plain, len - plain);
}

void json_set_text(struct json *json, const char *key, const char *text)
{
    json_put_key(json, key);
    json_put_text(json, text);
}

void json_set_int(struct json *json, const char *key, int64_t value)
{
    json_put_key(json, key);
    json_put_int(json, value);
}

void json_set_uint(struct json *json, const char *key, uint64_t value)
{
    json_put_key(json, key);
    json_put_uint(json, value);
}

void json_set_bool(struct json *json, const char *key, bool value)
{
    json_put_key(json, key);
    json_put_bool(json, value);
}

bool json_finish(struct json *json)
{
    if (json->depth > 0 || !json->comma)
        json->failed = true;
    return !json->failed;
}
