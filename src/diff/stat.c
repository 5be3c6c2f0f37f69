/* SPDX-License-Identifier: Apache-2.0 */

/* The format of `git diff --stat --summary`, 80 columns wide. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "diff/print.h"

enum { WIDTH = 80, NAME_MAX_WIDTH = 50, GRAPH_MIN = 10 };

struct layout {
    size_t name, number, graph;
    uint64_t most; /* lines of one file */
};

static bool is_shown(const struct cay_change *change)
{
    return print_git_mode(change->before.mode) || print_git_mode(change->after.mode);
}

static void put_name(struct buf *buf, const struct cay_change *change)
{
    if (change->old_path) {
        print_path(buf, "", change->old_path);
        (void)buf_text(buf, " => ");
    }
    print_path(buf, "", change->path);
}

static size_t digits(uint64_t number)
{
    size_t count = 1;

    while (number >= 10) {
        number /= 10;
        count++;
    }
    return count;
}

static struct layout measure(struct printer *printer)
{
    const cay_diff *diff = printer->diff;
    struct layout layout = {.number = 3};

    for (size_t i = 0; i < diff->count; i++) {
        const struct cay_change *change = &diff->changes[i];
        uint64_t lines = change->insertions + change->deletions;
        if (!is_shown(change))
            continue;
        put_name(&printer->line, change);
        if (printer->line.len > layout.name)
            layout.name = printer->line.len;
        printer->line.len = 0;
        if (lines > layout.most)
            layout.most = lines;
        if (digits(lines) > layout.number)
            layout.number = digits(lines);
    }
    if (layout.name > NAME_MAX_WIDTH)
        layout.name = NAME_MAX_WIDTH;
    size_t used = layout.name + layout.number + 5;
    layout.graph = used + GRAPH_MIN < WIDTH ? WIDTH - used : GRAPH_MIN;
    return layout;
}

/* At least one sign for any number of lines. */
static size_t scale(const struct layout *layout, uint64_t lines)
{
    if (layout->most <= layout->graph || lines == 0)
        return (size_t)lines;
    size_t signs = (size_t)(lines * layout->graph / layout->most);
    return signs ? signs : 1;
}

static int print_signs(struct printer *printer, enum cay_diff_line kind, char sign,
                       size_t count, struct cay_error *err)
{
    while (count-- > 0)
        (void)buf_append(&printer->line, &sign, 1);
    return print_line(printer, kind, err);
}

static int print_file(struct printer *printer, const struct layout *layout,
                      const struct cay_change *change, struct cay_error *err)
{
    struct buf *line = &printer->line;

    (void)buf_text(line, " ");
    put_name(line, change);
    for (size_t len = line->len - 1; len < layout->name; len++)
        (void)buf_text(line, " ");
    if (change->is_binary) {
        (void)buf_format(line, " | %*s %llu -> %llu bytes\n", (int)layout->number, "Bin",
                         (unsigned long long)change->before.size,
                         (unsigned long long)change->after.size);
        return print_line(printer, CAY_DIFF_LINE_PLAIN, err);
    }
    uint64_t lines = change->insertions + change->deletions;
    (void)buf_format(line, " | %*llu%s", (int)layout->number, (unsigned long long)lines,
                     lines ? " " : "");
    TRY(print_line(printer, CAY_DIFF_LINE_PLAIN, err));
    TRY(print_signs(printer, CAY_DIFF_LINE_ADDED, '+', scale(layout, change->insertions),
                    err));
    TRY(print_signs(printer, CAY_DIFF_LINE_DELETED, '-', scale(layout, change->deletions),
                    err));
    (void)buf_text(line, "\n");
    return print_line(printer, CAY_DIFF_LINE_PLAIN, err);
}

static int print_total(struct printer *printer, size_t files, struct cay_error *err)
{
    const cay_diff *diff = printer->diff;
    unsigned long long insertions = 0, deletions = 0;

    for (size_t i = 0; i < diff->count; i++) {
        insertions += diff->changes[i].insertions;
        deletions += diff->changes[i].deletions;
    }
    (void)buf_format(&printer->line, " %zu file%s changed", files, files == 1 ? "" : "s");
    if (insertions || !deletions)
        (void)buf_format(&printer->line, ", %llu insertion%s(+)", insertions,
                         insertions == 1 ? "" : "s");
    if (deletions || !insertions)
        (void)buf_format(&printer->line, ", %llu deletion%s(-)", deletions,
                         deletions == 1 ? "" : "s");
    (void)buf_text(&printer->line, "\n");
    return print_line(printer, CAY_DIFF_LINE_PLAIN, err);
}

/* The whole mode, but for links, which have none. */
static unsigned shown_mode(uint32_t mode)
{
    return S_ISLNK(mode) ? S_IFLNK : mode;
}

static int print_summary(struct printer *printer, const struct cay_change *change,
                         struct cay_error *err)
{
    struct buf *line = &printer->line;
    unsigned before = shown_mode(change->before.mode),
             after = shown_mode(change->after.mode);

    if (change->kind == CAY_CHANGE_ADDED)
        (void)buf_format(line, " create mode %06o ", after);
    else if (change->kind == CAY_CHANGE_DELETED)
        (void)buf_format(line, " delete mode %06o ", before);
    else if (change->kind == CAY_CHANGE_RENAMED)
        (void)buf_text(line, " rename ");
    else if (before != after)
        (void)buf_format(line, " mode change %06o => %06o ", before, after);
    else
        return CAY_OK;
    put_name(line, change);
    if (change->kind == CAY_CHANGE_RENAMED)
        (void)buf_format(line, " (%u%%)", change->similarity);
    (void)buf_text(line, "\n");
    return print_line(printer, CAY_DIFF_LINE_PLAIN, err);
}

int stat_print(struct printer *printer, struct cay_error *err)
{
    cay_diff *diff = printer->diff;
    size_t files = 0;

    TRY(cay_diff_measure(diff, err));
    struct layout layout = measure(printer);
    for (size_t i = 0; i < diff->count; i++)
        if (is_shown(&diff->changes[i])) {
            files++;
            TRY(print_file(printer, &layout, &diff->changes[i], err));
        }
    if (diff->count)
        TRY(print_total(printer, files, err));
    for (size_t i = 0; i < diff->count; i++)
        TRY(print_summary(printer, &diff->changes[i], err));
    return CAY_OK;
}
