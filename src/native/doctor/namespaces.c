/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "native/doctor/doctor.h"
#include "native/make/probe.h"
#include "native/record/idmap.h"

#ifndef MOUNT_ATTR_IDMAP
#define MOUNT_ATTR_IDMAP 0x00100000
#endif

enum { MOUNTS = CLONE_NEWUSER | CLONE_NEWNS };

/* --- What is tried, in the process of a trial --- */

static int try_tmpfs(void)
{
    return trial_mount("tmpfs", "size=65536,mode=755");
}

static int try_proc(void)
{
    return trial_mount("proc", NULL);
}

static int try_devpts(void)
{
    return trial_mount("devpts", "newinstance,ptmxmode=0666,mode=620");
}

static int try_overlay(void)
{
    static const char options[] =
        "lowerdir=" TRIAL_PLACE "/l,upperdir=" TRIAL_PLACE "/u,workdir=" TRIAL_PLACE "/w";
    int error = try_tmpfs();

    if (error)
        return error;
    if (mkdir(TRIAL_PLACE "/l", 0755) != 0 || mkdir(TRIAL_PLACE "/u", 0755) != 0 ||
        mkdir(TRIAL_PLACE "/w", 0755) != 0 || mkdir(TRIAL_PLACE "/m", 0755) != 0 ||
        mount("overlay", TRIAL_PLACE "/m", "overlay", MS_NOSUID, options) != 0)
        return errno;
    return 0;
}

static int try_loopback(void)
{
    struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
    AUTO_FD fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    return fd >= 0 && ioctl(fd, SIOCSIFFLAGS, &request) == 0 ? 0 : errno;
}

/* Outside: a mount whose ids the namespace of the process shifts.  It is never attached,
 * so closing it is the end of it. */
static int try_shifted_mount(pid_t pid)
{
    struct mount_attr attributes = {.attr_set = MOUNT_ATTR_IDMAP};
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/ns/user", (int)pid);
    AUTO_FD userns = open(path, O_RDONLY | O_CLOEXEC);
    AUTO_FD tree = (int)syscall(SYS_open_tree, AT_FDCWD, TRIAL_PLACE,
                                OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    attributes.userns_fd = (__u64)userns;
    if (userns < 0 || tree < 0 ||
        syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH, &attributes,
                sizeof attributes) != 0)
        return errno;
    return 0;
}

static int outcome_of(uint64_t namespaces, int (*inside)(void), int (*outside)(pid_t))
{
    const struct trial trial = {
        .namespaces = namespaces, .cgroup = -1, .inside = inside, .outside = outside};
    struct trial_outcome outcome = trial_run(&trial);

    if (outcome.step == TRIAL_FINE)
        return 0;
    return outcome.error ? outcome.error : ECANCELED;
}

/* --- What is said --- */

static const char see_namespaces[] = "see \"user namespaces\"";
static const char see_capabilities[] = "see \"capabilities\"";
static const char in_container[] =
    "in a container allow clone3, unshare, mount and pivot_root: for example "
    "--security-opt seccomp=unconfined";

/* One of these kinds that is switched off, as its sysctl calls it; NULL if none is. */
static const char *find_switch(uint64_t namespaces)
{
    static const struct {
        uint64_t flag;
        const char *name;
    } kinds[] = {{CLONE_NEWUSER, "user"},    {CLONE_NEWNS, "mnt"},  {CLONE_NEWPID, "pid"},
                 {CLONE_NEWNET, "net"},      {CLONE_NEWIPC, "ipc"}, {CLONE_NEWUTS, "uts"},
                 {CLONE_NEWCGROUP, "cgroup"}};
    char path[64];

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        snprintf(path, sizeof path, "/proc/sys/user/max_%s_namespaces", kinds[i].name);
        if (namespaces & kinds[i].flag && doctor_number(path) == 0)
            return kinds[i].name;
    }
    return NULL;
}

/* True if that is why they cannot be made. */
static bool blame_switch(struct doctor *doctor, const char *facility, uint64_t namespaces)
{
    const char *kind = find_switch(namespaces);
    char fix[64];

    if (!kind)
        return false;
    snprintf(fix, sizeof fix, "sysctl -w user.max_%s_namespaces=15000", kind);
    doctor_say(doctor, CAY_FINDING_MISSING, facility, fix,
               "switched off: user.max_%s_namespaces is 0", kind);
    return true;
}

/* Several switches turn user namespaces off, and each has another way to turn them on. */
static void explain_namespaces(struct doctor *doctor, struct trial_outcome outcome)
{
    static const char facility[] = "user namespaces";

    if (blame_switch(doctor, facility, MOUNTS))
        return;
    if (doctor_number("/proc/sys/kernel/unprivileged_userns_clone") == 0)
        doctor_say(doctor, CAY_FINDING_MISSING, facility,
                   "sysctl -w kernel.unprivileged_userns_clone=1",
                   "kept from ordinary users: kernel.unprivileged_userns_clone is 0");
    else if (doctor_number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == 1)
        doctor_say(doctor, CAY_FINDING_MISSING, facility,
                   "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or an "
                   "AppArmor profile with \"userns,\" for the program that uses cay",
                   "AppArmor keeps their privileges from programs without a profile: "
                   "kernel.apparmor_restrict_unprivileged_userns is 1");
    else if (outcome.step == TRIAL_CLONE && outcome.error == ENOSPC)
        doctor_say(doctor, CAY_FINDING_MISSING, facility,
                   "sysctl -w user.max_user_namespaces=15000",
                   "there are as many as user.max_user_namespaces allows, or they are "
                   "nested too deeply");
    else if (outcome.step == TRIAL_CLONE && outcome.error == EAGAIN)
        doctor_say(doctor, CAY_FINDING_MISSING, facility,
                   "end some, or raise the limit: ulimit -u, or pids.max of the cgroup "
                   "this runs in",
                   "not tried: no more processes can be started");
    else
        doctor_say(
            doctor, CAY_FINDING_MISSING, facility,
            doctor->lacks_capabilities ? see_capabilities : in_container, "%s fails: %s",
            outcome.step == TRIAL_CLONE ? "making one"
            : outcome.step == TRIAL_MAP ? "mapping a user id"
                                        : "mounting in one",
            outcome.error ? cay_errno_words(outcome.error) : "the process was killed");
}

static void check_namespaces(struct doctor *doctor)
{
    const struct trial trial = {.namespaces = MOUNTS, .cgroup = -1, .inside = try_tmpfs};
    struct trial_outcome outcome = trial_run(&trial);

    doctor->has_namespaces = outcome.step == TRIAL_FINE;
    if (doctor->has_namespaces)
        doctor_say(doctor, CAY_FINDING_OK, "user namespaces", "",
                   "can be made, with mounts of their own in them");
    else
        explain_namespaces(doctor, outcome);
}

/* The helpers are tried on a namespace, too: they have rules of their own. */
static void check_helpers(struct doctor *doctor, const struct subids *users,
                          const struct subids *groups)
{
    static const char facility[] = "range of user ids";
    const char *programs[] = {subids_program("newuidmap"), subids_program("newgidmap")};
    struct idmap map;
    const struct trial trial = {.namespaces = CLONE_NEWUSER, .cgroup = -1, .map = &map};

    if (!programs[0] || !programs[1]) {
        doctor_say(doctor, CAY_FINDING_WEAKER, facility, "apt-get install uidmap",
                   "/etc/subuid has one, but newuidmap and newgidmap are missing");
        return;
    }
    for (size_t i = 0; i < 2; i++) {
        const char *obstacle = subids_obstacle(programs[i]);
        if (obstacle) {
            doctor_say(doctor, CAY_FINDING_WEAKER, facility,
                       "apt-get install --reinstall uidmap, and start this program "
                       "without no_new_privs",
                       "newuidmap and newgidmap cannot do their work: %s", obstacle);
            return;
        }
    }
    idmap_for_range(&map, users->first, groups->first);
    if (trial_run(&trial).step == TRIAL_FINE)
        doctor_say(doctor, CAY_FINDING_OK, facility, "",
                   "%u+%u for users, %u+%u for groups, by newuidmap and newgidmap",
                   users->first, users->count, groups->first, groups->count);
    else if (!doctor->has_namespaces)
        doctor_say(doctor, CAY_FINDING_WEAKER, facility, see_namespaces,
                   "/etc/subuid has one, for the users of a user namespace");
    else
        doctor_say(doctor, CAY_FINDING_WEAKER, facility,
                   "look whether the lines of /etc/subuid and /etc/subgid are right",
                   "newuidmap or newgidmap refuses the range");
}

static void check_range(struct doctor *doctor)
{
    static const char facility[] = "range of user ids";
    struct subids users, groups;
    char fix[256], name[64];

    if (doctor->is_root) {
        doctor_say(doctor, CAY_FINDING_OK, facility, "",
                   "root takes one of 65536 ids for each sandbox, from 0x70000000 on");
        return;
    }
    bool found = subids_own(SUBIDS_USERS, &users);
    if (subids_own(SUBIDS_GROUPS, &groups) && found && users.count >= IDMAP_COUNT &&
        groups.count >= IDMAP_COUNT) {
        check_helpers(doctor, &users, &groups);
        return;
    }
    uint32_t next = subids_free_from();
    bool has_helpers = subids_program("newuidmap") && subids_program("newgidmap");
    snprintf(fix, sizeof fix, "%susermod --add-subuids %u-%u --add-subgids %u-%u %.64s",
             has_helpers ? "" : "apt-get install uidmap && ", next,
             next + IDMAP_COUNT - 1, next, next + IDMAP_COUNT - 1,
             subids_user(name, sizeof name));
    doctor_say(
        doctor, CAY_FINDING_WEAKER, facility, fix,
        "/etc/subuid has %u ids for this user and /etc/subgid %u; 65536 are needed",
        users.count, groups.count);
}

/* An errno, or 0. */
static int check_one(struct doctor *doctor, const char *facility, uint64_t namespaces,
                     int (*inside)(void), const char *fix, const char *fine,
                     const char *not_fine)
{
    int error = outcome_of(namespaces, inside, NULL);

    if (error && !doctor->has_namespaces && !find_switch(namespaces))
        doctor_say(doctor, CAY_FINDING_MISSING, facility, see_namespaces,
                   "needs a user namespace, which cannot be made");
    else if (error != ENOSPC || !blame_switch(doctor, facility, namespaces))
        doctor_tell(doctor, facility, error, CAY_FINDING_MISSING,
                    doctor->has_namespaces ? fix : see_namespaces, fine, not_fine);
    return error;
}

static void check_mounts(struct doctor *doctor)
{
    doctor->has_own_root =
        !check_one(doctor, "/proc", MOUNTS | CLONE_NEWPID, try_proc,
                   "in a container, start it with --security-opt "
                   "systempaths=unconfined: its /proc is masked",
                   "a fresh one can be mounted inside", "a fresh one cannot be mounted");
    check_one(doctor, "tmpfs", MOUNTS, try_tmpfs, in_container,
              "can be mounted inside, with a size that the kernel keeps",
              "cannot be mounted inside");
    check_one(doctor, "devpts", MOUNTS, try_devpts, in_container,
              "terminals of their own can be mounted inside", "cannot be mounted inside");
    check_one(doctor, "network namespaces", CLONE_NEWUSER | CLONE_NEWNET, try_loopback,
              in_container, "can be made, with a loopback that is up", "cannot be made");
    check_one(doctor, "other namespaces",
              CLONE_NEWUSER | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP, NULL,
              in_container, "those of IPC, names and cgroups can be made",
              "those of IPC, names or cgroups cannot be made");
}

/* Templates other than "host" are overlays with owners that only root can shift. */
static void check_overlay(struct doctor *doctor)
{
    if (!doctor->is_root) {
        doctor_say(doctor, CAY_FINDING_WEAKER, "overlayfs",
                   "make sandboxes as root where they need other templates",
                   "only the template \"host\" can be used by this user");
        return;
    }
    doctor_tell(doctor, "overlayfs", outcome_of(CLONE_NEWNS, try_overlay, NULL),
                CAY_FINDING_WEAKER,
                doctor->lacks_capabilities ? see_capabilities : "modprobe overlay",
                "templates other than \"host\" can be used",
                "only the template \"host\" can be used");
}

static void check_shifted_mounts(struct doctor *doctor)
{
    if (!doctor->is_root) {
        doctor_say(doctor, CAY_FINDING_OK, "idmapped mounts", "",
                   "not needed: \"user\" inside is the one who makes the sandbox");
        return;
    }
    doctor_tell(doctor, "idmapped mounts",
                outcome_of(CLONE_NEWUSER, NULL, try_shifted_mount), CAY_FINDING_WEAKER,
                doctor->lacks_capabilities
                    ? see_capabilities
                    : "use a kernel and a file system that support them, such as ext4, "
                      "xfs, btrfs or tmpfs",
                "work on " TRIAL_PLACE
                ": \"user\" inside may write what a bind's owner may",
                "cannot be made on " TRIAL_PLACE);
}

/* What a trial needs of the process it is tried in, sandboxes do not: they execute. */
static bool can_try(struct doctor *doctor)
{
    if (prctl(PR_GET_DUMPABLE) == 1)
        return true;
    doctor_say(doctor, CAY_FINDING_WEAKER, "user namespaces",
               "start a program as this user, rather than change the user in it",
               "not tried, with all that depends on them: this process is not dumpable");
    return false;
}

void doctor_namespaces(struct doctor *doctor)
{
    if (!can_try(doctor))
        return;
    check_namespaces(doctor);
    check_range(doctor);
    check_mounts(doctor);
    check_overlay(doctor);
    check_shifted_mounts(doctor);
}
