/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/text.h"

#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/utf8.h"
#include "cay/agent.h"

static const char replacement[] = "\xEF\xBF\xBD";

enum { REPLACEMENT = sizeof replacement - 1 };

/* What may follow a byte that begins a character: how many bytes, and the first of them
 * between two bounds.  Of none if it begins none. */
struct beginning {
    unsigned more;
    unsigned char least, most;
};

static struct beginning begin(unsigned char byte)
{
    if (byte >= 0xC2 && byte <= 0xDF)
        return (struct beginning){1, 0x80, 0xBF};
    if (byte >= 0xE0 && byte <= 0xEF)
        return (struct beginning){2, byte == 0xE0 ? 0xA0 : 0x80,
                                  byte == 0xED ? 0x9F : 0xBF};
    if (byte >= 0xF0 && byte <= 0xF4)
        return (struct beginning){3, byte == 0xF0 ? 0x90 : 0x80,
                                  byte == 0xF4 ? 0x8F : 0xBF};
    return (struct beginning){0};
}

/* How many bytes belong together, and whether they are a character. */
static size_t take(const unsigned char *at, size_t left, bool *ret_whole)
{
    struct beginning first = begin(*at);
    size_t len = 1;

    if (*at < 0x80) {
        *ret_whole = true;
        return 1;
    }
    while (len <= first.more && len < left && at[len] >= first.least &&
           at[len] <= first.most) {
        first.least = 0x80;
        first.most = 0xBF;
        len++;
    }
    *ret_whole = first.more && len == first.more + 1;
    return len;
}

static size_t decode(const char *bytes, size_t len, char *out)
{
    size_t used = 0;

    for (size_t at = 0; at < len;) {
        bool whole;
        size_t part = take((const unsigned char *)bytes + at, len - at, &whole);
        if (out && whole)
            memcpy(out + used, bytes + at, part);
        else if (out)
            memcpy(out + used, replacement, REPLACEMENT);
        used += whole ? part : REPLACEMENT;
        at += part;
    }
    return used;
}

char *text_decode(const char *bytes, size_t len, size_t *ret_len)
{
    bool fine = utf8_is_valid(bytes, len);

    *ret_len = fine ? len : decode(bytes, len, NULL);
    char *text = malloc(*ret_len + 1);
    if (!text)
        return NULL;
    if (!fine)
        (void)decode(bytes, len, text);
    else if (len)
        memcpy(text, bytes, len);
    text[*ret_len] = '\0';
    return text;
}

size_t text_chars(const char *text, size_t len)
{
    struct utf8_scan scan = {.trusted = true, .count = UTF8_CHARS};

    (void)utf8_scan(&scan, text, len);
    return (size_t)scan.chars;
}

size_t text_offset(const char *text, size_t len, size_t chars)
{
    size_t at = 0;

    for (; at < len; at++)
        if (((unsigned char)text[at] & 0xC0) != 0x80 && chars-- == 0)
            break;
    return at;
}

/* --- The public forms -----------------------------------------------------------------
 */

static char *in_place(const char *text, size_t len, size_t *ret_len,
                      size_t (*change)(char *, size_t))
{
    char *copy = text_decode(text, len, ret_len);

    if (!copy)
        return NULL;
    *ret_len = change(copy, *ret_len);
    copy[*ret_len] = '\0';
    return copy;
}

char *cay_text_strip_ansi(const char *text, size_t len, size_t *ret_len)
{
    return in_place(text, len, ret_len, text_strip_ansi);
}

char *cay_text_resolve_cr(const char *text, size_t len, size_t *ret_len)
{
    return in_place(text, len, ret_len, text_resolve_cr);
}

char *cay_text_collapse(const char *text, size_t len, uint32_t min_run, size_t *ret_len)
{
    size_t whole;
    bool missing;
    AUTO_FREE char *copy = text_decode(text, len, &whole);

    return copy ? text_collapse(copy, whole, min_run, ret_len, &missing) : NULL;
}

static size_t tidy(char *text, size_t len)
{
    return text_resolve_cr(text, text_strip_ansi(text, len));
}

char *cay_text_clean(const char *text, size_t len, size_t *ret_len)
{
    size_t tidied;
    bool missing;
    AUTO_FREE char *copy = in_place(text, len, &tidied, tidy);

    return copy ? text_collapse(copy, tidied, TEXT_MIN_RUN, ret_len, &missing) : NULL;
}
