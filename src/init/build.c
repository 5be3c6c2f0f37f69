/* SPDX-License-Identifier: Apache-2.0 */
#include "init/build.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/auto.h"

enum { BYTES_PER_INODE = 4096, SPARE_INODES = 1024 };

static bool set_text(int context, const char *name, const char *text)
{
    return syscall(SYS_fsconfig, context, FSCONFIG_SET_STRING, name, text, 0) == 0;
}

static bool set_number(int context, const char *name, uint64_t value)
{
    char text[32];

    snprintf(text, sizeof text, strcmp(name, "mode") == 0 ? "%llo" : "%llu",
             (unsigned long long)value);
    return set_text(context, name, text);
}

static int finish(int context, unsigned attributes)
{
    if (syscall(SYS_fsconfig, context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) != 0)
        return -errno;
    int fd = (int)syscall(SYS_fsmount, context, FSMOUNT_CLOEXEC, attributes);
    return fd < 0 ? -errno : fd;
}

static uint64_t attributes_of(unsigned flags)
{
    return MOUNT_ATTR_NOSUID |
           (flags & PLAN_WITH_DEVICES ? MOUNT_ATTR_NOEXEC : MOUNT_ATTR_NODEV) |
           (flags & PLAN_WITH_WRITING ? 0 : MOUNT_ATTR_RDONLY);
}

int build_tree(const struct plan_step *step, unsigned uid, unsigned gid)
{
    AUTO_FD context = (int)syscall(SYS_fsopen, "tmpfs", FSOPEN_CLOEXEC);

    if (context < 0 || !set_number(context, "size", step->number) ||
        !set_number(context, "nr_inodes",
                    step->number / BYTES_PER_INODE + SPARE_INODES) ||
        !set_number(context, "mode", step->mode) || !set_number(context, "uid", uid) ||
        !set_number(context, "gid", gid))
        return -errno;
    return finish(context, (unsigned)attributes_of(step->flags | PLAN_WITH_WRITING));
}

int build_proc(void)
{
    AUTO_FD context = (int)syscall(SYS_fsopen, "proc", FSOPEN_CLOEXEC);

    if (context < 0 || !set_text(context, "source", "proc"))
        return -errno;
    return finish(context, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
}

/* All devpts mounts but the host's share kernel.pty.max - kernel.pty.reserve: 3,072 by
 * default. */
int build_terminals(int gid)
{
    AUTO_FD context = (int)syscall(SYS_fsopen, "devpts", FSOPEN_CLOEXEC);

    if (context < 0 || !set_text(context, "source", "devpts") ||
        !set_text(context, "ptmxmode", "0666") || !set_text(context, "mode", "620") ||
        !set_text(context, "max", "256") ||
        (gid >= 0 && !set_number(context, "gid", (uint64_t)gid)))
        return -errno;
    return finish(context, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
}

int build_part(int tree, const char *path, unsigned flags)
{
    struct mount_attr attributes = {.attr_clr = MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC,
                                    .attr_set = attributes_of(flags | PLAN_WITH_WRITING)};
    AUTO_FD fd =
        (int)syscall(SYS_open_tree, tree, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);

    if (fd < 0 || syscall(SYS_mount_setattr, fd, "", AT_EMPTY_PATH, &attributes,
                          sizeof attributes) != 0)
        return -errno;
    return TAKE_FD(fd);
}

int build_file(const struct plan_step *step, const char *path, const char *data, int tree)
{
    AUTO_FD fd = openat(tree, path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                        step->mode);

    if (fd < 0)
        return -errno;
    ssize_t put = step->data_len ? write(fd, data, step->data_len) : 0;
    return put == (ssize_t)step->data_len ? 0 : put < 0 ? -errno : -ENOSPC;
}

int build_entry(const struct plan_step *step, const char *path, const char *data,
                int tree)
{
    switch ((enum plan_kind)step->kind) {
    case PLAN_DIRECTORY:
        return mkdirat(tree, path, step->mode) == 0 ? 0 : -errno;
    case PLAN_FILE:
        return build_file(step, path, data, tree);
    case PLAN_LINK:
        return symlinkat(data, tree, path) == 0 ? 0 : -errno;
    case PLAN_NODE:
        return mknodat(tree, path, S_IFCHR | step->mode, (dev_t)step->number) == 0
                   ? 0
                   : -errno;
    case PLAN_TREE:
    case PLAN_BIND:
    case PLAN_PROC:
    case PLAN_DEVPTS:
    case PLAN_MASK:
    case PLAN_READ_ONLY:
    case PLAN_BOOT_ID:
    case PLAN_WRITABLE:
    case PLAN_READABLE:
    case PLAN_ROOT:
    case PLAN_NEED:
    case PLAN_REPLACE:
    case PLAN_LOWER:
    case PLAN_DISK:
    case PLAN_BOTTOM:
    case PLAN_CHANGES:
        break;
    }
    return -EINVAL;
}

/* In a user namespace a mount cannot be cloned without the mounts on it, since that would
 * reveal what they cover: clone recursively then. */
int build_bind(const char *source, unsigned flags)
{
    /* Private: later mounts of the host must not appear inside. */
    struct mount_attr attributes = {.attr_set = attributes_of(flags),
                                    .propagation = MS_PRIVATE};
    unsigned below = 0;
    AUTO_FD fd = (int)syscall(SYS_open_tree, AT_FDCWD, source,
                              OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);

    if (fd < 0 && errno == EINVAL) {
        below = AT_RECURSIVE;
        fd = (int)syscall(SYS_open_tree, AT_FDCWD, source,
                          OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE);
    }
    if (fd < 0 || syscall(SYS_mount_setattr, fd, "", AT_EMPTY_PATH | below, &attributes,
                          sizeof attributes) != 0)
        return -errno;
    return TAKE_FD(fd);
}
