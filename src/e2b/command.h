/* SPDX-License-Identifier: Apache-2.0 */
#ifndef E2B_COMMAND_H
#define E2B_COMMAND_H

#include "e2b/e2b.h"
#include "e2b/messages.h"

/* A command as its caller sees it: the stream on which its output and its end come, and
 * the requests that carry its input, which have an order of their own.
 *
 * All of it goes on only while somebody calls; the libcurl side merely collects bytes,
 * and everything is read and decided outside of its callbacks. */

/* Inside: the name of our scripts, and where the output of commands is kept. */
#define E2B_HELPER     "cay-helper"
#define E2B_OUTPUT_DIR "/tmp/.cay-output"

enum {
    E2B_PATIENCE_MS = 1000,
    E2B_HELPER_MS = 10 * 60 * 1000, /* of ours, about many files */
    E2B_GRACE_MS = 5000,            /* for us to end a command, before the server does */
    E2B_ROWS = 24,
    E2B_COLUMNS = 80
};

struct e2b_input {
    bool is_open;
    bool ends;        /* once all that there is was sent */
    const char *data; /* not sent yet; in exec the caller's, else in `own` */
    size_t left;
    char *own;
    size_t sent;        /* of the last piece */
    unsigned ends_left; /* a terminal's ^D still to be typed */
    bool is_busy;
    struct e2b_request request;
    struct buf body;
    struct cay_error failure; /* code 0: none */
};

struct e2b_command {
    struct e2b *e2b;
    const char *op;
    struct e2b_request request;
    struct buf body;
    struct buf raw; /* what came and was not read yet, from raw_at on */
    size_t raw_at;
    char marker[64]; /* "CAY_COMMAND=..." in the environment of its tree; "": unknown */
    char user[64];   /* whose it is, by name or number; "": the default user's */
    const char *cwd; /* as the caller has it, or NULL; until it has started */
    bool has_tty, is_attached;
    bool is_helper;        /* something of ours */
    bool has_output_files; /* its output goes to files */
    bool opens_later;      /* nobody waits for the server to take it */
    bool is_killed;
    int pid; /* 0: it has not started yet */
    bool is_over;
    bool has_end, is_gone, is_timed_out, is_over_limit;
    bool is_refused; /* the server says that it did not start */
    struct e2b_event end;
    uint64_t begin_ms, end_ms;
    uint64_t deadline_ms;     /* UINT64_MAX: none */
    struct cay_error failure; /* code 0: none */
    struct e2b_input input;
    /* The daemon waits until nobody has the command's output open, not for the command
     * itself; so somebody inside watches that. */
    struct e2b_command *watch;
    bool is_watched;
};

void e2b_command_init(struct e2b_command *command, struct e2b *e2b, const char *op);
void e2b_command_done(struct e2b_command *command); /* the command is left as it is */

/* Sends what starts it, or finds one that runs.  It fails only if nothing was sent; what
 * the server says to it is in `failure` later.  The input must live as long as the
 * command. The server ends it `grace_ms` after its time is over, should nobody be here to
 * do so.
 */
int e2b_command_start(struct e2b_command *command, const struct cay_exec_options *options,
                      uint64_t grace_ms, struct cay_error *err);
int e2b_command_attach(struct e2b_command *command, const char *which,
                       struct cay_error *err);

/* Lets things happen until then at most, or for no longer than a moment if they do. */
void e2b_command_step(struct e2b_command *command, uint64_t until_ms);

/* The next piece of its output; e2b_event_done() it.  1, 0 if there is none now, -1 if
 * there will not be any more. */
int e2b_command_next(struct e2b_command *command, struct e2b_event *ret_event);

/* Until it has started, or will not. */
int e2b_command_wait_start(struct e2b_command *command, uint64_t until_ms,
                           struct cay_error *err);

/* Whether it runs, or may do so for all that is known here. */
bool e2b_command_may_live(const struct e2b_command *command);

/* Whether e2b_command_next() has something to tell. */
bool e2b_command_has_news(const struct e2b_command *command);

/* The result but for its output, when it is over. */
int e2b_command_result(const struct e2b_command *command,
                       struct cay_exec_result *ret_result, struct cay_error *err);

/* --- Its input --- */

void e2b_input_init(struct e2b_input *input);
void e2b_input_done(struct e2b_input *input);

/* Sends on what can be sent now. */
void e2b_input_feed(struct e2b_command *command);

/* CAY_E_UNSUPPORTED if the daemon has no way to say it. */
int e2b_input_can_end(const struct e2b_command *command, struct cay_error *err);

/* Whether something is still on its way. */
bool e2b_input_pending(const struct e2b_input *input);

/* --- Ending it --- */

/* To its first process: SIGTERM and SIGKILL by the daemon, others by kill(1) inside. */
int e2b_command_signal(struct e2b_command *command, int signal, struct cay_error *err);

/* Its whole tree, as far as it can be found. */
int e2b_command_kill(struct e2b_command *command, struct cay_error *err);

/* --- Small things done inside --- */

/* Runs a program that every system has, by its words; what it writes goes to `out`. */
int e2b_script_words(struct e2b *e2b, const char *op, const char *user,
                     const char *const *argv, struct buf *out, int *ret_exit,
                     struct cay_error *err);

/* Makes settings.workdir, for the default user. */
int e2b_script_make_workdir(struct e2b *e2b, struct cay_error *err);

/* Sees to it that the end of a command's first process is the end. */
void e2b_script_watch(struct e2b_command *command);
uint64_t e2b_script_watch_due(const struct e2b_command *command); /* when that begins */

/* The exit status 126 or 127 may be the program's own, or say that there is none. */
void e2b_script_classify(struct e2b *e2b, const struct cay_exec_options *options,
                         struct cay_exec_result *result);

/* --- What is asked --- */

int e2b_start_write(const struct e2b_command *command,
                    const struct cay_exec_options *options, struct buf *body,
                    struct cay_error *err);
int e2b_start_check(const struct cay_exec_options *options, const char *op,
                    unsigned flags, struct cay_error *err);

/* One of the words that a process was started with, without the script before them; NULL
 * after the last.  It lives as long as the JSON. */
const char *e2b_start_word(const json_t *config, size_t index);

/* Whether output goes to files, for all that its arguments tell. */
bool e2b_start_may_keep(const json_t *args);

/* The same of one that runs, though there may be no files yet. */
bool e2b_process_will_keep(struct e2b *e2b, int pid);

#endif
