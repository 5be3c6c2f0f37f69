/* SPDX-License-Identifier: Apache-2.0 */
#include "server/broker/clock.h"

#include <stdbool.h>
#include <time.h>

#include "base/clock.h"

enum {
    STEP_MS =
        1000, /* less is no step, but two clocks that are read one after the other */
    READING_MS = 100 /* the two clocks were not read at the same time */
};

static int64_t offset_ms, step_ms;
static bool is_set;

int64_t server_clock_boot_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void server_clock_set(int64_t offset)
{
    offset_ms = offset;
    step_ms = 0;
    is_set = true;
}

int64_t server_clock_offset(void)
{
    if (!is_set)
        server_clock_set(clock_since_1970_ms() - server_clock_boot_ms());
    return offset_ms;
}

int64_t server_clock_ms(void)
{
    return server_clock_boot_ms() + server_clock_offset();
}

int64_t server_clock_step_ms(void)
{
    int64_t before = server_clock_ms();
    int64_t measured = clock_since_1970_ms() - before;

    if (server_clock_ms() - before < READING_MS &&
        (measured > step_ms + STEP_MS || measured < step_ms - STEP_MS))
        step_ms = measured;
    return step_ms;
}
