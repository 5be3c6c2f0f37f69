/* SPDX-License-Identifier: Apache-2.0 */

/* PID 1's set-up.  The order matters.  The network namespace comes first: it takes
 * longest to create, and the library prepares the file systems meanwhile.  Then /proc,
 * while the host's is still visible (the kernel requires that no part of that is
 * covered), and max_user_namespaces=0, before /proc/sys becomes read-only.  Then the
 * library's mounts and ours become the root, and the old root is detached; then
 * capabilities are dropped; landlock and seccomp last, since they forbid most of the
 * above. */
#include "init/setup.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <linux/mount.h>
#include <net/if.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/auto.h"
#include "init/build.h"
#include "init/confine.h"
#include "init/layers.h"
#include "init/report.h"
#include "init/serve.h"
#include "relay/collect.h"
#include "sys/path.h"
#include "sys/rights.h"

/* Where the new root is assembled: any directory that every host has. */
#define WORK "/tmp"

/* The usual group of terminals. */
enum { TERMINALS_GID = 5 };

/* Links are followed as they are inside, and never out of the new root. */
#define IN_ROOT (RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS)

/* --- Paths in the new root, which is "." while the host's is still "/".  The root may be
 * a hostile image: nothing here leaves it. --- */

/* Opens the parent directory and returns the last component; a negative errno on failure.
 */
static int open_parent(const char *path, const char **ret_name)
{
    char parent[PATH_MAX];
    const char *slash = strrchr(path, '/');
    size_t len = slash ? (size_t)(slash - path) : 0;

    if (len >= sizeof parent)
        return -ENAMETOOLONG;
    memcpy(parent, path, len);
    parent[len] = '\0';
    *ret_name = slash ? slash + 1 : path;
    return path_open(AT_FDCWD, parent, O_PATH | O_DIRECTORY, 0, IN_ROOT);
}

static int make(int parent, const char *name, bool is_directory)
{
    if (is_directory)
        return mkdirat(parent, name, 0755) == 0 ? 0 : -errno;
    AUTO_FD fd = openat(parent, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    return fd < 0 ? -errno : 0;
}

static int make_as(uid_t uid, gid_t gid, int parent, const char *name, bool is_directory)
{
    (void)syscall(SYS_setfsgid, gid);
    (void)syscall(SYS_setfsuid, uid);
    int error = make(parent, name, is_directory);
    (void)syscall(SYS_setfsuid, 0);
    (void)syscall(SYS_setfsgid, 0);
    return error;
}

static bool is_somebody_elses(int error)
{
    return error == -EOVERFLOW || error == -EACCES;
}

static int make_missing(const char *path, bool is_directory)
{
    const char *name;
    struct stat st;
    AUTO_FD parent = open_parent(path, &name);

    if (parent < 0)
        return parent;
    if (fstat(parent, &st) != 0)
        return -errno;
    int error = make(parent, name, is_directory);
    if (!error)
        (void)!fchownat(parent, name, st.st_uid, st.st_gid, AT_SYMLINK_NOFOLLOW);
    /* In a bind mount of the host, only its owner is mapped. */
    if (is_somebody_elses(error))
        error = make_as(PLAN_USER, PLAN_USER, parent, name, is_directory);
    if (is_somebody_elses(error))
        error = make_as(st.st_uid, st.st_gid, parent, name, is_directory);
    return error;
}

/* Creates the missing directories above `path`. */
static int make_parents(const char *path)
{
    char above[PATH_MAX];

    if (strlen(path) >= sizeof above)
        return -ENAMETOOLONG;
    memcpy(above, path, strlen(path) + 1);
    for (char *slash = strchr(above, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        AUTO_FD there = path_open(AT_FDCWD, above, O_PATH | O_DIRECTORY, 0, IN_ROOT);
        int error = there == -ENOENT ? make_missing(above, true) : there < 0 ? there : 0;
        if (error)
            return error;
        *slash = '/';
    }
    return 0;
}

/* An O_PATH descriptor of the target of a mount that the caller chose: links are followed
 * as they are inside, and what is missing is created, owned like its parent. */
static int open_target(const char *path, bool is_directory)
{
    struct stat st;
    struct statfs fs;
    AUTO_FD fd = path_open(AT_FDCWD, path, O_PATH, 0, IN_ROOT);

    if (fd == -ENOENT) {
        int error = make_parents(path);
        if (!error)
            error = make_missing(path, is_directory);
        if (error)
            return error;
        fd = path_open(AT_FDCWD, path, O_PATH, 0, IN_ROOT);
    }
    if (fd < 0)
        return fd;
    if (fstat(fd, &st) != 0 || fstatfs(fd, &fs) != 0)
        return -errno;
    if (fs.f_type == PROC_SUPER_MAGIC)
        return -EPERM;
    if (is_directory != (bool)S_ISDIR(st.st_mode))
        return is_directory ? -ENOTDIR : -EISDIR;
    return TAKE_FD(fd);
}

/* PLAN_NEED */
static int make_needed(const struct plan_step *step, const char *path)
{
    const char *name;
    AUTO_FD parent = open_parent(path, &name);

    if (parent < 0)
        return parent;
    if (mkdirat(parent, name, step->mode) != 0)
        return errno == EEXIST ? 0 : -errno;
    if ((step->uid || step->gid) &&
        fchownat(parent, name, step->uid, step->gid, AT_SYMLINK_NOFOLLOW) != 0)
        return -errno;
    return 0;
}

/* PLAN_REPLACE */
static int replace_file(const struct plan_step *step, const char *path, const char *data)
{
    const char *name;
    AUTO_FD parent = open_parent(path, &name);

    if (parent < 0)
        return parent;
    if (unlinkat(parent, name, 0) != 0 && errno != ENOENT)
        return -errno;
    return build_file(step, name, data, parent);
}

/* --- Hiding parts of /proc --- */

/* The owner of files whose uid is not mapped. */
enum { OVERFLOW_ID = 65534 };

/* What is left to do in a step. */
enum todo { TODO_USUAL, TODO_NOTHING, TODO_DIRECTORY };

/* Nothing if the kernel does not have `path`, or denies it to every user inside.  Not
 * checked in the host's /proc, which would be faster: another part of it may be mounted
 * there, and a mode changed elsewhere would go unseen. */
static enum todo inspect(int proc, const char *path)
{
    const char *slash = strrchr(path, '/');
    struct stat st;

    if (fstatat(proc, slash ? slash + 1 : path, &st, AT_SYMLINK_NOFOLLOW) != 0) {
        if (errno != ENOENT)
            report_failure(errno, "init.mask", path);
        return TODO_NOTHING;
    }
    if (st.st_uid == OVERFLOW_ID && !(st.st_mode & 0007))
        return TODO_NOTHING;
    return S_ISDIR(st.st_mode) ? TODO_DIRECTORY : TODO_USUAL;
}

/* One empty directory for all of them, unlinked afterwards.  A tmpfs for it would cost
 * every cgroup of the machine some memory. */
static const char nothing[] = "dev/.nothing";

static void hide(const char *path, bool is_directory)
{
    struct mount_attr attributes = {.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID |
                                                MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC};

    if ((is_directory && mkdir(nothing, 0555) != 0 && errno != EEXIST) ||
        mount(is_directory ? nothing : "dev/null", path, NULL, MS_BIND, NULL) != 0 ||
        (is_directory && syscall(SYS_mount_setattr, AT_FDCWD, path, 0, &attributes,
                                 sizeof attributes) != 0))
        report_failure(errno, "init.mask", path);
}

static void make_read_only(const char *path)
{
    struct mount_attr attributes = {.attr_set = MOUNT_ATTR_RDONLY};

    if (mount(path, path, NULL, MS_BIND | MS_REC, NULL) != 0 ||
        syscall(SYS_mount_setattr, AT_FDCWD, path, AT_RECURSIVE, &attributes,
                sizeof attributes) != 0)
        report_failure(errno, "init.mask", path);
}

/* Version 4 of RFC 9562, as the kernel's boot_id. */
static void write_boot_id(int fd, const char *path)
{
    unsigned char bits[16];
    char text[40];

    if (syscall(SYS_getrandom, bits, sizeof bits, 0L) != sizeof bits)
        report_failure(errno, "init.boot", path);
    bits[6] = (bits[6] & 0x0F) | 0x40;
    bits[8] = (bits[8] & 0x3F) | 0x80;
    int len = 0;
    for (int i = 0; i < 16; i++)
        len += snprintf(text + len, sizeof text - (size_t)len, "%02x%s", bits[i],
                        i == 3 || i == 5 || i == 7 || i == 9 ? "-" : "");
    text[len++] = '\n';
    if (fd < 0 || write(fd, text, (size_t)len) != len)
        report_failure(errno, "init.boot", path);
}

/* The start of a sandbox is its boot: programs that compare the id notice that they run
 * in another one, and not that several run on one kernel. */
static void cover_boot_id(const char *path)
{
    static const char file[] = "dev/.boot_id";
    struct mount_attr attributes = {.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID |
                                                MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC};
    AUTO_FD fd = open(file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);

    write_boot_id(fd, path);
    if (mount(file, path, NULL, MS_BIND, NULL) != 0 ||
        syscall(SYS_mount_setattr, AT_FDCWD, path, 0, &attributes, sizeof attributes) !=
            0 ||
        unlink(file) != 0)
        report_failure(errno, "init.boot", path);
}

/* --- The plan --- */

/* The state of the set-up: the mounts from the library, and how many are attached. */
struct setup {
    const struct plan *plan;
    int mounts[PLAN_MOUNTS_MAX];
    size_t count, used;
    int bottom;             /* the mount below the root, or -1 */
    int tree;               /* the last TREE, if PID 1 builds it */
    int lowers[LAYERS_MAX]; /* of a root that PID 1 builds, the highest first */
    size_t lower_count;
    int disk;     /* of a root that PID 1 builds, or -1 */
    bool is_kept; /* the disk has its files already */
    int proc, terminals;
    unsigned char todo[PLAN_STEPS_MAX]; /* enum todo */
};

static const char *text_of(const struct plan *plan, uint32_t offset)
{
    if (offset >= plan->bytes_len)
        report_failure(EINVAL, "init.plan", "offset");
    return plan_bytes(plan) + offset;
}

static const struct plan *map_plan(void)
{
    struct stat st;

    if (fstat(PLAN_FD, &st) != 0 || st.st_size < (off_t)sizeof(struct plan))
        report_failure(EINVAL, "init.plan", "size");
    const struct plan *plan =
        mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, PLAN_FD, 0);
    if (plan == MAP_FAILED)
        report_failure(errno, "init.plan", "mmap");
    if (plan->version != PLAN_VERSION || plan->size != (size_t)st.st_size ||
        plan->step_count > PLAN_STEPS_MAX || plan->filter_len > PLAN_FILTER_MAX ||
        plan->bytes_len > PLAN_BYTES_MAX ||
        plan->size != sizeof *plan + plan->filter_len * sizeof(struct plan_filter) +
                          plan->step_count * sizeof(struct plan_step) + plan->bytes_len)
        report_failure(EINVAL, "init.plan", "version");
    return plan;
}

/* The number of descriptors.  Exits if the library is gone. */
static size_t receive(void *ret_order, size_t len, int fds[PLAN_MOUNTS_MAX])
{
    struct iovec part = {ret_order, len};
    size_t count;
    ssize_t got = rights_receive(STATUS_FD, &part, 1, fds, PLAN_MOUNTS_MAX, &count, 0);

    if (got == -EPROTO || got == -EMFILE)
        report_failure((int)-got, "init.go", "descriptors");
    if (got != (ssize_t)len)
        _exit(1);
    return count;
}

/* Moves them to their fixed numbers. */
static void arrange_fds(int fds[], size_t count, const struct plan_begin *begin)
{
    size_t placed = 2 + begin->cgroup, right = 0;

    while (right < placed && fds[right] == PLAN_FD + (int)right)
        right++;
    if (right == placed)
        return;
    for (size_t i = 0; i < count; i++) {
        int high = fcntl(fds[i], F_DUPFD_CLOEXEC, FIRST_FREE_FD + PLAN_BEGIN_FDS_MAX);
        if (high < 0)
            report_failure(errno, "init.go", "descriptors");
        (void)close(fds[i]);
        fds[i] = high;
    }
    for (size_t i = 0; i < placed; i++)
        if (dup3(fds[i], PLAN_FD + (int)i, O_CLOEXEC) < 0)
            report_failure(errno, "init.go", "descriptors");
        else
            (void)close(fds[i]);
}

/* Before the first fork, so that every process is inside the limits. */
static void join_groups(const int *tasks, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (write(tasks[i], "0", 1) != 1)
            report_failure(errno, "init.cgroup", "tasks");
        (void)close(tasks[i]);
    }
}

static const struct plan *wait_to_begin(void)
{
    int fds[PLAN_MOUNTS_MAX] = {0};
    struct plan_begin begin;
    size_t count = receive(&begin, sizeof begin, fds);

    if (begin.version != PLAN_VERSION || begin.cgroup > 1 ||
        begin.tasks > PLAN_TASKS_MAX || count != 2 + begin.cgroup + begin.tasks)
        report_failure(EPROTO, "init.go", "version");
    arrange_fds(fds, count, &begin);
    join_groups(fds + 2 + begin.cgroup, begin.tasks);
    return map_plan();
}

static void wait_for_go(struct setup *setup)
{
    struct plan_go go;

    setup->count = receive(&go, sizeof go, setup->mounts);
    if (go.version != PLAN_VERSION || setup->count != go.mounts)
        report_failure(EPROTO, "init.go", "version");
}

/* Without a gid map range, setgroups is denied: the user's supplementary groups stay;
 * inside they are not mapped. */
static void take_identity(const struct plan *plan)
{
    /* Raw calls: the C library's also look for other threads. */
    if (syscall(SYS_setgroups, 0L, NULL) != 0 && !(plan->one_user && errno == EPERM))
        report_failure(errno, "init.user", "groups");
    if (syscall(SYS_setresgid, plan->gid, plan->gid, plan->gid) != 0 ||
        syscall(SYS_setresuid, plan->uid, plan->uid, plan->uid) != 0)
        report_failure(errno, "init.user", "ids");
}

static void raise_loopback(void)
{
    struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
    AUTO_FD fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &request) != 0)
        report_failure(errno, "init.network", "lo");
}

/* PID 1 keeps none of the sockets: code inside must not reach them through it. */
static void collect_network(void)
{
    const struct plan_sockets message = {PLAN_VERSION};
    const struct iovec part = {(void *)(uintptr_t)&message, sizeof message};
    struct collect collect;
    enum collect_step step;
    int sockets[COLLECT_SOCKETS];

    collect_build(&collect);
    int error = collect_start(&collect, sockets, &step);
    if (error)
        report_failure(-error, "init.relay", collect_step_text(step));
    error = rights_send(STATUS_FD, &part, 1, sockets, COLLECT_SOCKETS, 0);
    if (error)
        _exit(1); /* the library is gone */
    for (size_t i = 0; i < COLLECT_SOCKETS; i++)
        (void)close(sockets[i]);
}

/* Mounted there in this mount namespace, it becomes "." */
static void attach_at(int fd, const char *path)
{
    if (syscall(SYS_move_mount, fd, "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH) != 0 ||
        chdir(path) != 0)
        report_failure(errno, "init.mount", "");
}

/* The target does not fit.  An image can be like that, or root inside has changed it
 * before a restart: the sandbox must start all the same. */
static bool is_in_the_way(int error)
{
    return error == -ENOENT || error == -ENOTDIR || error == -EISDIR || error == -ELOOP;
}

static void attach(int fd, const char *path, unsigned flags)
{
    bool is_chosen = flags & (PLAN_ON_DIRECTORY | PLAN_ON_FILE);
    AUTO_FD target = is_chosen
                         ? open_target(path, flags & PLAN_ON_DIRECTORY)
                         : path_open(AT_FDCWD, path, O_PATH | O_NOFOLLOW, 0, PATH_PLAIN);

    if (flags & PLAN_IF_IT_CAN && is_in_the_way(target))
        return;
    if (target < 0 && is_chosen)
        report_place(-target, path);
    if (target < 0)
        report_failure(-target, "init.mount", path);
    if (syscall(SYS_move_mount, fd, "", target, "",
                MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) != 0)
        report_failure(errno, "init.mount", path);
}

static bool is_of_host(uint32_t kind)
{
    return kind == PLAN_BIND || kind == PLAN_CHANGES || kind == PLAN_LOWER ||
           kind == PLAN_DISK;
}

/* A copy-on-write view of the last bind. */
static void cover_bind(struct setup *setup, int changes, const char *source)
{
    int *bind = setup->count ? &setup->mounts[setup->count - 1] : NULL;
    int fd = bind ? layers_overlay(bind, 1, changes, 0) : -EINVAL;

    if (fd < 0)
        report_failure(-fd, "init.bind", source);
    (void)close(*bind);
    (void)close(changes);
    *bind = fd;
}

/* Clones the host's mounts before the new root covers WORK. */
static void take_binds(struct setup *setup)
{
    struct stat st;

    for (uint32_t i = 0; i < setup->plan->step_count; i++) {
        const struct plan_step *step = &plan_steps(setup->plan)[i];
        if (!is_of_host(step->kind) || setup->count == PLAN_MOUNTS_MAX)
            continue;
        const char *source = text_of(setup->plan, step->data);
        int fd = build_bind(source, step->flags);
        if (fd < 0)
            report_failure(-fd, "init.bind", source);
        if (step->number && (fstat(fd, &st) != 0 || st.st_ino != step->number))
            report_failure(ESTALE, "init.bind", source);
        if (step->kind == PLAN_BIND)
            setup->mounts[setup->count++] = fd;
        else if (step->kind == PLAN_CHANGES)
            cover_bind(setup, fd, source);
        else if (step->kind == PLAN_DISK)
            setup->disk = fd;
        else if (setup->lower_count == LAYERS_MAX)
            report_failure(E2BIG, "init.plan", "layers");
        else
            setup->lowers[setup->lower_count++] = fd;
        setup->is_kept |= step->kind == PLAN_DISK && !step->mode;
    }
}

/* The root of an ordinary user's sandbox: the disk, or an overlay over the template with
 * the disk or a tmpfs above. */
static int make_root(const struct setup *setup, const struct plan_step *step)
{
    const struct plan *plan = setup->plan;

    if (setup->disk >= 0 && !setup->is_kept &&
        fchownat(setup->disk, "upper", plan->uid, plan->gid, AT_SYMLINK_NOFOLLOW) != 0)
        return -errno;
    return setup->lower_count == 0 ? layers_disk(setup->disk)
                                   : layers_overlay(setup->lowers, setup->lower_count,
                                                    setup->disk, step->number);
}

static int next_mount(struct setup *setup, const struct plan_step *step)
{
    const struct plan *plan = setup->plan;

    if (plan->prepared || step->kind == PLAN_BIND)
        return setup->used < setup->count ? setup->mounts[setup->used++] : -EINVAL;
    if (step->kind == PLAN_ROOT)
        return make_root(setup, step);
    return plan->one_user ? build_tree(step, plan->uid, plan->gid)
                          : build_tree(step, step->uid, step->gid);
}

static void take_mount(struct setup *setup, const struct plan_step *step,
                       const char *path)
{
    int fd = next_mount(setup, step);

    if (fd == -EOPNOTSUPP && step->kind == PLAN_ROOT)
        report_no_marks(setup->disk < 0);
    if (fd < 0)
        report_failure(-fd, "init.mount", path);
    if (*path)
        attach(fd, path, step->flags);
    else
        attach_at(fd, setup->bottom < 0 ? WORK : PLAN_BOTTOM_ROOT);
    /* A root over a template, or one filled earlier, is not filled. */
    bool is_filled = step->kind == PLAN_ROOT && !setup->lower_count && !setup->is_kept;
    if ((step->kind != PLAN_TREE && !is_filled) || setup->plan->prepared) {
        (void)close(fd);
        return;
    }
    if (setup->tree >= 0)
        (void)close(setup->tree);
    setup->tree = fd;
}

static void take_bottom(struct setup *setup)
{
    setup->bottom = setup->used < setup->count ? setup->mounts[setup->used++] : -1;
    if (setup->bottom < 0)
        report_failure(EINVAL, "init.plan", "mounts");
    attach_at(setup->bottom, WORK);
}

/* Only host root can create device nodes: bind-mount the host's instead. */
static int show_device(const struct plan_step *step, const char *path, int tree)
{
    char source[32];
    struct stat st;
    AUTO_FD file = openat(tree, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);

    snprintf(source, sizeof source, "/dev/%.16s", path);
    AUTO_FD mount = build_bind(source, PLAN_WITH_DEVICES | PLAN_WITH_WRITING);
    if (mount < 0)
        return mount;
    if (file < 0 || fstat(mount, &st) != 0)
        return -errno;
    if (!S_ISCHR(st.st_mode) || st.st_rdev != (dev_t)step->number)
        return -ENODEV;
    return syscall(SYS_move_mount, mount, "", tree, path, MOVE_MOUNT_F_EMPTY_PATH) == 0
               ? 0
               : -errno;
}

static void make_entry(const struct setup *setup, const struct plan_step *step,
                       const char *path)
{
    const char *data = text_of(setup->plan, step->data);

    if (setup->plan->prepared || setup->tree < 0)
        return;
    if (step->data_len > setup->plan->bytes_len - step->data)
        report_failure(EINVAL, "init.plan", "length");
    int error = step->kind == PLAN_NODE ? show_device(step, path, setup->tree)
                                        : build_entry(step, path, data, setup->tree);
    if (!error && !setup->plan->one_user && (step->uid || step->gid) &&
        fchownat(setup->tree, path, step->uid, step->gid, AT_SYMLINK_NOFOLLOW) != 0)
        error = -errno;
    if (error)
        report_failure(-error, "init.root", path);
}

/* Creates a directory or file in the assembled root. */
static void make_in_place(const struct setup *setup, const struct plan_step *step,
                          const char *path)
{
    const char *data = text_of(setup->plan, step->data);

    if (step->data_len > setup->plan->bytes_len - step->data)
        report_failure(EINVAL, "init.plan", "length");
    int error = step->kind == PLAN_NEED ? make_needed(step, path)
                                        : replace_file(step, path, data);
    if (error && !is_in_the_way(error))
        report_failure(-error, "init.root", path);
}

static void forbid_nesting(int proc)
{
    AUTO_FD fd = openat(proc, "sys/user/max_user_namespaces", O_WRONLY | O_CLOEXEC);

    if (fd < 0 || write(fd, "0", 1) != 1)
        report_failure(errno, "init.nesting", "max_user_namespaces");
}

/* The part that needs only the plan and the uid map, while the library is still at work.
 */
static void make_ready(struct setup *setup)
{
    const struct plan *plan = setup->plan;

    if (sethostname(plan->hostname, strnlen(plan->hostname, 64)) != 0)
        report_failure(errno, "init.hostname", plan->hostname);
    setup->proc = build_proc();
    if (setup->proc < 0)
        report_failure(-setup->proc, "init.mount", "proc");
    forbid_nesting(setup->proc);
    setup->terminals = build_terminals(plan->one_user ? -1 : TERMINALS_GID);
    if (setup->terminals < 0)
        report_failure(-setup->terminals, "init.mount", "dev/pts");
    for (uint32_t i = 0; i < plan->step_count; i++) {
        const struct plan_step *step = &plan_steps(plan)[i];
        if (step->kind == PLAN_MASK)
            setup->todo[i] =
                (unsigned char)inspect(setup->proc, text_of(plan, step->path));
    }
}

/* Through no link: the root may be a hostile image. */
static void attach_ready(int *fd, const char *path)
{
    attach(*fd, path, 0);
    (void)close(TAKE_FD(*fd));
}

static void take_step(struct setup *setup, const struct plan_step *step, enum todo todo)
{
    const char *path = text_of(setup->plan, step->path);

    switch ((enum plan_kind)step->kind) {
    case PLAN_TREE:
    case PLAN_ROOT:
    case PLAN_BIND:
        take_mount(setup, step, path);
        return;
    case PLAN_BOTTOM:
        take_bottom(setup);
        return;
    case PLAN_NEED:
    case PLAN_REPLACE:
        make_in_place(setup, step, path);
        return;
    case PLAN_DIRECTORY:
    case PLAN_FILE:
    case PLAN_LINK:
    case PLAN_NODE:
        make_entry(setup, step, path);
        return;
    case PLAN_PROC:
        attach_ready(&setup->proc, path);
        return;
    case PLAN_DEVPTS:
        attach_ready(&setup->terminals, path);
        return;
    case PLAN_MASK:
        hide(path, todo == TODO_DIRECTORY);
        return;
    case PLAN_READ_ONLY:
        make_read_only(path);
        return;
    case PLAN_BOOT_ID:
        cover_boot_id(path);
        return;
    case PLAN_CHANGES:
    case PLAN_LOWER:
    case PLAN_DISK:
        return; /* opened by take_binds() */
    case PLAN_WRITABLE:
    case PLAN_READABLE:
        return; /* for landlock, later */
    }
    report_failure(EINVAL, "init.plan", "kind");
}

/* With a bottom, that is the root of the mount namespace and no process inside can leave
 * the root on it: none may call chroot(2). */
static void change_root(int bottom)
{
    struct stat root, above;

    if (bottom >= 0 && fchdir(bottom) != 0)
        report_failure(errno, "init.root", "chdir");
    if (syscall(SYS_pivot_root, ".", ".") != 0)
        report_failure(errno, "init.root", "pivot_root");
    if (umount2(".", MNT_DETACH) != 0 || chdir("/") != 0)
        report_failure(errno, "init.root", "umount");
    if (bottom >= 0 && (chroot(PLAN_BOTTOM_ROOT) != 0 || chdir("/") != 0))
        report_failure(errno, "init.root", "chroot");
    if (stat("/", &root) != 0 || stat("/..", &above) != 0 ||
        root.st_ino != above.st_ino || root.st_dev != above.st_dev)
        report_failure(errno, "init.root", "..");
}

static void enter_namespaces(enum setup_kind kind)
{
    int flags = CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS;

    if (unshare(flags | (kind == SETUP_FILES ? 0 : CLONE_NEWNET)) != 0)
        report_failure(errno, "init.namespaces", "unshare");
    if (kind == SETUP_NETWORK)
        raise_loopback();
    else if (kind == SETUP_RELAY)
        collect_network();
}

/* Without namespaces there is no root to build. */
static void stay_outside(const struct plan *plan)
{
    if (chdir(*plan->home ? plan->home : "/") != 0)
        report_failure(errno, "init.root", "home");
    /* Orphans of commands become children of this process. */
    if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0)
        report_failure(errno, "init.user", "subreaper");
}

static void build_root(struct setup *setup)
{
    const struct plan *plan = setup->plan;

    umask(0);
    if (!plan->prepared)
        take_binds(setup);
    for (uint32_t i = 0; i < plan->step_count; i++)
        if (setup->todo[i] != TODO_NOTHING)
            take_step(setup, &plan_steps(plan)[i], setup->todo[i]);
    (void)!rmdir(nothing);
    for (size_t i = 0; i < 2; i++)
        auto_close((const int[]){setup->tree, setup->disk} + i);
    for (size_t i = 0; i < setup->lower_count; i++)
        auto_close(&setup->lowers[i]);
    umask(022);
    change_root(setup->bottom);
    /* After joining the cgroup, which becomes the root of the cgroup namespace. */
    if (unshare(CLONE_NEWCGROUP) != 0)
        report_failure(errno, "init.cgroup", "namespace");
}

_Noreturn void setup_run(enum setup_kind kind)
{
    struct setup setup = {
        .bottom = -1, .tree = -1, .disk = -1, .proc = -1, .terminals = -1};
    bool outside = kind == SETUP_NOTHING || kind == SETUP_HOST;

    if (!outside) {
        enter_namespaces(kind);
        confine_bounding_set();
    }
    const struct plan *plan = setup.plan = wait_to_begin();
    if (plan->no_namespaces != outside || plan->unconfined != (kind == SETUP_HOST))
        report_failure(EINVAL, "init.plan", "namespaces");
    if (!plan->unconfined)
        take_identity(plan);
    if (!outside)
        make_ready(&setup);
    wait_for_go(&setup);
    if (outside)
        stay_outside(plan);
    else
        build_root(&setup);
    if (plan->unconfined)
        confine_nothing(plan);
    else
        confine_self(plan, setup.bottom);
    auto_close(&setup.bottom);
    serve(plan);
}
