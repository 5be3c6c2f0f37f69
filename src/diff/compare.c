/* SPDX-License-Identifier: Apache-2.0 */

/* One walk serves every pair of stacks.  Each directory of a tree is the list of layers
 * that are merged in it.  Where the lists of both trees end alike, that end is shared,
 * and a name that only the shared layers have is the same in both trees.  So only the
 * other layers are listed: for an upper against its lowers that is the upper alone.  An
 * opaque directory ends its list, so nothing is shared below it and all names count.
 *
 * Directories that are still to be read are a stack of paths, which are opened again from
 * the roots of their layers: however deep a tree, the number of descriptors is that of
 * the layers. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/auto.h"
#include "base/error.h"
#include "diff/content.h"
#include "diff/diff.h"
#include "diff/layer.h"

enum { LISTING = 32 << 10 };

struct pending {
    char *path;
    size_t counts[2];
    uint16_t layers[]; /* of both trees, the older first */
};

/* A path of a file that has several. */
struct alias {
    dev_t dev;
    ino_t ino;
    char *path;
    bool is_added;
};

struct walk {
    cay_diff *diff;
    struct pending **todo;
    size_t todo_count, todo_room;

    struct layer_dir *dirs[2]; /* of the current directory, the shared ones in both */
    size_t counts[2];
    size_t shared;

    char *names; /* what is in it, each with its NUL */
    size_t names_len, names_room;
    char **sorted;
    size_t name_count, sorted_room;
    char *listing;

    struct layer_found found[2], below;
    char path[PATH_MAX];
    size_t dir_len; /* of the directory in it, with the slash */

    struct alias *aliases;
    size_t alias_count, alias_room;
};

/* --- Changes --- */

static struct cay_change_side side_of(const struct layer_found *found)
{
    const struct stat *st = &found->st;

    if (found->layer == DIFF_NO_LAYER)
        return (struct cay_change_side){0};
    return (struct cay_change_side){st->st_mode, st->st_uid, st->st_gid,
                                    S_ISDIR(st->st_mode) ? 0 : (uint64_t)st->st_size};
}

static int add_change(struct walk *walk, enum cay_change_kind kind, unsigned parts,
                      struct cay_error *err)
{
    cay_diff *diff = walk->diff;

    if (diff->count >= diff->max_changes) {
        diff->cut++;
        return CAY_OK;
    }
    char *path = strdup(walk->path);
    if (!path || !array_reserve(&diff->changes, &diff->room, diff->count + 1,
                                sizeof *diff->changes)) {
        free(path);
        return cay_fail_memory(err, DIFF_OP);
    }
    diff->changes[diff->count++] = (struct cay_change){
        .kind = kind,
        .parts = parts,
        .path = path,
        .before = side_of(&walk->found[DIFF_BEFORE]),
        .after = side_of(&walk->found[DIFF_AFTER]),
        .layers = {walk->found[DIFF_BEFORE].layer, walk->found[DIFF_AFTER].layer}};
    return CAY_OK;
}

static int note_alias(struct walk *walk, bool is_added, struct cay_error *err)
{
    const struct stat *st = &walk->found[DIFF_AFTER].st;

    if (!S_ISREG(st->st_mode) || st->st_nlink < 2 ||
        walk->alias_count >= walk->diff->max_changes)
        return CAY_OK;
    char *path = strdup(walk->path);
    if (!path || !array_reserve(&walk->aliases, &walk->alias_room, walk->alias_count + 1,
                                sizeof *walk->aliases)) {
        free(path);
        return cay_fail_memory(err, DIFF_OP);
    }
    walk->aliases[walk->alias_count++] =
        (struct alias){st->st_dev, st->st_ino, path, is_added};
    return CAY_OK;
}

/* --- Two entries of one name --- */

static unsigned compare_attributes(const struct stat *old, const struct stat *new)
{
    unsigned parts = 0;

    /* The mode of a link is not used. */
    if (!S_ISLNK(old->st_mode) && (old->st_mode ^ new->st_mode) & 07777)
        parts |= CAY_CHANGED_MODE;
    if (old->st_uid != new->st_uid || old->st_gid != new->st_gid)
        parts |= CAY_CHANGED_OWNER;
    return parts;
}

/* Opens both; one that has vanished or is unreadable stays negative. */
static int open_both(const struct walk *walk, int ret_fds[2], struct cay_error *err)
{
    for (int side = 0; side < 2; side++) {
        ret_fds[side] = content_open_seen(walk->diff, walk->found[side].layer, walk->path,
                                          S_ISDIR(walk->found[side].st.st_mode));
        if (cay_errno_is_shortage(-ret_fds[side]))
            return diff_fail(-ret_fds[side], walk->path, err);
    }
    return CAY_OK;
}

static int compare_opened(struct walk *walk, unsigned *parts, struct cay_error *err)
{
    bool is_file = S_ISREG(walk->found[DIFF_AFTER].st.st_mode);
    int fds[2] = {-1, -1};

    int code = open_both(walk, fds, err);
    if (!code && (fds[0] < 0 || fds[1] < 0)) {
        *parts |= is_file ? CAY_CHANGED_CONTENT : 0;
    } else if (!code) {
        if (!content_same_xattrs(walk->diff, fds[0], fds[1]))
            *parts |= CAY_CHANGED_XATTRS;
        int same = is_file ? content_same(walk->diff, fds[0], fds[1], err) : 1;
        if (same == 0)
            *parts |= CAY_CHANGED_CONTENT;
        code = same < 0 ? same : CAY_OK;
    }
    auto_close(&fds[0]);
    auto_close(&fds[1]);
    return code;
}

static bool same_link(const struct walk *walk)
{
    char texts[2][PATH_MAX];
    ssize_t lens[2];

    for (int side = 0; side < 2; side++)
        lens[side] =
            content_link(walk->diff, walk->found[side].layer, walk->path, texts[side]);
    return lens[0] >= 0 && lens[0] == lens[1] &&
           memcmp(texts[0], texts[1], (size_t)lens[0]) == 0;
}

static int compare_alike(struct walk *walk, struct cay_error *err)
{
    const struct stat *old = &walk->found[DIFF_BEFORE].st,
                      *new = &walk->found[DIFF_AFTER].st;
    unsigned parts = compare_attributes(old, new);

    if (old->st_dev == new->st_dev && old->st_ino == new->st_ino)
        return CAY_OK;
    if (S_ISREG(new->st_mode) || S_ISDIR(new->st_mode))
        TRY(compare_opened(walk, &parts, err));
    else if (S_ISLNK(new->st_mode) ? !same_link(walk) : old->st_rdev != new->st_rdev)
        parts |= CAY_CHANGED_CONTENT;
    if (!parts)
        return CAY_OK;
    return add_change(walk,
                      parts & CAY_CHANGED_CONTENT ? CAY_CHANGE_MODIFIED : CAY_CHANGE_MODE,
                      parts, err);
}

/* --- Going below --- */

static bool same_layers(const struct layer_found found[2])
{
    return found[0].merged_count == found[1].merged_count &&
           memcmp(found[0].merged, found[1].merged,
                  found[0].merged_count * sizeof *found[0].merged) == 0;
}

static int push(struct walk *walk, struct cay_error *err)
{
    const struct layer_found *found = walk->found;
    size_t counts[2];

    for (int side = 0; side < 2; side++)
        counts[side] = found[side].layer != DIFF_NO_LAYER ? found[side].merged_count : 0;
    if ((counts[0] == 0 && counts[1] == 0) || same_layers(found))
        return CAY_OK;
    struct pending *pending =
        malloc(sizeof *pending + (counts[0] + counts[1]) * sizeof *pending->layers);
    char *path = strdup(walk->path);
    if (!pending || !path ||
        !array_reserve(&walk->todo, &walk->todo_room, walk->todo_count + 1,
                       sizeof(struct pending *))) {
        free(pending);
        free(path);
        return cay_fail_memory(err, DIFF_OP);
    }
    pending->path = path;
    for (int side = 0; side < 2; side++) {
        pending->counts[side] = counts[side];
        memcpy(pending->layers + (side ? counts[0] : 0), found[side].merged,
               counts[side] * sizeof *pending->layers);
    }
    walk->todo[walk->todo_count++] = pending;
    return CAY_OK;
}

/* --- One name --- */

static int look(struct walk *walk, const char *name)
{
    bool needs_below = false;

    for (int side = 0; side < 2; side++) {
        int error =
            layer_look(walk->diff, walk->dirs[side], walk->counts[side] - walk->shared,
                       name, &walk->found[side]);
        if (error)
            return error;
        needs_below |= !walk->found[side].is_final;
    }
    if (!needs_below)
        return 0;
    int error = layer_look(walk->diff, walk->dirs[0] + walk->counts[0] - walk->shared,
                           walk->shared, name, &walk->below);
    for (int side = 0; side < 2 && !error; side++)
        layer_append(&walk->found[side], &walk->below);
    return error;
}

static int compare_name(struct walk *walk, const char *name, struct cay_error *err)
{
    const struct layer_found *old = &walk->found[DIFF_BEFORE],
                             *new = &walk->found[DIFF_AFTER];
    size_t len = strlen(name);

    if (walk->dir_len + len >= sizeof walk->path) {
        walk->diff->cut++;
        return CAY_OK;
    }
    memcpy(walk->path + walk->dir_len, name, len + 1);
    int error = look(walk, name);
    if (error)
        return diff_fail(-error, walk->path, err);
    bool was = old->layer != DIFF_NO_LAYER, is = new->layer != DIFF_NO_LAYER;
    if (!was && !is)
        return CAY_OK;
    if (was && is && old->layer == new->layer && !S_ISDIR(new->st.st_mode))
        return CAY_OK;
    if (is)
        TRY(note_alias(walk, !was, err));
    if (!is)
        TRY(add_change(walk, CAY_CHANGE_DELETED, 0, err));
    else if (!was)
        TRY(add_change(walk, CAY_CHANGE_ADDED, 0, err));
    else if ((old->st.st_mode ^ new->st.st_mode) & S_IFMT)
        TRY(add_change(walk, CAY_CHANGE_TYPE, CAY_CHANGED_CONTENT, err));
    else
        TRY(compare_alike(walk, err));
    return push(walk, err);
}

/* --- One directory --- */

static void close_dirs(struct walk *walk)
{
    for (size_t i = 0; i < walk->counts[0]; i++)
        (void)close(walk->dirs[0][i].fd);
    for (size_t i = 0; i + walk->shared < walk->counts[1]; i++)
        (void)close(walk->dirs[1][i].fd);
    walk->counts[0] = walk->counts[1] = walk->shared = 0;
}

/* Opens the directory in these layers; one that has lost it is left out. */
static int open_some(struct walk *walk, const struct pending *pending,
                     const uint16_t *layers, size_t count, struct layer_dir *dirs,
                     size_t *ret_opened, struct cay_error *err)
{
    *ret_opened = 0;
    for (size_t i = 0; i < count; i++) {
        int error =
            layer_open_dir(walk->diff, layers[i], pending->path, &dirs[*ret_opened]);
        if (!error)
            ++*ret_opened;
        else if (error != -ENOENT)
            return diff_fail(-error, pending->path, err);
    }
    return CAY_OK;
}

static int open_dirs(struct walk *walk, const struct pending *pending,
                     struct cay_error *err)
{
    const uint16_t *layers[2] = {pending->layers, pending->layers + pending->counts[0]};
    const size_t *counts = pending->counts;
    size_t shared = 0, opened;

    while (shared < counts[0] && shared < counts[1] &&
           layers[0][counts[0] - shared - 1] == layers[1][counts[1] - shared - 1])
        shared++;
    /* Until all are open, close_dirs() closes each list by itself. */
    TRY(open_some(walk, pending, layers[0], counts[0] - shared, walk->dirs[0],
                  &walk->counts[0], err));
    TRY(open_some(walk, pending, layers[1], counts[1] - shared, walk->dirs[1],
                  &walk->counts[1], err));
    struct layer_dir *below = walk->dirs[0] + walk->counts[0];
    int code = open_some(walk, pending, layers[0] + counts[0] - shared, shared, below,
                         &opened, err);
    memcpy(walk->dirs[1] + walk->counts[1], below, opened * sizeof *below);
    walk->counts[0] += opened;
    walk->counts[1] += opened;
    walk->shared = opened;
    return code;
}

static int list(struct walk *walk, int fd, struct cay_error *err)
{
    for (;;) {
        ssize_t len = getdents64(fd, (void *)walk->listing, LISTING);
        if (len <= 0)
            return len == 0 ? CAY_OK : diff_fail(errno, walk->path, err);
        for (ssize_t at = 0; at < len;) {
            const struct dirent64 *entry = (const void *)(walk->listing + at);
            size_t name_len = strlen(entry->d_name) + 1;
            at += entry->d_reclen;
            if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
                continue;
            if (walk->name_count >= walk->diff->max_changes) {
                walk->diff->cut++;
                continue;
            }
            if (!array_reserve(&walk->names, &walk->names_room,
                               walk->names_len + name_len, 1))
                return cay_fail_memory(err, DIFF_OP);
            memcpy(walk->names + walk->names_len, entry->d_name, name_len);
            walk->names_len += name_len;
            walk->name_count++;
        }
        TRY(diff_check_time(walk->diff, err));
    }
}

static int by_name(const void *left, const void *right)
{
    return strcmp(*(char *const *)left, *(char *const *)right);
}

/* The names of all layers that are not shared, each once. */
static int list_all(struct walk *walk, struct cay_error *err)
{
    size_t listed = 0, kept = 0;

    walk->names_len = walk->name_count = 0;
    for (int side = 0; side < 2; side++)
        for (size_t i = 0; i < walk->counts[side] - walk->shared; i++, listed++)
            TRY(list(walk, walk->dirs[side][i].fd, err));
    if (!array_reserve(&walk->sorted, &walk->sorted_room, walk->name_count,
                       sizeof *walk->sorted))
        return cay_fail_memory(err, DIFF_OP);
    for (size_t i = 0, at = 0; i < walk->name_count; i++) {
        walk->sorted[i] = walk->names + at;
        at += strlen(walk->sorted[i]) + 1;
    }
    if (listed < 2 || walk->name_count == 0)
        return CAY_OK;
    qsort(walk->sorted, walk->name_count, sizeof *walk->sorted, by_name);
    for (size_t i = 0; i < walk->name_count; i++)
        if (kept == 0 || strcmp(walk->sorted[kept - 1], walk->sorted[i]) != 0)
            walk->sorted[kept++] = walk->sorted[i];
    walk->name_count = kept;
    return CAY_OK;
}

static int compare_directory(struct walk *walk, const struct pending *pending,
                             struct cay_error *err)
{
    size_t len = strlen(pending->path);

    memcpy(walk->path, pending->path, len + 1);
    TRY(open_dirs(walk, pending, err));
    TRY(list_all(walk, err));
    if (len)
        walk->path[len++] = '/';
    walk->dir_len = len;
    for (size_t i = 0; i < walk->name_count; i++)
        TRY(compare_name(walk, walk->sorted[i], err));
    return CAY_OK;
}

/* --- Files with several names --- */

static int by_file(const void *left, const void *right)
{
    const struct alias *a = left, *b = right;

    if (a->dev != b->dev)
        return a->dev < b->dev ? -1 : 1;
    if (a->ino != b->ino)
        return a->ino < b->ino ? -1 : 1;
    if (a->is_added != b->is_added)
        return a->is_added ? 1 : -1;
    return strcmp(a->path, b->path);
}

/* Each added path gets the first path of its file, preferably one that was there. */
static int link_aliases(struct walk *walk, struct cay_error *err)
{
    cay_diff *diff = walk->diff;

    diff_sort(diff);
    if (walk->alias_count)
        qsort(walk->aliases, walk->alias_count, sizeof *walk->aliases, by_file);
    for (size_t i = 1, first = 0; i < walk->alias_count; i++) {
        const struct alias *a = &walk->aliases[first], *b = &walk->aliases[i];
        if (a->dev != b->dev || a->ino != b->ino) {
            first = i;
            continue;
        }
        struct cay_change *change = b->is_added ? diff_find(diff, b->path) : NULL;
        if (!change)
            continue;
        change->hard_link = strdup(a->path);
        if (!change->hard_link)
            return cay_fail_memory(err, DIFF_OP);
    }
    return CAY_OK;
}

/* --- The walk --- */

static int start(struct walk *walk, struct cay_error *err)
{
    const cay_diff *diff = walk->diff;
    size_t most = diff->depths[0] + diff->depths[1];

    walk->listing = malloc(LISTING);
    walk->below.merged = calloc(most, sizeof *walk->below.merged);
    for (int side = 0; side < 2; side++) {
        walk->dirs[side] = calloc(most, sizeof *walk->dirs[side]);
        walk->found[side].merged = calloc(most, sizeof *walk->found[side].merged);
        if (!walk->dirs[side] || !walk->found[side].merged)
            return cay_fail_memory(err, DIFF_OP);
        memcpy(walk->found[side].merged, diff->stacks[side],
               diff->depths[side] * sizeof *diff->stacks[side]);
        walk->found[side].merged_count = diff->depths[side];
        walk->found[side].layer = diff->stacks[side][0];
    }
    if (!walk->listing || !walk->below.merged)
        return cay_fail_memory(err, DIFF_OP);
    return push(walk, err);
}

static void finish(struct walk *walk)
{
    for (size_t i = 0; i < walk->todo_count; i++) {
        free(walk->todo[i]->path);
        free(walk->todo[i]);
    }
    for (size_t i = 0; i < walk->alias_count; i++)
        free(walk->aliases[i].path);
    for (int side = 0; side < 2; side++) {
        free(walk->dirs[side]);
        free(walk->found[side].merged);
    }
    free(walk->below.merged);
    free(walk->todo);
    free(walk->names);
    free(walk->sorted);
    free(walk->listing);
    free(walk->aliases);
    free(walk);
}

int compare_trees(cay_diff *diff, struct cay_error *err)
{
    struct walk *walk = calloc(1, sizeof *walk);

    if (!walk)
        return cay_fail_memory(err, DIFF_OP);
    walk->diff = diff;
    int code = start(walk, err);
    while (!code && walk->todo_count) {
        struct pending *pending = walk->todo[--walk->todo_count];
        code = diff->count < diff->max_changes || diff->cut == 0
                   ? compare_directory(walk, pending, err)
                   : CAY_OK;
        close_dirs(walk);
        free(pending->path);
        free(pending);
    }
    if (!code)
        code = link_aliases(walk, err);
    finish(walk);
    return code;
}
