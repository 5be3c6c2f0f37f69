/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "files/handle.h"
#include "policy/tidy.h"
#include "sys/path.h"

const struct mount *target_mount(const cay_files *files, const struct target *target)
{
    return &files->policy->mounts[target->mount];
}

bool target_lies_in(const struct target *inner, const struct target *outer)
{
    return inner->mount == outer->mount && tidy_covers(outer->rel, inner->rel);
}

int target_fail(const struct target *target, int sys_errno, struct cay_error *err)
{
    return fs_fail(target->fs, sys_errno, target->op, target->path, err);
}

static int check_access(const cay_files *files, const struct target *target,
                        unsigned access, struct cay_error *err)
{
    const cay_policy *policy = files->policy;
    unsigned granted = policy_access(policy, target->mount, target->rel);

    if (access & ~(unsigned)(CAY_ACCESS_READ | CAY_ACCESS_WRITE))
        return cay_fail(err, CAY_E_UNSUPPORTED, 0, target->op, "access",
                        "unknown access bits", "use the bits of enum cay_access");
    if (policy_is_hidden(policy, target->mount, target->rel))
        return policy_fail_outside(policy, target->op, target->path, NULL, err);
    if (access & CAY_ACCESS_WRITE & ~granted)
        return policy_fail_read_only(policy, target->op, target->path, err);
    if (access & CAY_ACCESS_READ & ~granted)
        return policy_fail_outside(policy, target->op, target->path, NULL, err);
    return CAY_OK;
}

int target_find(const cay_files *files, const char *op, const char *path, unsigned access,
                unsigned how, struct target *ret_target, struct cay_error *err)
{
    struct place place;
    struct fs_found found = {.fd = -1, .dir = -1};

    ret_target->fs = files->fs;
    ret_target->op = op;
    ret_target->path = path;
    ret_target->fd = ret_target->dir = -1;
    TRY(policy_place(files->policy, op, path, &place, err));
    ret_target->mount = place.mount;

    int error = files->fs->find(files->fs, files->roots[place.mount],
                                files->policy->mounts[place.mount].host, place.rel, how,
                                ret_target->rel, &found);
    ret_target->fd = found.fd;
    ret_target->st = found.st;
    ret_target->is_open = found.is_open;
    ret_target->dir = found.dir;
    ret_target->write_error = found.write_error;
    if (error == -EXDEV)
        return policy_fail_outside(files->policy, op, path,
                                   "a symbolic link in the path leads out", err);
    if (error)
        return target_fail(ret_target, -error, err);
    return check_access(files, ret_target, access, err);
}

void target_done(struct target *target)
{
    if (target->fd >= 0)
        (void)close(target->fd);
    if (target->dir >= 0)
        (void)close(target->dir);
    target->fd = target->dir = -1;
    target->is_open = false;
}

bool target_link_shows_host(const struct target *target, const char *text)
{
    char joined[2 * PATH_MAX + 4], plain[PATH_MAX];
    int len = snprintf(joined, sizeof joined, "%s/../%s", target->rel, text);

    return *text == '/' || tidy_path(joined, (size_t)len, 0, plain).climbs;
}

int target_must_exist(const struct target *target, struct cay_error *err)
{
    return target->fd >= 0 ? CAY_OK : target_fail(target, ENOENT, err);
}

static const char *kind_of(mode_t mode)
{
    return S_ISDIR(mode)    ? "is a directory, not a file"
           : S_ISLNK(mode)  ? "is a symbolic link, not a file"
           : S_ISFIFO(mode) ? "is a FIFO, not a regular file"
           : S_ISSOCK(mode) ? "is a socket, not a regular file"
                            : "is a device, not a regular file";
}

int target_must_be_file(const struct target *target, struct cay_error *err)
{
    TRY(target_must_exist(target, err));
    if (S_ISREG(target->st.st_mode))
        return CAY_OK;
    return cay_fail(err, CAY_E_NOT_A_FILE, S_ISDIR(target->st.st_mode) ? EISDIR : 0,
                    target->op, target->path, kind_of(target->st.st_mode),
                    "name a regular file; list the directory to see what is there");
}

int target_must_be_directory(const struct target *target, struct cay_error *err)
{
    TRY(target_must_exist(target, err));
    if (S_ISDIR(target->st.st_mode))
        return CAY_OK;
    return cay_fail(err, CAY_E_NOT_A_DIRECTORY, ENOTDIR, target->op, target->path,
                    "is not a directory", "name the directory the file is in");
}

int target_check_suffix(const cay_files *files, const struct target *target,
                        struct cay_error *err)
{
    return policy_check_suffix(target_mount(files, target), target->op, target->path,
                               target->rel, err);
}

int target_check_size(const cay_files *files, const struct target *target, uint64_t bytes,
                      struct cay_error *err)
{
    return policy_check_size(target_mount(files, target), target->op, target->path, bytes,
                             err);
}

uint64_t target_text_max(const struct stat *st)
{
    enum { BLOCK = 512, COMPRESSED = 64 };
    uint64_t stored = (uint64_t)st->st_blocks * BLOCK * COMPRESSED;

    return stored > TARGET_TEXT_MAX ? stored : TARGET_TEXT_MAX;
}

static int duplicate(int fd)
{
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);

    return copy < 0 ? -errno : copy;
}

int target_open(const struct target *target, int flags, int *ret_fd,
                struct cay_error *err)
{
    struct stat st;
    bool copied = false;
    AUTO_FD fd = target->is_open && flags == O_RDONLY
                     ? duplicate(target->fd)
                     : target->fs->reopen(target->fs, target->fd, flags, &copied);

    if (fd == -ENOSYS)
        return cay_fail(err, CAY_E_UNAVAILABLE, ENOSYS, target->op, target->path,
                        "/proc is not mounted, so an open file cannot be verified",
                        "mount it: mount -t proc proc /proc");
    if (fd < 0)
        return target_fail(target, -fd, err);
    if (fstat(fd, &st) != 0)
        return target_fail(target, errno, err);
    bool is_same = st.st_dev == target->st.st_dev && st.st_ino == target->st.st_ino;
    if (!S_ISREG(st.st_mode) || !(is_same || copied))
        return target_fail(target, EAGAIN, err);
    *ret_fd = TAKE_FD(fd);
    return CAY_OK;
}

int target_try_read(const struct target *target)
{
    int flags = S_ISDIR(target->st.st_mode) ? O_RDONLY | O_DIRECTORY : O_RDONLY;
    bool copied;

    if (target->is_open)
        return 0;
    if (!S_ISREG(target->st.st_mode) && !S_ISDIR(target->st.st_mode))
        return -ENXIO;
    AUTO_FD fd = target->fs->reopen(target->fs, target->fd, flags, &copied);
    return fd < 0 ? fd : 0;
}

int target_open_for_reading(cay_files *files, const char *op, const char *path,
                            const struct cay_pin *pin, struct target *ret_target,
                            int *ret_fd, struct stat *ret_stat, struct cay_error *err)
{
    struct cay_approval shown = {.op = CAY_OP_READ};
    AUTO_FD fd = -1;

    TRY(target_find(files, op, path, CAY_ACCESS_READ, TARGET_READ, ret_target, err));
    TRY(target_must_be_file(ret_target, err));
    TRY(target_check_suffix(files, ret_target, err));
    TRY(target_check_size(files, ret_target, (uint64_t)ret_target->st.st_size, err));
    TRY(target_check_pin(files, ret_target, pin, err));
    TRY(target_open(ret_target, O_RDONLY, &fd, err));
    TRY(approve(files, &shown, ret_target, CAY_ACCESS_READ, NULL, 0, err));
    if (fstat(fd, ret_stat) != 0)
        return target_fail(ret_target, errno, err);
    /* It may have grown since the lookup. */
    TRY(target_check_size(files, ret_target, (uint64_t)ret_stat->st_size, err));
    *ret_fd = TAKE_FD(fd);
    return CAY_OK;
}

/* --- Parent directories ----------------------------------------------------------------
 */

/* For parent_undo().  Below a directory that we created, one that another process created
 * counts too. */
static int note_made(struct parent *parent, int dir, const char *name, bool is_new)
{
    size_t used = strlen(parent->made);

    if (parent->made_in < 0 && !is_new)
        return 0;
    if (parent->made_in < 0) {
        parent->made_in = fcntl(dir, F_DUPFD_CLOEXEC, 3);
        if (parent->made_in < 0) {
            int error = -errno;
            (void)parent->fs->remove(parent->fs, dir, name, AT_REMOVEDIR);
            return error;
        }
        used = 0;
    }
    if (used)
        parent->made[used++] = '/';
    memcpy(parent->made + used, name, strlen(name) + 1);
    return 0;
}

static int make_directory(struct parent *parent, int dir, const char *name)
{
    int error = parent->fs->make_directory(parent->fs, dir, name, 0777);

    if (error && error != -EEXIST)
        return error;
    return note_made(parent, dir, name, !error);
}

/* Creates the directories of `rest` below `dir` one by one, and enters each by
 * descriptor: all of them end up below `dir` whatever is renamed meanwhile. */
static int make_directories(struct parent *parent, int dir, const char *rest)
{
    const struct fs *fs = parent->fs;
    char name[NAME_MAX + 1];
    AUTO_FD current = fcntl(dir, F_DUPFD_CLOEXEC, 3);

    if (current < 0)
        return -errno;
    while (*rest) {
        size_t len = strcspn(rest, "/");
        memcpy(name, rest, len);
        name[len] = '\0';
        rest += len + (rest[len] == '/');

        TRY(make_directory(parent, current, name));
        int next = fs->open(fs, current, name, O_PATH | O_DIRECTORY, 0, PATH_PLAIN);
        if (next < 0)
            return next;
        (void)close(current);
        current = next;
    }
    parent->fd = TAKE_FD(current);
    return 0;
}

/* The deepest existing directory above `path`, which does not exist: a descriptor or a
 * negative errno.  *ret_rest is the part of the path that is missing. */
static int open_deepest(const struct fs *fs, int root, const char *path,
                        const char **ret_rest)
{
    char existing[PATH_MAX];

    memcpy(existing, path, strlen(path) + 1);
    for (;;) {
        char *slash = strrchr(existing, '/');
        *(slash ? slash : existing) = '\0';
        int dir = fs->open(fs, root, existing, O_PATH | O_DIRECTORY, 0, PATH_PLAIN);
        *ret_rest = path + strlen(existing) + (slash != NULL);
        if (dir != -ENOENT || !*existing)
            return dir;
    }
}

static int open_or_make(struct parent *parent, int root, const char *path)
{
    const char *rest;
    AUTO_FD dir = open_deepest(parent->fs, root, path, &rest);

    return dir < 0 ? dir : make_directories(parent, dir, rest);
}

/* Splits off the last component of a path, and returns it. */
static const char *split(const char *rel, char ret_path[PATH_MAX])
{
    const char *slash = strrchr(rel, '/');
    size_t len = slash ? (size_t)(slash - rel) : 0;

    memcpy(ret_path, rel, len);
    ret_path[len] = '\0';
    return slash ? slash + 1 : rel;
}

/* The path was resolved, so ELOOP means that a link has replaced a directory since. */
static int fail_to_open(const struct target *target, int error, struct cay_error *err)
{
    return target_fail(target, error == -ELOOP ? EAGAIN : -error, err);
}

int parent_check(const cay_files *files, const struct target *target, bool make,
                 struct stat *ret_dir, struct cay_error *err)
{
    const struct fs *fs = files->fs;
    int root = files->roots[target->mount];
    char path[PATH_MAX];
    const char *rest;

    (void)split(target->rel, path);
    AUTO_FD fd = fs->open(fs, root, path, O_PATH | O_DIRECTORY, 0, PATH_PLAIN);
    if (fd == -ENOENT && make)
        fd = open_deepest(fs, root, path, &rest);
    int error = fd < 0 ? fd : fs->may_write(fs, fd);
    if (!error && fstat(fd, ret_dir) != 0)
        error = -errno;
    return error ? fail_to_open(target, error, err) : CAY_OK;
}

int parent_open(const cay_files *files, struct target *target, bool make,
                struct parent *ret_parent, struct cay_error *err)
{
    const struct fs *fs = files->fs;
    char path[PATH_MAX];
    int root = files->roots[target->mount];

    *ret_parent = (struct parent)PARENT_NONE;
    ret_parent->fs = fs;
    const char *name = split(target->rel, path);
    memcpy(ret_parent->name, name, strlen(name) + 1);

    int fd = target->dir >= 0
                 ? TAKE_FD(target->dir)
                 : fs->open(fs, root, path, O_PATH | O_DIRECTORY, 0, PATH_PLAIN);
    if (fd == -ENOENT && make) {
        int error = open_or_make(ret_parent, root, path);
        if (!error)
            return CAY_OK;
        parent_undo(ret_parent);
        fd = error;
    }
    if (fd < 0)
        return fail_to_open(target, fd, err);
    ret_parent->fd = fd;
    return CAY_OK;
}

int parent_make(struct parent *parent)
{
    return make_directory(parent, parent->fd, parent->name);
}

void parent_undo(struct parent *parent)
{
    const struct fs *fs = parent->fs;

    while (parent->made_in >= 0 && *parent->made) {
        char *slash = strrchr(parent->made, '/');
        const char *name = slash ? slash + 1 : parent->made;
        char above[PATH_MAX];
        size_t len = slash ? (size_t)(slash - parent->made) : 0;

        memcpy(above, parent->made, len);
        above[len] = '\0';
        AUTO_FD dir =
            fs->open(fs, parent->made_in, above, O_PATH | O_DIRECTORY, 0, PATH_PLAIN);
        if (dir >= 0)
            (void)fs->remove(fs, dir, name, AT_REMOVEDIR);
        *(slash ? slash : parent->made) = '\0';
    }
}

void parent_done(struct parent *parent)
{
    if (parent->fd >= 0)
        (void)close(parent->fd);
    if (parent->made_in >= 0)
        (void)close(parent->made_in);
    parent->fd = parent->made_in = -1;
}
