/* SPDX-License-Identifier: Apache-2.0 */
#ifndef E2B_COMMAND_H
#define E2B_COMMAND_H

#include "e2b/e2b.h"
#include "e2b/messages.h"

/* A command: a stream that carries its output and its end, and requests that carry its
 * input, one at a time to keep their order.
 *
 * Progress happens only during calls.  libcurl's callbacks collect bytes; parsing and
 * decisions happen outside of them. */

/* argv[0] of our scripts inside, and the directory of output files. */
#define E2B_HELPER     "cay-helper"
#define E2B_OUTPUT_DIR "/tmp/.cay-output"

enum {
    E2B_GRACE_MS = 5000, /* the client ends a command this long before the server does */
    E2B_ROWS = 24,
    E2B_COLUMNS = 80
};

struct e2b_input {
    bool is_open;
    bool ends;        /* close it after the last byte */
    const char *data; /* not sent yet; the caller's bytes in exec, else in `own` */
    size_t left;
    char *own;
    size_t sent;        /* bytes in the pending request */
    unsigned ends_left; /* how often ^D is still to be sent to a terminal */
    bool is_busy;       /* a request is pending */
    struct e2b_request request;
    struct buf body;
    struct cay_error failure; /* code 0: none */
};

struct e2b_command {
    struct e2b *e2b;
    const char *op;
    struct e2b_request request;
    struct buf body;
    struct buf raw; /* received; parsed up to raw_at */
    size_t raw_at;
    char marker[64]; /* "CAY_COMMAND=..." in the environment; "": unknown */
    char user[64];   /* a name or number; "": the default user */
    const char *cwd; /* the caller's, or NULL; valid until the command has started */
    bool has_tty, is_attached;
    bool is_helper;        /* a script of ours */
    bool has_output_files; /* output goes to E2B_OUTPUT_DIR */
    bool no_wait;          /* e2b_command_start() does not wait for a reply */
    bool is_killed;
    int pid; /* 0: not started yet */
    bool is_over;
    bool has_end;    /* `end` is the end that envd reported */
    bool is_gone;    /* the sandbox has ended */
    bool is_refused; /* the server reported that the command did not start */
    bool is_timed_out, is_over_limit;
    struct e2b_event end;
    uint64_t begin_ms, end_ms;
    uint64_t deadline_ms;     /* UINT64_MAX: none */
    struct cay_error failure; /* code 0: none */
    struct e2b_input input;
    struct e2b_command *watch; /* the helper of e2b_script_step(), or NULL */
    bool is_watched;           /* it was started */
};

void e2b_command_init(struct e2b_command *command, struct e2b *e2b, const char *op);
void e2b_command_done(struct e2b_command *command); /* a running command keeps running */

/* Starts a command, or attaches to one by pid or tag.  Fails only if no request was sent;
 * a refusal is in `failure` later.  The input must live as long as the command.  The
 * server kills the command `grace_ms` after its timeout, in case this process is dead. */
int e2b_command_start(struct e2b_command *command, const struct cay_exec_options *options,
                      uint64_t grace_ms, struct cay_error *err);
int e2b_command_attach(struct e2b_command *command, const char *which,
                       struct cay_error *err);

/* Waits until the command has started, or failed to. */
int e2b_command_wait_start(struct e2b_command *command, uint64_t until_ms,
                           struct cay_error *err);

/* Waits for events until `until_ms` and handles them. */
void e2b_command_step(struct e2b_command *command, uint64_t until_ms);

/* The next output; e2b_event_done() it.  Returns 1, 0 if there is none now, -1 if there
 * will be none. */
int e2b_command_next(struct e2b_command *command, struct e2b_event *ret_event);

/* True if the command is running, or may be. */
bool e2b_command_may_live(const struct e2b_command *command);

/* True if e2b_command_next() would return 1 or -1. */
bool e2b_command_has_news(const struct e2b_command *command);

/* The result without the output, after the end. */
int e2b_command_result(const struct e2b_command *command,
                       struct cay_exec_result *ret_result, struct cay_error *err);

/* --- Input --- */

/* Sends the next piece if none is pending. */
void e2b_input_feed(struct e2b_command *command);

/* CAY_E_UNSUPPORTED if this version of envd cannot close the input. */
int e2b_input_can_end(const struct e2b_command *command, struct cay_error *err);

/* True if bytes, or the end, are not delivered yet. */
bool e2b_input_pending(const struct e2b_input *input);

/* --- The request that starts a command (start.c) --- */

int e2b_start_check(const struct cay_exec_options *options, const char *op,
                    unsigned flags, struct cay_error *err);
int e2b_start_write(const struct e2b_command *command,
                    const struct cay_exec_options *options, struct buf *body,
                    struct cay_error *err);

/* An argument of a listed process, without our script before them; NULL after the last.
 * Valid as long as the JSON. */
const char *e2b_start_word(const json_t *config, size_t index);

/* True if a process with these arguments writes output files. */
bool e2b_start_has_output_files(const json_t *args);

#endif
