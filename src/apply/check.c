/* SPDX-License-Identifier: Apache-2.0 */

/* Which changes may be applied.
 *
 * The base is known by a time, not by a list of all files: a file whose change time is
 * before it is as the sandbox saw it.  The kernel sets change times itself, and a rename
 * sets that of the file.  Directories are compared by the handle that the overlay keeps
 * of the one it copied, since their times change with every entry. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "apply/apply.h"
#include "base/auto.h"
#include "base/error.h"
#include "diff/content.h"
#include "sys/path.h"

/* --- Paths --- */

static bool is_at_or_below(const char *path, const char *top)
{
    size_t len = strlen(top);

    while (len && top[len - 1] == '/')
        len--;
    return strncmp(path, top, len) == 0 && (path[len] == '/' || path[len] == '\0');
}

bool apply_is_named(const struct cay_apply_options *options, const char *path)
{
    for (size_t i = 0; i < options->path_count; i++)
        if (is_at_or_below(path, options->paths[i]))
            return true;
    return false;
}

/* --- What is held back --- */

/* Programs of the user read these and run what they say. */
static const struct {
    const char *name;
    const char *reason;
} risky[] = {
    {".git", "git runs hooks and commands of its configuration"},
    {".envrc", "direnv runs it"},
    {".vscode", "the editor runs its tasks"},
    {".idea", "the editor runs its tasks"},
    {".husky", "git hooks run it"},
};

static const char *find_risky(const char *path)
{
    for (size_t i = 0; i < sizeof risky / sizeof *risky; i++) {
        size_t len = strlen(risky[i].name);
        for (const char *part = path; part; part = strchr(part, '/')) {
            part += *part == '/';
            if (strncmp(part, risky[i].name, len) == 0 &&
                (part[len] == '/' || part[len] == '\0'))
                return risky[i].reason;
        }
    }
    return NULL;
}

/* A ".." after a name may lead out: the name may be another link, which leads to a higher
 * directory. */
bool apply_leads_out(const char *path, const char *text)
{
    bool has_name = false;
    long depth = 0;

    if (*text == '/')
        return true;
    for (const char *at = path; (at = strchr(at, '/')); at++)
        depth++;
    for (const char *at = text; *at;) {
        size_t len = strcspn(at, "/");
        bool is_up = len == 2 && at[0] == '.' && at[1] == '.';
        has_name |= len && !is_up && !(len == 1 && *at == '.');
        depth -= is_up;
        if (is_up && (depth < 0 || has_name))
            return true;
        at += len + (at[len] == '/');
    }
    return false;
}

static bool is_applicable(uint32_t mode)
{
    return !mode || S_ISREG(mode) || S_ISDIR(mode) || S_ISLNK(mode);
}

const char *apply_held(const struct apply *apply, const struct cay_change *change)
{
    char text[PATH_MAX];
    const char *reason = find_risky(change->path);

    if (!is_applicable(change->after.mode) || !is_applicable(change->before.mode))
        return "it is not a file, a link or a directory";
    if (!reason && S_ISLNK(change->after.mode)) {
        ssize_t len = content_link(apply->diff, change->layers[1], change->path, text);
        if (len < 0 || len >= PATH_MAX)
            return "the link cannot be read";
        text[len] = '\0';
        if (apply_leads_out(change->path, text))
            reason = "the link leads out of the directory";
    }
    return reason && !apply_is_named(apply->options, change->path) ? reason : NULL;
}

/* --- Conflicts --- */

static int compare_times(const struct timespec *a, const struct timespec *b)
{
    if (a->tv_sec != b->tv_sec)
        return a->tv_sec < b->tv_sec ? -1 : 1;
    return a->tv_nsec == b->tv_nsec ? 0 : a->tv_nsec < b->tv_nsec ? -1 : 1;
}

static int by_path(const void *key, const void *element)
{
    return strcmp(key, ((const struct apply_known *)element)->path);
}

static const struct apply_known *find_known(const struct apply_base *base,
                                            const char *path)
{
    return base->known_count ? bsearch(path, base->known, base->known_count,
                                       sizeof *base->known, by_path)
                             : NULL;
}

/* Whether it changed after the base, and not by an apply. */
static bool has_changed(const struct apply_base *base, const char *path,
                        const struct stat *st)
{
    if (compare_times(&st->st_ctim, &base->time) < 0)
        return false;
    const struct apply_known *known = find_known(base, path);
    return !known || known->ino != st->st_ino ||
           compare_times(&known->ctime, &st->st_ctim) != 0;
}

/* The handle in an overlay's "origin" attribute: version, magic, length, flags, type,
 * uuid and then the handle. */
enum { ORIGIN_LEN_AT = 2, ORIGIN_TYPE_AT = 4, ORIGIN_HANDLE_AT = 21, HANDLE_MAX = 128 };

static bool read_origin(const struct apply *apply, const char *path,
                        unsigned char *ret_handle, ssize_t *ret_len)
{
    const char *name;
    char text[PATH_MAX + 64];
    AUTO_FD parent = apply_open_parent(apply->upper, path, &name);

    if (parent < 0)
        return false;
    snprintf(text, sizeof text, "/proc/self/fd/%d/%s", parent, name);
    *ret_len = lgetxattr(text,
                         apply->marks == CAY_DIFF_MARKS_USER ? "user.overlay.origin"
                                                             : "trusted.overlay.origin",
                         ret_handle, HANDLE_MAX);
    return *ret_len > ORIGIN_HANDLE_AT && ret_handle[ORIGIN_LEN_AT] == *ret_len;
}

/* Moved here since, as far as its times tell. */
static bool seems_moved(const struct apply *apply, int parent, const char *name,
                        const char *path)
{
    struct stat st;

    return fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
           compare_times(&st.st_mtim, &apply->base->time) < 0 &&
           has_changed(apply->base, path, &st);
}

/* Whether the directory of the host is another one than the one that was copied.  An
 * overlay of an ordinary user keeps no handles. */
static bool is_replaced(const struct apply *apply, const char *path)
{
    const char *name;
    AUTO_FD parent = apply_open_parent(apply->dir, path, &name);
    unsigned char origin[HANDLE_MAX];
    struct {
        struct file_handle head;
        unsigned char bytes[HANDLE_MAX];
    } own = {.head = {.handle_bytes = HANDLE_MAX}};
    ssize_t len;
    int mount;

    if (parent < 0)
        return false;
    if (!read_origin(apply, path, origin, &len) ||
        name_to_handle_at(parent, name, &own.head, &mount, 0) != 0)
        return seems_moved(apply, parent, name, path);
    return own.head.handle_type != origin[ORIGIN_TYPE_AT] ||
           own.head.handle_bytes != (unsigned)(len - ORIGIN_HANDLE_AT) ||
           memcmp(own.head.f_handle, origin + ORIGIN_HANDLE_AT, own.head.handle_bytes) !=
               0;
}

/* Looks at the directories above the path that exist. */
static const char *check_parents(const struct apply *apply, const char *path)
{
    char above[PATH_MAX];
    struct stat st;

    cay_copy_text(above, sizeof above, path);
    for (char *slash = strchr(above, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        int error = apply_stat(apply->dir, above, &st);
        if (error == -EXDEV || (!error && st.st_dev != apply->dir_st.st_dev))
            return "another file system is mounted there";
        /* It is created, too, or this is a conflict of its own. */
        if (error || !S_ISDIR(st.st_mode))
            return NULL;
        if (is_replaced(apply, above))
            return "its directory was replaced";
        *slash = '/';
    }
    return NULL;
}

static bool is_in(const char *const *list, size_t count, const char *path)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(list[i], path) == 0)
            return true;
    return false;
}

static bool is_exactly_named(const struct apply *apply, const char *path)
{
    const struct cay_apply_options *options = apply->options;

    return is_in(options->paths, options->path_count, path);
}

static bool is_wanted(const struct apply *apply, const char *path)
{
    const struct cay_apply_options *options = apply->options;

    return (!options->path_count || apply_is_named(options, path)) &&
           (!options->only_count || is_in(options->only, options->only_count, path));
}

/* Of a file that is new to the directory, but not to the try: it was copied from there.
 * Where the overlay keeps no handles, each new file may be one, unless it is named. */
static bool was_deleted(const struct apply *apply, const struct cay_change *change)
{
    unsigned char origin[HANDLE_MAX];
    char above[PATH_MAX];
    struct stat st;
    ssize_t len;

    if (S_ISDIR(change->after.mode))
        return false;
    const struct apply_known *known = find_known(apply->base, change->path);
    if (known && !known->ino)
        return false;
    if (!read_origin(apply, change->path, origin, &len) &&
        (apply->marks == CAY_DIFF_MARKS_TRUSTED || is_exactly_named(apply, change->path)))
        return false;
    /* The directory it is in, or the one that this was in. */
    cay_copy_text(above, sizeof above, change->path);
    do {
        char *slash = strrchr(above, '/');
        *(slash ? slash : above) = '\0';
    } while (apply_stat(apply->dir, above, &st) && *above);
    return has_changed(apply->base, above, &st);
}

const char *apply_find_conflict(const struct apply *apply,
                                const struct cay_change *change)
{
    struct stat st;
    const char *reason = check_parents(apply, change->path);

    if (reason)
        return reason;
    int error = apply_stat(apply->dir, change->path, &st);
    if (error == -EXDEV || (!error && st.st_dev != apply->dir_st.st_dev))
        return "another file system is mounted there";
    if (change->kind == CAY_CHANGE_ADDED && !error)
        return "it was created in the directory, too";
    if (change->kind == CAY_CHANGE_ADDED)
        return was_deleted(apply, change) ? "it may have been deleted from the directory"
                                          : NULL;
    if (error)
        return "it was deleted from the directory";
    if (st.st_mode != change->before.mode)
        return "it was changed in the directory";
    /* The times of a directory change with its entries, which are changes themselves. */
    if (S_ISDIR(st.st_mode) && change->kind != CAY_CHANGE_TYPE)
        return is_replaced(apply, change->path) ? "it was replaced" : NULL;
    return has_changed(apply->base, change->path, &st) ? "it was changed in the directory"
                                                       : NULL;
}

/* --- The report --- */

/* How `path` relates to a directory: 1 if it is below, 0 if not, -1 if it and all paths
 * after it are not. */
static int relate(const char *dir, const char *path)
{
    size_t len = strlen(dir);

    return strncmp(path, dir, len) != 0 ? -1 : path[len] == '/';
}

static void follow(struct cay_applied *applied, const struct cay_applied *other,
                   const char *reason)
{
    if (applied->verdict != CAY_APPLY_DONE || other->verdict == CAY_APPLY_DONE)
        return;
    applied->verdict = other->verdict;
    applied->reason = reason;
}

/* Without what replaces it, a directory keeps what is in it. */
static void keep_content(struct cay_applied *list, const struct cay_change *changes,
                         size_t at, size_t count)
{
    for (size_t j = at + 1; j < count; j++) {
        int relation = relate(changes[at].path, changes[j].path);
        if (relation < 0)
            break;
        if (relation)
            follow(&list[j], &list[at], "what replaces its directory is not applied");
    }
}

/* Of a directory that is to go: `is_left` if the path below it is not wanted. */
static void stay(struct cay_applied *applied, const struct cay_applied *below,
                 bool is_left)
{
    static const char reason[] = "something below it stays";

    follow(applied, below, reason);
    if (!is_left || applied->verdict != CAY_APPLY_DONE)
        return;
    applied->verdict = CAY_APPLY_HELD;
    applied->reason = reason;
}

/* A new directory is needed for what is below it; one that is deleted must be empty, and
 * one that becomes a file, too. */
static void take_relatives(struct cay_applied *list, const struct cay_change *changes,
                           size_t count, bool *wanted)
{
    for (size_t i = count; i-- > 0;) {
        bool will_be = S_ISDIR(changes[i].after.mode);
        bool was = S_ISDIR(changes[i].before.mode);
        for (size_t j = i + 1; (will_be || was) && j < count; j++) {
            int relation = relate(changes[i].path, changes[j].path);
            if (relation < 0)
                break;
            if (relation && will_be && !was && wanted[j])
                wanted[i] = true;
            if (relation && !will_be)
                stay(&list[i], &list[j], wanted[i] && !wanted[j]);
            if (relation && will_be && !was)
                follow(&list[j], &list[i], "its directory is not created");
        }
        if (was && !will_be && wanted[i] && changes[i].kind == CAY_CHANGE_TYPE)
            keep_content(list, changes, i, count);
    }
}

static int judge_one(const struct apply *apply, const struct cay_change *change,
                     struct cay_applied *ret_applied, struct cay_error *err)
{
    *ret_applied =
        (struct cay_applied){.path = strdup(change->path), .kind = change->kind};
    if (!ret_applied->path)
        return cay_fail_memory(err, APPLY_OP);
    ret_applied->reason = apply_held(apply, change);
    if (ret_applied->reason) {
        ret_applied->verdict = CAY_APPLY_HELD;
        return CAY_OK;
    }
    ret_applied->reason = apply_find_conflict(apply, change);
    if (ret_applied->reason)
        ret_applied->verdict = CAY_APPLY_CONFLICT;
    return CAY_OK;
}

/* Leaves only what is wanted in the report. */
static void drop_others(cay_apply_report *report, const bool *wanted,
                        size_t *ret_conflicts)
{
    size_t kept = 0;

    for (size_t i = 0; i < report->count; i++)
        if (wanted[i])
            report->list[kept++] = report->list[i];
        else
            free((void *)(uintptr_t)report->list[i].path);
    report->count = kept;
    *ret_conflicts = 0;
    for (size_t i = 0; i < kept; i++)
        *ret_conflicts += report->list[i].verdict == CAY_APPLY_CONFLICT;
}

/* A name without a change is probably a mistake. */
static int check_names(const struct cay_apply_options *options,
                       const struct cay_change *changes, size_t count,
                       struct cay_error *err)
{
    for (size_t i = 0; i < options->path_count; i++) {
        size_t at = 0;
        while (at < count && !is_at_or_below(changes[at].path, options->paths[i]))
            at++;
        if (at == count)
            return cay_fail(err, CAY_E_NOT_FOUND, 0, APPLY_OP, options->paths[i],
                            "the try has no change of this path",
                            "cay diff --names lists the paths that it has changed");
    }
    return CAY_OK;
}

int apply_check(struct apply *apply, size_t *ret_conflicts, struct cay_error *err)
{
    size_t count;
    const struct cay_change *changes = cay_diff_changes(apply->diff, &count);
    cay_apply_report *report = apply->report;
    bool *wanted = calloc(count + 1, sizeof *wanted);

    report->list = calloc(count + 1, sizeof *report->list);
    if (!wanted || !report->list) {
        free(wanted);
        return cay_fail_memory(err, APPLY_OP);
    }
    int code = CAY_OK;
    for (size_t i = 0; !code && i < count; i++) {
        code = judge_one(apply, &changes[i], &report->list[i], err);
        report->count = i + 1;
        wanted[i] = is_wanted(apply, changes[i].path);
    }
    if (!code)
        code = check_names(apply->options, changes, count, err);
    if (!code) {
        take_relatives(report->list, changes, count, wanted);
        drop_others(report, wanted, ret_conflicts);
    }
    free(wanted);
    return code;
}
