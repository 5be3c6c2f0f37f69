/* SPDX-License-Identifier: Apache-2.0 */

/* The format of `git diff`, which git apply and patch -p1 read.  It has no words for
 * directories, special files, owners, attributes, and modes other than "executable":
 * these are lines that begin with "#", which both programs skip. */
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "diff/print.h"

enum { CONTEXT = 3 };

/* --- Hunks --- */

struct hunk {
    size_t from[2], to[2]; /* lines of both sides */
};

/* The next line on both sides that begins a change, from a place that both have. */
static bool find_change(const struct lines *lines, size_t at[2])
{
    const struct lines_text *old = &lines->sides[0], *new = &lines->sides[1];

    while (at[0] < old->count && at[1] < new->count && !old->changed[at[0]] &&
           !new->changed[at[1]])
        at[0]++, at[1]++;
    return at[0] < old->count || at[1] < new->count;
}

static void skip_change(const struct lines *lines, size_t at[2])
{
    for (int side = 0; side < 2; side++)
        while (at[side] < lines->sides[side].count &&
               lines->sides[side].changed[at[side]])
            at[side]++;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* From the change at `at`: all that is less than two contexts apart.  Moves `at` to the
 * next change. */
static bool take_hunk(const struct lines *lines, size_t at[2], struct hunk *ret_hunk)
{
    size_t before = least(CONTEXT, least(at[0], at[1])), end[2];
    bool has_more;

    for (int side = 0; side < 2; side++)
        ret_hunk->from[side] = at[side] - before;
    do {
        skip_change(lines, at);
        memcpy(end, at, sizeof end);
        has_more = find_change(lines, at);
    } while (has_more && at[0] - end[0] <= 2 * CONTEXT);
    size_t rest = least(lines->sides[0].count - end[0], lines->sides[1].count - end[1]);
    for (int side = 0; side < 2; side++)
        ret_hunk->to[side] = end[side] + least(CONTEXT, rest);
    return has_more;
}

static int print_text_line(struct printer *printer, enum cay_diff_line kind, char sign,
                           const struct lines_text *side, size_t line,
                           struct cay_error *err)
{
    const char *text = side->text + side->starts[line];
    size_t len = side->starts[line + 1] - side->starts[line];

    (void)buf_append(&printer->line, &sign, 1);
    (void)buf_append(&printer->line, text, len);
    if (text[len - 1] != '\n') {
        (void)buf_text(&printer->line, "\n");
        TRY(print_line(printer, kind, err));
        (void)buf_text(&printer->line, "\\ No newline at end of file\n");
        kind = CAY_DIFF_LINE_PLAIN;
    }
    return print_line(printer, kind, err);
}

static void put_range(struct buf *line, char sign, size_t from, size_t to)
{
    size_t count = to - from;

    (void)buf_format(line, " %c%zu", sign, count ? from + 1 : from);
    if (count != 1)
        (void)buf_format(line, ",%zu", count);
}

static int print_hunk(struct printer *printer, const struct lines *lines,
                      const struct hunk *hunk, struct cay_error *err)
{
    const struct lines_text *old = &lines->sides[0], *new = &lines->sides[1];
    size_t i = hunk->from[0], j = hunk->from[1];

    (void)buf_text(&printer->line, "@@");
    put_range(&printer->line, '-', hunk->from[0], hunk->to[0]);
    put_range(&printer->line, '+', hunk->from[1], hunk->to[1]);
    (void)buf_text(&printer->line, " @@\n");
    TRY(print_line(printer, CAY_DIFF_LINE_HUNK, err));
    while (i < hunk->to[0] || j < hunk->to[1]) {
        if (i < hunk->to[0] && old->changed[i])
            TRY(print_text_line(printer, CAY_DIFF_LINE_DELETED, '-', old, i++, err));
        else if (j < hunk->to[1] && new->changed[j])
            TRY(print_text_line(printer, CAY_DIFF_LINE_ADDED, '+', new, j++, err));
        else
            TRY((j++, print_text_line(printer, CAY_DIFF_LINE_PLAIN, ' ', old, i++, err)));
    }
    return CAY_OK;
}

static int print_hunks(struct printer *printer, const struct lines *lines,
                       struct cay_error *err)
{
    size_t at[2] = {0, 0};
    struct hunk hunk;

    bool has_more = find_change(lines, at);
    while (has_more) {
        has_more = take_hunk(lines, at, &hunk);
        TRY(print_hunk(printer, lines, &hunk, err));
    }
    return CAY_OK;
}

/* --- One file --- */

/* What a change means to git: which sides there are. */
struct patch {
    const struct cay_change *change;
    const char *old_path;
    unsigned before, after; /* modes; 0: none */
    bool has_content;
};

static int print_header(struct printer *printer, const struct patch *patch,
                        struct cay_error *err)
{
    struct buf *line = &printer->line;
    const struct cay_change *change = patch->change;

    (void)buf_text(line, "diff --git ");
    print_path(line, "a/", patch->old_path);
    (void)buf_text(line, " ");
    print_path(line, "b/", change->path);
    (void)buf_text(line, "\n");
    if (!patch->before) {
        (void)buf_format(line, "new file mode %06o\n", patch->after);
    } else if (!patch->after) {
        (void)buf_format(line, "deleted file mode %06o\n", patch->before);
    } else if (patch->before != patch->after) {
        (void)buf_format(line, "old mode %06o\nnew mode %06o\n", patch->before,
                         patch->after);
    }
    if (change->old_path && patch->before && patch->after) {
        (void)buf_format(line, "similarity index %u%%\nrename from ", change->similarity);
        print_path(line, "", patch->old_path);
        (void)buf_text(line, "\nrename to ");
        print_path(line, "", change->path);
        (void)buf_text(line, "\n");
    }
    return print_line(printer, CAY_DIFF_LINE_HEADER, err);
}

static void put_name(struct buf *line, bool exists, const char *prefix, const char *path)
{
    if (!exists)
        (void)buf_text(line, "/dev/null");
    else
        print_path(line, prefix, path);
}

static int print_content(struct printer *printer, const struct patch *patch,
                         const struct print_sides *sides, struct cay_error *err)
{
    struct buf *line = &printer->line;
    const struct cay_change *change = patch->change;
    bool is_whole = sides->before.is_whole && sides->after.is_whole;

    if (sides->is_binary && is_whole && printer->diff->flags & CAY_DIFF_BINARY)
        return binary_print(printer, change, sides, err);
    if (sides->is_binary) {
        (void)buf_text(line, "Binary files ");
        put_name(line, patch->before, "a/", patch->old_path);
        (void)buf_text(line, " and ");
        put_name(line, patch->after, "b/", change->path);
        (void)buf_text(line, " differ\n");
        return print_line(printer, CAY_DIFF_LINE_PLAIN, err);
    }
    if (sides->before.bytes.len == 0 && sides->after.bytes.len == 0)
        return CAY_OK;
    /* Without this line patch takes the link for a file. */
    if (patch->before == patch->after && S_ISLNK(patch->after))
        binary_index(printer, change, sides);
    (void)buf_text(line, "--- ");
    put_name(line, patch->before, "a/", patch->old_path);
    (void)buf_text(line, "\n+++ ");
    put_name(line, patch->after, "b/", change->path);
    (void)buf_text(line, "\n");
    TRY(print_line(printer, CAY_DIFF_LINE_HEADER, err));
    return print_hunks(printer, &sides->lines, err);
}

static int print_patch(struct printer *printer, const struct patch *patch,
                       struct cay_error *err)
{
    struct print_sides sides;

    TRY(print_header(printer, patch, err));
    if (!patch->has_content)
        return CAY_OK;
    TRY(print_load(printer->diff, patch->change, patch->before, patch->after, &sides,
                   err));
    int code = print_content(printer, patch, &sides, err);
    print_unload(&sides);
    return code;
}

/* --- What git has no words for --- */

static void note_side(struct buf *line, const struct cay_change_side *side)
{
    const char *type = S_ISDIR(side->mode)                          ? "directory"
                       : S_ISREG(side->mode) || S_ISLNK(side->mode) ? "file"
                                                                    : "special file";

    (void)buf_format(line, "%s %04o %u:%u", type, side->mode & 07777, side->uid,
                     side->gid);
}

static bool git_knows(const struct cay_change *change)
{
    const struct cay_change_side *before = &change->before, *after = &change->after;

    if ((before->mode && !print_git_mode(before->mode)) ||
        (after->mode && !print_git_mode(after->mode)))
        return false;
    if (change->parts & (CAY_CHANGED_OWNER | CAY_CHANGED_XATTRS))
        return false;
    return !(change->parts & CAY_CHANGED_MODE) ||
           ((before->mode ^ after->mode) & 07777) == 0111;
}

static int print_note(struct printer *printer, const struct cay_change *change,
                      struct cay_error *err)
{
    struct buf *line = &printer->line;

    if (git_knows(change))
        return CAY_OK;
    (void)buf_text(line, "# ");
    print_path(line, "", change->path);
    (void)buf_text(line, ": ");
    if (change->before.mode)
        note_side(line, &change->before);
    else
        (void)buf_text(line, "nothing");
    (void)buf_text(line, " -> ");
    if (change->after.mode)
        note_side(line, &change->after);
    else
        (void)buf_text(line, "nothing");
    if (change->parts & CAY_CHANGED_XATTRS)
        (void)buf_text(line, ", other extended attributes");
    (void)buf_text(line, "\n");
    return print_line(printer, CAY_DIFF_LINE_PLAIN, err);
}

/* --- All of them --- */

static int print_change(struct printer *printer, const struct cay_change *change,
                        struct cay_error *err)
{
    struct patch patch = {.change = change,
                          .old_path = change->old_path ? change->old_path : change->path,
                          .before = print_git_mode(change->before.mode),
                          .after = print_git_mode(change->after.mode)};
    bool is_changed = change->parts & CAY_CHANGED_CONTENT;

    TRY(print_note(printer, change, err));
    if (patch.before && patch.after && change->kind == CAY_CHANGE_TYPE) {
        struct patch half = patch;
        half.has_content = true;
        half.after = 0;
        TRY(print_patch(printer, &half, err));
        half.before = 0;
        half.after = patch.after;
        return print_patch(printer, &half, err);
    }
    patch.has_content = is_changed || !patch.before || !patch.after;
    bool is_visible =
        patch.has_content || change->old_path || patch.before != patch.after;
    if (!is_visible || !(patch.before || patch.after))
        return CAY_OK;
    return print_patch(printer, &patch, err);
}

int unified_print(struct printer *printer, struct cay_error *err)
{
    for (size_t i = 0; i < printer->diff->count; i++)
        TRY(print_change(printer, &printer->diff->changes[i], err));
    return CAY_OK;
}
