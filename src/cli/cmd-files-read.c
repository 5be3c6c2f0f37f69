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

int cmd_files_resolve(struct files_run *run, struct cay_error *err)
{
    struct cay_location location = {.size = sizeof location};
    int rc = cay_files_locate(run->files, run->line.arguments[0], CAY_ACCESS_READ,
                              &location, err);

    if (rc)
        return rc;
    if (run->options.as_json) {
        struct json json;
        output_begin_json(&run->output, &json);
        json_set_text(&json, "path", location.path);
        json_set_text(&json, "mount", location.name);
        json_set_text(&json, "access", location.access & CAY_ACCESS_WRITE ? "rw" : "ro");
        json_set_bool(&json, "exists", location.exists);
        json_set_bool(&json, "read_approval", location.read_approval);
        json_set_bool(&json, "write_approval", location.write_approval);
        if (run->options.host)
            json_set_text(&json, "host", location.host);
        output_end_json(&run->output, &json);
    } else {
        end_line(&run->output, run->options.host ? location.host : location.path);
    }
    cay_location_done(&location);
    return 0;
}

int cmd_files_explain(struct files_run *run, struct cay_error *err)
{
    char *sentence;
    int rc = cay_files_explain(run->files, run->line.arguments[0], &sentence, err);

    if (rc)
        return rc;
    if (run->options.as_json) {
        struct json json;
        output_begin_json(&run->output, &json);
        json_set_text(&json, "path", run->line.arguments[0]);
        json_set_text(&json, "explanation", sentence);
        output_end_json(&run->output, &json);
    } else {
        end_line(&run->output, sentence);
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

static void show_roots(struct files_run *run, const struct cay_strings *readable,
                       const struct cay_strings *writable)
{
    struct json json;

    if (!run->options.as_json) {
        for (size_t i = 0; i < readable->count; i++) {
            fputs(contains(writable, readable->items[i]) ? "rw " : "ro ",
                  run->output.file);
            end_line(&run->output, readable->items[i]);
        }
        return;
    }
    output_begin_json(&run->output, &json);
    put_roots(&json, "readable", readable);
    put_roots(&json, "writable", writable);
    output_end_json(&run->output, &json);
}

int cmd_files_roots(struct files_run *run, struct cay_error *err)
{
    struct cay_strings readable, writable;
    int rc = cay_files_roots(run->files, CAY_ACCESS_READ, &readable, err);

    if (rc)
        return rc;
    rc = cay_files_roots(run->files, CAY_ACCESS_WRITE, &writable, err);
    if (!rc) {
        show_roots(run, &readable, &writable);
        cay_strings_done(&writable);
    }
    cay_strings_done(&readable);
    return rc;
}

const char *cmd_files_type(enum cay_type type)
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

const char *cmd_files_time(const struct cay_stat *stat, char room[TIME_ROOM])
{
    int64_t second = INT64_C(1000000000);
    time_t seconds = stat->mtime_ns / second - (stat->mtime_ns % second < 0);
    struct tm parts;

    if (!gmtime_r(&seconds, &parts) ||
        strftime(room, TIME_ROOM, "%Y-%m-%dT%H:%M:%SZ", &parts) == 0)
        return "?";
    return room;
}

void cmd_files_put_stat(struct json *json, const struct cay_stat *stat)
{
    char mode[16];

    snprintf(mode, sizeof mode, "%04" PRIo32, stat->mode);
    json_set_text(json, "type", cmd_files_type(stat->type));
    json_set_uint(json, "bytes", stat->bytes);
    json_set_text(json, "mode", mode);
    json_set_uint(json, "uid", stat->uid);
    json_set_uint(json, "gid", stat->gid);
    json_set_uint(json, "links", stat->links);
    json_set_int(json, "mtime_ns", stat->mtime_ns);
}

int cmd_files_stat(struct files_run *run, struct cay_error *err)
{
    char time[TIME_ROOM];
    struct cay_stat stat;
    int rc = cay_files_stat(run->files, run->line.arguments[0], run->options.no_follow,
                            &stat, err);

    if (rc)
        return rc;
    if (run->options.as_json) {
        struct json json;
        output_begin_json(&run->output, &json);
        json_set_text(&json, "path", run->line.arguments[0]);
        cmd_files_put_stat(&json, &stat);
        output_end_json(&run->output, &json);
        return 0;
    }
    fprintf(run->output.file,
            "type: %s\nbytes: %" PRIu64 "\nmode: %04" PRIo32 "\nuid: %" PRIu32
            "\ngid: %" PRIu32 "\nlinks: %" PRIu64 "\nmodified: %s\n",
            cmd_files_type(stat.type), stat.bytes, stat.mode, stat.uid, stat.gid,
            stat.links, cmd_files_time(&stat, time));
    return 0;
}

int cmd_files_exists(struct files_run *run, struct cay_error *err)
{
    int exists = cay_files_exists(run->files, run->line.arguments[0], err);

    if (exists < 0)
        return exists;
    if (run->options.as_json) {
        struct json json;
        output_begin_json(&run->output, &json);
        json_set_text(&json, "path", run->line.arguments[0]);
        json_set_bool(&json, "exists", exists);
        output_end_json(&run->output, &json);
    } else {
        fputs(exists ? "true\n" : "false\n", run->output.file);
    }
    return exists ? 0 : cay_code_exit(CAY_E_NOT_FOUND);
}

/* --- list, glob, grep --- */

static unsigned list_flags(const struct files_options *options)
{
    unsigned flags = CAY_LIST_FILES;

    if (options->directories)
        flags = CAY_LIST_DIRECTORIES;
    if (options->all)
        flags = CAY_LIST_FILES | CAY_LIST_DIRECTORIES | CAY_LIST_LINKS | CAY_LIST_OTHER;
    return flags | (options->details ? CAY_LIST_STAT : 0);
}

static void entry_as_text(struct files_run *run, const struct cay_entry *entry)
{
    static const char letters[] = "rwxrwxrwx";
    char mode[11] = "?", time[TIME_ROOM];

    if (run->options.details) {
        mode[0] = "?-dl?"[entry->stat.type <= CAY_TYPE_OTHER ? entry->stat.type : 0];
        for (int i = 0; i < 9; i++)
            mode[i + 1] = entry->stat.mode >> (8 - i) & 1 ? letters[i] : '-';
        fprintf(run->output.file, "%s %12" PRIu64 " %s ", mode, entry->stat.bytes,
                cmd_files_time(&entry->stat, time));
    }
    output_name(&run->output, entry->path);
    fputc(run->options.null ? '\0' : '\n', run->output.file);
}

static void entry_as_json(struct files_run *run, struct json *json,
                          const struct cay_entry *entry)
{
    json_put_object(json);
    json_set_text(json, "path", entry->path);
    if (run->options.details)
        cmd_files_put_stat(json, &entry->stat);
    else
        json_set_text(json, "type", cmd_files_type(entry->stat.type));
    json_put_end(json);
}

/* Prints one page; the first page begins `json`, which is NULL for text.  Moves `options`
 * to the next page. */
static int list_page(struct files_run *run, const char *path,
                     struct cay_list_options *options, struct json *json, char **last,
                     bool *ret_truncated, struct cay_error *err)
{
    struct cay_listing listing;
    int rc = cay_files_list(run->files, path, options, &listing, err);

    if (rc)
        return rc;
    if (json && json->depth == 0) {
        output_begin_json(&run->output, json);
        json_put_key(json, "entries");
        json_put_array(json);
    }
    for (size_t i = 0; i < listing.count; i++)
        if (json)
            entry_as_json(run, json, &listing.entries[i]);
        else
            entry_as_text(run, &listing.entries[i]);
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

static int list(struct files_run *run, const char *path, const char *pattern,
                struct cay_error *err)
{
    const struct files_options *given = &run->options;
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
    struct json json = {.depth = 0}, *document = given->as_json ? &json : NULL;
    bool truncated = false;
    int rc = CAY_OK;

    if (given->max.given && given->max.value == 0)
        return cay_fail(err, CAY_E_INVALID, 0, "cli.options", "--max",
                        "--max must be at least 1", "pass --max N with N from 1");
    do
        rc = list_page(run, path, &options, document, &last, &truncated, err);
    while (!rc && truncated && !given->max.given && !run->output.sys_errno);
    if (rc || !document)
        return rc;
    json_put_end(&json);
    json_set_bool(&json, "truncated", truncated);
    output_end_json(&run->output, &json);
    return CAY_OK;
}

int cmd_files_list(struct files_run *run, struct cay_error *err)
{
    const char *path = run->line.count > 0 ? run->line.arguments[0] : ".";

    return list(run, path, run->options.pattern, err);
}

int cmd_files_glob(struct files_run *run, struct cay_error *err)
{
    const char *path = run->line.count > 1 ? run->line.arguments[1] : ".";

    return list(run, path, run->line.arguments[0], err);
}

static void match_as_text(struct files_run *run, const struct cay_match *match)
{
    FILE *file = run->output.file;

    output_name(&run->output, match->path);
    fputc(run->options.null ? '\0' : ':', file);
    fprintf(file, "%" PRIu64 ":", match->line);
    output_name(&run->output, match->text);
    fputc('\n', file);
}

static void matches_as_json(struct files_run *run, const struct cay_matches *matches)
{
    struct json json;

    output_begin_json(&run->output, &json);
    json_put_key(&json, "matches");
    json_put_array(&json);
    for (size_t i = 0; i < matches->count; i++) {
        json_put_object(&json);
        json_set_text(&json, "path", matches->items[i].path);
        json_set_uint(&json, "line", matches->items[i].line);
        json_set_uint(&json, "column", matches->items[i].column);
        json_set_text(&json, "text", matches->items[i].text);
        json_put_end(&json);
    }
    json_put_end(&json);
    json_set_uint(&json, "files_searched", matches->files_searched);
    json_set_uint(&json, "files_skipped", matches->files_skipped);
    json_set_bool(&json, "truncated", matches->truncated);
    output_end_json(&run->output, &json);
}

int cmd_files_grep(struct files_run *run, struct cay_error *err)
{
    const struct files_options *given = &run->options;
    const char *path = run->line.count > 1 ? run->line.arguments[1] : ".";
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
    int rc =
        cay_files_grep(run->files, path, run->line.arguments[0], &options, &matches, err);
    if (rc)
        return rc;
    if (given->as_json)
        matches_as_json(run, &matches);
    for (size_t i = 0; !given->as_json && i < matches.count; i++)
        match_as_text(run, &matches.items[i]);
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

static int read_as_json(struct files_run *run, const struct unit *unit,
                        struct cay_read_options options, struct cay_error *err)
{
    struct cay_page page;
    struct json json;

    options.max = run->options.max.given ? run->options.max.value : unit->page;
    int rc = unit->read(run->files, run->line.arguments[0], &options, &page, err);
    if (rc)
        return rc;
    output_begin_json(&run->output, &json);
    json_put_key(&json, "content");
    json_put_bytes(&json, page.text, page.len);
    json_set_bool(&json, "truncated", page.truncated);
    json_set_uint(&json, unit->total_key, page.total);
    json_set_uint(&json, "offset", page.offset);
    json_set_uint(&json, unit->count_key, page.count);
    output_end_json(&run->output, &json);
    cay_page_done(&page);
    return CAY_OK;
}

/* Piece by piece, so that memory does not grow with the file; the pin makes sure that all
 * pieces are of one and the same file. */
static int read_as_text(struct files_run *run, const struct unit *unit,
                        struct cay_read_options options, struct cay_error *err)
{
    uint64_t left = run->options.max.given ? run->options.max.value : UINT64_MAX;
    struct cay_pin pin;
    bool more = true;

    int rc = cay_files_pin(run->files, run->line.arguments[0], &pin, err);
    options.pin = &pin;
    while (!rc && more) {
        struct cay_page page;
        options.max = left < unit->piece ? left : unit->piece;
        rc = unit->read(run->files, run->line.arguments[0], &options, &page, err);
        if (rc)
            break;
        fwrite(page.text, 1, page.len, run->output.file);
        options.offset += page.count;
        left -= page.count;
        more = page.truncated && left > 0 && !run->output.sys_errno;
        cay_page_done(&page);
    }
    if (rc == CAY_E_CHANGED)
        return cay_fail(err, rc, 0, "files.read", run->line.arguments[0],
                        "the file was changed while it was being read",
                        "read it again: the output so far mixes two versions");
    return rc;
}

int cmd_files_read(struct files_run *run, struct cay_error *err)
{
    const struct files_options *given = &run->options;
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
    return given->as_json ? read_as_json(run, unit, options, err)
                          : read_as_text(run, unit, options, err);
}
