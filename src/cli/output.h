/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_OUTPUT_H
#define CLI_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "cay/error.h"

/* Standard output, with nothing lost in silence: the first write that fails is remembered
 * and output_finish() tells it. */
struct output {
    FILE *file;
    int sys_errno;    /* of the first write that failed, or 0 */
    bool is_terminal; /* names are then shown safely instead of byte by byte */
};

int output_open(struct output *output, struct cay_error *err);
void output_name(struct output *output, const char *name);

/* All of it, whatever interrupts; 0 or an errno. */
int output_write(int fd, const void *data, size_t len);

/* Starts the JSON object that is the result, and ends it. */
struct json;
void output_begin_json(struct output *output, struct json *json);
void output_end_json(struct output *output, struct json *json);

/* CAY_OK if everything so far has been written, and flushed. */
int output_finish(struct output *output, struct cay_error *err);
void output_close(struct output *output);

/* Tells an error on standard error, as a line or as JSON, and returns the exit status. */
int output_error(const struct cay_error *err, bool as_json);

#endif
