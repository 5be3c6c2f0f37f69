/* SPDX-License-Identifier: Apache-2.0 */
#include "native/make/jks.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/auto.h"

/* --- SHA-1, which the format has as its checksum --- */

static uint32_t rotate(uint32_t word, unsigned bits)
{
    return word << bits | word >> (32 - bits);
}

static uint32_t load(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 |
           bytes[3];
}

static void add_block(uint32_t state[5], const uint8_t block[64])
{
    static const uint32_t constants[] = {0x5A827999, 0x6ED9EBA1, 0x8F1BBCDC, 0xCA62C1D6};
    uint32_t words[80], a = state[0], b = state[1], c = state[2], d = state[3],
                        e = state[4];

    for (size_t i = 0; i < 16; i++)
        words[i] = load(block + 4 * i);
    for (size_t i = 16; i < 80; i++)
        words[i] = rotate(words[i - 3] ^ words[i - 8] ^ words[i - 14] ^ words[i - 16], 1);
    for (size_t i = 0; i < 80; i++) {
        uint32_t mixed = i < 20              ? (b & c) | (~b & d)
                         : i >= 40 && i < 60 ? (b & c) | (b & d) | (c & d)
                                             : b ^ c ^ d;
        uint32_t next = rotate(a, 5) + mixed + e + constants[i / 20] + words[i];
        e = d;
        d = c;
        c = rotate(b, 30);
        b = a;
        a = next;
    }
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
    state[4] += e;
}

static void sha1(const char *bytes, size_t len, uint32_t state[5])
{
    static const uint32_t start[] = {0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476,
                                     0xC3D2E1F0};
    uint8_t last[128] = {0};
    size_t whole = len / 64 * 64, rest = len - whole, size = rest < 56 ? 64 : 128;

    memcpy(state, start, sizeof start);
    for (size_t at = 0; at < whole; at += 64)
        add_block(state, (const uint8_t *)bytes + at);
    memcpy(last, bytes + whole, rest);
    last[rest] = 0x80;
    for (size_t i = 0; i < 8; i++)
        last[size - 1 - i] = (uint8_t)((uint64_t)len * 8 >> (8 * i));
    for (size_t at = 0; at < size; at += 64)
        add_block(state, last + at);
}

/* --- The store --- */

static void put_number(struct buf *out, uint64_t number, unsigned len)
{
    char bytes[8];

    for (unsigned i = 0; i < len; i++)
        bytes[i] = (char)(number >> 8 * (len - 1 - i) & 0xFF);
    buf_append(out, bytes, len);
}

static void put_text(struct buf *out, const char *text)
{
    put_number(out, strlen(text), 2);
    buf_text(out, text);
}

static bool decode(const char *text, const char *end, struct buf *out)
{
    static const char digits[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint32_t bits = 0;
    unsigned count = 0;

    for (; text < end && *text != '='; text++) {
        const char *digit = memchr(digits, *text, sizeof digits - 1);
        if (strchr(" \t\r\n", *text))
            continue;
        if (!digit)
            return false;
        bits = bits << 6 | (uint32_t)(digit - digits);
        count += 6;
        if (count < 8)
            continue;
        count -= 8;
        put_number(out, bits >> count & 0xFF, 1);
    }
    return !out->failed;
}

static bool put_certificate(const char *text, const char *end, uint32_t number,
                            struct buf *out)
{
    enum { TRUSTED = 2, MOST = 64 << 10 };
    char alias[32];
    AUTO_BUF bytes;

    buf_init(&bytes, MOST);
    if (!decode(text, end, &bytes))
        return false;
    snprintf(alias, sizeof alias, "cay-%u", number);
    put_number(out, TRUSTED, 4);
    put_text(out, alias);
    put_number(out, (uint64_t)time(NULL) * 1000, 8);
    put_text(out, "X.509");
    put_number(out, bytes.len, 4);
    return buf_append(out, bytes.data, bytes.len);
}

/* The checksum begins with the password and words that the format has. */
static bool put_checksum(struct buf *out, size_t from)
{
    static const char password[] = "changeit", words[] = "Mighty Aphrodite";
    uint32_t state[5];
    AUTO_BUF all;

    buf_init(&all, out->max + 64);
    for (const char *at = password; *at; at++)
        put_number(&all, (unsigned char)*at, 2);
    buf_text(&all, words);
    if (!buf_append(&all, out->data + from, out->len - from))
        return false;
    sha1(all.data, all.len, state);
    for (size_t i = 0; i < 5; i++)
        put_number(out, state[i], 4);
    return !out->failed;
}

bool jks_write(const char *text, size_t len, struct buf *out)
{
    static const char begin[] = "-----BEGIN CERTIFICATE-----",
                      end[] = "-----END CERTIFICATE-----";
    enum { MAGIC = (int)0xFEEDFEED, VERSION = 2 };
    const char *stop = text + len, *at = text, *last;
    size_t from = out->len, count_at = from + 8;
    uint32_t count = 0;

    put_number(out, (uint32_t)MAGIC, 4);
    put_number(out, VERSION, 4);
    put_number(out, 0, 4);
    while ((at = memmem(at, (size_t)(stop - at), begin, sizeof begin - 1)) &&
           (last = memmem(at, (size_t)(stop - at), end, sizeof end - 1))) {
        if (!put_certificate(at + sizeof begin - 1, last, count++, out))
            return false;
        at = last;
    }
    if (out->failed)
        return false;
    for (unsigned i = 0; i < 4; i++)
        out->data[count_at + i] = (char)(count >> 8 * (3 - i) & 0xFF);
    return put_checksum(out, from);
}
