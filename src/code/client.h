/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CODE_CLIENT_H
#define CODE_CLIENT_H

#include "cay/code.h"
#include "code/execution.h"
#include "code/message.h"
#include "code/warm.h"
#include "sandbox/backend.h"

/* One connection to the service of a user. */
struct code_client {
    cay_sandbox *sandbox;
    const char *op, *user;
    int fd;
    int cancel_fd;             /* 0: none */
    uint64_t memory_kills;     /* when it was connected */
    const char *template_name; /* NULL: no warm interpreters */
    struct warm_key warm;      /* if `uses_warm` */
    bool uses_warm;            /* the driver was sent, and may have a warm interpreter */
    bool sent_image;           /* it has one */
    uint64_t deadline_ms;      /* for a service that does not reply; UINT64_MAX: none */
    struct code_reader reader;
};

/* A connection to the service of a user, for a caller that sends messages itself, and how
 * many processes the kernel has killed for the sandbox's memory limit. */
int code_dial(cay_sandbox *sandbox, const char *user, int *ret_fd,
              uint64_t *ret_memory_kills, struct cay_error *err);

int code_connect(struct code_client *client, cay_sandbox *sandbox, const char *user,
                 const char *op, struct cay_error *err);
void code_hang_up(struct code_client *client);

/* Called with each event of the request but NEED; false: it is malformed. */
typedef bool code_on_event(void *cookie, const struct code_event *event,
                           const char *payload);

/* Sends the request and passes events on until the end of it.  `stops` (may be NULL):
 * set by on_event to hang up, which ends the request as interrupted. */
int code_request(struct code_client *client, const struct code_query *query,
                 code_on_event *on_event, void *cookie, const bool *stops,
                 struct code_end *ret_end, struct cay_error *err);

/* The saved interpreter of Python for this sandbox and user, or -1; to be sent with the
 * head of the driver. */
int code_open_image(struct code_client *client, const char *preload, int *ret_image,
                    struct cay_error *err);

/* After a request that is_warm or not: saves an interpreter for the next sandbox if there
 * is none, and has one checked that did not fit. */
void code_note_warm(const struct code_client *client, bool is_warm);

/* cay_code_execute() with complete options and the driver of one's choice: NULL if the
 * options name a context. */
int code_execute(cay_sandbox *sandbox, const char *code, size_t len,
                 const struct cay_code_options *options,
                 const struct code_language *driver,
                 struct cay_code_execution *ret_execution, struct cay_error *err);

/* The same with the body of the request. */
int code_execute_body(cay_sandbox *sandbox, const char *body,
                      const struct cay_code_options *options,
                      const struct code_language *driver,
                      struct cay_code_execution *ret_execution, struct cay_error *err);

#endif
