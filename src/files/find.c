/* SPDX-License-Identifier: Apache-2.0 */
#include "files/find.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/auto.h"
#include "base/error.h"
#include "files/walk.h"

#define LIST_OP "files.list"

/* LINKS_MAX: a pattern passes through links, and links may lead back up, so a few links
 * to
 * "." give "*" seven times an endless number of paths. */
enum {
    LINKS_MAX = 100000,
    EXCLUDE_MAX = 256,
    TYPES = CAY_LIST_FILES | CAY_LIST_DIRECTORIES | CAY_LIST_LINKS | CAY_LIST_OTHER,
    ENTRIES = 100000,
    LOOKS = 64
};

struct find {
    cay_files *files;
    const struct target *start;
    const struct find_filter *filter;
    struct walk *walk; /* NULL: nothing to find */
    uint32_t links;    /* entered so far */
    uint64_t denied;   /* unreadable directories */
    uint64_t unnamed;  /* hits that no path leads to */
    int error;         /* of a lookup that must be reported, or 0 */
    int dir;           /* of the last hit; the walk's */
    const char *name;
    char named[PATH_MAX];     /* the hit's path below the mount, as walked */
    char label[2 * PATH_MAX]; /* the same as the policy spells it */
    struct target target;     /* the hit; its rel is link-free */
};

/* --- The scope ------------------------------------------------------------------------
 */

/* Adds the target to the scope; false if the scope covers it already. */
static bool add_target(struct find_scope *scope, struct target *target)
{
    size_t kept = 0;

    for (size_t i = 0; i < scope->count; i++)
        if (target_lies_in(target, &scope->targets[i]))
            return false;
    for (size_t i = 0; i < scope->count; i++) {
        if (target_lies_in(&scope->targets[i], target))
            target_done(&scope->targets[i]);
        else
            scope->targets[kept++] = scope->targets[i];
    }
    scope->targets[kept] = *target;
    scope->count = kept + 1;
    return true;
}

/* Listing needs approval only in the mounts style; the other styles are documented to
 * list without. */
static int ask(cay_files *files, const struct find_request *wanted, bool is_named,
               struct target *target, struct cay_error *err)
{
    char summary[2 * PATH_MAX];
    struct cay_approval request = {.op = wanted->op, .path = wanted->path};
    const char *pattern = wanted->pattern;

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
    TRY(policy_roots(files->policy, CAY_ACCESS_READ, &scope->roots, err));
    scope->targets = calloc(scope->roots.count + 1, sizeof *scope->targets);
    if (!scope->targets)
        return cay_fail_memory(err, op);
    for (size_t i = 0; i < scope->roots.count; i++) {
        struct target target;
        struct cay_error why;
        int code = target_find(files, op, scope->roots.items[i], CAY_ACCESS_READ,
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

int find_scope_open(cay_files *files, const char *op, const struct find_request *wanted,
                    struct find_scope *ret_scope, struct cay_error *err)
{
    const char *path = wanted->path;

    *ret_scope = (struct find_scope){0};
    bool everything =
        !files->policy->base &&
        (strcmp(path, "") == 0 || strcmp(path, ".") == 0 || strcmp(path, "/") == 0);
    int code = everything ? open_everything(files, op, ret_scope, err)
                          : open_one(files, op, path, ret_scope, err);
    for (size_t i = 0; !code && i < ret_scope->count; i++)
        code = ask(files, wanted, ret_scope->is_named, &ret_scope->targets[i], err);
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

/* --- The filter -----------------------------------------------------------------------
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

/* A link may lead to a directory, so a pattern for directories excludes it too. */
static bool is_excluded(const struct find_filter *filter, const struct walk_step *step)
{
    bool may_be_directory = step->type == DT_DIR || step->type == DT_LNK;

    for (size_t i = 0; i < filter->exclude_count; i++)
        if ((may_be_directory || !filter->exclude[i].only_directories) &&
            glob_matches_path(&filter->exclude[i], 0, step->rel))
            return true;
    return false;
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

/* --- Finding --------------------------------------------------------------------------
 */

static bool is_visible(const struct find *find, const char *rel)
{
    const cay_policy *policy = find->files->policy;
    size_t mount = find->start->mount;

    return (policy_access(policy, mount, rel) & CAY_ACCESS_READ) &&
           !policy_is_hidden(policy, mount, rel);
}

/* Fills in the target's path; false if the caller may not see it.  Only a link to follow
 * is looked up: then target.fd holds what it leads to. */
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

/* Spells the hit in the policy's style; false if that spelling leads elsewhere. */
static bool set_label(struct find *find)
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
    if (step->type != DT_LNK &&
        !is_wanted(filter, files_type((mode_t)DTTOIF(step->type))))
        return false;
    if (!locate(find, step, follow))
        return false;
    ret_hit->type = find->target.fd >= 0 ? files_type(find->target.st.st_mode)
                                         : files_type((mode_t)DTTOIF(step->type));
    find->dir = step->dir;
    find->name = step->name;
    ret_hit->path = find->label;
    ret_hit->dir = find->target.fd >= 0 ? -1 : step->dir;
    return is_wanted(filter, ret_hit->type) && set_label(find);
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

/* The part of filter->after below the start: NULL if everything comes after it; *ret_past
 * if nothing does. */
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

/* --- Listing ---------------------------------------------------------------------------
 */

/* The listing so far: sorted and unique, at most max + 1 entries after each start.  The
 * last one shows that there are more. */
struct collection {
    struct cay_listing listing;
    size_t room;
    uint64_t max;
    /* Entries of one directory that get their stat together. */
    size_t waiting[LOOKS], waiting_count;
    int dir;
};

static void drop_entries(struct cay_listing *listing, size_t from)
{
    while (listing->count > from)
        free(listing->entries[--listing->count].path);
}

void cay_listing_done(struct cay_listing *listing)
{
    if (!listing)
        return;
    drop_entries(listing, 0);
    free(listing->entries);
    *listing = (struct cay_listing){0};
}

static void auto_collection(struct collection *collection)
{
    cay_listing_done(&collection->listing);
    if (collection->dir >= 0)
        (void)close(collection->dir);
}

static int add(struct collection *collection, const char *path,
               const struct cay_stat *stat, struct cay_error *err)
{
    struct cay_listing *listing = &collection->listing;

    if (!array_reserve(&listing->entries, &collection->room, listing->count + 1,
                       sizeof *listing->entries))
        return cay_fail_memory(err, LIST_OP);
    char *copy = strdup(path);
    if (!copy)
        return cay_fail_memory(err, LIST_OP);
    listing->entries[listing->count++] = (struct cay_entry){copy, *stat};
    return CAY_OK;
}

static size_t directory_len(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? (size_t)(slash - path) + 1 : 0;
}

/* Entries that vanished stay without a stat. */
static int look(const struct target *start, struct collection *collection,
                struct cay_error *err)
{
    struct cay_entry *entries = collection->listing.entries;
    struct fs_look looks[LOOKS];
    size_t count = collection->waiting_count;

    for (size_t i = 0; i < count; i++) {
        const char *path = entries[collection->waiting[i]].path;
        looks[i].name = path + directory_len(path);
    }
    collection->waiting_count = 0;
    int error = start->fs->look(start->fs, collection->dir, looks, count);
    for (size_t i = 0; !error && i < count; i++) {
        if (!looks[i].error)
            stat_of(&looks[i].st, &entries[collection->waiting[i]].stat);
        else if (!walk_may_skip(-looks[i].error))
            error = looks[i].error;
    }
    return error ? target_fail(start, -error, err) : CAY_OK;
}

/* Compares the paths of the directories: a descriptor number may be reused. */
static bool can_wait(const struct collection *collection, const char *path)
{
    size_t len = directory_len(path);

    if (collection->waiting_count == LOOKS)
        return false;
    if (!collection->waiting_count)
        return true;
    const char *other = collection->listing.entries[collection->waiting[0]].path;
    return directory_len(other) == len && memcmp(other, path, len) == 0;
}

/* The hit is the last entry. */
static int look_later(const struct target *start, const struct find_hit *hit,
                      struct collection *collection, struct cay_error *err)
{
    int code = can_wait(collection, hit->path) ? CAY_OK : look(start, collection, err);

    if (!collection->waiting_count) {
        if (collection->dir >= 0)
            (void)close(collection->dir);
        collection->dir = fcntl(hit->dir, F_DUPFD_CLOEXEC, 3);
        if (collection->dir < 0)
            return target_fail(start, errno, err);
    }
    collection->waiting[collection->waiting_count++] = collection->listing.count - 1;
    return code;
}

static int add_with_stat(const struct target *start, struct find *find,
                         const struct find_hit *hit, struct collection *collection,
                         struct cay_error *err)
{
    struct cay_stat stat = {.type = hit->type};
    const struct target *target = NULL;

    int code = hit->dir < 0 ? find_hold(find, 0, &target, err) : CAY_OK;
    if (target)
        stat_of(&target->st, &stat);
    if (!code)
        code = add(collection, hit->path, &stat, err);
    return code || hit->dir < 0 ? code : look_later(start, hit, collection, err);
}

static int collect(cay_files *files, const struct target *start,
                   const struct find_filter *filter, struct collection *collection,
                   struct cay_error *err)
{
    struct find *find = NULL;
    struct find_hit hit = {.path = ""};
    uint64_t found = 0;

    int code = find_new(files, start, filter, &find, err);
    while (!code && found <= collection->max) {
        code = find_next(find, &hit, err);
        if (code <= 0)
            break;
        code = filter->flags & CAY_LIST_STAT
                   ? add_with_stat(start, find, &hit, collection, err)
                   : add(collection, hit.path, &(struct cay_stat){.type = hit.type}, err);
        found++;
    }
    if (!code)
        code = look(start, collection, err);
    collection->listing.skipped += find ? find_unnamed(find) : 0;
    find_free(find);
    return code;
}

static int compare(const void *left, const void *right)
{
    return strcmp(((const struct cay_entry *)left)->path,
                  ((const struct cay_entry *)right)->path);
}

/* Sorts the entries of several starts, and drops those beyond the limit. */
static void settle(struct collection *collection)
{
    struct cay_listing *listing = &collection->listing;

    if (listing->count)
        qsort(listing->entries, listing->count, sizeof *listing->entries, compare);
    if (listing->count > collection->max)
        drop_entries(listing, (size_t)collection->max + 1);
}

static int take_options(const struct cay_list_options *given,
                        struct cay_list_options *ret_options,
                        struct find_filter *ret_filter, struct cay_error *err)
{
    *ret_filter = (struct find_filter){0};
    TRY(cay_take_struct(ret_options, sizeof *ret_options, given, LIST_OP, err));
    if (ret_options->flags & ~(unsigned)(TYPES | CAY_LIST_STAT))
        return cay_fail(err, CAY_E_UNSUPPORTED, 0, LIST_OP, "flags", "unknown flags",
                        "use the flags of enum cay_list_flag");
    if (!(ret_options->flags & TYPES))
        ret_options->flags |= CAY_LIST_FILES;
    if (!ret_options->max_entries)
        ret_options->max_entries = ENTRIES;
    int code = find_filter_init(LIST_OP, ret_options->pattern, ret_options->exclude,
                                ret_options->exclude_count, ret_filter, err);
    ret_filter->flags = ret_options->flags;
    ret_filter->after = ret_options->after;
    ret_filter->max_depth = ret_options->max_depth ? ret_options->max_depth : UINT32_MAX;
    return code;
}

int cay_files_list(cay_files *files, const char *path,
                   const struct cay_list_options *options,
                   struct cay_listing *ret_listing, struct cay_error *err)
{
    __attribute__((cleanup(auto_collection))) struct collection collection = {.dir = -1};
    struct cay_list_options known;
    AUTO_FILTER filter;
    AUTO_SCOPE scope = {0};

    TRY(take_options(options, &known, &filter, err));
    collection.max = known.max_entries;
    const struct find_request request = {CAY_OP_LIST, path, known.pattern};
    int code = find_scope_open(files, LIST_OP, &request, &scope, err);
    filter.deadline_ns = walk_deadline(known.timeout_ms);
    filter.must_read = scope.is_named;
    for (size_t i = 0; !code && i < scope.count; i++) {
        if (scope.targets[i].fd >= 0)
            code = collect(files, &scope.targets[i], &filter, &collection, err);
        settle(&collection);
    }
    if (code)
        return code;
    if (collection.listing.count > collection.max) {
        drop_entries(&collection.listing, (size_t)collection.max);
        collection.listing.truncated = true;
    }
    *ret_listing = collection.listing;
    collection.listing = (struct cay_listing){0};
    return CAY_OK;
}
