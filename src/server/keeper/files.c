/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "server/keeper/keeper.h"
#include "sys/io.h"
#include "sys/rights.h"

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
    return code ? code : KEEPER_DONE;
}

/* --- Listing --- */

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

/* Page by page. */
static int list_all(struct keeper_request *request, cay_files *files, const char *path,
                    uint32_t depth, struct cay_error *err)
{
    struct cay_list_options options = {
        .size = sizeof options,
        .flags = CAY_LIST_FILES | CAY_LIST_DIRECTORIES | CAY_LIST_LINKS | CAY_LIST_OTHER |
                 CAY_LIST_STAT,
        .max_depth = depth,
        .timeout_ms = WAIT_MS,
    };
    AUTO_FREE char *after = NULL;
    bool has_more = true;
    int code = CAY_OK;

    while (!code && has_more) {
        struct cay_listing listing = {0};
        AUTO_FD readable = -1;
        options.after = after; /* entries that sort after it */
        code = cay_files_list(files, path, &options, &listing, err);
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
    return code ? code : KEEPER_DONE;
}

/* --- Whole files --- */

/* Replies with an open file, of which `room` bytes are reserved for writing. */
static int send_file(struct keeper *keeper, const struct keeper_request *request, int fd,
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
    return code ? code : send_file(keeper, request, fd, path, 0, err);
}

/* --- Uploads --- */

/* The front writes an upload through a descriptor, and sends a message on the channel
 * when the file is complete.  If the channel is closed before that (no space, a malformed
 * body, a client that disconnected, a front that crashed), the file is removed: its old
 * content was truncated, and a partial file would use disk space.  If several uploads
 * write to one file, the last of them that fails removes it, unless one was completed.
 *
 * The pages of a file in memory are charged to the process that allocates them.  To
 * charge the sandbox and not the front, they are reserved before the front writes: all at
 * once if the length is known, else a step ahead on request of the front. */

static const char write_op[] = "files.write";

enum { STEP_AHEAD = 4 << 20 };

struct upload {
    struct task task;
    struct keeper_source source;
    struct upload *next;
    char user[USER_MAX];
    int fd;
    dev_t device;
    ino_t inode;
    uint64_t bound, room; /* FILE_BOUND, and the end of the reserved space */
    bool is_shared;       /* another upload was completed since the last truncation */
    char path[];
};

static struct upload *uploads; /* of this keeper */

/* The next upload to the same file after `from` (NULL: the first).  Finished uploads that
 * are not freed yet are skipped. */
static struct upload *next_upload(const struct upload *from, const struct stat *st)
{
    struct upload *at = from ? from->next : uploads;

    while (at &&
           (at->task.is_over || at->inode != st->st_ino || at->device != st->st_dev))
        at = at->next;
    return at;
}

static void upload_done(struct task *task)
{
    struct upload *upload = (struct upload *)task, **link = &uploads;

    while (*link != upload)
        link = &(*link)->next;
    *link = upload->next;
    (void)close(upload->fd);
    free(upload);
}

/* Removes the file, or the target of a link, unless the name refers to another file by
 * now or another upload writes to the file. */
static void remove_file(cay_files *files, const char *path, int fd)
{
    const struct cay_name_options options = {.size = sizeof options};
    struct cay_location location = {.size = sizeof location};
    struct stat own, now;
    AUTO_FD named = -1;

    if (fstat(fd, &own) != 0 || next_upload(NULL, &own))
        return;
    (void)!ftruncate(fd, 0); /* it may have other names */
    if (cay_files_locate(files, path, CAY_ACCESS_WRITE, &location, NULL) != CAY_OK)
        return;
    if (cay_files_descriptor(files, location.path, CAY_DESCRIPTOR_READ, &named, NULL) ==
            CAY_OK &&
        fstat(named, &now) == 0 && own.st_ino == now.st_ino && own.st_dev == now.st_dev)
        (void)!cay_files_delete(files, location.path, &options, NULL);
    cay_location_done(&location);
}

static int fail_disk(struct cay_error *err)
{
    return cay_fail(err, CAY_E_NO_SPACE, ENOSPC, write_op, NULL,
                    "Not enough disk space available",
                    "remove files, or start the server with a larger --disk");
}

static int reserve(cay_files *files, int fd, uint64_t offset, uint64_t bytes,
                   struct cay_error *err)
{
    int code = cay_files_reserve(files, fd, offset, bytes, err);

    return code && err->sys_errno == ENOSPC ? fail_disk(err) : code;
}

/* As far ahead as the memory limit and the bound allow, but at least the requested bytes.
 */
static int reserve_step(struct keeper *keeper, struct upload *upload,
                        const struct upload_step *step, uint64_t *ret_end,
                        struct cay_error *err)
{
    uint64_t ahead = STEP_AHEAD, offset = step->offset;
    uint64_t left = upload->bound > offset ? upload->bound - offset : 0;
    cay_files *files = keeper_files(keeper, upload->user, err);

    if (!files)
        return err->code;
    if (step->bytes > UPLOAD_STEP || offset > INT64_MAX - UPLOAD_STEP)
        return cay_fail(err, CAY_E_PROTOCOL, 0, write_op, NULL,
                        "the request is malformed",
                        "restart the server; report a bug if it happens again");
    if (upload->bound && ahead > left)
        ahead = left;
    if (ahead < step->bytes)
        ahead = step->bytes;
    int code = reserve(files, upload->fd, offset, ahead, err);
    if (code == CAY_E_NO_SPACE && ahead > step->bytes) {
        ahead = step->bytes;
        code = reserve(files, upload->fd, offset, ahead, err);
    }
    *ret_end = offset + ahead;
    if (upload->room < *ret_end)
        upload->room = *ret_end;
    return code;
}

/* Frees the space reserved beyond `end` and the end of the file.  If another upload
 * writes to the file, it does so when it finishes. */
static void free_rest(int fd, uint64_t end, uint64_t room)
{
    struct stat st;
    struct upload *other = fstat(fd, &st) == 0 ? next_upload(NULL, &st) : NULL;

    if (!other)
        io_free_room(fd, end, room);
    else if (other->room < room)
        other->room = room;
}

static void set_shared(int fd, bool is_shared)
{
    struct upload *other = NULL;
    struct stat st;

    while (fstat(fd, &st) == 0 && (other = next_upload(other, &st)))
        other->is_shared = is_shared;
}

static void on_step(struct keeper *keeper, struct keeper_source *source, unsigned events)
{
    struct upload *upload =
        (struct upload *)((char *)source - offsetof(struct upload, source));
    struct reply reply = {.kind = REPLY_RESERVED};
    struct cay_error error = {0};
    struct upload_step step;
    struct iovec part = {&step, sizeof step};
    size_t count;
    ssize_t got =
        rights_receive(upload->task.channel, &part, 1, NULL, 0, &count, MSG_DONTWAIT);

    (void)events;
    if (got == -EAGAIN || upload->task.is_over)
        return;
    bool is_step = got == sizeof step;
    if (is_step && step.bytes) {
        uint64_t end = 0;
        int code = reserve_step(keeper, upload, &step, &end, &error);
        reply.numbers[RESERVED_END] = (int64_t)end;
        if (!code && reply_send(upload->task.channel, &reply, NULL, -1) == 0)
            return;
        if (code && keeper_sandbox_is_gone(keeper, code))
            keeper_exit();
    }
    upload->task.is_over = true;
    keeper_poll_remove(keeper, upload->task.channel);
    bool is_whole = is_step && !step.bytes;
    cay_files *files =
        is_whole || upload->is_shared ? NULL : keeper_files(keeper, upload->user, NULL);
    if (is_whole)
        set_shared(upload->fd, true);
    else if (files)
        remove_file(files, upload->path, upload->fd);
    free_rest(upload->fd, is_whole ? step.offset : 0, upload->room);
    if (error.code)
        (void)reply_send_error(upload->task.channel, 0, &error);
}

/* If memory or descriptors are exhausted the upload continues, but a failed one is not
 * undone. */
static void add_upload(struct keeper *keeper, struct keeper_request *request, int *fd,
                       const char *path, uint64_t room)
{
    int64_t bound = request->head.numbers[FILE_BOUND];
    struct upload *upload = calloc(1, sizeof *upload + strlen(path) + 1);
    struct stat st;

    if (!upload || fstat(*fd, &st) != 0 ||
        !keeper_poll_add(keeper, request->channel, EPOLLIN, &upload->source)) {
        free(upload);
        return;
    }
    upload->task = (struct task){.channel = request->channel, .done = upload_done};
    upload->source.ready = on_step;
    upload->fd = TAKE_FD(*fd);
    upload->device = st.st_dev;
    upload->inode = st.st_ino;
    upload->bound = bound > 0 ? (uint64_t)bound : 0;
    upload->room = room;
    memcpy(upload->user, request->head.user, sizeof upload->user);
    memcpy(upload->path, path, strlen(path) + 1);
    upload->next = uploads;
    uploads = upload;
    request->channel = -1;
    keeper_add_task(keeper, &upload->task);
}

/* Before the old content is truncated. */
static int check_room(int fd, int64_t length, struct cay_error *err)
{
    struct statvfs disk;
    struct stat st;

    if (length <= 0 || fstat(fd, &st) != 0 || fstatvfs(fd, &disk) != 0 || !disk.f_blocks)
        return CAY_OK;
    uint64_t room =
        (uint64_t)disk.f_bavail * disk.f_frsize + (uint64_t)st.st_blocks * 512;
    return (uint64_t)length <= room ? CAY_OK : fail_disk(err);
}

/* The old content is kept if the new one does not fit even in addition to its pages;
 * otherwise *ret_is_lost is set.  With an unknown length the first step is optional: the
 * front requests more. */
static int truncate_and_reserve(cay_files *files, int fd, const int64_t *numbers,
                                bool *ret_is_lost, uint64_t *ret_room,
                                struct cay_error *err)
{
    uint64_t length = numbers[FILE_LENGTH] > 0 ? (uint64_t)numbers[FILE_LENGTH] : 0;
    uint64_t bound = numbers[FILE_BOUND] > 0 ? (uint64_t)numbers[FILE_BOUND] : 0;
    struct cay_error unused = {0};
    struct stat st;
    int code = CAY_OK;

    if (fstat(fd, &st) != 0)
        return cay_fail_errno(err, errno, write_op, NULL);
    uint64_t old = (uint64_t)st.st_size;
    if (old && old < length)
        code = reserve(files, fd, old, length - old, err);
    if (code)
        return code;
    if (ftruncate(fd, 0) != 0)
        return cay_fail_errno(err, errno, write_op, NULL);
    *ret_is_lost |= old > 0;
    set_shared(fd, false);
    *ret_room = length ? length : bound < STEP_AHEAD ? bound : STEP_AHEAD;
    code = reserve(files, fd, 0, *ret_room, length ? err : &unused);
    if (code)
        *ret_room = 0;
    return length ? code : CAY_OK;
}

/* Replaces all metadata. */
static int set_metadata(int fd, const char *const *pairs, int64_t count,
                        struct cay_error *err)
{
    char list[8192], name[300];
    ssize_t len = flistxattr(fd, list, sizeof list);

    for (const char *at = list; len > 0 && at < list + len; at += strlen(at) + 1)
        if (strncmp(at, "user.e2b.", 9) == 0)
            (void)fremovexattr(fd, at);
    for (int64_t i = 0; i < count; i++) {
        const char *value = pairs[2 * i + 1];
        snprintf(name, sizeof name, "user.e2b.%s", pairs[2 * i]);
        if (fsetxattr(fd, name, value, strlen(value), 0) != 0)
            return errno == EOPNOTSUPP
                       ? cay_fail(
                             err, CAY_E_UNSUPPORTED, errno, "files.metadata", NULL,
                             "the file system of the sandbox does not support metadata",
                             "omit the metadata")
                       : cay_fail_errno(err, errno, "files.metadata", NULL);
    }
    return CAY_OK;
}

/* Strings: metadata pairs, the path, and the path as it was signed. */
int keeper_op_write_file(struct keeper *keeper, struct keeper_request *request,
                         struct cay_error *err)
{
    const int64_t *numbers = request->head.numbers;
    int64_t pairs = numbers[FILE_METADATA];
    uint64_t room = 0;
    bool is_lost = false; /* the file is new, or its old content is truncated */
    struct cay_stat st;
    char path[PATH_MAX];
    AUTO_FD fd = -1;
    cay_files *files = keeper_files(keeper, request->head.user, err);

    if (!files)
        return err->code;
    if (pairs < 0 || 2 * pairs + 2 != request->head.count)
        return cay_fail(err, CAY_E_PROTOCOL, 0, write_op, NULL,
                        "the request is malformed",
                        "restart the server; report a bug if it happens again");
    int code =
        entry_path(keeper, request->head.user, request->strings[2 * pairs], path, err);
    if (!code) {
        is_lost = cay_files_stat(files, path, false, &st, NULL) == CAY_E_NOT_FOUND;
        code = cay_files_descriptor(files, path, CAY_DESCRIPTOR_UPDATE, &fd, err);
    }
    if (code)
        return code;
    code = check_room(fd, numbers[FILE_LENGTH], err);
    if (!code)
        code = truncate_and_reserve(files, fd, numbers, &is_lost, &room, err);
    if (!code)
        code = set_metadata(fd, request->strings, pairs, err);
    if (!code)
        code = send_file(keeper, request, fd, path, room, err);
    if (!code) {
        add_upload(keeper, request, &fd, path, room);
        return CAY_OK;
    }
    if (is_lost)
        remove_file(files, path, fd);
    free_rest(fd, 0, room);
    return code;
}
