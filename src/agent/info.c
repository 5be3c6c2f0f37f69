/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "agent/encoding.h"
#include "agent/identity.h"
#include "agent/match.h"
#include "agent/place.h"
#include "base/auto.h"
#include "base/error.h"

void cay_file_info_done(struct cay_file_info *info)
{
    free(info->path);
    free(info->link_target);
    *info = (struct cay_file_info){0};
}

void cay_file_infos_done(struct cay_file_infos *infos)
{
    for (size_t i = 0; i < infos->count; i++)
        cay_file_info_done(&infos->items[i]);
    free(infos->items);
    *infos = (struct cay_file_infos){0};
}

/* Stat that takes a file that is not there for an answer. */
static int look(struct place *place, const char *path, bool no_follow,
                struct cay_stat *ret_stat, bool *ret_exists, struct cay_error *err)
{
    struct cay_error why = {0};
    int code = place->ops->stat(place, path, no_follow, ret_stat, &why);

    *ret_exists = code == CAY_OK;
    if (code == CAY_E_NOT_FOUND || code == CAY_E_NOT_A_DIRECTORY)
        return CAY_OK;
    if (code && err)
        *err = why;
    return code;
}

/* Where a link leads is told if it can be. */
static int follow(struct place *place, const char *path, struct cay_file_info *info,
                  struct cay_error *err)
{
    struct cay_error why = {0};
    char *target = NULL;

    if (place->ops->read_link(place, path, &target, NULL) == CAY_OK)
        info->link_target = target;
    int code = look(place, path, false, &info->stat, &info->exists, &why);
    /* One that goes round is there no more than one that leads nowhere. */
    if (!code || code == CAY_E_INVALID)
        return CAY_OK;
    if (err)
        *err = why;
    return code;
}

/* --- One ------------------------------------------------------------------------------
 */

static void guess_encoding(struct place *place, const char *path,
                           struct cay_file_info *info)
{
    struct cay_content content = {0};
    uint64_t total;

    if (info->stat.type != CAY_TYPE_FILE ||
        place->ops->read(place, path, 0, ENCODING_BYTES, &content, &total, NULL) !=
            CAY_OK)
        return;
    enum encoding guess = encoding_guess(content.data, content.len, content.len == total);
    cay_copy_text(info->encoding, sizeof info->encoding, encoding_slug(guess));
    free(content.data);
}

static int fill(struct place *place, const char *path, struct cay_file_info *info,
                struct cay_error *err)
{
    info->path = strdup(path);
    if (!info->path)
        return cay_fail_memory(err, "file.info");
    int code = look(place, path, true, &info->stat, &info->exists, err);
    if (!code && info->exists && info->stat.type == CAY_TYPE_LINK)
        code = follow(place, path, info, err);
    if (code || !info->exists)
        return code;
    int access = place->ops->access(place, path, &info->stat, err);
    if (access < 0)
        return access;
    info->readable = access & CAY_ACCESS_READ;
    info->writable = access & CAY_ACCESS_WRITE;
    guess_encoding(place, path, info);
    return CAY_OK;
}

static int get_info(struct place *place, const char *path, struct cay_file_info *ret_info,
                    struct cay_error *err)
{
    struct cay_file_info info = {0};

    int code = fill(place, path, &info, err);
    if (code)
        cay_file_info_done(&info);
    else
        *ret_info = info;
    return code;
}

int cay_get_file_info(cay_sandbox *sandbox, const char *user, const char *path,
                      struct cay_file_info *ret_info, struct cay_error *err)
{
    AUTO_PLACE place = {0};
    int code = place_open(sandbox, user, &place, err);

    return code ? code : get_info(&place, path, ret_info, err);
}

/* --- Many -----------------------------------------------------------------------------
 */

/* Adds one entry unless it leads nowhere. */
static int add(struct place *place, const char *top, const struct cay_entry *entry,
               const struct identity *identity, struct cay_file_infos *infos,
               struct cay_error *err)
{
    struct cay_file_info *info = &infos->items[infos->count];

    *info = (struct cay_file_info){
        .path = place_join(top, entry->path), .exists = true, .stat = entry->stat};
    if (!info->path)
        return cay_fail_memory(err, "file.list");
    int code =
        entry->stat.type == CAY_TYPE_LINK ? follow(place, info->path, info, err) : CAY_OK;
    if (code || !info->exists) {
        cay_file_info_done(info);
        return code;
    }
    int access = identity_access(identity, &info->stat);
    info->readable = access & CAY_ACCESS_READ;
    info->writable = access & CAY_ACCESS_WRITE;
    infos->count++;
    return CAY_OK;
}

static int fill_all(struct place *place, const char *top,
                    const struct cay_listing *listing, const struct match *match,
                    struct cay_file_infos *infos, struct cay_error *err)
{
    const struct identity identity = identity_of(place);
    int code = CAY_OK;

    infos->items = calloc(listing->count + 1, sizeof *infos->items);
    if (!infos->items)
        return cay_fail_memory(err, "file.list");
    for (size_t i = 0; !code && i < listing->count; i++)
        if (!match || match_path(match, 0, listing->entries[i].path))
            code = add(place, top, &listing->entries[i], &identity, infos, err);
    return code;
}

/* The whole pattern: one that is to be found at any depth has "**" before it. */
static int parse(const char *pattern, bool recursive, struct match *match,
                 struct cay_error *err)
{
    AUTO_BUF text;

    buf_init(&text, SIZE_MAX / 2);
    buf_text(&text, recursive ? "**/" : "");
    buf_text(&text, pattern);
    if (text.failed || !match_parse(text.data, match))
        return cay_fail_memory(err, "file.list");
    if (!match->count || match->count > MATCH_PARTS_MAX || *pattern == '/')
        return cay_fail(err, CAY_E_INVALID, 0, "file.list", pattern,
                        "this is no pattern for names below a directory",
                        "it is relative, like \"*.py\" or \"src/*.py\"");
    return CAY_OK;
}

static int list_infos(struct place *place, const char *path, bool recursive,
                      const char *pattern, struct cay_file_infos *ret_infos,
                      struct cay_error *err)
{
    struct match match = {.with_dots = true, .with_stars = true};
    struct cay_listing listing = {0};
    struct cay_file_infos infos = {0};
    AUTO_FREE char *top = place_absolute(place, path);

    int code = top ? CAY_OK : cay_fail_memory(err, "file.list");
    if (!code && pattern)
        code = parse(pattern, recursive, &match, err);
    bool deep = recursive || (pattern && strchr(pattern, '/')) ||
                (pattern && strstr(pattern, "**"));
    if (!code)
        code = place->ops->list(place, path, deep, true, &listing, err);
    if (!code)
        code = fill_all(place, top, &listing, pattern ? &match : NULL, &infos, err);
    match_done(&match);
    cay_listing_done(&listing);
    if (code)
        cay_file_infos_done(&infos);
    else
        *ret_infos = infos;
    return code;
}

int cay_list_files(cay_sandbox *sandbox, const char *user, const char *path,
                   bool recursive, const char *pattern, struct cay_file_infos *ret_infos,
                   struct cay_error *err)
{
    AUTO_PLACE place = {0};
    int code = place_open(sandbox, user, &place, err);

    return code ? code : list_infos(&place, path, recursive, pattern, ret_infos, err);
}
