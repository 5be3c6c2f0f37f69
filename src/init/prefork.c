/* SPDX-License-Identifier: Apache-2.0 */
#include "init/prefork.h"

#include <signal.h>

#include "base/clock.h"

enum { CGROUPS = 8, WAIT_MS = 1000 };

static unsigned next_number;
static struct exec_cgroup cgroups[CGROUPS];
static size_t cgroup_count;

static bool is_wanted, is_unlimited;
static uint64_t due_ns;
static struct ready {
    struct child *child; /* NULL: none */
    struct exec_cgroup cgroup;
    pid_t pid;
    uint64_t until_ns;
    bool leaving; /* it was sent SIGKILL */
} ready = {.cgroup = EXEC_CGROUP_NONE};

int prefork_take_cgroup(struct exec_cgroup *ret_cgroup)
{
    if (cgroup_count > 0) {
        *ret_cgroup = cgroups[--cgroup_count];
        return 0;
    }
    return exec_cgroup_open(next_number++, ret_cgroup);
}

void prefork_keep_cgroup(struct exec_cgroup *cgroup)
{
    if (cgroup_count < CGROUPS)
        cgroups[cgroup_count++] = *cgroup;
    else
        exec_cgroup_close(cgroup);
}

struct child *prefork_child(void)
{
    return ready.leaving ? NULL : ready.child;
}

pid_t prefork_take(struct exec_cgroup *ret_cgroup)
{
    struct child *child = ready.child;
    pid_t pid = ready.pid;

    *ret_cgroup = ready.cgroup;
    ready = (struct ready){.cgroup = EXEC_CGROUP_NONE};
    child_release(child);
    return pid;
}

pid_t prefork_pid(void)
{
    return ready.child ? ready.pid : 0;
}

void prefork_want(uint64_t after_ms)
{
    is_wanted = true;
    due_ns = after_ms ? clock_ns() + after_ms * 1000000 : 0;
}

void prefork_cancel(void)
{
    is_wanted = false;
}

bool prefork_is_wanted(void)
{
    return is_wanted && !ready.child;
}

bool prefork_is_due(void)
{
    return prefork_is_wanted() && (!due_ns || clock_ns() >= due_ns);
}

static uint64_t end_of_wait(void)
{
    return is_unlimited ? UINT64_MAX : clock_ns() + WAIT_MS * 1000000ull;
}

void prefork_set_limited(bool is_limited)
{
    is_unlimited = !is_limited;
    ready.until_ns = end_of_wait();
}

void prefork_make(void)
{
    struct child *child = child_new();
    struct exec_cgroup cgroup = EXEC_CGROUP_NONE;

    is_wanted = false;
    if (!child || prefork_take_cgroup(&cgroup) != 0) {
        child_free(child);
        return;
    }
    pid_t pid = child_start(child, &cgroup);
    if (pid < 0) {
        child_free(child);
        prefork_keep_cgroup(&cgroup);
        return;
    }
    ready = (struct ready){child, cgroup, pid, end_of_wait(), false};
}

bool prefork_reaped(pid_t pid)
{
    if (!ready.child || pid != ready.pid)
        return false;
    child_free(ready.child);
    prefork_keep_cgroup(&ready.cgroup);
    ready = (struct ready){.cgroup = EXEC_CGROUP_NONE};
    return true;
}

void prefork_update(void)
{
    if (ready.child && !ready.leaving && clock_ns() >= ready.until_ns) {
        ready.leaving = true;
        (void)kill(ready.pid, SIGKILL);
    }
}

uint64_t prefork_due_ns(void)
{
    return prefork_is_wanted() ? due_ns : UINT64_MAX;
}

uint64_t prefork_end_ns(void)
{
    return ready.child && !ready.leaving ? ready.until_ns : UINT64_MAX;
}
