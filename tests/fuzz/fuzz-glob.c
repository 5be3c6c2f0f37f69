/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/glob.h"

/* The input is a pattern, a newline, and a path.  Whether they match is compared with
 * what a model says that tries every possibility: slow, and too simple to be wrong. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MODEL_MAX = 24, PARTS_MAX = MODEL_MAX };

#define CHECK(condition)                                                                 \
    do {                                                                                 \
        if (!(condition))                                                                \
            abort();                                                                     \
    } while (0)

/* --- The model: text as numbers, one per character --- */

struct text {
    uint32_t at[MODEL_MAX + 1]; /* ends with 0 */
};

static int in(uint8_t byte, uint8_t low, uint8_t high)
{
    return low <= byte && byte <= high;
}

/* The well-formed sequences, as the Unicode standard's table lists them. */
static size_t well_formed(const uint8_t *b)
{
    if (in(b[0], 0x00, 0x7F))
        return 1;
    if (in(b[0], 0xC2, 0xDF) && in(b[1], 0x80, 0xBF))
        return 2;
    if (((b[0] == 0xE0 && in(b[1], 0xA0, 0xBF)) ||
         (in(b[0], 0xE1, 0xEC) && in(b[1], 0x80, 0xBF)) ||
         (b[0] == 0xED && in(b[1], 0x80, 0x9F)) ||
         (in(b[0], 0xEE, 0xEF) && in(b[1], 0x80, 0xBF))) &&
        in(b[2], 0x80, 0xBF))
        return 3;
    if (((b[0] == 0xF0 && in(b[1], 0x90, 0xBF)) ||
         (in(b[0], 0xF1, 0xF3) && in(b[1], 0x80, 0xBF)) ||
         (b[0] == 0xF4 && in(b[1], 0x80, 0x8F))) &&
        in(b[2], 0x80, 0xBF) && in(b[3], 0x80, 0xBF))
        return 4;
    return 0;
}

static struct text decode(const char *bytes)
{
    static const uint8_t mask[] = {0, 0x7F, 0x1F, 0x0F, 0x07};
    struct text text = {{0}};
    size_t count = 0;

    for (const uint8_t *b = (const uint8_t *)bytes; *b; count++) {
        size_t len = well_formed(b);
        uint32_t value = len ? b[0] & mask[len] : 0x200000u + b[0];
        for (size_t i = 1; i < len; i++)
            value = value * 64 + (b[i] & 0x3F);
        text.at[count] = value;
        b += len ? len : 1;
    }
    return text;
}

/* One step of a name: how much of the pattern takes this character; 0 if it does not. */
static size_t model_one(const uint32_t *wild, uint32_t character)
{
    if (*wild == '?')
        return 1;
    if (*wild == '[') {
        size_t first = wild[1] == '!' ? 2 : 1, end = first;
        int found = 0;
        if (wild[end])
            end++;
        while (wild[end] && wild[end] != ']')
            end++;
        if (wild[end]) {
            for (size_t i = first; i < end; i++) {
                uint32_t low = wild[i], high = low;
                if (wild[i + 1] == '-' && i + 2 < end) {
                    high = wild[i + 2];
                    i += 2;
                }
                found |= low <= character && character <= high;
            }
            return found != (first == 2) ? end + 1 : 0;
        }
    }
    return *wild == character ? 1 : 0;
}

static int model_name(const uint32_t *wild, const uint32_t *name)
{
    if (*wild == '*')
        return model_name(wild + 1, name) || (*name && model_name(wild, name + 1));
    if (!*wild || !*name)
        return !*wild && !*name;
    size_t len = model_one(wild, *name);
    return len && model_name(wild + len, name + 1);
}

struct parts {
    char text[MODEL_MAX + 4];
    const char *part[PARTS_MAX + 1];
    size_t count;
};

static void split(const char *path, int drop_dots, struct parts *parts)
{
    memcpy(parts->text, path, strlen(path) + 1);
    parts->count = 0;
    for (char *at = parts->text; at;) {
        const char *part = at;
        at = strchr(at, '/');
        if (at)
            *at++ = '\0';
        if (*part && !(drop_dots && strcmp(part, ".") == 0))
            parts->part[parts->count++] = part;
    }
}

static int model_path(const struct parts *wild, size_t w, const struct parts *path,
                      size_t p)
{
    if (w == wild->count)
        return p == path->count;
    if (strcmp(wild->part[w], "**") == 0)
        return model_path(wild, w + 1, path, p) ||
               (p < path->count && model_path(wild, w, path, p + 1));
    if (p == path->count)
        return 0;
    struct text one = decode(wild->part[w]), other = decode(path->part[p]);
    return model_name(one.at, other.at) && model_path(wild, w + 1, path, p + 1);
}

static void compare(const struct glob *pattern, const char *text, const char *path)
{
    struct parts wild, names;

    if (strlen(text) > MODEL_MAX || strlen(path) > MODEL_MAX)
        return;
    split(*text ? text : "**", 1, &wild);
    if (strcmp(wild.part[wild.count - 1], "**") == 0)
        wild.part[wild.count++] = "*";
    split(path, 0, &names);
    CHECK(glob_matches_path(pattern, 0, path) == model_path(&wild, 0, &names, 0));
}

static int climbs(const char *text)
{
    while (text) {
        if (strncmp(text, "..", 2) == 0 && (text[2] == '/' || text[2] == '\0'))
            return 1;
        text = strchr(text, '/');
        text = text ? text + 1 : NULL;
    }
    return 0;
}

/* A path as the walk has them: no empty component. */
static int is_plain(const char *path)
{
    size_t len = strlen(path);

    return len && path[0] != '/' && path[len - 1] != '/' && !strstr(path, "//");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct glob pattern;
    struct cay_error err;
    char *text = malloc(size + 1);

    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    char *path = strchr(text, '\n');
    if (path)
        *path++ = '\0';
    if (glob_compile("fuzz", text, &pattern, &err) == CAY_OK) {
        CHECK(*text != '/' && *text != '~' && !climbs(text));
        CHECK(pattern.count > 0 && pattern.count <= GLOB_COMPONENTS_MAX);
        if (path && is_plain(path))
            compare(&pattern, text, path);
        glob_done(&pattern);
    } else {
        CHECK(err.message[0] && err.hint[0]);
    }
    free(text);
    return 0;
}
