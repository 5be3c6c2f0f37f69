/* SPDX-License-Identifier: Apache-2.0 */

/* The mounts on the old root are cloned, not moved: PID 1 uses the old root until
 * pivot_root(2), which replaces the root and the working directory of every process that
 * has the old one, and if a step before fails, nothing has changed. */
#include "native/layer/switch.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/buf.h"
#include "init/plan.h"
#include "native/make/visit.h"
#include "sys/clone.h"
#include "sys/path.h"

/* --- The mounts on the root --- */

enum { READ_SIZE = 16 << 10, MOUNTINFO_MAX = 16 << 20 };

struct mounts {
    struct switch_mount *list;
    size_t count;
};

/* mountinfo writes space, tab, newline and backslash as three octal digits. */
static void unescape(char *text)
{
    char *to = text;

    for (const char *from = text; *from; from++)
        if (from[0] == '\\' && from[1] >= '0' && from[1] <= '3' && from[2] && from[3]) {
            *to++ = (char)((from[1] & 7) << 6 | (from[2] & 7) << 3 | (from[3] & 7));
            from += 3;
        } else {
            *to++ = *from;
        }
    *to = '\0';
}

/* "ID PARENT MAJOR:MINOR ROOT PATH ..." */
static bool parse_line(char *line, int *ret_id, int *ret_parent, char **ret_path)
{
    char *fields[5], *at = line;

    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        fields[i] = at;
        at = strchr(at, ' ');
        if (!at)
            return false;
        *at++ = '\0';
    }
    *ret_id = (int)strtol(fields[0], NULL, 10);
    *ret_parent = (int)strtol(fields[1], NULL, 10);
    *ret_path = fields[4];
    unescape(*ret_path);
    return true;
}

static int add_mount(struct mounts *mounts, int id, const char *path)
{
    if (mounts->count == SWITCH_MOUNTS_MAX || strlen(path) >= sizeof mounts->list->path ||
        path[0] != '/')
        return -E2BIG;
    struct switch_mount *mount = &mounts->list[mounts->count++];
    mount->id = id;
    memcpy(mount->path, path + 1, strlen(path));
    return 0;
}

/* One pass: the id of the root, or the mounts on `root`.  The list is in no order. */
static int scan_mounts(FILE *file, int *root, struct mounts *mounts)
{
    char *line = NULL, *place;
    size_t room = 0;
    int id, parent, error = 0;

    rewind(file);
    while (!error && getline(&line, &room, file) > 0) {
        if (!parse_line(line, &id, &parent, &place))
            error = -EPROTO;
        else if (!mounts && strcmp(place, "/") == 0)
            *root = id;
        else if (mounts && parent == *root)
            error = add_mount(mounts, id, place);
    }
    free(line);
    return error;
}

/* The kernel formats all mounts again for each pass over the file itself. */
static int read_all(const char *path, struct buf *ret_text)
{
    AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : 1;

    while (got > 0) {
        if (!buf_reserve(ret_text, READ_SIZE))
            return -E2BIG;
        got = read(fd, ret_text->data + ret_text->len, READ_SIZE);
        ret_text->len += got > 0 ? (size_t)got : 0;
    }
    return got < 0 ? -errno : 0;
}

/* PID 1 sees only the root and what is on it. */
static int read_mounts(pid_t init, struct mounts *mounts)
{
    char path[64];
    int root = -1;
    AUTO_BUF text;

    buf_init(&text, MOUNTINFO_MAX);
    snprintf(path, sizeof path, "/proc/%d/mountinfo", (int)init);
    int error = read_all(path, &text);
    FILE *file = error || !text.len ? NULL : fmemopen(text.data, text.len, "r");
    if (!file)
        return error ? error : text.len ? -errno : -EPROTO;
    error = scan_mounts(file, &root, NULL);
    if (!error)
        error = root < 0 ? -EPROTO : scan_mounts(file, &root, mounts);
    (void)fclose(file);
    return error;
}

/* --- The switch --- */

struct root_switch {
    int root, usr;
    struct mounts mounts;
    int old;
    struct switch_failure *failure;
};

IN_CLONE static int fail(struct root_switch *job, int error, const char *step,
                         const char *path)
{
    size_t len = strnlen(path, sizeof job->failure->path - 1);

    job->failure->step = step;
    memcpy(job->failure->path, path, len);
    job->failure->path[len] = '\0';
    return error;
}

enum { MOUNT_ID = 0x1000 /* STATX_MNT_ID */, MOUNT_ID_AT = 144 / 8 };

IN_CLONE static int mount_id(int fd, uint64_t *ret_id)
{
    uint64_t found[32] = {0}; /* struct statx, which older C libraries lack */

    if (syscall(SYS_statx, fd, "", AT_EMPTY_PATH, MOUNT_ID, found) != 0)
        return -errno;
    *ret_id = found[MOUNT_ID_AT];
    return 0;
}

/* A clone of the mount with everything on it.  Its path was read before, so it is
 * compared. */
IN_CLONE static int clone_mount(const struct root_switch *job,
                                const struct switch_mount *mount)
{
    uint64_t id = 0;
    AUTO_FD fd = path_open(job->old, mount->path, O_PATH | O_NOFOLLOW, 0, PATH_PLAIN);

    if (fd < 0)
        return TAKE_FD(fd);
    int error = mount_id(fd, &id);
    if (error || id != (unsigned)mount->id)
        return error ? error : -ESTALE;
    int clone =
        (int)syscall(SYS_open_tree, fd, "",
                     AT_EMPTY_PATH | AT_RECURSIVE | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    return clone < 0 ? -errno : clone;
}

IN_CLONE static int attach(int mount, int target)
{
    return syscall(SYS_move_mount, mount, "", target, "",
                   MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) == 0
               ? 0
               : -errno;
}

IN_CLONE static int carry_mount(struct root_switch *job, const struct switch_mount *mount)
{
    bool is_usr = job->usr >= 0 && strcmp(mount->path, "usr") == 0;
    AUTO_FD clone = is_usr ? -1 : clone_mount(job, mount);
    int from = is_usr ? job->usr : clone;

    if (from < 0)
        return fail(job, from, "clone", mount->path);
    AUTO_FD to = path_open(job->root, mount->path, O_PATH | O_NOFOLLOW, 0, PATH_PLAIN);
    int error = to < 0 ? to : attach(from, to);
    return error ? fail(job, error, "place", mount->path) : 0;
}

IN_CLONE static int set_read_only(int mount, bool is_read_only)
{
    struct mount_attr attributes = {.attr_set = is_read_only ? MOUNT_ATTR_RDONLY : 0,
                                    .attr_clr = is_read_only ? 0 : MOUNT_ATTR_RDONLY};

    return syscall(SYS_mount_setattr, mount, "", AT_EMPTY_PATH, &attributes,
                   sizeof attributes) == 0
               ? 0
               : -errno;
}

/* The new root is mounted on the old one, and then they change places. */
IN_CLONE static int pivot(const struct root_switch *job)
{
    if (fchdir(job->old) != 0 || chroot(".") != 0)
        return -errno;
    if (syscall(SYS_move_mount, job->root, "", AT_FDCWD, ".", MOVE_MOUNT_F_EMPTY_PATH) !=
        0)
        return -errno;
    if (fchdir(job->root) == 0 && syscall(SYS_pivot_root, ".", ".") == 0) {
        (void)umount2(".", MNT_DETACH); /* the old root, which is on the new one now */
        return 0;
    }
    int error = -errno;
    (void)umount2(".", MNT_DETACH);
    return error;
}

IN_CLONE static int switch_inside(void *cookie)
{
    struct root_switch *job = cookie;

    job->old = path_open(AT_FDCWD, PLAN_BOTTOM_ROOT, O_PATH | O_DIRECTORY, 0, PATH_PLAIN);
    if (job->old < 0)
        return fail(job, job->old, "root", "");
    for (size_t i = 0; i < job->mounts.count; i++) {
        int error = carry_mount(job, &job->mounts.list[i]);
        if (error)
            return error;
    }
    int error = set_read_only(job->old, true);
    if (error)
        return fail(job, error, "writers", "");
    error = pivot(job);
    if (!error)
        return job->old; /* the last reference */
    (void)set_read_only(job->old, false);
    return fail(job, error, "pivot", "");
}

int switch_root(int namespace, pid_t init, int root, int usr,
                struct switch_failure *ret_failure)
{
    struct root_switch job = {
        .root = root, .usr = usr, .old = -1, .failure = ret_failure};

    *ret_failure = (struct switch_failure){.step = "mountinfo"};
    job.mounts.list = calloc(SWITCH_MOUNTS_MAX, sizeof *job.mounts.list);
    if (!job.mounts.list)
        return -ENOMEM;
    int error = read_mounts(init, &job.mounts);
    if (!error)
        error = visit_run_and_close(namespace, switch_inside, &job);
    free(job.mounts.list);
    return error;
}

/* --- After a switch whose process died --- */

enum { ROOTS_MAX = 8 };

/* The new root is on the old one before pivot_root(2), and the other way round after it.
 */
IN_CLONE static int repair_inside(void *cookie)
{
    const uint64_t *root = cookie;
    uint64_t id = 0;

    for (int i = 0; i < ROOTS_MAX; i++) {
        AUTO_FD top =
            path_open(AT_FDCWD, PLAN_BOTTOM_ROOT, O_PATH | O_DIRECTORY, 0, PATH_PLAIN);
        int error = top < 0 ? top : mount_id(top, &id);
        if (error || id == *root)
            return error ? error : set_read_only(top, false);
        if (umount2(PLAN_BOTTOM_ROOT, MNT_DETACH | UMOUNT_NOFOLLOW) != 0)
            return -errno;
    }
    return -EIO;
}

int switch_repair(int namespace, pid_t init)
{
    char path[64];
    uint64_t id = 0;

    snprintf(path, sizeof path, "/proc/%d/root", (int)init);
    AUTO_FD root = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int error = root < 0 ? -errno : mount_id(root, &id);
    return error ? error : visit_run(namespace, repair_inside, &id);
}
