/* SPDX-License-Identifier: Apache-2.0 */

/* Lines that were written over, and lines that repeat. */
#include <string.h>

#include "agent/text.h"
#include "base/auto.h"

struct line {
    const char *text;
    size_t len;
};

/* Takes the line at the beginning of the text; false if there is no more.  After the last
 * newline there is one more line, which may be empty. */
static bool next_line(const char **text, const char *end, struct line *ret_line)
{
    if (!*text)
        return false;
    const char *stop = *text < end ? memchr(*text, '\n', (size_t)(end - *text)) : NULL;
    *ret_line = (struct line){*text, (size_t)((stop ? stop : end) - *text)};
    *text = stop ? stop + 1 : NULL;
    return true;
}

/* Each line from its last carriage return on; that of a "\r\n" does not count. */
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

/* --- Repetition ----------------------------------------------------------------------
 */

static bool is_blank(const struct line *line)
{
    for (size_t i = 0; i < line->len; i++)
        if (line->text[i] != ' ' && line->text[i] != '\t')
            return false;
    return true;
}

static bool is_same(const struct line *one, const struct line *other)
{
    return one->len == other->len && memcmp(one->text, other->text, one->len) == 0;
}

/* Lines of one kind: the first of them, and how many. */
struct run {
    struct line line;
    uint64_t count;
};

static void put_line(struct buf *out, const struct line *line)
{
    buf_append(out, line->text, line->len);
    buf_append(out, "\n", 1);
}

static void put_run(struct buf *out, const struct run *run, uint32_t min_run,
                    bool *missing)
{
    bool shorter = run->count >= min_run && !is_blank(&run->line);
    uint64_t shown = shorter ? 2 : run->count;

    for (uint64_t i = 0; i < shown; i++) {
        if (shorter && i == 1)
            buf_format(out, "... [%llu similar lines collapsed]\n",
                       (unsigned long long)(run->count - 2));
        put_line(out, &run->line);
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
    if (min_run < 3) /* of two there is nothing to leave out */
        min_run = 3;
    while (next_line(&at, end, &line)) {
        if (run.count && is_same(&run.line, &line)) {
            run.count++;
            continue;
        }
        put_run(&out, &run, min_run, ret_missing);
        run = (struct run){line, 1};
    }
    put_run(&out, &run, min_run, ret_missing);
    if (out.failed)
        return NULL;
    out.data[--out.len] = '\0'; /* there was no newline behind the last line */
    *ret_len = out.len;
    return buf_take(&out);
}
