/* SPDX-License-Identifier: Apache-2.0 */
#include "diff/print.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "json/json.h"

static const uint64_t file_steps = UINT64_C(1) << 27; /* of diff->line_steps */

/* --- Helpers of all formats --- */

static bool needs_quotes(const char *path, bool for_blanks)
{
    for (; *path; path++)
        if ((unsigned char)*path < (for_blanks ? '!' : ' ') ||
            (unsigned char)*path > '~' || *path == '"' || *path == '\\')
            return true;
    return false;
}

void print_path(struct buf *buf, const char *prefix, const char *path)
{
    static const char letters[] = "abtnvfr"; /* from 7 on */

    if (!needs_quotes(path, *prefix)) {
        (void)buf_text(buf, prefix);
        (void)buf_text(buf, path);
        return;
    }
    (void)buf_format(buf, "\"%s", prefix);
    for (; *path; path++) {
        unsigned char c = (unsigned char)*path;
        if (c >= '\a' && c <= '\r')
            (void)buf_format(buf, "\\%c", letters[c - '\a']);
        else if (c == '"' || c == '\\')
            (void)buf_format(buf, "\\%c", c);
        else if (c < ' ' || c > '~')
            (void)buf_format(buf, "\\%03o", c);
        else
            (void)buf_append(buf, path, 1);
    }
    (void)buf_text(buf, "\"");
}

int print_line(struct printer *printer, enum cay_diff_line line, struct cay_error *err)
{
    struct buf *buf = &printer->line;

    if (buf->failed)
        return cay_fail_memory(err, DIFF_OP);
    int error = buf->len ? printer->write(printer->cookie, line, buf->data, buf->len) : 0;
    buf->len = 0;
    return error ? cay_fail_errno(err, error, DIFF_OP, "output") : CAY_OK;
}

unsigned print_git_mode(uint32_t mode)
{
    if (S_ISLNK(mode))
        return 0120000;
    if (!S_ISREG(mode))
        return 0;
    return mode & 0100 ? 0100755 : 0100644;
}

static int load_sides(cay_diff *diff, const struct cay_change *change, bool before,
                      bool after, struct print_sides *sides, struct cay_error *err)
{
    static const struct cay_change nothing;

    TRY(content_load(diff, before ? change : &nothing, DIFF_BEFORE, &sides->before, err));
    TRY(content_load(diff, after ? change : &nothing, DIFF_AFTER, &sides->after, err));
    sides->is_binary = sides->before.is_binary || sides->after.is_binary;
    if (sides->is_binary)
        return CAY_OK;
    uint64_t steps = diff->line_steps < file_steps ? diff->line_steps : file_steps;
    diff->line_steps -= steps;
    int error = lines_compare(sides->before.bytes.data, sides->before.bytes.len,
                              sides->after.bytes.data, sides->after.bytes.len, &steps,
                              &sides->lines);
    diff->line_steps += steps;
    sides->is_binary = error == -E2BIG;
    return error == -ENOMEM ? cay_fail_memory(err, DIFF_OP) : CAY_OK;
}

int print_load(cay_diff *diff, const struct cay_change *change, bool before, bool after,
               struct print_sides *ret_sides, struct cay_error *err)
{
    *ret_sides = (struct print_sides){0};
    int code = load_sides(diff, change, before, after, ret_sides, err);
    if (code)
        print_unload(ret_sides);
    return code;
}

void print_unload(struct print_sides *sides)
{
    content_done(&sides->before);
    content_done(&sides->after);
    lines_done(&sides->lines);
}

/* --- Counting --- */

static uint64_t count_changed(const struct lines_text *side)
{
    uint64_t count = 0;

    for (size_t i = 0; i < side->count; i++)
        count += side->changed[i];
    return count;
}

static bool has_content(const struct cay_change *change)
{
    bool is_new = change->kind == CAY_CHANGE_ADDED || change->kind == CAY_CHANGE_DELETED;

    return (is_new || change->parts & CAY_CHANGED_CONTENT) &&
           (print_git_mode(change->before.mode) || print_git_mode(change->after.mode));
}

int cay_diff_measure(cay_diff *diff, struct cay_error *err)
{
    for (size_t i = 0; i < diff->count && !diff->is_measured; i++) {
        struct cay_change *change = &diff->changes[i];
        struct print_sides sides;
        if (!has_content(change))
            continue;
        TRY(print_load(diff, change, true, true, &sides, err));
        change->is_binary = sides.is_binary;
        change->deletions = count_changed(&sides.lines.sides[0]);
        change->insertions = count_changed(&sides.lines.sides[1]);
        print_unload(&sides);
    }
    diff->is_measured = true;
    return CAY_OK;
}

/* --- Names --- */

static int print_names(struct printer *printer, struct cay_error *err)
{
    const cay_diff *diff = printer->diff;
    struct buf *line = &printer->line;

    for (size_t i = 0; i < diff->count; i++) {
        const struct cay_change *change = &diff->changes[i];
        uint32_t mode = change->after.mode ? change->after.mode : change->before.mode;
        enum cay_diff_line kind = change->kind == CAY_CHANGE_ADDED ? CAY_DIFF_LINE_ADDED
                                  : change->kind == CAY_CHANGE_DELETED
                                      ? CAY_DIFF_LINE_DELETED
                                      : CAY_DIFF_LINE_PLAIN;
        (void)buf_format(line, "%c", "ADMMTR"[change->kind]);
        if (change->old_path) {
            (void)buf_format(line, "%03u\t", change->similarity);
            print_path(line, "", change->old_path);
        }
        (void)buf_text(line, "\t");
        print_path(line, "", change->path);
        (void)buf_text(line, S_ISDIR(mode) ? "/\n" : "\n");
        TRY(print_line(printer, kind, err));
    }
    return CAY_OK;
}

/* --- JSON --- */

static const char *type_name(uint32_t mode)
{
    return S_ISREG(mode)    ? "file"
           : S_ISDIR(mode)  ? "directory"
           : S_ISLNK(mode)  ? "link"
           : S_ISFIFO(mode) ? "fifo"
           : S_ISSOCK(mode) ? "socket"
                            : "device";
}

static void put_side(struct json *json, const char *key,
                     const struct cay_change_side *side)
{
    char mode[16];

    json_put_key(json, key);
    if (!side->mode) {
        json_put_null(json);
        return;
    }
    snprintf(mode, sizeof mode, "%04o", side->mode & 07777);
    json_put_object(json);
    json_set_text(json, "type", type_name(side->mode));
    json_set_text(json, "mode", mode);
    json_set_uint(json, "uid", side->uid);
    json_set_uint(json, "gid", side->gid);
    json_set_uint(json, "size", side->size);
    json_put_end(json);
}

static void put_parts(struct json *json, unsigned parts)
{
    static const char *const names[] = {"content", "mode", "owner", "xattrs"};

    json_put_key(json, "changed");
    json_put_array(json);
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
        if (parts & 1u << i)
            json_put_text(json, names[i]);
    json_put_end(json);
}

static void put_change(struct json *json, const struct cay_change *change)
{
    static const char *const kinds[] = {"added", "deleted", "modified",
                                        "mode",  "type",    "renamed"};

    json_put_object(json);
    json_set_text(json, "change", kinds[change->kind]);
    json_set_text(json, "path", change->path);
    if (change->old_path) {
        json_set_text(json, "old_path", change->old_path);
        json_set_uint(json, "similarity", change->similarity);
    }
    if (change->hard_link)
        json_set_text(json, "hard_link", change->hard_link);
    if (change->parts)
        put_parts(json, change->parts);
    put_side(json, "before", &change->before);
    put_side(json, "after", &change->after);
    if (has_content(change)) {
        json_set_bool(json, "binary", change->is_binary);
        json_set_uint(json, "insertions", change->insertions);
        json_set_uint(json, "deletions", change->deletions);
    }
    json_put_end(json);
}

static int print_json(struct printer *printer, struct cay_error *err)
{
    cay_diff *diff = printer->diff;
    uint64_t insertions = 0, deletions = 0;
    struct json json;

    TRY(cay_diff_measure(diff, err));
    json_to_buf(&json, &printer->line);
    json_put_object(&json);
    json_put_key(&json, "changes");
    json_put_array(&json);
    for (size_t i = 0; i < diff->count; i++) {
        insertions += diff->changes[i].insertions;
        deletions += diff->changes[i].deletions;
        put_change(&json, &diff->changes[i]);
        TRY(print_line(printer, CAY_DIFF_LINE_PLAIN, err));
    }
    json_put_end(&json);
    json_set_uint(&json, "insertions", insertions);
    json_set_uint(&json, "deletions", deletions);
    json_set_uint(&json, "cut", diff->cut);
    json_put_end(&json);
    if (!json_finish(&json))
        return cay_fail_memory(err, DIFF_OP);
    (void)buf_text(&printer->line, "\n");
    return print_line(printer, CAY_DIFF_LINE_PLAIN, err);
}

int cay_diff_print(cay_diff *diff, enum cay_diff_format format, cay_diff_writer write,
                   void *cookie, struct cay_error *err)
{
    struct printer printer = {.diff = diff, .write = write, .cookie = cookie};
    int code = CAY_E_INVALID;

    buf_init(&printer.line, SIZE_MAX / 8);
    switch (format) {
    case CAY_DIFF_NAMES:
        code = print_names(&printer, err);
        break;
    case CAY_DIFF_STAT:
        code = stat_print(&printer, err);
        break;
    case CAY_DIFF_UNIFIED:
        code = unified_print(&printer, err);
        break;
    case CAY_DIFF_JSON:
        code = print_json(&printer, err);
        break;
    default:
        code = cay_fail(err, CAY_E_INVALID, 0, DIFF_OP, "format", "unknown format",
                        "pass a value of enum cay_diff_format");
    }
    buf_done(&printer.line);
    return code;
}
