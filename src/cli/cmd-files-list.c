/* SPDX-License-Identifier: Apache-2.0 */
/* Commands that walk: list, glob, grep. */
#include "cli/cmd-files.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/error.h"
#include "json/json.h"

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

/* One call of the library, told; `json`, NULL for text, is begun by the first.  Moves
 * `options` on to what follows `last`. */
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
                "cay: note: %" PRIu64 " names that are not valid UTF-8 were left out\n",
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
        fprintf(stderr, "cay: note: there are more; --max N shows more than %zu\n",
                matches.count);
    bool found = matches.count > 0;
    cay_matches_done(&matches);
    return found ? 0 : 1;
}
