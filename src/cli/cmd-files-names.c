/* SPDX-License-Identifier: Apache-2.0 */
/* Commands on names and whole directories: delete, move, copy, mkdir, export, import. */
#include "cli/cmd-files.h"

#include <errno.h>
#include <inttypes.h>
#include <unistd.h>

#include "base/error.h"
#include "cli/progress.h"
#include "json/json.h"

static struct cay_name_options name_options(const struct files_options *options,
                                            unsigned recursive)
{
    return (struct cay_name_options){
        .size = sizeof(struct cay_name_options),
        .flags = (options->recursive ? recursive : 0) |
                 (options->no_parents ? CAY_NAME_NO_PARENTS : 0) |
                 (options->exist_ok ? CAY_NAME_EXIST_OK : 0),
    };
}

/* In text, success has nothing to say. */
static void tell_path(struct files_run *run)
{
    struct json json;

    if (!run->options.as_json)
        return;
    output_begin_json(&run->output, &json);
    if (run->line.count == 1) {
        json_set_text(&json, "path", run->line.arguments[0]);
    } else {
        json_set_text(&json, "source", run->line.arguments[0]);
        json_set_text(&json, "destination", run->line.arguments[1]);
    }
    output_end_json(&run->output, &json);
}

static int explain_directory(const struct files_run *run, int rc, struct cay_error *err)
{
    if (rc == CAY_E_NOT_A_FILE && err->sys_errno == EISDIR && !run->options.recursive)
        cay_copy_text(err->hint, sizeof err->hint,
                      "pass -r for a directory and everything below it");
    return rc;
}

int cmd_files_delete(struct files_run *run, struct cay_error *err)
{
    struct cay_name_options options = name_options(&run->options, CAY_NAME_RECURSIVE);
    int rc = cay_files_delete(run->files, run->line.arguments[0], &options, err);

    if (!rc)
        tell_path(run);
    return explain_directory(run, rc, err);
}

int cmd_files_move(struct files_run *run, struct cay_error *err)
{
    struct cay_name_options options = name_options(&run->options, CAY_NAME_DIRECTORY);
    int rc = cay_files_move(run->files, run->line.arguments[0], run->line.arguments[1],
                            &options, err);

    if (!rc)
        tell_path(run);
    return explain_directory(run, rc, err);
}

int cmd_files_copy(struct files_run *run, struct cay_error *err)
{
    struct cay_name_options options = name_options(&run->options, 0);
    int rc = cay_files_copy(run->files, run->line.arguments[0], run->line.arguments[1],
                            &options, err);

    if (!rc)
        tell_path(run);
    return rc;
}

int cmd_files_mkdir(struct files_run *run, struct cay_error *err)
{
    struct cay_name_options options = name_options(&run->options, 0);
    int rc = cay_files_mkdir(run->files, run->line.arguments[0], &options, err);

    if (!rc)
        tell_path(run);
    return rc;
}

static void tell_result(FILE *file, const struct files_run *run,
                        const struct cay_tar_result *result)
{
    struct json json;

    json_to_file(&json, file);
    json_put_object(&json);
    json_set_text(&json, "path", run->line.arguments[0]);
    json_set_uint(&json, "entries", result->entries);
    json_set_uint(&json, "bytes", result->bytes);
    json_set_uint(&json, "skipped", result->skipped);
    json_put_end(&json);
    json_finish(&json);
    fputc('\n', file);
}

int cmd_files_export(struct files_run *run, struct cay_error *err)
{
    struct cay_tar_result result;

    if (run->output.is_terminal)
        return cay_fail(err, CAY_E_INVALID, 0, "cli.output", "export",
                        "refusing to write a tar stream to a terminal",
                        "redirect it to a file: cay files ... export PATH > FILE");
    progress_start("Exporting", PROGRESS_WRITTEN);
    int rc = cay_files_export(run->files, run->line.arguments[0], STDOUT_FILENO, NULL,
                              &result, err);
    progress_stop();
    if (rc)
        return rc;
    if (run->options.as_json)
        tell_result(stderr, run, &result);
    else
        progress_skipped(result.skipped);
    return CAY_OK;
}

int cmd_files_import(struct files_run *run, struct cay_error *err)
{
    struct cay_tar_result result = {0};

    progress_start("Importing", PROGRESS_WRITTEN);
    int rc = cay_files_import(run->files, run->line.arguments[0], STDIN_FILENO, NULL,
                              &result, err);
    progress_stop();
    if (!rc && run->options.as_json)
        tell_result(run->output.file, run, &result);
    if (!rc && !run->options.as_json)
        progress_skipped(result.skipped);
    if (rc && !run->options.as_json && result.entries)
        fprintf(stderr, "cay: note: %" PRIu64 " entries were unpacked before this\n",
                result.entries);
    return rc;
}
