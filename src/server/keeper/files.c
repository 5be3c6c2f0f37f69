/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "server/keeper/keeper.h"

enum { WAIT_MS = 60000 };

/* The file handle for the user of the request, and its first path made absolute. */
static int begin(struct keeper *keeper, const struct keeper_request *request,
                 cay_files **ret_files, char path[PATH_MAX], struct cay_error *err)
{
    *ret_files = keeper_files(keeper, request->head.user, err);
    if (!*ret_files)
        return err->code;
    return entry_path(keeper, request->head.user, request->strings[0], path, err);
}

/* A single entry needs no REPLY_DONE. */
static int send_entry(struct keeper_request *request, cay_files *files, const char *path,
                      struct cay_error *err)
{
    struct names names;

    names_read(files, &names);
    return entry_send(files, &names, &(struct entry){path, path, NULL}, request->channel,
                      err);
}

int keeper_op_stat(struct keeper *keeper, struct keeper_request *request,
                   struct cay_error *err)
{
    char path[PATH_MAX];
    cay_files *files = NULL;
    int code = begin(keeper, request, &files, path, err);

    return code ? code : send_entry(request, files, path, err);
}

int keeper_op_make_dir(struct keeper *keeper, struct keeper_request *request,
                       struct cay_error *err)
{
    const struct cay_name_options options = {.size = sizeof options};
    char path[PATH_MAX];
    cay_files *files = NULL;
    struct cay_stat st;
    int code = begin(keeper, request, &files, path, err);

    if (!code)
        code = cay_files_mkdir(files, path, &options, err);
    if (code == CAY_E_EXISTS && cay_files_stat(files, path, false, &st, NULL) == CAY_OK &&
        st.type != CAY_TYPE_DIRECTORY)
        code = cay_fail(err, CAY_E_INVALID, 0, "files.mkdir", path,
                        "a file with this name exists", "choose another name");
    return code ? code : send_entry(request, files, path, err);
}

int keeper_op_move(struct keeper *keeper, struct keeper_request *request,
                   struct cay_error *err)
{
    const struct cay_name_options options = {
        .size = sizeof options, .flags = CAY_NAME_DIRECTORY | CAY_NAME_REPLACE};
    char from[PATH_MAX], to[PATH_MAX];
    cay_files *files = NULL;
    int code = begin(keeper, request, &files, from, err);

    if (!code)
        code = entry_path(keeper, request->head.user, request->strings[1], to, err);
    if (!code)
        code = cay_files_move(files, from, to, &options, err);
    return code ? code : send_entry(request, files, to, err);
}

int keeper_op_remove(struct keeper *keeper, struct keeper_request *request,
                     struct cay_error *err)
{
    const struct cay_name_options options = {.size = sizeof options,
                                             .flags = CAY_NAME_RECURSIVE};
    char path[PATH_MAX];
    cay_files *files = NULL;

    if (!*request->strings[0]) /* elsewhere "" means the home directory */
        return cay_fail(err, CAY_E_INVALID, 0, "files.delete", "path",
                        "the path is empty", "give the path to remove");
    int code = begin(keeper, request, &files, path, err);
    if (!code)
        code = cay_files_delete(files, path, &options, err);
    if (code == CAY_E_NOT_FOUND && !keeper_sandbox_is_gone(keeper, code))
        code = CAY_OK;
    if (!code)
        (void)reply_send_done(request->channel);
    return code;
}

/* --- Listing --- */

/* One page: entries that sort after `after`. */
static int list_once(cay_files *files, const char *path, uint32_t depth,
                     const char *after, struct cay_listing *ret_listing,
                     struct cay_error *err)
{
    const struct cay_list_options options = {
        .size = sizeof options,
        .flags = CAY_LIST_FILES | CAY_LIST_DIRECTORIES | CAY_LIST_LINKS | CAY_LIST_OTHER |
                 CAY_LIST_STAT,
        .after = after,
        .max_depth = depth,
        .timeout_ms = WAIT_MS,
    };

    return cay_files_list(files, path, &options, ret_listing, err);
}

/* If the requested path is a link, entries are shown below the requested path, not below
 * its target. */
static int send_listing(struct keeper_request *request, cay_files *files,
                        const char *path, const struct cay_listing *listing,
                        struct cay_error *err)
{
    struct cay_location location = {.size = sizeof location};
    struct names names;
    char shown[2 * PATH_MAX];
    int code = cay_files_locate(files, path, CAY_ACCESS_READ, &location, err);

    if (code)
        return code;
    size_t skip = strcmp(location.path, "/") == 0 ? 0 : strlen(location.path);
    bool is_plain = true;
    names_read(files, &names);
    for (size_t i = 0; i < listing->count && !code; i++) {
        const char *found = listing->entries[i].path;
        const struct cay_stat *stat = &listing->entries[i].stat;
        /* A link count of 0: the entry disappeared, or its stat failed. */
        const struct entry entry = {found, shown, stat->links ? stat : NULL};
        is_plain = strncmp(found, location.path, skip) == 0;
        snprintf(shown, sizeof shown, "%s%s", strcmp(path, "/") == 0 ? "" : path,
                 is_plain ? found + skip : found + strlen(path));
        code = keeper_wait_writable(request->channel, err);
        if (!code)
            code = entry_send(files, &names, &entry, request->channel, err);
        if (code == CAY_E_NOT_FOUND)
            code = CAY_OK; /* it disappeared meanwhile */
    }
    cay_location_done(&location);
    return code;
}

static int list_all(struct keeper_request *request, cay_files *files, const char *path,
                    uint32_t depth, struct cay_error *err)
{
    AUTO_FREE char *after = NULL;
    bool has_more = true;
    int code = CAY_OK;

    while (!code && has_more) {
        struct cay_listing listing = {0};
        AUTO_FD readable = -1;
        code = list_once(files, path, depth, after, &listing, err);
        if (!code && listing.count == 0 && !after) /* empty, or unreadable? */
            code = cay_files_descriptor(files, path, CAY_DESCRIPTOR_DIRECTORY, &readable,
                                        err);
        if (!code)
            code = send_listing(request, files, path, &listing, err);
        has_more = listing.truncated && listing.count > 0;
        free(after);
        after = has_more ? strdup(listing.entries[listing.count - 1].path) : NULL;
        cay_listing_done(&listing);
        if (!code && has_more && !after)
            code = cay_fail_memory(err, "files.list");
    }
    return code;
}

int keeper_op_list_dir(struct keeper *keeper, struct keeper_request *request,
                       struct cay_error *err)
{
    int64_t depth = request->head.numbers[LIST_DIR_DEPTH];
    char path[PATH_MAX];
    cay_files *files = NULL;
    struct cay_stat st;
    int code = begin(keeper, request, &files, path, err);

    if (!code)
        code = cay_files_stat(files, path, false, &st, err);
    if (!code && st.type != CAY_TYPE_DIRECTORY)
        code = cay_fail(err, CAY_E_INVALID, ENOTDIR, "files.list", path,
                        "path is not a directory", "list its parent directory");
    if (!code)
        code = list_all(request, files, path, depth < 1 ? 1 : (uint32_t)depth, err);
    if (!code)
        (void)reply_send_done(request->channel);
    return code;
}

/* --- Whole files --- */

int keeper_send_file(struct keeper *keeper, const struct keeper_request *request, int fd,
                     const char *path, uint64_t room, struct cay_error *err)
{
    struct reply reply = {.kind = REPLY_FILE, .count = 2};
    struct stat st;
    AUTO_BUF strings = {.max = PATH_MAX + CAY_ID_MAX};

    if (fstat(fd, &st) != 0)
        return cay_fail_errno(err, errno, "files.open", path);
    reply.numbers[FILE_SIZE] = st.st_size;
    reply.numbers[FILE_MTIME] = st.st_mtim.tv_sec;
    reply.numbers[FILE_RESERVED] = (int64_t)room;
    strings_add(&strings, path);
    strings_add(&strings, cay_sandbox_id(keeper->sandbox) + strlen("sb-"));
    (void)reply_send(request->channel, &reply, &strings, fd);
    return CAY_OK;
}

int keeper_op_read_file(struct keeper *keeper, struct keeper_request *request,
                        struct cay_error *err)
{
    char path[PATH_MAX];
    cay_files *files = NULL;
    AUTO_FD fd = -1;
    int code = begin(keeper, request, &files, path, err);

    if (!code)
        code = cay_files_descriptor(files, path, CAY_DESCRIPTOR_READ, &fd, err);
    return code ? code : keeper_send_file(keeper, request, fd, path, 0, err);
}
