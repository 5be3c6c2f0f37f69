/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "files/walk.h"
#include "sys/path.h"

/* Removes a tree of any depth, whatever is renamed meanwhile: names are removed only
 * below open directories, entered one component at a time and never through a link or
 * into another mount.  At most LEVELS directories are open; deeper ones are moved up into
 * the topmost one and removed from there. */

enum { LEVELS = 64, PASSES_MAX = 1 << 20, TRIES_MAX = 64 };

struct level {
    int fd;
    bool removed_any; /* in this pass over the directory */
    uint32_t passes;
    size_t at, len; /* of what buffer holds */
    char name[NAME_MAX + 1];
    char buffer[4096] __attribute__((aligned(8)));
};

struct removal {
    const struct fs *fs;
    int dir; /* what the topmost level is in */
    size_t count;
    unsigned moved;
    struct level levels[LEVELS];
};

static int parent_of(const struct removal *removal, size_t level)
{
    return level ? removal->levels[level - 1].fd : removal->dir;
}

static int enter(struct removal *removal, const char *name)
{
    struct level *level = &removal->levels[removal->count];
    int fd = removal->fs->open(removal->fs, parent_of(removal, removal->count), name,
                               O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN | RESOLVE_NO_XDEV);

    if (fd < 0)
        return fd;
    level->fd = fd;
    level->removed_any = false;
    level->passes = 0;
    level->at = level->len = 0;
    memcpy(level->name, name, strlen(name) + 1);
    removal->count++;
    return 0;
}

/* Whatever has the name already is about to be removed anyway. */
static int move_up(struct removal *removal, int dir, const char *name)
{
    for (;;) {
        char place[32];
        snprintf(place, sizeof place, ".cay-removed-%u", removal->moved++);
        int error =
            removal->fs->rename(removal->fs, dir, name, removal->levels[0].fd, place, 0);
        if (error != -EEXIST && error != -ENOTEMPTY && error != -ENOTDIR)
            return error;
    }
}

/* One attempt at a name; -EAGAIN if its type changed meanwhile. */
static int try_to_remove(struct removal *removal, const char *name)
{
    const struct fs *fs = removal->fs;
    int dir = parent_of(removal, removal->count);

    int error = fs->remove(fs, dir, name, 0);
    if (!error || error == -ENOENT)
        return 0;
    if (error != -EISDIR)
        return error;
    error = fs->remove(fs, dir, name, AT_REMOVEDIR);
    if (!error || error == -ENOENT)
        return 0;
    if (error == -ENOTDIR)
        return -EAGAIN;
    if (error != -ENOTEMPTY && error != -EEXIST)
        return error;
    int result =
        removal->count == LEVELS ? move_up(removal, dir, name) : enter(removal, name);
    return result == -ENOENT                        ? 0
           : result == -ELOOP || result == -ENOTDIR ? -EAGAIN
                                                    : result;
}

/* Removes one name, or enters it if it is a directory that is not empty. */
static int remove_name(struct removal *removal, const char *name)
{
    int result = -EAGAIN;

    for (int tries = 0; tries < TRIES_MAX && result == -EAGAIN; tries++)
        result = try_to_remove(removal, name);
    return result;
}

/* The next name in the lowest level, or NULL at the end of the directory (*ret_error 0).
 */
static const char *next_name(struct level *level, int *ret_error)
{
    *ret_error = 0;
    for (;;) {
        if (level->at == level->len) {
            ssize_t len =
                getdents64(level->fd, (void *)level->buffer, sizeof level->buffer);
            if (len <= 0) {
                *ret_error = len < 0 ? -errno : 0;
                return NULL;
            }
            level->len = (size_t)len;
            level->at = 0;
        }
        const struct dirent64 *entry = (const void *)(level->buffer + level->at);
        level->at += entry->d_reclen;
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            return entry->d_name;
    }
}

/* At the end of a directory: removes it, or reads it again if it has new entries. */
static int leave(struct removal *removal)
{
    struct level *level = &removal->levels[removal->count - 1];
    int dir = parent_of(removal, removal->count - 1);

    /* If the name leads to something else by now, the directory above finds that later.
     */
    int error = removal->fs->remove(removal->fs, dir, level->name, AT_REMOVEDIR);
    if (!error || error == -ENOENT || error == -ENOTDIR) {
        (void)close(level->fd);
        removal->count--;
        return 0;
    }
    if (error != -ENOTEMPTY && error != -EEXIST)
        return error;
    if (!level->removed_any || ++level->passes > PASSES_MAX)
        return -EAGAIN;
    level->removed_any = false;
    return lseek(level->fd, 0, SEEK_SET) == 0 ? 0 : -errno;
}

static int remove_all(struct removal *removal, const char *name)
{
    int error = remove_name(removal, name);

    while (!error && removal->count) {
        struct level *level = &removal->levels[removal->count - 1];
        const char *next = next_name(level, &error);
        if (next) {
            level->removed_any = true;
            error = remove_name(removal, next);
        } else if (!error || error == -ENOENT) {
            error = leave(removal);
        }
    }
    return error;
}

int tree_remove(const struct fs *fs, const char *op, int dir, const char *name,
                const char *path, struct cay_error *err)
{
    AUTO_FREE struct removal *removal = malloc(sizeof *removal);

    if (!removal)
        return cay_fail_memory(err, op);
    removal->fs = fs;
    removal->dir = dir;
    removal->count = 0;
    removal->moved = 0;
    int error = remove_all(removal, name);
    while (removal->count)
        (void)close(removal->levels[--removal->count].fd);
    if (error == -EXDEV || error == -EBUSY)
        return cay_fail(err, CAY_E_BUSY, EBUSY, op, path,
                        "a file system is mounted in it",
                        "unmount it first, or delete the files beside it by name");
    return error ? fs_fail(fs, -error, op, path, err) : CAY_OK;
}
