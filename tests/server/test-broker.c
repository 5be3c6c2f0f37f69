/* SPDX-License-Identifier: Apache-2.0 */
#include "server/broker/broker.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../unit/harness.h"

static unsigned looks_until_stuck(struct heartbeat *heartbeat, uint64_t cpu_step)
{
    unsigned looks = 1;

    for (uint64_t cpu_ns = heartbeat->cpu_ns + cpu_step;
         !heartbeat_check(heartbeat, heartbeat->beats, cpu_ns); cpu_ns += cpu_step)
        looks++;
    return looks;
}

TEST(process_without_beats_and_cpu_time_is_stuck_after_ten_looks)
{
    struct heartbeat heartbeat = {.beats = 7};

    ASSERT_INT(looks_until_stuck(&heartbeat, 0), 10);
    ASSERT_INT(looks_until_stuck(&heartbeat, 0), 10); /* the next one begins anew */
}

/* H1: one long request at a low CPU share. */
TEST(process_without_beats_that_uses_cpu_time_gets_five_times_as_long)
{
    struct heartbeat heartbeat = {.beats = 7};

    ASSERT_INT(looks_until_stuck(&heartbeat, 1), 50);
}

TEST(process_with_beats_is_never_stuck)
{
    struct heartbeat heartbeat = {0};

    for (uint64_t beats = 1; beats < 1000; beats++) {
        for (int i = 0; i < 8; i++)
            ASSERT(!heartbeat_check(&heartbeat, beats, 0));
    }
}

TEST(cpu_time_of_a_process_advances_only_while_it_runs)
{
    static volatile unsigned count;
    int status;
    pid_t child = fork();

    ASSERT(child >= 0);
    if (child == 0)
        for (;;)
            count++;
    uint64_t before = heartbeat_cpu_ns(child);
    while (heartbeat_cpu_ns(child) == before)
        usleep(1000);
    ASSERT(kill(child, SIGSTOP) == 0);
    ASSERT_INT(waitpid(child, &status, WUNTRACED), child);
    ASSERT(WIFSTOPPED(status));
    before = heartbeat_cpu_ns(child);
    ASSERT(before > 0);
    usleep(50000);
    ASSERT(heartbeat_cpu_ns(child) == before);
    ASSERT(kill(child, SIGKILL) == 0);
    ASSERT_INT(waitpid(child, &status, 0), child);
    ASSERT(heartbeat_cpu_ns(child) == 0);
}

TEST(what_ends_now_and_then_is_started_for_years)
{
    struct restarts restarts = {0};
    const int64_t hour_ms = 3600 * 1000, year_ms = 365 * 24 * hour_ms;

    for (int64_t now_ms = 1; now_ms < year_ms; now_ms += hour_ms)
        ASSERT(restarts_allowed(&restarts, now_ms));
}

TEST(what_ends_again_and_again_is_not)
{
    struct restarts restarts = {0};
    int64_t now_ms = 12345;

    for (int i = 0; i < RESTARTS_MAX; i++, now_ms += ALIVE_MS)
        ASSERT(restarts_allowed(&restarts, now_ms));
    ASSERT(!restarts_allowed(&restarts, now_ms));
    ASSERT(!restarts_allowed(&restarts, now_ms + ALIVE_MS));
    ASSERT(restarts_allowed(&restarts, now_ms + RESTARTS_MS + ALIVE_MS));
}

TEST(what_ends_at_once_is_tried_a_few_times)
{
    struct restarts restarts = {0};
    int64_t now_ms = 0;

    for (int i = 0; i < DEATHS_MAX; i++)
        ASSERT(restarts_allowed(&restarts, now_ms++));
    ASSERT(restarts_allowed(&restarts, now_ms += ALIVE_MS)); /* that one has lived */
    for (int i = 1; i < DEATHS_MAX; i++)
        ASSERT(restarts_allowed(&restarts, now_ms++));
    ASSERT(!restarts_allowed(&restarts, now_ms));
}
