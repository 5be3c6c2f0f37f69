/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/preview.h"

#include <inttypes.h>
#include <stdint.h>
#include <string.h>

#include "cli/show.h"

#define LINES_MAX 10 /* of each kind */
#define WIDTH_MAX 74

struct span {
    const char *start, *end;
};

static const char *line_end(const struct span *span)
{
    size_t len = (size_t)(span->end - span->start);
    const char *newline = len ? memchr(span->start, '\n', len) : NULL;

    return newline ? newline + 1 : span->end;
}

static const char *last_line(const struct span *span)
{
    size_t len = (size_t)(span->end - span->start);
    const char *newline = len > 1 ? memrchr(span->start, '\n', len - 1) : NULL;

    return newline ? newline + 1 : span->start;
}

static bool same(const char *a, const char *a_end, const char *b, const char *b_end)
{
    return a_end - a == b_end - b && memcmp(a, b, (size_t)(a_end - a)) == 0;
}

/* Takes the lines off both ends that the two have in common; returns how many in front.
 */
static uint64_t trim(struct span *a, struct span *b)
{
    uint64_t skipped = 0;

    while (a->start < a->end && b->start < b->end &&
           same(a->start, line_end(a), b->start, line_end(b))) {
        a->start = line_end(a);
        b->start = line_end(b);
        skipped++;
    }
    while (a->start < a->end && b->start < b->end &&
           same(last_line(a), a->end, last_line(b), b->end)) {
        a->end = last_line(a);
        b->end = last_line(b);
    }
    return skipped;
}

static void show_lines(FILE *file, char sign, struct span lines)
{
    uint64_t more = 0;

    for (int i = 0; i < LINES_MAX && lines.start < lines.end; i++) {
        const char *end = line_end(&lines);
        size_t len = (size_t)(end - lines.start);
        fprintf(file, "  %c ", sign);
        show_text(file, lines.start, len - (end[-1] == '\n'), WIDTH_MAX);
        fputc('\n', file);
        lines.start = end;
    }
    for (; lines.start < lines.end; lines.start = line_end(&lines))
        more++;
    if (more)
        fprintf(file, "  %c (%" PRIu64 " more line%s)\n", sign, more,
                more == 1 ? "" : "s");
}

void preview_show(FILE *file, const struct cay_approval *request)
{
    if (!request->after)
        return;

    struct span before = {request->before, request->before};
    struct span after = {request->after, request->after + request->after_len};
    if (!request->before) {
        show_lines(file, '+', after);
        return;
    }
    before.end += request->before_len;
    uint64_t skipped = trim(&before, &after);
    if (before.start == before.end && after.start == after.end) {
        fputs("  (the content stays the same)\n", file);
        return;
    }
    fprintf(file, "  line %" PRIu64 ":\n", skipped + 1);
    show_lines(file, '-', before);
    show_lines(file, '+', after);
}
