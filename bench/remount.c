/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <linux/mount.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "race.h"
#include "remount.h"

enum { MOUNTS = 10 }; /* on the root of a sandbox: /dev, /proc, /usr and parts of /etc */

static int requests = -1;
static int bottom = -1, store = -1; /* the root of the namespace, and its layers */
static unsigned newest = 1;         /* the number of a layer */

/* --- The process --- */

static bool make(const char *kind, unsigned number)
{
    char path[32];

    snprintf(path, sizeof path, "%s%u", kind, number);
    return mkdirat(store, path, 0755) == 0;
}

static bool make_layer(unsigned number)
{
    return make("upper", number) && make("work", number);
}

/* A detached overlay with this layer on top. */
static int create_root(unsigned number)
{
    char upper[32], work[32];
    long config = syscall(SYS_fsopen, "overlay", FSOPEN_CLOEXEC);

    snprintf(upper, sizeof upper, "/store/upper%u", number);
    snprintf(work, sizeof work, "/store/work%u", number);
    bool is_done =
        syscall(SYS_fsconfig, config, FSCONFIG_SET_STRING, "lowerdir", "/store/upper0",
                0) == 0 &&
        syscall(SYS_fsconfig, config, FSCONFIG_SET_STRING, "upperdir", upper, 0) == 0 &&
        syscall(SYS_fsconfig, config, FSCONFIG_SET_STRING, "workdir", work, 0) == 0 &&
        syscall(SYS_fsconfig, config, FSCONFIG_CMD_CREATE, NULL, NULL, 0) == 0;
    long root = is_done ? syscall(SYS_fsmount, config, FSMOUNT_CLOEXEC, 0) : -1;
    (void)close((int)config);
    return (int)root;
}

static int open_old(void)
{
    return open("/root", O_PATH | O_DIRECTORY | O_CLOEXEC);
}

/* The root of the namespace has the directories "store" and "root", as that of a sandbox
 * has. */
static bool mount_bottom(void)
{
    if (unshare(CLONE_NEWNS) != 0 || mount("", "/", "", MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("tmpfs", "/mnt", "tmpfs", 0, NULL) != 0 || chdir("/mnt") != 0 ||
        syscall(SYS_pivot_root, ".", ".") != 0 || umount2(".", MNT_DETACH) != 0 ||
        mkdir("/store", 0755) != 0 || mkdir("/root", 0755) != 0 ||
        mkdir("/store/upper0", 0755) != 0)
        return false;
    bottom = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    store = open("/store", O_PATH | O_DIRECTORY | O_CLOEXEC);
    return bottom >= 0 && store >= 0;
}

static bool begin(void)
{
    char path[64];

    if (!mount_bottom())
        return false;
    for (unsigned i = 0; i < MOUNTS; i++) {
        snprintf(path, sizeof path, "/store/upper0/%u", i);
        if (mkdir(path, 0755) != 0)
            return false;
    }
    int root = make_layer(1) ? create_root(1) : -1;
    if (root < 0 || syscall(SYS_move_mount, root, "", AT_FDCWD, "/root",
                            MOVE_MOUNT_F_EMPTY_PATH) != 0)
        return false;
    (void)close(root);
    for (unsigned i = 0; i < MOUNTS; i++) {
        snprintf(path, sizeof path, "/root/%u", i);
        if (mount("tmpfs", path, "tmpfs", 0, NULL) != 0)
            return false;
    }
    return true;
}

static bool carry(int from, int to, unsigned number)
{
    char name[16];

    snprintf(name, sizeof name, "%u", number);
    long clone = syscall(SYS_open_tree, from, name, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    bool is_done = clone >= 0 && syscall(SYS_move_mount, clone, "", to, name,
                                         MOVE_MOUNT_F_EMPTY_PATH) == 0;
    (void)close((int)clone);
    return is_done;
}

/* The root with an empty layer takes the place of the present one. */
static bool change_root(unsigned number)
{
    int old = open_old(), root = create_root(number);
    bool is_done = old >= 0 && root >= 0;

    for (unsigned i = 0; is_done && i < MOUNTS; i++)
        is_done = carry(old, root, i);
    is_done =
        is_done && fchdir(old) == 0 && chroot(".") == 0 &&
        syscall(SYS_move_mount, root, "", AT_FDCWD, ".", MOVE_MOUNT_F_EMPTY_PATH) == 0 &&
        fchdir(root) == 0 && syscall(SYS_pivot_root, ".", ".") == 0 &&
        umount2(".", MNT_DETACH) == 0 && fchdir(bottom) == 0 && chroot(".") == 0;
    (void)close(old);
    (void)close(root);
    return is_done;
}

static _Noreturn void serve(int from)
{
    char request;
    double us = begin() ? 0 : -1;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)!write(from, &us, sizeof us);
    while (us >= 0 && read(from, &request, 1) == 1) {
        bool is_ready = make_layer(++newest);
        double start = race_now_us();
        us = is_ready && change_root(newest) ? race_now_us() - start : -1;
        (void)!write(from, &us, sizeof us);
    }
    _exit(0);
}

/* --- Its client --- */

bool remount_start(void)
{
    int ends[2];
    double us = -1;

    if (requests >= 0)
        (void)close(requests);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        return false;
    pid_t child = fork();
    if (child == 0) {
        (void)close(ends[0]);
        serve(ends[1]);
    }
    (void)close(ends[1]);
    requests = ends[0];
    return child > 0 && read(requests, &us, sizeof us) == sizeof us && us >= 0;
}

double remount_run(void *cookie)
{
    double us = -1;

    (void)cookie;
    (void)!write(requests, "", 1);
    return read(requests, &us, sizeof us) == sizeof us ? us : -1;
}
