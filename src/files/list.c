/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/auto.h"
#include "base/error.h"
#include "files/find.h"
#include "files/walk.h"

#define OP "files.list"

enum {
    TYPES = CAY_LIST_FILES | CAY_LIST_DIRECTORIES | CAY_LIST_LINKS | CAY_LIST_OTHER,
    ENTRIES = 100000,
    LOOKS = 64
};

/* A listing being made: sorted, without doubles, at most max + 1 entries between starts
 * (the one too many tells that there is more). */
struct collection {
    struct cay_listing listing;
    size_t room;
    uint64_t max;
    /* Entries of one directory whose stat is still to be asked for, all at once. */
    size_t waiting[LOOKS], waiting_count;
    int dir;
};

static void drop(struct cay_listing *listing, size_t from)
{
    while (listing->count > from)
        free(listing->entries[--listing->count].path);
}

void cay_listing_done(struct cay_listing *listing)
{
    if (!listing)
        return;
    drop(listing, 0);
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
        return cay_fail_memory(err, OP);
    char *copy = strdup(path);
    if (!copy)
        return cay_fail_memory(err, OP);
    listing->entries[listing->count++] = (struct cay_entry){copy, *stat};
    return CAY_OK;
}

static size_t directory_len(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? (size_t)(slash - path) + 1 : 0;
}

/* What is gone by now stays without. */
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

/* The paths tell whether it is the same directory as before: the number of a descriptor
 * may be another's by now. */
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

/* The hit, which is the last entry, gets its stat together with others. */
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
    struct find_hit hit;
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

/* Brings what several starts gave into order and lets go of what is too much. */
static void settle(struct collection *collection)
{
    struct cay_listing *listing = &collection->listing;

    if (listing->count)
        qsort(listing->entries, listing->count, sizeof *listing->entries, compare);
    if (listing->count > collection->max)
        drop(listing, (size_t)collection->max + 1);
}

static int take_options(const struct cay_list_options *given,
                        struct cay_list_options *ret_options,
                        struct find_filter *ret_filter, struct cay_error *err)
{
    *ret_filter = (struct find_filter){0};
    int code = cay_take_struct(ret_options, sizeof *ret_options, given, OP, err);
    if (code)
        return code;
    if (ret_options->flags & ~(unsigned)(TYPES | CAY_LIST_STAT))
        return cay_fail(err, CAY_E_UNSUPPORTED, 0, OP, "flags", "an unknown flag is set",
                        "use the flags of enum cay_list_flag");
    if (!(ret_options->flags & TYPES))
        ret_options->flags |= CAY_LIST_FILES;
    if (!ret_options->max_entries)
        ret_options->max_entries = ENTRIES;
    code = find_filter_init(OP, ret_options->pattern, ret_options->exclude,
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

    int code = take_options(options, &known, &filter, err);
    if (code)
        return code;
    collection.max = known.max_entries;
    const struct find_question question = {CAY_OP_LIST, path, known.pattern};
    code = find_scope_open(files, OP, &question, &scope, err);
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
        drop(&collection.listing, (size_t)collection.max);
        collection.listing.truncated = true;
    }
    *ret_listing = collection.listing;
    collection.listing = (struct cay_listing){0};
    return CAY_OK;
}
