/* SPDX-License-Identifier: Apache-2.0 */

/* The files of a volume.  Names and links in it come from sandboxes, so they are followed
 * inside: in a sandbox that has nothing else, through a handle that covers only the
 * volume.  One keeper serves all requests about a volume; it ends the sandbox when it is
 * idle, since a volume in use cannot be removed. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "cay/volume.h"
#include "server/keeper/keeper.h"

static const char op[] = "server.volume";
static const char top[] = CAY_VOLUME_PATH;

enum {
    FILE_MODE = 0644,
    DIRECTORY_MODE = 0755,
    LIST_MS = 60000,
    SECOND_NS = 1000000000,
    SECONDS_MAX = INT32_MAX /* of a time that a program inside has set */
};

/* --- The sandbox --- */

void keeper_content_close(struct keeper *keeper)
{
    for (int i = 0; i < KEEPER_USERS; i++) {
        cay_files_free(keeper->users[i].files);
        keeper->users[i].files = NULL;
    }
    if (keeper->life > 0) {
        keeper_poll_remove(keeper, keeper->life);
        (void)close(keeper->life);
    }
    keeper->life = 0;
    if (!keeper->sandbox)
        return;
    (void)!cay_sandbox_remove(keeper->sandbox, NULL);
    cay_sandbox_free(TAKE_PTR(keeper->sandbox));
}

static int open_volume(struct keeper *keeper, const char *id, struct cay_error *err)
{
    char name[CAY_NAME_MAX];

    keeper->is_volume = true;
    if (keeper->sandbox)
        return CAY_OK;
    (void)prctl(PR_SET_NAME, KEEPER_NAME);
    snprintf(name, sizeof name, "e2b.%s", id);
    int code = cay_volume_open(name, &keeper->sandbox, err);
    return code == CAY_E_NOT_FOUND
               ? cay_fail(err, code, 0, op, NULL, "there is no such volume",
                          "list the volumes")
               : code;
}

/* --- Entries --- */

static int64_t nanoseconds(struct timespec time)
{
    time_t seconds = time.tv_sec > SECONDS_MAX    ? SECONDS_MAX
                     : time.tv_sec < -SECONDS_MAX ? -SECONDS_MAX
                                                  : time.tv_sec;

    return (int64_t)seconds * SECOND_NS + time.tv_nsec;
}

/* Times that struct cay_stat lacks, if the entry can be opened. */
static void add_times(cay_files *files, const char *path, const struct cay_stat *entry,
                      int64_t *numbers)
{
    AUTO_FD fd = -1;
    struct stat st;
    bool is_directory = entry->type == CAY_TYPE_DIRECTORY;

    numbers[CONTENT_ATIME_NS] = numbers[CONTENT_CTIME_NS] = numbers[CONTENT_MTIME_NS];
    if ((!is_directory && entry->type != CAY_TYPE_FILE) ||
        cay_files_descriptor(
            files, path, is_directory ? CAY_DESCRIPTOR_DIRECTORY : CAY_DESCRIPTOR_READ,
            &fd, NULL) != CAY_OK ||
        fstat(fd, &st) != 0)
        return;
    numbers[CONTENT_ATIME_NS] = nanoseconds(st.st_atim);
    numbers[CONTENT_CTIME_NS] = nanoseconds(st.st_ctim);
}

/* `shown`: the path for the client. */
static int send_entry(const struct keeper_request *request, cay_files *files,
                      const char *path, const char *shown, struct cay_error *err)
{
    struct reply reply = {.kind = REPLY_CONTENT, .count = 2};
    AUTO_BUF strings = {.max = CHANNEL_PACKET};
    AUTO_FREE char *target = NULL;
    struct cay_stat st;

    TRY(cay_files_stat(files, path, true, &st, err));
    if (st.type == CAY_TYPE_LINK)
        (void)!cay_files_read_link(files, path, &target, NULL);
    reply.numbers[CONTENT_TYPE] = st.type;
    reply.numbers[CONTENT_SIZE] = (int64_t)st.bytes;
    reply.numbers[CONTENT_PERMISSIONS] = st.mode;
    reply.numbers[CONTENT_OWNER] = st.uid;
    reply.numbers[CONTENT_GROUP] = st.gid;
    reply.numbers[CONTENT_MTIME_NS] = st.mtime_ns;
    add_times(files, path, &st, reply.numbers);
    strings_add(&strings, *shown ? shown : "/");
    strings_add(&strings, target ? target : "");
    int error = reply_send(request->channel, &reply, &strings, -1);
    return error ? cay_fail_errno(err, -error, op, shown) : CAY_OK;
}

static int send_listing(const struct keeper_request *request, cay_files *files,
                        const struct cay_listing *listing, size_t skip, const char *shown,
                        struct cay_error *err)
{
    char path[2 * PATH_MAX];
    int code = CAY_OK;

    for (size_t i = 0; i < listing->count && !code; i++) {
        const char *found = listing->entries[i].path;
        snprintf(path, sizeof path, "%s%s", shown, found + skip);
        TRY(keeper_wait_writable(request->channel, err));
        code = send_entry(request, files, found, path, err);
        if (code == CAY_E_NOT_FOUND)
            code = CAY_OK; /* it disappeared meanwhile */
    }
    return code;
}

/* Page by page.  `location` is the directory without links. */
static int list(const struct keeper_request *request, cay_files *files,
                const char *location, const char *shown, struct cay_error *err)
{
    int64_t depth = request->head.numbers[LIST_DIR_DEPTH];
    struct cay_list_options options = {
        .size = sizeof options,
        .flags = CAY_LIST_FILES | CAY_LIST_DIRECTORIES | CAY_LIST_LINKS | CAY_LIST_OTHER,
        .max_depth = depth < 1 ? 1 : (uint32_t)depth,
        .timeout_ms = LIST_MS,
    };
    AUTO_FREE char *after = NULL;
    bool has_more = true;
    int code = CAY_OK;

    while (!code && has_more) {
        struct cay_listing listing = {0};
        options.after = after;
        code = cay_files_list(files, location, &options, &listing, err);
        if (!code)
            code = send_listing(request, files, &listing, strlen(location), shown, err);
        has_more = listing.truncated && listing.count > 0;
        free(after);
        after = has_more ? strdup(listing.entries[listing.count - 1].path) : NULL;
        cay_listing_done(&listing);
        if (!code && has_more && !after)
            code = cay_fail_memory(err, op);
    }
    return code;
}

static int list_directory(const struct keeper_request *request, cay_files *files,
                          const char *path, struct cay_error *err)
{
    struct cay_location location = {.size = sizeof location};
    struct cay_stat st;

    TRY(cay_files_stat(files, path, false, &st, err));
    if (st.type != CAY_TYPE_DIRECTORY)
        return cay_fail(err, CAY_E_NOT_FOUND, ENOTDIR, op, path, "not a directory",
                        "list its parent directory");
    TRY(cay_files_locate(files, path, CAY_ACCESS_READ, &location, err));
    int code = list(request, files, location.path, path + sizeof top - 1, err);
    cay_location_done(&location);
    return code ? code : KEEPER_DONE;
}

/* --- Changes --- */

/* What the request gives, and for a new entry the default mode. */
static int change(const struct keeper_request *request, cay_files *files,
                  const char *path, int new_mode, struct cay_error *err)
{
    const int64_t *numbers = request->head.numbers;
    struct cay_attributes wanted = {.size = sizeof wanted};
    int64_t mode = numbers[CONTENT_MODE] < 0 ? new_mode : numbers[CONTENT_MODE];

    if (mode >= 0) {
        wanted.flags |= CAY_ATTRIBUTE_MODE;
        wanted.mode = (uint32_t)mode;
    }
    if (numbers[CONTENT_UID] >= 0) {
        wanted.flags |= CAY_ATTRIBUTE_OWNER;
        wanted.uid = (uint32_t)numbers[CONTENT_UID];
    }
    if (numbers[CONTENT_GID] >= 0) {
        wanted.flags |= CAY_ATTRIBUTE_GROUP;
        wanted.gid = (uint32_t)numbers[CONTENT_GID];
    }
    return wanted.flags ? cay_files_set_attributes(files, path, &wanted, err) : CAY_OK;
}

static bool exists(cay_files *files, const char *path)
{
    struct cay_stat st;

    return cay_files_stat(files, path, true, &st, NULL) == CAY_OK;
}

static int make_directory(const struct keeper_request *request, cay_files *files,
                          const char *path, struct cay_error *err)
{
    bool is_forced = request->head.flags & CONTENT_FORCE;
    const struct cay_name_options options = {.size = sizeof options,
                                             .flags = is_forced ? CAY_NAME_EXIST_OK
                                                                : CAY_NAME_NO_PARENTS};
    bool is_new = !exists(files, path);

    TRY(cay_files_mkdir(files, path, &options, err));
    TRY(change(request, files, path, is_new ? DIRECTORY_MODE : -1, err));
    return send_entry(request, files, path, path + sizeof top - 1, err);
}

static int remove_tree(cay_files *files, const char *path, struct cay_error *err)
{
    const struct cay_name_options options = {.size = sizeof options,
                                             .flags = CAY_NAME_RECURSIVE};

    if (strcmp(path, top) == 0)
        return cay_fail(err, CAY_E_NOT_FOUND, 0, op, "/",
                        "the volume itself cannot be removed this way",
                        "name a path below it");
    TRY(cay_files_delete(files, path, &options, err));
    return KEEPER_DONE;
}

/* --- Whole files --- */

/* Another request, about the path inside. */
static struct keeper_request request_of(const struct keeper_request *request,
                                        const char **strings, uint32_t count)
{
    struct keeper_request other = *request;

    other.head.flags = 0;
    other.head.count = count;
    other.head.numbers[FILE_METADATA] = 0;
    other.strings = strings;
    return other;
}

static int read_file(struct keeper *keeper, const struct keeper_request *request,
                     const char *path, struct cay_error *err)
{
    const char *strings[] = {path};
    struct keeper_request other = request_of(request, strings, 1);
    int code = keeper_op_read_file(keeper, &other, err);

    return code == CAY_E_NOT_A_FILE ? cay_fail(err, CAY_E_NOT_FOUND, 0, op, path,
                                               "not a file", "list it, or name a file")
                                    : code;
}

/* The empty file takes the name in one step: of several that create it, one succeeds. */
static int write_file(struct keeper *keeper, struct keeper_request *request,
                      cay_files *files, const char *path, struct cay_error *err)
{
    const struct cay_write_options new_file = {
        .size = sizeof new_file, .flags = CAY_WRITE_NEW | CAY_WRITE_NO_PARENTS};
    const struct cay_name_options options = {.size = sizeof options};
    const char *strings[] = {path, path};
    struct keeper_request other = request_of(request, strings, 2);
    struct cay_stat st;

    int code = cay_files_write(files, path, "", 0, &new_file, err);
    bool is_new = !code;
    if (code == CAY_E_NOT_A_FILE)
        err->code = code = CAY_E_EXISTS;
    if (code == CAY_E_EXISTS && request->head.flags & CONTENT_FORCE &&
        cay_files_stat(files, path, false, &st, NULL) == CAY_OK &&
        st.type == CAY_TYPE_FILE)
        code = CAY_OK;
    if (!code)
        code = change(request, files, path, is_new ? FILE_MODE : -1, err);
    if (!code)
        code = keeper_op_write_file(keeper, &other, err);
    request->channel = other.channel; /* -1: the upload has it */
    if (code && is_new)
        (void)!cay_files_delete(files, path, &options, NULL);
    return code;
}

/* --- Requests --- */

/* ".." is resolved as text, and stays in the volume. */
static int volume_path(struct keeper *keeper, const char *given, char ret_path[PATH_MAX],
                       struct cay_error *err)
{
    char absolute[PATH_MAX + 1], clean[PATH_MAX];

    int len = snprintf(absolute, sizeof absolute, "/%s", given);
    if (len < PATH_MAX - (int)sizeof top)
        TRY(entry_path(keeper, "root", absolute, clean, err));
    else
        return cay_fail(err, CAY_E_INVALID, ENAMETOOLONG, op, NULL,
                        "the path is too long", "use at most %d bytes",
                        PATH_MAX - (int)sizeof top);
    snprintf(ret_path, PATH_MAX, "%s%.*s", top, PATH_MAX - (int)sizeof top,
             strcmp(clean, "/") == 0 ? "" : clean);
    return CAY_OK;
}

static int run(struct keeper *keeper, struct keeper_request *request, cay_files *files,
               const char *path, struct cay_error *err)
{
    enum op wanted = (enum op)request->head.op;

    if (wanted == OP_CONTENT_REMOVE)
        return remove_tree(files, path, err);
    if (wanted == OP_CONTENT_LIST)
        return list_directory(request, files, path, err);
    if (wanted == OP_CONTENT_MAKE_DIR)
        return make_directory(request, files, path, err);
    if (wanted == OP_CONTENT_READ)
        return read_file(keeper, request, path, err);
    if (wanted == OP_CONTENT_WRITE)
        return write_file(keeper, request, files, path, err);
    if (wanted == OP_CONTENT_CHANGE)
        TRY(change(request, files, path, -1, err));
    return send_entry(request, files, path, path + sizeof top - 1, err);
}

/* In the words of a client, to which the volume is all there is. */
static int translate(int code, struct cay_error *err)
{
    size_t skip = sizeof top - 1;

    if (code == CAY_E_OUTSIDE || code == CAY_E_READ_ONLY) /* of a read, of a change */
        return cay_fail(err, CAY_E_INVALID, 0, op, NULL,
                        "the path leads out of the volume through a symbolic link",
                        "name the file itself");
    if (code == CAY_E_NOT_A_DIRECTORY) /* a parent is a file */
        err->code = code = CAY_E_NOT_FOUND;
    if (strncmp(err->subject, top, skip) == 0)
        memmove(err->subject, err->subject + skip, strlen(err->subject + skip) + 1);
    return code;
}

int keeper_op_content(struct keeper *keeper, struct keeper_request *request,
                      struct cay_error *err)
{
    char path[PATH_MAX];

    TRY(open_volume(keeper, request->strings[0], err));
    cay_copy_text(request->head.user, USER_MAX, "root"); /* owner of new files */
    cay_files *files = keeper_files(keeper, "root", err);
    if (!files)
        return err->code;
    TRY(volume_path(keeper, request->strings[1], path, err));
    return translate(run(keeper, request, files, path, err), err);
}
