/* SPDX-License-Identifier: Apache-2.0 */

/* Three passes, one for each kind of escape sequence, in this order: what one leaves may
 * be what the next looks for. */
#include <string.h>

#include "agent/text.h"
#include "base/utf8.h"

enum { BELL = 7, ESCAPE = 27 };

static bool is_between(char byte, unsigned char least, unsigned char most)
{
    return (unsigned char)byte >= least && (unsigned char)byte <= most;
}

/* The end of "ESC [ parameters intermediates final" at `at`; 0 if there is none. */
static size_t control_sequence(const char *text, size_t len, size_t at)
{
    if (at + 1 >= len || text[at + 1] != '[')
        return 0;
    at += 2;
    while (at < len && is_between(text[at], '0', '?'))
        at++;
    while (at < len && is_between(text[at], ' ', '/'))
        at++;
    return at < len && is_between(text[at], '@', '~') ? at + 1 : 0;
}

static size_t strip_control_sequences(char *text, size_t len)
{
    size_t kept = 0;

    for (size_t at = 0; at < len;) {
        size_t end = text[at] == ESCAPE ? control_sequence(text, len, at) : 0;
        if (end)
            at = end;
        else
            text[kept++] = text[at++];
    }
    return kept;
}

/* The end of the next BEL or ESC \ on the same line; 0, and where that line ends, if
 * there is none. */
static size_t terminator(const char *text, size_t len, size_t at, size_t *ret_line_end)
{
    for (; at < len && text[at] != '\n'; at++) {
        if (text[at] == BELL)
            return at + 1;
        if (text[at] == ESCAPE && at + 1 < len && text[at + 1] == '\\')
            return at + 2;
    }
    *ret_line_end = at;
    return 0;
}

/* "ESC ] text BEL" or "... ESC \".  A line without an end for one has none for others
 * that begin later on it. */
static size_t strip_commands(char *text, size_t len)
{
    size_t kept = 0, hopeless = 0;

    for (size_t at = 0; at < len;) {
        bool begins = text[at] == ESCAPE && at + 1 < len && text[at + 1] == ']';
        size_t end =
            begins && at >= hopeless ? terminator(text, len, at + 2, &hopeless) : 0;
        if (end)
            at = end;
        else
            text[kept++] = text[at++];
    }
    return kept;
}

/* ESC and any other character, whatever it is; alone at the end it stays. */
static size_t strip_escapes(char *text, size_t len)
{
    size_t kept = 0;

    for (size_t at = 0; at < len;) {
        bool goes = text[at] == ESCAPE && at + 1 < len && text[at + 1] != '[' &&
                    text[at + 1] != ']';
        if (!goes) {
            text[kept++] = text[at++];
            continue;
        }
        at += 2;
        while (at < len && utf8_is_tail(text[at]))
            at++;
    }
    return kept;
}

size_t text_strip_ansi(char *text, size_t len)
{
    if (!len || !memchr(text, ESCAPE, len))
        return len;
    return strip_escapes(text, strip_commands(text, strip_control_sequences(text, len)));
}
