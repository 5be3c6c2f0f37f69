/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_FRONT_LINES_H
#define SERVER_FRONT_LINES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "cay/code.h"

struct exchange;

/* The response to an execution: lines of JSON in ASCII, as E2B's code interpreter sends
 * them.  The number of executions comes first: what arrives before it is held. */

enum {
    LINES_RESULT_MAX = 16 << 20, /* of a driver's line: parsing blocks the front */
    LINES_OUT_MAX = 6 * LINES_RESULT_MAX + (1 << 20) /* escaped */
};

struct lines {
    struct exchange *exchange;
    struct buf held;
    bool is_counted;
};

void lines_init(struct lines *lines, struct exchange *exchange);
void lines_free(struct lines *lines);

/* Begins the stream of the exchange, and ends it. */
void lines_begin(struct lines *lines);
void lines_end(struct lines *lines);

void lines_put_error(struct lines *lines, const char *name, const char *value,
                     const char *traceback);

/* Callbacks of an execution; the cookie is the struct lines. */
int lines_put_text(void *cookie, int stream, const char *text, size_t len,
                   int64_t time_ns);
int lines_put_value(void *cookie, const struct cay_code_value *value);
void lines_put_count(void *cookie, uint64_t count);

#endif
