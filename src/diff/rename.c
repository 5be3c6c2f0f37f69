/* SPDX-License-Identifier: Apache-2.0 */

/* A deleted and an added file are one renamed file if, in this order,
 *   - the overlay's mark of origin on the added file names the deleted one,
 *   - both have the same bytes,
 *   - at least half of the bytes are in lines that both have, as git counts it. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>

#include "base/array.h"
#include "base/auto.h"
#include "base/error.h"
#include "base/hash.h"
#include "diff/content.h"
#include "diff/diff.h"
#include "sys/io.h"
#include "sys/path.h"

enum {
    ORIGIN_MAX = 4096,      /* files of each side that are asked for their origin */
    EXACT_SIZE = 256 << 20, /* larger files are not hashed */
    GROUP_MAX = 256,        /* equal files among which one with the same name is sought */
    ALIKE_MAX = 100,        /* files of each side that are compared with all others */
    ALIKE_SIZE = 512 << 10,
    ALIKE_LEAST = 50, /* percent */
    SPAN = 64,
    HANDLE_ROOM = 128,
};

struct file {
    size_t change; /* its index */
    uint64_t size, hash;
    bool is_paired;
};

struct files {
    struct file *items;
    size_t count;
};

struct search {
    cay_diff *diff;
    struct files gone, added;
};

static struct cay_change *change_of(const struct search *search, const struct file *file)
{
    return &search->diff->changes[file->change];
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

static bool same_base(const struct search *search, const struct file *gone,
                      const struct file *added)
{
    return strcmp(base_name(change_of(search, gone)->path),
                  base_name(change_of(search, added)->path)) == 0;
}

static int open_file(const struct search *search, const struct file *file,
                     enum diff_side side)
{
    const struct cay_change *change = change_of(search, file);

    return content_open(search->diff, change->layers[side], change->path);
}

/* --- Pairs --- */

/* Makes the two changes one; `same` as content_same() returned it. */
static void pair(struct search *search, struct file *gone, struct file *added,
                 uint32_t similarity, bool same)
{
    struct cay_change *from = change_of(search, gone), *to = change_of(search, added);
    AUTO_FD before = open_file(search, gone, DIFF_BEFORE);
    AUTO_FD after = open_file(search, added, DIFF_AFTER);

    to->kind = CAY_CHANGE_RENAMED;
    to->similarity = similarity;
    to->parts = same ? 0 : CAY_CHANGED_CONTENT;
    to->before = from->before;
    if ((to->before.mode ^ to->after.mode) & 07777)
        to->parts |= CAY_CHANGED_MODE;
    if (to->before.uid != to->after.uid || to->before.gid != to->after.gid)
        to->parts |= CAY_CHANGED_OWNER;
    if (before >= 0 && after >= 0 && !content_same_xattrs(search->diff, before, after))
        to->parts |= CAY_CHANGED_XATTRS;
    to->layers[DIFF_BEFORE] = from->layers[DIFF_BEFORE];
    to->old_path = TAKE_PTR(from->path);
    gone->is_paired = added->is_paired = true;
}

/* 1, 0, or a code. */
static int have_same_bytes(const struct search *search, const struct file *gone,
                           const struct file *added, struct cay_error *err)
{
    AUTO_FD before = open_file(search, gone, DIFF_BEFORE);
    AUTO_FD after = open_file(search, added, DIFF_AFTER);

    return before < 0 || after < 0 ? 0 : content_same(search->diff, before, after, err);
}

/* --- How alike two files are --- */

struct span {
    uint32_t hash, bytes;
};

struct spans {
    struct span *items;
    size_t count;
};

static int by_hash(const void *left, const void *right)
{
    const struct span *a = left, *b = right;

    return a->hash < b->hash ? -1 : a->hash > b->hash;
}

/* The lines of a file, cut into spans, with the bytes that have each hash. */
static int take_spans(const struct search *search, const struct file *file,
                      enum diff_side side, struct spans *ret_spans, struct cay_error *err)
{
    struct content content;
    size_t room = 0, kept = 0;

    *ret_spans = (struct spans){0};
    int code = content_load(search->diff, change_of(search, file), side, &content, err);
    const char *text = content.bytes.data;
    size_t len = content.bytes.len;
    for (size_t at = 0; !code && at < len;) {
        size_t most = len - at < SPAN ? len - at : SPAN;
        const char *end = memchr(text + at, '\n', most);
        size_t bytes = end ? (size_t)(end + 1 - text) - at : most;
        if (!array_reserve(&ret_spans->items, &room, ret_spans->count + 1,
                           sizeof *ret_spans->items))
            code = cay_fail_memory(err, DIFF_OP);
        else
            ret_spans->items[ret_spans->count++] =
                (struct span){(uint32_t)hash_bytes(text + at, bytes), (uint32_t)bytes};
        at += bytes;
    }
    content_done(&content);
    if (code || ret_spans->count == 0)
        return code;
    qsort(ret_spans->items, ret_spans->count, sizeof *ret_spans->items, by_hash);
    for (size_t i = 1; i < ret_spans->count; i++) {
        if (ret_spans->items[i].hash == ret_spans->items[kept].hash)
            ret_spans->items[kept].bytes += ret_spans->items[i].bytes;
        else
            ret_spans->items[++kept] = ret_spans->items[i];
    }
    ret_spans->count = kept + 1;
    return CAY_OK;
}

static uint32_t percent_alike(const struct spans *a, const struct spans *b)
{
    uint64_t common = 0, sizes[2] = {0};
    size_t j = 0;

    for (size_t i = 0; i < b->count; i++)
        sizes[1] += b->items[i].bytes;
    for (size_t i = 0; i < a->count; i++) {
        sizes[0] += a->items[i].bytes;
        while (j < b->count && b->items[j].hash < a->items[i].hash)
            j++;
        if (j < b->count && b->items[j].hash == a->items[i].hash)
            common += a->items[i].bytes < b->items[j].bytes ? a->items[i].bytes
                                                            : b->items[j].bytes;
    }
    uint64_t most = sizes[0] > sizes[1] ? sizes[0] : sizes[1];
    return most ? (uint32_t)(common * 100 / most) : 0;
}

/* --- By origin --- */

struct origin {
    unsigned char bytes[HANDLE_ROOM];
    size_t len;
    size_t file;
};

static int by_origin(const void *left, const void *right)
{
    const struct origin *a = left, *b = right;

    if (a->len != b->len)
        return a->len < b->len ? -1 : 1;
    return memcmp(a->bytes, b->bytes, a->len);
}

/* The type and the bytes of the handle of a file. */
static bool read_handle(int fd, struct origin *ret_origin)
{
    union {
        struct file_handle handle;
        char room[sizeof(struct file_handle) + HANDLE_ROOM];
    } at = {.handle = {.handle_bytes = HANDLE_ROOM - 1}};
    int mount;

    if (name_to_handle_at(fd, "", &at.handle, &mount, AT_EMPTY_PATH) != 0)
        return false;
    ret_origin->bytes[0] = (unsigned char)at.handle.handle_type;
    ret_origin->len = at.handle.handle_bytes + 1;
    memcpy(ret_origin->bytes + 1, at.handle.f_handle, at.handle.handle_bytes);
    return true;
}

/* The same from the overlay's attribute: version, magic, length, flags, type, 16 bytes
 * for the file system, and the handle. */
static bool read_origin(const struct diff_layer *layer, int fd, struct origin *ret_origin)
{
    enum { MAGIC_AT = 1, TYPE_AT = 4, HANDLE_AT = 21, MAGIC = 0xfb };
    unsigned char mark[HANDLE_AT + HANDLE_ROOM - 1];
    ssize_t len =
        fgetxattr(fd,
                  layer->marks == CAY_DIFF_MARKS_USER ? "user.overlay.origin"
                                                      : "trusted.overlay.origin",
                  mark, sizeof mark);

    if (len <= HANDLE_AT || mark[MAGIC_AT] != MAGIC)
        return false;
    ret_origin->bytes[0] = mark[TYPE_AT];
    ret_origin->len = (size_t)len - HANDLE_AT + 1;
    memcpy(ret_origin->bytes + 1, mark + HANDLE_AT, (size_t)len - HANDLE_AT);
    return true;
}

static int pair_origin(struct search *search, struct file *gone, struct file *added,
                       struct cay_error *err)
{
    struct spans before = {0}, after = {0};
    uint32_t alike = ALIKE_LEAST;

    int same = have_same_bytes(search, gone, added, err);
    int code = same < 0 ? same : CAY_OK;
    if (!same && gone->size <= ALIKE_SIZE && added->size <= ALIKE_SIZE) {
        code = take_spans(search, gone, DIFF_BEFORE, &before, err);
        if (!code)
            code = take_spans(search, added, DIFF_AFTER, &after, err);
        if (!code)
            alike = percent_alike(&before, &after);
    }
    free(before.items);
    free(after.items);
    if (!code)
        pair(search, gone, added, same ? 100 : alike > 99 ? 99 : alike, same);
    return code;
}

static int pair_origins(struct search *search, struct cay_error *err)
{
    size_t count = 0;

    if (search->gone.count > ORIGIN_MAX || search->added.count > ORIGIN_MAX)
        return CAY_OK;
    AUTO_FREE struct origin *handles = calloc(search->gone.count, sizeof *handles);
    if (!handles)
        return cay_fail_memory(err, DIFF_OP);
    for (size_t i = 0; i < search->gone.count; i++) {
        AUTO_FD fd = open_file(search, &search->gone.items[i], DIFF_BEFORE);
        handles[count].file = i;
        if (fd >= 0 && read_handle(fd, &handles[count]))
            count++;
    }
    if (count)
        qsort(handles, count, sizeof *handles, by_origin);
    for (size_t i = 0; count && i < search->added.count; i++) {
        struct file *added = &search->added.items[i];
        const struct diff_layer *layer =
            &search->diff->layers[change_of(search, added)->layers[DIFF_AFTER]];
        struct origin origin;
        AUTO_FD fd = layer->marks == CAY_DIFF_MARKS_NONE
                         ? -1
                         : open_file(search, added, DIFF_AFTER);
        if (fd < 0 || !read_origin(layer, fd, &origin))
            continue;
        const struct origin *found =
            bsearch(&origin, handles, count, sizeof *handles, by_origin);
        if (found && !search->gone.items[found->file].is_paired)
            TRY(pair_origin(search, &search->gone.items[found->file], added, err));
    }
    return CAY_OK;
}

/* --- By the same bytes --- */

static int by_size(const void *left, const void *right)
{
    const struct file *a = left, *b = right;

    if (a->size != b->size)
        return a->size < b->size ? -1 : 1;
    if (a->hash != b->hash)
        return a->hash < b->hash ? -1 : 1;
    return a->change < b->change ? -1 : a->change > b->change;
}

static void sort(struct files *files)
{
    if (files->count)
        qsort(files->items, files->count, sizeof *files->items, by_size);
}

/* The first file that is not smaller, or not before the hash. */
static size_t lower_bound(const struct files *files, uint64_t size, uint64_t hash)
{
    const struct file key = {.size = size, .hash = hash};
    size_t from = 0, to = files->count;

    while (from < to) {
        size_t middle = from + (to - from) / 2;
        if (by_size(&files->items[middle], &key) < 0)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

static bool has_size(const struct files *files, uint64_t size)
{
    size_t at = lower_bound(files, size, 0);

    return at < files->count && files->items[at].size == size;
}

static int hash_file(const struct search *search, struct file *file, enum diff_side side,
                     struct cay_error *err)
{
    AUTO_FD fd = open_file(search, file, side);
    char *piece = search->diff->scratch;

    file->hash = 0;
    for (uint64_t at = 0; fd >= 0 && at < file->size;) {
        ssize_t got = io_pread(fd, piece, DIFF_SCRATCH, at);
        if (got <= 0)
            break;
        const uint64_t both[2] = {file->hash, hash_bytes(piece, (size_t)got)};
        file->hash = hash_bytes(both, sizeof both);
        at += (uint64_t)got;
        TRY(diff_check_time(search->diff, err));
    }
    return CAY_OK;
}

/* Hashes the files that may have an equal one on the other side. */
static int hash_side(const struct search *search, struct files *files,
                     const struct files *others, enum diff_side side,
                     struct cay_error *err)
{
    for (size_t i = 0; i < files->count; i++)
        if (!files->items[i].is_paired && files->items[i].size <= EXACT_SIZE &&
            has_size(others, files->items[i].size))
            TRY(hash_file(search, &files->items[i], side, err));
    return CAY_OK;
}

static struct file *choose(struct search *search, const struct file *added)
{
    struct file *chosen = NULL;
    size_t from = lower_bound(&search->gone, added->size, added->hash);

    for (size_t i = from; i < search->gone.count && i < from + GROUP_MAX; i++) {
        struct file *gone = &search->gone.items[i];
        if (gone->size != added->size || gone->hash != added->hash)
            break;
        if (gone->is_paired)
            continue;
        if (!chosen || same_base(search, gone, added))
            chosen = gone;
        if (same_base(search, gone, added))
            break;
    }
    return chosen;
}

static int pair_exact(struct search *search, struct cay_error *err)
{
    sort(&search->gone);
    sort(&search->added);
    TRY(hash_side(search, &search->added, &search->gone, DIFF_AFTER, err));
    sort(&search->added);
    TRY(hash_side(search, &search->gone, &search->added, DIFF_BEFORE, err));
    sort(&search->gone);
    for (size_t i = 0; i < search->added.count; i++) {
        struct file *added = &search->added.items[i];
        if (added->is_paired || added->hash == 0)
            continue;
        struct file *gone = choose(search, added);
        int same = gone ? have_same_bytes(search, gone, added, err) : 0;
        if (same < 0)
            return same;
        if (same)
            pair(search, gone, added, 100, true);
    }
    return CAY_OK;
}

/* --- By lines --- */

struct match {
    struct file *gone, *added;
    uint32_t percent; /* doubled, and 1 more with the same base name */
};

static int by_percent(const void *left, const void *right)
{
    const struct match *a = left, *b = right;

    if (a->percent != b->percent)
        return a->percent > b->percent ? -1 : 1;
    if (a->gone != b->gone)
        return a->gone < b->gone ? -1 : 1;
    return a->added < b->added ? -1 : a->added > b->added;
}

static size_t keep_small(struct files *files)
{
    size_t kept = 0;

    for (size_t i = 0; i < files->count; i++)
        if (!files->items[i].is_paired && files->items[i].size <= ALIKE_SIZE)
            files->items[kept++] = files->items[i];
    files->count = kept;
    return kept;
}

static int match_one(struct search *search, const struct spans *gone_spans,
                     struct file *added, struct match *matches, size_t *count,
                     struct cay_error *err)
{
    struct spans spans;
    int code = take_spans(search, added, DIFF_AFTER, &spans, err);

    for (size_t i = 0; !code && i < search->gone.count; i++) {
        struct file *gone = &search->gone.items[i];
        if (gone->size > 2 * added->size || added->size > 2 * gone->size)
            continue;
        uint32_t percent = percent_alike(&gone_spans[i], &spans);
        if (percent >= ALIKE_LEAST)
            matches[(*count)++] =
                (struct match){gone, added, 2 * percent + same_base(search, gone, added)};
    }
    free(spans.items);
    return code;
}

static int match_all(struct search *search, struct spans *gone_spans,
                     struct match *matches, struct cay_error *err)
{
    size_t count = 0;

    for (size_t i = 0; i < search->gone.count; i++)
        TRY(take_spans(search, &search->gone.items[i], DIFF_BEFORE, &gone_spans[i], err));
    for (size_t i = 0; i < search->added.count; i++)
        TRY(match_one(search, gone_spans, &search->added.items[i], matches, &count, err));
    if (count)
        qsort(matches, count, sizeof *matches, by_percent);
    for (size_t i = 0; i < count; i++) {
        struct match *match = &matches[i];
        uint32_t percent = match->percent / 2;
        if (!match->gone->is_paired && !match->added->is_paired)
            pair(search, match->gone, match->added, percent > 99 ? 99 : percent, false);
    }
    return CAY_OK;
}

static int pair_alike(struct search *search, struct cay_error *err)
{
    size_t gone = keep_small(&search->gone), added = keep_small(&search->added);

    if (gone == 0 || added == 0 || gone > ALIKE_MAX || added > ALIKE_MAX)
        return CAY_OK;
    AUTO_FREE struct match *matches = calloc(gone * added, sizeof *matches);
    AUTO_FREE struct spans *spans = calloc(gone, sizeof *spans);
    int code = matches && spans ? match_all(search, spans, matches, err)
                                : cay_fail_memory(err, DIFF_OP);
    for (size_t i = 0; spans && i < gone; i++)
        free(spans[i].items);
    return code;
}

/* --- All of them --- */

static void collect(struct search *search)
{
    for (size_t i = 0; i < search->diff->count; i++) {
        const struct cay_change *change = &search->diff->changes[i];
        if (change->kind == CAY_CHANGE_DELETED && S_ISREG(change->before.mode) &&
            change->before.size)
            search->gone.items[search->gone.count++] =
                (struct file){.change = i, .size = change->before.size};
        else if (change->kind == CAY_CHANGE_ADDED && S_ISREG(change->after.mode) &&
                 change->after.size && !change->hard_link)
            search->added.items[search->added.count++] =
                (struct file){.change = i, .size = change->after.size};
    }
}

int rename_find(cay_diff *diff, struct cay_error *err)
{
    AUTO_FREE struct file *gone = calloc(diff->count + 1, sizeof *gone);
    AUTO_FREE struct file *added = calloc(diff->count + 1, sizeof *added);
    struct search search = {.diff = diff, .gone = {gone, 0}, .added = {added, 0}};

    if (!gone || !added)
        return cay_fail_memory(err, DIFF_OP);
    collect(&search);
    if (search.gone.count == 0 || search.added.count == 0)
        return CAY_OK;
    TRY(pair_origins(&search, err));
    TRY(pair_exact(&search, err));
    return pair_alike(&search, err);
}
