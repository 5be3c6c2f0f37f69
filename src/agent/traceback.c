/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/traceback.h"

#include <string.h>

#include "agent/text.h"
#include "base/auto.h"
#include "base/error.h"

enum { LOOKED_AT = 64 << 10 };

static const char file_line[] = "  File \"";

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

/* "package.Error" alone, or with ": " behind it. */
static bool names_error(const char *line, size_t len)
{
    size_t at = 0;
    bool begins = true;

    for (; at < len && line[at] != ':'; at++) {
        bool digit = line[at] >= '0' && line[at] <= '9';
        if (line[at] == '.' && !begins)
            begins = true;
        else if (is_letter(line[at]) || (digit && !begins))
            begins = false;
        else
            return false;
    }
    return at > 0 && !begins && (at == len || at + 1 == len || line[at + 1] == ' ');
}

static void take(const char *line, size_t len, char *ret_line, size_t room)
{
    size_t decoded;
    AUTO_FREE char *text = text_decode(line, len, &decoded);

    cay_copy_text(ret_line, room, text ? text : "");
}

bool traceback_error(const char *text, size_t len, char *ret_line, size_t room)
{
    bool in_trace = false, found = false;

    if (len > LOOKED_AT) {
        text += len - LOOKED_AT;
        len = LOOKED_AT;
    }
    while (len) {
        const char *stop = memchr(text, '\n', len);
        size_t line = stop ? (size_t)(stop - text) : len;
        if (line > strlen(file_line) && memcmp(text, file_line, strlen(file_line)) == 0) {
            in_trace = true;
        } else if (in_trace && names_error(text, line)) {
            take(text, line, ret_line, room);
            found = true;
            in_trace = false;
        }
        text += line + (stop != NULL);
        len -= line + (stop != NULL);
    }
    return found;
}
