/* SPDX-License-Identifier: Apache-2.0 */
#include "files/find.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "files/walk.h"

/* A pattern may lead through links, and links may lead back up: "*" seven times over a
 * few links to "." has more paths than anyone can list. */
enum { LINKS_MAX = 100000, EXCLUDE_MAX = 256 };

struct find {
    cay_files *files;
    const struct target *start;
    const struct find_filter *filter;
    struct walk *walk; /* NULL: nothing is to be found */
    uint32_t links;    /* entered so far */
    uint64_t denied;   /* directories that may not be read */
    uint64_t unnamed;  /* hits that no path means */
    int error;         /* of a look-up that may not be left out, or 0 */
    int dir;           /* of the last hit; the walk's */
    const char *name;
    char named[PATH_MAX];     /* the hit's path below the mount, as walked */
    char label[2 * PATH_MAX]; /* the same as the policy spells it */
    struct target target;     /* the hit; its rel is link-free */
};

/* --- Where to look -------------------------------------------------------------------
 */

static bool means_everything(const char *path)
{
    return strcmp(path, "") == 0 || strcmp(path, ".") == 0 || strcmp(path, "/") == 0;
}

static bool lies_in(const struct target *inner, const struct target *outer)
{
    size_t len = strlen(outer->rel);

    return inner->mount == outer->mount && strncmp(inner->rel, outer->rel, len) == 0 &&
           (!len || inner->rel[len] == '/' || inner->rel[len] == '\0');
}

/* Takes the target into the scope, or leaves it to the caller if it is there already. */
static bool add_target(struct find_scope *scope, struct target *target)
{
    size_t kept = 0;

    for (size_t i = 0; i < scope->count; i++)
        if (lies_in(target, &scope->targets[i]))
            return false;
    for (size_t i = 0; i < scope->count; i++) {
        if (lies_in(&scope->targets[i], target))
            target_done(&scope->targets[i]);
        else
            scope->targets[kept++] = scope->targets[i];
    }
    scope->targets[kept] = *target;
    scope->count = kept + 1;
    return true;
}

/* Listing names asks for approval only where the policy has mounts; that is what the
 * other styles have always promised. */
static int ask(cay_files *files, const struct find_question *question, bool is_named,
               struct target *target, struct cay_error *err)
{
    char summary[2 * PATH_MAX];
    struct cay_approval request = {.op = question->op, .path = question->path};
    const char *pattern = question->pattern;

    if (target->fd < 0 ||
        (request.op == CAY_OP_LIST && files->policy->style != CAY_STYLE_MOUNTS))
        return CAY_OK;
    bool is_read = S_ISDIR(target->st.st_mode) ||
                   (request.op == CAY_OP_SEARCH && S_ISREG(target->st.st_mode));
    if (is_named && is_read && approval_wanted(files, target, CAY_ACCESS_READ)) {
        int error = target_try_read(target);
        if (error)
            return target_fail(target, -error, err);
    }
    if (request.op == CAY_OP_LIST) {
        snprintf(summary, sizeof summary, "List file paths in %s matching %s",
                 target->path, pattern && *pattern ? pattern : "**/*");
        request.summary = summary;
    }
    return approve(files, &request, target, CAY_ACCESS_READ, NULL, 0, err);
}

static int open_everything(cay_files *files, const char *op, struct find_scope *scope,
                           struct cay_error *err)
{
    int code = policy_roots(files->policy, CAY_ACCESS_READ, &scope->roots, err);

    if (code)
        return code;
    scope->targets = calloc(scope->roots.count + 1, sizeof *scope->targets);
    if (!scope->targets)
        return cay_fail_memory(err, op);
    for (size_t i = 0; i < scope->roots.count; i++) {
        struct target target;
        struct cay_error why;
        code = target_find(files, op, scope->roots.items[i], CAY_ACCESS_READ,
                           TARGET_FOLLOW, &target, &why);
        if (code || target.fd < 0 || !add_target(scope, &target))
            target_done(&target);
        if (find_is_serious(code)) {
            if (err)
                *err = why;
            return code;
        }
    }
    return CAY_OK;
}

static int open_one(cay_files *files, const char *op, const char *path,
                    struct find_scope *scope, struct cay_error *err)
{
    scope->targets = calloc(1, sizeof *scope->targets);
    if (!scope->targets)
        return cay_fail_memory(err, op);
    scope->count = 1;
    scope->is_named = true;
    return target_find(files, op, path, CAY_ACCESS_READ, TARGET_FOLLOW, scope->targets,
                       err);
}

int find_scope_open(cay_files *files, const char *op,
                    const struct find_question *question, struct find_scope *ret_scope,
                    struct cay_error *err)
{
    const char *path = question->path;

    *ret_scope = (struct find_scope){0};
    bool everything = means_everything(path) && !files->policy->base;
    int code = everything ? open_everything(files, op, ret_scope, err)
                          : open_one(files, op, path, ret_scope, err);
    for (size_t i = 0; !code && i < ret_scope->count; i++)
        code = ask(files, question, ret_scope->is_named, &ret_scope->targets[i], err);
    return code;
}

void find_scope_done(struct find_scope *scope)
{
    for (size_t i = 0; i < scope->count; i++)
        target_done(&scope->targets[i]);
    free(scope->targets);
    cay_strings_done(&scope->roots);
    *scope = (struct find_scope){0};
}

/* --- What to look for ----------------------------------------------------------------
 */

int find_filter_init(const char *op, const char *pattern, const char *const *exclude,
                     size_t exclude_count, struct find_filter *ret_filter,
                     struct cay_error *err)
{
    *ret_filter = (struct find_filter){0};
    if (exclude_count > EXCLUDE_MAX)
        return cay_fail(err, CAY_E_INVALID, 0, op, "exclude",
                        "too many patterns to exclude", "give at most %d", EXCLUDE_MAX);
    int code = glob_compile(op, pattern, &ret_filter->pattern, err);
    if (code || !exclude_count)
        return code;
    ret_filter->exclude = calloc(exclude_count, sizeof *ret_filter->exclude);
    if (!ret_filter->exclude)
        return cay_fail_memory(err, op);
    for (size_t i = 0; !code && i < exclude_count; i++) {
        code = glob_compile(op, exclude[i], &ret_filter->exclude[i], err);
        ret_filter->exclude_count += !code;
    }
    return code;
}

void find_filter_done(struct find_filter *filter)
{
    glob_done(&filter->pattern);
    for (size_t i = 0; i < filter->exclude_count; i++)
        glob_done(&filter->exclude[i]);
    free(filter->exclude);
    *filter = (struct find_filter){0};
}

/* A link may be one to a directory; who excludes that rather wants it left out. */
static bool is_excluded(const struct find_filter *filter, const struct walk_step *step)
{
    bool may_be_directory = step->type == DT_DIR || step->type == DT_LNK;

    for (size_t i = 0; i < filter->exclude_count; i++)
        if ((may_be_directory || !filter->exclude[i].only_directories) &&
            glob_matches_path(&filter->exclude[i], 0, step->rel))
            return true;
    return false;
}

static enum cay_type type_of(mode_t mode)
{
    return S_ISREG(mode)   ? CAY_TYPE_FILE
           : S_ISDIR(mode) ? CAY_TYPE_DIRECTORY
           : S_ISLNK(mode) ? CAY_TYPE_LINK
                           : CAY_TYPE_OTHER;
}

static bool is_wanted(const struct find_filter *filter, enum cay_type type)
{
    if (filter->pattern.only_directories && type != CAY_TYPE_DIRECTORY)
        return false;
    switch (type) {
    case CAY_TYPE_FILE:
        return filter->flags & CAY_LIST_FILES;
    case CAY_TYPE_DIRECTORY:
        return filter->flags & CAY_LIST_DIRECTORIES;
    case CAY_TYPE_LINK:
        return filter->flags & CAY_LIST_LINKS;
    case CAY_TYPE_OTHER:
        return filter->flags & CAY_LIST_OTHER;
    }
    return false;
}

/* --- Looking -------------------------------------------------------------------------
 */

static bool is_visible(const struct find *find, const char *rel)
{
    const cay_policy *policy = find->files->policy;
    size_t mount = find->start->mount;

    return (policy_access(policy, mount, rel) & CAY_ACCESS_READ) &&
           !policy_is_hidden(policy, mount, rel);
}

/* Fills in the target's place; false if the step leads nowhere the caller may see.  Only
 * a link that is to be followed is looked up: target.fd then holds what it leads to. */
static bool locate(struct find *find, const struct walk_step *step, bool follow)
{
    struct target *target = &find->target;
    size_t mount = find->start->mount;
    char place[PATH_MAX];

    if (!walk_join(find->named, find->start->rel, step->rel) ||
        policy_is_hidden(find->files->policy, mount, find->named) ||
        !walk_join(place, step->real, step->name) || !is_visible(find, place))
        return false;
    if (step->type == DT_LNK && follow) {
        struct fs_found found = {.fd = -1, .dir = -1};
        int error = target->fs->find(target->fs, find->files->roots[mount],
                                     find->files->policy->mounts[mount].host, place, 0,
                                     target->rel, &found);
        target->fd = found.fd;
        target->st = found.st;
        if (error && !walk_may_skip(-error))
            find->error = -error;
        return !error && target->fd >= 0 && is_visible(find, target->rel);
    }
    memcpy(target->rel, place, strlen(place) + 1);
    return true;
}

/* Spells the hit; false if whoever reads that as a path would get something else. */
static bool name(struct find *find)
{
    const cay_policy *policy = find->files->policy;
    size_t mount = find->start->mount;
    bool is_named =
        policy_label(policy, mount, find->named, find->label, sizeof find->label) &&
        policy_label_means(policy, find->label, mount, find->named);

    find->unnamed += !is_named;
    return is_named;
}

static bool is_hit(struct find *find, const struct walk_step *step,
                   struct find_hit *ret_hit)
{
    const struct find_filter *filter = find->filter;
    glob_state state =
        glob_step(&filter->pattern, step->mark, step->name, step->type == DT_LNK);

    if (!glob_accepts(&filter->pattern, state))
        return false;
    bool follow = !(filter->flags & CAY_LIST_LINKS);
    if (step->type != DT_LNK && !is_wanted(filter, type_of((mode_t)DTTOIF(step->type))))
        return false;
    if (!locate(find, step, follow))
        return false;
    ret_hit->type = find->target.fd >= 0 ? type_of(find->target.st.st_mode)
                                         : type_of((mode_t)DTTOIF(step->type));
    find->dir = step->dir;
    find->name = step->name;
    ret_hit->path = find->label;
    ret_hit->dir = find->target.fd >= 0 ? -1 : step->dir;
    return is_wanted(filter, ret_hit->type) && name(find);
}

static int go_below(struct find *find, const struct walk_step *step,
                    struct cay_error *err)
{
    const struct glob *pattern = &find->filter->pattern;
    bool is_link = step->type == DT_LNK;
    glob_state state = glob_step(pattern, step->mark, step->name, is_link);

    if (!glob_goes_deeper(pattern, state) || !locate(find, step, true))
        return CAY_OK;
    if (!is_link)
        return walk_enter(find->walk, state, err);
    if (!S_ISDIR(find->target.st.st_mode))
        return CAY_OK;
    if (++find->links > LINKS_MAX)
        return cay_fail(err, CAY_E_LIMIT, 0, find->start->op, find->start->path,
                        "the pattern leads through more than 100,000 links",
                        "use \"**\", which does not pass through links, or a plain name");
    return walk_enter_link(find->walk, find->target.fd, find->target.rel, state, err);
}

int find_next(struct find *find, struct find_hit *ret_hit, struct cay_error *err)
{
    struct walk_step step;

    for (;;) {
        target_done(&find->target);
        int found = find->walk ? walk_next(find->walk, &step, err) : 0;
        if (found <= 0)
            return found;
        if (is_excluded(find->filter, &step))
            continue;
        int code = CAY_OK;
        if (step.event == WALK_BELOW) {
            code = go_below(find, &step, err);
            find->denied += walk_was_denied(find->walk);
        } else if (is_hit(find, &step, ret_hit))
            return 1;
        if (!code && find->error)
            code = target_fail(find->start, find->error, err);
        if (code)
            return code;
    }
}

int find_hold(struct find *find, unsigned flags, const struct target **ret_target,
              struct cay_error *err)
{
    struct target *target = &find->target;
    struct fs_found found = {.fd = -1, .dir = -1};
    char name[PATH_MAX];
    int error = 0;

    if (target->fd < 0) {
        error = target->fs->find(target->fs, find->dir, NULL, find->name,
                                 FS_NO_FOLLOW | flags, name, &found);
        target->fd = found.fd;
        target->st = found.st;
        target->is_open = found.is_open;
    }
    *ret_target = target->fd < 0 ? NULL : target;
    return walk_may_skip(-error) ? CAY_OK : target_fail(find->start, -error, err);
}

uint64_t find_denied(const struct find *find)
{
    return find->denied;
}

uint64_t find_unnamed(const struct find *find)
{
    return find->unnamed;
}

bool find_is_serious(int code)
{
    return code == CAY_E_IO || code == CAY_E_UNAVAILABLE || code == CAY_E_NO_MEMORY ||
           code == CAY_E_NO_SPACE || code == CAY_E_UNSUPPORTED || code == CAY_E_INTERNAL;
}

/* What of filter->after lies below the start: NULL if everything comes after it;
 * *ret_past is set if nothing does. */
static const char *after_below(const struct find *find, const char *prefix,
                               bool *ret_past)
{
    const char *after = find->filter->after;
    size_t len = strlen(prefix);

    *ret_past = false;
    if (!after || !*after)
        return NULL;
    int order = strncmp(prefix, after, len);
    *ret_past = order < 0;
    return order == 0 ? after + len : NULL;
}

int find_new(cay_files *files, const struct target *start,
             const struct find_filter *filter, struct find **ret_find,
             struct cay_error *err)
{
    struct walk_options options = {.fs = files->fs,
                                   .root = files->roots[start->mount],
                                   .real = start->rel,
                                   .mark = glob_start(&filter->pattern, 0),
                                   .max_depth = filter->max_depth,
                                   .deadline_ns = filter->deadline_ns};
    char prefix[2 * PATH_MAX];
    bool is_past = true;
    struct find *find = malloc(sizeof *find);

    if (!find)
        return cay_fail_memory(err, start->op);
    find->files = files;
    find->start = start;
    find->filter = filter;
    find->walk = NULL;
    find->links = 0;
    find->denied = find->unnamed = 0;
    find->error = 0;
    find->target = (struct target)TARGET_NONE;
    find->target.fs = files->fs;
    find->target.op = start->op;
    find->target.path = find->label;
    find->target.mount = start->mount;
    if (policy_label(files->policy, start->mount, start->rel, prefix,
                     sizeof prefix - 1)) {
        size_t len = strlen(prefix);
        if (prefix[len - 1] != '/')
            memcpy(prefix + len, "/", 2);
        options.after = after_below(find, prefix, &is_past);
    }
    int code =
        is_past ? CAY_OK : walk_new(start->op, start->fd, &options, &find->walk, err);
    if (!code && find->walk && walk_was_denied(find->walk)) {
        find->denied++;
        code = filter->must_read ? target_fail(start, EACCES, err) : CAY_OK;
    }
    if (code)
        find_free(find);
    else
        *ret_find = find;
    return code;
}

void find_free(struct find *find)
{
    if (!find)
        return;
    target_done(&find->target);
    walk_free(find->walk);
    free(find);
}
