/* SPDX-License-Identifier: Apache-2.0 */

/* The paths come from files that may be hostile: no link is followed, and no mount on the
 * root is entered. */
#include "native/layer/restore.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "native/layer/copy.h"
#include "native/layer/held.h"
#include "native/make/store.h"
#include "native/record/state.h"
#include "sys/path.h"

/* New files are created here, each in a directory with the number of its change, and
 * then renamed. */
static const char op[] = "sandbox.rollback";
static const char draft[] = ".cay-rollback";

struct restore_file {
    uint64_t device, inode;
};

/* --- Files that processes have --- */

static int compare(const void *a, const void *b)
{
    const struct restore_file *one = a, *other = b;

    if (one->device != other->device)
        return one->device < other->device ? -1 : 1;
    return one->inode < other->inode ? -1 : one->inode > other->inode;
}

/* A directory that stays one does not concern the processes in it. */
static bool is_replaced(const struct cay_change *change)
{
    return change->before.mode &&
           !(S_ISDIR(change->before.mode) && S_ISDIR(change->after.mode));
}

int restore_init(struct restore *restore)
{
    struct stat st;

    restore->file_count = 0;
    restore->work = -1;
    restore->files = calloc(restore->count + 1, sizeof *restore->files);
    if (!restore->files)
        return -ENOMEM;
    for (size_t i = 0; i < restore->count; i++) {
        if (!is_replaced(&restore->changes[i]))
            continue;
        AUTO_FD fd = path_open(restore->root, restore->changes[i].path,
                               O_PATH | O_NOFOLLOW, 0, PATH_PLAIN | RESOLVE_NO_XDEV);
        if (fd < 0 || fstat(fd, &st) != 0)
            return fd < 0 ? TAKE_FD(fd) : -errno;
        restore->files[restore->file_count++] =
            (struct restore_file){st.st_dev, st.st_ino};
    }
    qsort(restore->files, restore->file_count, sizeof *restore->files, compare);
    return 0;
}

void restore_done(struct restore *restore)
{
    free(restore->files);
    if (restore->work < 0)
        return;
    auto_close(&restore->work);
    (void)!state_remove_tree(restore->root, draft, op, draft, NULL);
}

static int check(void *cookie, int fd)
{
    const struct restore *restore = cookie;
    struct stat st;

    if (fstat(fd, &st) != 0)
        return -errno;
    const struct restore_file file = {st.st_dev, st.st_ino};
    return bsearch(&file, restore->files, restore->file_count, sizeof file, compare) !=
           NULL;
}

int restore_concerns(const struct restore *restore, pid_t pid)
{
    struct restore own = *restore;

    return held_each(pid, HELD_ALL, check, &own);
}

/* --- Changes --- */

static int open_parent(int root, const char *path, uint64_t resolve,
                       const char **ret_name)
{
    char parent[PATH_MAX];
    const char *slash = strrchr(path, '/');

    *ret_name = slash ? slash + 1 : path;
    if (slash && (size_t)(slash - path) >= sizeof parent)
        return -ENAMETOOLONG;
    snprintf(parent, sizeof parent, "%.*s", slash ? (int)(slash - path) : 1,
             slash ? path : ".");
    return path_open(root, parent, O_PATH | O_DIRECTORY, 0, PATH_PLAIN | resolve);
}

static int drop(const struct restore *restore, const struct cay_change *change)
{
    const char *name;
    AUTO_FD parent = open_parent(restore->root, change->path, RESOLVE_NO_XDEV, &name);

    if (parent < 0)
        return TAKE_FD(parent);
    return unlinkat(parent, name, S_ISDIR(change->before.mode) ? AT_REMOVEDIR : 0) == 0
               ? 0
               : -errno;
}

static int add_link(const struct restore *restore, const char *old, int parent,
                    const char *name)
{
    const char *old_name;
    AUTO_FD from = open_parent(restore->root, old, RESOLVE_NO_XDEV, &old_name);

    return from >= 0 && linkat(from, old_name, parent, name, 0) == 0 ? 0 : -ENOENT;
}

/* The directory of the file in the highest layer that has it, since the tree shows it. */
static int open_source(const struct restore *restore, const char *path,
                       struct stat *ret_st)
{
    const char *name;

    for (size_t i = 0; i < restore->after_count; i++) {
        const struct cay_diff_layer *layer = &restore->after[i];
        AUTO_FD source = open_parent(layer->fd, path, 0, &name);
        if (source < 0 || fstatat(source, name, ret_st, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        ret_st->st_uid += restore->id_base - layer->id_base;
        ret_st->st_gid += restore->id_base - layer->id_base;
        return TAKE_FD(source);
    }
    return -ENOENT;
}

/* Directories are created in their place, and links of restored files too. */
static bool is_staged(const struct cay_change *change, const struct stat *st)
{
    return !S_ISDIR(st->st_mode) && !change->hard_link;
}

static int copy_staged(const struct restore *restore, size_t i, int source,
                       const struct stat *st)
{
    const char *path = restore->changes[i].path, *slash = strrchr(path, '/');
    char directory[24];

    snprintf(directory, sizeof directory, "%zu", i);
    int error = store_mkdir(restore->work, directory, 0700, 0);
    AUTO_FD to =
        error ? -1
              : path_open(restore->work, directory, O_PATH | O_DIRECTORY, 0, PATH_PLAIN);
    if (error || to < 0)
        return error ? error : TAKE_FD(to);
    return copy_entry(source, to, slash ? slash + 1 : path, st);
}

static int stage(const struct restore *restore, size_t i)
{
    struct stat st;

    if (restore->changes[i].kind == CAY_CHANGE_DELETED)
        return 0;
    AUTO_FD source = open_source(restore, restore->changes[i].path, &st);
    if (source < 0)
        return TAKE_FD(source);
    return is_staged(&restore->changes[i], &st) ? copy_staged(restore, i, source, &st)
                                                : 0;
}

static int make_draft(struct restore *restore)
{
    int error = store_mkdir(restore->root, draft, 0700, 0);

    if (error == -EEXIST) { /* of a process that died, or from inside */
        (void)!state_remove_tree(restore->root, draft, op, draft, NULL);
        error = store_mkdir(restore->root, draft, 0700, 0);
    }
    if (!error)
        restore->work = path_open(restore->root, draft, O_PATH | O_DIRECTORY, 0,
                                  PATH_PLAIN | RESOLVE_NO_XDEV);
    return error ? error : restore->work < 0 ? restore->work : 0;
}

int restore_stage(struct restore *restore, uint64_t end_ms)
{
    int error = make_draft(restore);

    for (size_t i = 0; !error && i < restore->count; i++)
        error = clock_ms() < end_ms ? stage(restore, i) : -ETIME;
    return error || clock_ms() < end_ms ? error : -ETIME;
}

static int put(const struct restore *restore, size_t i)
{
    const struct cay_change *change = &restore->changes[i];
    const char *name;
    char staged[NAME_MAX + 32];
    struct stat st;
    AUTO_FD parent = open_parent(restore->root, change->path, RESOLVE_NO_XDEV, &name);
    AUTO_FD source = open_source(restore, change->path, &st);

    if (parent < 0 || source < 0)
        return parent < 0 ? TAKE_FD(parent) : TAKE_FD(source);
    if (S_ISDIR(st.st_mode))
        return copy_entry(source, parent, name, &st);
    if (change->hard_link && add_link(restore, change->hard_link, parent, name) == 0)
        return 0;
    int error = change->hard_link ? copy_staged(restore, i, source, &st) : 0;
    snprintf(staged, sizeof staged, "%zu/%s", i, name);
    if (!error && renameat(restore->work, staged, parent, name) != 0)
        error = -errno;
    return error;
}

int restore_apply(const struct restore *restore)
{
    const struct cay_change *changes = restore->changes;
    int error = 0;

    for (size_t i = restore->count; !error && i-- > 0;)
        if (changes[i].kind == CAY_CHANGE_DELETED || changes[i].kind == CAY_CHANGE_TYPE)
            error = drop(restore, &changes[i]);
    for (size_t i = 0; !error && i < restore->count; i++)
        if (changes[i].kind != CAY_CHANGE_DELETED)
            error = put(restore, i);
    return error;
}
