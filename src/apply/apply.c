/* SPDX-License-Identifier: Apache-2.0 */
#include "apply/apply.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/auto.h"
#include "base/error.h"
#include "sys/path.h"

int apply_open_parent(int top, const char *path, const char **ret_name)
{
    const char *slash = strrchr(path, '/');
    size_t len = slash ? (size_t)(slash - path) : 0;
    char above[PATH_MAX];

    if (len >= sizeof above)
        return -ENAMETOOLONG;
    memcpy(above, path, len);
    above[len] = '\0';
    *ret_name = !*path ? "." : slash ? slash + 1 : path;
    return path_open(top, above, O_PATH | O_DIRECTORY, 0, APPLY_PLAIN);
}

int apply_stat(int top, const char *path, struct stat *ret_stat)
{
    const char *name;
    AUTO_FD parent = apply_open_parent(top, path, &name);

    if (parent < 0)
        return TAKE_FD(parent);
    return fstatat(parent, name, ret_stat, AT_SYMLINK_NOFOLLOW) == 0 ? 0 : -errno;
}

/* --- What is known after an apply --- */

static int compare_known(const void *a, const void *b)
{
    const struct apply_known *one = a, *other = b;
    int order = strcmp(one->path, other->path);

    return order ? order : other->is_new - one->is_new;
}

static bool know(int dir, struct apply_base *base, const char *path)
{
    struct stat st;

    if (apply_stat(dir, path, &st))
        return true; /* it was removed */
    char *own = strdup(path);
    if (!own || !array_reserve(&base->known, &base->known_room, base->known_count + 1,
                               sizeof *base->known)) {
        free(own);
        return false;
    }
    base->known[base->known_count++] =
        (struct apply_known){own, st.st_ino, st.st_ctim, true};
    return true;
}

static void sort_known(struct apply_base *base)
{
    size_t kept = 0;

    if (base->known_count)
        qsort(base->known, base->known_count, sizeof *base->known, compare_known);
    for (size_t i = 0; i < base->known_count; i++)
        if (kept && strcmp(base->known[kept - 1].path, base->known[i].path) == 0)
            free(base->known[i].path);
        else
            base->known[kept++] = base->known[i];
    base->known_count = kept;
}

static bool know_parent(int dir, struct apply_base *base, const char *path)
{
    char above[PATH_MAX];

    cay_copy_text(above, sizeof above, path);
    char *slash = strrchr(above, '/');
    *(slash ? slash : above) = '\0';
    return know(dir, base, above);
}

/* The files, and the directories that they are in: those of the next apply are compared
 * with them. */
static int know_steps(struct apply *apply, struct cay_error *err)
{
    bool fits = true;

    for (size_t i = 0; fits && i < apply->step_count; i++) {
        const char *path = apply->steps[i].path;
        fits = know(apply->dir, apply->base, path) &&
               know_parent(apply->dir, apply->base, path);
    }
    sort_known(apply->base);
    return fits ? CAY_OK : cay_fail_memory(err, APPLY_OP);
}

/* Not what the user has written since: its size or its modification time differ. */
static bool is_restored(int dir, const struct apply_step *step)
{
    const struct stat *old = &step->old;
    struct stat st;

    return old->st_ino && !step->is_merged && !apply_stat(dir, step->path, &st) &&
           st.st_ino == old->st_ino && st.st_mode == old->st_mode &&
           st.st_size == old->st_size && st.st_mtim.tv_sec == old->st_mtim.tv_sec &&
           st.st_mtim.tv_nsec == old->st_mtim.tv_nsec;
}

/* One that was checked as new is still new to the directory, which the apply has changed.
 */
static bool know_new(int dir, struct apply_base *base, const char *path)
{
    struct stat st;

    if (apply_stat(dir, path, &st) != -ENOENT)
        return true;
    char *own = strdup(path);
    if (!own || !array_reserve(&base->known, &base->known_room, base->known_count + 1,
                               sizeof *base->known)) {
        free(own);
        return false;
    }
    base->known[base->known_count++] = (struct apply_known){.path = own, .is_new = true};
    return true;
}

int apply_know_restored(int dir, const struct apply_step *steps, size_t count,
                        struct apply_base *base, struct cay_error *err)
{
    bool fits = true;

    for (size_t i = 0; fits && i < count; i++)
        if (steps[i].kind == APPLY_ADD)
            fits = know_new(dir, base, steps[i].path);
        else if (is_restored(dir, &steps[i]))
            fits = know(dir, base, steps[i].path);
    sort_known(base);
    return fits ? CAY_OK : cay_fail_memory(err, APPLY_OP);
}

static int know_undone(struct apply *apply, struct cay_error *err)
{
    const cay_apply_report *report = apply->report;

    for (size_t i = 0; i < report->count; i++)
        if (report->list[i].kind == CAY_CHANGE_ADDED &&
            report->list[i].verdict == CAY_APPLY_DONE &&
            !know_new(apply->dir, apply->base, report->list[i].path))
            return cay_fail_memory(err, APPLY_OP);
    return apply_know_restored(apply->dir, apply->steps, apply->step_count, apply->base,
                               err);
}

/* --- The whole --- */

/* Conflicts of text that git can merge are not conflicts any more. */
static int merge_conflicts(struct apply *apply, size_t *conflicts, struct cay_error *err)
{
    size_t count;
    const struct cay_change *changes = cay_diff_changes(apply->diff, &count);

    for (size_t i = 0, at = 0; i < apply->report->count; i++) {
        struct cay_applied *applied = &apply->report->list[i];
        while (at < count && strcmp(changes[at].path, applied->path) != 0)
            at++;
        if (applied->verdict != CAY_APPLY_CONFLICT || at == count ||
            changes[at].kind != CAY_CHANGE_MODIFIED)
            continue;
        int merged = apply_merge(apply, &changes[at], -1, err);
        if (merged < 0)
            return merged;
        if (merged) {
            applied->verdict = CAY_APPLY_MERGED;
            applied->reason = NULL;
            --*conflicts;
        } else {
            applied->reason =
                "it was changed in the directory, and its lines cannot be merged";
        }
    }
    return CAY_OK;
}

static int fail_conflicts(size_t conflicts, struct cay_error *err)
{
    return cay_fail(err, CAY_E_CHANGED, 0, APPLY_OP, NULL,
                    conflicts == 1 ? "a file was changed on both sides"
                                   : "files were changed on both sides",
                    "nothing was applied; merge them, skip them, or name the others");
}

static int work(struct apply *apply, struct cay_error *err)
{
    int code = apply_begin_journal(apply, err);

    if (!code)
        code = apply_stage(apply, err);
    if (!code && apply->step_count)
        code = apply_run(apply, err);
    if (apply->is_torn)
        return code;
    struct cay_error other;
    int removed = apply_remove_stage(apply->dir, apply->stage_name, code ? &other : err);
    /* The stage was in a directory, too. */
    if (code)
        (void)!know_undone(apply, &other);
    else if (!(code = removed))
        code = know_steps(apply, err);
    return code;
}

int apply_all(struct apply *apply, struct cay_error *err)
{
    size_t conflicts;

    apply->stage = -1;
    if (fstat(apply->dir, &apply->dir_st) != 0)
        return cay_fail_errno(err, errno, APPLY_OP, "directory");
    TRY(apply_check(apply, &conflicts, err));
    if (conflicts && apply->options->flags & CAY_APPLY_MERGE)
        TRY(merge_conflicts(apply, &conflicts, err));
    if (conflicts && !(apply->options->flags & CAY_APPLY_SKIP_CONFLICTS))
        return fail_conflicts(conflicts, err);
    if (apply->options->flags & CAY_APPLY_CHECK)
        return CAY_OK;
    int code = work(apply, err);
    auto_close(&apply->stage);
    for (size_t i = 0; i < apply->step_count; i++)
        free(apply->steps[i].path);
    free(apply->steps);
    return code;
}

/* --- Reports --- */

const struct cay_applied *cay_apply_entries(const cay_apply_report *report,
                                            size_t *ret_count)
{
    *ret_count = report ? report->count : 0;
    return report ? report->list : NULL;
}

void cay_apply_free(cay_apply_report *report)
{
    if (!report)
        return;
    for (size_t i = 0; i < report->count; i++)
        free((void *)(uintptr_t)report->list[i].path);
    free(report->list);
    free(report);
}
