/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cmd-files.h"

#include <stdint.h>

#include "base/error.h"
#include "json/json.h"

/* What is counted: characters, lines or bytes. */
static const struct unit {
    const char *total_key, *count_key;
    uint64_t piece; /* how many are held in memory at a time */
    uint64_t page;  /* how many a JSON result has unless told */
    int (*read)(cay_files *, const char *, const struct cay_read_options *,
                struct cay_page *, struct cay_error *);
} units[] = {
    {"total_chars", "chars_read", 1 << 20, CAY_READ_CHARS, cay_files_read},
    {"total_lines", "lines_read", 2000, 2000, cay_files_read_lines},
    {"total_bytes", "bytes_read", 4 << 20, 1 << 20, cay_files_read_bytes},
};

static int read_as_json(struct files_run *run, const struct unit *unit,
                        struct cay_read_options options, struct cay_error *err)
{
    struct cay_page page;
    struct json json;

    options.max = run->options.max.given ? run->options.max.value : unit->page;
    int rc = unit->read(run->files, run->line.arguments[0], &options, &page, err);
    if (rc)
        return rc;
    output_begin_json(&run->output, &json);
    json_put_key(&json, "content");
    json_put_bytes(&json, page.text, page.len);
    json_set_bool(&json, "truncated", page.truncated);
    json_set_uint(&json, unit->total_key, page.total);
    json_set_uint(&json, "offset", page.offset);
    json_set_uint(&json, unit->count_key, page.count);
    output_end_json(&run->output, &json);
    cay_page_done(&page);
    return CAY_OK;
}

/* Piece by piece, so that memory does not grow with the file; the pin makes sure that all
 * pieces are of one and the same file. */
static int read_as_text(struct files_run *run, const struct unit *unit,
                        struct cay_read_options options, struct cay_error *err)
{
    uint64_t left = run->options.max.given ? run->options.max.value : UINT64_MAX;
    struct cay_pin pin;
    bool more = true;

    int rc = cay_files_pin(run->files, run->line.arguments[0], &pin, err);
    options.pin = &pin;
    while (!rc && more) {
        struct cay_page page;
        options.max = left < unit->piece ? left : unit->piece;
        rc = unit->read(run->files, run->line.arguments[0], &options, &page, err);
        if (rc)
            break;
        fwrite(page.text, 1, page.len, run->output.file);
        options.offset += page.count;
        left -= page.count;
        more = page.truncated && left > 0 && !run->output.sys_errno;
        cay_page_done(&page);
    }
    if (rc == CAY_E_CHANGED)
        return cay_fail(err, rc, 0, "files.read", run->line.arguments[0],
                        "the file was changed while it was being read",
                        "read it again: the output so far mixes two versions");
    return rc;
}

int cmd_files_read(struct files_run *run, struct cay_error *err)
{
    const struct files_options *given = &run->options;
    struct cay_read_options options = {
        .size = sizeof options,
        .flags = given->universal_newlines ? CAY_READ_UNIVERSAL_NEWLINES : 0,
        .offset = given->offset.value,
    };
    bool has_range = given->offset.given || given->max.given;
    bool as_bytes = given->bytes || (!given->as_json && !given->lines && !has_range &&
                                     !given->universal_newlines);

    if (given->bytes && (given->lines || given->universal_newlines))
        return cay_fail(err, CAY_E_INVALID, 0, "cli.options", "--bytes",
                        "--bytes cannot be combined with --lines or --universal-newlines",
                        "leave out --bytes, or leave out %s",
                        given->lines ? "--lines" : "--universal-newlines");
    if (given->lines && given->max.given && given->max.value == 0)
        return cay_fail(err, CAY_E_INVALID, 0, "cli.options", "--max",
                        "--max must be at least 1", "pass --max N with N from 1");
    const struct unit *unit = &units[as_bytes ? 2 : given->lines ? 1 : 0];
    return given->as_json ? read_as_json(run, unit, options, err)
                          : read_as_text(run, unit, options, err);
}
