/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BENCH_CONTEST_H
#define BENCH_CONTEST_H

#include <stdbool.h>
#include <stdint.h>

/* Two ways of doing one thing, taken in turns in one process, so that whatever else the
 * machine does falls on both alike.  The first one changes from round to round. */

enum side { OURS = 0, PLAIN = 1 };

struct contest {
    const char *part;  /* which table it belongs to */
    const char *op;    /* what is done */
    const char *floor; /* what PLAIN does */
    uint64_t bytes;
    unsigned rounds;
    double most_ratio; /* OURS may take so many times as long; 0: no target */
    double most_us;    /* OURS may take so long; 0: no target */
    bool (*run[2])(void *cookie);
    void (*before)(void *cookie, enum side side); /* not timed; may be NULL */
    void *cookie;
};

/* Prints the outcome as one line of JSON.  Ends the process if a side fails. */
void contest_run(const struct contest *contest);

_Noreturn void contest_die(const char *what);

#endif
