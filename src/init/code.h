/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INIT_CODE_H
#define INIT_CODE_H

#include <stdint.h>

/* The code service: a process of one user inside that runs code in contexts.  A context
 * is one interpreter process, which runs a driver of ours and keeps its variables.  See
 * docs/design/code.md.
 *
 * A connection (CODE of protocol.h) has one request at a time:
 *
 *   library -> service                        service -> library
 *   EXECUTE   context, or language: its       [NEED], STARTED, OUT, ERROR and LINES...,
 *             default context, which is         END
 *             created with cwd and
 *             environment; body: the members
 *             "code" and "env" of the driver's
 *             execute line
 *   CREATE    language, cwd, environment      [NEED], CONTEXT, END
 *   RESTART   context                         CONTEXT, END
 *   REMOVE, INTERRUPT   context               END
 *   LIST                                      CONTEXT..., END
 *   DRIVER    language, argv; cwd: members    (continues the request)
 *             to add to each execute line of
 *             a context that is named by its
 *             id; body: its first lines.
 *             Only after NEED.  A descriptor
 *             with its head is a warm
 *             interpreter (warm.h)
 *   SAVE      context, which must be idle;    STARTED, LINES..., END
 *             body: members of the driver's
 *             line.  The descriptor with its
 *             head is the file that the
 *             interpreter is saved to
 *   ADOPT     id of the new context,          [NEED], END
 *             language, cwd.  A descriptor
 *             with its head is a saved
 *             interpreter, with which it
 *             begins; without one the first
 *             execution reports a loss
 *
 * Closing the connection removes a waiting request, and interrupts a running execution.
 * The service runs with the rights of the user inside: the library treats its bytes as
 * hostile. */

#define CODE_PROGRAM "cay-code"

enum {
    CODE_NAME_MAX = 32,          /* of a context or a language; with NUL */
    CODE_CONTEXTS_MAX = 64,      /* of one user */
    CODE_REQUESTS_MAX = 256,     /* waiting and running, of one user */
    CODE_BODY_MAX = 32 << 20,    /* bytes of one request */
    CODE_CREATE_MAX = 1 << 20,   /* of CREATE: the service keeps them */
    CODE_PENDING_MAX = 64 << 20, /* bytes of all requests */
    CODE_STRINGS_MAX = 1024,     /* variables of a context, words of a driver */
    CODE_PIECE = 64 << 10        /* bytes of output in one event */
};

enum code_op {
    CODE_EXECUTE = 1,
    CODE_CREATE = 2,
    CODE_RESTART = 3,
    CODE_REMOVE = 4,
    CODE_INTERRUPT = 5,
    CODE_LIST = 6,
    CODE_DRIVER = 7,
    CODE_SAVE = 8,
    CODE_ADOPT = 9
};

/* Followed by `len` bytes: strings, each with its NUL: context, language, cwd, and
 * `words` more (CREATE, EXECUTE: environment; DRIVER: argv); then the body. */
struct code_request {
    uint32_t op;
    uint32_t len;
    uint32_t words;
    uint32_t is_default; /* ADOPT: the context is that of its language */
    /* Of the whole request; 0: none.  DRIVER: SIGINT is sent again after this time until
     * the code ends; 0: once is enough. */
    uint64_t timeout_ms;
};

enum code_event_kind {
    CODE_EVENT_NEED = 1,    /* the service has no driver for the language */
    CODE_EVENT_STARTED = 2, /* struct code_started */
    CODE_EVENT_OUT = 3,     /* bytes of the interpreter's stdout */
    CODE_EVENT_ERROR = 4,   /* and of its stderr */
    CODE_EVENT_LINES = 5,   /* bytes of the driver: whole lines and parts of lines */
    CODE_EVENT_CONTEXT = 6, /* struct code_context */
    CODE_EVENT_END = 7      /* struct code_end */
};

struct code_event {
    uint32_t kind;
    uint32_t len;
    int64_t time_ns; /* since 1970 */
};

struct code_context {
    char id[CODE_NAME_MAX];
    char language[CODE_NAME_MAX];
    char cwd[4096]; /* as requested; "": the default */
    uint32_t is_default;
    uint32_t is_busy;
    int32_t pid;
    uint32_t waiting; /* requests */
};

/* Why an interpreter ended. */
enum code_loss {
    CODE_LOSS_NONE = 0,
    CODE_LOSS_DIED = 1,      /* by itself: see `status` */
    CODE_LOSS_KILLED = 2,    /* it did not react to an interrupt */
    CODE_LOSS_RESTARTED = 3, /* on request */
    CODE_LOSS_SILENT = 4,    /* it did not get ready in time */
    CODE_LOSS_SERVICE = 5,   /* with the service before this one */
    CODE_LOSS_CLOSED = 6,    /* it closed its channel */
    CODE_LOSS_FORK = 7       /* it stayed in the sandbox that this one is a fork of */
};

struct code_started {
    char id[CODE_NAME_MAX];
    char language[CODE_NAME_MAX];
    uint64_t dropped; /* bytes of output between executions */
    uint32_t loss;    /* of the interpreter before this one */
    int32_t status;   /* of its end, as wait(2) reports it */
    uint32_t is_warm; /* the interpreter is a copy of the driver's */
    uint32_t padding;
};

enum code_reason {
    CODE_DONE = 0,
    CODE_LOST = 1,     /* the interpreter ended: see `loss` and `status` */
    CODE_REMOVED = 2,  /* the context was removed */
    CODE_EXPIRED = 3,  /* the timeout is over, and the code has not run */
    CODE_UNKNOWN = 4,  /* no such context */
    CODE_TOO_MANY = 5, /* contexts */
    CODE_FULL = 6,     /* too many requests, or too large ones */
    CODE_NO_EXEC = 7,  /* the interpreter was not executed: see `error` */
    CODE_NO_CWD = 8,   /* the same for its directory */
    CODE_NO_START = 9, /* the interpreter ended before it was ready */
    CODE_NO_FORK = 10, /* no process, descriptor or memory for it: see `error` */
    CODE_BUSY = 11     /* SAVE: not idle; ADOPT: there is such a context */
};

struct code_end {
    uint32_t reason; /* enum code_reason */
    uint32_t loss;   /* enum code_loss */
    int32_t status;
    int32_t error;        /* an errno */
    uint32_t timed_out;   /* it was interrupted by its timeout... */
    uint32_t interrupted; /* ...or by a request */
};

/* The service itself, with the socket to PID 1 as its stdin. */
int code_main(void);

#endif
