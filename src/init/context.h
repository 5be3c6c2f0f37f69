/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INIT_CONTEXT_H
#define INIT_CONTEXT_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/buf.h"
#include "init/code.h"

/* Inside the code service: contexts (context.c), and the connections of clients
 * (code.c). */

enum {
    CONTEXT_NOTHING = 3, /* /dev/null; in an interpreter the channel to the service */
    CONTEXT_ENV = 4,     /* in a copy: a file with its environment, each with a NUL */
    CONTEXT_IMAGE = 5,   /* until it is a copy */
    LINK_OUT_MAX = 4 << 20,
    LINK_OUT_LOW = CODE_PIECE, /* with more unsent bytes the interpreter waits */
    CONTEXT_HEAD_MAX = 256     /* bytes of a "ready" or "done" line, at most */
};

struct driver {
    struct driver *next;
    char language[CODE_NAME_MAX];
    char *payload; /* what these point into */
    char **argv;
    const char *tail; /* of each execute line of a context that it was created for */
    const char *body;
    size_t body_len;
    uint64_t interrupt_ms; /* between signals, if one is not enough; 0: it is */
    int image;             /* a warm interpreter (warm.h) or -1 */
    bool was_used;         /* by a default context */
};

/* A request, or the part of it that has arrived. */
struct code_message {
    struct code_request head;
    size_t got;    /* bytes of head and payload */
    char *payload; /* allocated when the head is complete */
    const char *id, *language, *cwd;
    char **words; /* NULL-terminated */
    const char *body;
    size_t body_len;
};

enum link_state { LINK_READING, LINK_NEEDS_DRIVER, LINK_WAITING, LINK_RUNNING };

/* A connection of a client. */
struct link {
    struct link *next;
    struct link *behind; /* in the queue of the context */
    int fd, slot;
    int image; /* descriptor with the message that arrives, or -1 */
    int kept;  /* the same of the request */
    bool gone;
    enum link_state state;
    struct code_message incoming, request;
    struct context *context; /* while it waits or runs */
    uint64_t deadline_ns;    /* UINT64_MAX: none */
    struct buf out;
    size_t sent;
};

struct context {
    struct context *next;
    char id[CODE_NAME_MAX], language[CODE_NAME_MAX];
    bool is_default, gone, removing;
    struct code_message created; /* cwd and environment, or nothing */
    pid_t pid;                   /* 0: no interpreter */
    int fds[3];                  /* channel, stdout, stderr */
    int slots[3];
    bool ready, was_ready, busy;
    bool is_warm;         /* the interpreter is, or may become, a copy */
    bool is_cold;         /* it must not: one has ended before it was ready */
    int image;            /* a saved interpreter, for its first start only; or -1 */
    struct link *running; /* NULL while busy: the client is gone */
    struct link *queue;
    uint64_t execution;
    uint64_t again_ns, kill_ns, start_ns; /* UINT64_MAX: never */
    bool timed_out, interrupted;
    bool heard;      /* the driver has reported something since the execution began */
    uint32_t ending; /* why the service killed it: enum code_loss */
    uint32_t loss;   /* why the one before ended */
    int status;
    uint32_t start_reason;
    int start_error;
    uint64_t dropped;
    struct buf input; /* for the driver */
    size_t sent;
    char head[CONTEXT_HEAD_MAX]; /* the beginning of the line that is being read */
    size_t head_len;
    bool is_long, skips; /* the line; skips: it began before this execution */
};

/* --- Connections: code.c --- */

void link_put(struct link *link, uint32_t kind, const void *payload, size_t len);
void link_flush(struct link *link);

/* The request is over; the connection may send another.  NULL is allowed. */
void link_end(struct link *link, const struct code_end *how);
void link_end_for(struct link *link, uint32_t reason, int error);
void link_describe(struct link *link, const struct context *context);

/* --- Drivers --- */

struct driver *driver_find(const char *language);
void driver_add(struct driver *driver);

/* --- Contexts: context.c --- */

struct context *context_first(void);
size_t context_count(void);
struct context *context_find(const char *id);
struct context *context_find_default(const char *language);

/* A context without an interpreter, behind the others; NULL if memory is exhausted. */
struct context *context_add(const char *language, bool is_default);
/* The service before this one has ended, and with it the default contexts. */
void context_note_loss(void);

void context_queue(struct context *context, struct link *link, bool first);
void context_unqueue(struct link *link);
void context_fail_queue(struct context *context, uint32_t reason);

/* Starts the interpreter or the next request, as far as that is possible now. */
void context_advance(struct context *context);

void context_kill(struct context *context, uint32_t loss); /* enum code_loss */
void context_interrupt(struct context *context);

/* Ends the execution; the caller then calls context_advance(). */
void context_finish(struct context *context, const struct code_end *how);

/* One read of a pipe or the channel; false if it is empty. */
bool context_read_pipe(struct context *context, int stream);
bool context_read_channel(struct context *context);
void context_write(struct context *context); /* to the driver, what fits */

/* SIGCHLD has arrived. */
void context_reap(void);

/* Frees those that are gone. */
void context_sweep(void);

#endif
