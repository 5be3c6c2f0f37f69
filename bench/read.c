/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "field.h"
#include "plain.h"

static const char name[] = "read.txt";
static const size_t step = 64 << 20;

static bool ours_bytes(void *cookie)
{
    const struct field *field = cookie;
    struct cay_page page = {0};
    struct cay_error err;

    bool ok =
        field_ok(cay_files_read_bytes(field->files, name, NULL, &page, &err), &err) &&
        page.len == field->bytes;
    cay_page_done(&page);
    return ok;
}

static bool ours_in_steps(void *cookie)
{
    const struct field *field = cookie;
    struct cay_read_options options = {.size = sizeof options, .max = step};
    struct cay_page page = {.truncated = true};
    struct cay_error err;

    for (; page.truncated; options.offset += step) {
        if (!field_ok(cay_files_read_bytes(field->files, name, &options, &page, &err),
                      &err))
            return false;
        cay_page_done(&(struct cay_page){.text = page.text});
    }
    return true;
}

static bool ours_text(void *cookie)
{
    const struct field *field = cookie;
    struct cay_read_options options = {.size = sizeof options, .max = UINT64_MAX};
    struct cay_page page = {0};
    struct cay_error err;

    bool ok = field_ok(cay_files_read(field->files, name, &options, &page, &err), &err) &&
              page.len == field->bytes;
    cay_page_done(&page);
    return ok;
}

static bool plain_whole(void *cookie)
{
    const struct field *field = cookie;
    size_t len = 0;
    char *data = plain_read(field->dir, name, &len);

    free(data);
    return data && len == field->bytes;
}

static bool plain_in_steps(void *cookie)
{
    const struct field *field = cookie;

    return plain_read_in_steps(field->dir, name, step);
}

static void run(struct field *field, const char *op, bool (*ours)(void *), bool mixed)
{
    bool whole = ours != ours_in_steps;
    const struct contest contest = {
        .part = "read",
        .op = op,
        .floor = whole ? "open, fstat, malloc, read, close"
                       : "open, fstat, {malloc, pread, free}, close",
        .bytes = field->bytes,
        .rounds = field_rounds(field, field->bytes),
        .most_ratio = field->bytes >= MIB ? 1.15 : 0,
        .most_us = field->bytes <= KIB ? 20 : 0,
        .run = {ours, whole ? plain_whole : plain_in_steps},
        .cookie = field,
    };

    field->text = field_lines(field->bytes, mixed);
    field_make(field, name);
    free(field->text);
    field_settle(field);
    contest_run(&contest);
    field_remove(field, name);
}

void read_contests(struct field *field, uint64_t bytes)
{
    field->bytes = bytes;
    if (bytes > CAY_READ_MAX) {
        run(field, "read bytes, 64 MiB at a time", ours_in_steps, false);
        return;
    }
    run(field, "read bytes", ours_bytes, false);
    run(field, "read text, ASCII", ours_text, false);
    run(field, "read text, mixed UTF-8", ours_text, true);
}
