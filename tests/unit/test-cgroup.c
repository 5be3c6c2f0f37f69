/* SPDX-License-Identifier: Apache-2.0 */

/* Finding S9: a limit that could not be set is an error, never a layer that is claimed.
 * The cgroups are plain directories here: what fails in them can be chosen. */
#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cay/sandbox.h"
#include "harness.h"
#include "native/record/cgroup.h"

static const struct cgroup_limits limits = {.memory_bytes = 64 << 20, .pids = 100};

static struct cgroup unified_group(void)
{
    struct cgroup cgroup = {.layers = 0};

    put_file("group/cgroup.controllers", "cpu memory pids\n");
    put_file("group/memory.max", "");
    put_file("group/memory.swap.max", "");
    put_file("group/pids.max", "");
    snprintf(cgroup.unified, sizeof cgroup.unified, "%s", scratch_path("group"));
    return cgroup;
}

TEST(a_limit_on_memory_is_one_on_swap)
{
    struct cgroup cgroup = unified_group();
    char text[16] = "";

    ASSERT_OK(cgroup_set_limits(&cgroup, &limits, &err));
    ASSERT_INT(cgroup.layers, CAY_LAYER_MEMORY | CAY_LAYER_PIDS);
    FILE *file = fopen(scratch_path("group/memory.swap.max"), "re");
    ASSERT(file && fgets(text, sizeof text, file));
    fclose(file);
    ASSERT_STR(text, "0");
}

TEST(S9_a_limit_on_swap_that_cannot_be_set_is_an_error)
{
    struct cgroup cgroup = unified_group();

    ASSERT_INT(unlink(scratch_path("group/memory.swap.max")), 0);
    ASSERT_INT(mkdir(scratch_path("group/memory.swap.max"), 0700), 0);
    ASSERT_CODE(cgroup_set_limits(&cgroup, &limits, &err), CAY_E_UNAVAILABLE);
    ASSERT_INT(err.sys_errno, EISDIR);
}

TEST(S9_a_v1_cgroup_that_vanished_is_an_error)
{
    struct cgroup cgroup = {.layers = 0};
    int tasks[CGROUP_V1];

    snprintf(cgroup.v1[1], sizeof cgroup.v1[1], "%s", scratch_path("pids"));
    ASSERT_CODE(cgroup_open_tasks(&cgroup, tasks, &err), CAY_E_UNAVAILABLE);
    ASSERT_INT(err.sys_errno, ENOENT);
    ASSERT_INT(tasks[0], -1);
    put_file("pids/tasks", "");
    ASSERT_OK(cgroup_open_tasks(&cgroup, tasks, &err));
    ASSERT(tasks[0] >= 0 && tasks[1] == -1);
    close(tasks[0]);
}

/* Those are never made, and are no reason to fail. */
TEST(v1_cgroups_are_not_needed_where_cgroup2_has_the_controller)
{
    struct cgroup cgroup = unified_group();
    int tasks[CGROUP_V1];

    snprintf(cgroup.v1[0], sizeof cgroup.v1[0], "%s", scratch_path("memory"));
    ASSERT_OK(cgroup_set_limits(&cgroup, &limits, &err));
    ASSERT_OK(cgroup_open_tasks(&cgroup, tasks, &err));
    ASSERT_INT(tasks[0], -1);
    ASSERT(access(scratch_path("memory"), F_OK) != 0);
}
