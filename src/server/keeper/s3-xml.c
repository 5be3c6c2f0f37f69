/* SPDX-License-Identifier: Apache-2.0 */

/* The XML of S3's replies, which are bytes of another machine.  There are no documents
 * types, comments, sections and processing instructions in them but for the first line,
 * and elements are at most DEPTH_MAX deep. */
#include <string.h>

#include "base/auto.h"
#include "server/keeper/s3.h"

enum { DEPTH_MAX = 6, PATH_ROOM = 256, NAME_ROOM = 64, VALUE_MAX = 4096 };

#define SPACE " \t\r\n"

struct reader {
    const char *at, *end;
    char path[PATH_ROOM]; /* of the element that is open */
    unsigned depth;
    bool is_leaf; /* nothing has ended since it was opened */
    struct buf value;
    bool (*note)(void *cookie, const char *path, const char *value);
    void *cookie;
};

static bool is_space(char c)
{
    return c && strchr(SPACE, c);
}

static bool is_letter(char c, bool is_first)
{
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789-.";

    return c && strchr(letters, c) && !(is_first && strchr("0123456789-.", c));
}

static bool skip(struct reader *reader, const char *text)
{
    size_t len = strlen(text);

    if ((size_t)(reader->end - reader->at) < len || memcmp(reader->at, text, len) != 0)
        return false;
    reader->at += len;
    return true;
}

/* "<?xml ...?>" */
static bool skip_declaration(struct reader *reader)
{
    if (!skip(reader, "<?xml"))
        return true;
    while (reader->at < reader->end && *reader->at != '>' && *reader->at != '<')
        reader->at++;
    return reader->at[-1] == '?' && skip(reader, ">");
}

static bool read_name(struct reader *reader, char ret_name[NAME_ROOM])
{
    size_t len = 0;

    for (; reader->at < reader->end && is_letter(*reader->at, len == 0); reader->at++) {
        if (len == NAME_ROOM - 1)
            return false;
        ret_name[len++] = *reader->at;
    }
    ret_name[len] = '\0';
    return len > 0;
}

/* To the end of the tag; values may contain ">". */
static bool skip_attributes(struct reader *reader, bool *ret_is_empty)
{
    char quote = '\0', last = '\0';

    for (; reader->at < reader->end; last = *reader->at++) {
        char c = *reader->at;
        if (quote) {
            if (c == quote)
                quote = '\0';
        } else if (c == '"' || c == '\'') {
            quote = c;
        } else if (c == '>') {
            reader->at++;
            *ret_is_empty = last == '/';
            return true;
        }
        if (c == '<' || !c)
            return false;
    }
    return false;
}

static bool close_element(struct reader *reader, const char *name)
{
    char *slash = strrchr(reader->path, '/');
    const char *last = slash ? slash + 1 : reader->path;

    if (!reader->depth || strcmp(last, name) != 0)
        return false;
    if (reader->is_leaf &&
        (!buf_append(&reader->value, "", 1) ||
         !reader->note(reader->cookie, reader->path, reader->value.data)))
        return false;
    reader->is_leaf = false;
    reader->value.len = 0;
    reader->depth--;
    *(slash ? slash : reader->path) = '\0';
    return true;
}

static bool open_element(struct reader *reader)
{
    char name[NAME_ROOM];
    bool is_empty;
    size_t len = strlen(reader->path);

    if (!read_name(reader, name) || !skip_attributes(reader, &is_empty) ||
        reader->depth == DEPTH_MAX || len + strlen(name) + 2 > PATH_ROOM)
        return false;
    if (len)
        reader->path[len++] = '/';
    memcpy(reader->path + len, name, strlen(name) + 1);
    reader->depth++;
    reader->is_leaf = true;
    reader->value.len = 0;
    return !is_empty || close_element(reader, name);
}

static bool read_tag(struct reader *reader)
{
    char name[NAME_ROOM];

    if (!skip(reader, "/"))
        return open_element(reader);
    if (!read_name(reader, name))
        return false;
    while (reader->at < reader->end && is_space(*reader->at))
        reader->at++;
    return skip(reader, ">") && close_element(reader, name);
}

static bool read_text(struct reader *reader)
{
    static const struct {
        const char *entity, *text;
    } entities[] = {{"&amp;", "&"},  {"&lt;", "<"},   {"&gt;", ">"}, {"&quot;", "\""},
                    {"&apos;", "'"}, {"&#34;", "\""}, {"&#39;", "'"}};

    if (*reader->at != '&')
        return *reader->at && reader->value.len < VALUE_MAX &&
               buf_append(&reader->value, reader->at++, 1);
    for (size_t i = 0; i < sizeof entities / sizeof *entities; i++)
        if (skip(reader, entities[i].entity))
            return reader->value.len < VALUE_MAX &&
                   buf_append(&reader->value, entities[i].text, 1);
    return false;
}

bool s3_read_xml(const char *text, size_t len,
                 bool (*note)(void *cookie, const char *path, const char *value),
                 void *cookie)
{
    struct reader reader = {.at = text,
                            .end = text + len,
                            .value = {.max = VALUE_MAX + 1},
                            .note = note,
                            .cookie = cookie};
    bool has_root = false, is_valid = len > 0 && skip_declaration(&reader);

    while (is_valid && reader.at < reader.end) {
        bool is_tag = *reader.at == '<';
        if (is_tag) {
            reader.at++;
            is_valid = (reader.depth || !has_root) && read_tag(&reader);
            has_root = true;
        } else if (reader.depth) {
            is_valid = read_text(&reader);
        } else { /* between the first line and the root, and after it */
            is_valid = is_space(*reader.at++);
        }
    }
    buf_done(&reader.value);
    return is_valid && has_root && !reader.depth;
}
