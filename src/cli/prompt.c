/* SPDX-License-Identifier: Apache-2.0 */
/* The prompt uses the controlling terminal, since standard input and output carry the
 * content.  Input that was typed before the prompt appeared is discarded. */
#include "cli/prompt.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "base/auto.h"
#include "cli/output.h"
#include "cli/progress.h"

/* --- Preview --- */

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

static void show_preview(FILE *file, const struct cay_approval *request)
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

/* --- Prompt --- */

/* One line without its end and the blanks around it; false at the end of input. */
static bool read_line(int fd, char *line, size_t room)
{
    size_t len = 0;
    char c;

    for (;;) {
        ssize_t got = read(fd, &c, 1);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        if (c == '\n')
            break;
        if (len < room - 1 && (len > 0 || c != ' '))
            line[len++] = c;
    }
    while (len > 0 && line[len - 1] == ' ')
        len--;
    line[len] = '\0';
    return true;
}

static bool is_answer(const char *line, const char *word)
{
    return strcasecmp(line, word) == 0 ||
           (line[0] != '\0' && line[1] == '\0' && strncasecmp(line, word, 1) == 0);
}

static enum cay_verdict ask(int terminal, FILE *screen, char note[CAY_NOTE_MAX])
{
    char line[CAY_NOTE_MAX];

    for (;;) {
        fputs("Allow this? [y]es, [n]o, [s]ession, no with a [r]eason: ", screen);
        fflush(screen);
        if (!read_line(terminal, line, sizeof line))
            return CAY_VERDICT_DENY;
        if (is_answer(line, "yes"))
            return CAY_VERDICT_APPROVE;
        if (is_answer(line, "session"))
            return CAY_VERDICT_REMEMBER;
        if (is_answer(line, "no"))
            return CAY_VERDICT_DENY;
        if (!is_answer(line, "reason"))
            continue;
        fputs("Reason: ", screen);
        fflush(screen);
        if (read_line(terminal, line, sizeof line))
            memcpy(note, line, strlen(line) + 1);
        return CAY_VERDICT_DENY;
    }
}

/* A listing or a large file is read in several calls, each of which asks. */
static bool was_allowed(const struct prompt *prompt, const struct cay_approval *request)
{
    bool is_reading = request->op == CAY_OP_READ || request->op == CAY_OP_LIST;

    return is_reading && prompt->path && prompt->op == request->op &&
           strcmp(prompt->path, request->path) == 0;
}

enum cay_verdict prompt_ask(void *cookie, const struct cay_approval *request,
                            char note[CAY_NOTE_MAX])
{
    struct prompt *prompt = cookie;

    if (was_allowed(prompt, request))
        return CAY_VERDICT_APPROVE;

    bool has_terminal = isatty(STDIN_FILENO) || isatty(STDERR_FILENO);
    AUTO_FD terminal = has_terminal ? open("/dev/tty", O_RDONLY | O_CLOEXEC) : -1;
    FILE *screen = terminal >= 0 ? fopen("/dev/tty", "we") : NULL;
    if (!screen) {
        prompt->no_terminal = true;
        return CAY_VERDICT_DENY;
    }

    progress_pause();
    tcflush(terminal, TCIFLUSH);
    fputs("cay: ", screen);
    show_name(screen, request->summary);
    fputc('\n', screen);
    show_preview(screen, request);
    enum cay_verdict verdict = ask(terminal, screen, note);
    fclose(screen);
    progress_resume();

    if (verdict != CAY_VERDICT_DENY) {
        free(prompt->path);
        prompt->op = request->op;
        prompt->path = strdup(request->path); /* if NULL, the next page asks again */
    }
    return verdict;
}

void prompt_done(struct prompt *prompt)
{
    free(prompt->path);
    prompt->path = NULL;
}
