/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/auto.h"
#include "native/doctor/doctor.h"
#include "native/make/probe.h"
#include "native/record/cgroup-look.h"

static const char delegate[] =
    "systemd-run --user --scope -p Delegate=yes, before the program that uses cay";

/* What gives this user a cgroup2 to write to; containers have one that is read-only. */
static const char *fix_for_groups(const struct doctor *doctor)
{
    static const char *const commands[][2] = {
        {"/sys/fs/cgroup", "mount -o remount,rw /sys/fs/cgroup"},
        {"/sys/fs/cgroup/unified", "mount -o remount,rw /sys/fs/cgroup/unified"}};
    struct statfs fs;

    if (!doctor->is_root)
        return delegate;
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (statfs(commands[i][0], &fs) == 0 && fs.f_type == CGROUP2_SUPER_MAGIC)
            return fs.f_flags & ST_RDONLY ? commands[i][1]
                                          : "see that this process may make cgroups "
                                            "below its own";
    return "mount -t cgroup2 none /sys/fs/cgroup";
}

static bool has_any(const struct groups *groups)
{
    bool found = groups->unified[0];

    for (size_t i = 0; i < GROUPS_V1; i++)
        found |= groups->v1[i][0] != '\0';
    return found;
}

static bool has_only_unified(const struct groups *groups)
{
    bool found = false;

    for (size_t i = 0; i < GROUPS_V1; i++)
        found |= groups->v1[i][0] != '\0';
    return groups->unified[0] && !found;
}

/* By a parameter of the kernel's; the last of four columns says so. */
static bool is_memory_off(void)
{
    char line[256];
    bool is_off = false;
    FILE *file = fopen("/proc/cgroups", "re");

    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, "memory\t", 7) == 0)
            is_off = strcmp(strrchr(line, '\t'), "\t0\n") == 0;
    if (file)
        fclose(file);
    return is_off;
}

static const char *fix_for_controller(const struct groups *groups, unsigned layer)
{
    if (!has_any(groups))
        return "see \"cgroup2\"";
    if (layer == CAY_LAYER_MEMORY && is_memory_off())
        return "add cgroup_enable=memory to the kernel's parameters";
    return has_only_unified(groups)
               ? "have the controller enabled for this cgroup, in cgroup.subtree_control "
                 "of those above it; for a container that is done outside of it"
               : "mount the controller, or use a kernel that has it";
}

static void check_limit(struct doctor *doctor, const struct groups *groups,
                        unsigned layer, const char *facility, const char *without)
{
    char by[64];

    if (groups_keep(groups, layer, by, sizeof by))
        doctor_say(doctor, CAY_FINDING_OK, facility, "", "%s", by);
    else
        doctor_say(doctor, CAY_FINDING_WEAKER, facility,
                   !doctor->is_root ? delegate : fix_for_controller(groups, layer), "%s",
                   without);
}

static void check_leaf(struct doctor *doctor, int leaf)
{
    const struct trial trial = {.cgroup = leaf};
    static const char without[] = "trees of processes are held by a process each";

    if (leaf < 0) {
        doctor_say(doctor, CAY_FINDING_WEAKER, "clone into a cgroup",
                   fix_for_groups(doctor), "there is none; %s", without);
        return;
    }
    struct trial_outcome outcome = trial_run(&trial);
    doctor_tell(doctor, "clone into a cgroup",
                outcome.step == TRIAL_FINE ? 0 : outcome.error, CAY_FINDING_WEAKER,
                fix_for_groups(doctor), "every command starts in a cgroup of its own",
                without);
}

/* What lies in memory has a tmpfs of its own; for disks no quota is used, whatever the
 * file system could do. */
static void check_disk(struct doctor *doctor)
{
    if (doctor->has_own_root)
        doctor_say(doctor, CAY_FINDING_WEAKER, "disk limit",
                   "keep sandboxes in memory, the default, where the limit must hold",
                   "kept in memory, by the size of a tmpfs; not kept on disk");
    else
        doctor_say(doctor, CAY_FINDING_WEAKER, "disk limit",
                   "see \"user namespaces\" and \"/proc\"", "not kept");
}

/* A cgroup is made as for a sandbox, with its limits, looked at, and removed. */
void doctor_limits(struct doctor *doctor)
{
    const struct groups_limits limits = {
        .memory_bytes = 64 << 20, .pids = 16, .cpu_percent = 100};
    struct cay_error error = {0};
    struct groups groups;
    uint32_t number = 0;
    char name[32];

    (void)!getrandom(&number, sizeof number, 0);
    snprintf(name, sizeof name, "doctor-%08x", number);
    AUTO_FD leaf = -1;
    int code = groups_name(name, &limits, &groups, &error);
    if (!code)
        code = groups_begin(&groups, &leaf, &error);
    if (!code)
        code = groups_limit(&groups, &limits, &error);
    if (!code && *groups.unified)
        doctor_say(
            doctor, CAY_FINDING_OK, "cgroup2", "",
            "sandboxes get cgroups of their own: pause, and the end of whole trees");
    else
        doctor_say(doctor, CAY_FINDING_WEAKER, "cgroup2", fix_for_groups(doctor),
                   "no cgroup can be made: %.150s",
                   *error.message ? error.message : "none is writable");
    check_leaf(doctor, leaf);
    check_limit(doctor, &groups, CAY_LAYER_MEMORY, "memory limit", "not kept");
    check_limit(doctor, &groups, CAY_LAYER_PIDS, "process limit",
                doctor->has_own_root ? "kept for each user inside only (RLIMIT_NPROC)"
                                     : "not kept");
    check_limit(doctor, &groups, CAY_LAYER_CPU, "cpu limit", "not kept");
    check_disk(doctor);
    (void)groups_remove(&groups);
}
