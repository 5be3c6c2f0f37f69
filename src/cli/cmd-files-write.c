/* SPDX-License-Identifier: Apache-2.0 */
/* Commands of cay files that change files: write, edit, delete, move, import ... */
#include "cli/cmd-files.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "cli/input.h"
#include "cli/progress.h"
#include "json/json.h"

/* --- Edits from a JSON file --- */

/* [{"old": "...", "new": "...", "all": false, "exact": false}] */
struct edits {
    struct cay_edit *items; /* pointing into the document */
    size_t count;
    json_t *document;
};

#define DOCUMENT_MAX (UINT64_C(64) << 20)

static void edits_done(struct edits *edits)
{
    free(edits->items);
    json_decref(edits->document);
    *edits = (struct edits){0};
}

static int fail_shape(size_t index, const char *key, const char *message,
                      struct cay_error *err)
{
    char subject[128];

    snprintf(subject, sizeof subject, "[%zu]%s%.100s", index, *key ? "." : "", key);
    return cay_fail(err, CAY_E_INVALID, 0, "cli.edits", subject, message,
                    "an edit is {\"old\": TEXT, \"new\": TEXT}, with \"all\": true to "
                    "replace every occurrence and \"exact\": true for exact line ends");
}

static int take_member(size_t index, const char *key, json_t *value,
                       struct cay_edit *edit, struct cay_error *err)
{
    bool is_old = strcmp(key, "old") == 0, is_all = strcmp(key, "all") == 0;

    if (is_old || strcmp(key, "new") == 0) {
        if (!json_is_string(value))
            return fail_shape(index, key, "the value is not a string", err);
        *(is_old ? &edit->old_text : &edit->new_text) = json_string_value(value);
        *(is_old ? &edit->old_len : &edit->new_len) = json_string_length(value);
        return CAY_OK;
    }
    if (!is_all && strcmp(key, "exact") != 0)
        return fail_shape(index, key, "unknown key", err);
    if (!json_is_boolean(value))
        return fail_shape(index, key, "the value is neither true nor false", err);
    if (json_is_true(value))
        edit->flags |= is_all ? CAY_EDIT_ALL : CAY_EDIT_EXACT;
    return CAY_OK;
}

static int take_edit(size_t index, json_t *object, struct cay_edit *edit,
                     struct cay_error *err)
{
    const char *key;
    json_t *value;

    if (!json_is_object(object))
        return fail_shape(index, "", "the edit is not an object", err);
    json_object_foreach(object, key, value)
    {
        TRY(take_member(index, key, value, edit, err));
    }
    if (!edit->old_text || !edit->new_text)
        return fail_shape(index, edit->old_text ? "new" : "old", "the key is missing",
                          err);
    return CAY_OK;
}

static int take_list(json_t *list, struct edits *edits, struct cay_error *err)
{
    if (!json_is_array(list) || json_array_size(list) == 0)
        return cay_fail(err, CAY_E_INVALID, 0, "cli.edits", "--edits",
                        "the document is not a list of edits",
                        "write [{\"old\": TEXT, \"new\": TEXT}]");
    edits->items = calloc(json_array_size(list), sizeof *edits->items);
    if (!edits->items)
        return cay_fail_memory(err, "cli.edits");
    for (; edits->count < json_array_size(list); edits->count++)
        TRY(take_edit(edits->count, json_array_get(list, edits->count),
                      &edits->items[edits->count], err));
    return CAY_OK;
}

static int parse(const char *file, const struct input *input, json_t **ret_document,
                 struct cay_error *err)
{
    json_error_t problem;

    *ret_document = json_loadb(input->data, input->len,
                               JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &problem);
    if (*ret_document)
        return CAY_OK;
    if (json_error_code(&problem) == json_error_out_of_memory)
        return cay_fail_memory(err, "cli.edits");
    return cay_fail(err, CAY_E_INVALID, 0, "cli.edits", file, problem.text,
                    "fix the JSON at line %d, column %d", problem.line, problem.column);
}

/* `file` is a host path, or "-" for standard input. */
static int edits_load(const char *file, struct edits *ret_edits, struct cay_error *err)
{
    bool is_stdin = strcmp(file, "-") == 0;
    AUTO_FD fd = is_stdin ? -1 : open(file, O_RDONLY | O_CLOEXEC);
    const char *name = is_stdin ? "standard input" : file;
    struct edits edits = {0};
    struct input input;
    json_t *document = NULL;

    if (!is_stdin && fd < 0)
        return cay_fail_errno(err, errno, "cli.edits", file);
    TRY(input_read(is_stdin ? STDIN_FILENO : fd, name, DOCUMENT_MAX, &input, err));
    int rc = parse(name, &input, &document, err);
    input_done(&input);
    edits.document = document;
    if (!rc)
        rc = take_list(document, &edits, err);
    if (rc)
        edits_done(&edits);
    else
        *ret_edits = edits;
    return rc;
}

/* --- write, append, edit --- */

static unsigned write_flags(const struct options *options)
{
    return (options->in_place ? CAY_WRITE_IN_PLACE : 0) |
           (options->append ? CAY_WRITE_APPEND : 0) |
           (options->new_file ? CAY_WRITE_NEW : 0) |
           (options->durable ? CAY_WRITE_DURABLE : 0) |
           (options->no_parents ? CAY_WRITE_NO_PARENTS : 0);
}

static int write_content(struct call *call, const char *data, size_t len,
                         struct cay_error *err)
{
    const char *path = call->line.arguments[0];
    struct cay_write_options options = {.size = sizeof options,
                                        .flags = write_flags(&call->options)};

    progress_start("Writing", PROGRESS_WRITTEN);
    int rc = cay_files_write(call->files, path, data, len, &options, err);
    progress_stop();
    if (rc || !call->options.as_json)
        return rc;
    struct json *json = output_json(&call->output);
    json_set_text(json, "path", path);
    json_set_uint(json, "bytes", len);
    return CAY_OK;
}

int cmd_files_write(struct call *call, struct cay_error *err)
{
    const char *content = call->options.content;
    struct cay_location location = {.size = sizeof location};
    struct input input;

    if (content)
        return write_content(call, content, strlen(content), err);

    /* Refuse before reading a gigabyte of input. */
    TRY(cay_files_locate(call->files, call->line.arguments[0], CAY_ACCESS_WRITE,
                         &location, err));
    cay_location_done(&location);
    progress_start("Reading standard input", PROGRESS_READ);
    int rc = input_read(STDIN_FILENO, "standard input", INPUT_MAX, &input, err);
    progress_stop();
    if (rc)
        return rc;
    rc = write_content(call, input.data, input.len, err);
    input_done(&input);
    return rc;
}

int cmd_files_append(struct call *call, struct cay_error *err)
{
    call->options.append = true;
    return cmd_files_write(call, err);
}

static int apply(struct call *call, const struct cay_edit *edits, size_t count,
                 struct cay_error *err)
{
    const char *path = call->line.arguments[0];
    struct cay_write_options options = {.size = sizeof options,
                                        .flags = write_flags(&call->options)};
    struct cay_edit_result result;

    TRY(cay_files_edit(call->files, path, edits, count, &options, &result, err));
    if (!call->options.as_json)
        return CAY_OK;
    struct json *json = output_json(&call->output);
    json_set_text(json, "path", path);
    json_set_uint(json, "replaced", result.replaced);
    json_set_uint(json, "bytes", result.bytes);
    return CAY_OK;
}

int cmd_files_edit(struct call *call, struct cay_error *err)
{
    const struct options *options = &call->options;
    struct edits edits = {0};

    if (options->edits
            ? options->old_text || options->new_text || options->all || options->exact
            : !options->old_text || !options->new_text)
        return cay_fail(err, CAY_E_INVALID, 0, "cli.options", "edit",
                        "no text to replace given",
                        "pass --old TEXT --new TEXT, or only --edits FILE");
    if (options->edits) {
        TRY(edits_load(options->edits, &edits, err));
        int rc = apply(call, edits.items, edits.count, err);
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
    return apply(call, &edit, 1, err);
}

/* --- delete, move, copy, mkdir, export, import --- */

static struct cay_name_options name_options(const struct options *options,
                                            unsigned recursive)
{
    return (struct cay_name_options){
        .size = sizeof(struct cay_name_options),
        .flags = (options->recursive ? recursive : 0) |
                 (options->no_parents ? CAY_NAME_NO_PARENTS : 0) |
                 (options->exist_ok ? CAY_NAME_EXIST_OK : 0),
    };
}

/* The end of a command that changes names; prints nothing in text mode. */
static int finish_name(struct call *call, int rc, struct cay_error *err)
{
    if (rc == CAY_E_NOT_A_FILE && err->sys_errno == EISDIR && !call->options.recursive)
        cay_copy_text(err->hint, sizeof err->hint,
                      "pass -r for a directory and everything below it");
    if (rc || !call->options.as_json)
        return rc;
    struct json *json = output_json(&call->output);
    if (call->line.count == 1) {
        json_set_text(json, "path", call->line.arguments[0]);
    } else {
        json_set_text(json, "source", call->line.arguments[0]);
        json_set_text(json, "destination", call->line.arguments[1]);
    }
    return CAY_OK;
}

int cmd_files_delete(struct call *call, struct cay_error *err)
{
    struct cay_name_options options = name_options(&call->options, CAY_NAME_RECURSIVE);
    int rc = cay_files_delete(call->files, call->line.arguments[0], &options, err);

    return finish_name(call, rc, err);
}

int cmd_files_move(struct call *call, struct cay_error *err)
{
    struct cay_name_options options = name_options(&call->options, CAY_NAME_DIRECTORY);
    int rc = cay_files_move(call->files, call->line.arguments[0], call->line.arguments[1],
                            &options, err);

    return finish_name(call, rc, err);
}

int cmd_files_copy(struct call *call, struct cay_error *err)
{
    struct cay_name_options options = name_options(&call->options, 0);
    int rc = cay_files_copy(call->files, call->line.arguments[0], call->line.arguments[1],
                            &options, err);

    return rc == CAY_E_NOT_A_FILE ? rc : finish_name(call, rc, err);
}

int cmd_files_mkdir(struct call *call, struct cay_error *err)
{
    struct cay_name_options options = name_options(&call->options, 0);
    int rc = cay_files_mkdir(call->files, call->line.arguments[0], &options, err);

    return finish_name(call, rc, err);
}

static void print_result(FILE *file, const struct call *call,
                         const struct cay_tar_result *result)
{
    struct json json;

    json_to_file(&json, file);
    json_put_object(&json);
    json_set_text(&json, "path", call->line.arguments[0]);
    json_set_uint(&json, "entries", result->entries);
    json_set_uint(&json, "bytes", result->bytes);
    json_set_uint(&json, "skipped", result->skipped);
    json_put_end(&json);
    fputc('\n', file);
}

int cmd_files_export(struct call *call, struct cay_error *err)
{
    struct cay_tar_result result;

    if (call->output.is_terminal)
        return cay_fail(err, CAY_E_INVALID, 0, "cli.output", "export",
                        "refusing to write a tar stream to a terminal",
                        "redirect it to a file: cay files ... export PATH > FILE");
    progress_start("Exporting", PROGRESS_WRITTEN);
    int rc = cay_files_export(call->files, call->line.arguments[0], STDOUT_FILENO, NULL,
                              &result, err);
    progress_stop();
    if (rc)
        return rc;
    if (call->options.as_json)
        print_result(stderr, call, &result);
    else
        progress_skipped(result.skipped);
    return CAY_OK;
}

int cmd_files_import(struct call *call, struct cay_error *err)
{
    struct cay_tar_result result = {0};

    progress_start("Importing", PROGRESS_WRITTEN);
    int rc = cay_files_import(call->files, call->line.arguments[0], STDIN_FILENO, NULL,
                              &result, err);
    progress_stop();
    if (!rc && call->options.as_json)
        print_result(call->output.file, call, &result);
    if (!rc && !call->options.as_json)
        progress_skipped(result.skipped);
    if (rc && !call->options.as_json && result.entries)
        fprintf(stderr, "cay: note: %" PRIu64 " entries were unpacked before the error\n",
                result.entries);
    return rc;
}
