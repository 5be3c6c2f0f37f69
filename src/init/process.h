/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INIT_PROCESS_H
#define INIT_PROCESS_H

#include <sys/resource.h>

#include "init/child.h"
#include "init/ring.h"
#include "init/serve.h"

/* One stream of a background command, from the pipe or terminal into its ring. */
struct output {
    struct source source;
    struct process *process;
    int fd;    /* -1 after end of file */
    bool held; /* not read until a client has read what the ring has */
    struct ring ring;
};

/* A command, from its start until no request can refer to it any more.
 *
 * A foreground command belongs to the peer that started it.  A background command is kept
 * after its end until its result was fetched or RESULTS_MAX newer ones have ended.  Both
 * stay while a peer is attached, or while a process that they started still runs in their
 * cgroup. */
struct process {
    struct process *next;
    uint64_t number;
    pid_t pid;
    uid_t uid;
    unsigned flags; /* enum exec_flag */
    struct exec_cgroup cgroup;
    struct peer *peers;  /* the owner, or attached peers */
    struct child *child; /* until it has executed */
    bool ended;          /* its first process has exited */
    bool killed, timed_out, stuck;
    bool end_requested; /* by SIGTERM or SIGKILL from a client */
    bool finished;      /* its end was reported, or can be fetched */
    bool fetched;
    bool is_own; /* a part of PID 1's image: not a command of a client */
    uint64_t finished_number;
    uint64_t started_ns, deadline_ns;
    int64_t started_ms;
    struct exec_end end;
    int input;                /* background: the write end of its stdin, or -1 */
    struct output outputs[2]; /* background; a terminal is the first */
    int terminal;             /* foreground: the master, until it is sent to the client */
    char tag[TAG_MAX];
    char words[WORDS_MAX];
};

/* --- Life: process.c --- */

/* Opens descriptors for later, before any other process runs inside. */
void process_prepare(const struct plan *plan);

/* EXEC.  False if the request violates the protocol. */
bool process_execute(struct peer *peer, struct packet *packet);

/* Starts a part of PID 1's own image (main.c) as a background command of the user, with
 * `input`, which it owns from now on, as its stdin.  Its result is not kept. */
int process_start_own(const char *user, const char *name, int input,
                      struct cay_error *err);

/* Continues a child that was stopped before it executed. */
void process_stopped(pid_t pid);

void process_reaped(pid_t pid, int status, const struct rusage *used);

/* Its subreaper has died, so its processes are being killed. */
void process_lost(pid_t pid);

/* After every round of events: kills commands past their deadline and reports ended ones.
 */
void process_update(void);

/* Preforks a child for the next command unless a foreground command runs. */
void process_prefork(void);

/* When process_update() must run even without an event; UINT64_MAX: never. */
uint64_t process_next_ns(void);

void process_kill(struct process *process);
void process_attach(struct process *process, struct peer *peer);
void process_detach(struct peer *peer); /* losing its owner kills a foreground command */

/* Waits briefly; whether every started child has executed. */
bool process_all_executed(void);

extern bool process_is_paused; /* no command may start */

struct process *process_first(void); /* of the list; NULL if it is empty */

/* --- Requests about a command: control.c.  False: the peer violated the protocol. --- */

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
bool control_dial_own(int socket); /* after DIAL_ONLY; false: the peer is gone */
void control_count(struct state *state);

/* --- Terminals of the sandbox's own devpts: control.c.  0 or a negative errno. --- */

/* Opens /dev/pts before a process inside can replace it. */
void control_prepare_terminals(bool are_ours);

/* A new terminal that belongs to `owner`. */
int control_open_terminal(uid_t owner, uint16_t rows, uint16_t columns, int *ret_master,
                          int *ret_slave);

/* --- Output: output.c --- */

/* Starts to read from `fd`, which it owns from now on. 0 or a negative errno. */
int output_open(struct output *output, struct process *process, int fd);

void output_close(struct output *output);

/* Reads the rest and closes it. */
void output_finish(struct output *output);

/* A client has read, or the last reader is gone: reads held streams again. */
void output_resume(struct process *process);

/* Whether a stream waits for a slow reader. */
bool output_is_held(const struct process *process);

/* READ: replies now, or when there is output. */
bool output_read(struct peer *peer);

/* Replies to the pending READs that have output. */
void output_reply(struct process *process);

#endif
