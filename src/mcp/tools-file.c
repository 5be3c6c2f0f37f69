/* SPDX-License-Identifier: Apache-2.0 */

/* Tools for the files of a sandbox, and between it and the host. */
#include <inttypes.h>
#include <nettle/base64.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/error.h"
#include "mcp/session.h"

enum {
    LINES = 2000,
    TEXT_MAX = 1 << 20,  /* bytes of text that read_file returns */
    BYTES_MAX = 4 << 20, /* and of any file */
    LIST_MAX = 10000,
    LIST_DEFAULT = 1000,
    MATCHES_MAX = 1000,
    MATCHES = 200,
    GREP_MS = 10000,
};

static const char op[] = "mcp.files";

static const char *const types[] = {[CAY_TYPE_FILE] = "file",
                                    [CAY_TYPE_DIRECTORY] = "directory",
                                    [CAY_TYPE_LINK] = "link",
                                    [CAY_TYPE_OTHER] = "other"};

/* --- read_file --- */

static const struct mcp_field read_input[] = {
    {"path", "inside; relative paths start at the working directory", MCP_STRING, true},
    {"offset", "the first line, from 1; with base64 the first byte, from 0", MCP_INTEGER,
     false, 0, INT64_MAX},
    {"limit", "most lines (default 2000); with base64 bytes (default 1 MiB)", MCP_INTEGER,
     false, 1, BYTES_MAX},
    {"encoding", "base64 reads any bytes, and shows pictures", MCP_STRING, false,
     .choices = "text|base64", .fallback = "\"text\""},
    MCP_SANDBOX_FIELD,
    {.name = NULL},
};

static const struct mcp_field read_output[] = {
    {"content", "the text, or base64", MCP_STRING, true},
    {"offset", "the first line or byte in it", MCP_INTEGER, true},
    {"count", "lines or bytes in it", MCP_INTEGER, true},
    {"total", "lines or bytes in the file", MCP_INTEGER, true},
    {"truncated", "more follow: read on at offset + count", MCP_BOOLEAN, true},
    {.name = NULL},
};

static const char *picture_type(const struct cay_page *page)
{
    static const struct {
        const char *magic, *mime;
        size_t len;
    } pictures[] = {{"\x89PNG\r\n\x1a\n", "image/png", 8},
                    {"\xff\xd8\xff", "image/jpeg", 3},
                    {"GIF8", "image/gif", 4}};

    for (size_t i = 0; i < sizeof pictures / sizeof *pictures; i++)
        if (page->text && page->len >= pictures[i].len &&
            memcmp(page->text, pictures[i].magic, pictures[i].len) == 0)
            return pictures[i].mime;
    return NULL;
}

static void put_page(struct json *data, const struct cay_page *page, uint64_t offset,
                     const char *content, size_t len)
{
    json_put_key(data, "content");
    json_put_bytes(data, content, len);
    json_set_uint(data, "offset", offset);
    json_set_uint(data, "count", page->count);
    json_set_uint(data, "total", page->total);
    json_set_bool(data, "truncated", page->truncated);
}

static int read_base64(struct mcp_call *call, cay_files *files, struct json *data,
                       struct cay_error *err)
{
    const struct cay_read_options options = {
        .size = sizeof options,
        .offset = (uint64_t)mcp_number(call, "offset", 0),
        .max = (uint64_t)mcp_number(call, "limit", TEXT_MAX)};
    struct cay_page page = {0};

    TRY(cay_files_read_bytes(files, mcp_text(call, "path", ""), &options, &page, err));
    AUTO_FREE char *base64 = mcp_base64(page.text ? page.text : "", page.len);
    const char *mime = page.truncated || options.offset ? NULL : picture_type(&page);
    if (base64)
        put_page(data, &page, page.offset, base64, strlen(base64));
    if (base64 && mime) {
        mcp_put_image(call, mime, base64);
        (void)buf_format(call->text, "[%s, %zu bytes]", mime, page.len);
    }
    cay_page_done(&page);
    return base64 ? CAY_OK : cay_fail_memory(err, op);
}

static int read_file(struct mcp_call *call, struct json *data, struct cay_error *err)
{
    int64_t first = mcp_number(call, "offset", 1);
    const struct cay_read_options options = {
        .size = sizeof options,
        .offset = first > 0 ? (uint64_t)first - 1 : 0,
        .max = (uint64_t)mcp_number(call, "limit", LINES)};
    const char *path = mcp_text(call, "path", "");
    struct cay_page page = {0};
    cay_files *files;

    TRY(mcp_files(call, &files, err));
    if (strcmp(mcp_text(call, "encoding", "text"), "base64") == 0)
        return read_base64(call, files, data, err);
    TRY(cay_files_read_lines(files, path, &options, &page, err));
    if (page.len > TEXT_MAX) {
        cay_page_done(&page);
        return cay_fail(err, CAY_E_LIMIT, 0, op, path, "these lines have more than 1 MiB",
                        "read fewer lines with limit, or bytes with encoding base64");
    }
    put_page(data, &page, page.offset + 1, page.text ? page.text : "", page.len);
    (void)buf_append(call->text, page.text ? page.text : "", page.len);
    if (page.truncated)
        (void)buf_format(call->text,
                         "\n[lines %" PRIu64 " to %" PRIu64 " of %" PRIu64 "]",
                         (uint64_t)page.offset + 1, (uint64_t)page.offset + page.count,
                         (uint64_t)page.total);
    if (!call->text->len)
        (void)buf_text(call->text, "[an empty file]");
    cay_page_done(&page);
    return CAY_OK;
}

/* --- write_file --- */

static const struct mcp_field write_input[] = {
    {"path", "inside; missing directories are created", MCP_STRING, true},
    {"content", "the whole content", MCP_BYTES, true},
    {"encoding", "of the content", MCP_STRING, false, .choices = "text|base64",
     .fallback = "\"text\""},
    {"append", "add to the file instead of replacing it", MCP_BOOLEAN,
     .fallback = "false"},
    MCP_SANDBOX_FIELD,
    {.name = NULL},
};

static const struct mcp_field write_output[] = {
    {"bytes", "that were written", MCP_INTEGER, true},
    {.name = NULL},
};

static int decode(const char *text, size_t len, uint8_t **ret_data, size_t *ret_len,
                  struct cay_error *err)
{
    struct base64_decode_ctx context;

    *ret_data = malloc(BASE64_DECODE_LENGTH(len) + 1);
    if (!*ret_data)
        return cay_fail_memory(err, op);
    base64_decode_init(&context);
    if (base64_decode_update(&context, ret_len, *ret_data, len, text) &&
        base64_decode_final(&context))
        return CAY_OK;
    return cay_fail(err, CAY_E_INVALID, 0, op, "content", "the content is not base64",
                    "pass base64 with padding, or leave out encoding");
}

static int write_file(struct mcp_call *call, struct json *data, struct cay_error *err)
{
    struct cay_write_options options = {
        .size = sizeof options,
        .flags = mcp_flag(call, "append") ? CAY_WRITE_APPEND : 0u};
    bool is_base64 = strcmp(mcp_text(call, "encoding", "text"), "base64") == 0;
    AUTO_FREE uint8_t *decoded = NULL;
    size_t len;
    const void *content = mcp_bytes(call, "content", &len);
    cay_files *files;

    TRY(mcp_files(call, &files, err));
    if (is_base64) {
        TRY(decode(content, len, &decoded, &len, err));
        content = decoded;
    }
    const char *path = mcp_text(call, "path", "");
    struct mcp_write write;
    int code = mcp_write_begin(call, files, path, &write, err);
    if (!code && write.place) {
        options.pin = &write.pin;
        code = mcp_write_await(call, &write, content, len, err);
    }
    if (!code)
        code = cay_files_write(files, path, content, len, &options, err);
    mcp_write_done(&write);
    if (!code)
        json_set_uint(data, "bytes", len);
    return code;
}

/* --- edit_file --- */

static const struct mcp_field edit_item[] = {
    {"old_text", "text that occurs exactly once", MCP_BYTES, true},
    {"new_text", "what replaces it", MCP_BYTES, true},
    {"all", "replace every occurrence", MCP_BOOLEAN, .fallback = "false"},
    {.name = NULL},
};

static const struct mcp_field edit_input[] = {
    {"path", "inside", MCP_STRING, true},
    {"edits", "applied in this order: all of them or none", MCP_LIST, true,
     .fields = edit_item},
    MCP_SANDBOX_FIELD,
    {.name = NULL},
};

static const struct mcp_field edit_output[] = {
    {"replaced", "occurrences", MCP_INTEGER, true},
    {"bytes", "the new size of the file", MCP_INTEGER, true},
    {.name = NULL},
};

static int edit_file(struct mcp_call *call, struct json *data, struct cay_error *err)
{
    const json_t *items = json_object_get(call->arguments, "edits");
    AUTO_FREE struct cay_edit *edits = calloc(json_array_size(items) + 1, sizeof *edits);
    struct cay_edit_result result;
    cay_files *files;
    json_t *item;
    size_t i;

    if (!edits)
        return cay_fail_memory(err, op);
    if (!json_array_size(items))
        return cay_fail(err, CAY_E_INVALID, 0, op, "edits", "there are no edits",
                        "pass at least one edit");
    json_array_foreach(items, i, item)
    {
        const json_t *old_text = json_object_get(item, "old_text");
        const json_t *new_text = json_object_get(item, "new_text");
        edits[i] = (struct cay_edit){
            .old_text = json_string_value(old_text),
            .old_len = json_string_length(old_text),
            .new_text = json_string_value(new_text),
            .new_len = json_string_length(new_text),
            .flags = json_is_true(json_object_get(item, "all")) ? CAY_EDIT_ALL : 0u};
    }
    TRY(mcp_files(call, &files, err));
    const char *path = mcp_text(call, "path", "");
    struct cay_write_options options = {.size = sizeof options};
    struct mcp_write write;
    int code = mcp_write_begin(call, files, path, &write, err);
    if (!code && write.place) {
        options.pin = &write.pin;
        code = mcp_write_await_edits(call, files, &write, err);
    }
    if (!code)
        code = cay_files_edit(files, path, edits, json_array_size(items), &options,
                              &result, err);
    mcp_write_done(&write);
    if (code)
        return code;
    json_set_uint(data, "replaced", result.replaced);
    json_set_uint(data, "bytes", result.bytes);
    return CAY_OK;
}

/* --- list_files and glob --- */

static const struct mcp_field list_input[] = {
    {"path", "a directory inside (default: the working directory)", MCP_STRING},
    {"depth", "1: its own entries; 0: everything below", MCP_INTEGER, false, 0, 256, NULL,
     "1"},
    {"limit", "most entries", MCP_INTEGER, false, 1, LIST_MAX, NULL, "1000"},
    {"after", "only entries after this path: the next page", MCP_STRING},
    MCP_SANDBOX_FIELD,
    {.name = NULL},
};

static const struct mcp_field entry_fields[] = {
    {"path", "absolute", MCP_STRING, true},
    {"type", "of the entry itself", MCP_STRING, true,
     .choices = "file|directory|link|other"},
    {"bytes", "the size of a file", MCP_INTEGER, true},
    {"modified_ms", "since 1970", MCP_INTEGER, true, INT64_MIN, INT64_MAX},
    {.name = NULL},
};

static const struct mcp_field list_output[] = {
    {"entries", "sorted by path", MCP_LIST, true, .fields = entry_fields},
    {"truncated", "more follow: see after", MCP_BOOLEAN, true},
    {.name = NULL},
};

static int list_files(struct mcp_call *call, struct json *data, struct cay_error *err)
{
    const char *path = mcp_text(call, "path", ".");
    const struct cay_list_options options = {
        .size = sizeof options,
        .flags = CAY_LIST_FILES | CAY_LIST_DIRECTORIES | CAY_LIST_LINKS | CAY_LIST_OTHER |
                 CAY_LIST_STAT,
        .after = mcp_text(call, "after", NULL),
        .max_entries = (uint64_t)mcp_number(call, "limit", LIST_DEFAULT),
        .max_depth = (uint32_t)mcp_number(call, "depth", 1),
        .timeout_ms = GREP_MS};
    struct cay_listing listing;
    struct cay_stat stat;
    cay_files *files;

    TRY(mcp_files(call, &files, err));
    TRY(cay_files_stat(files, path, false, &stat, err));
    if (stat.type != CAY_TYPE_DIRECTORY)
        return cay_fail(err, CAY_E_NOT_A_DIRECTORY, 0, op, path,
                        "the path is not a directory", "read_file reads a file");
    TRY(cay_files_list(files, path, &options, &listing, err));
    json_put_key(data, "entries");
    json_put_array(data);
    for (size_t i = 0; i < listing.count; i++) {
        const struct cay_entry *entry = &listing.entries[i];
        json_put_object(data);
        json_set_text(data, "path", entry->path);
        json_set_text(data, "type", types[entry->stat.type]);
        json_set_uint(data, "bytes", entry->stat.bytes);
        json_set_int(data, "modified_ms", entry->stat.mtime_ns / 1000000);
        json_put_end(data);
    }
    json_put_end(data);
    json_set_bool(data, "truncated", listing.truncated);
    cay_listing_done(&listing);
    return CAY_OK;
}

static const struct mcp_field glob_input[] = {
    {"pattern", "as \"**/*.py\"; names that start with a dot match, too", MCP_STRING,
     true},
    {"path", "the directory (default: the working directory)", MCP_STRING},
    {"limit", "most paths", MCP_INTEGER, false, 1, LIST_MAX, NULL, "1000"},
    MCP_SANDBOX_FIELD,
    {.name = NULL},
};

static const struct mcp_field glob_output[] = {
    {"paths", "sorted", MCP_STRINGS, true},
    {"truncated", "there are more", MCP_BOOLEAN, true},
    {.name = NULL},
};

static int glob_files(struct mcp_call *call, struct json *data, struct cay_error *err)
{
    const struct cay_list_options options = {
        .size = sizeof options,
        .flags = CAY_LIST_FILES | CAY_LIST_DIRECTORIES | CAY_LIST_LINKS,
        .pattern = mcp_text(call, "pattern", ""),
        .max_entries = (uint64_t)mcp_number(call, "limit", LIST_DEFAULT),
        .timeout_ms = GREP_MS};
    struct cay_listing listing;
    cay_files *files;

    TRY(mcp_files(call, &files, err));
    TRY(cay_files_list(files, mcp_text(call, "path", "."), &options, &listing, err));
    json_put_key(data, "paths");
    json_put_array(data);
    for (size_t i = 0; i < listing.count; i++) {
        json_put_bytes(data, listing.entries[i].path, strlen(listing.entries[i].path));
        (void)buf_format(call->text, "%s\n", listing.entries[i].path);
    }
    json_put_end(data);
    json_set_bool(data, "truncated", listing.truncated);
    if (!listing.count)
        (void)buf_text(call->text, "[nothing matches]");
    cay_listing_done(&listing);
    return CAY_OK;
}

/* --- grep --- */

static const struct mcp_field grep_input[] = {
    {"regex", "in the syntax of PCRE2", MCP_STRING, true},
    {"path", "a file or a directory (default: the working directory)", MCP_STRING},
    {"glob", "which files, as \"**/*.py\" (default: all)", MCP_STRING},
    {"ignore_case", "upper and lower case are equal", MCP_BOOLEAN, .fallback = "false"},
    {"fixed", "the regex is plain text", MCP_BOOLEAN, .fallback = "false"},
    {"limit", "most matches", MCP_INTEGER, false, 1, MATCHES_MAX, NULL, "200"},
    MCP_SANDBOX_FIELD,
    {.name = NULL},
};

static const struct mcp_field match_fields[] = {
    {"path", "the file", MCP_STRING, true},
    {"line", "from 1", MCP_INTEGER, true},
    {"column", "a byte, from 1", MCP_INTEGER, true},
    {"text", "the line", MCP_STRING, true},
    {.name = NULL},
};

static const struct mcp_field grep_output[] = {
    {"matches", "one for each line, by path and line", MCP_LIST, true,
     .fields = match_fields},
    {"truncated", "there are more", MCP_BOOLEAN, true},
    {"files_searched", "text files", MCP_INTEGER, true},
    {.name = NULL},
};

static int grep_files(struct mcp_call *call, struct json *data, struct cay_error *err)
{
    const struct cay_grep_options options = {
        .size = sizeof options,
        .flags = (mcp_flag(call, "ignore_case") ? CAY_GREP_IGNORE_CASE : 0u) |
                 (mcp_flag(call, "fixed") ? CAY_GREP_FIXED : 0u),
        .pattern = mcp_text(call, "glob", NULL),
        .max_matches = (uint32_t)mcp_number(call, "limit", MATCHES),
        .timeout_ms = GREP_MS};
    struct cay_matches matches;
    cay_files *files;

    TRY(mcp_files(call, &files, err));
    TRY(cay_files_grep(files, mcp_text(call, "path", "."), mcp_text(call, "regex", ""),
                       &options, &matches, err));
    json_put_key(data, "matches");
    json_put_array(data);
    for (size_t i = 0; i < matches.count; i++) {
        const struct cay_match *match = &matches.items[i];
        json_put_object(data);
        json_set_text(data, "path", match->path);
        json_set_uint(data, "line", match->line);
        json_set_uint(data, "column", match->column);
        json_set_text(data, "text", match->text);
        json_put_end(data);
        (void)buf_format(call->text, "%s:%llu:%s\n", match->path,
                         (unsigned long long)match->line, match->text);
    }
    json_put_end(data);
    json_set_bool(data, "truncated", matches.truncated);
    json_set_uint(data, "files_searched", matches.files_searched);
    if (!matches.count)
        (void)buf_text(call->text, "[nothing matches]");
    cay_matches_done(&matches);
    return CAY_OK;
}

/* --- upload and download --- */

static const struct mcp_field upload_input[] = {
    {"host_path", "of the user's machine, below a directory that is mounted", MCP_STRING,
     true},
    {"path", "where it goes inside", MCP_STRING, true},
    MCP_SANDBOX_FIELD,
    {.name = NULL},
};

static const struct mcp_field download_input[] = {
    {"path", "inside", MCP_STRING, true},
    {"host_path",
     "where it goes on the user's machine, below a directory that is mounted writable",
     MCP_STRING, true},
    MCP_SANDBOX_FIELD,
    {.name = NULL},
};

static const struct mcp_field copy_output[] = {
    {"files", "that were copied", MCP_INTEGER, true},
    {"bytes", "in them", MCP_INTEGER, true},
    {"skipped", "special files, and links that lead out", MCP_INTEGER, true},
    {.name = NULL},
};

static int copy_file(cay_files *from, const char *source, cay_files *to,
                     const char *target, struct json *data, struct cay_error *err)
{
    const struct cay_write_options options = {.size = sizeof options,
                                              .flags = CAY_WRITE_KEEP};
    AUTO_FD fd = -1;
    uint64_t bytes = 0;

    TRY(cay_files_descriptor(from, source, CAY_DESCRIPTOR_READ, &fd, err));
    TRY(cay_files_write_from(to, target, fd, &options, &bytes, err));
    json_set_int(data, "files", 1);
    json_set_uint(data, "bytes", bytes);
    json_set_int(data, "skipped", 0);
    return CAY_OK;
}

static int copy(cay_files *from, const char *source, cay_files *to, const char *target,
                struct json *data, struct cay_error *err)
{
    struct cay_tree_result result;
    struct cay_stat stat;

    TRY(cay_files_stat(from, source, false, &stat, err));
    if (stat.type != CAY_TYPE_DIRECTORY)
        return copy_file(from, source, to, target, data, err);
    TRY(cay_files_copy_tree(from, source, to, target, NULL, &result, err));
    json_set_uint(data, "files", result.files);
    json_set_uint(data, "bytes", result.bytes);
    json_set_uint(data, "skipped", result.skipped);
    return CAY_OK;
}

static int upload(struct mcp_call *call, struct json *data, struct cay_error *err)
{
    cay_files *files, *host = NULL;

    TRY(mcp_files(call, &files, err));
    TRY(mcp_session_host(call->session, &host, err));
    int code = copy(host, mcp_text(call, "host_path", ""), files,
                    mcp_text(call, "path", ""), data, err);
    cay_files_free(host);
    return code;
}

static int download(struct mcp_call *call, struct json *data, struct cay_error *err)
{
    cay_files *files, *host = NULL;

    TRY(mcp_files(call, &files, err));
    TRY(mcp_session_host(call->session, &host, err));
    int code = copy(files, mcp_text(call, "path", ""), host,
                    mcp_text(call, "host_path", ""), data, err);
    cay_files_free(host);
    return code;
}

const struct mcp_tool mcp_file_tools[] = {
    {"read_file", "Read a file",
     "Read a text file of the sandbox, or any file as base64.", MCP_TOOL_READS,
     read_input, read_output, read_file},
    {"write_file", "Write a file",
     "Write a file of the sandbox: readers see the old content or the new one.",
     MCP_TOOL_DESTROYS | MCP_TOOL_WRITES, write_input, write_output, write_file},
    {"edit_file", "Edit a file", "Replace text in a file of the sandbox.",
     MCP_TOOL_DESTROYS | MCP_TOOL_WRITES, edit_input, edit_output, edit_file},
    {"list_files", "List files", "List a directory of the sandbox.",
     MCP_TOOL_READS | MCP_TOOL_WAITS, list_input, list_output, list_files},
    {"glob", "Find files", "Find files and directories of the sandbox by their names.",
     MCP_TOOL_READS | MCP_TOOL_WAITS, glob_input, glob_output, glob_files},
    {"grep", "Search in files", "Find lines in the text files of the sandbox.",
     MCP_TOOL_READS | MCP_TOOL_WAITS, grep_input, grep_output, grep_files},
    {"upload", "Copy into the sandbox",
     "Copy a file or the content of a directory of the user's machine into the sandbox.",
     MCP_TOOL_WAITS | MCP_TOOL_DESTROYS | MCP_TOOL_HOST, upload_input, copy_output,
     upload},
    {"download", "Copy out of the sandbox",
     "Copy a file or the content of a directory of the sandbox to the user's machine.",
     MCP_TOOL_WAITS | MCP_TOOL_DESTROYS | MCP_TOOL_HOST, download_input, copy_output,
     download},
    {.name = NULL},
};
