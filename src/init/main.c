/* SPDX-License-Identifier: Apache-2.0 */

/* cay-init: PID 1 of a native sandbox.
 *
 * Theory of operation.  The library clones itself into a new user and PID namespace and
 * the sandbox's cgroup, and executes this program there from a sealed memfd, with a plan
 * (plan.h).  While it makes the other namespaces, the library writes its user maps, puts
 * it under its limits and makes the file systems that need the host's privilege, and then
 * hands those over.  inside.c puts the root together from them, drops what it does not
 * need and locks the door behind it; serve.c then runs commands for whoever may open the
 * control socket.  It never executes another program itself: nothing inside can touch its
 * memory or its binary.
 *
 * Every failure before the sandbox is ready is one struct cay_error on the status socket.
 */
#include <errno.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include "init/inside.h"
#include "init/plan.h"
#include "init/report.h"

static const struct plan *map_plan(void)
{
    struct stat st;

    if (fstat(PLAN_FD, &st) != 0 || st.st_size < (off_t)sizeof(struct plan))
        report_failure(EINVAL, "init.plan", "size");
    const struct plan *plan =
        mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, PLAN_FD, 0);
    if (plan == MAP_FAILED)
        report_failure(errno, "init.plan", "mmap");
    if (plan->version != PLAN_VERSION || plan->size != (size_t)st.st_size ||
        plan->step_count > PLAN_STEPS_MAX || plan->filter_len > PLAN_FILTER_MAX ||
        plan->bytes_len > PLAN_BYTES_MAX ||
        plan->size != sizeof *plan + plan->filter_len * sizeof(struct plan_filter) +
                          plan->step_count * sizeof(struct plan_step) + plan->bytes_len)
        report_failure(EINVAL, "init.plan", "version");
    return plan;
}

int main(void)
{
    /* We were started by the number of a descriptor. */
    (void)prctl(PR_SET_NAME, "cay-init");
    inside_begin(map_plan());
}
