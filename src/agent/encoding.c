/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/encoding.h"

#include <stdint.h>
#include <string.h>

#include "base/utf8.h"

/* Control characters other than white space, BEL, BS and ESC: not in any text. */
static bool has_controls(const unsigned char *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (bytes[i] < 7 || (bytes[i] > 13 && bytes[i] < 32 && bytes[i] != 27))
            return true;
    return false;
}

enum encoding encoding_guess(const void *data, size_t len, bool is_all)
{
    const unsigned char *bytes = data;
    struct utf8_scan scan = {.count = UTF8_CHARS};

    if (len >= 2 && bytes[0] == 0xFF && bytes[1] == 0xFE)
        return len >= 4 && !bytes[2] && !bytes[3] ? ENCODING_BINARY : ENCODING_UTF16_LE;
    if (len >= 2 && bytes[0] == 0xFE && bytes[1] == 0xFF)
        return ENCODING_UTF16_BE;
    if (len && memchr(bytes, 0, len))
        return ENCODING_BINARY;
    if (utf8_scan(&scan, data, len) && (!is_all || utf8_scan_complete(&scan)))
        return ENCODING_UTF8;
    return has_controls(bytes, len) ? ENCODING_BINARY : ENCODING_LATIN_1;
}

const char *encoding_slug(enum encoding encoding)
{
    switch (encoding) {
    case ENCODING_UTF8:
        return "utf-8";
    case ENCODING_UTF16_LE:
    case ENCODING_UTF16_BE:
        return "utf-16";
    case ENCODING_LATIN_1:
        return "latin-1";
    case ENCODING_BINARY:
        break;
    }
    return "binary";
}

static void put_unit(uint32_t unit, bool is_big, struct buf *out)
{
    const char bytes[2] = {(char)(is_big ? unit >> 8 : unit & 0xFF),
                           (char)(is_big ? unit & 0xFF : unit >> 8)};

    buf_append(out, bytes, 2);
}

static void put_utf16(uint32_t character, bool is_big, struct buf *out)
{
    if (character < 0x10000) {
        put_unit(character, is_big, out);
        return;
    }
    character -= 0x10000;
    put_unit(0xD800 + (character >> 10), is_big, out);
    put_unit(0xDC00 + (character & 0x3FF), is_big, out);
}

static bool put_character(enum encoding encoding, uint32_t character, struct buf *out)
{
    const char byte = (char)character;

    if (encoding == ENCODING_LATIN_1)
        return character <= 0xFF && buf_append(out, &byte, 1);
    put_utf16(character, encoding == ENCODING_UTF16_BE, out);
    return !out->failed;
}

bool encoding_put(enum encoding encoding, const char *text, size_t len, struct buf *out)
{
    if (encoding == ENCODING_UTF8 || encoding == ENCODING_BINARY)
        return buf_append(out, text, len);
    for (size_t at = 0; at < len;) {
        uint32_t character;
        at += utf8_next(text + at, len - at, &character);
        if (character == UTF8_INVALID || !put_character(encoding, character, out))
            return false;
    }
    return buf_reserve(out, 0);
}
