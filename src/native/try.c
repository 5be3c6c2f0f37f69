/* SPDX-License-Identifier: Apache-2.0 */

/* Tries are in STATE/tries/ID/:
 *
 *   info      its directory, the time of the base and what it is for
 *   changes/  "upper" and "work" of the overlay
 *   known     what applies left in the directory
 *   journal   of an apply that is not complete
 *   checkpoints/  see try-checkpoint.c */
#include "native/try.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "apply/apply.h"
#include "base/array.h"
#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"
#include "native/record/idmap.h"
#include "native/record/state.h"
#include "native/record/try.h"
#include "sys/io.h"
#include "sys/path.h"
#include "sys/state-home.h"

static const char op[] = "try";

enum { INFO_MAX = 16 << 10, KNOWN_MAX = 512 << 20, STEP_MS = 5 };

#define NEW_PREFIX ".new-"

/* --- The record --- */

static int64_t read_ns(clockid_t clock)
{
    struct timespec now = {0};

    (void)clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void read_boot(char ret_boot[40])
{
    (void)io_read_text(AT_FDCWD, "/proc/sys/kernel/random/boot_id", ret_boot, 40);
    ret_boot[strcspn(ret_boot, "\n")] = '\0';
}

/* If the clock was set back since, files that changed later may have older times. */
static struct timespec adjust(const struct try_base *base)
{
    struct timespec time = base->time;
    char boot[40];

    read_boot(boot);
    int64_t back = base->offset_ns - (read_ns(CLOCK_REALTIME) - read_ns(CLOCK_BOOTTIME));
    if (strcmp(boot, base->boot) != 0 || back < STEP_MS * INT64_C(1000000))
        return time;
    int64_t ns = (int64_t)time.tv_sec * 1000000000 + time.tv_nsec - back;
    return (struct timespec){ns / 1000000000, ns % 1000000000};
}

/* Without fsync, which takes longer than all else before the first command: a crash of
 * the machine right then loses what the command has written as well.  try_open() syncs
 * it. */
static int save_info(int dir, const struct cay_try_info *info, struct cay_error *err)
{
    struct buf file;
    char boot[40];
    int64_t now = read_ns(CLOCK_REALTIME);

    read_boot(boot);
    kvfile_begin(&file, INFO_MAX);
    kvfile_add(&file, "dir", info->dir);
    kvfile_add(&file, "note", info->note);
    kvfile_add(&file, "race", info->race);
    kvfile_add(&file, "boot", boot);
    kvfile_add_number(&file, "created_ms", (uint64_t)info->created_ms);
    kvfile_add_number(&file, "base_ns", (uint64_t)now);
    kvfile_add_number(&file, "offset_ns", (uint64_t)(now - read_ns(CLOCK_BOOTTIME)));
    kvfile_add_number(&file, "marks",
                      idmap_is_root() ? CAY_DIFF_MARKS_TRUSTED : CAY_DIFF_MARKS_USER);
    int code = file.failed ? cay_fail_memory(err, op)
                           : state_replace(dir, "info", file.data, file.len, err);
    buf_done(&file);
    return code;
}

static int sync_info(int dir, struct cay_error *err)
{
    AUTO_FD fd = path_open(dir, "info", O_RDONLY, 0, PATH_PLAIN);

    if (fd >= 0 && fsync(fd) == 0)
        return CAY_OK;
    return cay_fail_errno(err, fd < 0 ? -fd : errno, op, "info");
}

static bool load_info(int dir, const char *id, struct try *ret_try)
{
    struct kvfile file = {0};

    file.data = state_read(dir, "info", INFO_MAX, &file.len);
    bool is_valid = file.data && kvfile_is_valid(&file) && kvfile_text(&file, "dir");
    if (is_valid) {
        uint64_t ns = kvfile_number(&file, "base_ns");
        const char *note = kvfile_text(&file, "note"), *boot = kvfile_text(&file, "boot");
        const char *race = kvfile_text(&file, "race");
        cay_copy_text(ret_try->info.id, sizeof ret_try->info.id, id);
        snprintf(ret_try->info.dir, sizeof ret_try->info.dir, "%s",
                 kvfile_text(&file, "dir"));
        cay_copy_text(ret_try->info.note, sizeof ret_try->info.note, note ? note : "");
        cay_copy_text(ret_try->info.race, sizeof ret_try->info.race, race ? race : id);
        cay_copy_text(ret_try->base.boot, sizeof ret_try->base.boot, boot ? boot : "");
        ret_try->info.created_ms = (int64_t)kvfile_number(&file, "created_ms");
        ret_try->base.time =
            (struct timespec){(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
        ret_try->base.offset_ns = (int64_t)kvfile_number(&file, "offset_ns");
        ret_try->marks = (enum cay_diff_marks)kvfile_number(&file, "marks");
    }
    free(file.data);
    return is_valid;
}

void try_done(struct try *try)
{
    auto_close(&try->dir);
    auto_close(&try->target);
    auto_close(&try->upper);
}

static int fail_unknown(const char *id, struct cay_error *err)
{
    return cay_fail(err, CAY_E_NOT_FOUND, 0, op, id, "there is no such try",
                    "cay try --list shows all");
}

static bool is_id(const char *id)
{
    return id && *id && strspn(id, "abcdefghijklmnopqrstuvwxyz0123456789") == strlen(id);
}

int try_open_dir(const char *id, struct try *ret_try, struct cay_error *err)
{
    AUTO_FD store = state_open(TRY_STORE, false, err);

    if (store < 0 && store != CAY_E_NOT_FOUND)
        return TAKE_FD(store);
    if (store < 0 || !is_id(id))
        return fail_unknown(id, err);
    ret_try->dir = path_open(store, id, O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
    if (ret_try->dir < 0 || !load_info(ret_try->dir, id, ret_try))
        return fail_unknown(id, err);
    return CAY_OK;
}

/* --- Opening --- */

static int save_journal(void *cookie, const void *data, size_t len, struct cay_error *err)
{
    const struct try *try = cookie;

    return state_write(try->dir, "journal", data, len, err);
}

/* --- What is known --- */

static int load_known(const struct try *try, struct apply_base *base,
                      struct cay_error *err)
{
    size_t len = 0;
    char *data = state_read(try->dir, "known", KNOWN_MAX, &len);

    for (const char *line = data; data && line < data + len; line += strlen(line) + 1) {
        char *at;
        struct apply_known known = {.ino = strtoull(line, &at, 10)};
        known.ctime.tv_sec = (time_t)strtoll(at, &at, 10);
        known.ctime.tv_nsec = strtol(at, &at, 10);
        if (*at++ != ' ')
            continue;
        known.path = strdup(at);
        if (!known.path || !array_reserve(&base->known, &base->known_room,
                                          base->known_count + 1, sizeof known)) {
            free(known.path);
            free(data);
            return cay_fail_memory(err, op);
        }
        base->known[base->known_count++] = known;
    }
    free(data);
    return CAY_OK;
}

static int save_known(const struct try *try, const struct apply_base *base,
                      struct cay_error *err)
{
    struct buf text;

    buf_init(&text, KNOWN_MAX);
    for (size_t i = 0; i < base->known_count; i++) {
        const struct apply_known *known = &base->known[i];
        buf_format(&text, "%" PRIu64 " %" PRId64 " %ld ", known->ino,
                   (int64_t)known->ctime.tv_sec, known->ctime.tv_nsec);
        buf_append(&text, known->path, strlen(known->path) + 1);
    }
    int code = text.failed ? cay_fail_memory(err, op)
                           : state_write(try->dir, "known", text.data, text.len, err);
    buf_done(&text);
    return code;
}

static void base_done(struct apply_base *base)
{
    for (size_t i = 0; i < base->known_count; i++)
        free(base->known[i].path);
    free(base->known);
}

/* --- What a killed apply left --- */

static int recover(struct try *try, struct cay_error *err)
{
    size_t len;
    char *journal = state_read(try->dir, "journal", KNOWN_MAX, &len);

    if (!journal)
        return errno == ENOENT ? CAY_OK : cay_fail_errno(err, errno, op, "journal");
    struct apply_base base = {0};
    int code = load_known(try, &base, err);
    if (!code)
        code = apply_recover(try->target, journal, len, &base, err);
    if (!code)
        code = save_known(try, &base, err);
    base_done(&base);
    free(journal);
    if (!code && unlinkat(try->dir, "journal", 0) != 0)
        code = cay_fail_errno(err, errno, op, "journal");
    return code;
}

int try_open(const char *id, struct try *ret_try, struct cay_error *err)
{
    int code = try_open_dir(id, ret_try, err);

    if (code)
        return code;
    ret_try->target = path_open(AT_FDCWD, ret_try->info.dir, O_RDONLY | O_DIRECTORY, 0,
                                RESOLVE_NO_SYMLINKS);
    if (ret_try->target < 0)
        return cay_fail(err, CAY_E_NOT_FOUND, -ret_try->target, op, ret_try->info.dir,
                        "the directory of the try cannot be opened",
                        "restore it, or cay discard %s", id);
    ret_try->upper =
        path_open(ret_try->dir, "changes/upper", O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
    if (ret_try->upper < 0)
        return cay_fail_errno(err, -ret_try->upper, op, id);
    while (flock(ret_try->target, LOCK_EX) != 0)
        if (errno != EINTR)
            return cay_fail_errno(err, errno, op, ret_try->info.dir);
    TRY(sync_info(ret_try->dir, err)); /* before an apply relies on it */
    return recover(ret_try, err);
}

/* --- create --- */

/* The root of the view has the mode and the owner of the directory. */
static int make_changes(int dir, int target, struct cay_error *err)
{
    struct stat st;

    if (fstat(target, &st) != 0 || mkdirat(dir, "changes", 0700) != 0 ||
        mkdirat(dir, "changes/upper", 0700) != 0 ||
        mkdirat(dir, "changes/work", 0700) != 0 ||
        (geteuid() == 0 &&
         fchownat(dir, "changes/upper", st.st_uid, st.st_gid, 0) != 0) ||
        fchmodat(dir, "changes/upper", st.st_mode & 0777, 0) != 0)
        return cay_fail_errno(err, errno, op, "changes");
    return CAY_OK;
}

static bool contains(const char *top, const char *path)
{
    size_t len = strcmp(top, "/") == 0 ? 0 : strlen(top);

    return strncmp(path, top, len) == 0 && (path[len] == '/' || !path[len]);
}

/* An overlay must not contain its own upper layer. */
static int check_dir(const char *dir, struct cay_error *err)
{
    char home[PATH_MAX], real[PATH_MAX];

    TRY(state_home_path(home, err));
    if (contains(dir, realpath(home, real) ? real : home))
        return cay_fail(err, CAY_E_UNSUPPORTED, 0, op, dir,
                        "the directory contains the state of Cay",
                        "choose a directory below it, or set CAY_HOME to another place");
    return CAY_OK;
}

static int finish(int store, int dir, const char *draft, int target,
                  struct cay_try_info *info, struct cay_error *err)
{
    cay_copy_text(info->id, sizeof info->id, draft + strlen(NEW_PREFIX));
    if (!*info->race)
        cay_copy_text(info->race, sizeof info->race, info->id);
    TRY(make_changes(dir, target, err));
    TRY(save_info(dir, info, err));
    int error = path_rename(store, draft, store, info->id, RENAME_NOREPLACE);
    return error ? cay_fail_errno(err, -error, op, info->id) : CAY_OK;
}

int cay_try_create(const struct cay_try_options *options, struct cay_try_info *ret_info,
                   struct cay_error *err)
{
    struct cay_try_options known;
    char draft[NAME_MAX + 1];

    *ret_info = (struct cay_try_info){.created_ms = clock_since_1970_ms()};
    TRY(cay_take_struct(&known, sizeof known, options, op, err));
    AUTO_FD target =
        path_open(AT_FDCWD, known.dir ? known.dir : "", O_RDONLY | O_DIRECTORY, 0, 0);
    if (target < 0)
        return cay_fail(err, CAY_E_NOT_FOUND, -target, op, known.dir,
                        "cannot open the directory", "name a directory of the host");
    int error = path_name(target, ret_info->dir);
    if (error)
        return cay_fail_errno(err, -error, op, known.dir);
    cay_copy_text(ret_info->note, sizeof ret_info->note, known.note ? known.note : "");
    if (known.race && !is_id(known.race))
        return fail_unknown(known.race, err);
    cay_copy_text(ret_info->race, sizeof ret_info->race, known.race ? known.race : "");
    TRY(check_dir(ret_info->dir, err));
    AUTO_FD store = state_open(TRY_STORE, true, err);
    if (store < 0)
        return TAKE_FD(store);
    AUTO_FD dir = state_draft(store, NEW_PREFIX, draft, err);
    if (dir < 0)
        return TAKE_FD(dir);
    int code = finish(store, dir, draft, target, ret_info, err);
    if (code)
        (void)state_remove_tree(store, draft, op, draft, NULL);
    return code;
}

int cay_try_changes(const char *id, char ret_path[PATH_MAX], struct cay_error *err)
{
    struct try try = TRY_NONE;
    int code = try_open_dir(id, &try, err);
    AUTO_FD changes =
        code ? -1 : path_open(try.dir, "changes", O_PATH | O_DIRECTORY, 0, PATH_PLAIN);
    int error = changes < 0 ? changes : path_name(changes, ret_path);

    if (!code && error)
        code = cay_fail_errno(err, -error, op, id);
    try_done(&try);
    return code;
}

/* --- list and find --- */

static int newest_first(const void *a, const void *b)
{
    const struct cay_try_info *one = a, *other = b;

    return one->created_ms == other->created_ms  ? strcmp(one->id, other->id)
           : one->created_ms < other->created_ms ? 1
                                                 : -1;
}

int cay_try_list(struct cay_try_info **ret_infos, size_t *ret_count,
                 struct cay_error *err)
{
    size_t room = 0;

    *ret_infos = NULL;
    *ret_count = 0;
    AUTO_FD store = state_open(TRY_STORE, false, err);
    if (store < 0)
        return store == CAY_E_NOT_FOUND ? CAY_OK : TAKE_FD(store);
    AUTO_DIR list = path_list(store);
    const struct dirent *entry;
    while ((entry = path_next(list))) {
        struct try try = TRY_NONE;
        if (!is_id(entry->d_name))
            continue;
        AUTO_FD dir =
            path_open(store, entry->d_name, O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
        if (dir < 0 || !load_info(dir, entry->d_name, &try))
            continue;
        if (!array_reserve(ret_infos, &room, *ret_count + 1, sizeof **ret_infos)) {
            free(*ret_infos);
            *ret_infos = NULL;
            return cay_fail_memory(err, op);
        }
        (*ret_infos)[(*ret_count)++] = try.info;
    }
    if (*ret_count)
        qsort(*ret_infos, *ret_count, sizeof **ret_infos, newest_first);
    return CAY_OK;
}

static const struct cay_try_info *choose(const struct cay_try_info *infos, size_t count,
                                         const char *id, const char *dir,
                                         bool *ret_ambiguous)
{
    const struct cay_try_info *found = NULL;

    *ret_ambiguous = false;
    for (size_t i = 0; i < count; i++) {
        if (id ? strncmp(infos[i].id, id, strlen(id)) != 0 : !contains(infos[i].dir, dir))
            continue;
        if (id && strcmp(infos[i].id, id) == 0)
            return &infos[i];
        *ret_ambiguous = id && found;
        if (!found)
            found = &infos[i];
    }
    return found;
}

/* Whether other tries of the same race are left. */
static bool has_rivals(const struct cay_try_info *infos, size_t count,
                       const struct cay_try_info *own)
{
    for (size_t i = 0; i < count; i++)
        if (&infos[i] != own && strcmp(infos[i].race, own->race) == 0)
            return true;
    return false;
}

int cay_try_find(const char *id, const char *dir, struct cay_try_info *ret_info,
                 struct cay_error *err)
{
    struct cay_try_info *infos;
    char real[PATH_MAX];
    size_t count;
    bool is_ambiguous;

    if (!id && !realpath(dir, real))
        return cay_fail_errno(err, errno, op, dir);
    TRY(cay_try_list(&infos, &count, err));
    const struct cay_try_info *found = choose(infos, count, id, real, &is_ambiguous);
    int code = CAY_OK;
    if (found && is_ambiguous)
        code = cay_fail(err, CAY_E_INVALID, 0, op, id, "several tries begin like this",
                        "write more of the id");
    else if (found && !id && has_rivals(infos, count, found))
        code = cay_fail(err, CAY_E_INVALID, 0, op, found->race,
                        "the newest try of this directory is one of a race",
                        "name one of them: cay try --list shows them");
    else if (found)
        *ret_info = *found;
    else if (id)
        code = fail_unknown(id, err);
    else
        code = cay_fail(err, CAY_E_NOT_FOUND, 0, op, dir,
                        "there is no try of this directory",
                        "cay try -- COMMAND begins one, cay try --list shows all");
    free(infos);
    return code;
}

/* --- diff and apply --- */

static int compare(const struct try *try, const struct cay_diff_options *options,
                   cay_diff **ret_diff, struct cay_error *err)
{
    const struct cay_diff_layer after[] = {{try->upper, try->marks, 0},
                                           {try->target, CAY_DIFF_MARKS_NONE, 0}};

    return cay_diff_compare(&(struct cay_diff_tree){after + 1, 1},
                            &(struct cay_diff_tree){after, 2}, options, ret_diff, err);
}

int cay_try_diff(const char *id, const struct cay_diff_options *options,
                 cay_diff **ret_diff, struct cay_error *err)
{
    struct try try = TRY_NONE;

    *ret_diff = NULL;
    int code = try_open(id, &try, err);
    if (!code)
        code = compare(&try, options, ret_diff, err);
    try_done(&try);
    return code;
}

static int apply(struct try *try, struct apply *apply, struct cay_error *err)
{
    const struct cay_diff_options plain = {.size = sizeof plain,
                                           .flags = CAY_DIFF_NO_RENAMES};
    cay_diff *diff;

    TRY(compare(try, &plain, &diff, err));
    int code = CAY_OK;
    if (cay_diff_cut(diff))
        code = cay_fail(err, CAY_E_LIMIT, 0, op, try->info.id, "too many changes",
                        "apply some paths at a time");
    apply->diff = diff;
    snprintf(apply->stage_name, sizeof apply->stage_name, ".cay-apply-%.16s",
             try->info.id);
    if (!code)
        code = apply_all(apply, err);
    struct cay_error other;
    if (apply->step_count && !apply->is_torn) {
        int saved = save_known(try, apply->base, code ? &other : err);
        code = code ? code : saved;
    }
    if (!apply->is_torn && unlinkat(try->dir, "journal", 0) != 0 && errno != ENOENT &&
        !code)
        code = cay_fail_errno(err, errno, op, "journal");
    cay_diff_free(diff);
    return code;
}

static int check_paths(const char *const *paths, size_t count, struct cay_error *err)
{
    for (size_t i = 0; i < count; i++)
        if (!paths[i] || !*paths[i] || *paths[i] == '/')
            return cay_fail(err, CAY_E_INVALID, 0, op, paths[i],
                            "invalid path of a change",
                            "write it from the directory of the try, without a slash at "
                            "the beginning");
    return CAY_OK;
}

int cay_try_apply(const char *id, const struct cay_apply_options *options,
                  cay_apply_report **ret_report, struct cay_error *err)
{
    struct cay_apply_options known;
    struct try try = TRY_NONE;
    struct apply_base base = {0};

    *ret_report = NULL;
    TRY(cay_take_struct(&known, sizeof known, options, op, err));
    TRY(check_paths(known.paths, known.path_count, err));
    TRY(check_paths(known.only, known.only_count, err));
    cay_apply_report *report = calloc(1, sizeof *report);
    int code = report ? try_open(id, &try, err) : cay_fail_memory(err, op);
    if (!code && known.flags & CAY_APPLY_IDLE)
        code = try_check_unused(id, err);
    if (!code)
        code = load_known(&try, &base, err);
    if (!code) {
        base.time = adjust(&try.base);
        struct apply work = {.dir = try.target,
                             .upper = try.upper,
                             .marks = try.marks,
                             .base = &base,
                             .options = &known,
                             .save = save_journal,
                             .cookie = &try,
                             .report = report};
        code = apply(&try, &work, err);
    }
    base_done(&base);
    try_done(&try);
    if (code && code != CAY_E_CHANGED) {
        cay_apply_free(report);
        report = NULL;
    }
    *ret_report = report;
    return code;
}

/* --- discard --- */

int cay_try_discard(const char *id, struct cay_error *err)
{
    struct try try = TRY_NONE;
    struct cay_error other;
    int code = try_open_dir(id, &try, err);
    AUTO_FD claim = code ? code : try_claim(try.dir, id, err);

    try_done(&try);
    if (claim < 0)
        return TAKE_FD(claim);
    /* An apply that was killed is undone first; the directory may be gone. */
    code = try_open(id, &try, &other);
    try_done(&try);
    if (code && other.code != CAY_E_NOT_FOUND)
        return cay_fail_as(err, code, &other);
    AUTO_FD store = state_open(TRY_STORE, false, err);
    return store < 0 ? TAKE_FD(store) : state_remove(store, id, op, err);
}
