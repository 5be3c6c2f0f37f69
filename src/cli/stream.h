/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_STREAM_H
#define CLI_STREAM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/tail.h"
#include "cay/error.h"
#include "cay/sandbox.h"

/* CAY_E_INVALID, about `what`, if standard input is not a terminal. */
int terminal_require(const char *what, const char *hint, struct cay_error *err);

/* Rows and columns of our terminal; false if not available. */
bool terminal_size(uint16_t *ret_rows, uint16_t *ret_columns);

/* Raw mode until terminal_restore(), which may be called at any time. */
void terminal_make_raw(void);
void terminal_restore(void);

/* A process inside the sandbox, connected to our standard input and output. */
struct stream {
    cay_process *process;
    bool passes_input; /* standard input goes to the process */
    bool is_raw;       /* and the terminal is raw; its size is passed on, too */
    bool only_shows;   /* a signal ends cay, not the process */
    bool only_kept;    /* only the output so far */
    struct tail *kept; /* two: output is kept there; NULL: it is passed on */
    int signal;        /* set afterwards if a signal ended it: see signals_die() */

    /* The rest is for stream_run(). */
    size_t input_at, input_len, input_moves;
    bool input_ended, ended, is_dying;
    uint64_t kill_at_ms;
    int write_errno;
};

/* Returns when the process has ended and its output is written.  Signals that end
 * cay are passed on to it first; a second later, or with the second signal, it is killed
 * with all descendants.  signals_catch() must have been called. */
int stream_run(struct stream *stream, struct cay_error *err);

#endif
