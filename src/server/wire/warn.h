/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_WIRE_WARN_H
#define SERVER_WIRE_WARN_H

#include <stdbool.h>
#include <stdint.h>

/* Lines on standard error about one kind of event: at most WARN_LINES in WARN_MS, then
 * the number of dropped lines.  A line is dropped if nothing reads standard error. */

enum { WARN_LINES = 50, WARN_MS = 10000 };

struct warn {
    uint64_t since_ms;
    unsigned count, left_out;
};

/* From here on each line is an object with time, level and message: --log-format json. */
void warn_set_json(bool is_json);

/* "2026-01-31T12:00:00.500Z" */
enum { WARN_TIME = 32 };
void warn_put_time(int64_t since_1970_ms, char ret_text[WARN_TIME]);

/* Adds "cay: " and a newline, and replaces bytes that are not printable ASCII. */
void warn_line(struct warn *warn, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
