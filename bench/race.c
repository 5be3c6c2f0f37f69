/* SPDX-License-Identifier: Apache-2.0 */
#include "race.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

void race_pin(bool pins)
{
    static cpu_set_t before;
    cpu_set_t one;

    if (pins && sched_getaffinity(0, sizeof before, &before) != 0)
        contest_die("sched_getaffinity");
    CPU_ZERO(&one);
    for (size_t i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++)
        if (CPU_ISSET(i, &before))
            CPU_SET(i, &one);
    if (sched_setaffinity(0, sizeof one, pins ? &one : &before) != 0)
        contest_die("sched_setaffinity");
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

/* What one entrant took, in all rounds. */
struct record {
    double *us; /* sorted in the end */
    double cpu_us, switches;
};

static double number_after(const char *text, const char *name)
{
    const char *at = strstr(text, name);

    return at ? strtod(at + strlen(name), NULL) : 0;
}

static void read_text(const char *path, char *text, size_t room)
{
    FILE *file = fopen(path, "re");
    size_t len = file ? fread(text, 1, room - 1, file) : 0;

    text[len] = '\0';
    if (file)
        fclose(file);
}

/* Of the whole machine since its start: CPU time in the kernel's ticks of 10 ms, which
 * many rounds average, or exactly where cgroup v1 counts it; and context switches. */
static void count_work(double *ret_cpu_us, double *ret_switches)
{
    static char text[1 << 16];
    double ticks = 0;

    read_text("/proc/stat", text, sizeof text);
    *ret_switches = number_after(text, "ctxt ");
    char *at = text + strcspn(text, " ");
    for (int field = 0; field < 7; field++) {
        double value = strtod(at, &at);
        ticks += field == 3 || field == 4 ? 0 : value; /* idle, iowait */
    }
    *ret_cpu_us = ticks * 1e6 / (double)sysconf(_SC_CLK_TCK);
    read_text("/sys/fs/cgroup/cpuacct/cpuacct.usage", text, sizeof text);
    if (*text)
        *ret_cpu_us = strtod(text, NULL) / 1e3;
}

static void print(const char *part, const struct entrant *entrant,
                  const struct record *record, const double *floor, const char *floor_op,
                  unsigned rounds)
{
    const double *took = record->us;

    printf("{\"part\": \"%s\", \"op\": \"%s\", \"floor_is\": \"%s\", \"bytes\": 0, "
           "\"rounds\": %u, \"peer\": %s",
           part, entrant->op, floor_op, rounds, entrant->is_peer ? "true" : "false");
    print_times("ours", took, rounds);
    print_times("floor", floor, rounds);
    printf(", \"ratio\": %.3f, \"fastest\": %.2f, \"cpu_us\": %.1f, \"switches\": %.1f",
           percentile(took, rounds, 50) / percentile(floor, rounds, 50), took[0],
           record->cpu_us / rounds, record->switches / rounds);
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
    struct record records[ENTRANTS_MAX] = {{0}};
    unsigned order[ENTRANTS_MAX];

    for (unsigned i = 0; i < count; i++) {
        order[i] = i;
        if (count > ENTRANTS_MAX || !(records[i].us = calloc(rounds, sizeof(double))))
            contest_die("rounds");
    }
    for (unsigned round = 0; round < rounds + WARM_UP; round++) {
        shuffle(order, count);
        for (unsigned turn = 0; turn < count; turn++) {
            const struct entrant *entrant = &entrants[order[turn]];
            struct record *record = &records[order[turn]];
            double cpu[2], switches[2];
            if (entrant->before)
                entrant->before(entrant->cookie);
            count_work(&cpu[0], &switches[0]);
            double us = entrant->run(entrant->cookie);
            count_work(&cpu[1], &switches[1]);
            if (us < 0)
                contest_die(entrant->op);
            if (round < WARM_UP)
                continue;
            record->us[round - WARM_UP] = us;
            record->cpu_us += cpu[1] - cpu[0];
            record->switches += switches[1] - switches[0];
        }
    }
    for (unsigned i = 0; i < count; i++)
        qsort(records[i].us, rounds, sizeof(double), compare);
    for (unsigned i = 0; i < count; i++)
        print(part, &entrants[i], &records[i], records[0].us, entrants[0].op, rounds);
    for (unsigned i = 0; i < count; i++)
        free(records[i].us);
}

void race_compare(const char *part, const char *op, unsigned long long size, double *us,
                  double *floor, unsigned rounds, double most_ratio)
{
    qsort(us, rounds, sizeof *us, compare);
    qsort(floor, rounds, sizeof *floor, compare);
    printf("{\"part\": \"%s\", \"op\": \"%s\", \"bytes\": %llu, \"rounds\": %u, "
           "\"peer\": false, \"fastest\": %.2f",
           part, op, size, rounds, us[0]);
    print_times("ours", us, rounds);
    print_times("floor", floor, rounds);
    printf(", \"ratio\": %.3f",
           percentile(us, rounds, 50) / percentile(floor, rounds, 50));
    if (most_ratio > 0)
        printf(", \"most_ratio\": %.2f", most_ratio);
    printf("}\n");
    fflush(stdout);
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
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    int error = posix_spawnp(&pid, argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error)
        return -1;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    return status == 0 ? race_now_us() - start : -1;
}
