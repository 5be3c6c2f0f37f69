/* SPDX-License-Identifier: Apache-2.0 */
#include "native/process/approve.h"

#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/error.h"

static const char op[] = "sandbox.approve";

int native_save_approve(const struct cay_sandbox_options *options, struct record *record,
                        struct cay_error *err)
{
    AUTO_BUF text;

    buf_init(&text, APPROVE_TEXT_MAX);
    TRY(approve_pack(options, options->name ? options->name : record->id, &text, err));
    record->approves = text.len > 0;
    return text.len ? runtime_save_approve(record->id, text.data, text.len, err) : CAY_OK;
}

static int load(const struct record *record, char **ret_text, size_t *ret_len,
                struct cay_error *err)
{
    AUTO_FREE char *text = malloc(APPROVE_TEXT_MAX);

    *ret_len = 0;
    if (!text)
        return cay_fail_memory(err, op);
    TRY(runtime_load_approve(record->id, text, APPROVE_TEXT_MAX, ret_len, err));
    if (!*ret_len || text[*ret_len - 1])
        return cay_fail(err, CAY_E_INTERNAL, 0, op, record->id,
                        "the patterns of commands that need approval are damaged",
                        "remove the sandbox and create it again");
    *ret_text = TAKE_PTR(text);
    return CAY_OK;
}

int native_approve(void *cookie, char **ret_text, size_t *ret_len, struct cay_error *err)
{
    struct native *native = cookie;

    /* It may have been started since the handle was opened. */
    if (native->record.storage == CAY_STORAGE_DISK)
        TRY(native_check(native, err));
    return native->record.approves ? load(&native->record, ret_text, ret_len, err)
                                   : CAY_OK;
}

int approve_inherit(const struct record *record, struct cay_sandbox_options *options,
                    struct approve_inherited *ret_inherited, struct cay_error *err)
{
    size_t len = 0, count = 0;

    if (options->approve || !record->approves)
        return CAY_OK;
    TRY(load(record, &ret_inherited->text, &len, err));
    ret_inherited->patterns =
        calloc(CAY_APPROVE_MAX + 1, sizeof *ret_inherited->patterns);
    if (!ret_inherited->patterns)
        return cay_fail_memory(err, op);
    const char *at = ret_inherited->text, *end = at + len;
    if (!options->approve_scope)
        options->approve_scope = at;
    at += strlen(at) + 1;
    if (at < end && !options->approve_timeout_ms)
        options->approve_timeout_ms = strtoull(at, NULL, 10);
    for (at += at < end ? strlen(at) + 1 : 0; at < end && count < CAY_APPROVE_MAX;
         at += strlen(at) + 1)
        ret_inherited->patterns[count++] = at;
    options->approve = ret_inherited->patterns;
    return CAY_OK;
}

void approve_inherited_done(struct approve_inherited *inherited)
{
    free(inherited->text);
    free(inherited->patterns);
}
