/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/match.h"

#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* --- Names ----------------------------------------------------------------------------
 */

/* The character at `*at`, which moves on; a byte that begins none is one by itself. */
static uint32_t next(const char **at)
{
    const unsigned char *text = (const unsigned char *)*at;
    unsigned more = text[0] >= 0xF0 ? 3 : text[0] >= 0xE0 ? 2 : text[0] >= 0xC2 ? 1 : 0;
    uint32_t character = more ? text[0] & (0x3Fu >> more) : text[0];

    for (unsigned i = 1; i <= more; i++) {
        if ((text[i] & 0xC0) != 0x80) {
            *at += 1;
            return 0xDC00u + text[0];
        }
        character = character << 6 | (text[i] & 0x3F);
    }
    *at += 1 + more;
    return more || text[0] < 0x80 ? character : 0xDC00u + text[0];
}

/* Behind the "]" of the set that begins at `set`; NULL if it has none. */
static const char *end_of_set(const char *set)
{
    const char *at = set + 1;

    at += *at == '!';
    at += *at == ']';
    const char *end = strchr(at, ']');
    return end ? end + 1 : NULL;
}

static bool is_in_set(const char *set, const char *end, uint32_t character)
{
    bool without = set[1] == '!', found = false;
    const char *at = set + 1 + without;

    while (at < end - 1) {
        uint32_t from = next(&at), to = from;
        if (*at == '-' && at + 1 < end - 1) {
            at++;
            to = next(&at);
        }
        found = found || (character >= from && character <= to);
    }
    return found != without;
}

/* Takes one character of both if they match. */
static bool take_one(const char **pattern, const char **name)
{
    const char *set_end = **pattern == '[' ? end_of_set(*pattern) : NULL;
    const char *at = *name;
    uint32_t character = next(&at);
    bool fits;

    if (set_end) {
        fits = is_in_set(*pattern, set_end, character);
        *pattern = set_end;
    } else if (**pattern == '?') {
        fits = true;
        *pattern += 1;
    } else {
        fits = next(pattern) == character;
    }
    *name = at;
    return fits;
}

bool match_name(const char *pattern, const char *name)
{
    const char *star = NULL, *again = NULL; /* behind the last star; what it may eat */

    while (*name) {
        const char *before = pattern;
        if (*pattern == '*') {
            star = ++pattern;
            again = name;
            continue;
        }
        if (*before && take_one(&pattern, &name))
            continue;
        if (!star)
            return false;
        (void)next(&again);
        name = again;
        pattern = star;
    }
    while (*pattern == '*')
        pattern++;
    return !*pattern;
}

bool match_has_magic(const char *pattern)
{
    return strpbrk(pattern, "*?[");
}

/* --- Paths ----------------------------------------------------------------------------
 */

bool match_parse(const char *pattern, struct match *ret_match)
{
    ret_match->count = 0;
    ret_match->text = strdup(pattern);
    if (!ret_match->text)
        return false;
    for (char *at = ret_match->text; *at;) {
        size_t len = strcspn(at, "/");
        bool is_part = len > 1 || (len == 1 && *at != '.');
        if (is_part && ret_match->count < MATCH_PARTS_MAX)
            ret_match->parts[ret_match->count] = at;
        ret_match->count += is_part;
        bool ends = !at[len];
        at[len] = '\0';
        at += len + !ends;
    }
    return true;
}

void match_done(struct match *match)
{
    free(match->text);
    match->text = NULL;
}

bool match_is_stars(const struct match *match, size_t part)
{
    return match->with_stars && strcmp(match->parts[part], "**") == 0;
}

bool match_part(const struct match *match, size_t part, const char *name)
{
    const char *pattern = match->parts[part];

    if (*name == '.' && *pattern != '.' && !match->with_dots)
        return false;
    return match_name(pattern, name);
}

/* Where one can be without taking a name: "**" may stand for none. */
static void skip_stars(const struct match *match, bool *states)
{
    for (size_t i = 0; i < match->count; i++)
        if (states[i] && match_is_stars(match, i))
            states[i + 1] = true;
}

/* states[i]: the parts before i have matched the names so far. */
bool match_path(const struct match *match, size_t first, const char *path)
{
    bool now[MATCH_PARTS_MAX + 1] = {0}, after[MATCH_PARTS_MAX + 1];
    char name[NAME_MAX + 1];

    now[first] = true;
    skip_stars(match, now);
    while (*path) {
        size_t len = strcspn(path, "/");
        if (len > NAME_MAX)
            return false;
        memcpy(name, path, len);
        name[len] = '\0';
        path += len + (path[len] == '/');
        memset(after, 0, sizeof after);
        for (size_t i = first; i < match->count; i++) {
            if (now[i] && match_is_stars(match, i))
                after[i] = after[i] || *name != '.' || match->with_dots;
            else if (now[i])
                after[i + 1] = after[i + 1] || match_part(match, i, name);
        }
        skip_stars(match, after);
        memcpy(now, after, sizeof now);
    }
    return now[match->count];
}
