/* SPDX-License-Identifier: Apache-2.0 */

/* Pipes of our own, or a terminal of the sandbox's: no terminal, log file or socket of
 * the caller's ever goes inside. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "native/process/run.h"
#include "sys/memfd.h"

static const char op[] = "sandbox.exec";

enum { PIPE_MOST = 1 << 20 };

static void give(struct wire_exec *exec, int fd)
{
    exec->fds[exec->fd_count++] = fd;
}

/* A pipe whose one end is ours, and does not block.  It belongs to us, but whoever runs
 * inside is to be able to open it again, as /dev/stderr. */
static int open_pipe(int our_end, int *ret_ours, int *ret_theirs, struct cay_error *err)
{
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) != 0)
        return cay_fail_errno(err, errno, op, "pipe");
    (void)fcntl(ends[our_end], F_SETFL, O_NONBLOCK);
    (void)fchmod(ends[0], 0666);
    *ret_ours = ends[our_end];
    *ret_theirs = ends[!our_end];
    return CAY_OK;
}

/* Input that nobody needs to feed: a file that cannot be changed any more. */
static int open_file(const void *data, size_t len, int *ret_fd, struct cay_error *err)
{
    int fd = memfd_of("cay-input", 0, data, len);

    if (fd < 0)
        return cay_fail_errno(err, -fd, op, "input");
    *ret_fd = fd;
    return CAY_OK;
}

/* Into a pipe that stays open: all of it, before anybody reads. */
static int fill_pipe(int fd, const struct cay_exec_options *options,
                     struct cay_error *err)
{
    if (options->input_len > 65536 && options->input_len <= PIPE_MOST)
        (void)fcntl(fd, F_SETPIPE_SZ, PIPE_MOST);
    if (!options->input_len ||
        write(fd, options->input, options->input_len) == (ssize_t)options->input_len)
        return CAY_OK;
    return cay_fail(err, CAY_E_LIMIT, 0, op, "input",
                    "that is more than goes into an input which stays open",
                    "give at most 64 KiB at the start, and write the rest afterwards");
}

static int open_input(struct run *run, bool waits, struct wire_exec *exec,
                      struct cay_error *err)
{
    const struct cay_exec_options *options = exec->options;
    bool stays_open = options->flags & CAY_EXEC_INPUT;
    int theirs = -1;

    if (!stays_open && (!options->input || options->input_len == 0))
        return CAY_OK;
    int code = waits || stays_open
                   ? open_pipe(1, &run->input, &theirs, err)
                   : open_file(options->input, options->input_len, &theirs, err);
    if (code)
        return code;
    exec->flags |= EXEC_INPUT;
    give(exec, theirs);
    return stays_open ? fill_pipe(run->input, options, err) : CAY_OK;
}

static int open_output(struct run *run, struct wire_exec *exec, struct cay_error *err)
{
    for (int i = 0; i < 2; i++) {
        int theirs = -1;
        int code = open_pipe(0, &run->streams[i], &theirs, err);
        if (code)
            return code;
        give(exec, theirs);
    }
    return CAY_OK;
}

int run_open_stdio(struct run *run, bool waits, struct wire_exec *exec,
                   struct cay_error *err)
{
    bool keep =
        run->is_background && (run->has_tty || exec->options->flags & CAY_EXEC_INPUT);

    if (run->is_background)
        exec->flags |=
            EXEC_BACKGROUND |
            (exec->options->flags & CAY_EXEC_PIPED ? (unsigned)EXEC_PIPED : 0u);
    if (keep)
        exec->flags |= EXEC_KEEP_INPUT;
    if (run->has_tty) {
        exec->flags |= EXEC_TTY;
        return CAY_OK;
    }
    int code = open_input(run, waits, exec, err);
    if (!code && !run->is_background)
        code = open_output(run, exec, err);
    if (!code && keep)
        give(exec, TAKE_FD(run->input)); /* init keeps it */
    return code;
}
