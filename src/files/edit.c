/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "base/utf8.h"
#include "files/replace.h"
#include "files/write.h"
#include "sys/io.h"

static const char op[] = "files.edit";

enum { SHOWN_MAX = 1 << 20, GATHER = 64 << 10 };

/* Small writes are collected; large ones go straight through. */
struct gather {
    const struct fs *fs;
    int fd;
    uint64_t at; /* how much is written */
    uint64_t total;
    size_t len;
    char bytes[GATHER];
};

static int write_out(struct gather *gather, const void *data, size_t len)
{
    int error = fs_take_room(gather->fs, gather->fd, gather->at, len);

    gather->at += len;
    return error ? error : io_write(gather->fd, data, len);
}

static int flush(struct gather *gather)
{
    size_t len = gather->len;

    gather->len = 0;
    return write_out(gather, gather->bytes, len);
}

static int put(void *cookie, const void *data, size_t len)
{
    struct gather *gather = cookie;

    gather->total += len;
    if (len > GATHER - gather->len)
        TRY(flush(gather));
    if (len > GATHER)
        return write_out(gather, data, len);
    memcpy(gather->bytes + gather->len, data, len);
    gather->len += len;
    return 0;
}

static ssize_t get(void *cookie, void *data, size_t len, uint64_t offset)
{
    return io_pread(*(const int *)cookie, data, len, offset);
}

static int fail_no_match(const struct target *target, size_t number, size_t count,
                         uint64_t found, struct cay_error *err)
{
    char message[128], which[64] = "";

    if (count > 1)
        snprintf(which, sizeof which, "edit %zu of %zu: ", number, count);
    if (found == 0)
        snprintf(message, sizeof message, "%stext not found in file", which);
    else
        snprintf(message, sizeof message, "%stext found %llu times (must be unique)",
                 which, (unsigned long long)found);
    return cay_fail(err, CAY_E_NO_MATCH, 0, op, target->path, message, "%s",
                    found == 0 ? "read the file again and copy the text exactly"
                               : "add surrounding text until it occurs once, or replace "
                                 "all of them");
}

static int fail_stream(const struct target *target, int error, struct cay_error *err)
{
    if (error == -EILSEQ)
        return cay_fail(err, CAY_E_NOT_TEXT, EILSEQ, op, target->path,
                        "the file is not UTF-8 text, and only text can be edited",
                        "write the whole file instead");
    return target_fail(target, -error, err);
}

/* One edit, from the file `from` into a new temporary file. */
static int apply(const struct target *target, int from, int dir,
                 const struct cay_edit *edit, struct temp_file *ret_temp,
                 uint64_t *ret_found, uint64_t *ret_bytes, struct cay_error *err)
{
    AUTO_FREE struct gather *gather = malloc(sizeof *gather);

    if (!gather)
        return cay_fail_memory(err, op);
    int error = temp_file_open(target->fs, dir, 0600, ret_temp);
    if (error)
        return target_fail(target, -error, err);
    gather->fs = target->fs;
    gather->fd = ret_temp->fd;
    gather->at = 0;
    gather->total = 0;
    gather->len = 0;
    const struct replace_source source = {get, &from};
    const struct replace_sink sink = {put, gather};
    error = replace_stream(&source, edit, &sink, ret_found);
    if (!error)
        error = flush(gather);
    *ret_bytes = gather->total;
    return error ? fail_stream(target, error, err) : CAY_OK;
}

/* All edits, each on the output of the one before; the last temporary file is the result.
 */
static int apply_all(const struct target *target, int from, int dir,
                     const struct cay_edit *edits, size_t count,
                     struct temp_file *ret_temp, struct cay_edit_result *ret_result,
                     struct cay_error *err)
{
    for (size_t i = 0; i < count; i++) {
        AUTO_TEMP_FILE next = TEMP_FILE_NONE;
        uint64_t found = 0;
        TRY(apply(target, ret_temp->fd >= 0 ? ret_temp->fd : from, dir, &edits[i], &next,
                  &found, &ret_result->bytes, err));
        if (!replace_fits(&edits[i], found))
            return fail_no_match(target, i + 1, count, found, err);
        ret_result->replaced += found;
        temp_file_done(ret_temp);
        *ret_temp = next;
        next = (struct temp_file)TEMP_FILE_NONE;
    }
    return CAY_OK;
}

/* A file of up to SHOWN_MAX bytes in memory, else NULL. */
static int read_shown(int fd, uint64_t bytes, char **ret_text, struct cay_error *err)
{
    *ret_text = NULL;
    if (bytes > SHOWN_MAX)
        return CAY_OK;
    char *text = malloc((size_t)bytes + 1);
    if (!text)
        return cay_fail_memory(err, op);
    ssize_t got = io_pread(fd, text, (size_t)bytes, 0);
    if (got != (ssize_t)bytes) {
        free(text);
        return cay_fail_errno(err, got < 0 ? (int)-got : EAGAIN, op, NULL);
    }
    text[bytes] = '\0';
    *ret_text = text;
    return CAY_OK;
}

/* Whether the file still has the bytes that were shown: times can miss a change. */
static int check_shown(const struct target *target, const char *text,
                       struct cay_error *err)
{
    AUTO_FREE char *now = NULL;
    AUTO_FD fd = -1;

    if (!text)
        return CAY_OK;
    TRY(target_open(target, O_RDONLY, &fd, err));
    TRY(read_shown(fd, (uint64_t)target->st.st_size, &now, err));
    if (now && memcmp(now, text, (size_t)target->st.st_size) == 0)
        return CAY_OK;
    return cay_fail(err, CAY_E_CHANGED, 0, op, target->path,
                    "the file has changed since it was shown; nothing was written",
                    "read it again and request approval again");
}

static uint64_t characters(const char *text, size_t len)
{
    struct utf8_scan scan = {.trusted = true, .count = UTF8_CHARS};

    (void)utf8_scan(&scan, text, len);
    return scan.chars;
}

static int ask(cay_files *files, struct target *target, int from,
               const struct cay_edit *edits, size_t count, const struct temp_file *temp,
               uint64_t bytes, struct cay_error *err)
{
    AUTO_FREE char *before = NULL, *after = NULL;
    char summary[2 * PATH_MAX];

    if (!approval_wanted(files, target, CAY_ACCESS_WRITE))
        return CAY_OK;
    TRY(read_shown(from, (uint64_t)target->st.st_size, &before, err));
    TRY(read_shown(temp->fd, bytes, &after, err));
    if (count == 1)
        snprintf(summary, sizeof summary,
                 "Edit %s: replace %" PRIu64 " chars with %" PRIu64 " chars%s",
                 target->path, characters(edits->old_text, edits->old_len),
                 characters(edits->new_text, edits->new_len),
                 edits->flags & CAY_EDIT_ALL ? " everywhere" : "");
    else
        snprintf(summary, sizeof summary, "Edit %s: %zu edits", target->path, count);
    struct cay_approval shown = {
        .op = CAY_OP_EDIT,
        .summary = summary,
        .before = before,
        .before_len = before ? (size_t)target->st.st_size : 0,
        .after = after,
        .after_len = after ? (size_t)bytes : 0,
    };
    TRY(approve(files, &shown, target, CAY_ACCESS_WRITE, NULL, 0, err));
    return check_shown(target, before, err);
}

/* Copies the result into the file in place, or renames the temporary file.  First the
 * file must still be the one that was read: a change by another process is not lost. */
static int finish(const cay_files *files, const struct target *target,
                  struct temp_file *temp, const struct parent *parent, uint64_t bytes,
                  unsigned flags, struct cay_error *err)
{
    int error = flags & CAY_WRITE_IN_PLACE ? -EPERM : temp_file_like(temp, target);
    AUTO_TARGET now = TARGET_NONE;
    struct cay_pin pin;

    if (error && error != -EPERM)
        return target_fail(target, -error, err);
    target_pin(target, &pin);
    TRY(target_find(files, op, target->path, 0, TARGET_FOLLOW, &now, err));
    TRY(target_check_pin(files, &now, &pin, err));
    return error ? write_in_place(target, temp->fd, bytes, flags, err)
                 : write_commit(temp, parent->name, target, flags, err);
}

/* Access, suffix, existence, size and pin, in the documented order. */
static int find(cay_files *files, const char *path, const struct cay_pin *pin,
                struct target *ret_target, struct cay_error *err)
{
    TRY(target_find(files, op, path, CAY_ACCESS_WRITE, TARGET_READ | TARGET_CHANGE,
                    ret_target, err));
    TRY(target_check_suffix(files, ret_target, err));
    TRY(target_must_be_file(ret_target, err));
    TRY(write_check_target(ret_target, err));
    uint64_t bytes = (uint64_t)ret_target->st.st_size,
             max = target_text_max(&ret_target->st);
    TRY(target_check_size(files, ret_target, bytes, err));
    if (bytes > max)
        return cay_fail(err, CAY_E_LIMIT, EFBIG, op, path,
                        "the file is too long to edit as text",
                        "the limit is %" PRIu64 " bytes", max);
    return target_check_pin(files, ret_target, pin, err);
}

static int check_edits(const struct cay_edit *edits, size_t count, const char *path,
                       unsigned flags, struct cay_error *err)
{
    if (count == 0)
        return cay_fail(err, CAY_E_INVALID, 0, op, path, "no edits given",
                        "pass at least one edit");
    if (flags & (CAY_WRITE_APPEND | CAY_WRITE_NEW | CAY_WRITE_NO_PARENTS))
        return cay_fail(err, CAY_E_INVALID, 0, op, path,
                        "an edit changes an existing file",
                        "an edit may have the flags in place and durable");
    for (size_t i = 0; i < count; i++) {
        if (edits[i].flags & ~(unsigned)(CAY_EDIT_ALL | CAY_EDIT_EXACT))
            return cay_fail(err, CAY_E_UNSUPPORTED, 0, op, "flags", "unknown flags",
                            "the known ones are 0x%x", CAY_EDIT_ALL | CAY_EDIT_EXACT);
        if (!edits[i].old_text || !edits[i].new_text)
            return cay_fail(err, CAY_E_INVALID, 0, op, path,
                            "an edit needs both its texts", "the empty text is \"\"");
        if (edits[i].flags & CAY_EDIT_ALL && edits[i].old_len == 0)
            return cay_fail(err, CAY_E_INVALID, 0, op, path,
                            "an empty text cannot be replaced everywhere",
                            "pass the text to replace, or write the whole file");
    }
    return CAY_OK;
}

int cay_files_edit(cay_files *files, const char *path, const struct cay_edit *edits,
                   size_t count, const struct cay_write_options *options,
                   struct cay_edit_result *ret_result, struct cay_error *err)
{
    struct cay_write_options known;
    struct cay_edit_result result = {0};
    AUTO_TARGET target = TARGET_NONE;
    AUTO_PARENT parent = PARENT_NONE;
    AUTO_FD from = -1;

    TRY(write_take_options(options, op, WRITE_FLAGS, &known, err));
    TRY(check_edits(edits, count, path, known.flags, err));
    TRY(find(files, path, known.pin, &target, err));
    TRY(parent_open(files, &target, false, &parent, err));
    TRY(target_open(&target, O_RDONLY, &from, err));

    AUTO_TEMP_FILE temp = TEMP_FILE_NONE;
    TRY(apply_all(&target, from, parent.fd, edits, count, &temp, &result, err));
    TRY(target_check_size(files, &target, result.bytes, err));
    TRY(ask(files, &target, from, edits, count, &temp, result.bytes, err));
    TRY(finish(files, &target, &temp, &parent, result.bytes, known.flags, err));
    if (ret_result)
        *ret_result = result;
    return CAY_OK;
}
