/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "contest.h"
#include "race.h"
#include "scale.h"

/* What one operation costs beside 1, 10, 100 and 1,000 living sandboxes.  Each number of
 * sandboxes is measured twice, on the way up and on the way down, so that a machine that
 * gets faster or slower meanwhile does not look like growth. */

enum { LEVELS = 4, ROUNDS_MAX = 200 };

struct crowd {
    char (*ids)[CAY_ID_MAX];
    unsigned count;
    const char *cay;
    cay_sandbox *one; /* created by create_one() */
};

static double spawn_true(struct crowd *crowd)
{
    static const char *const words[] = {"/bin/true", NULL};

    (void)crowd;
    return race_spawn((void *)(uintptr_t)words);
}

static double create_one(struct crowd *crowd)
{
    const struct cay_sandbox_options options = {.size = sizeof options};
    double start = race_now_us();
    struct cay_error err;

    sandbox_ok(cay_sandbox_create(&options, &crowd->one, &err), &err);
    return race_now_us() - start;
}

static double kill_one(struct crowd *crowd)
{
    double start = race_now_us();
    struct cay_error err;

    sandbox_ok(cay_sandbox_kill(crowd->one, &err), &err);
    double took = race_now_us() - start;
    cay_sandbox_free(crowd->one);
    return took;
}

/* In the first one, by its id, as a program that did not create it.  The first command of
 * a sandbox takes longer than the following ones, beside any number of others. */
static double exec_first(struct crowd *crowd)
{
    static const char *const argv[] = {"/bin/true", NULL};
    const struct cay_exec_options options = {.size = sizeof options, .argv = argv};
    double start = race_now_us();
    struct cay_exec_result result;
    cay_sandbox *sandbox;
    struct cay_error err;

    sandbox_ok(cay_sandbox_open(crowd->ids[0], &sandbox, &err), &err);
    sandbox_ok(cay_sandbox_exec(sandbox, &options, &result, &err), &err);
    double took = race_now_us() - start;
    cay_exec_done(&result);
    cay_sandbox_free(sandbox);
    return took;
}

static double list_each(struct crowd *crowd, bool is_brief)
{
    struct cay_sandbox_info *infos;
    double start = race_now_us();
    struct cay_error err;
    size_t count;

    (void)crowd;
    sandbox_ok(is_brief ? cay_sandbox_list_brief(&infos, &count, &err)
                        : cay_sandbox_list(&infos, &count, &err),
               &err);
    double took = race_now_us() - start;
    cay_free(infos);
    return took / (double)count;
}

static double list_rows(struct crowd *crowd)
{
    return list_each(crowd, false);
}

static double list_ids(struct crowd *crowd)
{
    return list_each(crowd, true);
}

static double run_command(const char *const *words)
{
    posix_spawn_file_actions_t actions;
    double start = race_now_us();
    int status = -1;
    pid_t pid;

    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    if (posix_spawn(&pid, words[0], &actions, NULL, (char *const *)(uintptr_t)words,
                    environ) != 0 ||
        waitpid(pid, &status, 0) < 0 || status != 0)
        contest_die(words[1]);
    posix_spawn_file_actions_destroy(&actions);
    return race_now_us() - start;
}

static double command_run(struct crowd *crowd)
{
    const char *const words[] = {crowd->cay, "run", "--", "/bin/true", NULL};

    return run_command(words);
}

static double command_create(struct crowd *crowd)
{
    const char *const words[] = {crowd->cay, "create", "--name", "growth", NULL};

    return run_command(words);
}

static double command_exec(struct crowd *crowd)
{
    const char *const words[] = {crowd->cay, "exec", crowd->ids[0], "/bin/true", NULL};

    return run_command(words);
}

static double command_kill(struct crowd *crowd)
{
    const char *const words[] = {crowd->cay, "kill", "growth", NULL};

    return run_command(words);
}

struct operation {
    const char *op;
    double (*run)(struct crowd *crowd);
    bool has_next; /* the next one undoes it */
};

static const struct operation operations[] = {
    {"posix_spawn of /bin/true", spawn_true},
    {"create", create_one, true},
    {"kill", kill_one},
    {"exec", exec_first},
    {"ls, each row", list_rows},
    {"ls -q, each row", list_ids},
    {"cay run", command_run},
    {"cay create", command_create, true},
    {"cay kill", command_kill},
    {"cay exec", command_exec},
};

enum { OPERATIONS = sizeof operations / sizeof *operations };

static double took[LEVELS][OPERATIONS][ROUNDS_MAX];

/* One operation after the other, and not in turns: to list all sandboxes leaves nothing
 * in the processor's caches for the next. */
static void measure(struct crowd *crowd, unsigned level, unsigned from, unsigned to)
{
    for (unsigned first = 0, last; first < OPERATIONS; first = last + 1) {
        for (last = first; operations[last].has_next;)
            last++;
        for (unsigned round = from; round < to; round++)
            for (unsigned i = first; i <= last; i++)
                took[level][i][round] = operations[i].run(crowd);
    }
}

static void grow(struct crowd *crowd, unsigned count)
{
    const struct cay_sandbox_options options = {.size = sizeof options};
    cay_sandbox *sandbox;
    struct cay_error err;

    for (; crowd->count < count; crowd->count++) {
        sandbox_ok(cay_sandbox_create(&options, &sandbox, &err), &err);
        snprintf(crowd->ids[crowd->count], CAY_ID_MAX, "%s", cay_sandbox_id(sandbox));
        cay_sandbox_free(sandbox);
    }
}

static void reduce(struct crowd *crowd, unsigned count)
{
    cay_sandbox *sandbox;
    struct cay_error err;

    while (crowd->count > count) {
        sandbox_ok(cay_sandbox_open(crowd->ids[--crowd->count], &sandbox, &err), &err);
        sandbox_ok(cay_sandbox_kill(sandbox, &err), &err);
        cay_sandbox_free(sandbox);
    }
}

void scale_growth(const char *cay, bool quick)
{
    static const unsigned counts[LEVELS] = {1, 10, 100, 1000};
    const unsigned levels = quick ? 2 : LEVELS, rounds = quick ? 4 : ROUNDS_MAX;
    struct crowd crowd = {.ids = calloc(counts[LEVELS - 1], CAY_ID_MAX), .cay = cay};

    if (!crowd.ids)
        contest_die("sandboxes");
    for (unsigned level = 0; level < levels; level++) {
        grow(&crowd, counts[level]);
        measure(&crowd, level, 0, rounds / 2);
    }
    for (unsigned level = levels; level-- > 0;) {
        reduce(&crowd, counts[level]);
        measure(&crowd, level, rounds / 2, rounds);
    }
    reduce(&crowd, 0);
    for (unsigned i = 0; i < OPERATIONS; i++)
        for (unsigned level = 0; level < levels; level++)
            race_compare("growth of sandboxes", operations[i].op, counts[level],
                         took[level][i], took[0][i], rounds, i ? 1.5 : 0);
    free(crowd.ids);
}
