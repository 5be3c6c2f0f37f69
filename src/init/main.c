/* SPDX-License-Identifier: Apache-2.0 */

/* cay-init: PID 1 of a native sandbox, and what starts it.
 *
 * Theory of operation.  The library starts this program from a sealed memfd, outside the
 * sandbox, with a plan (plan.h).  Here, it joins the sandbox's cgroups,
 * clones itself into the new namespaces, writes the user maps, prepares the mounts that
 * need the host's privilege and hands them to the clone; then it ends.  The clone, in
 * inside.c, builds its root, drops what it does not need and locks the door behind it;
 * serve.c then runs commands for whoever may open the control socket.  It never executes
 * another program itself: nothing inside can touch its memory or its binary.
 *
 * Every failure before the sandbox is ready is one struct cay_error on the status socket.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/auto.h"
#include "init/inside.h"
#include "init/plan.h"
#include "init/report.h"

#ifndef MOUNT_ATTR_IDMAP
#define MOUNT_ATTR_IDMAP 0x00100000
#endif

static const struct plan *map_plan(void)
{
    struct stat st;

    if (fstat(PLAN_FD, &st) != 0 || st.st_size < (off_t)sizeof(struct plan) ||
        st.st_size > (off_t)sizeof(struct plan) + PLAN_BYTES_MAX)
        report_failure(EINVAL, "init.plan", "size");
    const struct plan *plan =
        mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, PLAN_FD, 0);
    if (plan == MAP_FAILED)
        report_failure(errno, "init.plan", "mmap");
    if (plan->version != PLAN_VERSION || plan->size != (size_t)st.st_size ||
        plan->step_count > PLAN_STEPS_MAX || plan->filter_len > PLAN_FILTER_MAX)
        report_failure(EINVAL, "init.plan", "version");
    return plan;
}

/* Before the clone, so that it and all it will ever start are born inside the limits. */
static void join_groups(const struct plan *plan)
{
    for (size_t i = 0; i < PLAN_GROUPS_MAX && plan->groups[i][0]; i++) {
        AUTO_FD fd = open(plan->groups[i], O_WRONLY | O_CLOEXEC);
        if (fd < 0 || write(fd, "0", 1) != 1)
            report_failure(errno, "init.cgroup", plan->groups[i]);
    }
}

static int make_leaf(const struct plan *plan)
{
    if (!plan->has_cgroup)
        return -1;
    if (mkdirat(CGROUP_FD, "init", 0755) != 0 || mkdirat(CGROUP_FD, "work", 0755) != 0)
        report_failure(errno, "init.cgroup", "leaves");
    int fd = openat(CGROUP_FD, "init", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        report_failure(errno, "init.cgroup", "init");
    return fd;
}

static long clone_inside(const struct plan *plan, int leaf, int *ret_pidfd)
{
    struct clone_args args = {
        .flags = (__u64)(CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC |
                         CLONE_NEWUTS | CLONE_PIDFD) |
                 (plan->own_network ? (__u64)CLONE_NEWNET : 0) |
                 (leaf >= 0 ? CLONE_INTO_CGROUP : 0),
        .pidfd = (__u64)(uintptr_t)ret_pidfd,
        .exit_signal = SIGCHLD,
        .cgroup = leaf >= 0 ? (__u64)leaf : 0,
    };

    return syscall(SYS_clone3, &args, sizeof args);
}

static void write_map(long pid, const char *name, const struct plan *plan)
{
    char path[64], text[64];
    int len = snprintf(text, sizeof text, "0 %u %u\n", plan->id_base, plan->id_count);

    snprintf(path, sizeof path, "/proc/%ld/%s", pid, name);
    AUTO_FD fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, (size_t)len) != len)
        report_failure(errno, "init.map", name);
}

/* PID 1 makes a leaf below "work" for each command and clones into it.  For that the
 * kernel wants it to own cgroup.procs there and in the common ancestor, and it must own
 * "work" to make directories in it: these and no more, so that the limits stay the
 * host's.  PID 1 is not in "work" itself, which is what a pause freezes. */
static void give_cgroup(const struct plan *plan)
{
    static const char *const names[] = {"cgroup.procs", "work", "work/cgroup.procs"};

    for (size_t i = 0; plan->has_cgroup && i < sizeof names / sizeof *names; i++)
        if (fchownat(CGROUP_FD, names[i], plan->id_base, plan->id_base,
                     AT_SYMLINK_NOFOLLOW) != 0)
            report_failure(errno, "init.cgroup", "chown");
}

static const char *text_at(const struct plan *plan, uint32_t offset)
{
    if (offset >= plan->bytes_len)
        report_failure(EINVAL, "init.plan", "offset");
    return plan->bytes + offset;
}

static int clone_tree(const struct plan *plan, const struct plan_step *step, int userns)
{
    const char *source = text_at(plan, step->data);
    bool device = step->mode & PLAN_BIND_DEVICE;
    bool shifted = step->mode & PLAN_BIND_SHIFTED;
    bool read_only = !device && !(step->mode & PLAN_BIND_WRITABLE);
    struct mount_attr attributes = {
        .attr_set = (__u64)MOUNT_ATTR_NOSUID |
                    (__u64)(device ? MOUNT_ATTR_NOEXEC : MOUNT_ATTR_NODEV) |
                    (__u64)(read_only ? MOUNT_ATTR_RDONLY : 0) |
                    (__u64)(shifted ? MOUNT_ATTR_IDMAP : 0),
        .userns_fd = shifted ? (__u64)userns : 0,
    };
    int fd = (int)syscall(SYS_open_tree, AT_FDCWD, source,
                          OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);

    if (fd < 0)
        report_failure(errno, "init.bind", source);
    if (syscall(SYS_mount_setattr, fd, "", AT_EMPTY_PATH, &attributes,
                sizeof attributes) != 0)
        report_failure(errno, "init.bind", source);
    return fd;
}

static void send_fd(int channel, int fd)
{
    char byte = 0;
    struct iovec part = {&byte, 1};
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

    memset(&control, 0, sizeof control);
    if (fd >= 0) {
        message.msg_control = control.room;
        message.msg_controllen = sizeof control.room;
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(header), &fd, sizeof fd);
    }
    if (sendmsg(channel, &message, MSG_NOSIGNAL) != 1)
        report_failure(errno, "init.bind", "send");
}

static void send_mounts(const struct plan *plan, long pid, int channel)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/%ld/ns/user", pid);
    AUTO_FD userns = open(path, O_RDONLY | O_CLOEXEC);
    if (userns < 0)
        report_failure(errno, "init.map", "ns/user");
    for (uint32_t i = 0; i < plan->step_count; i++)
        if (plan->steps[i].kind == PLAN_BIND) {
            AUTO_FD fd = clone_tree(plan, &plan->steps[i], userns);
            send_fd(channel, fd);
        }
}

int main(void)
{
    int channel[2], pidfd = -1;
    const struct plan *plan = map_plan();

    (void)prctl(PR_SET_NAME,
                "cay-init"); /* we were started by the number of a descriptor */
    join_groups(plan);
    AUTO_FD leaf = make_leaf(plan);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, channel) != 0)
        report_failure(errno, "init.start", "socketpair");
    long pid = clone_inside(plan, leaf, &pidfd);
    if (pid < 0)
        report_failure(errno, "init.clone", "namespaces");
    if (pid == 0) {
        (void)close(channel[0]);
        inside_begin(plan, channel[1]);
    }
    (void)close(channel[1]);
    report_descriptor(pidfd);
    write_map(pid, "uid_map", plan);
    write_map(pid, "gid_map", plan);
    give_cgroup(plan);
    send_fd(channel[0], -1); /* the maps are there: go */
    send_mounts(plan, pid, channel[0]);
    _exit(0);
}
