/* SPDX-License-Identifier: Apache-2.0 */

/* The journal is kept outside the directory, where nobody else can write: what it says is
 * done.  Its first line names the stage; a line for each step follows while they are
 * carried out.  Whether a step has been done shows in the directory: by the inode at its
 * path, or by what is in the stage. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "apply/apply.h"
#include "base/array.h"
#include "base/auto.h"
#include "base/error.h"
#include "sys/path.h"

enum { JOURNAL_MAX = 512 << 20 };

/* --- Steps forward --- */

static int stat_stage(int stage, unsigned number, char name[16], struct stat *ret_stat)
{
    snprintf(name, 16, "%u", number);
    return fstatat(stage, name, ret_stat, AT_SYMLINK_NOFOLLOW) == 0 ? 0 : -errno;
}

static bool is_same_file(const struct stat *a, const struct stat *b)
{
    return a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
           a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* The old file must still be the one that was checked: else it is put back, with all
 * others. */
static int exchange(const struct apply_step *step, int stage, int parent,
                    const char *name)
{
    char new[16];
    struct stat st;

    snprintf(new, sizeof new, "%u", step->number);
    int error = path_rename(stage, new, parent, name, RENAME_EXCHANGE);
    if (error || fstatat(stage, new, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return error ? error : -errno;
    return is_same_file(&st, &step->old) ? 0 : -ESTALE;
}

static int move_out(const struct apply_step *step, int stage, int parent,
                    const char *name)
{
    char old[16];
    struct stat st;

    snprintf(old, sizeof old, "%u", step->number);
    int error = path_rename(parent, name, stage, old, RENAME_NOREPLACE);
    if (error || fstatat(stage, old, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return error ? error : -errno;
    return is_same_file(&st, &step->old) ? 0 : -ESTALE;
}

static int set_mode(int parent, const char *name, uint64_t ino, uint32_t mode)
{
    struct stat st;
    AUTO_FD fd = path_open(parent, name, O_PATH | O_NOFOLLOW, 0, APPLY_PLAIN);
    char path[64];

    if (fd < 0)
        return fd;
    if (fstat(fd, &st) != 0)
        return -errno;
    if (st.st_ino != ino)
        return -ESTALE;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return chmod(path, mode) == 0 ? 0 : -errno;
}

/* The times of a directory change with its entries, and that of a file with several
 * links with each of them. */
static bool is_unchanged(const struct stat *now, const struct stat *old)
{
    if (S_ISDIR(old->st_mode))
        return now->st_ino == old->st_ino;
    return is_same_file(now, old) &&
           (old->st_nlink > 1 || (now->st_ctim.tv_sec == old->st_ctim.tv_sec &&
                                  now->st_ctim.tv_nsec == old->st_ctim.tv_nsec));
}

static int take_step(const struct apply_step *step, int dir, int stage)
{
    const char *name;
    char new[16];
    struct stat st = {0};
    AUTO_FD parent = apply_open_parent(dir, step->path, &name);

    if (parent < 0)
        return parent;
    if (step->kind != APPLY_ADD) {
        if (fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
            return -errno;
        if (!is_unchanged(&st, &step->old))
            return -ESTALE;
    }
    switch (step->kind) {
    case APPLY_REMOVE:
        return move_out(step, stage, parent, name);
    case APPLY_REMOVE_DIRECTORY:
        return unlinkat(parent, name, AT_REMOVEDIR) == 0 ? 0 : -errno;
    case APPLY_ADD:
        snprintf(new, sizeof new, "%u", step->number);
        return path_rename(stage, new, parent, name, RENAME_NOREPLACE);
    case APPLY_EXCHANGE:
        return exchange(step, stage, parent, name);
    case APPLY_MODE:
        return set_mode(parent, name, step->ino, step->mode);
    case APPLY_NOTHING:
        break;
    }
    return -EINVAL;
}

/* --- Steps back --- */

static int restore_directory(const struct apply_step *step, int parent, const char *name)
{
    if (mkdirat(parent, name, 0700) != 0)
        return errno == EEXIST ? 0 : -errno;
    if (geteuid() == 0 &&
        fchownat(parent, name, step->uid, step->gid, AT_SYMLINK_NOFOLLOW) != 0)
        return -errno;
    /* A user who may write to the parent may have put a link there. */
    return path_chmod(parent, name, step->old_mode);
}

/* A step that was not done, or is undone already, is left alone. */
static int undo_step(const struct apply_step *step, int dir, int stage)
{
    const char *name;
    char staged[16];
    struct stat here, there;

    if (!step->ino)
        return 0; /* it only says that the path was new */
    AUTO_FD parent = apply_open_parent(dir, step->path, &name);
    if (parent < 0)
        return parent == -ENOENT ? 0 : parent;
    bool is_here = fstatat(parent, name, &here, AT_SYMLINK_NOFOLLOW) == 0;
    bool is_staged = stat_stage(stage, step->number, staged, &there) == 0;
    bool is_done = is_here && here.st_ino == step->ino;
    switch (step->kind) {
    case APPLY_REMOVE:
        return is_staged ? path_rename(stage, staged, parent, name, RENAME_NOREPLACE) : 0;
    case APPLY_REMOVE_DIRECTORY:
        return is_here ? 0 : restore_directory(step, parent, name);
    case APPLY_ADD:
        return is_done && !is_staged
                   ? path_rename(parent, name, stage, staged, RENAME_NOREPLACE)
                   : 0;
    case APPLY_EXCHANGE:
        return is_done && is_staged
                   ? path_rename(stage, staged, parent, name, RENAME_EXCHANGE)
                   : 0;
    case APPLY_MODE:
        return is_done ? set_mode(parent, name, step->ino, step->old_mode) : 0;
    case APPLY_NOTHING:
        break;
    }
    return -EINVAL;
}

static int undo(const struct apply_step *steps, size_t count, int dir, int stage,
                struct cay_error *err)
{
    int code = CAY_OK;

    while (count-- > 0) {
        int error = undo_step(&steps[count], dir, stage);
        if (error && !code)
            code = cay_fail_errno(err, -error, APPLY_OP, steps[count].path);
    }
    return code;
}

/* --- The file --- */

static void put_step(struct buf *text, const struct apply_step *step, const char *path)
{
    const struct stat *old = &step->old;

    buf_format(text, "%c %u %" PRIu64 " %u %u %u %u ", (char)step->kind, step->number,
               step->ino, step->mode, step->old_mode, step->uid, step->gid);
    buf_format(text, "%" PRIu64 " %" PRIu64 " %" PRIu64 " %ld %u %d ",
               (uint64_t)old->st_ino, (uint64_t)old->st_size,
               (uint64_t)old->st_mtim.tv_sec, old->st_mtim.tv_nsec, old->st_mode,
               step->is_merged);
    buf_append(text, path, strlen(path) + 1);
}

static int save(const struct apply *apply, bool with_steps, struct cay_error *err)
{
    struct buf text;

    buf_init(&text, JOURNAL_MAX);
    buf_append(&text, apply->stage_name, strlen(apply->stage_name) + 1);
    for (size_t i = 0; with_steps && i < apply->step_count; i++)
        put_step(&text, &apply->steps[i], apply->steps[i].path);
    int code = text.failed ? cay_fail_memory(err, APPLY_OP)
                           : apply->save(apply->cookie, text.data, text.len, err);
    buf_done(&text);
    return code;
}

int apply_begin_journal(const struct apply *apply, struct cay_error *err)
{
    static const struct apply_step new = {.kind = APPLY_ADD};
    const cay_apply_report *report = apply->report;
    struct buf text;

    buf_init(&text, JOURNAL_MAX);
    buf_append(&text, apply->stage_name, strlen(apply->stage_name) + 1);
    for (size_t i = 0; i < report->count; i++)
        if (report->list[i].kind == CAY_CHANGE_ADDED &&
            report->list[i].verdict == CAY_APPLY_DONE)
            put_step(&text, &new, report->list[i].path);
    int code = text.failed ? cay_fail_memory(err, APPLY_OP)
                           : apply->save(apply->cookie, text.data, text.len, err);
    buf_done(&text);
    return code;
}

static bool parse_step(const char *line, struct apply_step *ret_step)
{
    uint64_t numbers[12];
    char *at = (char *)(uintptr_t)line + 1;

    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const char *from = at;
        numbers[i] = strtoull(from, &at, 10);
        if (at == from)
            return false;
    }
    if (*at++ != ' ' || !*at)
        return false;
    *ret_step = (struct apply_step){.path = at, /* not freed */
                                    .kind = (enum apply_kind) * line,
                                    .number = (unsigned)numbers[0],
                                    .ino = numbers[1],
                                    .mode = (uint32_t)numbers[2],
                                    .old_mode = (uint32_t)numbers[3],
                                    .uid = (uint32_t)numbers[4],
                                    .gid = (uint32_t)numbers[5],
                                    .is_merged = numbers[11]};
    struct stat *old = &ret_step->old;
    old->st_ino = numbers[6];
    old->st_size = (off_t)numbers[7];
    old->st_mtim.tv_sec = (time_t)numbers[8];
    old->st_mtim.tv_nsec = (long)numbers[9];
    old->st_mode = (mode_t)numbers[10];
    return true;
}

int apply_recover(int dir, const char *journal, size_t len, struct apply_base *base,
                  struct cay_error *err)
{
    size_t first = strnlen(journal, len) + 1, count = 0, room = 0;
    struct apply_step *steps = NULL;
    int code = CAY_OK;

    if (first > len || strncmp(journal, ".cay-apply-", 11) != 0 || strchr(journal, '/'))
        return cay_fail(err, CAY_E_IO, 0, APPLY_OP, "journal", "the journal is damaged",
                        "look for a directory .cay-apply-* and restore its files");
    AUTO_FD stage = path_open(dir, journal, O_RDONLY | O_DIRECTORY, 0, APPLY_PLAIN);
    if (stage < 0 && stage != -ENOENT)
        return cay_fail_errno(err, -stage, APPLY_OP, journal);
    for (const char *line = journal + first; !code && line < journal + len;
         line += strlen(line) + 1) {
        if (!array_reserve(&steps, &room, count + 1, sizeof *steps))
            code = cay_fail_memory(err, APPLY_OP);
        else if (parse_step(line, &steps[count]))
            count++;
    }
    if (!code && stage >= 0)
        code = undo(steps, count, dir, stage, err);
    if (!code && stage >= 0 && count && syncfs(dir) != 0)
        code = cay_fail_errno(err, errno, APPLY_OP, "syncfs");
    if (!code)
        code = apply_remove_stage(dir, journal, err);
    /* Also if an earlier recovery was killed after it had removed the stage. */
    if (!code)
        code = apply_know_restored(dir, steps, count, base, err);
    free(steps);
    return code;
}

static int fail_step(const struct apply_step *step, int error, struct cay_error *err)
{
    if (error == -ESTALE || error == -EEXIST || error == -ENOENT || error == -ENOTEMPTY)
        return cay_fail(err, CAY_E_CHANGED, -error, APPLY_OP, step->path,
                        "the directory changed meanwhile",
                        "nothing was applied; try again");
    return cay_fail_errno(err, -error, APPLY_OP, step->path);
}

int apply_run(struct apply *apply, struct cay_error *err)
{
    struct cay_error other;
    int code = save(apply, true, err);

    for (size_t i = 0; !code && i < apply->step_count; i++) {
        int error = take_step(&apply->steps[i], apply->dir, apply->stage);
        if (error) {
            code = fail_step(&apply->steps[i], error, err);
            if (undo(apply->steps, i + 1, apply->dir, apply->stage, &other) != CAY_OK) {
                apply->is_torn = true;
                return cay_fail_as(err, other.code, &other);
            }
        }
    }
    if (syncfs(apply->stage) != 0 && !code)
        code = cay_fail_errno(err, errno, APPLY_OP, "syncfs");
    int saved = save(apply, false, code ? &other : err);
    apply->is_torn = saved != CAY_OK;
    return code ? code : saved;
}
