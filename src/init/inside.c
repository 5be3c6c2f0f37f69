/* SPDX-License-Identifier: Apache-2.0 */

/* The order matters.  Mounts come first, /proc while the host's is still visible (the
 * kernel wants to see that nothing of it is hidden); then the old root goes; then nested
 * user namespaces are switched off, before /proc/sys turns read-only; then privilege is
 * given up for whatever is executed later; landlock and seccomp last, since they forbid
 * most of the above. */
#include "init/inside.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/mount.h>
#include <net/if.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/auto.h"
#include "init/lock.h"
#include "init/report.h"
#include "init/serve.h"

/* Where the new root is put together: any directory that every host has. */
#define WORK "/tmp"

static const char *text_of(const struct plan *plan, uint32_t offset)
{
    if (offset >= plan->bytes_len)
        report_failure(EINVAL, "init.plan", "offset");
    return plan->bytes + offset;
}

/* The next descriptor; -1 for a message without one.  Outside gone means no sandbox. */
static int receive(int channel)
{
    char byte;
    int fd = -1;
    struct iovec part = {&byte, 1};
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.room,
                             .msg_controllen = sizeof control.room};

    if (recvmsg(channel, &message, MSG_CMSG_CLOEXEC) != 1)
        _exit(1);
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (header && header->cmsg_type == SCM_RIGHTS &&
        header->cmsg_len == CMSG_LEN(sizeof fd))
        memcpy(&fd, CMSG_DATA(header), sizeof fd);
    return fd;
}

static void become_root(void)
{
    if (setgroups(0, NULL) != 0 || setresgid(0, 0, 0) != 0 || setresuid(0, 0, 0) != 0)
        report_failure(errno, "init.user", "root");
}

static void raise_loopback(void)
{
    struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
    AUTO_FD fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &request) != 0)
        report_failure(errno, "init.network", "lo");
}

static void set_option(int context, const char *name, const char *value)
{
    if (syscall(SYS_fsconfig, context, FSCONFIG_SET_STRING, name, value, 0) != 0)
        report_failure(errno, "init.root", name);
}

/* The root: memory of a fixed size, so that the disk limit is real. */
static void mount_root(const struct plan *plan)
{
    char size[32], inodes[32];
    AUTO_FD context = (int)syscall(SYS_fsopen, "tmpfs", FSOPEN_CLOEXEC);

    if (context < 0)
        report_failure(errno, "init.root", "tmpfs");
    snprintf(size, sizeof size, "%llu", (unsigned long long)plan->disk_bytes);
    snprintf(inodes, sizeof inodes, "%llu", (unsigned long long)plan->disk_inodes);
    set_option(context, "size", size);
    set_option(context, "nr_inodes", inodes);
    set_option(context, "mode", "755");
    if (syscall(SYS_fsconfig, context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) != 0)
        report_failure(errno, "init.root", "create");
    AUTO_FD root = (int)syscall(SYS_fsmount, context, FSMOUNT_CLOEXEC,
                                MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
    if (root < 0 ||
        syscall(SYS_move_mount, root, "", AT_FDCWD, WORK, MOVE_MOUNT_F_EMPTY_PATH) != 0)
        report_failure(errno, "init.root", "mount");
    if (chdir(WORK) != 0)
        report_failure(errno, "init.root", "chdir");
}

static void make_directory(const struct plan_step *step, const char *path)
{
    if (mkdir(path, 0755) != 0 && errno != EEXIST)
        report_failure(errno, "init.directory", path);
    if (chown(path, step->uid, step->gid) != 0 || chmod(path, step->mode) != 0)
        report_failure(errno, "init.directory", path);
}

static void make_file(const struct plan *plan, const struct plan_step *step,
                      const char *path)
{
    AUTO_FD fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);

    if (fd < 0)
        report_failure(errno, "init.file", path);
    if (step->data_len > plan->bytes_len - step->data ||
        write(fd, text_of(plan, step->data), step->data_len) != (ssize_t)step->data_len ||
        fchown(fd, step->uid, step->gid) != 0 || fchmod(fd, step->mode) != 0)
        report_failure(errno ? errno : EIO, "init.file", path);
}

static void make_mount(const char *type, const char *path, unsigned long flags,
                       const char *options)
{
    if (mount(type, path, type, MS_NOSUID | flags, options) != 0)
        report_failure(errno, "init.mount", path);
}

static void mount_tmpfs(const struct plan_step *step, const char *path)
{
    char options[96];

    snprintf(options, sizeof options, "mode=%o,size=%llu", step->mode,
             (unsigned long long)step->number);
    make_mount("tmpfs", path, MS_NODEV, options);
}

static void attach(int fd, const char *path)
{
    if (fd < 0 ||
        syscall(SYS_move_mount, fd, "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH) != 0)
        report_failure(errno, "init.bind", path);
    (void)close(fd);
}

/* Hidden by a mount over it: /dev/null over a file, an empty read-only tmpfs over a
 * directory.  What this kernel does not have needs no hiding. */
static void mask(const char *path)
{
    struct stat st;

    if (lstat(path, &st) != 0)
        return;
    if (S_ISDIR(st.st_mode))
        make_mount("tmpfs", path, MS_RDONLY | MS_NODEV | MS_NOEXEC, "size=0,mode=555");
    else if (mount("dev/null", path, NULL, MS_BIND, NULL) != 0)
        report_failure(errno, "init.mask", path);
}

static void make_read_only(const char *path)
{
    struct mount_attr attributes = {.attr_set = MOUNT_ATTR_RDONLY};

    if (access(path, F_OK) != 0)
        return;
    if (mount(path, path, NULL, MS_BIND | MS_REC, NULL) != 0 ||
        syscall(SYS_mount_setattr, AT_FDCWD, path, AT_RECURSIVE, &attributes,
                sizeof attributes) != 0)
        report_failure(errno, "init.mask", path);
}

static void forbid_nesting(void)
{
    AUTO_FD fd = open("proc/sys/user/max_user_namespaces", O_WRONLY | O_CLOEXEC);

    if (fd < 0 || write(fd, "0", 1) != 1)
        report_failure(errno, "init.nesting", "max_user_namespaces");
}

static void take_step(const struct plan *plan, const struct plan_step *step, int channel)
{
    const char *path = text_of(plan, step->path);

    switch ((enum plan_kind)step->kind) {
    case PLAN_DIRECTORY:
        make_directory(step, path);
        return;
    case PLAN_FILE:
        make_file(plan, step, path);
        return;
    case PLAN_LINK:
        if (symlink(text_of(plan, step->data), path) != 0)
            report_failure(errno, "init.link", path);
        return;
    case PLAN_BIND:
        attach(receive(channel), path);
        return;
    case PLAN_TMPFS:
        mount_tmpfs(step, path);
        return;
    case PLAN_PROC:
        make_mount("proc", path, MS_NODEV | MS_NOEXEC, NULL);
        forbid_nesting();
        return;
    case PLAN_DEVPTS:
        make_mount("devpts", path, MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620,gid=5");
        return;
    case PLAN_MASK:
        mask(path);
        return;
    case PLAN_READ_ONLY:
        make_read_only(path);
        return;
    case PLAN_WRITABLE:
        return; /* landlock's, later */
    }
    report_failure(EINVAL, "init.plan", "kind");
}

static void change_root(void)
{
    struct stat root, above;

    if (syscall(SYS_pivot_root, ".", ".") != 0)
        report_failure(errno, "init.root", "pivot_root");
    if (umount2(".", MNT_DETACH) != 0 || chdir("/") != 0)
        report_failure(errno, "init.root", "umount");
    if (stat("/", &root) != 0 || stat("/..", &above) != 0 ||
        root.st_ino != above.st_ino || root.st_dev != above.st_dev)
        report_failure(errno, "init.root", "..");
}

_Noreturn void inside_begin(const struct plan *plan, int channel)
{
    (void)receive(channel);
    become_root();
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
        report_failure(errno, "init.root", "private");
    if (sethostname(plan->hostname, strnlen(plan->hostname, 64)) != 0)
        report_failure(errno, "init.hostname", plan->hostname);
    if (plan->own_network)
        raise_loopback();
    umask(0);
    mount_root(plan);
    for (uint32_t i = 0; i < plan->step_count; i++)
        take_step(plan, &plan->steps[i], channel);
    (void)close(channel);
    umask(022);
    change_root();
    /* After joining the leaf, so that this namespace's root is that leaf. */
    if (unshare(CLONE_NEWCGROUP) != 0)
        report_failure(errno, "init.cgroup", "namespace");
    lock_the_door(plan);
    serve(plan);
}
