/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "files/handle.h"
#include "sys/path.h"

/* For parent_undo().  A directory that was not made counts if those above it were. */
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

/* Makes the directories of `rest` below `dir` one by one.  Each new one is entered by
 * descriptor, so what is made is made below `dir` whatever is renamed meanwhile. */
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

        int error = make_directory(parent, current, name);
        if (error)
            return error;
        int next = fs->open(fs, current, name, O_PATH | O_DIRECTORY, 0, PATH_PLAIN);
        if (next < 0)
            return next;
        (void)close(current);
        current = next;
    }
    parent->fd = TAKE_FD(current);
    return 0;
}

/* The deepest directory above `path`, which does not exist, that does: a descriptor or a
 * negative errno.  *ret_rest is what is missing below it. */
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

/* Cuts the last component off a path and returns it. */
static const char *split(const char *rel, char ret_path[PATH_MAX])
{
    const char *slash = strrchr(rel, '/');
    size_t len = slash ? (size_t)(slash - rel) : 0;

    memcpy(ret_path, rel, len);
    ret_path[len] = '\0';
    return slash ? slash + 1 : rel;
}

/* A link can only have come here since the path was resolved. */
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
