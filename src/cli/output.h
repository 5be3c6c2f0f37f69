/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_OUTPUT_H
#define CLI_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "cay/error.h"
#include "cay/sandbox.h"
#include "json/json.h"

/* Writes text for a terminal: control characters, bidirectional overrides and bytes that
 * are not UTF-8 are written as \n, \x1b
 * or \u202e.  A tab stays.  At most `limit` characters, then "..."; SIZE_MAX for all. */
void show_text(FILE *file, const char *text, size_t len, size_t limit);

/* "timeout"; NULL for 0. */
const char *show_cause(enum cay_cause cause);

/* "paused"; "none" for 0. */
const char *show_state(enum cay_state state);

/* Removes the spares of pools from a list; returns the new count. */
size_t drop_spares(struct cay_sandbox_info *infos, size_t count);

/* All of a NUL-terminated string. */
void show_name(FILE *file, const char *name);

/* Standard output, with nothing lost in silence: the first write that fails is remembered
 * and output_finish() returns it. */
struct output {
    FILE *file;
    int sys_errno;    /* of the first write that failed, or 0 */
    bool is_terminal; /* names are then shown safely instead of byte by byte */
    struct json json; /* of output_json() */
};

int output_open(struct output *output, struct cay_error *err);
void output_name(struct output *output, const char *name);

/* All of it, whatever interrupts; 0 or an errno. */
int output_write(int fd, const void *data, size_t len);

/* Starts the JSON object that is the result; output_finish() ends it. */
struct json *output_json(struct output *output);

/* The same for an object that is one array, which is started, too. */
struct json *output_list(struct output *output, const char *key);

/* CAY_OK if everything so far has been written, and flushed. */
int output_finish(struct output *output, struct cay_error *err);
void output_close(struct output *output);

/* Prints an error on standard error, as a line or as JSON; returns the exit status. */
int output_error(const struct cay_error *err, bool as_json);

/* Aligned columns of text.  A cell may hold names chosen inside a sandbox, so it is
 * written with show_name(). */
struct table {
    FILE *file; /* of memory: the cells, each with its NUL */
    char *text;
    size_t len;
    unsigned columns;
};

/* The headings are separated by '|': "ID|STATE".  table_print() frees the table. */
int table_open(struct table *table, const char *headings, struct cay_error *err);
void table_cell(struct table *table, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* On a terminal the last column is cut at its edge. */
int table_print(struct table *table, struct output *output, struct cay_error *err);

#define QUANTITY_ROOM 24

/* "512 MiB", "1.5 GiB", "0 B" */
const char *quantity_bytes(uint64_t bytes, char room[QUANTITY_ROOM]);

/* "450 ms", "12 s", "5 min", "3 h", "2 d": the largest unit that fits. */
const char *quantity_time(uint64_t ms, char room[QUANTITY_ROOM]);

/* The time since a moment in milliseconds since 1970. */
const char *quantity_age(int64_t since_ms, char room[QUANTITY_ROOM]);

#endif
