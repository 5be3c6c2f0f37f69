/* SPDX-License-Identifier: Apache-2.0 */

/* Mounts, roots, nodes and links.  In a control these succeed, so they change nothing but
 * the mount namespace they run in, and open for writing without writing. */
#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "probe.h"

/* A name where files can be made; until the next. */
static const char *own_path(const char *name)
{
    static char path[512];
    const char *place = getenv("TMPDIR");

    snprintf(path, sizeof path, "%s/%s", place ? place : "/tmp", name);
    return path;
}

/* An empty directory to mount on. */
static const char *place(void)
{
    static char path[512];

    if (!*path) {
        snprintf(path, sizeof path, "%s", own_path("place-XXXXXX"));
        if (!mkdtemp(path))
            path[0] = '\0';
    }
    return path;
}

struct answer probe_mount(const char *arg)
{
    return answer_call(mount(arg, place(), arg, 0, NULL));
}

struct answer probe_bind(const char *arg)
{
    (void)arg;
    return answer_call(mount("/", place(), NULL, MS_BIND | MS_REC, NULL));
}

struct answer probe_unmount(const char *arg)
{
    struct stat st;

    (void)arg;
    if (stat("/proc/kallsyms", &st) != 0)
        return answer_make(ERROR, errno, "there is no mask to take off");
    return answer_call(umount2("/proc/kallsyms", MNT_DETACH));
}

struct answer probe_remount(const char *arg)
{
    return answer_call(mount(NULL, arg, NULL, MS_REMOUNT | MS_BIND, NULL));
}

struct answer probe_setattr_usr(const char *arg)
{
    struct mount_attr attributes = {.attr_clr = MOUNT_ATTR_RDONLY};

    (void)arg;
    return answer_call(
        syscall(SYS_mount_setattr, AT_FDCWD, "/usr", 0, &attributes, sizeof attributes));
}

struct answer probe_new_mount(const char *arg)
{
    (void)arg;
    long context = syscall(SYS_fsopen, "tmpfs", 0);
    if (context < 0)
        return answer_call(context);
    long made = syscall(SYS_fsconfig, context, FSCONFIG_CMD_CREATE, NULL, NULL, 0);
    long mounted = made < 0 ? made : syscall(SYS_fsmount, context, 0, 0);
    if (mounted < 0)
        return answer_call(mounted);
    return answer_call(
        syscall(SYS_move_mount, mounted, "", AT_FDCWD, place(), MOVE_MOUNT_F_EMPTY_PATH));
}

/* EINVAL and EBUSY come after the question who asks. */
struct answer probe_pivot(const char *arg)
{
    (void)arg;
    return answer_call(syscall(SYS_pivot_root, "/", "/"));
}

struct answer probe_chroot(const char *arg)
{
    (void)arg;
    return answer_call(chroot("/tmp"));
}

/* Out of a root that was only changed: keep a directory above a second one, and climb. */
struct answer probe_chroot_breakout(const char *arg)
{
    int above = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct stat st;

    (void)arg;
    if (above < 0)
        return answer_call(above);
    if (host_number("HOST_ROOT") < 0)
        return answer_make(ERROR, 0, "no root");
    if (chroot(place()) != 0)
        return answer_call(-1);
    if (fchdir(above) != 0)
        return answer_make(ERROR, errno, "fchdir");
    for (int i = 0; i < 64; i++)
        if (chdir("..") != 0)
            return answer_make(ERROR, errno, "..");
    if (stat(".", &st) == 0 && (long)st.st_dev == host_number("HOST_ROOT"))
        return answer_make(ESCAPE, 0, "sees the host's root");
    return answer_make(BLOCKED, EPERM, "stays inside");
}

struct answer probe_handle(const char *arg)
{
    static const char *const places[] = {"/usr", "/tmp", "/dev/shm", "/"};
    union {
        struct file_handle handle;
        char room[sizeof(struct file_handle) + MAX_HANDLE_SZ];
    } file = {.handle.handle_bytes = MAX_HANDLE_SZ};
    int mount_id;

    (void)arg;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        int fd = open(places[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0 ||
            name_to_handle_at(fd, "", &file.handle, &mount_id, AT_EMPTY_PATH) != 0)
            continue;
        return answer_call(open_by_handle_at(fd, &file.handle, O_RDONLY | O_CLOEXEC));
    }
    return answer_make(ERROR, errno, "nothing here has a handle");
}

/* --- Nodes --- */

struct answer probe_mknod(const char *arg)
{
    bool block = *arg == 'b';
    const char *path = own_path("probe-node");
    int made = mknod(path, (block ? S_IFBLK : S_IFCHR) | 0600,
                     block ? makedev(254, 0) : makedev(1, 3));
    struct answer answer = answer_call(made);

    if (made == 0)
        unlink(path);
    return answer;
}

/* A null device of one's own.  If it cannot be made, that is the answer. */
struct answer probe_device_node(const char *arg)
{
    (void)arg;
    const char *path = own_path("probe-n");
    if (mknod(path, S_IFCHR | 0600, makedev(1, 3)) != 0)
        return answer_call(-1);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct answer answer = answer_call(fd);
    unlink(path);
    return answer;
}

/* --- Privilege by execve --- */

/* Runs the setuid copy of this program that root made, and that one tells who it is. */
struct answer probe_setuid(const char *arg)
{
    static char copy[] = "/opt/probe-setuid";
    struct stat st;
    int status = -1;

    (void)arg;
    if (host_fact("COPY"))
        return geteuid() == getuid() ? answer_make(BLOCKED, EPERM, "runs as itself")
                                     : answer_make(ESCAPE, 0, "runs as %u", geteuid());
    if (stat(copy, &st) != 0 || !(st.st_mode & S_ISUID) || st.st_uid == getuid())
        return answer_make(ERROR, errno, "there is no setuid program");
    pid_t child = fork();
    if (child == 0) {
        char *argv[] = {copy, (char[]){"E13_setuid_program"}, NULL},
             *env[] = {(char[]){"COPY=1"}, NULL};
        (void)!freopen("/dev/null", "we", stderr);
        close(1);
        (void)!open("/tmp/probe-setuid.out", O_WRONLY | O_CREAT | O_TRUNC, 0600);
        execve(copy, argv, env);
        _exit(127);
    }
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
        return answer_make(ERROR, errno, "status %d", status);
    char text[64] = "";
    FILE *file = fopen("/tmp/probe-setuid.out", "re");
    if (!file || !fgets(text, sizeof text, file))
        return answer_make(ERROR, errno, "no output");
    if (strncmp(text, "ESCAPE", 6) == 0)
        return answer_make(ESCAPE, 0, "%.60s", text);
    return answer_make(BLOCKED, EPERM, "the bit means nothing");
}

/* --- A program that runs as its owner --- */

static long open_with(const char *path, int flags)
{
    return syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC | flags, 04755);
}

static long by_openat2(const char *path)
{
    const struct {
        uint64_t flags, mode, resolve;
    } how = {O_RDWR | O_CREAT | O_CLOEXEC, 04755, 0};

    return syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how);
}

static long by_nameless(const char *path)
{
    char name[64];
    long fd = open_with(".", O_TMPFILE);

    snprintf(name, sizeof name, "/proc/self/fd/%ld", fd);
    if (fd < 0 || linkat(AT_FDCWD, name, AT_FDCWD, path, AT_SYMLINK_FOLLOW) == 0)
        return fd;
    struct stat st; /* without /proc it cannot be given a name, but it has the bit */
    return fstat((int)fd, &st) == 0 && st.st_mode & S_ISUID ? fd : -1;
}

static long by_mode(const char *path, int way)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0700);

    if (fd < 0)
        return fd;
    switch (way) {
    case 0:
        return syscall(SYS_fchmod, fd, 04755);
    case 1:
        return syscall(SYS_fchmodat, AT_FDCWD, path, 04755);
    case 2:
        return syscall(452 /* fchmodat2 */, AT_FDCWD, path, 04755, 0);
    case 3:
        return syscall(SYS_fchmodat, AT_FDCWD, path, 02755);
    default:
        return chmod(path, 06755);
    }
}

static long set_id(const char *path, int way)
{
    switch (way) {
    case 5:
        return open_with(path, O_CREAT);
    case 6:
        return by_openat2(path);
    case 7:
        return by_nameless(path);
    case 8:
        return mknod(path, S_IFREG | 04755, 0);
#ifdef SYS_open
    case 9:
        return syscall(SYS_open, path, O_RDWR | O_CREAT | O_CLOEXEC, 04755);
    case 10:
        return syscall(SYS_creat, path, 04755);
#endif
    default:
        return by_mode(path, way);
    }
}

/* In the working directory, if that is the host's. */
struct answer probe_set_id(const char *arg)
{
    const char *devices = host_fact("HOST_DEVICES");
    char device[32], path[] = "probe-set-id";
    struct stat st;
    int error = 0;

    (void)arg;
    if (!devices || stat(".", &st) != 0)
        return answer_make(ERROR, errno, "where are we?");
    snprintf(device, sizeof device, " %lu ", (unsigned long)st.st_dev);
    if (!strstr(devices, device))
        return answer_make(VIRTUALISED, 0, "nothing of the host can be written to");
    umask(0);
    for (int way = 0; way <= 10; way++) {
        (void)unlink(path);
        if (set_id(path, way) >= 0) {
            (void)unlink(path);
            return answer_make(ESCAPE, 0, "way %d", way);
        }
        error = errno;
    }
    (void)unlink(path);
    return answer_make(BLOCKED, error, "no way");
}

struct answer probe_file_capability(const char *arg)
{
    /* CAP_NET_RAW, permitted and effective: struct vfs_cap_data, version 2 */
    static const unsigned char data[20] = {1, 0, 0, 2, 0, 0x20};
    const char *path = own_path("probe-cap");
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0700);

    (void)arg;
    if (fd < 0)
        return answer_make(ERROR, errno, "%s", path);
    struct answer answer =
        answer_call(fsetxattr(fd, "security.capability", data, sizeof data, 0));
    unlink(path);
    return answer;
}

struct answer probe_xattr(const char *arg)
{
    const char *path = own_path("probe-attr");
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0700);

    if (fd < 0)
        return answer_make(ERROR, errno, "%s", path);
    struct answer answer = answer_call(fsetxattr(fd, arg, "/", 1, 0));
    unlink(path);
    return answer;
}

/* --- Files of the host --- */

/* A name of its own for a file of the host: its canary where that is in sight, else a
 * program.  The link is taken away again. */
struct answer probe_link(const char *arg)
{
    const char *canary = host_fact("CANARY"), *source = "/usr/bin/env";
    const char *other = own_path("probe-link");

    (void)arg;
    if (canary && access(canary, F_OK) == 0) {
        other = host_fact("LINK");
        source = canary;
    }
    if (linkat(AT_FDCWD, source, AT_FDCWD, other, 0) == 0) {
        unlink(other);
        return answer_make(ESCAPE, 0, "linked");
    }
    if (errno == EXDEV)
        return answer_make(BLOCKED, EXDEV, "refused");
    return answer_path(-1);
}

struct answer probe_usr(const char *arg)
{
    (void)arg;
    return answer_path(open("/usr/lib/os-release", O_WRONLY | O_CLOEXEC));
}

struct answer probe_max_users(const char *arg)
{
    (void)arg;
    return answer_path(open("/proc/sys/user/max_user_namespaces", O_WRONLY | O_CLOEXEC));
}
