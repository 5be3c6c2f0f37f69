/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_WIRE_WARN_H
#define SERVER_WIRE_WARN_H

#include <stdint.h>

/* Lines on standard error about one kind of event: at most WARN_LINES in WARN_MS, then
 * the number of dropped lines.  A line is dropped if nothing reads standard error. */

enum { WARN_LINES = 50, WARN_MS = 10000 };

struct warn {
    uint64_t since_ms;
    unsigned count, left_out;
};

/* Adds "cay: " and a newline, and replaces bytes that are not printable ASCII. */
void warn_line(struct warn *warn, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
