/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_STREAM_H
#define CLI_STREAM_H

#include <stdbool.h>

#include "base/tail.h"
#include "cay/sandbox.h"

/* One process inside, tied to our standard input and output until it ends. */
struct stream {
    cay_process *process;
    bool passes_input; /* ours goes in */
    bool is_raw;       /* and every key as it is; the terminal's size too */
    bool only_shows;   /* it is somebody else's: a signal ends us, not it */
    bool only_kept;    /* what it has said so far, though it runs on */
    struct tail *kept; /* two: output is kept there; NULL: it is passed on */
    int signal;        /* that ended us, afterwards: see signals_die() */

    /* The rest is for stream_run(). */
    size_t input_at, input_len, input_moves;
    bool input_ended, ended, is_dying;
    uint64_t kill_at_ms;
    int write_errno;
};

/* Returns when the process has ended and its output is written.  Signals that ask us to
 * end are passed on to it first; if it is still there a second later, or with the second
 * signal, it is killed with all it started.  signals_catch() must have been called. */
int stream_run(struct stream *stream, struct cay_error *err);

#endif
