/* SPDX-License-Identifier: Apache-2.0 */

/* Resources: files as cay://files/PATH, the output of processes as cay://processes/PID.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/error.h"
#include "base/utf8.h"
#include "mcp/session.h"

enum { PAGE = 200, DEPTH = 3, FILE_MAX = 4 << 20, OUTPUT_MAX = 1 << 20, LIST_MS = 2000 };

static const char op[] = "mcp.resources", files_uri[] = "cay://files",
                  processes_uri[] = "cay://processes/";

void mcp_resources_put_templates(struct json *json)
{
    json_put_key(json, "resourceTemplates");
    json_put_raw(json, "[{\"uriTemplate\":\"cay://files{/path*}\",\"name\":\"file\","
                       "\"title\":\"A file of the sandbox, by its absolute path\"},"
                       "{\"uriTemplate\":\"cay://processes/{pid}\",\"name\":\"process\","
                       "\"title\":\"Output of a background process\","
                       "\"mimeType\":\"text/plain\"}]");
}

/* --- Lists --- */

static void put_encoded(struct buf *text, const char *path)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                "0123456789-._~/";

    for (; *path; path++)
        if (strchr(plain, *path))
            (void)buf_append(text, path, 1);
        else
            (void)buf_format(text, "%%%02X", (unsigned)(unsigned char)*path);
}

static void put_resource(struct json *json, const char *uri, const char *name,
                         const char *mime)
{
    json_put_object(json);
    json_set_text(json, "uri", uri);
    json_set_text(json, "name", name);
    if (mime)
        json_set_text(json, "mimeType", mime);
}

static int put_processes(struct mcp_box *box, struct json *json, struct cay_error *err)
{
    AUTO_FREE struct cay_process_info *infos = NULL;
    char uri[64];
    size_t count = 0;

    TRY(cay_process_list(box->sandbox, &infos, &count, err));
    for (size_t i = 0; i < count; i++) {
        if (!infos[i].is_background)
            continue;
        snprintf(uri, sizeof uri, "%s%d", processes_uri, infos[i].pid);
        put_resource(json, uri, infos[i].command, "text/plain");
        json_put_end(json);
    }
    return CAY_OK;
}

static void put_file(struct json *json, const struct cay_entry *entry)
{
    AUTO_BUF uri = {0};

    buf_init(&uri, 64 << 10);
    (void)buf_text(&uri, files_uri);
    put_encoded(&uri, entry->path);
    if (uri.failed)
        return;
    put_resource(json, uri.data, entry->path, NULL);
    json_set_uint(json, "size", entry->stat.bytes);
    json_put_end(json);
}

static int open_files(struct mcp_box *box, cay_files **ret_files, struct cay_error *err)
{
    if (!box->files)
        TRY(cay_sandbox_files(box->sandbox, NULL, &box->files, err));
    *ret_files = box->files;
    return CAY_OK;
}

/* Clients list resources at their start, which creates no sandbox. */
int mcp_resources_list(struct mcp_session *session, const char *cursor, struct json *json,
                       struct cay_error *err)
{
    const struct cay_list_options options = {.size = sizeof options,
                                             .flags = CAY_LIST_FILES | CAY_LIST_STAT,
                                             .after = cursor,
                                             .max_entries = PAGE,
                                             .max_depth = DEPTH,
                                             .timeout_ms = LIST_MS};
    struct mcp_box *box = &session->boxes[0];
    struct cay_listing listing = {.entries = NULL};
    cay_files *files;

    json_put_key(json, "resources");
    json_put_array(json);
    if (box->sandbox) {
        TRY(open_files(box, &files, err));
        if (!cursor)
            TRY(put_processes(box, json, err));
        TRY(cay_files_list(files, ".", &options, &listing, err));
    }
    for (size_t i = 0; i < listing.count; i++)
        put_file(json, &listing.entries[i]);
    json_put_end(json);
    if (listing.truncated)
        json_set_text(json, "nextCursor", listing.entries[listing.count - 1].path);
    cay_listing_done(&listing);
    return CAY_OK;
}

/* --- Contents --- */

static int hex_of(char letter)
{
    static const char digits[] = "0123456789abcdef0123456789ABCDEF";
    const char *found = letter ? strchr(digits, letter) : NULL;

    return found ? (int)(found - digits) % 16 : -1;
}

static char *decode(const char *text)
{
    char *path = malloc(strlen(text) + 1), *to = path;

    while (path && *text) {
        int high = *text == '%' ? hex_of(text[1]) : -1;
        int low = high >= 0 ? hex_of(text[2]) : -1;
        *to++ = low >= 0 ? (char)(high * 16 + low) : *text;
        text += low >= 0 ? 3 : 1;
    }
    if (path)
        *to = '\0';
    return path;
}

static int put_content(struct json *json, const char *uri, const char *data, size_t len,
                       struct cay_error *err)
{
    bool is_text = utf8_is_valid(data, len);
    AUTO_FREE char *base64 = is_text ? NULL : mcp_base64(data, len);

    if (!is_text && !base64)
        return cay_fail_memory(err, op);
    json_put_key(json, "contents");
    json_put_array(json);
    json_put_object(json);
    json_set_text(json, "uri", uri);
    json_set_text(json, "mimeType", is_text ? "text/plain" : "application/octet-stream");
    if (is_text) {
        json_put_key(json, "text");
        json_put_bytes(json, data, len);
    } else {
        json_set_text(json, "blob", base64);
    }
    json_put_end(json);
    json_put_end(json);
    return CAY_OK;
}

static int read_file(struct mcp_box *box, const char *uri, struct json *json,
                     struct cay_error *err)
{
    const struct cay_read_options options = {.size = sizeof options, .max = FILE_MAX};
    AUTO_FREE char *path = decode(uri + strlen(files_uri));
    struct cay_page page;
    cay_files *files;

    if (!path)
        return cay_fail_memory(err, op);
    TRY(open_files(box, &files, err));
    TRY(cay_files_read_bytes(files, path, &options, &page, err));
    int code = page.truncated
                   ? cay_fail(err, CAY_E_LIMIT, 0, op, uri, "the file is too large",
                              "read_file reads it in parts; the limit is 4 MiB")
                   : put_content(json, uri, page.text ? page.text : "", page.len, err);
    cay_page_done(&page);
    return code;
}

static int read_process(struct mcp_box *box, const char *uri, struct json *json,
                        struct cay_error *err)
{
    char data[16 << 10];
    cay_process *process = NULL;
    int which = 1;
    size_t len;
    AUTO_BUF text = {0};

    TRY(cay_process_attach(box->sandbox, uri + strlen(processes_uri), &process, err));
    buf_init(&text, 2 * (size_t)OUTPUT_MAX + sizeof data);
    int code = CAY_OK;
    while (!code && which > 0 && text.len < 2 * (size_t)OUTPUT_MAX) {
        code = cay_process_read(process, &which, data, sizeof data, &len, NULL, err);
        if (!code && which > 0)
            (void)buf_append(&text, data, len);
    }
    cay_process_free(process);
    return code ? code
                : put_content(json, uri, text.data ? text.data : "", text.len, err);
}

int mcp_resource_read(struct mcp_session *session, const char *uri, struct json *json,
                      struct cay_error *err)
{
    bool is_process = strncmp(uri, processes_uri, strlen(processes_uri)) == 0;
    bool is_file =
        strncmp(uri, files_uri, strlen(files_uri)) == 0 && uri[strlen(files_uri)] == '/';
    struct mcp_box *box;

    if (!is_process && !is_file)
        return cay_fail(err, CAY_E_NOT_FOUND, 0, op, uri, "no such resource",
                        "cay://files/PATH is a file, cay://processes/PID a process");
    TRY(mcp_session_box(session, NULL, &box, err));
    return is_process ? read_process(box, uri, json, err)
                      : read_file(box, uri, json, err);
}
