/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_CALL_H
#define CLI_CALL_H

#include "cli/options.h"
#include "cli/output.h"

/* A command whose first word is a subcommand: `cay session ls`. */
struct call {
    void *options; /* the command's own, filled in */
    struct command_line line;
    struct output output;
};

typedef int call_runner(struct call *call, struct cay_error *err);

struct call_rules {
    const struct grammar *grammar; /* one option is "help", a flag */
    const char *about;             /* a sentence for its help */
    const char *manual;            /* "cay-session(1)" */
    call_runner *prepare;          /* before any of them, or NULL */
    call_runner *const *run;       /* by subcommand */
};

/* Reads the words, does what they say, and tells what went wrong; gives the exit status.
 * `options` are zeroed. */
int call_run(const struct call_rules *rules, char *const *argv, void *options);

#endif
