/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/tidy.h"

#include <string.h>

static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

const char *tidy_strip(const char *text, size_t *ret_len)
{
    while (is_blank(*text))
        text++;
    size_t len = strlen(text);
    while (len > 0 && is_blank(text[len - 1]))
        len--;
    *ret_len = len;
    return text;
}

bool tidy_covers(const char *top, const char *path)
{
    size_t len = strlen(top);

    return strncmp(path, top, len) == 0 &&
           (len == 0 || path[len] == '/' || path[len] == '\0');
}

static bool is_slash(char c, unsigned flags)
{
    return c == '/' || (c == '\\' && flags & TIDY_BACKSLASH);
}

static bool is_dots(const char *name, size_t len, size_t dots)
{
    return len == dots && memcmp(name, "..", dots) == 0;
}

/* From right to left, so that a ".." is met before the name that it removes: one pass,
 * and only what stays is written. */
struct tidy tidy_path(const char *text, size_t len, unsigned flags, char out[PATH_MAX])
{
    struct tidy tidy = {.fits = true};
    size_t ups = 0, start = PATH_MAX - 1;

    out[start] = '\0';
    while (len > 0) {
        size_t end = len;
        while (len > 0 && !is_slash(text[len - 1], flags))
            len--;
        const char *name = text + len;
        size_t name_len = end - len;
        if (len > 0)
            len--;

        if (is_dots(name, name_len, 0) || is_dots(name, name_len, 1))
            continue;
        tidy.fits = tidy.fits && name_len <= NAME_MAX;
        bool up = is_dots(name, name_len, 2);
        tidy.has_up |= up;
        if (up && !(flags & TIDY_KEEP_UP)) {
            ups++;
            continue;
        }
        if (ups > 0) {
            ups--;
            continue;
        }
        bool slash = out[start] != '\0';
        if (!tidy.fits || start <= name_len + slash) {
            tidy.fits = false;
            continue;
        }
        if (slash)
            out[--start] = '/';
        start -= name_len;
        memcpy(out + start, name, name_len);
    }
    tidy.climbs = ups > 0;
    tidy.len = PATH_MAX - 1 - start;
    memmove(out, out + start, tidy.len + 1);
    return tidy;
}
