/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "files/walk.h"
#include "files/write.h"
#include "sys/caps.h"

static int take_options(const struct cay_name_options *options, const char *op,
                        unsigned allowed, struct cay_name_options *ret_known,
                        struct cay_error *err)
{
    TRY(cay_take_struct(ret_known, sizeof *ret_known, options, op, err));
    if (ret_known->flags & ~allowed)
        return cay_fail(err, CAY_E_UNSUPPORTED, 0, op, "flags", "unknown flags",
                        "the known ones are 0x%x", allowed);
    return CAY_OK;
}

static int fail_is_root(const struct target *target, struct cay_error *err)
{
    return cay_fail(err, CAY_E_INVALID, 0, target->op, target->path,
                    "a root itself cannot be moved or deleted", "name a path below it");
}

static int fail_between_systems(const struct target *target, struct cay_error *err)
{
    return cay_fail(err, CAY_E_UNSUPPORTED, EXDEV, target->op, target->path,
                    "only regular files can be moved between file systems",
                    "copy its files one by one");
}

/* A name is changed in its directory; in a sticky one only the owner of the name, or of
 * the directory, removes it. */
static int check_change(const cay_files *files, const struct target *target, bool make,
                        struct stat *ret_dir, struct cay_error *err)
{
    TRY(parent_check(files, target, make, ret_dir, err));
    if (target->fd < 0)
        return CAY_OK;
    uid_t user = geteuid();
    bool may_remove = !(ret_dir->st_mode & S_ISVTX) || user == ret_dir->st_uid ||
                      user == target->st.st_uid || caps_has(CAP_FOWNER);
    return may_remove ? CAY_OK : target_fail(target, EPERM, err);
}

/* Asks the approver, unless the operation is sure to fail: what is written, and `other`,
 * changes in its directory, which `make` may create. */
static int ask(cay_files *files, enum cay_op op, struct target *target, unsigned access,
               struct target *other, bool make, struct cay_error *err)
{
    struct cay_approval shown = {.op = op};
    struct stat from, to;
    int code = CAY_OK;

    if (!approval_wanted(files, target, access) &&
        !(other && approval_wanted(files, other, CAY_ACCESS_WRITE)))
        return CAY_OK;
    if (access & CAY_ACCESS_WRITE)
        code = check_change(files, target, make, &from, err);
    if (!code && other)
        code = check_change(files, other, make, &to, err);
    if (!code && op == CAY_OP_MOVE && !S_ISREG(target->st.st_mode) &&
        from.st_dev != to.st_dev)
        code = fail_between_systems(target, err);
    return code ? code
                : approve(files, &shown, target, access, other, CAY_ACCESS_WRITE, err);
}

/* --- Delete --- */

static int find_for_delete(cay_files *files, const char *path, bool recursive,
                           struct target *ret_target, struct cay_error *err)
{
    TRY(target_find(files, "files.delete", path, CAY_ACCESS_WRITE,
                    TARGET_NO_FOLLOW | TARGET_CHANGE, ret_target, err));
    TRY(target_must_exist(ret_target, err));
    if (!S_ISDIR(ret_target->st.st_mode))
        return target_check_suffix(files, ret_target, err);
    if (!recursive)
        return target_must_be_file(ret_target, err);
    return *ret_target->rel ? CAY_OK : fail_is_root(ret_target, err);
}

/* A directory may contain files that a rule protects: with other suffixes, or hidden
 * behind another mount. */
static int check_whole_tree(const cay_files *files, const struct target *target,
                            struct cay_error *err)
{
    if (policy_hides_below(files->policy, target->mount, target->rel))
        return cay_fail(err, CAY_E_DENIED, 0, target->op, target->path,
                        "another mount is below this directory",
                        "name the directories beside that mount one by one");
    if (!target_mount(files, target)->limit_suffixes)
        return CAY_OK;
    return cay_fail(err, CAY_E_SUFFIX, 0, target->op, target->path,
                    "a directory cannot be deleted or moved where only some suffixes are "
                    "allowed",
                    "do it file by file");
}

/* 0 if the name still leads to this file, else a negative errno. */
static int is_still(const struct fs *fs, const struct stat *st, int dir, const char *name)
{
    struct stat now;

    TRY(fs->stat(fs, dir, name, &now));
    return now.st_dev == st->st_dev && now.st_ino == st->st_ino ? 0 : -EAGAIN;
}

/* The name must still be that of the file which was checked. */
static int check_same(const struct target *target, int dir, const char *name,
                      struct cay_error *err)
{
    int error = is_still(target->fs, &target->st, dir, name);

    return error ? target_fail(target, -error, err) : CAY_OK;
}

int cay_files_delete(cay_files *files, const char *path,
                     const struct cay_name_options *options, struct cay_error *err)
{
    struct cay_name_options known;
    AUTO_TARGET target = TARGET_NONE;
    AUTO_PARENT parent = PARENT_NONE;

    TRY(take_options(options, "files.delete", CAY_NAME_RECURSIVE, &known, err));
    TRY(find_for_delete(files, path, known.flags & CAY_NAME_RECURSIVE, &target, err));
    bool tree = S_ISDIR(target.st.st_mode);
    if (tree)
        TRY(check_whole_tree(files, &target, err));
    TRY(target_check_pin(files, &target, known.pin, err));
    TRY(ask(files, CAY_OP_DELETE, &target, CAY_ACCESS_WRITE, NULL, false, err));
    TRY(parent_open(files, &target, false, &parent, err));
    TRY(check_same(&target, parent.fd, parent.name, err));
    if (tree)
        return tree_remove(files->fs, target.op, parent.fd, parent.name, path, err);
    int error = files->fs->remove(files->fs, parent.fd, parent.name, 0);
    return error ? target_fail(&target, -error, err) : CAY_OK;
}

/* --- Move and copy --- */

/* Both ends of a move or copy. */
struct pair {
    struct target source, destination;
};

static void pair_done(struct pair *pair)
{
    target_done(&pair->source);
    target_done(&pair->destination);
}

#define AUTO_PAIR __attribute__((cleanup(pair_done))) struct pair
#define PAIR_NONE                                                                        \
    {                                                                                    \
        .source = TARGET_NONE, .destination = TARGET_NONE                                \
    }

static int find_destination(const cay_files *files, const char *op, const char *path,
                            uint64_t bytes, bool is_file, bool replace,
                            struct target *ret_target, struct cay_error *err)
{
    TRY(target_find(files, op, path, CAY_ACCESS_WRITE, TARGET_NO_FOLLOW | TARGET_CHANGE,
                    ret_target, err));
    if (replace && !*ret_target->rel)
        return fail_is_root(ret_target, err);
    if (ret_target->fd >= 0 && !replace)
        return target_fail(ret_target, EEXIST, err);
    if (!is_file)
        return CAY_OK;
    TRY(target_check_suffix(files, ret_target, err));
    return target_check_size(files, ret_target, bytes, err);
}

static int check_pins(const cay_files *files, const struct pair *pair,
                      const struct cay_name_options *options, struct cay_error *err)
{
    TRY(target_check_pin(files, &pair->source, options->pin, err));
    return target_check_pin(files, &pair->destination, options->other_pin, err);
}

/* Copies content (from the descriptor `from`), mode and times of the source to a
 * temporary file beside the destination, and renames it. */
static int copy_to(const struct pair *pair, int from, const struct parent *parent,
                   enum temp_file_commit how, struct stat *ret_copy,
                   struct cay_error *err)
{
    const struct stat *st = &pair->source.st;
    const struct timespec times[2] = {st->st_atim, st->st_mtim};
    const struct fs *fs = pair->destination.fs;
    AUTO_TEMP_FILE temp = TEMP_FILE_NONE;
    uint64_t bytes;

    int error = temp_file_open(fs, parent->fd, 0600, &temp);
    if (!error)
        error = write_copy(fs, from, temp.fd, (uint64_t)st->st_size, &bytes);
    if (!error)
        error = fs->set_mode(fs, temp.fd, st->st_mode & 0777);
    if (!error)
        error = fs->set_times(fs, temp.fd, NULL, times);
    if (!error && fstat(temp.fd, ret_copy) != 0)
        error = -errno;
    if (!error)
        error = temp_file_commit(&temp, parent->name, how, false);
    return error ? target_fail(&pair->destination, -error, err) : CAY_OK;
}

int cay_files_copy(cay_files *files, const char *source, const char *destination,
                   const struct cay_name_options *options, struct cay_error *err)
{
    static const char op[] = "files.copy";
    struct cay_name_options known;
    AUTO_PAIR pair = PAIR_NONE;
    AUTO_PARENT parent = PARENT_NONE;
    AUTO_FD from = -1;
    struct stat copy = {0};

    TRY(take_options(options, op, CAY_NAME_NO_PARENTS, &known, err));
    TRY(target_find(files, op, source, CAY_ACCESS_READ, TARGET_READ, &pair.source, err));
    TRY(target_must_be_file(&pair.source, err));
    TRY(target_check_suffix(files, &pair.source, err));
    uint64_t bytes = (uint64_t)pair.source.st.st_size;
    TRY(target_check_size(files, &pair.source, bytes, err));
    TRY(find_destination(files, op, destination, bytes, true, false, &pair.destination,
                         err));
    TRY(check_pins(files, &pair, &known, err));
    TRY(target_open(&pair.source, O_RDONLY, &from, err));
    bool make = !(known.flags & CAY_NAME_NO_PARENTS);
    TRY(ask(files, CAY_OP_COPY, &pair.source, CAY_ACCESS_READ, &pair.destination, make,
            err));
    TRY(parent_open(files, &pair.destination, make, &parent, err));
    int code = copy_to(&pair, from, &parent, TEMP_FILE_NEW, &copy, err);
    if (code)
        parent_undo(&parent);
    return code;
}

/* Between file systems: copies, then removes the original.  If that fails, the copy is
 * removed, unless it has replaced a file. */
static int move_by_copy(const struct pair *pair, const struct parent *from,
                        const struct parent *to, bool replace, struct cay_error *err)
{
    const struct fs *fs = pair->source.fs;
    struct stat copy = {0};

    if (!S_ISREG(pair->source.st.st_mode))
        return fail_between_systems(&pair->source, err);
    int denied = fs->may_write(fs, from->fd); /* before anything is replaced */
    if (denied)
        return target_fail(&pair->source, -denied, err);
    AUTO_FD file = -1;
    TRY(target_open(&pair->source, O_RDONLY, &file, err));
    TRY(copy_to(pair, file, to, replace ? TEMP_FILE_REPLACE : TEMP_FILE_NEW, &copy, err));
    int code = check_same(&pair->source, from->fd, from->name, err);
    int error = code ? 0 : fs->remove(fs, from->fd, from->name, 0);
    if (error)
        code = target_fail(&pair->source, -error, err);
    if (code && !replace && is_still(fs, &copy, to->fd, to->name) == 0)
        (void)fs->remove(fs, to->fd, to->name, 0);
    return code;
}

static int fail_into_itself(const struct target *to, struct cay_error *err)
{
    return cay_fail(err, CAY_E_INVALID, EINVAL, to->op, to->path,
                    "a directory cannot be moved into itself",
                    "name a destination outside of it");
}

static int move_name(const struct pair *pair, const struct parent *from,
                     const struct parent *to, bool replace, struct cay_error *err)
{
    const struct fs *fs = pair->source.fs;

    TRY(check_same(&pair->source, from->fd, from->name, err));
    int error = fs->rename(fs, from->fd, from->name, to->fd, to->name,
                           replace ? 0 : RENAME_NOREPLACE);
    if (!error)
        return CAY_OK;
    if (error == -EINVAL && S_ISDIR(pair->source.st.st_mode))
        return fail_into_itself(&pair->destination, err);
    if (error == -EXDEV || error == -EINVAL)
        return move_by_copy(pair, from, to, replace, err);
    bool is_taken =
        error == -EEXIST || error == -EISDIR || error == -ENOTDIR || error == -ENOTEMPTY;
    return target_fail(is_taken ? &pair->destination : &pair->source, -error, err);
}

static int check_not_into_itself(const struct pair *pair, struct cay_error *err)
{
    const struct target *from = &pair->source, *to = &pair->destination;
    size_t len = strlen(from->rel);

    if (from->mount != to->mount || strncmp(from->rel, to->rel, len) != 0 ||
        to->rel[len] != '/')
        return CAY_OK;
    return fail_into_itself(to, err);
}

static int check_link(const struct pair *pair, struct cay_error *err)
{
    const struct target *from = &pair->source;

    if (from->mount == pair->destination.mount || !S_ISLNK(from->st.st_mode))
        return CAY_OK;
    return cay_fail(err, CAY_E_UNSUPPORTED, 0, from->op, from->path,
                    "a symbolic link cannot be moved to another root",
                    "move the file it points to");
}

/* The files of a directory that is moved are not checked one by one. */
static int check_sizes_below(const cay_files *files, const struct pair *pair,
                             struct cay_error *err)
{
    const struct target *to = &pair->destination;

    if (pair->source.mount == to->mount || target_mount(files, to)->max_file_bytes < 0)
        return CAY_OK;
    return cay_fail(err, CAY_E_TOO_LARGE, 0, to->op, to->path,
                    "a directory cannot be moved to where the size of files is limited",
                    "do it file by file");
}

/* A move to a readable directory makes the file readable. */
static int check_read_by_move(const cay_files *files, const struct pair *pair,
                              struct cay_error *err)
{
    const struct target *from = &pair->source, *to = &pair->destination;

    if (policy_access(files->policy, from->mount, from->rel) & CAY_ACCESS_READ ||
        !policy_reads_within(files->policy, to->mount, to->rel))
        return CAY_OK;
    return policy_fail_outside(files->policy, from->op, from->path, NULL, err);
}

/* Within a mount, reading at the destination needs approval, too. */
static unsigned source_access(const cay_files *files, const struct pair *pair)
{
    const struct target *to = &pair->destination;
    bool is_read = pair->source.mount != to->mount &&
                   policy_reads_within(files->policy, to->mount, to->rel);

    return is_read ? CAY_ACCESS_WRITE | CAY_ACCESS_READ : CAY_ACCESS_WRITE;
}

/* A file, or a link as itself. */
static int check_name(const cay_files *files, const struct target *target,
                      struct cay_error *err)
{
    if (!S_ISLNK(target->st.st_mode))
        TRY(target_must_be_file(target, err));
    return target_check_suffix(files, target, err);
}

static int check_tree_move(const cay_files *files, const struct pair *pair,
                           struct cay_error *err)
{
    TRY(check_whole_tree(files, &pair->destination, err));
    TRY(check_not_into_itself(pair, err));
    return check_sizes_below(files, pair, err);
}

static int find_for_move(cay_files *files, const char *source, const char *destination,
                         unsigned flags, struct pair *ret_pair, struct cay_error *err)
{
    static const char op[] = "files.move";

    TRY(target_find(files, op, source, CAY_ACCESS_WRITE, TARGET_NO_FOLLOW | TARGET_CHANGE,
                    &ret_pair->source, err));
    TRY(target_must_exist(&ret_pair->source, err));
    bool tree = flags & CAY_NAME_DIRECTORY && S_ISDIR(ret_pair->source.st.st_mode);
    if (tree && !*ret_pair->source.rel)
        return fail_is_root(&ret_pair->source, err);
    TRY(tree ? check_whole_tree(files, &ret_pair->source, err)
             : check_name(files, &ret_pair->source, err));
    TRY(find_destination(files, op, destination, (uint64_t)ret_pair->source.st.st_size,
                         !tree, flags & CAY_NAME_REPLACE, &ret_pair->destination, err));
    TRY(check_link(ret_pair, err));
    if (tree)
        TRY(check_tree_move(files, ret_pair, err));
    return check_read_by_move(files, ret_pair, err);
}

int cay_files_move(cay_files *files, const char *source, const char *destination,
                   const struct cay_name_options *options, struct cay_error *err)
{
    struct cay_name_options known;
    AUTO_PAIR pair = PAIR_NONE;
    AUTO_PARENT from = PARENT_NONE, to = PARENT_NONE;

    TRY(take_options(options, "files.move",
                     CAY_NAME_NO_PARENTS | CAY_NAME_DIRECTORY | CAY_NAME_REPLACE, &known,
                     err));
    bool make = !(known.flags & CAY_NAME_NO_PARENTS);
    TRY(find_for_move(files, source, destination, known.flags, &pair, err));
    TRY(check_pins(files, &pair, &known, err));
    TRY(ask(files, CAY_OP_MOVE, &pair.source, source_access(files, &pair),
            &pair.destination, make, err));
    TRY(parent_open(files, &pair.source, false, &from, err));
    TRY(parent_open(files, &pair.destination, make, &to, err));
    int code = move_name(&pair, &from, &to, known.flags & CAY_NAME_REPLACE, err);
    if (code)
        parent_undo(&to);
    return code;
}

/* --- Directories, stat --- */

int cay_files_mkdir(cay_files *files, const char *path,
                    const struct cay_name_options *options, struct cay_error *err)
{
    static const char op[] = "files.mkdir";
    struct cay_name_options known;
    AUTO_TARGET target = TARGET_NONE;
    AUTO_PARENT parent = PARENT_NONE;

    TRY(take_options(options, op, CAY_NAME_NO_PARENTS | CAY_NAME_EXIST_OK, &known, err));
    TRY(target_find(files, op, path, CAY_ACCESS_WRITE, TARGET_CHANGE, &target, err));
    if (target.fd >= 0) {
        bool fine = known.flags & CAY_NAME_EXIST_OK && S_ISDIR(target.st.st_mode);
        return fine ? CAY_OK : target_fail(&target, EEXIST, err);
    }
    bool make = !(known.flags & CAY_NAME_NO_PARENTS);
    TRY(target_check_pin(files, &target, known.pin, err));
    TRY(ask(files, CAY_OP_MKDIR, &target, CAY_ACCESS_WRITE, NULL, make, err));
    TRY(parent_open(files, &target, make, &parent, err));
    int error = files->fs->make_directory(files->fs, parent.fd, parent.name,
                                          known.mode ? known.mode & 0777 : 0777);
    if (!error)
        return CAY_OK;
    parent_undo(&parent);
    return target_fail(&target, -error, err);
}

static int fail_owner(const struct target *target, struct cay_error *err)
{
    return cay_fail(err, CAY_E_INVALID, EINVAL, target->op, target->path,
                    "there is no such user or group id here", "use 0 to 65535");
}

static int check_attributes(const struct cay_attributes *wanted,
                            const struct target *target, struct cay_error *err)
{
    if (wanted->flags & CAY_ATTRIBUTE_MODE && wanted->mode & ~01777u)
        return cay_fail(err, CAY_E_INVALID, 0, target->op, target->path, "invalid mode",
                        "use 0 to 01777");
    if (wanted->flags & CAY_ATTRIBUTE_MODE && S_ISLNK(target->st.st_mode))
        return cay_fail(err, CAY_E_INVALID, 0, target->op, target->path,
                        "a symbolic link has no mode",
                        "change the file that it leads to");
    if ((wanted->flags & CAY_ATTRIBUTE_OWNER && wanted->uid == UINT32_MAX) ||
        (wanted->flags & CAY_ATTRIBUTE_GROUP && wanted->gid == UINT32_MAX))
        return fail_owner(target, err);
    return CAY_OK;
}

/* The owner first: a change of it may clear mode bits. */
static int set_attributes(const struct cay_attributes *wanted,
                          const struct target *target)
{
    const struct fs *fs = target->fs;
    uid_t uid = wanted->flags & CAY_ATTRIBUTE_OWNER ? wanted->uid : (uid_t)-1;
    gid_t gid = wanted->flags & CAY_ATTRIBUTE_GROUP ? wanted->gid : (gid_t)-1;
    int error = 0;

    if (wanted->flags & (CAY_ATTRIBUTE_OWNER | CAY_ATTRIBUTE_GROUP))
        error = fs->set_owner(fs, target->fd, uid, gid);
    if (!error && wanted->flags & CAY_ATTRIBUTE_MODE)
        error = fs->set_mode(fs, target->fd, wanted->mode);
    return error;
}

int cay_files_set_attributes(cay_files *files, const char *path,
                             const struct cay_attributes *wanted, struct cay_error *err)
{
    static const char op[] = "files.set-attributes";
    struct cay_attributes known;
    AUTO_TARGET target = TARGET_NONE;

    TRY(cay_take_struct(&known, sizeof known, wanted, op, err));
    if (known.flags &
        ~(unsigned)(CAY_ATTRIBUTE_MODE | CAY_ATTRIBUTE_OWNER | CAY_ATTRIBUTE_GROUP))
        return cay_fail(err, CAY_E_UNSUPPORTED, 0, op, "flags", "unknown flags",
                        "use those of enum cay_attribute");
    TRY(target_find(files, op, path, CAY_ACCESS_WRITE, TARGET_NO_FOLLOW, &target, err));
    TRY(target_must_exist(&target, err));
    TRY(check_attributes(&known, &target, err));
    if (S_ISREG(target.st.st_mode))
        TRY(target_check_suffix(files, &target, err));
    TRY(ask(files, CAY_OP_WRITE, &target, CAY_ACCESS_WRITE, NULL, false, err));
    int error = set_attributes(&known, &target);
    if (error == -EINVAL)
        return fail_owner(&target, err);
    return error ? target_fail(&target, -error, err) : CAY_OK;
}

int cay_files_stat(cay_files *files, const char *path, bool no_follow,
                   struct cay_stat *ret_stat, struct cay_error *err)
{
    AUTO_TARGET target = TARGET_NONE;

    int code = target_find(files, "files.stat", path, CAY_ACCESS_READ,
                           no_follow ? TARGET_NO_FOLLOW : TARGET_FOLLOW, &target, err);
    if (!code)
        code = target_must_exist(&target, err);
    if (!code)
        stat_of(&target.st, ret_stat);
    return code;
}

/* A file may have a time whose nanoseconds exceed 64 bits. */
static int64_t nanoseconds(struct timespec time)
{
    int64_t total;

    if (__builtin_mul_overflow((int64_t)time.tv_sec, 1000000000, &total) ||
        __builtin_add_overflow(total, (int64_t)time.tv_nsec, &total))
        return time.tv_sec < 0 ? INT64_MIN : INT64_MAX;
    return total;
}

enum cay_type files_type(mode_t mode)
{
    return S_ISREG(mode)   ? CAY_TYPE_FILE
           : S_ISDIR(mode) ? CAY_TYPE_DIRECTORY
           : S_ISLNK(mode) ? CAY_TYPE_LINK
                           : CAY_TYPE_OTHER;
}

void stat_of(const struct stat *st, struct cay_stat *ret_stat)
{
    *ret_stat = (struct cay_stat){
        .type = files_type(st->st_mode),
        .mode = st->st_mode & 07777,
        .uid = st->st_uid,
        .gid = st->st_gid,
        .bytes = (uint64_t)st->st_size,
        .links = st->st_nlink,
        .mtime_ns = nanoseconds(st->st_mtim),
    };
}

int cay_files_exists(cay_files *files, const char *path, struct cay_error *err)
{
    AUTO_TARGET target = TARGET_NONE;

    TRY(target_find(files, "files.exists", path, CAY_ACCESS_READ, TARGET_FOLLOW, &target,
                    err));
    return target.fd >= 0;
}
