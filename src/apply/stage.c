/* SPDX-License-Identifier: Apache-2.0 */

/* The stage: a directory in the directory that changes, so that a rename puts each new
 * file into its place. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "apply/apply.h"
#include "base/array.h"
#include "base/auto.h"
#include "base/error.h"
#include "diff/content.h"
#include "sys/copy.h"
#include "sys/path.h"

enum { RIGHTS = 0777, NAMES_MAX = 4 << 10, VALUE_MAX = 64 << 10 };

static const char *name_of(unsigned number, char name[16])
{
    snprintf(name, 16, "%u", number);
    return name;
}

/* --- One new file --- */

/* Attributes of users, but for those of overlays.  A file system without them is no
 * error. */
static void copy_xattrs(int from, int to)
{
    char names[NAMES_MAX];
    ssize_t len = flistxattr(from, names, sizeof names);
    char *value = len > 0 ? malloc(VALUE_MAX) : NULL;

    for (char *name = names; value && name < names + len; name += strlen(name) + 1) {
        if (strncmp(name, "user.", 5) != 0 || strncmp(name, "user.overlay.", 13) == 0)
            continue;
        ssize_t size = fgetxattr(from, name, value, VALUE_MAX);
        if (size >= 0)
            (void)fsetxattr(to, name, value, (size_t)size, 0);
    }
    free(value);
}

/* Of root's tries the owner of the directory owns the new files, too. */
static int give(const struct apply *apply, int fd, const char *name)
{
    if (geteuid() != 0)
        return 0;
    return fchownat(fd, name, apply->dir_st.st_uid, apply->dir_st.st_gid,
                    AT_SYMLINK_NOFOLLOW | (*name ? 0 : AT_EMPTY_PATH)) == 0
               ? 0
               : -errno;
}

static int fill_file(const struct apply *apply, const struct cay_change *change, int to)
{
    struct stat st;
    uint64_t copied;
    AUTO_FD from = content_open(apply->diff, change->layers[1], change->path);

    if (from < 0)
        return from;
    if (fstat(from, &st) != 0)
        return -errno;
    if (!S_ISREG(st.st_mode))
        return -ESTALE;
    int error = copy_bytes(from, to, UINT64_MAX, &copied);
    if (error)
        return error;
    copy_xattrs(from, to);
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, st.st_mtim};
    return futimens(to, times) == 0 ? 0 : -errno;
}

static int stage_file(const struct apply *apply, const struct cay_change *change,
                      bool is_merged, const char *name, struct cay_error *err)
{
    AUTO_FD fd =
        path_open(apply->stage, name, O_RDWR | O_CREAT | O_EXCL, 0600, APPLY_PLAIN);
    int error = fd < 0 ? fd : 0;

    if (!error && is_merged) {
        int merged = apply_merge(apply, change, fd, err);
        if (merged < 0)
            return merged;
        error = merged ? 0 : -ESTALE;
    } else if (!error) {
        error = fill_file(apply, change, fd);
    }
    if (!error)
        error = give(apply, fd, "");
    if (!error && fchmod(fd, change->after.mode & RIGHTS) != 0)
        error = -errno;
    return error ? cay_fail_errno(err, -error, APPLY_OP, change->path) : CAY_OK;
}

static int stage_link(const struct apply *apply, const struct cay_change *change,
                      const char *name)
{
    char text[PATH_MAX];
    ssize_t len = content_link(apply->diff, change->layers[1], change->path, text);

    if (len < 0 || len >= PATH_MAX)
        return len < 0 ? (int)len : -ENAMETOOLONG;
    text[len] = '\0';
    /* A sandbox that still runs may have replaced it after the check. */
    if (apply_leads_out(change->path, text) &&
        !apply_is_named(apply->options, change->path))
        return -ESTALE;
    return symlinkat(text, apply->stage, name) == 0 ? give(apply, apply->stage, name)
                                                    : -errno;
}

static int stage_directory(const struct apply *apply, const struct cay_change *change,
                           const char *name)
{
    if (mkdirat(apply->stage, name, 0700) != 0)
        return -errno;
    int error = give(apply, apply->stage, name);
    return error                                                               ? error
           : fchmodat(apply->stage, name, change->after.mode & RIGHTS, 0) == 0 ? 0
                                                                               : -errno;
}

static int stage_new(const struct apply *apply, const struct cay_change *change,
                     bool is_merged, struct apply_step *step, struct cay_error *err)
{
    char name[16];
    struct stat st;

    name_of(step->number, name);
    if (S_ISREG(change->after.mode)) {
        TRY(stage_file(apply, change, is_merged, name, err));
    } else {
        int error = S_ISLNK(change->after.mode) ? stage_link(apply, change, name)
                                                : stage_directory(apply, change, name);
        if (error)
            return cay_fail_errno(err, -error, APPLY_OP, change->path);
    }
    if (fstatat(apply->stage, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return cay_fail_errno(err, errno, APPLY_OP, change->path);
    step->ino = st.st_ino;
    return CAY_OK;
}

/* --- Steps --- */

static struct apply_step *add_step(struct apply *apply, const struct cay_change *change,
                                   enum apply_kind kind, struct cay_error *err)
{
    char *path = strdup(change->path);

    if (!path || !array_reserve(&apply->steps, &apply->step_room, apply->step_count + 1,
                                sizeof *apply->steps)) {
        free(path);
        (void)cay_fail_memory(err, APPLY_OP);
        return NULL;
    }
    struct apply_step *step = &apply->steps[apply->step_count];
    *step = (struct apply_step){.path = path,
                                .kind = kind,
                                .number = (unsigned)apply->step_count,
                                .mode = change->after.mode & RIGHTS,
                                .old_mode = change->before.mode & 07777};
    apply->step_count++;
    return step;
}

/* Remembers what is there, for the last check and for undoing.  It is what the check has
 * seen: staging what comes before may have taken long. */
static int note_old(const struct apply *apply, const struct cay_change *change,
                    struct apply_step *step, struct cay_error *err)
{
    int error = apply_stat(apply->dir, step->path, &step->old);

    if (error)
        return cay_fail_errno(err, -error, APPLY_OP, step->path);
    if (!step->is_merged && apply_find_conflict(apply, change))
        return cay_fail(err, CAY_E_CHANGED, 0, APPLY_OP, step->path,
                        "the directory changed meanwhile",
                        "nothing was applied; try again");
    step->ino = step->old.st_ino;
    step->old_mode = step->old.st_mode & 07777;
    step->uid = step->old.st_uid;
    step->gid = step->old.st_gid;
    return CAY_OK;
}

static bool is_removed(const struct cay_change *change)
{
    bool was = S_ISDIR(change->before.mode), will_be = S_ISDIR(change->after.mode);

    return change->kind == CAY_CHANGE_DELETED ||
           (change->kind == CAY_CHANGE_TYPE && was != will_be);
}

static int add_removal(struct apply *apply, const struct cay_change *change,
                       struct cay_error *err)
{
    struct apply_step *step = add_step(
        apply, change,
        S_ISDIR(change->before.mode) ? APPLY_REMOVE_DIRECTORY : APPLY_REMOVE, err);

    return step ? note_old(apply, change, step, err) : CAY_E_NO_MEMORY;
}

/* What takes the place of something, or is new, or has another mode. */
static int add_rest(struct apply *apply, const struct cay_change *change, bool is_merged,
                    struct cay_error *err)
{
    bool is_new = change->kind == CAY_CHANGE_ADDED || is_removed(change);
    bool is_mode = change->kind == CAY_CHANGE_MODE ||
                   (change->kind == CAY_CHANGE_MODIFIED && S_ISDIR(change->after.mode));
    enum apply_kind kind = is_new ? APPLY_ADD : is_mode ? APPLY_MODE : APPLY_EXCHANGE;

    if (change->kind == CAY_CHANGE_DELETED)
        return CAY_OK;
    /* Another owner, or attributes, alone. */
    if (is_mode && !(change->parts & CAY_CHANGED_MODE))
        return CAY_OK;
    struct apply_step *step = add_step(apply, change, kind, err);
    if (!step)
        return CAY_E_NO_MEMORY;
    step->is_merged = is_merged;
    if (kind != APPLY_ADD)
        TRY(note_old(apply, change, step, err));
    /* The other names of the file keep its mode: the overlay has a copy. */
    if (kind == APPLY_MODE && S_ISREG(step->old.st_mode) && step->old.st_nlink > 1)
        step->kind = APPLY_EXCHANGE;
    return step->kind == APPLY_MODE ? CAY_OK
                                    : stage_new(apply, change, is_merged, step, err);
}

/* The change of an entry of the report; both are in the order of their paths. */
static const struct cay_change *next_change(const struct apply *apply, const char *path,
                                            size_t *at)
{
    size_t count;
    const struct cay_change *changes = cay_diff_changes(apply->diff, &count);

    while (*at < count && strcmp(changes[*at].path, path) != 0)
        ++*at;
    return *at < count ? &changes[*at] : NULL;
}

static int add_steps(struct apply *apply, struct cay_error *err)
{
    const cay_apply_report *report = apply->report;
    size_t at = 0;
    const struct cay_change **taken = calloc(report->count + 1, sizeof *taken);
    int code = taken ? CAY_OK : cay_fail_memory(err, APPLY_OP);

    for (size_t i = 0; !code && i < report->count; i++)
        if (report->list[i].verdict == CAY_APPLY_DONE ||
            report->list[i].verdict == CAY_APPLY_MERGED)
            taken[i] = next_change(apply, report->list[i].path, &at);
    /* From the bottom up, then from the top down. */
    for (size_t i = report->count; !code && i-- > 0;)
        if (taken[i] && is_removed(taken[i]))
            code = add_removal(apply, taken[i], err);
    for (size_t i = 0; !code && i < report->count; i++)
        if (taken[i])
            code = add_rest(apply, taken[i], report->list[i].verdict == CAY_APPLY_MERGED,
                            err);
    free(taken);
    return code;
}

int apply_stage(struct apply *apply, struct cay_error *err)
{
    if (mkdirat(apply->dir, apply->stage_name, 0700) != 0)
        return cay_fail_errno(err, errno, APPLY_OP, apply->stage_name);
    apply->stage =
        path_open(apply->dir, apply->stage_name, O_RDONLY | O_DIRECTORY, 0, APPLY_PLAIN);
    if (apply->stage < 0)
        return cay_fail_errno(err, -apply->stage, APPLY_OP, apply->stage_name);
    TRY(add_steps(apply, err));
    return syncfs(apply->stage) == 0
               ? CAY_OK
               : cay_fail_errno(err, errno, APPLY_OP, apply->stage_name);
}

int apply_remove_stage(int dir, const char *name, struct cay_error *err)
{
    AUTO_FD stage = path_open(dir, name, O_RDONLY | O_DIRECTORY, 0, APPLY_PLAIN);
    AUTO_DIR list = stage < 0 ? NULL : path_list(stage);
    const struct dirent *entry;

    if (stage == -ENOENT)
        return CAY_OK;
    while ((entry = path_next(list)))
        if (unlinkat(stage, entry->d_name, 0) != 0 &&
            unlinkat(stage, entry->d_name, AT_REMOVEDIR) != 0)
            return cay_fail_errno(err, errno, APPLY_OP, name);
    if (stage < 0 || unlinkat(dir, name, AT_REMOVEDIR) != 0)
        return cay_fail_errno(err, stage < 0 ? -stage : errno, APPLY_OP, name);
    return CAY_OK;
}
