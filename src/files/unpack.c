/* SPDX-License-Identifier: Apache-2.0 */

/* Unpacking has three parts that do not trust each other: a confined process reads the
 * archive (tar-read.c), its messages are checked (tar-filter.c), and only then acted on
 * (here). */
#include "files/unpack.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/array.h"
#include "base/auto.h"
#include "base/error.h"
#include "files/walk.h"
#include "sys/io.h"
#include "sys/path.h"

#define OP "files.import"

enum { HOLE_MIN = 4096, DRAIN_MAX = 1 << 20, DRAIN_MS = 50 };

/* The memory for paths of directories that get their mode at the end: so many bytes for
 * each entry allowed, and at least so many in all. */
enum { PATHS_EACH = 256, PATHS_LEAST = 1 << 20 };

/* A directory created here: it gets its mode and time at the end, if it is still the same
 * directory. */
struct unpack_made {
    dev_t dev;
    ino_t ino;
    mode_t mode;
    struct timespec mtime;
    char *path;
};

void unpack_init(struct unpack *unpack, const cay_files *files,
                 const struct target *target, uint64_t max_made)
{
    *unpack = (struct unpack){.op = target->op,
                              .fs = files->fs,
                              .top = target->fd,
                              .files = files,
                              .target = target,
                              .max_made = max_made,
                              .dir = -1,
                              .temp = TEMP_FILE_NONE};
}

void unpack_init_root(struct unpack *unpack, const char *op, int root, uint64_t max_made)
{
    *unpack = (struct unpack){.op = op,
                              .fs = &fs_direct,
                              .top = root,
                              .max_made = max_made,
                              .dir = -1,
                              .temp = TEMP_FILE_NONE};
}

int unpack_check_directory(const cay_files *files, const struct target *target,
                           struct cay_error *err)
{
    struct stat dir;

    if (!approval_wanted(files, target, CAY_ACCESS_WRITE))
        return CAY_OK;
    if (target->fd < 0)
        return parent_check(files, target, true, &dir, err);
    /* Below a directory that is not writable there may be writable ones. */
    int error = files->fs->may_write(files->fs, target->fd);
    return error == -EROFS ? target_fail(target, EROFS, err) : CAY_OK;
}

int unpack_open_directory(cay_files *files, struct target *target,
                          struct parent *ret_parent, struct cay_error *err)
{
    const char *path = target->path, *op = target->op;

    if (target->fd < 0) {
        int code = parent_open(files, target, true, ret_parent, err);
        if (code)
            return code;
        int error = parent_make(ret_parent);
        if (error) {
            parent_undo(ret_parent);
            return target_fail(target, -error, err);
        }
        target_done(target);
        code = target_find(files, op, path, CAY_ACCESS_WRITE, TARGET_FOLLOW, target, err);
        if (code)
            return code;
    }
    return target_must_be_directory(target, err);
}

/* --- Places --------------------------------------------------------------------------
 */

static int fail_at(const struct unpack *unpack, int sys_errno, struct cay_error *err)
{
    if (!unpack->files && (sys_errno == ELOOP || sys_errno == ENOTDIR))
        return cay_fail(err, CAY_E_OUTSIDE, sys_errno, unpack->op, unpack->label,
                        "the path of an archive entry leads through a link or a file",
                        "do not trust this archive; create it again from a directory");
    /* A link is on the way, of the archive or an older one. */
    if (sys_errno == ELOOP)
        return cay_fail(err, CAY_E_OUTSIDE, ELOOP, unpack->op, unpack->label,
                        "an entry leads through a symbolic link",
                        "unpack it where its directories are not links");
    return fs_fail(unpack->fs, sys_errno, unpack->op, unpack->label, err);
}

/* Sets rel and label for a path, which must be writable. */
static int check_path(struct unpack *unpack, const char *path, struct cay_error *err)
{
    if (!unpack->files) {
        cay_copy_text(unpack->label, sizeof unpack->label, path);
        return CAY_OK;
    }
    const cay_policy *policy = unpack->files->policy;
    size_t mount = unpack->target->mount;
    if (!walk_join(unpack->rel, unpack->target->rel, path) ||
        !policy_label(policy, mount, unpack->rel, unpack->label, sizeof unpack->label))
        return cay_fail_errno(err, ENAMETOOLONG, unpack->op, path);
    if (policy_is_hidden(policy, mount, unpack->rel))
        return policy_fail_outside(policy, unpack->op, unpack->label, NULL, err);
    if (!(policy_access(policy, mount, unpack->rel) & CAY_ACCESS_WRITE))
        return policy_fail_read_only(policy, unpack->op, unpack->label, err);
    return CAY_OK;
}

static int check_rules(const struct unpack *unpack, const char *name, uint64_t bytes,
                       struct cay_error *err)
{
    if (!unpack->files)
        return CAY_OK;
    const struct mount *mount = target_mount(unpack->files, unpack->target);
    int code = policy_check_suffix(mount, unpack->op, unpack->label, name, err);
    return code ? code : policy_check_size(mount, unpack->op, unpack->label, bytes, err);
}

/* Creates what is missing of a directory path, one component at a time; a descriptor or a
 * negative errno. */
static int make_directories(struct unpack *unpack, const char *path)
{
    const struct fs *fs = unpack->fs;
    AUTO_FD dir = fcntl(unpack->top, F_DUPFD_CLOEXEC, 3);
    char name[NAME_MAX + 1];

    while (dir >= 0 && *path) {
        size_t len = strcspn(path, "/");
        memcpy(name, path, len);
        name[len] = '\0';
        path += len + (path[len] == '/');
        int error = fs->make_directory(fs, dir, name, unpack->files ? 0777 : 0755);
        if (error) {
            if (error != -EEXIST)
                return error;
        } else if (!unpack->files && fchmodat(dir, name, 0755, 0) != 0) {
            return -errno; /* the umask does not apply to a root */
        } else if (unpack->made_without_entry++ >= unpack->max_made) {
            return -E2BIG;
        }
        int next = fs->open(fs, dir, name, O_PATH | O_DIRECTORY, 0, PATH_PLAIN);
        if (next < 0)
            return next;
        (void)close(dir);
        dir = next;
    }
    return dir < 0 ? -errno : TAKE_FD(dir);
}

/* Makes unpack->dir the directory of `path` and unpack->name the name in it. */
static int go_to(struct unpack *unpack, const char *path, struct cay_error *err)
{
    const struct fs *fs = unpack->fs;
    char parent[PATH_MAX];

    int code = check_path(unpack, path, err);
    if (code)
        return code;
    memcpy(parent, path, strlen(path) + 1);
    char *slash = strrchr(parent, '/');
    const char *name = slash ? path + (slash - parent) + 1 : path;
    memcpy(unpack->name, name, strlen(name) + 1);
    *(slash ? slash : parent) = '\0';
    if (unpack->dir >= 0 && strcmp(parent, unpack->dir_path) == 0)
        return CAY_OK;

    if (unpack->dir >= 0)
        (void)close(TAKE_FD(unpack->dir));
    unpack->dir = fs->open(fs, unpack->top, parent, O_PATH | O_DIRECTORY, 0, PATH_PLAIN);
    if (unpack->dir == -ENOENT)
        unpack->dir = make_directories(unpack, parent);
    if (unpack->dir == -E2BIG)
        return cay_fail(err, CAY_E_LIMIT, 0, unpack->op, unpack->label,
                        "the archive needs more directories than it may have entries",
                        "the limit is %llu", (unsigned long long)unpack->max_made);
    if (unpack->dir < 0)
        return fail_at(unpack, -unpack->dir, err);
    memcpy(unpack->dir_path, parent, strlen(parent) + 1);
    return CAY_OK;
}

/* In a root, an entry replaces a directory of its name; any other kind of file is
 * replaced as under a policy, in one step. */
static int clear_directory(const struct unpack *unpack, struct cay_error *err)
{
    struct stat st;

    if (unpack->files ||
        fstatat(unpack->dir, unpack->name, &st, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISDIR(st.st_mode))
        return CAY_OK;
    return tree_remove(unpack->fs, unpack->op, unpack->dir, unpack->name, unpack->label,
                       err);
}

/* --- Files ---------------------------------------------------------------------------
 */

static int begin_file(struct unpack *unpack, const struct tar_item *item,
                      struct cay_error *err)
{
    int code = go_to(unpack, item->path, err);

    if (!code)
        code = check_rules(unpack, unpack->name, item->size, err);
    if (!code)
        code = clear_directory(unpack, err);
    if (code)
        return code;
    const struct fs *fs = unpack->fs;
    struct stat st;
    unpack->item = *item;
    int error =
        temp_file_open(fs, unpack->dir, unpack->files ? item->mode : 0600, &unpack->temp);
    if (!error && unpack->exact &&
        (fstat(unpack->temp.fd, &st) != 0 || (st.st_mode & 0777) != item->mode))
        error = fs->set_mode(fs, unpack->temp.fd, item->mode);
    return error ? fail_at(unpack, -error, err) : CAY_OK;
}

static bool is_zero(const char *data, size_t len)
{
    return len > 0 && *data == 0 && memcmp(data, data + 1, len - 1) == 0;
}

/* A sparse file is cheap to create, so its zeros must not fill the disk here. */
static int add_data(struct unpack *unpack, const struct tar_item *item,
                    struct cay_error *err)
{
    if (item->len >= HOLE_MIN && is_zero(item->data, item->len))
        return CAY_OK; /* end_file() sets the length */
    const struct temp_file *temp = &unpack->temp;
    int error = fs_take_room(temp->fs, temp->fd, item->size, item->len);

    if (!error && lseek(temp->fd, (off_t)item->size, SEEK_SET) < 0)
        error = -errno;
    if (!error)
        error = io_write(temp->fd, item->data, item->len);
    return error ? fail_at(unpack, -error, err) : CAY_OK;
}

static int end_file(struct unpack *unpack, const struct tar_item *item,
                    struct cay_error *err)
{
    const struct tar_item *entry = &unpack->item;
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, entry->mtime};
    struct temp_file *temp = &unpack->temp;

    int error = ftruncate(temp->fd, (off_t)item->size) != 0 ? -errno : 0;
    /* The mode last: a change of owner clears set-ID bits. */
    if (!error && !unpack->files &&
        (fchown(temp->fd, entry->uid, entry->gid) != 0 ||
         fchmod(temp->fd, entry->mode) != 0))
        error = -errno;
    /* Where we may do it ourselves, that saves a message to the sandbox. */
    if (!error && futimens(temp->fd, times) != 0)
        error = temp->fs->set_times(temp->fs, temp->fd, NULL, times);
    if (!error)
        error = temp_file_commit(temp, unpack->name, TEMP_FILE_REPLACE, false);
    temp_file_done(temp);
    if (error)
        return fail_at(unpack, -error, err);
    unpack->result.entries++;
    unpack->result.files++;
    unpack->result.bytes += item->size;
    return CAY_OK;
}

/* --- Links ---------------------------------------------------------------------------
 */

/* A symbolic link to `target`, or without one another name for the file `held`. */
static int make_link(const struct unpack *unpack, const char *target, int held,
                     const char *name)
{
    const struct fs *fs = unpack->fs;

    return target ? fs->make_link(fs, target, unpack->dir, name)
                  : fs->link(fs, held, unpack->dir, name);
}

/* The same in place of whatever has the entry's name; 0 or a negative errno. */
static int put_link(const struct unpack *unpack, const char *target, int held)
{
    const struct fs *fs = unpack->fs;
    int error = make_link(unpack, target, held, unpack->name);
    char temp[32];
    uint64_t random = 0;

    if (error != -EEXIST)
        return error;
    (void)!getrandom(&random, sizeof random, 0);
    snprintf(temp, sizeof temp, ".cay-%016llx", (unsigned long long)random);
    error = make_link(unpack, target, held, temp);
    if (error)
        return error;
    error = fs->rename(fs, unpack->dir, temp, unpack->dir, unpack->name, 0);
    /* Still there after a failure, and if both names were the same file already. */
    (void)fs->remove(fs, unpack->dir, temp, 0);
    return error;
}

static int add_link(struct unpack *unpack, const struct tar_item *item,
                    struct cay_error *err)
{
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, item->mtime};
    const struct fs *fs = unpack->fs;

    int code = go_to(unpack, item->path, err);
    if (!code)
        code = clear_directory(unpack, err);
    if (code)
        return code;
    int error = put_link(unpack, item->link, -1);
    if (!error && !unpack->files &&
        fchownat(unpack->dir, unpack->name, item->uid, item->gid, AT_SYMLINK_NOFOLLOW) !=
            0)
        error = -errno;
    if (error)
        return fail_at(unpack, -error, err);
    (void)fs->set_times(fs, unpack->dir, unpack->name, times);
    unpack->result.entries++;
    return CAY_OK;
}

/* The file must lie below the same directory and be one that this policy would let the
 * caller read and write by its own name. */
static int hold_original(struct unpack *unpack, const char *path, int *ret_fd,
                         struct stat *ret_stat, struct cay_error *err)
{
    const cay_policy *policy = unpack->files ? unpack->files->policy : NULL;
    const struct fs *fs = unpack->fs;

    int code = check_path(unpack, path, err);
    if (code)
        return code;
    if (policy &&
        !(policy_access(policy, unpack->target->mount, unpack->rel) & CAY_ACCESS_READ))
        return policy_fail_outside(policy, unpack->op, unpack->label, NULL, err);
    *ret_fd = fs->open(fs, unpack->top, path, O_PATH | O_NOFOLLOW, 0, PATH_PLAIN);
    if (*ret_fd < 0)
        return fail_at(unpack, -*ret_fd, err);
    if (fstat(*ret_fd, ret_stat) != 0)
        return fail_at(unpack, errno, err);
    if (S_ISLNK(ret_stat->st_mode))
        return unpack->files ? fail_at(unpack, ELOOP, err) : CAY_OK;
    if (!S_ISREG(ret_stat->st_mode))
        return cay_fail(
            err, CAY_E_NOT_A_FILE, 0, unpack->op, unpack->label,
            "the archive has a hard link to something other than a regular file",
            "create the archive again without that link");
    return check_rules(unpack, path, (uint64_t)ret_stat->st_size, err);
}

static int add_hard_link(struct unpack *unpack, const struct tar_item *item,
                         struct cay_error *err)
{
    AUTO_FD original = -1;
    struct stat st = {0};

    int code = hold_original(unpack, item->link, &original, &st, err);
    if (!code)
        code = go_to(unpack, item->path, err);
    if (!code)
        code = check_rules(unpack, unpack->name, (uint64_t)st.st_size, err);
    if (!code)
        code = clear_directory(unpack, err);
    if (code)
        return code;
    int error = put_link(unpack, NULL, original);
    if (error)
        return fail_at(unpack, -error, err);
    unpack->result.entries++;
    unpack->result.files++;
    return CAY_OK;
}

/* --- Directories ---------------------------------------------------------------------
 */

static int remember(struct unpack *unpack, const struct tar_item *item,
                    const struct stat *st, struct cay_error *err)
{
    unpack->made_bytes += strlen(item->path) + 1;
    if (unpack->made_bytes > PATHS_LEAST &&
        unpack->made_bytes / PATHS_EACH > unpack->max_made)
        return cay_fail(err, CAY_E_LIMIT, 0, unpack->op, unpack->label,
                        "too many directories with long paths",
                        "copy a part of them, or allow more entries");
    if (!array_reserve(&unpack->made, &unpack->made_room, unpack->made_count + 1,
                       sizeof *unpack->made))
        return cay_fail_memory(err, unpack->op);
    char *path = strdup(item->path);
    if (!path)
        return cay_fail_memory(err, unpack->op);
    /* st_mode is that less the umask. */
    mode_t mode = unpack->exact ? item->mode : item->mode & st->st_mode & 0777;
    unpack->made[unpack->made_count++] =
        (struct unpack_made){st->st_dev, st->st_ino, mode, item->mtime, path};
    return CAY_OK;
}

static int add_directory(struct unpack *unpack, const struct tar_item *item,
                         struct cay_error *err)
{
    const struct fs *fs = unpack->fs;
    struct stat st;

    if (!*item->path)
        return CAY_OK;
    int code = go_to(unpack, item->path, err);
    if (code)
        return code;
    if (!unpack->files &&
        fstatat(unpack->dir, unpack->name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
        !S_ISDIR(st.st_mode) && unlinkat(unpack->dir, unpack->name, 0) != 0)
        return fail_at(unpack, errno, err);
    /* Never wider than its final mode: unpacking may stop before the end. */
    int error = fs->make_directory(fs, unpack->dir, unpack->name, item->mode | 0700);
    if (error && error != -EEXIST)
        return fail_at(unpack, -error, err);
    AUTO_FD fd =
        fs->open(fs, unpack->dir, unpack->name, O_PATH | O_DIRECTORY, 0, PATH_PLAIN);
    if (fd < 0)
        return fail_at(unpack, fd == -ENOTDIR ? EEXIST : -fd, err);
    if (fstat(fd, &st) != 0)
        return fail_at(unpack, errno, err);
    unpack->result.entries++;
    if (unpack->files)
        return error ? CAY_OK : remember(unpack, item, &st, err);
    /* Root needs no access to enter it, and a later layer may change an existing one. */
    if (fchownat(unpack->dir, unpack->name, item->uid, item->gid, AT_SYMLINK_NOFOLLOW) !=
            0 ||
        fchmodat(unpack->dir, unpack->name, item->mode, 0) != 0)
        return fail_at(unpack, errno, err);
    return CAY_OK;
}

/* Newest first: the mode of a directory may forbid to enter what is below it. */
static void finish_directories(struct unpack *unpack)
{
    const struct fs *fs = unpack->fs;

    while (unpack->made_count) {
        const struct unpack_made *made = &unpack->made[--unpack->made_count];
        const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, made->mtime};
        struct stat st;
        AUTO_FD fd =
            fs->open(fs, unpack->top, made->path, O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
        if (fd >= 0 && fstat(fd, &st) == 0 && st.st_dev == made->dev &&
            st.st_ino == made->ino) {
            (void)fs->set_mode(fs, fd, made->mode);
            (void)fs->set_times(fs, fd, NULL, times);
        }
        free(made->path);
    }
}

int unpack_item(struct unpack *unpack, const struct tar_item *item, struct cay_error *err)
{
    switch (item->kind) {
    case TAR_FILE:
        return begin_file(unpack, item, err);
    case TAR_DATA:
        return add_data(unpack, item, err);
    case TAR_FILE_END:
        return end_file(unpack, item, err);
    case TAR_DIRECTORY:
        return add_directory(unpack, item, err);
    case TAR_LINK:
        return add_link(unpack, item, err);
    case TAR_HARD_LINK:
        return add_hard_link(unpack, item, err);
    case TAR_SPECIAL:
        unpack->result.skipped++;
        return CAY_OK;
    case TAR_END:
    case TAR_BROKEN:
        break;
    }
    return CAY_OK;
}

void unpack_done(struct unpack *unpack)
{
    temp_file_done(&unpack->temp);
    if (unpack->dir >= 0)
        (void)close(TAKE_FD(unpack->dir));
    finish_directories(unpack);
    free(unpack->made);
    unpack->made = NULL;
}

/* --- Import ----------------------------------------------------------------------------
 */

/* Reads the padding after the archive too, or its sender would get EPIPE; not for long,
 * since the sender may keep its connection open. */
static void drain(int fd)
{
    struct pollfd input = {.fd = fd, .events = POLLIN};
    char padding[4096];
    size_t left = DRAIN_MAX / sizeof padding;

    while (left-- && poll(&input, 1, DRAIN_MS) == 1 && input.revents & POLLIN &&
           read(fd, padding, sizeof padding) > 0)
        continue;
}

static uint32_t depth_of(const char *rel)
{
    uint32_t depth = *rel != '\0';

    for (; *rel; rel++)
        depth += *rel == '/';
    return depth;
}

static int take_item(void *cookie, const struct tar_item *item, struct cay_error *err)
{
    return unpack_item(cookie, item, err);
}

static int import(const cay_files *files, const struct target *target, int fd,
                  const struct cay_tar_options *options,
                  struct cay_tar_result *ret_result, struct cay_error *err)
{
    AUTO_FREE struct tar_filter *filter = calloc(1, sizeof *filter);
    AUTO_FREE struct unpack *unpack = malloc(sizeof *unpack);
    const struct tar_input input = {
        .op = OP, .fd = fd, .take = take_item, .cookie = unpack};

    if (!filter || !unpack)
        return cay_fail_memory(err, OP);
    filter->max_entries = options->max_entries;
    filter->max_bytes = options->max_bytes;
    filter->max_depth = options->max_depth;
    filter->base_depth = depth_of(target->rel);
    unpack_init(unpack, files, target, options->max_entries);
    int code = tar_receive(&input, filter, err);
    if (!code)
        drain(fd);
    unpack_done(unpack);
    *ret_result = unpack->result;
    return code;
}

int cay_files_import(cay_files *files, const char *path, int fd,
                     const struct cay_tar_options *options,
                     struct cay_tar_result *ret_result, struct cay_error *err)
{
    struct cay_tar_options known;
    struct cay_approval shown = {.op = CAY_OP_IMPORT};
    AUTO_TARGET target = TARGET_NONE;
    AUTO_PARENT parent = PARENT_NONE;

    *ret_result = (struct cay_tar_result){0};
    int code = tar_take_options(options, OP, 0, &known, err);
    if (!code)
        code = files_check_descriptor(fd, O_RDONLY, OP, err);
    if (!code)
        code =
            target_find(files, OP, path, CAY_ACCESS_WRITE, TARGET_FOLLOW, &target, err);
    if (!code && target.fd >= 0)
        code = target_must_be_directory(&target, err);
    if (!code)
        code = unpack_check_directory(files, &target, err);
    if (!code)
        code = approve(files, &shown, &target, CAY_ACCESS_WRITE, NULL, 0, err);
    if (!code)
        code = unpack_open_directory(files, &target, &parent, err);
    if (code)
        return code;
    code = import(files, &target, fd, &known, ret_result, err);
    if (code && !ret_result->entries)
        parent_undo(&parent);
    return code;
}
