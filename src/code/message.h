/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CODE_MESSAGE_H
#define CODE_MESSAGE_H

#include <stdbool.h>

#include "base/buf.h"
#include "cay/code.h"
#include "code/driver.h"
#include "init/code.h"

/* Messages to and from the code service of init/code.h, without I/O. */

/* A request. */
struct code_query {
    enum code_op op;
    const char *id, *language, *cwd; /* NULL: "" */
    const char *const *words;
    const char *body;
    size_t body_len;
    uint64_t timeout_ms;
    bool is_default; /* ADOPT */
    int image;       /* descriptor with the head of SAVE and ADOPT; 0: none */
    const struct code_language *driver; /* for NEED, or NULL */
    const char *preload;                /* modules of a warm interpreter, or NULL */
};

enum { CODE_MESSAGE_MAX = CODE_BODY_MAX + (1 << 20) };

/* Appends the request, or the driver that it needs, to an empty `message` with room for
 * CODE_MESSAGE_MAX. */
int code_pack_query(const struct code_query *query, const char *op, struct buf *message,
                    struct cay_error *err);
int code_pack_driver(const struct code_query *query, const char *op, struct buf *message,
                     struct cay_error *err);

/* The body of EXECUTE: `"code":"...","env":{...}`, to be freed.  `env`: "NAME=value", or
 * NULL; `dialect`: of the language, or NULL. */
int code_make_body(const char *code, size_t len, const char *const *env,
                   const char *dialect, char **ret_body, struct cay_error *err);

/* Received bytes, as events. */
struct code_reader {
    char *bytes;
    size_t from, to;
};

/* False if memory is exhausted. */
bool code_reader_init(struct code_reader *reader);
void code_reader_done(struct code_reader *reader);

/* Where the next bytes go; `to` is then increased by their number. */
char *code_reader_room(struct code_reader *reader, size_t *ret_room);

/* Returns 1 with the next event, whose payload is valid until the next call of
 * code_reader_room(); 0 if it is not complete; -EPROTO. */
int code_reader_next(struct code_reader *reader, struct code_event *ret_event,
                     const char **ret_payload);

/* A context of a CONTEXT event, whose texts are valid; false if it is malformed. */
bool code_take_context(const struct code_event *event, const char *payload,
                       struct code_context *ret_context);

/* A name from inside: text that ends within its field. */
bool code_take_name(char to[CAY_CONTEXT_MAX], const char from[CODE_NAME_MAX]);

/* The error for an end of a request other than CODE_DONE and CODE_LOST. */
int code_fail_end(const struct code_query *query, const char *op,
                  const struct code_end *end, struct cay_error *err);

/* "The interpreter was killed by signal 11 (SIGSEGV)." */
void code_describe_loss(uint32_t loss, int status, bool is_memory, char *text,
                        size_t room);

/* Whether SIGKILL ended the interpreter: the kernel may have sent it for the memory
 * limit. */
bool code_is_killed(const struct code_end *end);

int code_fail_gone(const char *op, struct cay_error *err);
int code_fail_protocol(const char *op, struct cay_error *err);

#endif
