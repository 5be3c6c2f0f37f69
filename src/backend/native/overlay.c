/* SPDX-License-Identifier: Apache-2.0 */

/* Made from outside, by host root: an overlay made within the sandbox's user namespace
 * could not keep its notes about removed directories, and dpkg would fail on it.
 *
 * The template, and a disk that persists, have the owners that they have inside; the
 * overlay is given idmapped mounts of them, so that a template serves any number of
 * sandboxes and a disk comes back under any range of ids.  What an overlay can be told by
 * files in it (redirects, metadata of others) is switched off. */
#include "backend/native/overlay.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/auto.h"
#include "init/build.h"
#include "sys/clone.h"
#include "sys/path.h"
#include "sys/shift.h"

static bool set(int context, const char *name, const char *value)
{
    return syscall(SYS_fsconfig, context, FSCONFIG_SET_STRING, name, value, 0) == 0;
}

static bool set_fd(int context, const char *name, int fd)
{
    return syscall(SYS_fsconfig, context, FSCONFIG_SET_FD, name, NULL, fd) == 0;
}

static int make_directory(int top, const char *name, uint32_t owner)
{
    if (mkdirat(top, name, 0755) != 0)
        return -errno;
    /* The umask is not ours to change. */
    return fchmodat(top, name, 0755, 0) == 0 &&
                   fchownat(top, name, owner, owner, AT_SYMLINK_NOFOLLOW) == 0
               ? 0
               : -errno;
}

/* Of a fixed size, so that the disk limit is real. */
static int open_memory(uint64_t size)
{
    const struct plan_step step = {.kind = PLAN_TREE, .mode = 0700, .number = size};

    return build_tree(&step, 0, 0);
}

static int finish(int context)
{
    if (!set(context, "redirect_dir", "nofollow") || !set(context, "metacopy", "off") ||
        !set(context, "index", "off") || !set(context, "xino", "off") ||
        syscall(SYS_fsconfig, context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) != 0)
        return -errno;
    int fd = (int)syscall(SYS_fsmount, context, FSMOUNT_CLOEXEC,
                          MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
    return fd < 0 ? -errno : fd;
}

/* Linux 6.5 to 6.12 does not even look at a descriptor that only stands for a place. */
static bool is_for_paths(int error)
{
    return error == EBADF || error == EINVAL || error == EOPNOTSUPP;
}

static int create(int lower, int top)
{
    AUTO_FD upper = path_open(top, "upper", O_PATH | O_DIRECTORY, 0, PATH_PLAIN);
    AUTO_FD work = path_open(top, "work", O_PATH | O_DIRECTORY, 0, PATH_PLAIN);

    if (upper < 0 || work < 0)
        return upper < 0 ? upper : work;
    AUTO_FD context = (int)syscall(SYS_fsopen, "overlay", FSOPEN_CLOEXEC);
    if (context < 0)
        return -errno;
    if (!set_fd(context, "lowerdir+", lower) || !set_fd(context, "upperdir", upper) ||
        !set_fd(context, "workdir", work))
        return is_for_paths(errno) ? overlay_by_path(lower, top) : -errno;
    return finish(context);
}

/* --- Before Linux 6.13 an overlay takes only paths ---
 *
 * So it is made by a process with mounts of its own, where the two have paths, on top of
 * what every host has; that shares our memory and descriptors, touches its `struct
 * detour` alone, and is gone when we go on. */

struct detour {
    int lower, top;
    int result;
    char stack[16 << 10] __attribute__((aligned(16)));
};

static bool put(int mount, const char *path)
{
    return syscall(SYS_move_mount, mount, "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH) ==
           0;
}

IN_CLONE static void take_detour(void *cookie)
{
    struct detour *detour = cookie;

    if (unshare(CLONE_NEWNS) != 0 ||
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        !put(detour->lower, "/usr") || !put(detour->top, "/tmp")) {
        detour->result = -errno;
        _exit(0);
    }
    int context = (int)syscall(SYS_fsopen, "overlay", FSOPEN_CLOEXEC);
    if (context < 0 || !set(context, "lowerdir", "/usr") ||
        !set(context, "upperdir", "/tmp/upper") || !set(context, "workdir", "/tmp/work"))
        detour->result = -errno;
    else
        detour->result = finish(context);
    if (context >= 0)
        (void)close(context);
    _exit(0);
}

int overlay_by_path(int lower, int top)
{
    struct detour detour = {.lower = lower, .top = top, .result = -EIO};
    const struct clone_args args = {
        .flags = CLONE_VM | CLONE_VFORK | CLONE_FILES,
        .stack = (__u64)(uintptr_t)detour.stack,
        .stack_size = sizeof detour.stack,
    };
    sigset_t all, before;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    long pid = clone_run(&args, take_detour, &detour);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (pid < 0)
        return (int)pid;
    while (waitpid((pid_t)pid, NULL, (int)__WCLONE) < 0 && errno == EINTR)
        continue;
    return detour.result;
}

/* The overlay itself makes files there as host root, who must have a number on the disk
 * for that: one that nobody inside has. */
static int open_disk(int disk, uint32_t id_base)
{
    char ids[64];

    snprintf(ids, sizeof ids, "0 %u 65536\n65536 0 1\n", id_base);
    AUTO_FD map = shift_map(ids, ids);
    return map < 0 ? map : shift_mount(disk, map, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
}

static int open_memory_with(uint64_t size, uint32_t id_base)
{
    AUTO_FD top = open_memory(size);
    int error = top < 0 ? top : make_directory(top, "upper", id_base);

    if (!error)
        error = make_directory(top, "work", id_base);
    return error ? error : TAKE_FD(top);
}

/* No template below: the disk is the root. */
static int mount_disk(const struct overlay *overlay, int map)
{
    AUTO_FD upper =
        path_open(overlay->disk, "upper", O_PATH | O_DIRECTORY, 0, PATH_PLAIN);

    return upper < 0 ? upper
                     : shift_mount(upper, map, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
}

int overlay_mount(const struct overlay *overlay, int map, uint32_t id_base)
{
    if (overlay->lower < 0)
        return mount_disk(overlay, map);
    AUTO_FD lower = shift_mount(overlay->lower, map,
                                MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_RDONLY);
    if (lower < 0)
        return lower;
    AUTO_FD top = overlay->disk < 0 ? open_memory_with(overlay->size, id_base)
                                    : open_disk(overlay->disk, id_base);
    if (top < 0)
        return top;
    return create(lower, top);
}
