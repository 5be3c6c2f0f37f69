/* SPDX-License-Identifier: Apache-2.0 */
#include "files/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "files/find.h"
#include "files/unpack.h"
#include "files/walk.h"
#include "sys/io.h"

#define OP "files.copy_tree"

enum { PSEUDO_MAX = 64 << 20 };

struct visit {
    struct tree_read *tree;
    struct target target;     /* the current entry... */
    char label[2 * PATH_MAX]; /* ...and its path as the policy spells it */
};

static int fail_limit(const struct visit *visit, const char *message, uint64_t limit,
                      struct cay_error *err)
{
    return cay_fail(err, CAY_E_LIMIT, 0, visit->tree->op, visit->label, message,
                    "the limit is %llu", (unsigned long long)limit);
}

static int note_denied(struct visit *visit)
{
    struct tree_read *tree = visit->tree;

    if (tree->denied++ == 0)
        cay_copy_text(tree->denied_path, sizeof tree->denied_path, visit->label);
    return CAY_OK;
}

/* --- Entries -------------------------------------------------------------------------
 */

static int take_entry(struct visit *visit, const struct walk_step *step, int fd,
                      struct cay_error *err)
{
    struct tree_read *tree = visit->tree;
    const struct tree_entry entry = {
        .rel = step->rel, .target = &visit->target, .depth = step->depth, .fd = fd};

    if (tree->entries == tree->options->max_entries)
        return fail_limit(visit, "the directory has more entries than allowed",
                          tree->options->max_entries, err);
    int taken = tree->take(tree->cookie, &entry, err);
    if (taken > 0)
        tree->entries++;
    else if (taken == 0)
        tree->skipped++;
    return taken < 0 ? taken : CAY_OK;
}

static bool is_allowed(const struct visit *visit)
{
    const struct target *target = &visit->target;
    const cay_files *files = visit->tree->files;

    return target_check_suffix(files, target, NULL) == CAY_OK &&
           target_check_size(files, target, (uint64_t)target->st.st_size, NULL) == CAY_OK;
}

/* A file of /proc or /sys has no size before it is read.  Replaces *fd by a copy in
 * memory; false if it is longer than PSEUDO_MAX or cannot be read. */
static bool copy_to_memory(int *fd, struct stat *st)
{
    char piece[16 << 10];
    AUTO_FD copy = memfd_create("file", MFD_CLOEXEC);

    st->st_size = 0;
    while (copy >= 0 && st->st_size <= PSEUDO_MAX) {
        ssize_t got = read(*fd, piece, sizeof piece);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 || io_write(copy, piece, (size_t)got) != 0)
            return false;
        if (got == 0) {
            (void)close(*fd);
            *fd = TAKE_FD(copy);
            return lseek(*fd, 0, SEEK_SET) == 0;
        }
        st->st_size += got;
    }
    return false;
}

/* Size and times after opening.  The owner stays that of the lookup: fstat() here shows
 * host uids for a file in a sandbox. */
static bool stat_again(int fd, struct stat *st)
{
    uid_t uid = st->st_uid;
    gid_t gid = st->st_gid;

    if (fstat(fd, st) != 0)
        return false;
    st->st_uid = uid;
    st->st_gid = gid;
    return true;
}

static int take_file(struct visit *visit, const struct walk_step *step,
                     struct cay_error *err)
{
    struct tree_read *tree = visit->tree;
    AUTO_FD fd = -1;

    struct cay_error why;
    int code = is_allowed(visit) ? target_open(&visit->target, O_RDONLY, &fd, &why)
                                 : CAY_E_SUFFIX;
    if (code == CAY_E_DENIED)
        return note_denied(visit);
    if (find_is_serious(code)) {
        if (err)
            *err = why;
        return code;
    }
    if (!code && !stat_again(fd, &visit->target.st))
        return target_fail(&visit->target, errno, err);
    if (code || (fs_is_pseudo(fd) && !copy_to_memory(&fd, &visit->target.st)) ||
        !is_allowed(visit)) {
        tree->skipped++;
        return CAY_OK;
    }
    uint64_t size = (uint64_t)visit->target.st.st_size, before = tree->entries;
    if (size > tree->options->max_bytes - tree->bytes)
        return fail_limit(visit, "the directory has more bytes than allowed",
                          tree->options->max_bytes, err);
    code = take_entry(visit, step, fd, err);
    if (tree->entries > before)
        tree->bytes += size;
    return code;
}

static int take_name(struct visit *visit, const struct walk_step *step,
                     struct cay_error *err)
{
    struct target *target = &visit->target;
    struct fs_found found = {.fd = -1, .dir = -1};
    char name[PATH_MAX];

    target_done(target);
    int error = target->fs->find(target->fs, step->dir, NULL, step->name,
                                 FS_NO_FOLLOW | FS_AND_READ, name, &found);
    if (error == -EACCES || error == -EPERM)
        return note_denied(visit);
    if (error || found.fd < 0)
        return walk_may_skip(-error) ? CAY_OK : target_fail(target, -error, err);
    target->fd = found.fd;
    target->st = found.st;
    target->is_open = found.is_open;
    if (S_ISREG(target->st.st_mode))
        return take_file(visit, step, err);
    bool is_wanted_fifo =
        S_ISFIFO(target->st.st_mode) && visit->tree->options->flags & CAY_TAR_WHOLE;
    if (S_ISLNK(target->st.st_mode) || S_ISDIR(target->st.st_mode) || is_wanted_fifo)
        return take_entry(visit, step, -1, err);
    visit->tree->skipped++;
    return CAY_OK;
}

/* --- The walk -------------------------------------------------------------------------
 */

/* Whether this policy shows the path of the step; fills in the target without its fd. */
static bool locate(struct visit *visit, const struct walk_step *step)
{
    const struct target *start = visit->tree->start;
    const cay_policy *policy = visit->tree->files->policy;
    struct target *target = &visit->target;

    return walk_join(target->rel, start->rel, step->rel) &&
           policy_label(policy, start->mount, target->rel, visit->label,
                        sizeof visit->label) &&
           !policy_is_hidden(policy, start->mount, target->rel) &&
           policy_access(policy, start->mount, target->rel) & CAY_ACCESS_READ;
}

static int go_below(struct visit *visit, struct walk *walk, const struct walk_step *step,
                    struct cay_error *err)
{
    if (step->type != DT_DIR)
        return CAY_OK;
    if (step->depth >= visit->tree->options->max_depth)
        return fail_limit(visit, "the directory is nested deeper than allowed",
                          visit->tree->options->max_depth, err);
    int code = walk_enter(walk, 0, err);
    return !code && walk_was_denied(walk) ? note_denied(visit) : code;
}

static int take_all(struct visit *visit, struct cay_error *err)
{
    const struct tree_read *tree = visit->tree;
    const struct target *start = tree->start;
    const struct walk_options options = {.fs = tree->files->fs,
                                         .root = tree->files->roots[start->mount],
                                         .real = start->rel,
                                         .max_depth = UINT32_MAX};
    struct walk *walk = NULL;
    struct walk_step step;

    int code = walk_new(tree->op, start->fd, &options, &walk, err);
    if (!code && walk_was_denied(walk)) {
        cay_copy_text(visit->label, sizeof visit->label, start->path);
        (void)note_denied(visit);
    }
    while (!code) {
        code = walk_next(walk, &step, err);
        if (code <= 0)
            break;
        code = !locate(visit, &step)     ? CAY_OK
               : step.event == WALK_NAME ? take_name(visit, &step, err)
                                         : go_below(visit, walk, &step, err);
    }
    walk_free(walk);
    return code;
}

int tree_read(struct tree_read *tree, struct cay_error *err)
{
    AUTO_FREE struct visit *visit = calloc(1, sizeof *visit);

    if (!visit)
        return cay_fail_memory(err, tree->op);
    visit->tree = tree;
    visit->target = (struct target)TARGET_NONE;
    visit->target.fs = tree->files->fs;
    visit->target.op = tree->op;
    visit->target.path = visit->label;
    visit->target.mount = tree->start->mount;
    int code = take_all(visit, err);
    target_done(&visit->target);
    return code;
}

int tree_check_denied(const struct tree_read *tree, struct cay_error *err)
{
    if (tree->denied == 0)
        return CAY_OK;
    return cay_fail(err, CAY_E_DENIED, EACCES, tree->op, tree->denied_path,
                    "permission denied",
                    "%llu entries of the directory are unreadable; only the others "
                    "were copied",
                    (unsigned long long)tree->denied);
}

/* --- Copying between two handles ------------------------------------------------------
 *
 * What tree_read() finds goes through unpack_item(), as the entries of an archive do. */

struct tree_copy {
    struct unpack unpack;
    struct cay_tree_result *result;
};

static int put(struct tree_copy *copy, enum tar_kind kind, const struct tree_entry *entry,
               const char *link, uint64_t size, struct cay_error *err)
{
    const struct stat *st = &entry->target->st;
    const struct tar_item item = {.kind = kind,
                                  .path = entry->rel,
                                  .link = link,
                                  .mode = st->st_mode & 0777,
                                  .size = size,
                                  .mtime = st->st_mtim};

    return unpack_item(&copy->unpack, &item, err);
}

static int put_file(struct tree_copy *copy, const struct tree_entry *entry,
                    struct cay_error *err)
{
    uint64_t size = (uint64_t)entry->target->st.st_size, copied = 0;

    TRY(put(copy, TAR_FILE, entry, NULL, size, err));
    int error = write_copy(copy->unpack.files->fs, entry->fd, copy->unpack.temp.fd, size,
                           &copied);
    if (error)
        return fs_fail(copy->unpack.files->fs, -error, OP, entry->target->path, err);
    if (copied < size)
        return cay_fail(err, CAY_E_CHANGED, 0, OP, entry->target->path,
                        "the file became shorter while it was read",
                        "copy again when no process writes to it");
    TRY(put(copy, TAR_FILE_END, entry, NULL, size, err));
    copy->result->files++;
    copy->result->bytes += size;
    return 1;
}

static int put_link(struct tree_copy *copy, const struct tree_entry *entry,
                    struct cay_error *err)
{
    const struct target *target = entry->target;
    char text[PATH_MAX];

    ssize_t len = target->fs->read_link(target->fs, target->fd, text, sizeof text);
    if (len < 0)
        return target_fail(target, (int)-len, err);
    text[(size_t)len < sizeof text ? (size_t)len : 0] = '\0';
    if (!tar_link_stays(text, entry->depth - 1))
        return 0;
    TRY(put(copy, TAR_LINK, entry, text, 0, err));
    copy->result->links++;
    return 1;
}

static int fail_into_itself(const struct target *from, struct cay_error *err)
{
    return cay_fail(err, CAY_E_INVALID, 0, OP, from->path,
                    "a directory cannot be copied into itself",
                    "name a destination that is not below the source");
}

/* A directory copied into itself would grow without end. */
static int check_apart(const struct target *from, const struct target *to,
                       struct cay_error *err)
{
    bool same = from->st.st_dev == to->st.st_dev && from->st.st_ino == to->st.st_ino;

    return same ? fail_into_itself(from, err) : CAY_OK;
}

static int put_directory(struct tree_copy *copy, const struct tree_entry *entry,
                         struct cay_error *err)
{
    TRY(check_apart(entry->target, copy->unpack.target, err));
    TRY(put(copy, TAR_DIRECTORY, entry, NULL, 0, err));
    copy->result->directories++;
    return 1;
}

static int put_entry(void *cookie, const struct tree_entry *entry, struct cay_error *err)
{
    struct tree_copy *copy = cookie;
    mode_t mode = entry->target->st.st_mode;

    return S_ISREG(mode)   ? put_file(copy, entry, err)
           : S_ISLNK(mode) ? put_link(copy, entry, err)
                           : put_directory(copy, entry, err);
}

static int copy_all(cay_files *files, const struct target *from, const cay_files *other,
                    const struct target *to, const struct cay_tar_options *options,
                    struct cay_tree_result *ret_result, struct cay_error *err)
{
    AUTO_FREE struct tree_copy *copy = malloc(sizeof *copy);
    struct tree_read tree = {.op = OP,
                             .files = files,
                             .start = from,
                             .options = options,
                             .take = put_entry,
                             .cookie = copy};

    if (!copy)
        return cay_fail_memory(err, OP);
    copy->result = ret_result;
    unpack_init(&copy->unpack, other, to, options->max_entries);
    copy->unpack.exact = true;
    int code = tree_read(&tree, err);
    if (!code)
        code = tree_check_denied(&tree, err);
    unpack_done(&copy->unpack);
    ret_result->skipped = tree.skipped;
    return code;
}

int cay_files_copy_tree(cay_files *files, const char *source, cay_files *other,
                        const char *destination, const struct cay_tar_options *options,
                        struct cay_tree_result *ret_result, struct cay_error *err)
{
    struct cay_tar_options known;
    struct cay_approval out = {.op = CAY_OP_EXPORT}, in = {.op = CAY_OP_IMPORT};
    AUTO_TARGET from = TARGET_NONE, to = TARGET_NONE;
    AUTO_PARENT parent = PARENT_NONE;

    *ret_result = (struct cay_tree_result){0};
    TRY(tar_take_options(options, OP, 0, &known, err));
    TRY(target_find(files, OP, source, CAY_ACCESS_READ, TARGET_FOLLOW, &from, err));
    TRY(target_must_be_directory(&from, err));
    TRY(target_find(other, OP, destination, CAY_ACCESS_WRITE, TARGET_FOLLOW, &to, err));
    if (to.fd >= 0)
        TRY(target_must_be_directory(&to, err));
    /* Between two handles check_apart() finds it on the way. */
    if (files == other && target_lies_in(&to, &from))
        return fail_into_itself(&from, err);
    TRY(unpack_check_directory(other, &to, err));
    TRY(approve(files, &out, &from, CAY_ACCESS_READ, NULL, 0, err));
    TRY(approve(other, &in, &to, CAY_ACCESS_WRITE, NULL, 0, err));
    TRY(unpack_open_directory(other, &to, &parent, err));
    int code = check_apart(&from, &to, err);
    if (!code)
        code = copy_all(files, &from, other, &to, &known, ret_result, err);
    if (code && !(ret_result->files | ret_result->directories | ret_result->links))
        parent_undo(&parent);
    return code;
}
