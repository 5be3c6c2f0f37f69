/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BENCH_RACE_H
#define BENCH_RACE_H

#include <stdbool.h>

/* Several ways of running something, taken in turns in one process.  The first entrant is
 * the floor: every other one is printed with its ratio to it. */

struct entrant {
    const char *op;
    double most_ratio;            /* of the floor's median; 0: no target */
    double most_us;               /* 0: no target */
    bool is_peer;                 /* another project's: shown for comparison */
    void (*before)(void *cookie); /* not timed; may be NULL */
    double (*run)(void *cookie);  /* how long it took, in microseconds; < 0: failed */
    void *cookie;
};

double race_now_us(void);

/* An entrant: runs the NULL-terminated words that `cookie` points to, to their end, and
 * drops what they print. */
double race_spawn(void *cookie);

/* Keeps this process and those that it starts on one processor, or releases it. */
void race_pin(bool pins);

/* Prints a line of JSON for each entrant: median, 95th and 99th percentile, the fastest,
 * and the CPU time and context switches of the whole machine meanwhile, on average.  Ends
 * the process if one fails. */
void race(const char *part, const struct entrant *entrants, unsigned count,
          unsigned rounds);

/* Times of one operation among `size` things, against `floor`; both get sorted. */
void race_compare(const char *part, const char *op, unsigned long long size, double *us,
                  double *floor, unsigned rounds, double most_ratio);

/* One figure without a floor. */
void race_print(const char *part, const char *op, unsigned long long size, double us,
                double most_us);

#endif
