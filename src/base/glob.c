/* SPDX-License-Identifier: Apache-2.0 */
#include "base/glob.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/utf8.h"

/* A code point, or a byte that is not part of one.  Such a byte gets a number that no
 * code point has, so that a class does not take it for a letter. */
struct character {
    uint32_t value;
    size_t len;
};

static struct character take_character(const char *text)
{
    struct character character;

    character.len = utf8_next(text, 4, &character.value);
    return character.value != UTF8_INVALID
               ? character
               : (struct character){0x110000u + (unsigned char)*text, 1};
}

/* The "]" that closes the class which starts at `open`, or NULL.  A "]" that comes first
 * in the class is a member of it. */
static const char *class_end(const char *open)
{
    const char *first = open + 1 + (open[1] == '!');

    return *first ? strchr(first + 1, ']') : NULL;
}

static bool class_has(const char *open, const char *end, uint32_t value)
{
    bool negated = open[1] == '!';
    const char *at = open + 1 + negated;
    bool found = false;

    while (at < end) {
        struct character low = take_character(at), high = low;
        at += low.len;
        if (*at == '-' && at + 1 < end) {
            high = take_character(at + 1);
            at += 1 + high.len;
        }
        found = found || (low.value <= value && value <= high.value);
    }
    return found != negated;
}

/* Matches one character of the name; the length of the pattern's part for it, or 0. */
static size_t match_one(const char *wild, struct character character)
{
    const char *end = *wild == '[' ? class_end(wild) : NULL;

    if (*wild == '?')
        return 1;
    if (end)
        return class_has(wild, end, character.value) ? (size_t)(end - wild) + 1 : 0;
    struct character own = take_character(wild);
    return *wild && own.value == character.value ? own.len : 0;
}

/* Backtracks to the last star only, since a longer match of an earlier one cannot help:
 * the time is at most the product of the two lengths. */
bool glob_match_name(const char *wild, const char *name)
{
    const char *star = NULL, *resume = NULL;

    while (*name) {
        if (*wild == '*') {
            star = ++wild;
            resume = name;
            continue;
        }
        struct character character = take_character(name);
        size_t len = match_one(wild, character);
        if (len) {
            wild += len;
            name += character.len;
        } else if (star) {
            wild = star;
            resume += take_character(resume).len;
            name = resume;
        } else {
            return false;
        }
    }
    return wild[strspn(wild, "*")] == '\0';
}

static int refuse(const char *op, const char *text, const char *message,
                  struct cay_error *err)
{
    return cay_fail(err, CAY_E_INVALID, 0, op, text, message,
                    "patterns are relative to the directory: \"*.txt\", \"src/**/*.c\"");
}

static bool has_dots(const char *text)
{
    for (const char *at = text; (at = strstr(at, "..")); at += 2)
        if ((at == text || at[-1] == '/') && (at[2] == '/' || at[2] == '\0'))
            return true;
    return false;
}

static int check(const char *op, const char *text, struct cay_error *err)
{
    if (strlen(text) > GLOB_LENGTH_MAX)
        return refuse(op, text, "the pattern is longer than 4,096 bytes", err);
    if (*text == '/')
        return refuse(op, text, "the pattern must not start with '/'", err);
    if (*text == '~')
        return refuse(op, text, "the pattern must not start with '~'", err);
    if (*text && text[1] == ':')
        return refuse(op, text, "the pattern must not start with a drive letter", err);
    if (has_dots(text))
        return refuse(op, text, "the pattern must not contain '..'", err);
    return CAY_OK;
}

static enum glob_kind kind_of(const char *text, unsigned flags)
{
    if (strcmp(text, "**") == 0 && !(flags & GLOB_NO_DEPTH))
        return GLOB_ANY_DEPTH;
    return text[strcspn(text, "*?[")] ? GLOB_WILD : GLOB_LITERAL;
}

static bool add(struct glob *glob, const char *text)
{
    enum glob_kind kind = kind_of(text, glob->flags);

    if (strcmp(text, "") == 0 || strcmp(text, ".") == 0)
        return true;
    if (kind == GLOB_ANY_DEPTH && glob->count &&
        glob->components[glob->count - 1].kind == GLOB_ANY_DEPTH)
        return true;
    if (glob->count == GLOB_COMPONENTS_MAX)
        return false;
    glob->components[glob->count].kind = kind;
    glob->components[glob->count++].text = text;
    return true;
}

static int fail_too_many(const char *op, const char *text, struct cay_error *err)
{
    return cay_fail(err, CAY_E_INVALID, 0, op, text,
                    "the pattern has more than 63 components",
                    "use \"**\" for any number of directories");
}

int glob_split(const char *op, const char *text, unsigned flags, struct glob *ret_glob,
               struct cay_error *err)
{
    size_t len = strlen(text);

    *ret_glob = (struct glob){.flags = flags,
                              .only_directories = len && text[len - 1] == '/',
                              .text = strdup(text)};
    if (!ret_glob->text)
        return cay_fail_memory(err, op);
    bool fits = true;
    char *next = ret_glob->text;
    while (next && fits) {
        const char *component = next;
        next = strchr(next, '/');
        if (next)
            *next++ = '\0';
        fits = add(ret_glob, component);
    }
    if (fits)
        return CAY_OK;
    glob_done(ret_glob);
    return fail_too_many(op, text, err);
}

int glob_compile(const char *op, const char *text, struct glob *ret_glob,
                 struct cay_error *err)
{
    *ret_glob = (struct glob){0};
    if (!text || !*text)
        text = "**";
    int code = check(op, text, err);
    if (!code)
        code = glob_split(op, text, 0, ret_glob, err);
    if (code)
        return code;
    size_t count = ret_glob->count;
    bool fits = true;
    if (count && ret_glob->components[count - 1].kind == GLOB_ANY_DEPTH)
        fits = add(ret_glob, "*");
    if (fits && count)
        return CAY_OK;
    glob_done(ret_glob);
    return fits ? refuse(op, text, "the pattern has no components", err)
                : fail_too_many(op, text, err);
}

void glob_done(struct glob *glob)
{
    free(glob->text);
    *glob = (struct glob){0};
}

bool glob_match_component(const struct glob *glob, size_t component, const char *name)
{
    const struct glob_component *own = &glob->components[component];

    if (*name == '.' && *own->text != '.' && glob->flags & GLOB_HIDE_DOTS)
        return false;
    return own->kind == GLOB_WILD ? glob_match_name(own->text, name)
                                  : strcmp(own->text, name) == 0;
}

/* Adds the positions that "**" reaches by matching no directory at all. */
static glob_state pass_over(const struct glob *glob, glob_state state)
{
    for (size_t i = 0; i < glob->count; i++)
        if (state >> i & 1 && glob->components[i].kind == GLOB_ANY_DEPTH)
            state |= (glob_state)1 << (i + 1);
    return state;
}

glob_state glob_start(const struct glob *glob, size_t component)
{
    return pass_over(glob, (glob_state)1 << component);
}

glob_state glob_step(const struct glob *glob, glob_state state, const char *name,
                     bool is_link)
{
    bool is_hidden = *name == '.' && glob->flags & GLOB_HIDE_DOTS;
    glob_state next = 0;

    for (size_t i = 0; i < glob->count; i++) {
        if (!(state >> i & 1))
            continue;
        if (glob->components[i].kind == GLOB_ANY_DEPTH)
            next |= is_link || is_hidden ? 0 : (glob_state)1 << i;
        else if (glob_match_component(glob, i, name))
            next |= (glob_state)1 << (i + 1);
    }
    return pass_over(glob, next);
}

bool glob_accepts(const struct glob *glob, glob_state state)
{
    return state >> glob->count & 1;
}

bool glob_goes_deeper(const struct glob *glob, glob_state state)
{
    return state & (((glob_state)1 << glob->count) - 1);
}

bool glob_matches_path(const struct glob *glob, size_t component, const char *path)
{
    glob_state state = glob_start(glob, component);
    char name[NAME_MAX + 1];

    while (state && *path) {
        size_t len = strcspn(path, "/");
        if (len >= sizeof name)
            return false;
        memcpy(name, path, len);
        name[len] = '\0';
        path += len + (path[len] == '/');
        state = glob_step(glob, state, name, false);
    }
    return glob_accepts(glob, state);
}
