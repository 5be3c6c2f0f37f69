/* SPDX-License-Identifier: Apache-2.0 */
/* Commands of cay files that change nothing: resolve, stat, list, grep, read ... */
#include "cli/cmd-files.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/auto.h"
#include "base/error.h"
#include "json/json.h"

/* --- resolve, explain, roots, stat, exists --- */

static void end_line(struct output *output, const char *name)
{
    output_name(output, name);
    fputc('\n', output->file);
}

int cmd_files_resolve(struct call *call, struct cay_error *err)
{
    struct cay_location location = {.size = sizeof location};

    TRY(cay_files_locate(call->files, call->line.arguments[0], CAY_ACCESS_READ, &location,
                         err));
    if (call->options.as_json) {
        struct json *json = output_json(&call->output);
        json_set_text(json, "path", location.path);
        json_set_text(json, "mount", location.name);
        json_set_text(json, "access", location.access & CAY_ACCESS_WRITE ? "rw" : "ro");
        json_set_bool(json, "exists", location.exists);
        json_set_bool(json, "read_approval", location.read_approval);
        json_set_bool(json, "write_approval", location.write_approval);
        if (call->options.host)
            json_set_text(json, "host", location.host);
    } else {
        end_line(&call->output, call->options.host ? location.host : location.path);
    }
    cay_location_done(&location);
    return 0;
}

int cmd_files_explain(struct call *call, struct cay_error *err)
{
    char *sentence;

    TRY(cay_files_explain(call->files, call->line.arguments[0], &sentence, err));
    if (call->options.as_json) {
        struct json *json = output_json(&call->output);
        json_set_text(json, "path", call->line.arguments[0]);
        json_set_text(json, "explanation", sentence);
    } else {
        end_line(&call->output, sentence);
    }
    cay_free(sentence);
    return 0;
}

static void put_roots(struct json *json, const char *key, const struct cay_strings *roots)
{
    json_put_key(json, key);
    json_put_array(json);
    for (size_t i = 0; i < roots->count; i++)
        json_put_text(json, roots->items[i]);
    json_put_end(json);
}

static bool contains(const struct cay_strings *strings, const char *text)
{
    for (size_t i = 0; i < strings->count; i++)
        if (strcmp(strings->items[i], text) == 0)
            return true;
    return false;
}

static void show_roots(struct call *call, const struct cay_strings *readable,
                       const struct cay_strings *writable)
{
    if (!call->options.as_json) {
        for (size_t i = 0; i < readable->count; i++) {
            fputs(contains(writable, readable->items[i]) ? "rw " : "ro ",
                  call->output.file);
            end_line(&call->output, readable->items[i]);
        }
        return;
    }
    struct json *json = output_json(&call->output);
    put_roots(json, "readable", readable);
    put_roots(json, "writable", writable);
}

int cmd_files_roots(struct call *call, struct cay_error *err)
{
    struct cay_strings readable, writable;

    TRY(cay_files_roots(call->files, CAY_ACCESS_READ, &readable, err));
    int rc = cay_files_roots(call->files, CAY_ACCESS_WRITE, &writable, err);
    if (!rc) {
        show_roots(call, &readable, &writable);
        cay_strings_done(&writable);
    }
    cay_strings_done(&readable);
    return rc;
}

static const char *type_name(enum cay_type type)
{
    switch (type) {
    case CAY_TYPE_FILE:
        return "file";
    case CAY_TYPE_DIRECTORY:
        return "directory";
    case CAY_TYPE_LINK:
        return "link";
    case CAY_TYPE_OTHER:
        break;
    }
    return "other";
}

#define TIME_ROOM 40

/* The modification time, "2024-05-01T12:00:00Z". */
static const char *time_text(const struct cay_stat *stat, char room[TIME_ROOM])
{
    int64_t second = INT64_C(1000000000);
    time_t seconds = stat->mtime_ns / second - (stat->mtime_ns % second < 0);
    struct tm parts;

    if (!gmtime_r(&seconds, &parts) ||
        strftime(room, TIME_ROOM, "%Y-%m-%dT%H:%M:%SZ", &parts) == 0)
        return "?";
    return room;
}

/* Its members, into the object that is open. */
static void put_stat(struct json *json, const struct cay_stat *stat)
{
    char mode[16];

    snprintf(mode, sizeof mode, "%04" PRIo32, stat->mode);
    json_set_text(json, "type", type_name(stat->type));
    json_set_uint(json, "bytes", stat->bytes);
    json_set_text(json, "mode", mode);
    json_set_uint(json, "uid", stat->uid);
    json_set_uint(json, "gid", stat->gid);
    json_set_uint(json, "links", stat->links);
    json_set_int(json, "mtime_ns", stat->mtime_ns);
}

int cmd_files_stat(struct call *call, struct cay_error *err)
{
    char time[TIME_ROOM];
    struct cay_stat stat;

    TRY(cay_files_stat(call->files, call->line.arguments[0], call->options.no_follow,
                       &stat, err));
    if (call->options.as_json) {
        struct json *json = output_json(&call->output);
        json_set_text(json, "path", call->line.arguments[0]);
        put_stat(json, &stat);
        return 0;
    }
    fprintf(call->output.file,
            "type: %s\nbytes: %" PRIu64 "\nmode: %04" PRIo32 "\nuid: %" PRIu32
            "\ngid: %" PRIu32 "\nlinks: %" PRIu64 "\nmodified: %s\n",
            type_name(stat.type), stat.bytes, stat.mode, stat.uid, stat.gid, stat.links,
            time_text(&stat, time));
    return 0;
}

int cmd_files_exists(struct call *call, struct cay_error *err)
{
    int exists = cay_files_exists(call->files, call->line.arguments[0], err);

    if (exists < 0)
        return exists;
    if (call->options.as_json) {
        struct json *json = output_json(&call->output);
        json_set_text(json, "path", call->line.arguments[0]);
        json_set_bool(json, "exists", exists);
    } else {
        fputs(exists ? "true\n" : "false\n", call->output.file);
    }
    return exists ? 0 : cay_code_exit(CAY_E_NOT_FOUND);
}

/* --- list, glob, grep --- */

static unsigned list_flags(const struct options *options)
{
    unsigned flags = CAY_LIST_FILES;

    if (options->directories)
        flags = CAY_LIST_DIRECTORIES;
    if (options->all)
        flags = CAY_LIST_FILES | CAY_LIST_DIRECTORIES | CAY_LIST_LINKS | CAY_LIST_OTHER;
    return flags | (options->details ? CAY_LIST_STAT : 0);
}

static void entry_as_text(struct call *call, const struct cay_entry *entry)
{
    static const char letters[] = "rwxrwxrwx";
    char mode[11] = "?", time[TIME_ROOM];

    if (call->options.details) {
        mode[0] = "?-dl?"[entry->stat.type <= CAY_TYPE_OTHER ? entry->stat.type : 0];
        for (int i = 0; i < 9; i++)
            mode[i + 1] = entry->stat.mode >> (8 - i) & 1 ? letters[i] : '-';
        fprintf(call->output.file, "%s %12" PRIu64 " %s ", mode, entry->stat.bytes,
                time_text(&entry->stat, time));
    }
    output_name(&call->output, entry->path);
    fputc(call->options.null ? '\0' : '\n', call->output.file);
}

static void entry_as_json(struct call *call, struct json *json,
                          const struct cay_entry *entry)
{
    json_put_object(json);
    json_set_text(json, "path", entry->path);
    if (call->options.details)
        put_stat(json, &entry->stat);
    else
        json_set_text(json, "type", type_name(entry->stat.type));
    json_put_end(json);
}

/* Prints one page and moves `options` to the next one. */
static int list_page(struct call *call, const char *path,
                     struct cay_list_options *options, char **last, bool *ret_truncated,
                     struct cay_error *err)
{
    struct json *json = call->options.as_json ? &call->output.json : NULL;
    struct cay_listing listing;

    TRY(cay_files_list(call->files, path, options, &listing, err));
    if (json && json->depth == 0)
        (void)output_list(&call->output, "entries");
    for (size_t i = 0; i < listing.count; i++)
        if (json)
            entry_as_json(call, json, &listing.entries[i]);
        else
            entry_as_text(call, &listing.entries[i]);
    if (listing.skipped)
        fprintf(stderr,
                "cay: note: %" PRIu64 " names that are not valid UTF-8 were skipped\n",
                listing.skipped);
    *ret_truncated = listing.truncated && listing.count > 0;
    if (*ret_truncated) {
        free(*last);
        *last = strdup(listing.entries[listing.count - 1].path);
        options->after = *last;
    }
    cay_listing_done(&listing);
    return *ret_truncated && !*last ? cay_fail_memory(err, "cli.list") : CAY_OK;
}

static int list(struct call *call, const char *path, const char *pattern,
                struct cay_error *err)
{
    const struct options *given = &call->options;
    struct cay_list_options options = {
        .size = sizeof options,
        .flags = list_flags(given),
        .pattern = pattern,
        .exclude = given->exclude.items,
        .exclude_count = given->exclude.count,
        .after = given->after,
        .max_entries = given->max.value,
    };
    AUTO_FREE char *last = NULL;
    bool truncated = false;
    int rc = CAY_OK;

    if (given->max.given && given->max.value == 0)
        return cay_fail(err, CAY_E_INVALID, 0, "cli.options", "--max",
                        "--max must be at least 1", "pass --max N with N from 1");
    do
        rc = list_page(call, path, &options, &last, &truncated, err);
    while (!rc && truncated && !given->max.given && !call->output.sys_errno);
    if (!rc && given->as_json) {
        json_put_end(&call->output.json);
        json_set_bool(&call->output.json, "truncated", truncated);
    }
    return rc;
}

int cmd_files_list(struct call *call, struct cay_error *err)
{
    const char *path = call->line.count > 0 ? call->line.arguments[0] : ".";

    return list(call, path, call->options.pattern, err);
}

int cmd_files_glob(struct call *call, struct cay_error *err)
{
    const char *path = call->line.count > 1 ? call->line.arguments[1] : ".";

    return list(call, path, call->line.arguments[0], err);
}

static void match_as_text(struct call *call, const struct cay_match *match)
{
    FILE *file = call->output.file;

    output_name(&call->output, match->path);
    fputc(call->options.null ? '\0' : ':', file);
    fprintf(file, "%" PRIu64 ":", match->line);
    output_name(&call->output, match->text);
    fputc('\n', file);
}

static void matches_as_json(struct call *call, const struct cay_matches *matches)
{
    struct json *json = output_list(&call->output, "matches");

    for (size_t i = 0; i < matches->count; i++) {
        json_put_object(json);
        json_set_text(json, "path", matches->items[i].path);
        json_set_uint(json, "line", matches->items[i].line);
        json_set_uint(json, "column", matches->items[i].column);
        json_set_text(json, "text", matches->items[i].text);
        json_put_end(json);
    }
    json_put_end(json);
    json_set_uint(json, "files_searched", matches->files_searched);
    json_set_uint(json, "files_skipped", matches->files_skipped);
    json_set_bool(json, "truncated", matches->truncated);
}

int cmd_files_grep(struct call *call, struct cay_error *err)
{
    const struct options *given = &call->options;
    const char *path = call->line.count > 1 ? call->line.arguments[1] : ".";
    struct cay_grep_options options = {
        .size = sizeof options,
        .flags = (given->ignore_case ? CAY_GREP_IGNORE_CASE : 0) |
                 (given->fixed ? CAY_GREP_FIXED : 0),
        .pattern = given->pattern,
        .exclude = given->exclude.items,
        .exclude_count = given->exclude.count,
        .max_matches = (uint32_t)given->max.value,
    };
    struct cay_matches matches;

    if (given->max.given && (given->max.value == 0 || given->max.value > UINT32_MAX))
        return cay_fail(err, CAY_E_INVALID, 0, "cli.options", "--max",
                        "--max is out of range",
                        "pass --max N with N from 1 to 4,294,967,295");
    TRY(cay_files_grep(call->files, path, call->line.arguments[0], &options, &matches,
                       err));
    if (given->as_json)
        matches_as_json(call, &matches);
    for (size_t i = 0; !given->as_json && i < matches.count; i++)
        match_as_text(call, &matches.items[i]);
    if (!given->as_json && matches.truncated && !given->max.given)
        fprintf(stderr, "cay: note: more lines match; --max N prints more than %zu\n",
                matches.count);
    bool found = matches.count > 0;
    cay_matches_done(&matches);
    return found ? 0 : 1;
}

/* --- read --- */

/* What is counted: characters, lines or bytes. */
static const struct unit {
    const char *total_key, *count_key;
    uint64_t piece; /* how many are held in memory at a time */
    uint64_t page;  /* how many a JSON result has by default */
    int (*read)(cay_files *, const char *, const struct cay_read_options *,
                struct cay_page *, struct cay_error *);
} units[] = {
    {"total_chars", "chars_read", 1 << 20, CAY_READ_CHARS, cay_files_read},
    {"total_lines", "lines_read", 2000, 2000, cay_files_read_lines},
    {"total_bytes", "bytes_read", 4 << 20, 1 << 20, cay_files_read_bytes},
};

static int read_as_json(struct call *call, const struct unit *unit,
                        struct cay_read_options options, struct cay_error *err)
{
    struct cay_page page;

    options.max = call->options.max.given ? call->options.max.value : unit->page;
    TRY(unit->read(call->files, call->line.arguments[0], &options, &page, err));
    struct json *json = output_json(&call->output);
    json_put_key(json, "content");
    json_put_bytes(json, page.text, page.len);
    json_set_bool(json, "truncated", page.truncated);
    json_set_uint(json, unit->total_key, page.total);
    json_set_uint(json, "offset", page.offset);
    json_set_uint(json, unit->count_key, page.count);
    cay_page_done(&page);
    return CAY_OK;
}

/* Piece by piece, so that memory does not grow with the file; the pin makes sure that all
 * pieces are of one and the same file. */
static int read_as_text(struct call *call, const struct unit *unit,
                        struct cay_read_options options, struct cay_error *err)
{
    uint64_t left = call->options.max.given ? call->options.max.value : UINT64_MAX;
    struct cay_pin pin;
    bool more = true;

    int rc = cay_files_pin(call->files, call->line.arguments[0], &pin, err);
    options.pin = &pin;
    while (!rc && more) {
        struct cay_page page;
        options.max = left < unit->piece ? left : unit->piece;
        rc = unit->read(call->files, call->line.arguments[0], &options, &page, err);
        if (rc)
            break;
        fwrite(page.text, 1, page.len, call->output.file);
        options.offset += page.count;
        left -= page.count;
        more = page.truncated && left > 0 && !call->output.sys_errno;
        cay_page_done(&page);
    }
    if (rc == CAY_E_CHANGED)
        return cay_fail(err, rc, 0, "files.read", call->line.arguments[0],
                        "the file was changed while it was being read",
                        "read it again: the output so far mixes two versions");
    return rc;
}

int cmd_files_read(struct call *call, struct cay_error *err)
{
    const struct options *given = &call->options;
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
    return given->as_json ? read_as_json(call, unit, options, err)
                          : read_as_text(call, unit, options, err);
}
