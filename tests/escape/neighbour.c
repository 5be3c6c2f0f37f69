/* SPDX-License-Identifier: Apache-2.0 */
#include "neighbour.h"

#include <stdio.h>
#include <sys/mman.h>

enum { COUNT_MS = 600 };

static struct counted {
    char id[CAY_ID_MAX];
    unsigned long steps, gap_us, sum;
} * counted;
static pid_t counter;

/* In a process of its own, with a handle of its own. */
static int count(void *cookie)
{
    struct counted *mine = cookie;
    cay_sandbox *sandbox;
    char milliseconds[16], *at;
    const char *const argv[] = {world_inside(), "load", "count", milliseconds, NULL};
    const struct cay_exec_options options = {
        .size = sizeof options, .argv = argv, .timeout_ms = 120000};
    struct cay_exec_result counts = {0};

    snprintf(milliseconds, sizeof milliseconds, "%d", COUNT_MS);
    if (cay_sandbox_open(mine->id, &sandbox, NULL) != CAY_OK ||
        cay_sandbox_exec(sandbox, &options, &counts, NULL) != CAY_OK ||
        strncmp(counts.out, "count ", 6) != 0)
        return 1;
    mine->steps = strtoul(counts.out + 6, &at, 10);
    mine->gap_us = strtoul(at + 5, &at, 10);
    mine->sum = strtoul(at + 5, NULL, 10);
    return 0;
}

void neighbour_begin(void)
{
    const cay_sandbox *sandbox = world_sandbox(NULL);

    if (!counted)
        counted = mmap(NULL, sizeof *counted, PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT(counted != MAP_FAILED);
    memset(counted, 0, sizeof *counted);
    snprintf(counted->id, sizeof counted->id, "%s", cay_sandbox_id(sandbox));
    counter = world_fork(count, counted);
}

void neighbour_end(const char *during)
{
    world_join(counter);
    ASSERT(counted->steps > 0);
    ASSERT_INT(counted->sum, counted->steps * (counted->steps + 1) / 2);
    printf("# neighbour during %s: %lu steps, longest wait %lu.%03lu ms\n", during,
           counted->steps, counted->gap_us / 1000, counted->gap_us % 1000);
}
