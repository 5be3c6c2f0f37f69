/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/diff-print.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"

static const char op[] = "cli.diff";

struct page {
    FILE *file;
    bool has_colours;
};

/* --- Lines --- */

static int write_plain(void *cookie, enum cay_diff_line line, const char *text,
                       size_t len)
{
    struct output *output = cookie;

    (void)line;
    errno = 0;
    if (fwrite(text, 1, len, output->file) == len)
        return 0;
    output->sys_errno = errno ? errno : EIO;
    return output->sys_errno;
}

static int write_shown(void *cookie, enum cay_diff_line line, const char *text,
                       size_t len)
{
    static const char *const colours[] = {[CAY_DIFF_LINE_PLAIN] = NULL,
                                          [CAY_DIFF_LINE_HEADER] = "\033[1m",
                                          [CAY_DIFF_LINE_HUNK] = "\033[36m",
                                          [CAY_DIFF_LINE_ADDED] = "\033[32m",
                                          [CAY_DIFF_LINE_DELETED] = "\033[31m"};
    const struct page *page = cookie;
    const char *colour = page->has_colours ? colours[line] : NULL;

    for (size_t at = 0; at < len;) {
        const char *end = memchr(text + at, '\n', len - at);
        size_t shown = end ? (size_t)(end - text) - at : len - at;
        if (colour)
            fputs(colour, page->file);
        show_text(page->file, text + at, shown, SIZE_MAX);
        if (colour)
            fputs("\033[m", page->file);
        if (end)
            fputc('\n', page->file);
        at += shown + (end != NULL);
    }
    return ferror(page->file) ? EPIPE : 0;
}

/* --- The pager --- */

/* Starts it with its standard input at the end of a pipe; the other end, or -1. */
static int start_pager(const char *command, pid_t *ret_pid)
{
    posix_spawn_file_actions_t actions;
    char *const argv[] = {(char[]){"sh"}, (char[]){"-c"}, strdupa(command), NULL};
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) != 0)
        return -1;
    AUTO_FD in = ends[0], out = ends[1];
    if (posix_spawn_file_actions_init(&actions) != 0)
        return -1;
    int error = posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO);
    if (!error)
        error = posix_spawn(ret_pid, "/bin/sh", &actions, NULL, argv, environ);
    (void)posix_spawn_file_actions_destroy(&actions);
    return error ? -1 : TAKE_FD(out);
}

/* A pager that ends early has shown enough. */
static int print_paged(cay_diff *diff, enum cay_diff_format format, struct page *page,
                       const char *pager, struct cay_error *err)
{
    const struct sigaction ignored = {.sa_handler = SIG_IGN};
    struct sigaction before;
    struct cay_error why = {0};
    pid_t pid;

    (void)setenv("LESS", "FRX", 0);
    int fd = start_pager(pager, &pid);
    page->file = fd < 0 ? NULL : fdopen(fd, "w");
    if (!page->file) {
        int error = errno;
        auto_close(&fd);
        return cay_fail(err, CAY_E_EXEC_FAILED, error, op, pager,
                        "the pager could not be started",
                        "set PAGER to another program, or to cat");
    }
    sigaction(SIGPIPE, &ignored, &before);
    int code = cay_diff_print(diff, format, write_shown, page, &why);
    (void)fclose(page->file);
    sigaction(SIGPIPE, &before, NULL);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        continue;
    return code && why.sys_errno != EPIPE ? cay_fail_as(err, code, &why) : CAY_OK;
}

static const char *choose_pager(void)
{
    const char *pager = getenv("PAGER");

    if (!pager)
        return "less";
    return *pager && strcmp(pager, "cat") != 0 ? pager : NULL;
}

int diff_print(struct output *output, cay_diff *diff, enum cay_diff_format format,
               struct cay_error *err)
{
    const char *no_colours = getenv("NO_COLOR"), *terminal = getenv("TERM");
    struct page page = {.file = output->file};

    if (!output->is_terminal || format == CAY_DIFF_JSON)
        return cay_diff_print(diff, format, write_plain, output, err);
    page.has_colours =
        !(no_colours && *no_colours) && terminal && strcmp(terminal, "dumb") != 0;
    const char *pager = choose_pager();
    return pager ? print_paged(diff, format, &page, pager, err)
                 : cay_diff_print(diff, format, write_shown, &page, err);
}
