/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CODE_EXECUTION_H
#define CODE_EXECUTION_H

#include "base/buf.h"
#include "cay/code.h"
#include "init/code.h"

/* Collects what one execution gives, from bytes of the service, which are hostile.  No
 * I/O. */

enum {
    CODE_LINE_MAX = 33 << 20,  /* of a driver; longer ones are dropped */
    CODE_TREE_MAX = 256 << 20, /* memory of a parsed line */
    CODE_TREE_RATIO = 256,     /* bytes for each of the line, at most */
    CODE_VALUES_MAX = 1000,
    CODE_VALUES_BYTES = 64 << 20,
    CODE_TYPES_MAX = 64,     /* of one value */
    CODE_TYPE_MAX = 255,     /* bytes of the name of one */
    CODE_DEPTH_MAX = 256,    /* levels of one; drivers report 200 */
    CODE_ERROR_MAX = 1 << 20 /* bytes of a traceback, and of the other two */
};

struct code_collector {
    const struct cay_code_options *options;
    struct cay_code_execution *execution;
    /* May be set after code_collector_init(). */
    void (*on_count)(void *cookie, uint64_t count); /* of the driver; or NULL */
    size_t line_max;   /* bytes of a line; longer ones are dropped */
    size_t tree_max;   /* memory of a parsed line */
    bool keeps_base64; /* of pictures and documents, instead of their bytes */

    uint32_t loss; /* of the interpreter before: STARTED */
    int status;
    struct buf line;
    bool skips_line;
    uint64_t limit, used[2]; /* bytes of each stream */
    size_t value_count, value_bytes, value_room;
    struct buf streams[2];
    char split[2][4]; /* the beginning of a character at the end of a piece */
    size_t split_len[2];
    bool failed;  /* memory is exhausted */
    bool stopped; /* a callback wants the end */
};

void code_collector_init(struct code_collector *collector,
                         const struct cay_code_options *options,
                         struct cay_code_execution *execution);
/* Moves the collected text to the execution. */
void code_collector_done(struct code_collector *collector);

/* Bytes of a stream: any bytes, any pieces. */
void code_collect_bytes(struct code_collector *collector, int stream, const char *data,
                        size_t len, int64_t time_ns);
/* Bytes of a driver: lines of JSON, if it keeps to its protocol. */
void code_collect_lines(struct code_collector *collector, const char *data, size_t len,
                        int64_t time_ns);
/* An event of EXECUTE but NEED and END; false if it is malformed. */
bool code_collect_event(struct code_collector *collector, const struct code_event *event,
                        const char *payload);

/* Whether the code has run, or could have: otherwise code_fail_end() has the error. */
bool code_is_executed(const struct code_end *end);

/* Sets status and error of the execution.  `is_memory`: the kernel killed the interpreter
 * for the memory limit. */
void code_collect_end(struct code_collector *collector, const struct code_end *end,
                      bool is_memory);

/* Sets the error unless the driver reported one; false if memory is exhausted. */
bool code_set_error(struct cay_code_execution *execution, const char *name,
                    const char *value, const char *traceback);

#endif
