/* SPDX-License-Identifier: Apache-2.0 */

/* The programs of PID 1, of cay-net and of cay-net-tls.  Code inside must never be able
 * to change the program of the next sandbox.  For root it is one file in the runtime
 * directory, which belongs to a user that no sandbox has; all sandboxes share its pages.
 * Otherwise it is a sealed memfd. */
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

/* Embedded into the library by src/init/embed. */
extern const unsigned char cay_init[], cay_net[], cay_net_tls[];
extern const uint64_t cay_init_size, cay_net_size, cay_net_tls_size;
extern const char cay_init_digest[], cay_net_digest[], cay_net_tls_digest[];

enum { NAME_ROOM = 64, MODE = 0555, MAKE_S = 60, PROGRAMS = 3 };

static const struct embedded {
    const char *name;
    const unsigned char *data;
    const uint64_t *size;
    const char *digest;
} programs[PROGRAMS] = {
    [PROGRAM_INIT] = {"cay-init", cay_init, &cay_init_size, cay_init_digest},
    [PROGRAM_NET] = {"cay-net", cay_net, &cay_net_size, cay_net_digest},
    [PROGRAM_TLS] = {"cay-tls", cay_net_tls, &cay_net_tls_size, cay_net_tls_digest},
};

static bool name_file(const struct embedded *program, char name[NAME_ROOM])
{
    return JOIN(name, NAME_ROOM, program->name, "-", program->digest);
}

static bool is_intact(const struct embedded *program, int fd)
{
    struct stat st;

    return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
           (st.st_mode & 07777) == MODE && st.st_size == (off_t)*program->size;
}

/* Written under a temporary name and renamed, so that readers only see it complete. */
static bool make_file(const struct embedded *program, int dir, const char *name)
{
    char draft[NAME_ROOM + 16];

    snprintf(draft, sizeof draft, "%s.%ld", name, syscall(SYS_gettid));
    AUTO_FD fd =
        openat(dir, draft, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return false;
    if (io_write(fd, program->data, *program->size) == 0 && fchmod(fd, MODE) == 0 &&
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

static int open_file(const struct embedded *program, int dir, const char *name)
{
    struct statvfs fs;
    AUTO_FD fd = openat(dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0)
        return -errno;
    if (!is_intact(program, fd)) {
        (void)unlinkat(dir, name, 0);
        return -ENOENT;
    }
    if (fstatvfs(fd, &fs) != 0)
        return -errno;
    return fs.f_flag & ST_NOEXEC ? allow_exec(fd) : TAKE_FD(fd);
}

static int open_shared(const struct embedded *program)
{
    char name[NAME_ROOM];
    AUTO_FD dir = runtime_open_dir("", NULL);

    if (dir < 0 || !name_file(program, name))
        return -ENOENT;
    int fd = open_file(program, dir, name);
    if (fd == -ENOENT && make_file(program, dir, name))
        fd = open_file(program, dir, name);
    return fd;
}

static int make_memfd(const struct embedded *program)
{
    /* MFD_EXEC is needed where memfds are not executable by default, and unknown to
     * kernels before 6.3. */
    int fd = io_memfd(program->name, 0x0010u, program->data, *program->size);

    return fd == -EINVAL ? io_memfd(program->name, 0, program->data, *program->size) : fd;
}

/* Cached, one for each process. */
static int open_memfd(enum program which)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static int known[PROGRAMS] = {-1, -1, -1};
    static pid_t owner[PROGRAMS];

    pthread_mutex_lock(&mutex);
    if (known[which] < 0 || owner[which] != getpid()) {
        known[which] = make_memfd(&programs[which]);
        owner[which] = getpid();
    }
    int fd = known[which];
    pthread_mutex_unlock(&mutex);
    return fd;
}

int program_open(enum program which, bool is_shared, int lowest, struct cay_error *err)
{
    AUTO_FD own = is_shared ? open_shared(&programs[which]) : -ENOENT;
    int fd = own < 0 ? open_memfd(which) : own;
    int high = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, lowest);

    if (high >= 0)
        return high;
    /* RLIMIT_NOFILE may be below `lowest`. */
    int error = fd < 0 ? -fd : errno == EINVAL ? EMFILE : errno;
    return cay_fail_errno(err, error, "sandbox.create", programs[which].name);
}

/* Whether it is a file of an older version, which no creation is about to use. */
static bool is_left(int dir, const char *name)
{
    char current[NAME_ROOM];
    struct timespec now;
    struct stat st;
    bool is_old = false;

    for (size_t i = 0; i < PROGRAMS; i++) {
        size_t len = strlen(programs[i].name);
        is_old |= strncmp(name, programs[i].name, len) == 0 && name[len] == '-' &&
                  name_file(&programs[i], current) && strcmp(name, current) != 0;
    }
    clock_gettime(CLOCK_REALTIME, &now);
    return is_old && fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
           labs(now.tv_sec - st.st_mtim.tv_sec) > MAKE_S;
}

/* Running sandboxes keep theirs when its name is removed. */
void program_sweep(void)
{
    char top[PATH_MAX];

    if (runtime_directory(top, NULL) != CAY_OK)
        return;
    AUTO_DIR list = opendir(top);
    for (struct dirent *entry; (entry = path_next(list));)
        if (is_left(dirfd(list), entry->d_name))
            (void)unlinkat(dirfd(list), entry->d_name, 0);
}
