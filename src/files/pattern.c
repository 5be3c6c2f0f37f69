/* SPDX-License-Identifier: Apache-2.0 */
#include "files/pattern.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

/* One character: a code point, or a byte that is not part of one.  The latter get numbers
 * that no code point has, so that a class cannot take them for a letter. */
struct character {
    uint32_t value;
    uint32_t len;
};

#define NOT_UTF8 0x110000u

static struct character take_character(const char *text)
{
    static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *byte = (const unsigned char *)text;
    uint32_t len = *byte < 0x80           ? 1
                   : (*byte >> 5) == 0x06 ? 2
                   : (*byte >> 4) == 0x0E ? 3
                   : (*byte >> 3) == 0x1E ? 4
                                          : 0;
    uint32_t value = len <= 1 ? *byte : *byte & (0x7Fu >> len);

    for (uint32_t i = 1; i < len; i++) {
        if ((byte[i] & 0xC0) != 0x80)
            len = 0;
        else
            value = value << 6 | (byte[i] & 0x3F);
    }
    bool valid = len && value >= smallest[len] && value < NOT_UTF8 &&
                 (value < 0xD800 || value > 0xDFFF);
    return valid ? (struct character){value, len}
                 : (struct character){NOT_UTF8 + *byte, 1};
}

/* The "]" that closes the class which starts at `open`, or NULL.  One that comes first in
 * the class stands for itself. */
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

/* Only the last star is ever given more to take: what the ones before it took is as good
 * as any other choice.  So the time is at most the product of the two lengths. */
static bool matches_name(const char *wild, const char *name)
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
    if (strlen(text) > PATTERN_LENGTH_MAX)
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

static enum pattern_kind kind_of(const char *text)
{
    if (strcmp(text, "**") == 0)
        return PATTERN_ANY_DEPTH;
    return text[strcspn(text, "*?[")] ? PATTERN_WILD : PATTERN_LITERAL;
}

static bool add(struct pattern *pattern, const char *text)
{
    enum pattern_kind kind = kind_of(text);

    if (strcmp(text, "") == 0 || strcmp(text, ".") == 0)
        return true;
    if (kind == PATTERN_ANY_DEPTH && pattern->count &&
        pattern->components[pattern->count - 1].kind == PATTERN_ANY_DEPTH)
        return true;
    if (pattern->count == PATTERN_COMPONENTS_MAX)
        return false;
    pattern->components[pattern->count].kind = kind;
    pattern->components[pattern->count++].text = text;
    return true;
}

int pattern_compile(const char *op, const char *text, struct pattern *ret_pattern,
                    struct cay_error *err)
{
    *ret_pattern = (struct pattern){0};
    if (!text || !*text)
        text = "**";
    int code = check(op, text, err);
    if (code)
        return code;
    ret_pattern->only_directories = text[strlen(text) - 1] == '/';
    ret_pattern->text = strdup(text);
    if (!ret_pattern->text)
        return cay_fail_memory(err, op);

    bool fits = true;
    char *next = ret_pattern->text;
    while (next && fits) {
        const char *component = next;
        next = strchr(next, '/');
        if (next)
            *next++ = '\0';
        fits = add(ret_pattern, component);
    }
    size_t count = ret_pattern->count;
    if (fits && count && ret_pattern->components[count - 1].kind == PATTERN_ANY_DEPTH)
        fits = add(ret_pattern, "*");
    if (fits && count)
        return CAY_OK;
    pattern_done(ret_pattern);
    return refuse(op, text,
                  fits ? "the pattern names nothing"
                       : "the pattern has more than 63 components",
                  err);
}

void pattern_done(struct pattern *pattern)
{
    free(pattern->text);
    *pattern = (struct pattern){0};
}

/* Adds the positions that "**" reaches by standing for no directory at all. */
static pattern_state pass_over(const struct pattern *pattern, pattern_state state)
{
    for (size_t i = 0; i < pattern->count; i++)
        if (state >> i & 1 && pattern->components[i].kind == PATTERN_ANY_DEPTH)
            state |= (pattern_state)1 << (i + 1);
    return state;
}

pattern_state pattern_start(const struct pattern *pattern)
{
    return pass_over(pattern, 1);
}

pattern_state pattern_step(const struct pattern *pattern, pattern_state state,
                           const char *name, bool is_link)
{
    pattern_state next = 0;

    for (size_t i = 0; i < pattern->count; i++) {
        const struct pattern_component *component = &pattern->components[i];
        if (!(state >> i & 1))
            continue;
        if (component->kind == PATTERN_ANY_DEPTH)
            next |= is_link ? 0 : (pattern_state)1 << i;
        else if (component->kind == PATTERN_WILD ? matches_name(component->text, name)
                                                 : strcmp(component->text, name) == 0)
            next |= (pattern_state)1 << (i + 1);
    }
    return pass_over(pattern, next);
}

bool pattern_accepts(const struct pattern *pattern, pattern_state state)
{
    return state >> pattern->count & 1;
}

bool pattern_goes_deeper(const struct pattern *pattern, pattern_state state)
{
    return state & (((pattern_state)1 << pattern->count) - 1);
}

bool pattern_matches_path(const struct pattern *pattern, const char *path)
{
    pattern_state state = pattern_start(pattern);
    char name[NAME_MAX + 1];

    while (state && *path) {
        size_t len = strcspn(path, "/");
        if (len >= sizeof name)
            return false;
        memcpy(name, path, len);
        name[len] = '\0';
        path += len + (path[len] == '/');
        state = pattern_step(pattern, state, name, false);
    }
    return pattern_accepts(pattern, state);
}
