/* SPDX-License-Identifier: Apache-2.0 */

/* Edits of any text, through windows of a few bytes, against the plain meaning of an edit
 * on text in memory.  The input is: flags, length of the old text, length of the new
 * text, those two texts, and the file. */
#define REPLACE_STEP 16
#include "../../src/files/replace.c"

#include <stdio.h>

struct text {
    const char *data;
    size_t len;
};

static ssize_t get(void *cookie, void *data, size_t len, uint64_t offset)
{
    const struct text *file = cookie;
    size_t left = offset < file->len ? file->len - (size_t)offset : 0;
    size_t got = len < left ? len : left;

    if (got)
        memcpy(data, file->data + offset, got);
    return (ssize_t)got;
}

static int put_out(void *cookie, const void *data, size_t len)
{
    return buf_append(cookie, data, len) ? 0 : -ENOMEM;
}

/* The length of the line end at `at`, or 0. */
static size_t line_end_at(struct text file, size_t at)
{
    if (file.data[at] == '\r')
        return at + 1 < file.len && file.data[at + 1] == '\n' ? 2 : 1;
    return file.data[at] == '\n';
}

/* Where a match of `old` at `at` ends; 0 if there is none. */
static size_t match_at(struct text file, size_t at, struct text old, bool exact)
{
    for (size_t i = 0; i < old.len;) {
        if (at >= file.len)
            return 0;
        size_t want = exact ? 0 : line_end_at(old, i),
               have = exact ? 0 : line_end_at(file, at);
        if (want || have) {
            if (!want || !have)
                return 0;
            i += want;
            at += have;
        } else {
            if (file.data[at++] != old.data[i++])
                return 0;
        }
    }
    return at;
}

static bool is_exact(const struct cay_edit *edit)
{
    for (size_t i = 0; i < edit->old_len; i++)
        if (edit->old_text[i] == '\r' &&
            line_end_at((struct text){edit->old_text, edit->old_len}, i) == 1)
            return true;
    return edit->flags & CAY_EDIT_EXACT;
}

static void put_new(struct buf *out, struct text file, const struct cay_edit *edit)
{
    size_t first = 0, end = 0;

    while (first < file.len && !(end = line_end_at(file, first)))
        first++;
    for (size_t i = 0; i < edit->new_len; i++) {
        bool bare =
            edit->new_text[i] == '\n' && (i == 0 || edit->new_text[i - 1] != '\r');
        if (bare && end && !is_exact(edit))
            buf_append(out, file.data + first, end);
        else
            buf_append(out, edit->new_text + i, 1);
    }
}

static uint64_t plain_edit(struct text file, const struct cay_edit *edit, struct buf *out)
{
    const struct text old = {edit->old_text, edit->old_len};
    bool exact = is_exact(edit);
    uint64_t found = 0;

    if (old.len == 0 && file.len == 0) {
        put_new(out, file, edit);
        return 1;
    }
    for (size_t at = 0; at < file.len;) {
        size_t end = old.len ? match_at(file, at, old, exact) : 0;
        size_t step = exact ? 0 : line_end_at(file, at);
        if (end) {
            put_new(out, file, edit);
            found++;
            at = end;
        } else {
            buf_append(out, file.data + at, step ? step : 1);
            at += step ? step : 1;
        }
    }
    return found;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 3 || size - 3 < (size_t)data[1] % 32 + data[2] % 32)
        return 0;
    const char *text = (const char *)data + 3;
    struct cay_edit edit = {
        .flags = data[0] & (CAY_EDIT_ALL | CAY_EDIT_EXACT),
        .old_text = text,
        .old_len = data[1] % 32,
        .new_text = text + data[1] % 32,
        .new_len = data[2] % 32,
    };
    struct text file = {edit.new_text + edit.new_len,
                        size - 3 - edit.old_len - edit.new_len};
    AUTO_BUF have, want;
    uint64_t found = 0;

    buf_init(&have, 1 << 24);
    buf_init(&want, 1 << 24);
    const struct replace_source source = {get, &file};
    const struct replace_sink sink = {put_out, &have};
    int error = replace_stream(&source, &edit, &sink, &found);

    bool text_file = utf8_is_valid(file.data, file.len);
    if ((error == -EILSEQ) == text_file || (error && error != -EILSEQ))
        abort();
    if (error)
        return 0;
    uint64_t plain = plain_edit(file, &edit, &want);
    if (edit.old_len && plain != found)
        abort();
    if (replace_fits(&edit, found) &&
        (have.len != want.len ||
         (have.len && memcmp(have.data, want.data, have.len) != 0)))
        abort();
    return 0;
}
