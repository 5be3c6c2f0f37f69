/* SPDX-License-Identifier: Apache-2.0 */
#include "server/wire/pulse.h"

#include <time.h>

bool pulse_look(struct pulse *pulse, uint64_t beats, uint64_t cpu_ns)
{
    if (beats != pulse->beats)
        pulse->missed = 0;
    else
        pulse->missed += cpu_ns == pulse->cpu_ns ? PULSE_IDLE : 1;
    pulse->beats = beats;
    pulse->cpu_ns = cpu_ns;
    if (pulse->missed < PULSE_MISSED)
        return false;
    pulse->missed = 0;
    return true;
}

uint64_t pulse_cpu_ns(pid_t pid)
{
    struct timespec used;
    clockid_t clock;

    if (pid <= 0 || clock_getcpuclockid(pid, &clock) != 0 ||
        clock_gettime(clock, &used) != 0)
        return 0;
    return (uint64_t)used.tv_sec * 1000000000 + (uint64_t)used.tv_nsec;
}
