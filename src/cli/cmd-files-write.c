/* SPDX-License-Identifier: Apache-2.0 */
/* Commands that change what is in a file: write, append, edit. */
#include "cli/cmd-files.h"

#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "cli/edits.h"
#include "cli/input.h"
#include "cli/progress.h"
#include "json/json.h"

static unsigned write_flags(const struct files_options *options)
{
    return (options->in_place ? CAY_WRITE_IN_PLACE : 0) |
           (options->append ? CAY_WRITE_APPEND : 0) |
           (options->new_file ? CAY_WRITE_NEW : 0) |
           (options->durable ? CAY_WRITE_DURABLE : 0) |
           (options->no_parents ? CAY_WRITE_NO_PARENTS : 0);
}

static int write_content(struct files_run *run, const char *data, size_t len,
                         struct cay_error *err)
{
    const char *path = run->line.arguments[0];
    struct cay_write_options options = {.size = sizeof options,
                                        .flags = write_flags(&run->options)};

    progress_start("Writing", PROGRESS_WRITTEN);
    int rc = cay_files_write(run->files, path, data, len, &options, err);
    progress_stop();
    if (rc || !run->options.as_json)
        return rc;

    struct json json;
    output_begin_json(&run->output, &json);
    json_set_text(&json, "path", path);
    json_set_uint(&json, "bytes", len);
    output_end_json(&run->output, &json);
    return CAY_OK;
}

int cmd_files_write(struct files_run *run, struct cay_error *err)
{
    const char *content = run->options.content;
    struct cay_location location = {.size = sizeof location};
    struct input input;

    if (content)
        return write_content(run, content, strlen(content), err);

    /* so that nobody sends a gigabyte to where it cannot go */
    int rc = cay_files_locate(run->files, run->line.arguments[0], CAY_ACCESS_WRITE,
                              &location, err);
    if (rc)
        return rc;
    cay_location_done(&location);
    progress_start("Reading standard input", PROGRESS_READ);
    rc = input_read(STDIN_FILENO, "standard input", INPUT_MAX, &input, err);
    progress_stop();
    if (rc)
        return rc;
    rc = write_content(run, input.data, input.len, err);
    input_done(&input);
    return rc;
}

int cmd_files_append(struct files_run *run, struct cay_error *err)
{
    run->options.append = true;
    return cmd_files_write(run, err);
}

static int apply(struct files_run *run, const struct cay_edit *edits, size_t count,
                 struct cay_error *err)
{
    const char *path = run->line.arguments[0];
    struct cay_write_options options = {.size = sizeof options,
                                        .flags = write_flags(&run->options)};
    struct cay_edit_result result;
    int rc = cay_files_edit(run->files, path, edits, count, &options, &result, err);

    if (rc || !run->options.as_json)
        return rc;

    struct json json;
    output_begin_json(&run->output, &json);
    json_set_text(&json, "path", path);
    json_set_uint(&json, "replaced", result.replaced);
    json_set_uint(&json, "bytes", result.bytes);
    output_end_json(&run->output, &json);
    return CAY_OK;
}

int cmd_files_edit(struct files_run *run, struct cay_error *err)
{
    const struct files_options *options = &run->options;
    struct edits edits;

    if (options->edits
            ? options->old_text || options->new_text || options->all || options->exact
            : !options->old_text || !options->new_text)
        return cay_fail(err, CAY_E_INVALID, 0, "cli.options", "edit",
                        "no text to replace given",
                        "pass --old TEXT --new TEXT, or only --edits FILE");
    if (options->edits) {
        int rc = edits_load(options->edits, &edits, err);
        if (rc)
            return rc;
        rc = apply(run, edits.items, edits.count, err);
        edits_done(&edits);
        return rc;
    }
    struct cay_edit edit = {
        .old_text = options->old_text,
        .old_len = strlen(options->old_text),
        .new_text = options->new_text,
        .new_len = strlen(options->new_text),
        .flags =
            (options->all ? CAY_EDIT_ALL : 0) | (options->exact ? CAY_EDIT_EXACT : 0),
    };
    return apply(run, &edit, 1, err);
}
