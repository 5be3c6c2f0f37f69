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
        uint32_t value;
        size_t part = utf8_next(bytes + at, len - at, &value);
        bool whole = value != UTF8_INVALID;
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

/* --- Escape sequences -----------------------------------------------------------------
 *
 * Three passes, one for each kind, in this order: what one leaves may be what the next
 * one removes. */

enum { BELL = 7, ESCAPE = 27 };

static bool is_between(char byte, unsigned char least, unsigned char most)
{
    return (unsigned char)byte >= least && (unsigned char)byte <= most;
}

/* The end of "ESC [ parameters intermediates final" at `at`; 0 if there is none. */
static size_t control_sequence(const char *text, size_t len, size_t at, size_t *hopeless)
{
    (void)hopeless;
    if (at + 1 >= len || text[at + 1] != '[')
        return 0;
    at += 2;
    while (at < len && is_between(text[at], '0', '?'))
        at++;
    while (at < len && is_between(text[at], ' ', '/'))
        at++;
    return at < len && is_between(text[at], '@', '~') ? at + 1 : 0;
}

/* The end of "ESC ] text BEL" or "... ESC \", on one line.  If a line has no end for
 * one, it has none for those that begin later on it: `hopeless` keeps this linear. */
static size_t command(const char *text, size_t len, size_t at, size_t *hopeless)
{
    if (at + 1 >= len || text[at + 1] != ']' || at < *hopeless)
        return 0;
    for (at += 2; at < len && text[at] != '\n'; at++) {
        if (text[at] == BELL)
            return at + 1;
        if (text[at] == ESCAPE && at + 1 < len && text[at + 1] == '\\')
            return at + 2;
    }
    *hopeless = at;
    return 0;
}

/* The end of ESC and any other character.  An ESC at the end of the text stays. */
static size_t other_escape(const char *text, size_t len, size_t at, size_t *hopeless)
{
    (void)hopeless;
    if (at + 1 >= len || text[at + 1] == '[' || text[at + 1] == ']')
        return 0;
    at += 2;
    while (at < len && utf8_is_tail(text[at]))
        at++;
    return at;
}

/* Removes what `end_of` finds the end of. */
static size_t strip(char *text, size_t len,
                    size_t (*end_of)(const char *, size_t, size_t, size_t *))
{
    size_t kept = 0, hopeless = 0;

    for (size_t at = 0; at < len;) {
        size_t end = text[at] == ESCAPE ? end_of(text, len, at, &hopeless) : 0;
        if (end)
            at = end;
        else
            text[kept++] = text[at++];
    }
    return kept;
}

size_t text_strip_ansi(char *text, size_t len)
{
    if (!len || !memchr(text, ESCAPE, len))
        return len;
    len = strip(text, len, control_sequence);
    len = strip(text, len, command);
    return strip(text, len, other_escape);
}

/* --- Overwritten lines ----------------------------------------------------------------
 */

struct line {
    const char *text;
    size_t len;
};

/* Takes the first line off the text; false at the end.  After the last newline comes one
 * more line, which may be empty. */
static bool next_line(const char **text, const char *end, struct line *ret_line)
{
    if (!*text)
        return false;
    const char *stop = *text < end ? memchr(*text, '\n', (size_t)(end - *text)) : NULL;
    *ret_line = (struct line){*text, (size_t)((stop ? stop : end) - *text)};
    *text = stop ? stop + 1 : NULL;
    return true;
}

/* Keeps each line from its last carriage return on, without that of a "\r\n". */
size_t text_resolve_cr(char *text, size_t len)
{
    const char *at = text, *end = text + len;
    size_t kept = 0;
    struct line line;

    if (!len || !memchr(text, '\r', len))
        return len;
    while (next_line(&at, end, &line)) {
        bool ends = at != NULL;
        if (ends && line.len && line.text[line.len - 1] == '\r')
            line.len--;
        const char *over = line.len ? memrchr(line.text, '\r', line.len) : NULL;
        const char *shown = over ? over + 1 : line.text;
        size_t shown_len = line.len - (size_t)(shown - line.text);
        memmove(text + kept, shown, shown_len);
        kept += shown_len;
        if (ends)
            text[kept++] = '\n';
    }
    return kept;
}

/* --- Repeated lines -------------------------------------------------------------------
 */

static bool is_blank(const struct line *line)
{
    for (size_t i = 0; i < line->len; i++)
        if (line->text[i] != ' ' && line->text[i] != '\t')
            return false;
    return true;
}

/* Equal lines in a row. */
struct run {
    struct line line;
    uint64_t count;
};

static void put_run(struct buf *out, const struct run *run, uint32_t min_run,
                    bool *missing)
{
    bool shorter = run->count >= min_run && !is_blank(&run->line);
    uint64_t shown = shorter ? 2 : run->count;

    for (uint64_t i = 0; i < shown; i++) {
        if (shorter && i == 1)
            buf_format(out, "... [%llu similar lines collapsed]\n",
                       (unsigned long long)(run->count - 2));
        buf_append(out, run->line.text, run->line.len);
        buf_append(out, "\n", 1);
    }
    *missing = *missing || shorter;
}

char *text_collapse(const char *text, size_t len, uint32_t min_run, size_t *ret_len,
                    bool *ret_missing)
{
    const char *at = text, *end = text + len;
    struct run run = {0};
    struct line line;
    AUTO_BUF out;

    *ret_missing = false;
    buf_init(&out, SIZE_MAX / 2);
    if (min_run < 3) /* the first and the last are always shown */
        min_run = 3;
    while (next_line(&at, end, &line)) {
        if (run.count && run.line.len == line.len &&
            memcmp(run.line.text, line.text, line.len) == 0) {
            run.count++;
            continue;
        }
        put_run(&out, &run, min_run, ret_missing);
        run = (struct run){line, 1};
    }
    put_run(&out, &run, min_run, ret_missing);
    if (out.failed)
        return NULL;
    out.data[--out.len] = '\0'; /* the last line has no newline */
    *ret_len = out.len;
    return buf_take(&out);
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

/* --- Encodings of files ---------------------------------------------------------------
 */

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

static bool put_character(enum encoding encoding, uint32_t character, struct buf *out)
{
    const char byte = (char)character;
    bool is_big = encoding == ENCODING_UTF16_BE;

    if (encoding == ENCODING_LATIN_1)
        return character <= 0xFF && buf_append(out, &byte, 1);
    if (character >= 0x10000) {
        character -= 0x10000;
        put_unit(0xD800 + (character >> 10), is_big, out);
        character = 0xDC00 + (character & 0x3FF);
    }
    put_unit(character, is_big, out);
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
