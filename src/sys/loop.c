/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/loop.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <linux/mount.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/auto.h"

enum { TRIES = 64, PATH_ROOM = 300 };

/* Whether it is the device of this file. */
static bool is_device_of(int device, const struct stat *image)
{
    struct loop_info64 info;

    return ioctl(device, LOOP_GET_STATUS64, &info) == 0 &&
           info.lo_device == image->st_dev && info.lo_inode == image->st_ino;
}

/* The device that another mount of the file has; -ENOENT: none. */
static int find_device(const struct stat *image, char ret_path[PATH_ROOM])
{
    DIR *list = opendir("/sys/block");
    int found = -ENOENT;

    for (struct dirent *entry; list && found < 0 && (entry = readdir(list));) {
        if (strncmp(entry->d_name, "loop", 4) != 0)
            continue;
        snprintf(ret_path, PATH_ROOM, "/dev/%s", entry->d_name);
        AUTO_FD device = open(ret_path, O_RDWR | O_CLOEXEC);
        if (device >= 0 && is_device_of(device, image))
            found = TAKE_FD(device);
    }
    if (list)
        closedir(list);
    return found;
}

static int add_device(int control, int image, char ret_path[PATH_ROOM])
{
    const struct loop_config config = {.fd = (__u32)image,
                                       .info = {.lo_flags = LO_FLAGS_AUTOCLEAR}};
    int number = ioctl(control, LOOP_CTL_GET_FREE);

    if (number < 0)
        return -errno;
    snprintf(ret_path, PATH_ROOM, "/dev/loop%d", number);
    AUTO_FD device = open(ret_path, O_RDWR | O_CLOEXEC);
    if (device < 0)
        return errno == ENOENT ? -EOPNOTSUPP : -errno;
    return ioctl(device, LOOP_CONFIGURE, &config) == 0 ? TAKE_FD(device) : -errno;
}

/* Another process may take the free device first, or the kernel release the found one. */
static int take_device(int image, char ret_path[PATH_ROOM])
{
    struct stat st;
    AUTO_FD control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
    int device = -EBUSY;

    if (control < 0 || fstat(image, &st) != 0)
        return control < 0 && errno == ENOENT ? -EOPNOTSUPP : -errno;
    for (int tries = 0; device == -EBUSY && tries < TRIES; tries++) {
        device = find_device(&st, ret_path);
        if (device == -ENOENT)
            device = add_device(control, image, ret_path);
    }
    return device;
}

static int mount_device(const char *path)
{
    AUTO_FD context = (int)syscall(SYS_fsopen, "ext4", FSOPEN_CLOEXEC);

    if (context < 0)
        return errno == ENODEV ? -EOPNOTSUPP : -errno;
    if (syscall(SYS_fsconfig, context, FSCONFIG_SET_STRING, "source", path, 0) != 0 ||
        syscall(SYS_fsconfig, context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) != 0)
        return -errno;
    int mount = (int)syscall(SYS_fsmount, context, FSMOUNT_CLOEXEC,
                             MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
    return mount < 0 ? -errno : mount;
}

/* The lock is released explicitly: the loop device keeps the open file. */
int loop_mount(int image)
{
    char path[PATH_ROOM];

    if (flock(image, LOCK_EX) != 0)
        return -errno;
    AUTO_FD device = take_device(image, path);
    int mount = device < 0 ? device : mount_device(path);
    (void)flock(image, LOCK_UN);
    return mount;
}
