/* SPDX-License-Identifier: Apache-2.0 */
/* The question goes to the controlling terminal, for standard input and output carry the
 * content.  What was typed before the question was shown does not answer it. */
#include "cli/prompt.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "base/auto.h"
#include "cli/preview.h"
#include "cli/progress.h"
#include "cli/show.h"

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

    bool somebody_there = isatty(STDIN_FILENO) || isatty(STDERR_FILENO);
    AUTO_FD terminal = somebody_there ? open("/dev/tty", O_RDONLY | O_CLOEXEC) : -1;
    FILE *screen = terminal >= 0 ? fopen("/dev/tty", "we") : NULL;
    if (!screen) {
        prompt->nobody_there = true;
        return CAY_VERDICT_DENY;
    }

    progress_pause();
    tcflush(terminal, TCIFLUSH);
    fputs("cay: ", screen);
    show_name(screen, request->summary);
    fputc('\n', screen);
    preview_show(screen, request);
    enum cay_verdict verdict = ask(terminal, screen, note);
    fclose(screen);
    progress_resume();

    if (verdict != CAY_VERDICT_DENY) {
        free(prompt->path);
        prompt->op = request->op;
        prompt->path = strdup(request->path); /* if NULL, one is asked again */
    }
    return verdict;
}

void prompt_done(struct prompt *prompt)
{
    free(prompt->path);
    prompt->path = NULL;
}
