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

static const struct groups_limits limits = {.memory_bytes = 64 << 20, .pids = 100};

static struct groups unified_group(void)
{
    struct groups groups = {.layers = 0};

    put_file("group/cgroup.controllers", "cpu memory pids\n");
    put_file("group/memory.max", "");
    put_file("group/memory.swap.max", "");
    put_file("group/pids.max", "");
    snprintf(groups.unified, sizeof groups.unified, "%s", scratch_path("group"));
    return groups;
}

TEST(a_limit_on_memory_is_one_on_swap)
{
    struct groups groups = unified_group();
    char text[16] = "";

    ASSERT_OK(groups_limit(&groups, &limits, &err));
    ASSERT_INT(groups.layers, CAY_LAYER_MEMORY | CAY_LAYER_PIDS);
    FILE *file = fopen(scratch_path("group/memory.swap.max"), "re");
    ASSERT(file && fgets(text, sizeof text, file));
    fclose(file);
    ASSERT_STR(text, "0");
}

TEST(S9_a_limit_on_swap_that_cannot_be_set_is_an_error)
{
    struct groups groups = unified_group();

    ASSERT_INT(unlink(scratch_path("group/memory.swap.max")), 0);
    ASSERT_INT(mkdir(scratch_path("group/memory.swap.max"), 0700), 0);
    ASSERT_CODE(groups_limit(&groups, &limits, &err), CAY_E_UNAVAILABLE);
    ASSERT_INT(err.sys_errno, EISDIR);
}

TEST(S9_a_v1_cgroup_that_vanished_is_an_error)
{
    struct groups groups = {.layers = 0};
    int tasks[GROUPS_V1];

    snprintf(groups.v1[1], sizeof groups.v1[1], "%s", scratch_path("pids"));
    ASSERT_CODE(groups_open_tasks(&groups, tasks, &err), CAY_E_UNAVAILABLE);
    ASSERT_INT(err.sys_errno, ENOENT);
    ASSERT_INT(tasks[0], -1);
    put_file("pids/tasks", "");
    ASSERT_OK(groups_open_tasks(&groups, tasks, &err));
    ASSERT(tasks[0] >= 0 && tasks[1] == -1);
    close(tasks[0]);
}

/* Those are never made, and are no reason to fail. */
TEST(v1_cgroups_are_not_needed_where_cgroup2_has_the_controller)
{
    struct groups groups = unified_group();
    int tasks[GROUPS_V1];

    snprintf(groups.v1[0], sizeof groups.v1[0], "%s", scratch_path("memory"));
    ASSERT_OK(groups_limit(&groups, &limits, &err));
    ASSERT_OK(groups_open_tasks(&groups, tasks, &err));
    ASSERT_INT(tasks[0], -1);
    ASSERT(access(scratch_path("memory"), F_OK) != 0);
}
