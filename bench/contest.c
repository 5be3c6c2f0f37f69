/* SPDX-License-Identifier: Apache-2.0 */
#include "contest.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WARM_UP = 10 };

static double now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

void contest_die(const char *what)
{
    fprintf(stderr, "bench: %s: %s\n", what, strerror(errno));
    exit(1);
}

static double take_turn(const struct contest *contest, enum side side)
{
    if (contest->before)
        contest->before(contest->cookie, side);
    double start = now_us();
    bool ok = contest->run[side](contest->cookie);
    double took = now_us() - start;
    if (!ok)
        contest_die(side == OURS ? contest->op : contest->floor);
    return took;
}

static int compare(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;

    return (a > b) - (a < b);
}

static double percentile(const double *sorted, unsigned count, unsigned percent)
{
    unsigned rank = (count * percent + 99) / 100;

    return sorted[rank ? rank - 1 : 0];
}

static void print_side(const char *name, const double *sorted, unsigned count)
{
    printf(", \"%s\": [%.2f, %.2f, %.2f]", name, percentile(sorted, count, 50),
           percentile(sorted, count, 95), percentile(sorted, count, 99));
}

static void print(const struct contest *contest, double *took[2])
{
    for (int side = OURS; side <= PLAIN; side++)
        qsort(took[side], contest->rounds, sizeof *took[side], compare);
    printf("{\"part\": \"%s\", \"op\": \"%s\", \"floor_is\": \"%s\", \"bytes\": %llu, "
           "\"rounds\": %u",
           contest->part, contest->op, contest->floor, (unsigned long long)contest->bytes,
           contest->rounds);
    print_side("ours", took[OURS], contest->rounds);
    print_side("floor", took[PLAIN], contest->rounds);
    printf(", \"ratio\": %.3f", percentile(took[OURS], contest->rounds, 50) /
                                    percentile(took[PLAIN], contest->rounds, 50));
    if (contest->most_ratio > 0)
        printf(", \"most_ratio\": %.2f", contest->most_ratio);
    if (contest->most_us > 0)
        printf(", \"most_us\": %.0f", contest->most_us);
    printf("}\n");
    fflush(stdout);
}

void contest_run(const struct contest *contest)
{
    double *took[2] = {calloc(contest->rounds, sizeof(double)),
                       calloc(contest->rounds, sizeof(double))};
    unsigned warm_up = contest->rounds / 10 < WARM_UP ? contest->rounds / 10 : WARM_UP;

    if (!took[OURS] || !took[PLAIN])
        contest_die("rounds");
    for (unsigned i = 0; i < warm_up + contest->rounds; i++) {
        enum side first = i % 2 ? PLAIN : OURS, second = i % 2 ? OURS : PLAIN;
        double first_us = take_turn(contest, first);
        double second_us = take_turn(contest, second);
        if (i >= warm_up) {
            took[first][i - warm_up] = first_us;
            took[second][i - warm_up] = second_us;
        }
    }
    print(contest, took);
    free(took[OURS]);
    free(took[PLAIN]);
}
