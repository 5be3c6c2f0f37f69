/* SPDX-License-Identifier: Apache-2.0 */

/* Before Linux 6.13 an overlay takes only paths, and before 6.15 a detached mount cannot
 * be cloned.  So the layers are attached, in this mount namespace alone, at paths that
 * every host has. */
#include "init/layers.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/auto.h"
#include "init/build.h"

#define LOWER "/usr"
#define TOP   "/tmp"
#define UPPER TOP "/upper"
#define WORK  TOP "/work"

static int put(int mount, const char *path)
{
    return syscall(SYS_move_mount, mount, "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH) ==
                   0
               ? 0
               : -errno;
}

int layers_disk(int disk)
{
    int error = put(disk, TOP);

    if (error)
        return error;
    int fd = build_bind(UPPER, PLAN_WITH_WRITING);
    (void)umount2(TOP, MNT_DETACH);
    return fd;
}

static int make_top(uint64_t size)
{
    const struct plan_step step = {.mode = 0700, .number = size};
    AUTO_FD top = build_tree(&step, 0, 0);

    if (top < 0 || mkdirat(top, "upper", 0755) != 0 || mkdirat(top, "work", 0755) != 0)
        return top < 0 ? top : -errno;
    return TAKE_FD(top);
}

/* An overlay without them mounts, but could not remove a directory of its template. */
static int check_marks(void)
{
    static const char name[] = "user.cay";

    return setxattr(WORK, name, "", 0, 0) == 0 && removexattr(WORK, name) == 0 ? 0
                                                                               : -errno;
}

static bool set(int context, const char *name, const char *value)
{
    return syscall(SYS_fsconfig, context, value ? FSCONFIG_SET_STRING : FSCONFIG_SET_FLAG,
                   name, value, 0) == 0;
}

/* With "userxattr" the kernel follows neither redirects nor metadata of other files. */
static int create(const char *lowers)
{
    AUTO_FD context = (int)syscall(SYS_fsopen, "overlay", FSOPEN_CLOEXEC);

    if (context < 0 || !set(context, "lowerdir", lowers) ||
        !set(context, "upperdir", UPPER) || !set(context, "workdir", WORK) ||
        !set(context, "userxattr", NULL) || !set(context, "metacopy", "off") ||
        !set(context, "index", "off") || !set(context, "xino", "off") ||
        syscall(SYS_fsconfig, context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) != 0)
        return -errno;
    int fd = (int)syscall(SYS_fsmount, context, FSMOUNT_CLOEXEC,
                          MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
    return fd < 0 ? -errno : fd;
}

/* Several layers are attached in a tmpfs at LOWER, whose names are short: the list of all
 * is an option of at most 255 bytes.  `ret_list` names them from there. */
static int put_several(const int *lowers, size_t count, char ret_list[256])
{
    const struct plan_step step = {.mode = 0700, .number = 1 << 20};
    AUTO_FD places = build_tree(&step, 0, 0);
    int error = places < 0 ? places : put(places, LOWER);
    size_t used = 0;

    if (!error && chdir(LOWER) != 0)
        error = -errno;
    for (size_t i = 0; !error && i < count; i++) {
        char name[3];
        snprintf(name, sizeof name, "%02x", (unsigned)i & 0xFF);
        error = mkdirat(places, name, 0700) == 0 ? put(lowers[i], name) : -errno;
        used += (size_t)snprintf(ret_list + used, 256 - used, "%s%s", i ? ":" : "", name);
    }
    return error;
}

static int put_lowers(const int *lowers, size_t count, char ret_list[256])
{
    snprintf(ret_list, 256, "%s", LOWER);
    return count == 1           ? put(lowers[0], LOWER)
           : count > LAYERS_MAX ? -E2BIG
                                : put_several(lowers, count, ret_list);
}

int layers_overlay(const int *lowers, size_t count, int disk, uint64_t size)
{
    AUTO_FD memory = disk < 0 ? make_top(size) : -1;
    int top = disk < 0 ? memory : disk;
    char list[256];

    if (top < 0)
        return top;
    int error = put_lowers(lowers, count, list);
    if (!error)
        error = put(top, TOP);
    if (!error) {
        error = check_marks();
        int fd = error ? error : create(list);
        (void)umount2(TOP, MNT_DETACH);
        error = fd;
    }
    if (count > 1 && chdir("/") != 0)
        error = -errno;
    (void)umount2(LOWER, MNT_DETACH);
    return error;
}
