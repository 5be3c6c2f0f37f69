/* SPDX-License-Identifier: Apache-2.0 */

/* As Python's glob.glob(): the parts of the pattern are followed one by one, a plain name
 * without looking, any other through the names of a directory.  From the first "**" on
 * the rest is matched against all that is below, which is listed once. */
#include <stdlib.h>
#include <string.h>

#include "agent/match.h"
#include "agent/place.h"
#include "base/array.h"
#include "base/auto.h"
#include "base/error.h"

static const char op[] = "file.glob";

/* A link may lead to what is above it, and a program inside can make many of those: each
 * more would multiply the work, so that all of it together has a limit. */
enum { PATHS_MAX = 100000, LINKS_MAX = 4, WORK_MAX = 2000000, WORK_OF_LIST = 10 };

struct glob {
    struct place *place;
    struct match match;
    bool only_directories; /* the pattern ends with a slash */
    struct cay_strings paths;
    size_t room;
    size_t work; /* names that were listed; a list counts for some, too */
};

static int add(struct glob *glob, char *path, struct cay_error *err)
{
    struct cay_strings *paths = &glob->paths;
    AUTO_FREE char *own = path;

    if (!own)
        return cay_fail_memory(err, op);
    if (paths->count == PATHS_MAX)
        return cay_fail(err, CAY_E_LIMIT, 0, op, NULL,
                        "the pattern matches more than 100,000 paths",
                        "give a narrower pattern");
    if (!array_reserve(&paths->items, &glob->room, paths->count + 1,
                       sizeof *paths->items))
        return cay_fail_memory(err, op);
    paths->items[paths->count++] = TAKE_PTR(own);
    return CAY_OK;
}

/* What is not there, or not for this user, matches nothing. */
static bool is_nothing(int code)
{
    return code == CAY_E_NOT_FOUND || code == CAY_E_NOT_A_DIRECTORY ||
           code == CAY_E_DENIED || code == CAY_E_INVALID;
}

static bool is_directory(struct glob *glob, const char *path)
{
    struct cay_stat stat;

    return glob->place->ops->stat(glob->place, *path ? path : ".", false, &stat, NULL) ==
               CAY_OK &&
           stat.type == CAY_TYPE_DIRECTORY;
}

static bool leads_to_directory(struct glob *glob, const char *path, enum cay_type type)
{
    return type == CAY_TYPE_DIRECTORY ||
           (type == CAY_TYPE_LINK && is_directory(glob, path));
}

static int list(struct glob *glob, const char *dir, bool recursive,
                struct cay_listing *ret_listing, struct cay_error *err)
{
    struct cay_error why = {0};
    int code = glob->place->ops->list(glob->place, *dir ? dir : ".", recursive, false,
                                      ret_listing, &why);

    glob->work += WORK_OF_LIST + ret_listing->count;
    if (glob->work > WORK_MAX) {
        cay_listing_done(ret_listing);
        return cay_fail(err, CAY_E_LIMIT, 0, op, NULL,
                        "the pattern leads through too many directories",
                        "give a narrower pattern; links may lead in circles");
    }
    if (!code || is_nothing(code))
        return CAY_OK;
    if (err)
        *err = why;
    return code;
}

/* --- "**" -----------------------------------------------------------------------------
 */

static bool is_hidden(const char *path)
{
    return *path == '.' || strstr(path, "/.");
}

/* `below` is where `dir` is below the place the parts start from: "" for itself. */
static int sweep(struct glob *glob, size_t part, const char *dir, const char *below,
                 unsigned links, struct cay_error *err)
{
    struct cay_listing listing = {0};
    int code = list(glob, dir, true, &listing, err);

    for (size_t i = 0; !code && i < listing.count; i++) {
        const struct cay_entry *entry = &listing.entries[i];
        AUTO_FREE char *path = place_join(dir, entry->path);
        AUTO_FREE char *rel = place_join(below, entry->path);
        if (!path || !rel) {
            code = cay_fail_memory(err, op);
            break;
        }
        bool is_link = entry->stat.type == CAY_TYPE_LINK;
        bool leads_on =
            is_link && links < LINKS_MAX && !is_hidden(rel) && is_directory(glob, path);
        if (leads_on)
            code = sweep(glob, part, path, rel, links + 1, err);
        if (!code && match_path(&glob->match, part, rel) &&
            (!glob->only_directories || leads_to_directory(glob, path, entry->stat.type)))
            code = add(glob, TAKE_PTR(path), err);
    }
    cay_listing_done(&listing);
    return code;
}

static int start_sweep(struct glob *glob, size_t part, const char *dir,
                       struct cay_error *err)
{
    int code = sweep(glob, part, dir, "", 0, err);

    if (!code && match_path(&glob->match, part, "") && is_directory(glob, dir))
        code = add(glob, strdup(dir), err);
    return code;
}

/* --- Part by part ---------------------------------------------------------------------
 */

static int expand(struct glob *glob, size_t part, const char *dir, struct cay_error *err);

static int finish(struct glob *glob, char *path, struct cay_error *err)
{
    struct cay_stat stat;
    struct cay_error why = {0};
    int code = glob->place->ops->stat(glob->place, path, true, &stat, &why);

    bool fits =
        !code && (!glob->only_directories || leads_to_directory(glob, path, stat.type));
    if (fits)
        return add(glob, path, err);
    free(path);
    if (!code || is_nothing(code))
        return CAY_OK;
    if (err)
        *err = why;
    return code;
}

static int expand_name(struct glob *glob, size_t part, const char *dir, const char *name,
                       struct cay_error *err)
{
    char *path = place_join(dir, name);

    if (!path)
        return cay_fail_memory(err, op);
    if (part + 1 == glob->match.count)
        return finish(glob, path, err);
    int code = expand(glob, part + 1, path, err);
    free(path);
    return code;
}

static int expand(struct glob *glob, size_t part, const char *dir, struct cay_error *err)
{
    struct cay_listing listing = {0};

    if (match_is_stars(&glob->match, part))
        return start_sweep(glob, part, dir, err);
    if (!match_has_magic(glob->match.parts[part]))
        return expand_name(glob, part, dir, glob->match.parts[part], err);
    int code = list(glob, dir, false, &listing, err);
    for (size_t i = 0; !code && i < listing.count; i++)
        if (match_part(&glob->match, part, listing.entries[i].path))
            code = expand_name(glob, part, dir, listing.entries[i].path, err);
    cay_listing_done(&listing);
    return code;
}

/* --- What comes out -------------------------------------------------------------------
 */

/* "." is the working directory itself; what is not below it stays as it is. */
static int make_relative(struct glob *glob, struct cay_error *err)
{
    const char *base = place_base(glob->place);
    size_t len = base ? strlen(base) : 0;

    if (!base)
        return cay_fail_memory(err, op);
    len -= len && base[len - 1] == '/';
    for (size_t i = 0; i < glob->paths.count; i++) {
        char *path = glob->paths.items[i];
        const char *rest = strncmp(path, base, len) == 0 ? path + len : NULL;
        if (*path != '/' || !rest || (*rest && *rest != '/'))
            continue;
        rest += strspn(rest, "/");
        memmove(path, rest, strlen(rest) + 1);
    }
    for (size_t i = 0; i < glob->paths.count; i++) {
        if (*glob->paths.items[i])
            continue;
        char *dot = strdup(".");
        if (!dot)
            return cay_fail_memory(err, op);
        free(glob->paths.items[i]);
        glob->paths.items[i] = dot;
    }
    return CAY_OK;
}

static int compare(const void *one, const void *other)
{
    return strcmp(*(char *const *)one, *(char *const *)other);
}

static void sort(struct cay_strings *paths)
{
    size_t kept = 0;

    if (paths->count)
        qsort(paths->items, paths->count, sizeof *paths->items, compare);
    for (size_t i = 0; i < paths->count; i++) {
        if (kept && strcmp(paths->items[kept - 1], paths->items[i]) == 0)
            free(paths->items[i]);
        else
            paths->items[kept++] = paths->items[i];
    }
    paths->count = kept;
}

static int find_all(struct place *place, const char *pattern, bool recursive,
                    struct cay_strings *ret_paths, struct cay_error *err)
{
    struct glob glob = {.place = place, .match = {.with_stars = recursive}};
    size_t len = strlen(pattern);

    glob.only_directories = len && pattern[len - 1] == '/';
    if (!match_parse(pattern, &glob.match))
        return cay_fail_memory(err, op);
    int code = CAY_OK;
    if (glob.match.count > MATCH_PARTS_MAX)
        code = cay_fail(err, CAY_E_INVALID, 0, op, pattern, "the pattern is too long",
                        "it may have %d parts", MATCH_PARTS_MAX);
    else if (glob.match.count)
        code = expand(&glob, 0, *pattern == '/' ? "/" : "", err);
    else if (len)
        code = add(&glob, strdup(*pattern == '/' ? "/" : ""), err);
    if (!code)
        code = make_relative(&glob, err);
    match_done(&glob.match);
    if (code) {
        cay_strings_done(&glob.paths);
        return code;
    }
    sort(&glob.paths);
    *ret_paths = glob.paths;
    return CAY_OK;
}

int cay_glob(cay_sandbox *sandbox, const char *user, const char *pattern, bool recursive,
             struct cay_strings *ret_paths, struct cay_error *err)
{
    AUTO_PLACE place = {0};
    int code = place_open(sandbox, user, &place, err);

    return code ? code : find_all(&place, pattern, recursive, ret_paths, err);
}
