/* SPDX-License-Identifier: Apache-2.0 */
#include "init/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/auto.h"
#include "init/report.h"

_Static_assert(sizeof(struct plan_filter) == sizeof(struct sock_filter),
               "the same thing");

/* What root inside may have, within its own user namespace: enough for apt, dpkg, pip,
 * useradd and su.  PID 1 keeps more, but never executes anything itself, and whatever it
 * starts is held to these by its bounding set. */
static bool is_kept(int capability)
{
    switch (capability) {
    case CAP_CHOWN:
    case CAP_DAC_OVERRIDE:
    case CAP_FOWNER:
    case CAP_FSETID:
    case CAP_KILL:
    case CAP_SETGID:
    case CAP_SETUID:
    case CAP_NET_BIND_SERVICE:
    case CAP_AUDIT_WRITE: /* su and passwd give up without it; outside it means nothing */
        return true;
    default:
        return false;
    }
}

uint64_t lock_capabilities(void)
{
    uint64_t kept = 0;

    for (int i = 0; i < 64; i++)
        kept |= (uint64_t)is_kept(i) << i;
    return kept;
}

static void drop_capabilities(void)
{
    for (int i = 0;; i++) {
        if (is_kept(i) || prctl(PR_CAPBSET_DROP, i) == 0)
            continue;
        if (errno == EINVAL) /* past the last one this kernel knows */
            break;
        report_failure(errno, "init.capabilities", "bounding set");
    }
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) != 0)
        report_failure(errno, "init.capabilities", "ambient");

    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2];
    if (syscall(SYS_capget, &header, data) != 0)
        report_failure(errno, "init.capabilities", "capget");
    data[0].inheritable = data[1].inheritable = 0;
    if (syscall(SYS_capset, &header, data) != 0)
        report_failure(errno, "init.capabilities", "inheritable");
}

static void limit(int resource, const char *name, rlim_t value)
{
    struct rlimit now;

    if (prlimit(0, resource, NULL, &now) != 0)
        report_failure(errno, "init.limits", name);
    /* Raising needs a privilege that this user does not have outside. */
    rlim_t most = now.rlim_max < value ? now.rlim_max : value;
    const struct rlimit bounds = {most, most};
    if (prlimit(0, resource, &bounds, NULL) != 0)
        report_failure(errno, "init.limits", name);
}

/* Landlock's rights by ABI; its header here is older than many kernels. */
static const struct {
    uint64_t fs, scoped;
    size_t size;
} abis[] = {
    {(1u << 13) - 1, 0, 8},  {(1u << 14) - 1, 0, 8},  {(1u << 15) - 1, 0, 8},
    {(1u << 15) - 1, 0, 16}, {(1u << 16) - 1, 0, 16}, {(1u << 16) - 1, 3, 24},
};

struct ruleset {
    uint64_t fs, net, scoped;
};

static void allow_fd(int ruleset, int fd, const char *path, uint64_t access)
{
    struct landlock_path_beneath_attr rule = {.allowed_access = access, .parent_fd = fd};

    if (fd < 0 || syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH,
                          &rule, 0) != 0)
        report_failure(errno, "init.landlock", path);
}

static void allow(int ruleset, const char *path, uint64_t access)
{
    AUTO_FD fd = open(path, O_PATH | O_CLOEXEC);

    allow_fd(ruleset, fd, path, access);
}

/* The second wall behind the mounts: read everywhere, write where the plan says. */
static void restrict_files(const struct plan *plan)
{
    const uint64_t reading = LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE |
                             LANDLOCK_ACCESS_FS_READ_DIR;
    long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, 1u /* the version */);

    if (abi <= 0)
        return;
    size_t known = sizeof abis / sizeof *abis;
    size_t index = (size_t)abi < known ? (size_t)abi - 1 : known - 1;
    struct ruleset rules = {.fs = abis[index].fs, .scoped = abis[index].scoped};
    AUTO_FD ruleset =
        (int)syscall(SYS_landlock_create_ruleset, &rules, abis[index].size, 0);
    if (ruleset < 0)
        report_failure(errno, "init.landlock", "ruleset");
    allow(ruleset, "/", reading);
    /* For PID 1's own leaves; nothing else inside has a way there. */
    if (plan->has_cgroup)
        allow_fd(ruleset, CGROUP_FD, "cgroup", abis[index].fs);
    for (uint32_t i = 0; i < plan->step_count; i++)
        if (plan_steps(plan)[i].kind == PLAN_WRITABLE)
            allow(ruleset, plan_bytes(plan) + plan_steps(plan)[i].path, abis[index].fs);
    if (syscall(SYS_landlock_restrict_self, ruleset, 0) != 0)
        report_failure(errno, "init.landlock", "restrict");
}

static void filter_calls(const struct plan *plan)
{
    struct sock_fprog program = {
        .len = (unsigned short)plan->filter_len,
        .filter = (struct sock_filter *)(uintptr_t)plan_filters(plan),
    };

    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) != 0)
        report_failure(errno, "init.seccomp", "filter");
}

void lock_the_door(const struct plan *plan)
{
    if (prctl(PR_SET_DUMPABLE, 0) != 0)
        report_failure(errno, "init.lock", "dumpable");
    drop_capabilities();
    /* 0 would not keep the kernel from handing a core to the host's handler, if it has one
     * that is a program; 1 does, and is too small for a file. */
    limit(RLIMIT_CORE, "core", 1);
    limit(RLIMIT_NOFILE, "nofile", plan->max_files);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        report_failure(errno, "init.lock", "no_new_privs");
    restrict_files(plan);
    filter_calls(plan);
}
