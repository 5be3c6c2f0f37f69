/* SPDX-License-Identifier: Apache-2.0 */

/* The program of PID 1.  Code inside must never be able to change the program of the next
 * sandbox.  For root it is one file in the runtime directory, which belongs to a user
 * that no sandbox has; all sandboxes share its pages.  Otherwise it is a sealed memfd. */
#include "native/make/program.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "base/join.h"
#include "native/record/runtime.h"
#include "sys/io.h"
#include "sys/path.h"

/* cay-init itself, embedded into the library by src/init/embed. */
extern const unsigned char cay_init[];
extern const uint64_t cay_init_size;
extern const char cay_init_digest[];

enum { NAME_ROOM = 64, MODE = 0555, MAKE_S = 60 };

static const char prefix[] = "cay-init-";

static bool is_intact(int fd)
{
    struct stat st;

    return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
           (st.st_mode & 07777) == MODE && st.st_size == (off_t)cay_init_size;
}

/* Written under a temporary name and renamed, so that readers only see it complete. */
static bool make_file(int dir, const char *name)
{
    char draft[NAME_ROOM + 16];

    snprintf(draft, sizeof draft, "%s.%ld", name, syscall(SYS_gettid));
    AUTO_FD fd =
        openat(dir, draft, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return false;
    if (io_write(fd, cay_init, cay_init_size) == 0 && fchmod(fd, MODE) == 0 &&
        fsync(fd) == 0 && renameat(dir, draft, dir, name) == 0)
        return true;
    (void)unlinkat(dir, draft, 0);
    return false;
}

/* Some distributions mount /run with noexec: a private mount of this one file without
 * it. */
static int allow_exec(int fd)
{
    struct mount_attr attributes = {.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID,
                                    .attr_clr = MOUNT_ATTR_NOEXEC,
                                    .propagation = MS_PRIVATE};
    AUTO_FD tree = (int)syscall(SYS_open_tree, fd, "",
                                OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);

    if (tree < 0 || syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH, &attributes,
                            sizeof attributes) != 0)
        return -errno;
    return TAKE_FD(tree);
}

static int open_file(int dir, const char *name)
{
    struct statvfs fs;
    AUTO_FD fd = openat(dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0)
        return -errno;
    if (!is_intact(fd)) {
        (void)unlinkat(dir, name, 0);
        return -ENOENT;
    }
    if (fstatvfs(fd, &fs) != 0)
        return -errno;
    return fs.f_flag & ST_NOEXEC ? allow_exec(fd) : TAKE_FD(fd);
}

static int open_shared(void)
{
    char name[NAME_ROOM];
    AUTO_FD dir = runtime_open_dir("", NULL);

    if (dir < 0 || !JOIN(name, sizeof name, prefix, cay_init_digest))
        return -ENOENT;
    int fd = open_file(dir, name);
    if (fd == -ENOENT && make_file(dir, name))
        fd = open_file(dir, name);
    return fd;
}

static int make_memfd(void)
{
    /* MFD_EXEC is needed where memfds are not executable by default, and unknown to
     * kernels before 6.3. */
    int fd = io_memfd("cay-init", 0x0010u, cay_init, cay_init_size);

    return fd == -EINVAL ? io_memfd("cay-init", 0, cay_init, cay_init_size) : fd;
}

/* Cached, one for each process. */
static int open_memfd(void)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static int known = -1;
    static pid_t owner;

    pthread_mutex_lock(&mutex);
    if (known < 0 || owner != getpid()) {
        known = make_memfd();
        owner = getpid();
    }
    int fd = known;
    pthread_mutex_unlock(&mutex);
    return fd;
}

int program_open(bool is_shared, int lowest, struct cay_error *err)
{
    AUTO_FD own = is_shared ? open_shared() : -ENOENT;
    int fd = own < 0 ? open_memfd() : own;
    int high = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, lowest);

    if (high >= 0)
        return high;
    /* RLIMIT_NOFILE may be below `lowest`. */
    int error = fd < 0 ? -fd : errno == EINVAL ? EMFILE : errno;
    return cay_fail_errno(err, error, "sandbox.create", "cay-init");
}

/* Running sandboxes keep theirs when its name is removed. */
void program_sweep(void)
{
    char current[NAME_ROOM], top[PATH_MAX];
    struct timespec now;
    struct stat st;

    if (runtime_directory(top, NULL) != CAY_OK ||
        !JOIN(current, sizeof current, prefix, cay_init_digest))
        return;
    clock_gettime(CLOCK_REALTIME, &now);
    AUTO_DIR list = opendir(top);
    for (struct dirent *entry; (entry = path_next(list));)
        if (strncmp(entry->d_name, prefix, sizeof prefix - 1) == 0 &&
            strcmp(entry->d_name, current) != 0 &&
            fstatat(dirfd(list), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            labs(now.tv_sec - st.st_mtim.tv_sec) > MAKE_S)
            (void)unlinkat(dirfd(list), entry->d_name, 0);
}
