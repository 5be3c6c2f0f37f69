/* SPDX-License-Identifier: Apache-2.0 */
#include "race.h"

#include <errno.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "contest.h"

enum { WARM_UP = 5, ENTRANTS_MAX = 16 };

double race_now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
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

static void print_times(const char *name, const double *sorted, unsigned count)
{
    printf(", \"%s\": [%.2f, %.2f, %.2f]", name, percentile(sorted, count, 50),
           percentile(sorted, count, 95), percentile(sorted, count, 99));
}

static void print(const char *part, const struct entrant *entrant, const double *took,
                  const double *floor, const char *floor_op, unsigned rounds)
{
    printf("{\"part\": \"%s\", \"op\": \"%s\", \"floor_is\": \"%s\", \"bytes\": 0, "
           "\"rounds\": %u, \"peer\": %s",
           part, entrant->op, floor_op, rounds, entrant->is_peer ? "true" : "false");
    print_times("ours", took, rounds);
    print_times("floor", floor, rounds);
    printf(", \"ratio\": %.3f",
           percentile(took, rounds, 50) / percentile(floor, rounds, 50));
    if (entrant->most_ratio > 0)
        printf(", \"most_ratio\": %.2f", entrant->most_ratio);
    if (entrant->most_us > 0)
        printf(", \"most_us\": %.0f", entrant->most_us);
    printf("}\n");
    fflush(stdout);
}

/* What one leaves the kernel to do is done while the next runs; it should not always be
 * the same next one. */
static void shuffle(unsigned *order, unsigned count)
{
    static uint32_t state = 1;

    for (unsigned i = count; i > 1; i--) {
        state = state * 1664525 + 1013904223;
        unsigned other = (state >> 16) % i, last = order[i - 1];
        order[i - 1] = order[other];
        order[other] = last;
    }
}

void race(const char *part, const struct entrant *entrants, unsigned count,
          unsigned rounds)
{
    double **took = calloc(count, sizeof *took);
    unsigned order[ENTRANTS_MAX];

    for (unsigned i = 0; took && i < count; i++) {
        order[i] = i;
        if (count > ENTRANTS_MAX || !(took[i] = calloc(rounds, sizeof **took)))
            contest_die("rounds");
    }
    for (unsigned round = 0; took && round < rounds + WARM_UP; round++) {
        shuffle(order, count);
        for (unsigned turn = 0; turn < count; turn++) {
            unsigned i = order[turn];
            double us = entrants[i].run(entrants[i].cookie);
            if (us < 0)
                contest_die(entrants[i].op);
            if (round >= WARM_UP)
                took[i][round - WARM_UP] = us;
        }
    }
    for (unsigned i = 0; i < count; i++)
        qsort(took[i], rounds, sizeof **took, compare);
    for (unsigned i = 0; i < count; i++)
        print(part, &entrants[i], took[i], took[0], entrants[0].op, rounds);
    for (unsigned i = 0; i < count; i++)
        free(took[i]);
    free(took);
}

void race_print(const char *part, const char *op, unsigned long long size, double us,
                double most_us)
{
    printf("{\"part\": \"%s\", \"op\": \"%s\", \"bytes\": %llu, \"ours\": [%.2f, %.2f, "
           "%.2f], \"peer\": false",
           part, op, size, us, us, us);
    if (most_us > 0)
        printf(", \"most_us\": %.0f", most_us);
    printf("}\n");
    fflush(stdout);
}

double race_spawn(void *cookie)
{
    char *const *argv = cookie;
    double start = race_now_us();
    posix_spawn_file_actions_t actions;
    int status = -1;
    pid_t pid;

    posix_spawn_file_actions_init(&actions);
    int error = posix_spawnp(&pid, argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error)
        return -1;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    return status == 0 ? race_now_us() - start : -1;
}
