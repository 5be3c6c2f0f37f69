/* SPDX-License-Identifier: Apache-2.0 */

/* Checkpoints of a try are in checkpoints/ of its directory:
 *
 *   NUMBER/info   its name, and where it comes from
 *   NUMBER/upper  a copy of the upper layer
 *   current       the number of the last one
 *
 * A rollback moves the upper layer there and a copy of the other one into its place, by
 * one exchange. */
#include <errno.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"
#include "native/record/idmap.h"
#include "native/record/names.h"
#include "native/record/state.h"
#include "native/record/try.h"
#include "native/record/userns.h"
#include "native/try.h"
#include "sys/path.h"

static const char op[] = "try.checkpoint", here[] = "checkpoints";

enum { INFO_MAX = 4 << 10, COUNT_MAX = 1000 };

/* --- The list --- */

static uint32_t read_number(const char *text)
{
    size_t len = strlen(text);

    return len && len < 10 && strspn(text, "0123456789") == len
               ? (uint32_t)strtoul(text, NULL, 10)
               : 0;
}

static uint32_t read_current(int store)
{
    size_t len;
    AUTO_FREE char *text = state_read(store, "current", 16, &len);

    return text ? read_number(text) : 0;
}

static int save_current(int store, uint32_t id, struct cay_error *err)
{
    char text[16];
    int len = snprintf(text, sizeof text, "%u", id);

    return state_write(store, "current", text, (size_t)len, err);
}

static int save_info(int dir, const struct cay_checkpoint *checkpoint,
                     struct cay_error *err)
{
    struct buf file;

    kvfile_begin(&file, INFO_MAX);
    kvfile_add(&file, "name", checkpoint->name);
    kvfile_add(&file, "cause", checkpoint->cause);
    kvfile_add_number(&file, "parent", checkpoint->parent);
    kvfile_add_number(&file, "created_ms", (uint64_t)checkpoint->created_ms);
    kvfile_add_number(&file, "files", checkpoint->files);
    kvfile_add_number(&file, "bytes", checkpoint->bytes);
    int code = file.failed ? cay_fail_memory(err, op)
                           : state_write(dir, "info", file.data, file.len, err);
    buf_done(&file);
    return code;
}

static bool load(int store, const char *number, struct cay_checkpoint *ret_checkpoint)
{
    struct kvfile file = {0};
    AUTO_FD dir = path_open(store, number, O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);

    *ret_checkpoint = (struct cay_checkpoint){.id = read_number(number)};
    if (dir < 0 || !ret_checkpoint->id)
        return false;
    file.data = state_read(dir, "info", INFO_MAX, &file.len);
    bool is_valid = file.data && kvfile_is_valid(&file);
    if (is_valid) {
        const char *name = kvfile_text(&file, "name"),
                   *cause = kvfile_text(&file, "cause");
        cay_copy_text(ret_checkpoint->name, sizeof ret_checkpoint->name,
                      name ? name : "");
        cay_copy_text(ret_checkpoint->cause, sizeof ret_checkpoint->cause,
                      cause ? cause : "");
        ret_checkpoint->parent = (uint32_t)kvfile_number(&file, "parent");
        ret_checkpoint->created_ms = (int64_t)kvfile_number(&file, "created_ms");
        ret_checkpoint->files = kvfile_number(&file, "files");
        ret_checkpoint->bytes = kvfile_number(&file, "bytes");
    }
    free(file.data);
    return is_valid;
}

static int by_id(const void *a, const void *b)
{
    const struct cay_checkpoint *one = a, *other = b;

    return one->id < other->id ? -1 : one->id > other->id;
}

struct list {
    struct cay_checkpoint *all;
    size_t count, room;
};

static int load_all(int store, struct list *ret_list, struct cay_error *err)
{
    AUTO_DIR entries = path_list(store);
    const struct dirent *entry;
    uint32_t current = read_current(store);

    *ret_list = (struct list){0};
    while ((entry = path_next(entries))) {
        struct cay_checkpoint found;
        if (!load(store, entry->d_name, &found))
            continue;
        if (!array_reserve(&ret_list->all, &ret_list->room, ret_list->count + 1,
                           sizeof found)) {
            free(ret_list->all);
            return cay_fail_memory(err, op);
        }
        found.is_current = found.id == current;
        ret_list->all[ret_list->count++] = found;
    }
    if (ret_list->count)
        qsort(ret_list->all, ret_list->count, sizeof *ret_list->all, by_id);
    return CAY_OK;
}

static int find(const struct list *list, const char *which,
                struct cay_checkpoint *ret_checkpoint, struct cay_error *err)
{
    uint32_t number = which ? read_number(which) : 0;

    for (size_t i = list->count; i-- > 0;)
        if (!which || list->all[i].id == number ||
            (!number && *which && strcmp(list->all[i].name, which) == 0)) {
            *ret_checkpoint = list->all[i];
            return CAY_OK;
        }
    return cay_fail(err, CAY_E_NOT_FOUND, 0, op, which,
                    which ? "there is no such checkpoint of the try"
                          : "the try has no checkpoint",
                    which ? "cay checkpoints ID lists them" : "cay checkpoint makes one");
}

/* --- A try whose checkpoints change --- */

struct work {
    struct try try;
    int claim, store;
    struct list list;
};
#define WORK_NONE                                                                        \
    {                                                                                    \
        .try = TRY_NONE, .claim = -1, .store = -1                                        \
    }

static int open_work(const char *id, struct work *ret_work, struct cay_error *err)
{
    TRY(try_open(id, &ret_work->try, err));
    ret_work->claim = try_claim(ret_work->try.dir, id, err);
    if (ret_work->claim < 0)
        return ret_work->claim;
    if (mkdirat(ret_work->try.dir, here, 0700) != 0 && errno != EEXIST)
        return cay_fail_errno(err, errno, op, id);
    ret_work->store =
        path_open(ret_work->try.dir, here, O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
    if (ret_work->store < 0)
        return cay_fail_errno(err, -ret_work->store, op, id);
    (void)state_sweep(ret_work->store, ".new-");
    (void)state_sweep(ret_work->store, ".old-");
    return load_all(ret_work->store, &ret_work->list, err);
}

static void work_done(struct work *work)
{
    free(work->list.all);
    auto_close(&work->store);
    auto_close(&work->claim);
    try_done(&work->try);
}

/* Fills in all but the numbers of files. */
static int begin(const struct work *work, const char *name, const char *cause,
                 struct cay_checkpoint *ret_checkpoint, struct cay_error *err)
{
    const struct list *list = &work->list;

    if (name && (!names_is_valid(name) || strspn(name, "0123456789") == strlen(name)))
        return cay_fail(err, CAY_E_INVALID, 0, op, name, "invalid name of a checkpoint",
                        "use at most %d letters, digits, \"_\", \".\" and \"-\", not "
                        "only digits",
                        CAY_NAME_MAX - 1);
    if (list->count >= COUNT_MAX)
        return cay_fail(err, CAY_E_LIMIT, 0, op, work->try.info.id,
                        "the try has too many checkpoints",
                        "cay checkpoint --rm removes one; the limit is %d", COUNT_MAX);
    *ret_checkpoint =
        (struct cay_checkpoint){.id = list->count ? list->all[list->count - 1].id + 1 : 1,
                                .parent = read_current(work->store),
                                .created_ms = clock_since_1970_ms()};
    cay_copy_text(ret_checkpoint->name, sizeof ret_checkpoint->name, name ? name : "");
    cay_copy_text(ret_checkpoint->cause, sizeof ret_checkpoint->cause, cause);
    return CAY_OK;
}

/* --- Copies --- */

struct job {
    int from, to;
    uint64_t files, bytes;
    int error;
};

static int run_job(void *cookie, struct cay_error *err)
{
    struct job *job = cookie;

    (void)err;
    job->error = try_copy(job->from, job->to, &job->files, &job->bytes);
    return CAY_OK;
}

/* Files of an ordinary user's try may belong to subordinate ids, or forbid their owner to
 * read them. */
static int copy_upper(int from, int draft, struct cay_checkpoint *checkpoint,
                      struct cay_error *err)
{
    struct job job = {.from = from};

    if (mkdirat(draft, "upper", 0700) != 0)
        return cay_fail_errno(err, errno, op, "upper");
    AUTO_FD to = path_open(draft, "upper", O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
    if (to < 0)
        return cay_fail_errno(err, -to, op, "upper");
    job.to = to;
    TRY(idmap_is_root() ? run_job(&job, err) : userns_run(run_job, &job, err));
    if (job.error == -ELOOP)
        return cay_fail(err, CAY_E_LIMIT, ELOOP, op, "upper",
                        "directories are nested too deeply",
                        "remove the deepest ones, or apply the changes");
    if (!job.error && syncfs(to) != 0)
        job.error = -errno;
    checkpoint->files = job.files;
    checkpoint->bytes = job.bytes;
    return job.error ? cay_fail_errno(err, -job.error, op, "upper") : CAY_OK;
}

static int publish(const struct work *work, const char *draft,
                   const struct cay_checkpoint *checkpoint, struct cay_error *err)
{
    char name[16];

    snprintf(name, sizeof name, "%u", checkpoint->id);
    int error = path_rename(work->store, draft, work->store, name, RENAME_NOREPLACE);
    return error ? cay_fail_errno(err, -error, op, name) : CAY_OK;
}

static int make(struct work *work, struct cay_checkpoint *checkpoint,
                struct cay_error *err)
{
    char draft[NAME_MAX + 1];
    AUTO_FD dir = state_draft(work->store, ".new-", draft, err);

    if (dir < 0)
        return TAKE_FD(dir);
    int code = copy_upper(work->try.upper, dir, checkpoint, err);
    if (!code)
        code = save_info(dir, checkpoint, err);
    if (!code)
        code = publish(work, draft, checkpoint, err);
    if (code)
        (void)state_remove_tree(work->store, draft, op, draft, NULL);
    else
        code = save_current(work->store, checkpoint->id, err);
    checkpoint->is_current = !code;
    return code;
}

int cay_try_checkpoint(const char *id, const char *name,
                       struct cay_checkpoint *ret_checkpoint, struct cay_error *err)
{
    struct work work = WORK_NONE;
    int code = open_work(id, &work, err);

    if (!code)
        code = begin(&work, name, "checkpoint", ret_checkpoint, err);
    if (!code)
        code = make(&work, ret_checkpoint, err);
    work_done(&work);
    return code;
}

/* --- rollback --- */

static int open_upper(int store, uint32_t id, struct cay_error *err)
{
    char path[32];

    snprintf(path, sizeof path, "%u/upper", id);
    int fd = path_open(store, path, O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
    return fd < 0 ? cay_fail_errno(err, -fd, op, path) : fd;
}

/* Whether the view differs from that of the last checkpoint. */
static int has_changed(const struct work *work, bool *ret_has, struct cay_error *err)
{
    uint32_t current = read_current(work->store);
    char path[32];
    cay_diff *diff;
    size_t count;

    *ret_has = true;
    snprintf(path, sizeof path, "%u/upper", current);
    AUTO_FD old =
        current ? path_open(work->store, path, O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN)
                : -1;
    if (old < 0)
        return CAY_OK; /* there was none, or it was removed */
    const struct cay_diff_layer target = {work->try.target, CAY_DIFF_MARKS_NONE, 0};
    const struct cay_diff_layer before[] = {{old, work->try.marks, 0}, target},
                                after[] = {{work->try.upper, work->try.marks, 0}, target};
    TRY(cay_diff_compare(&(struct cay_diff_tree){before, 2},
                         &(struct cay_diff_tree){after, 2}, NULL, &diff, err));
    (void)cay_diff_changes(diff, &count);
    *ret_has = count || cay_diff_cut(diff);
    cay_diff_free(diff);
    return CAY_OK;
}

/* The draft has the copy first and the upper layer after that. */
static int exchange(const struct work *work, int draft, const char *name,
                    const struct cay_checkpoint *undone, struct cay_error *err)
{
    AUTO_FD changes =
        path_open(work->try.dir, "changes", O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);

    if (changes < 0)
        return cay_fail_errno(err, -changes, op, "changes");
    TRY(save_info(draft, undone, err));
    int error = path_rename(draft, "upper", changes, "upper", RENAME_EXCHANGE);
    if (error)
        return cay_fail_errno(err, -error, op, "upper");
    return undone->id ? publish(work, name, undone, err)
                      : state_remove_tree(work->store, name, op, name, err);
}

static int roll_back(struct work *work, const struct cay_checkpoint *to,
                     struct cay_checkpoint *ret_undone, struct cay_error *err)
{
    struct cay_checkpoint copy = {0};
    char draft[NAME_MAX + 1];
    bool has;

    TRY(has_changed(work, &has, err));
    if (has)
        TRY(begin(work, NULL, "rollback", ret_undone, err));
    AUTO_FD from = open_upper(work->store, to->id, err);
    if (from < 0)
        return TAKE_FD(from);
    AUTO_FD dir = state_draft(work->store, ".new-", draft, err);
    if (dir < 0)
        return TAKE_FD(dir);
    int code = copy_upper(from, dir, &copy, err);
    if (!code)
        code = exchange(work, dir, draft, ret_undone, err);
    else
        (void)state_remove_tree(work->store, draft, op, draft, NULL);
    return code ? code : save_current(work->store, to->id, err);
}

int cay_try_rollback(const char *id, const char *which, struct cay_checkpoint *ret_undone,
                     struct cay_error *err)
{
    struct work work = WORK_NONE;
    struct cay_checkpoint found;
    int code = open_work(id, &work, err);

    *ret_undone = (struct cay_checkpoint){0};
    if (!code)
        code = find(&work.list, which, &found, err);
    if (!code)
        code = roll_back(&work, &found, ret_undone, err);
    work_done(&work);
    return code;
}

/* --- list and remove --- */

int cay_try_checkpoints(const char *id, struct cay_checkpoint **ret_list,
                        size_t *ret_count, struct cay_error *err)
{
    struct try try = TRY_NONE;
    struct list list = {0};
    int code = try_open_dir(id, &try, err);

    AUTO_FD store =
        code ? -1 : path_open(try.dir, here, O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
    if (store >= 0)
        code = load_all(store, &list, err);
    else if (!code && store != -ENOENT)
        code = cay_fail_errno(err, -store, op, id);
    try_done(&try);
    *ret_list = code ? NULL : list.all;
    *ret_count = code ? 0 : list.count;
    return code;
}

int cay_try_remove_checkpoint(const char *id, const char *which, struct cay_error *err)
{
    struct work work = WORK_NONE;
    struct cay_checkpoint found = {0};
    char name[16];
    int code = open_work(id, &work, err);

    if (!code)
        code = find(&work.list, which ? which : "", &found, err);
    if (!code) {
        snprintf(name, sizeof name, "%u", found.id);
        code = state_remove(work.store, name, op, err);
    }
    work_done(&work);
    return code;
}
