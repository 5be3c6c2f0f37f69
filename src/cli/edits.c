/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/edits.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/error.h"
#include "cli/input.h"

#define DOCUMENT_MAX (UINT64_C(64) << 20)

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
        int rc = take_member(index, key, value, edit, err);
        if (rc)
            return rc;
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
    for (; edits->count < json_array_size(list); edits->count++) {
        int rc = take_edit(edits->count, json_array_get(list, edits->count),
                           &edits->items[edits->count], err);
        if (rc)
            return rc;
    }
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

int edits_load(const char *file, struct edits *ret_edits, struct cay_error *err)
{
    bool is_stdin = strcmp(file, "-") == 0;
    AUTO_FD fd = is_stdin ? -1 : open(file, O_RDONLY | O_CLOEXEC);
    const char *name = is_stdin ? "standard input" : file;
    struct edits edits = {0};
    struct input input;
    json_t *document = NULL;

    if (!is_stdin && fd < 0)
        return cay_fail_errno(err, errno, "cli.edits", file);
    int rc = input_read(is_stdin ? STDIN_FILENO : fd, name, DOCUMENT_MAX, &input, err);
    if (rc)
        return rc;
    rc = parse(name, &input, &document, err);
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

void edits_done(struct edits *edits)
{
    free(edits->items);
    json_decref(edits->document);
    *edits = (struct edits){0};
}
