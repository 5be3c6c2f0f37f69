/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ESCAPE_HOST_LEDGER_H
#define ESCAPE_HOST_LEDGER_H

#include <stdint.h>
#include <sys/types.h>

#include "cay/sandbox.h"

enum { LEDGER_VALUES = 8, LEDGER_VALUE_MAX = 256 };

/* What must be the same before and after.  Others use this machine too: it has only what
 * nobody changes in passing, and what bears our marks. */
struct host_ledger {
    char values[LEDGER_VALUES][LEDGER_VALUE_MAX]; /* sysctls */
    long terminals;
    int64_t clock_offset_ms; /* between the clock that can be set and one that cannot */
    char tree[4096]; /* names, sizes, owners and bytes of the canary's directory */
};

void host_ledger_take(struct host_ledger *ledger, int directory);
void host_ledger_same(const struct host_ledger *before, int directory);

/* By what a sandbox is known outside.  Where some of its user ids are its maker's own
 * (first is 0), its processes are those below PID 1. */
struct host_mark {
    char id[CAY_ID_MAX];
    pid_t init;
    unsigned long first, count; /* user ids */
};

size_t host_processes(const struct host_mark *mark);
size_t host_commands(const struct host_mark *mark); /* those that are not cay-init's */

/* No process, cgroup, mount, record or reserved range of it. */
void host_ledger_nothing_left(const struct host_mark *mark);

unsigned long long host_start_time(pid_t pid);

/* Processes of the sandbox that are not in its cgroups. */
size_t host_outside_cgroup(const struct host_mark *mark);

#endif
