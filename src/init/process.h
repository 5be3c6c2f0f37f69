/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INIT_PROCESS_H
#define INIT_PROCESS_H

#include <sys/resource.h>

#include "init/child.h"
#include "init/peer.h"
#include "init/ring.h"

/* One stream of a background command, from the pipe or terminal into its ring. */
struct output {
    struct source source;
    struct process *process;
    int fd;    /* -1 once it has ended */
    bool held; /* nothing is taken from it until somebody has read what was */
    struct ring ring;
};

/* A command, from its start until nobody can ask for it any more.
 *
 * A foreground one belongs to the peer that started it.  A background one is kept after
 * its end until its result was fetched or too many newer ones have ended.  Either stays
 * while a peer is attached to it, or while something that it started still runs in its
 * cgroup. */
struct process {
    struct process *next;
    uint64_t number;
    pid_t pid;
    uid_t uid;
    unsigned flags; /* enum exec_flag */
    struct exec_cgroup cgroup;
    struct peer *peers;  /* the owner, or those attached */
    struct child *child; /* until it has executed */
    bool ended;          /* its first process has */
    bool killed, timed_out, stuck;
    bool end_requested; /* by SIGTERM or SIGKILL from outside */
    bool finished;      /* and its end was told, or can be asked for */
    bool fetched;
    uint64_t finished_number;
    uint64_t started_ns, deadline_ns;
    int64_t started_ms;
    struct exec_end end;
    int input;                /* background: where its stdin is written, or -1 */
    struct output outputs[2]; /* background; a terminal is the first */
    int terminal;             /* foreground: the master, until it is handed over */
    char tag[TAG_MAX];
    char words[WORDS_MAX];
};

/* --- Its life: process.c --- */

/* Opens what will be needed later, before anything else runs inside. */
void process_prepare(const struct plan *plan);

/* EXEC.  False if the request broke the rules. */
bool process_execute(struct peer *peer, struct packet *packet);

/* One that has not executed yet is not to be stopped. */
void process_stopped(pid_t pid);

void process_reaped(pid_t pid, int status, const struct rusage *used);

/* What held it together is gone: it is being killed. */
void process_lost(pid_t pid);

/* After anything may have happened: ends what is late, tells what is over. */
void process_update(void);

/* Gets a child ready for the next command, if nothing speaks against it. */
void process_prefork(void);

/* When process_update() has something to do even if nothing happens; UINT64_MAX: never.
 */
uint64_t process_next_ns(void);

void process_kill(struct process *process);
void process_attach(struct process *process, struct peer *peer);
void process_detach(struct peer *peer); /* the loss of its owner kills it */

/* Whether all that was started has executed, after a short while at most. */
bool process_all_executed(void);

extern bool process_is_paused; /* nothing is to be started */

struct process *process_first(void); /* of all; NULL if there is none */

/* --- What peers ask about it: control.c.  False if they broke the rules. --- */

bool control_attach(struct peer *peer, const struct packet *packet);
bool control_write(struct peer *peer, const struct packet *packet);
bool control_close_input(struct peer *peer);
bool control_skip(struct peer *peer);
bool control_resize(struct peer *peer, const struct packet *packet);
bool control_signal(struct peer *peer, const struct packet *packet);
bool control_kill(struct peer *peer, const struct packet *packet);
bool control_forget(struct peer *peer);
bool control_list(struct peer *peer, const struct packet *packet, int proc);
bool control_dial(struct peer *peer, const struct packet *packet); /* a port inside */
void control_count(struct state *state);

/* --- Its output: output.c --- */

/* Starts to collect from `fd`, which it takes.  0 or a negative errno. */
int output_open(struct output *output, struct process *process, int fd);

void output_close(struct output *output);

/* Takes what is still there and closes it. */
void output_finish(struct output *output);

/* Somebody has read, or nobody reads any more: goes on with what was held. */
void output_resume(struct process *process);

/* Whether what its streams still have waits for who reads. */
bool output_is_held(const struct process *process);

/* READ: answers it now, or when there is something. */
bool output_read(struct peer *peer);

/* Answers the READs that can be. */
void output_reply(struct process *process);

#endif
