/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "agent/text.h"
#include "agent/userfs.h"
#include "base/array.h"
#include "base/auto.h"
#include "base/error.h"
#include "base/glob.h"

int cay_file_read(cay_sandbox *sandbox, const char *user, const char *path,
                  struct cay_content *ret_content, struct cay_error *err)
{
    AUTO_USERFS fs = {0};
    int code = userfs_open(sandbox, user, &fs, err);

    return code ? code : userfs_read_all(&fs, path, ret_content, err);
}

int cay_file_write(cay_sandbox *sandbox, const char *user, const char *path,
                   const void *data, size_t len, unsigned flags, struct cay_error *err)
{
    AUTO_USERFS fs = {0};
    int code = userfs_open(sandbox, user, &fs, err);

    return code ? code : userfs_write(&fs, path, data, len, flags, NULL, err);
}

int cay_file_delete(cay_sandbox *sandbox, const char *user, const char *path,
                    struct cay_error *err)
{
    AUTO_USERFS fs = {0};
    int code = userfs_open(sandbox, user, &fs, err);

    return code ? code : userfs_remove(&fs, path, err);
}

int cay_directory_create(cay_sandbox *sandbox, const char *user, const char *path,
                         bool parents, struct cay_error *err)
{
    unsigned flags = CAY_NAME_EXIST_OK | (parents ? 0u : (unsigned)CAY_NAME_NO_PARENTS);
    AUTO_USERFS fs = {0};
    int code = userfs_open(sandbox, user, &fs, err);

    return code ? code : userfs_mkdir(&fs, path, flags, err);
}

/* --- Information about one file -------------------------------------------------------
 */

void cay_file_info_done(struct cay_file_info *info)
{
    free(info->path);
    free(info->link_target);
    *info = (struct cay_file_info){0};
}

/* A stat for which a missing file is not an error. */
static int stat_if_exists(struct userfs *fs, const char *path, bool no_follow,
                          struct cay_stat *ret_stat, bool *ret_exists,
                          struct cay_error *err)
{
    struct cay_error why = {0};
    int code = userfs_stat(fs, path, no_follow, ret_stat, &why);

    *ret_exists = code == CAY_OK;
    if (code == CAY_E_NOT_FOUND || code == CAY_E_NOT_A_DIRECTORY)
        return CAY_OK;
    return cay_fail_as(err, code, &why);
}

int cay_file_exists(cay_sandbox *sandbox, const char *user, const char *path,
                    struct cay_error *err)
{
    AUTO_USERFS fs = {0};
    struct cay_stat stat;
    bool exists = false;

    int code = userfs_open(sandbox, user, &fs, err);
    if (!code)
        code = stat_if_exists(&fs, path, false, &stat, &exists, err);
    return code ? code : exists;
}

/* The target of a link stays NULL if it cannot be read. */
static int follow(struct userfs *fs, const char *path, struct cay_file_info *info,
                  struct cay_error *err)
{
    struct cay_error why = {0};
    char *target = NULL;

    if (userfs_read_link(fs, path, &target, NULL) == CAY_OK)
        info->link_target = target;
    int code = stat_if_exists(fs, path, false, &info->stat, &info->exists, &why);
    /* A loop of links (ELOOP) counts as missing, like a dangling link. */
    return code == CAY_E_INVALID ? CAY_OK : cay_fail_as(err, code, &why);
}

static void set_access(struct cay_file_info *info, int access)
{
    info->readable = access & CAY_ACCESS_READ;
    info->writable = access & CAY_ACCESS_WRITE;
}

static void guess_encoding(struct userfs *fs, const char *path,
                           struct cay_file_info *info)
{
    struct cay_content content = {0};
    uint64_t total;

    if (info->stat.type != CAY_TYPE_FILE ||
        userfs_read(fs, path, 0, ENCODING_BYTES, &content, &total, NULL) != CAY_OK)
        return;
    enum encoding guess = encoding_guess(content.data, content.len, content.len == total);
    cay_copy_text(info->encoding, sizeof info->encoding, encoding_slug(guess));
    free(content.data);
}

static int fill(struct userfs *fs, const char *path, struct cay_file_info *info,
                struct cay_error *err)
{
    info->path = strdup(path);
    if (!info->path)
        return cay_fail_memory(err, "file.info");
    int code = stat_if_exists(fs, path, true, &info->stat, &info->exists, err);
    if (!code && info->exists && info->stat.type == CAY_TYPE_LINK)
        code = follow(fs, path, info, err);
    if (code || !info->exists)
        return code;
    int access = userfs_access(fs, path, &info->stat, err);
    if (access < 0)
        return access;
    set_access(info, access);
    guess_encoding(fs, path, info);
    return CAY_OK;
}

int cay_file_inspect(cay_sandbox *sandbox, const char *user, const char *path,
                     struct cay_file_info *ret_info, struct cay_error *err)
{
    struct cay_file_info info = {0};
    AUTO_USERFS fs = {0};

    int code = userfs_open(sandbox, user, &fs, err);
    if (!code)
        code = fill(&fs, path, &info, err);
    if (code)
        cay_file_info_done(&info);
    else
        *ret_info = info;
    return code;
}

/* --- Information about many -----------------------------------------------------------
 */

static const char list_op[] = "file.list";

void cay_file_infos_done(struct cay_file_infos *infos)
{
    for (size_t i = 0; i < infos->count; i++)
        cay_file_info_done(&infos->items[i]);
    free(infos->items);
    *infos = (struct cay_file_infos){0};
}

/* Adds an entry unless it is a dangling link. */
static int add_info(struct userfs *fs, const char *top, const struct cay_entry *entry,
                    const struct identity *identity, struct cay_file_infos *infos,
                    struct cay_error *err)
{
    struct cay_file_info *info = &infos->items[infos->count];

    *info = (struct cay_file_info){
        .path = userfs_join(top, entry->path), .exists = true, .stat = entry->stat};
    if (!info->path)
        return cay_fail_memory(err, list_op);
    int code =
        entry->stat.type == CAY_TYPE_LINK ? follow(fs, info->path, info, err) : CAY_OK;
    if (code || !info->exists) {
        cay_file_info_done(info);
        return code;
    }
    set_access(info, identity_access(identity, &info->stat));
    infos->count++;
    return CAY_OK;
}

static int fill_all(struct userfs *fs, const char *top, const struct cay_listing *listing,
                    const struct glob *glob, struct cay_file_infos *infos,
                    struct cay_error *err)
{
    const struct identity identity = userfs_identity(fs);
    int code = CAY_OK;

    infos->items = calloc(listing->count + 1, sizeof *infos->items);
    if (!infos->items)
        return cay_fail_memory(err, list_op);
    for (size_t i = 0; !code && i < listing->count; i++)
        if (!glob || glob_matches_path(glob, 0, listing->entries[i].path))
            code = add_info(fs, top, &listing->entries[i], &identity, infos, err);
    return code;
}

/* A recursive pattern matches at any depth: "**" goes before it. */
static int parse(const char *pattern, bool recursive, struct glob *ret_glob,
                 struct cay_error *err)
{
    AUTO_BUF text;

    buf_init(&text, SIZE_MAX / 2);
    buf_text(&text, recursive ? "**/" : "");
    buf_text(&text, pattern);
    if (text.failed)
        return cay_fail_memory(err, list_op);
    int code = glob_split(list_op, text.data, 0, ret_glob, err);
    if (!code && (!ret_glob->count || *pattern == '/'))
        code = cay_fail(err, CAY_E_INVALID, 0, list_op, pattern,
                        "the pattern is empty or absolute",
                        "patterns are relative: \"*.py\", \"src/*.py\"");
    return code;
}

static int list_infos(struct userfs *fs, const char *path, bool recursive,
                      const char *pattern, struct cay_file_infos *ret_infos,
                      struct cay_error *err)
{
    struct glob glob = {0};
    struct cay_listing listing = {0};
    struct cay_file_infos infos = {0};
    AUTO_FREE char *top = userfs_absolute(fs, path);

    int code = top ? CAY_OK : cay_fail_memory(err, list_op);
    if (!code && pattern)
        code = parse(pattern, recursive, &glob, err);
    bool deep = recursive || (pattern && (strchr(pattern, '/') || strstr(pattern, "**")));
    if (!code)
        code = userfs_list(fs, path, deep, true, &listing, err);
    if (!code)
        code = fill_all(fs, top, &listing, pattern ? &glob : NULL, &infos, err);
    glob_done(&glob);
    cay_listing_done(&listing);
    if (code)
        cay_file_infos_done(&infos);
    else
        *ret_infos = infos;
    return code;
}

int cay_file_list(cay_sandbox *sandbox, const char *user, const char *path,
                  bool recursive, const char *pattern, struct cay_file_infos *ret_infos,
                  struct cay_error *err)
{
    AUTO_USERFS fs = {0};
    int code = userfs_open(sandbox, user, &fs, err);

    return code ? code : list_infos(&fs, path, recursive, pattern, ret_infos, err);
}

/* --- Expanding a pattern --------------------------------------------------------------
 *
 * As Python's glob.glob(): components are followed one by one, a literal name without
 * listing its directory.  From the first "**" on, the rest is matched against all that is
 * below, which is listed once. */

static const char glob_op[] = "file.glob";

/* A program inside can create links that lead above themselves, each of which multiplies
 * the work: WORK_MAX bounds all of it together. */
enum { PATHS_MAX = 100000, LINKS_MAX = 4, WORK_MAX = 2000000, WORK_OF_LIST = 10 };

struct expansion {
    struct userfs *fs;
    struct glob glob;
    struct cay_strings paths;
    size_t room;
    size_t work; /* names listed so far, and WORK_OF_LIST for each list */
};

/* Takes the path over. */
static int add_path(struct expansion *exp, char *path, struct cay_error *err)
{
    struct cay_strings *paths = &exp->paths;
    AUTO_FREE char *own = path;

    if (!own)
        return cay_fail_memory(err, glob_op);
    if (paths->count == PATHS_MAX)
        return cay_fail(err, CAY_E_LIMIT, 0, glob_op, NULL,
                        "the pattern matches more than 100,000 paths",
                        "give a narrower pattern");
    if (!array_reserve(&paths->items, &exp->room, paths->count + 1, sizeof *paths->items))
        return cay_fail_memory(err, glob_op);
    paths->items[paths->count++] = TAKE_PTR(own);
    return CAY_OK;
}

/* Names that are missing, or that this user may not see, do not match. */
static bool means_no_match(int code)
{
    return code == CAY_E_NOT_FOUND || code == CAY_E_NOT_A_DIRECTORY ||
           code == CAY_E_DENIED || code == CAY_E_INVALID;
}

static bool is_directory(struct expansion *exp, const char *path)
{
    struct cay_stat stat;

    return userfs_stat(exp->fs, *path ? path : ".", false, &stat, NULL) == CAY_OK &&
           stat.type == CAY_TYPE_DIRECTORY;
}

static bool leads_to_directory(struct expansion *exp, const char *path,
                               enum cay_type type)
{
    return type == CAY_TYPE_DIRECTORY ||
           (type == CAY_TYPE_LINK && is_directory(exp, path));
}

static int list(struct expansion *exp, const char *dir, bool recursive,
                struct cay_listing *ret_listing, struct cay_error *err)
{
    struct cay_error why = {0};
    int code =
        userfs_list(exp->fs, *dir ? dir : ".", recursive, false, ret_listing, &why);

    exp->work += WORK_OF_LIST + ret_listing->count;
    if (exp->work > WORK_MAX) {
        cay_listing_done(ret_listing);
        return cay_fail(err, CAY_E_LIMIT, 0, glob_op, NULL,
                        "the pattern leads through too many directories",
                        "give a narrower pattern; links may form a loop");
    }
    return means_no_match(code) ? CAY_OK : cay_fail_as(err, code, &why);
}

static bool is_hidden(const char *path)
{
    return *path == '.' || strstr(path, "/.");
}

/* Matches all below `dir` from a "**" on.  `below` is the path from where the "**"
 * started to `dir`: "" for itself. */
static int sweep(struct expansion *exp, size_t component, const char *dir,
                 const char *below, unsigned links, struct cay_error *err)
{
    struct cay_listing listing = {0};
    int code = list(exp, dir, true, &listing, err);

    for (size_t i = 0; !code && i < listing.count; i++) {
        const struct cay_entry *entry = &listing.entries[i];
        AUTO_FREE char *path = userfs_join(dir, entry->path);
        AUTO_FREE char *rel = userfs_join(below, entry->path);
        if (!path || !rel) {
            code = cay_fail_memory(err, glob_op);
            break;
        }
        if (entry->stat.type == CAY_TYPE_LINK && links < LINKS_MAX && !is_hidden(rel) &&
            is_directory(exp, path))
            code = sweep(exp, component, path, rel, links + 1, err);
        if (!code && glob_matches_path(&exp->glob, component, rel) &&
            (!exp->glob.only_directories ||
             leads_to_directory(exp, path, entry->stat.type)))
            code = add_path(exp, TAKE_PTR(path), err);
    }
    cay_listing_done(&listing);
    return code;
}

/* Adds the path if it exists.  Takes it over. */
static int finish(struct expansion *exp, char *path, struct cay_error *err)
{
    struct cay_stat stat;
    struct cay_error why = {0};
    int code = userfs_stat(exp->fs, path, true, &stat, &why);

    if (!code &&
        (!exp->glob.only_directories || leads_to_directory(exp, path, stat.type)))
        return add_path(exp, path, err);
    free(path);
    return means_no_match(code) ? CAY_OK : cay_fail_as(err, code, &why);
}

static int expand(struct expansion *exp, size_t component, const char *dir,
                  struct cay_error *err);

static int expand_name(struct expansion *exp, size_t component, const char *dir,
                       const char *name, struct cay_error *err)
{
    char *path = userfs_join(dir, name);

    if (!path)
        return cay_fail_memory(err, glob_op);
    if (component + 1 == exp->glob.count)
        return finish(exp, path, err);
    int code = expand(exp, component + 1, path, err);
    free(path);
    return code;
}

static int expand(struct expansion *exp, size_t component, const char *dir,
                  struct cay_error *err)
{
    const struct glob_component *own = &exp->glob.components[component];
    struct cay_listing listing = {0};

    if (own->kind == GLOB_LITERAL)
        return expand_name(exp, component, dir, own->text, err);
    if (own->kind == GLOB_ANY_DEPTH) {
        int code = sweep(exp, component, dir, "", 0, err);
        bool matches = !code && glob_matches_path(&exp->glob, component, "") &&
                       is_directory(exp, dir);
        return matches ? add_path(exp, strdup(dir), err) : code;
    }
    int code = list(exp, dir, false, &listing, err);
    for (size_t i = 0; !code && i < listing.count; i++)
        if (glob_match_component(&exp->glob, component, listing.entries[i].path))
            code = expand_name(exp, component, dir, listing.entries[i].path, err);
    cay_listing_done(&listing);
    return code;
}

/* Paths below the working directory become relative to it; itself is ".". */
static int make_relative(struct expansion *exp, struct cay_error *err)
{
    const char *base = userfs_base(exp->fs);
    size_t len = base ? strlen(base) : 0;

    if (!base)
        return cay_fail_memory(err, glob_op);
    len -= len && base[len - 1] == '/';
    for (size_t i = 0; i < exp->paths.count; i++) {
        char *path = exp->paths.items[i];
        const char *rest = strncmp(path, base, len) == 0 ? path + len : NULL;
        if (*path == '/' && rest && (!*rest || *rest == '/')) {
            rest += strspn(rest, "/");
            memmove(path, rest, strlen(rest) + 1);
        }
        if (*path)
            continue;
        char *dot = strdup(".");
        if (!dot)
            return cay_fail_memory(err, glob_op);
        free(path);
        exp->paths.items[i] = dot;
    }
    return CAY_OK;
}

static int compare(const void *one, const void *other)
{
    return strcmp(*(char *const *)one, *(char *const *)other);
}

static void sort_unique(struct cay_strings *paths)
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

int cay_file_glob(cay_sandbox *sandbox, const char *user, const char *pattern,
                  bool recursive, struct cay_strings *ret_paths, struct cay_error *err)
{
    const char *top = *pattern == '/' ? "/" : "";
    AUTO_USERFS fs = {0};
    struct expansion exp = {.fs = &fs};

    int code = userfs_open(sandbox, user, &fs, err);
    if (!code)
        code = glob_split(glob_op, pattern,
                          GLOB_HIDE_DOTS | (recursive ? 0u : (unsigned)GLOB_NO_DEPTH),
                          &exp.glob, err);
    if (!code && exp.glob.count)
        code = expand(&exp, 0, top, err);
    else if (!code && *pattern)
        code = add_path(&exp, strdup(top), err);
    if (!code)
        code = make_relative(&exp, err);
    glob_done(&exp.glob);
    if (code) {
        cay_strings_done(&exp.paths);
        return code;
    }
    sort_unique(&exp.paths);
    *ret_paths = exp.paths;
    return CAY_OK;
}
