/* SPDX-License-Identifier: Apache-2.0 */

/* "GIT binary patch": the bytes of both sides, each as a zlib stream in base 85.  The
 * stream has stored blocks only, so it is a quarter longer than the file, and needs no
 * library. */
#include <nettle/sha1.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/auto.h"
#include "base/error.h"
#include "diff/print.h"

enum {
    BLOCK = 65535, /* bytes of a stored block */
    ROW = 52,      /* bytes of one line of base 85 */
    ADLER = 65521,
    ADLER_RUN = 5552, /* bytes after which the sums could overflow */
    HEX_ROOM = 2 * SHA1_DIGEST_SIZE + 1,
};

/* --- The name that git has for the content --- */

static void name_blob(const struct buf *bytes, bool exists, char ret_name[HEX_ROOM])
{
    unsigned char digest[SHA1_DIGEST_SIZE] = {0};
    struct sha1_ctx context;
    char head[32];

    if (exists) {
        int len = snprintf(head, sizeof head, "blob %zu", bytes->len);
        sha1_init(&context);
        sha1_update(&context, (size_t)len + 1, (const uint8_t *)head);
        sha1_update(&context, bytes->len, (const uint8_t *)bytes->data);
        sha1_digest(&context, sizeof digest, digest);
    }
    for (size_t i = 0; i < sizeof digest; i++)
        snprintf(ret_name + 2 * i, 3, "%02x", digest[i]);
}

/* --- zlib --- */

static uint32_t adler(const unsigned char *bytes, size_t len)
{
    uint32_t a = 1, b = 0;

    for (size_t i = 0; i < len;) {
        for (size_t end = len - i < ADLER_RUN ? len : i + ADLER_RUN; i < end; i++) {
            a += bytes[i];
            b += a;
        }
        a %= ADLER;
        b %= ADLER;
    }
    return b << 16 | a;
}

static void store(struct buf *stream, const struct buf *bytes)
{
    uint32_t sum = adler((const unsigned char *)bytes->data, bytes->len);
    size_t at = 0;

    (void)buf_append(stream, "\x78\x01", 2);
    do {
        size_t len = bytes->len - at < BLOCK ? bytes->len - at : BLOCK;
        const unsigned char head[5] = {
            at + len == bytes->len, (unsigned char)(len & 0xff),
            (unsigned char)(len >> 8), (unsigned char)(~len & 0xff),
            (unsigned char)(~len >> 8 & 0xff)};
        (void)buf_append(stream, head, sizeof head);
        (void)buf_append(stream, bytes->data + at, len);
        at += len;
    } while (at < bytes->len);
    const unsigned char tail[4] = {
        (unsigned char)(sum >> 24), (unsigned char)(sum >> 16 & 0xff),
        (unsigned char)(sum >> 8 & 0xff), (unsigned char)(sum & 0xff)};
    (void)buf_append(stream, tail, sizeof tail);
}

/* --- Base 85 --- */

static void put_row(struct buf *line, const unsigned char *bytes, size_t len)
{
    static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                 "abcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~";
    char text[5];

    (void)buf_format(line, "%c", (int)(len <= 26 ? 'A' + len - 1 : 'a' + len - 27));
    for (size_t i = 0; i < len; i += 4) {
        uint32_t word = 0;
        for (size_t j = i; j < i + 4; j++)
            word = word << 8 | (j < len ? bytes[j] : 0);
        for (size_t j = 5; j-- > 0; word /= 85)
            text[j] = digits[word % 85];
        (void)buf_append(line, text, sizeof text);
    }
    (void)buf_text(line, "\n");
}

static int print_literal(struct printer *printer, const struct buf *bytes,
                         struct cay_error *err)
{
    AUTO_BUF stream;

    buf_init(&stream, SIZE_MAX / 8);
    store(&stream, bytes);
    if (stream.failed)
        return cay_fail_memory(err, DIFF_OP);
    (void)buf_format(&printer->line, "literal %zu\n", bytes->len);
    for (size_t at = 0; at < stream.len; at += ROW) {
        put_row(&printer->line, (const unsigned char *)stream.data + at,
                stream.len - at < ROW ? stream.len - at : ROW);
        TRY(print_line(printer, CAY_DIFF_LINE_PLAIN, err));
    }
    (void)buf_text(&printer->line, "\n");
    return print_line(printer, CAY_DIFF_LINE_PLAIN, err);
}

void binary_index(struct printer *printer, const struct cay_change *change,
                  const struct print_sides *sides)
{
    unsigned before = print_git_mode(change->before.mode),
             after = print_git_mode(change->after.mode);
    char names[2][HEX_ROOM];

    name_blob(&sides->before.bytes, before, names[0]);
    name_blob(&sides->after.bytes, after, names[1]);
    (void)buf_format(&printer->line, "index %s..%s", names[0], names[1]);
    if (before == after)
        (void)buf_format(&printer->line, " %06o", after);
    (void)buf_text(&printer->line, "\n");
}

int binary_print(struct printer *printer, const struct cay_change *change,
                 const struct print_sides *sides, struct cay_error *err)
{
    binary_index(printer, change, sides);
    (void)buf_text(&printer->line, "GIT binary patch\n");
    TRY(print_line(printer, CAY_DIFF_LINE_HEADER, err));
    TRY(print_literal(printer, &sides->after.bytes, err));
    return print_literal(printer, &sides->before.bytes, err);
}
