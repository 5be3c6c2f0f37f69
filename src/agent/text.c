/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/text.h"

#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/utf8.h"
#include "cay/agent.h"

static const char replacement[] = "\xEF\xBF\xBD";

enum { REPLACEMENT = sizeof replacement - 1 };

static size_t decode(const char *bytes, size_t len, char *out)
{
    size_t used = 0;

    for (size_t at = 0; at < len;) {
        uint32_t character;
        size_t part = utf8_next(bytes + at, len - at, &character);
        bool whole = character != UTF8_INVALID;
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
        if (!utf8_is_tail(text[at]) && chars-- == 0)
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
