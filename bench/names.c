/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "field.h"
#include "plain.h"

static const char *const names[] = {[OURS] = "ours.txt", [PLAIN] = "plain.txt"};
static const char *const moved[] = {
    [OURS] = "ours-moved.txt", [PLAIN] = "plain-moved.txt"};

static bool ours_stat(void *cookie)
{
    const struct field *field = cookie;
    struct cay_stat st;
    struct cay_error err;

    return field_ok(cay_files_stat(field->files, names[OURS], false, &st, &err), &err);
}

static bool plain_stat(void *cookie)
{
    const struct field *field = cookie;
    struct stat st;

    return fstatat(field->dir, names[PLAIN], &st, 0) == 0;
}

static bool ours_exists(void *cookie)
{
    const struct field *field = cookie;
    struct cay_error err;

    return cay_files_exists(field->files, names[OURS], &err) == 1;
}

static bool plain_exists(void *cookie)
{
    const struct field *field = cookie;

    return faccessat(field->dir, names[PLAIN], F_OK, 0) == 0;
}

static bool ours_delete(void *cookie)
{
    const struct field *field = cookie;
    struct cay_error err;

    return field_ok(cay_files_delete(field->files, names[OURS], NULL, &err), &err);
}

static bool plain_delete(void *cookie)
{
    const struct field *field = cookie;

    return unlinkat(field->dir, names[PLAIN], 0) == 0;
}

static bool ours_move(void *cookie)
{
    const struct field *field = cookie;
    struct cay_error err;

    return field_ok(cay_files_move(field->files, names[OURS], moved[OURS], NULL, &err),
                    &err);
}

static bool plain_move(void *cookie)
{
    const struct field *field = cookie;

    return renameat2(field->dir, names[PLAIN], field->dir, moved[PLAIN],
                     RENAME_NOREPLACE) == 0;
}

static void make_again(void *cookie, enum side side)
{
    const struct field *field = cookie;

    field_remove(field, moved[side]);
    field_make(field, names[side]);
}

static void run(struct field *field, struct contest contest)
{
    contest.part = "names";
    contest.bytes = field->bytes;
    contest.rounds = field_rounds(field, field->bytes);
    contest.cookie = field;
    make_again(field, OURS);
    make_again(field, PLAIN);
    field_settle(field);
    contest_run(&contest);
}

void name_contests(struct field *field, uint64_t bytes)
{
    field->bytes = bytes;
    field->text = field_lines(bytes, false);
    run(field, (struct contest){
                   .op = "stat", .floor = "fstatat", .run = {ours_stat, plain_stat}});
    run(field, (struct contest){.op = "exists",
                                .floor = "faccessat",
                                .run = {ours_exists, plain_exists}});
    run(field, (struct contest){.op = "delete",
                                .floor = "unlinkat",
                                .run = {ours_delete, plain_delete},
                                .before = make_again});
    run(field, (struct contest){.op = "move",
                                .floor = "renameat2",
                                .run = {ours_move, plain_move},
                                .before = make_again});
    for (int side = OURS; side <= PLAIN; side++) {
        field_remove(field, names[side]);
        field_remove(field, moved[side]);
    }
    free(field->text);
}
