/* SPDX-License-Identifier: Apache-2.0 */
#include "files/tree-read.h"

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
#include "files/walk.h"
#include "sys/io.h"

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

static int hand_on(struct visit *visit, const struct walk_step *step, int fd,
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

/* A file of /proc or /sys has neither size nor content but while it is read.  Puts a copy
 * of it in its place; false if it does not end, or cannot be read after all. */
static bool hold_content(int *fd, struct stat *st)
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

/* Size and times as they are now.  The owner stays the one that was found: a descriptor
 * from inside a sandbox shows the ids of the host. */
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
    if (code || (fs_is_pseudo(fd) && !hold_content(&fd, &visit->target.st)) ||
        !is_allowed(visit)) {
        tree->skipped++;
        return CAY_OK;
    }
    uint64_t size = (uint64_t)visit->target.st.st_size, before = tree->entries;
    if (size > tree->options->max_bytes - tree->bytes)
        return fail_limit(visit, "the directory has more bytes than allowed",
                          tree->options->max_bytes, err);
    code = hand_on(visit, step, fd, err);
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
        return hand_on(visit, step, -1, err);
    visit->tree->skipped++;
    return CAY_OK;
}

/* --- The walk ------------------------------------------------------------------------
 */

/* Whether the step is at a place this policy shows; fills in the target but for fd. */
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
                    "%llu of the directory's entries may not be read; only the others "
                    "were copied",
                    (unsigned long long)tree->denied);
}
