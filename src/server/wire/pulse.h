/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_WIRE_PULSE_H
#define SERVER_WIRE_PULSE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Whether a process is stuck: it counts beats up in shared memory while it advances, and
 * is looked at every PULSE_MS.  A process without a beat is stuck after 20 seconds, or,
 * if it uses CPU time (a long request at a low CPU share), after 100 seconds.
 *
 * Looks are counted, not time: if the whole machine stood still, the process missed at
 * most one. */

enum {
    PULSE_MS = 2000,
    PULSE_IDLE = 5,   /* what a look without a beat and without CPU time counts */
    PULSE_MISSED = 50 /* stuck */
};

struct pulse {
    uint64_t beats, cpu_ns, looked_ms; /* at the last look */
    unsigned missed;
};

/* One look.  Returns true if the process is stuck, and starts anew. */
bool pulse_look(struct pulse *pulse, uint64_t beats, uint64_t cpu_ns);

/* The CPU time of a process, 0 if there is none. */
uint64_t pulse_cpu_ns(pid_t pid);

#endif
