/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "field.h"
#include "plain.h"

/* Each side has a file of its own. */
static const char *const names[] = {[OURS] = "ours.txt", [PLAIN] = "plain.txt"};

static bool ours_write(const struct field *field, unsigned flags)
{
    const struct cay_write_options options = {.size = sizeof options, .flags = flags};
    struct cay_error err;

    return field_ok(cay_files_write(field->files, names[OURS], field->text, field->bytes,
                                    &options, &err),
                    &err);
}

static bool ours_atomic(void *cookie)
{
    return ours_write(cookie, 0);
}

static bool ours_in_place(void *cookie)
{
    return ours_write(cookie, CAY_WRITE_IN_PLACE);
}

static bool ours_append(void *cookie)
{
    return ours_write(cookie, CAY_WRITE_APPEND);
}

static bool plain_atomic(void *cookie)
{
    const struct field *field = cookie;

    return plain_write_atomic(field->dir, names[PLAIN], field->text, field->bytes);
}

static bool plain_in_place(void *cookie)
{
    const struct field *field = cookie;

    return plain_write_in_place(field->dir, names[PLAIN], field->text, field->bytes);
}

static bool plain_add(void *cookie)
{
    const struct field *field = cookie;

    return plain_append(field->dir, names[PLAIN], field->text, field->bytes);
}

static void make_gone(void *cookie, enum side side)
{
    field_remove(cookie, names[side]);
}

static void make_empty(void *cookie, enum side side)
{
    const struct field *field = cookie;
    int fd = openat(field->dir, names[side], O_WRONLY | O_CLOEXEC);

    if (fd < 0 || ftruncate(fd, 0) != 0)
        contest_die(names[side]);
    close(fd);
}

static void run(struct field *field, struct contest contest)
{
    contest.part = "write";
    contest.bytes = field->bytes;
    contest.rounds = field_rounds(field, field->bytes);
    contest.most_ratio = field->bytes >= MIB ? 1.15 : 0;
    contest.cookie = field;
    field_make(field, names[OURS]);
    field_make(field, names[PLAIN]);
    field_settle(field);
    contest_run(&contest);
    field_remove(field, names[OURS]);
    field_remove(field, names[PLAIN]);
}

void write_contests(struct field *field, uint64_t bytes)
{
    field->bytes = bytes;
    field->text = field_lines(bytes, false);
    run(field, (struct contest){.op = "write a new file",
                                .floor = "temporary file, write, rename",
                                .run = {ours_atomic, plain_atomic},
                                .before = make_gone});
    run(field, (struct contest){.op = "replace a file",
                                .floor = "temporary file, write, rename",
                                .run = {ours_atomic, plain_atomic}});
    run(field, (struct contest){.op = "write in place",
                                .floor = "open, write, ftruncate",
                                .run = {ours_in_place, plain_in_place}});
    run(field, (struct contest){.op = "append",
                                .floor = "open O_APPEND, write",
                                .run = {ours_append, plain_add},
                                .before = make_empty});
    free(field->text);
}
