/* SPDX-License-Identifier: Apache-2.0 */

/* Edits the bytes of the file, with both texts converted to its encoding and line ends,
 * so that nothing else in it changes.  files/replace.c does not serve here: it streams
 * UTF-8 under a policy, while this file may have any encoding, is remote, and in memory.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/text.h"
#include "agent/userfs.h"
#include "base/auto.h"
#include "base/error.h"

static const char op[] = "file.edit";

struct text {
    const char *data;
    size_t len;
};

/* --- Failures -------------------------------------------------------------------------
 */

static int fail_match(const char *path, uint64_t found, struct cay_error *err)
{
    char message[128];

    if (!found)
        return cay_fail(err, CAY_E_NO_MATCH, 0, op, path,
                        "String to replace not found in file",
                        "read the file again and copy the text exactly");
    snprintf(message, sizeof message,
             "Found %llu matches of the string to replace, but it must be unique",
             (unsigned long long)found);
    return cay_fail(err, CAY_E_NO_MATCH, 0, op, path, message,
                    "add surrounding text until it occurs once");
}

/* --- The texts in the form of the file ------------------------------------------------
 */

/* Removes one level of backslashes before n, t and r. */
static bool halve_escapes(struct text text, struct buf *out)
{
    bool changed = false;

    for (size_t i = 0; i < text.len; i++) {
        bool doubled = i + 2 < text.len && text.data[i] == '\\' &&
                       text.data[i + 1] == '\\' && strchr("ntr", text.data[i + 2]) &&
                       text.data[i + 2];
        i += doubled;
        changed = changed || doubled;
        buf_append(out, text.data + i, 1);
    }
    return changed;
}

/* "\n" alone becomes "\r\n". */
static void use_crlf(struct text text, struct buf *out)
{
    for (size_t i = 0; i < text.len; i++) {
        if (text.data[i] == '\n' && (i == 0 || text.data[i - 1] != '\r'))
            buf_append(out, "\r", 1);
        buf_append(out, text.data + i, 1);
    }
}

static bool has_crlf(const struct cay_content *file, enum encoding encoding)
{
    size_t width = encoding == ENCODING_UTF16_LE || encoding == ENCODING_UTF16_BE ? 2 : 1;
    const char *line = file->len ? memchr(file->data, '\n', file->len) : NULL;

    return line && line - file->data >= (ptrdiff_t)width &&
           line[-(ptrdiff_t)width] == '\r';
}

/* --- Finding --------------------------------------------------------------------------
 */

/* How often the bytes occur, and where first. */
static uint64_t count_bytes(const struct cay_content *file, const struct buf *bytes,
                            size_t *ret_at)
{
    uint64_t found = 0;

    for (size_t at = 0; bytes->len && at < file->len;) {
        const char *hit =
            memmem(file->data + at, file->len - at, bytes->data, bytes->len);
        if (!hit)
            break;
        size_t where = (size_t)(hit - file->data);
        if (!found++)
            *ret_at = where;
        at = where + bytes->len;
    }
    return found;
}

/* Knuth, Morris and Pratt: how many units of the needle match after one more unit of the
 * text, if `have` matched before it.  back[n] is the length of the longest border of the
 * first n units. */
static size_t step(const struct buf *old, const size_t *back, size_t have,
                   const char *unit)
{
    while (have && memcmp(old->data + 2 * have, unit, 2) != 0)
        have = back[have];
    return have + (memcmp(old->data + 2 * have, unit, 2) == 0);
}

/* The same for units of two bytes: only at even offsets.  memmem() with a check of the
 * offset would take quadratic time on some texts. */
static uint64_t count_units(const struct cay_content *file, struct buf *old,
                            size_t *ret_at)
{
    size_t units = old->len / 2, have = 0;
    AUTO_FREE size_t *back = calloc(units + 1, sizeof *back);
    uint64_t found = 0;

    old->failed |= !back;
    if (!back || !units)
        return 0;
    for (size_t i = 1; i < units; i++)
        back[i + 1] = step(old, back, back[i], old->data + 2 * i);
    for (size_t at = 0; at + 2 <= file->len; at += 2) {
        have = step(old, back, have, file->data + at);
        if (have < units)
            continue;
        if (!found++)
            *ret_at = at + 2 - old->len;
        have = 0;
    }
    return found;
}

struct edit {
    struct cay_content file;
    enum encoding encoding;
    bool has_crlf;
    size_t at;      /* where the old text was found */
    bool puts_crlf; /* the new text gets "\r\n": the text found has it, or no line end */
};

/* Searches for the text in one form; `old` gets its bytes. */
static uint64_t try_form(struct edit *edit, struct text text, bool crlf, struct buf *old)
{
    AUTO_BUF form;

    buf_init(&form, SIZE_MAX / 2);
    old->len = 0;
    if (crlf)
        use_crlf(text, &form);
    else
        buf_append(&form, text.data, text.len);
    if (form.failed || !encoding_put(edit->encoding, form.data, form.len, old))
        return 0;
    return edit->encoding == ENCODING_UTF16_LE || edit->encoding == ENCODING_UTF16_BE
               ? count_units(&edit->file, old, &edit->at)
               : count_bytes(&edit->file, old, &edit->at);
}

/* First as given, then with the line ends of the file. */
static uint64_t find(struct edit *edit, struct text text, struct buf *old)
{
    uint64_t found = try_form(edit, text, false, old);

    edit->puts_crlf = edit->has_crlf && (!found || !memchr(text.data, '\n', text.len));
    return found || !edit->has_crlf ? found : try_form(edit, text, true, old);
}

/* --- The edit -------------------------------------------------------------------------
 */

static int put_together(const struct edit *edit, const struct buf *old, struct text text,
                        const char *path, struct buf *out, struct cay_error *err)
{
    size_t after = edit->at + old->len;
    AUTO_BUF form;

    buf_init(&form, SIZE_MAX / 2);
    if (edit->puts_crlf)
        use_crlf(text, &form);
    else
        buf_append(&form, text.data, text.len);
    buf_append(out, edit->file.data, edit->at);
    bool fits = form.failed ||
                encoding_put(edit->encoding, form.len ? form.data : "", form.len, out);
    if (!fits && !out->failed)
        return cay_fail(err, CAY_E_NOT_TEXT, 0, op, path,
                        "the new text has characters that the encoding of the file lacks",
                        "use characters of %s, or write the whole file",
                        encoding_slug(edit->encoding));
    buf_append(out, edit->file.data + after, edit->file.len - after);
    return form.failed || out->failed ? cay_fail_memory(err, op) : CAY_OK;
}

/* Finds the old text as given, or else with fewer backslashes, then in both texts. */
static int apply(struct edit *edit, struct text old_text, struct text new_text,
                 const char *path, struct buf *out, struct cay_error *err)
{
    AUTO_BUF old, halved_old, halved_new;

    buf_init(&old, SIZE_MAX / 2);
    buf_init(&halved_old, SIZE_MAX / 2);
    buf_init(&halved_new, SIZE_MAX / 2);
    uint64_t found = find(edit, old_text, &old);
    if (!found && halve_escapes(old_text, &halved_old)) {
        (void)halve_escapes(new_text, &halved_new);
        new_text = (struct text){halved_new.len ? halved_new.data : "", halved_new.len};
        found = find(edit, (struct text){halved_old.data, halved_old.len}, &old);
    }
    if (old.failed || halved_old.failed || halved_new.failed)
        return cay_fail_memory(err, op);
    if (found != 1)
        return fail_match(path, found, err);
    return put_together(edit, &old, new_text, path, out, err);
}

static int update(struct userfs *fs, const char *path, struct text old_text,
                  struct text new_text, struct cay_error *err)
{
    struct edit edit = {0};
    struct cay_pin pin;
    char message[512];
    AUTO_BUF out;

    buf_init(&out, SIZE_MAX / 2);
    bool pinned = userfs_pin(fs, path, &pin);
    int code = userfs_read_all(fs, path, &edit.file, err);
    if (code == CAY_E_NOT_FOUND) {
        snprintf(message, sizeof message,
                 "File does not exist: %.256s. Use CREATE to make it", path);
        return cay_fail(err, code, 0, op, path, message,
                        "an empty old text creates a new file");
    }
    if (code)
        return code;
    size_t looked_at =
        edit.file.len < ENCODING_BYTES ? edit.file.len : (size_t)ENCODING_BYTES;
    edit.encoding = encoding_guess(edit.file.data, looked_at, looked_at == edit.file.len);
    edit.has_crlf = has_crlf(&edit.file, edit.encoding);
    code = apply(&edit, old_text, new_text, path, &out, err);
    if (!code)
        code = userfs_write(fs, path, out.len ? out.data : "", out.len, 0,
                            pinned ? &pin : NULL, err);
    free(edit.file.data);
    return code;
}

static int edit_file(struct userfs *fs, const char *path, const char *old_text,
                     size_t old_len, const char *new_text, size_t new_len,
                     enum cay_edit_kind *ret_kind, struct cay_error *err)
{
    enum cay_edit_kind kind = !old_len   ? CAY_EDIT_CREATE
                              : !new_len ? CAY_EDIT_REMOVE
                                         : CAY_EDIT_UPDATE;
    char message[512];
    int code;

    if (!old_len && !new_len)
        return cay_fail(err, CAY_E_INVALID, 0, op, path, "both texts are empty",
                        "pass the text to replace, or the content of a new file");
    if (kind == CAY_EDIT_CREATE) {
        code = userfs_write(fs, path, new_text, new_len, CAY_WRITE_NEW, NULL, err);
        if (code == CAY_E_EXISTS) {
            snprintf(message, sizeof message,
                     "File already exists: %.256s. Use UPDATE to change it", path);
            return cay_fail(err, code, 0, op, path, message,
                            "pass the text to replace, or write the whole file");
        }
    } else {
        code = update(fs, path, (struct text){old_text, old_len},
                      (struct text){new_len ? new_text : "", new_len}, err);
    }
    if (!code && ret_kind)
        *ret_kind = kind;
    return code;
}

int cay_file_edit(cay_sandbox *sandbox, const char *user, const char *path,
                  const char *old_text, size_t old_len, const char *new_text,
                  size_t new_len, enum cay_edit_kind *ret_kind, struct cay_error *err)
{
    AUTO_USERFS fs = {0};
    int code = userfs_open(sandbox, user, &fs, err);

    return code ? code
                : edit_file(&fs, path, old_text, old_len, new_text, new_len, ret_kind,
                            err);
}
