/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "field.h"
#include "plain.h"

/* Copies and edits: what reads one file and writes another. */
static const char *const names[] = {[OURS] = "ours.txt", [PLAIN] = "plain.txt"};
static const char source[] = "source.txt";

static bool ours_copy(void *cookie)
{
    const struct field *field = cookie;
    struct cay_error err;

    return field_ok(cay_files_copy(field->files, source, names[OURS], NULL, &err), &err);
}

static bool plain_read_write(void *cookie)
{
    const struct field *field = cookie;

    return plain_copy(field->dir, source, names[PLAIN]);
}

static bool plain_in_kernel(void *cookie)
{
    const struct field *field = cookie;

    return plain_copy_range(field->dir, source, names[PLAIN]);
}

/* The line in the middle is changed there and back, from turn to turn. */
struct edit {
    struct field *field;
    const char *now[2];
    char line[2][16];
};

static const char *swap_line(struct edit *edit, enum side side)
{
    const char *next = edit->now[side] == edit->line[0] ? edit->line[1] : edit->line[0];

    edit->now[side] = next;
    return next;
}

static bool ours_edit(void *cookie)
{
    struct edit *edit = cookie;
    const char *old_text = edit->now[OURS], *new_text = swap_line(edit, OURS);
    const struct cay_edit one = {.old_text = old_text,
                                 .old_len = strlen(old_text),
                                 .new_text = new_text,
                                 .new_len = strlen(new_text)};
    struct cay_error err;

    return field_ok(
        cay_files_edit(edit->field->files, names[OURS], &one, 1, NULL, NULL, &err), &err);
}

static bool plain_change(void *cookie)
{
    struct edit *edit = cookie;
    const char *old_text = edit->now[PLAIN];

    return plain_edit(edit->field->dir, names[PLAIN], old_text, swap_line(edit, PLAIN));
}

static void make_gone(void *cookie, enum side side)
{
    field_remove(cookie, names[side]);
}

static void run(const struct field *field, struct contest contest)
{
    contest.part = "change";
    contest.bytes = field->bytes;
    contest.rounds = field_rounds(field, field->bytes);
    contest.most_ratio = field->bytes >= MIB ? 1.15 : 0;
    field_settle(field);
    contest_run(&contest);
    field_remove(field, names[OURS]);
    field_remove(field, names[PLAIN]);
}

static void run_edit(struct field *field)
{
    struct edit edit = {.field = field};

    for (const char *at = field->text + field->bytes / 2;; at++)
        if (at[-1] == '\n') {
            memcpy(edit.line[0], at, 12);
            memcpy(edit.line[1], "changed line", 12);
            break;
        }
    edit.now[OURS] = edit.now[PLAIN] = edit.line[0];
    field_make(field, names[OURS]);
    field_make(field, names[PLAIN]);
    run(field, (struct contest){
                   .op = "edit one line",
                   .floor = "read whole, memmem, temporary file, write, rename",
                   .run = {ours_edit, plain_change},
                   .cookie = &edit,
               });
}

void change_contests(struct field *field, uint64_t bytes)
{
    field->bytes = bytes;
    field->text = field_lines(bytes, false);
    field_make(field, source);
    run(field, (struct contest){.op = "copy",
                                .floor = "open both, read and write",
                                .run = {ours_copy, plain_read_write},
                                .before = make_gone,
                                .cookie = field});
    run(field, (struct contest){.op = "copy",
                                .floor = "open both, copy_file_range",
                                .run = {ours_copy, plain_in_kernel},
                                .before = make_gone,
                                .cookie = field});
    field_remove(field, source);
    run_edit(field);
    free(field->text);
}
