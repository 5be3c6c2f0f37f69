/* SPDX-License-Identifier: Apache-2.0 */

/* A place that has only the functions of a struct cay_file_backend.
 *
 * They know no part of a file, so one that is read goes into a memfd that is sealed
 * against growing: whoever sends more than was asked for hears that there is no room, and
 * what came until then is what was wanted.  They know no rights either; those are taken
 * from the mode, the owner and /etc/passwd. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/host-tree.h"
#include "agent/identity.h"
#include "agent/modes.h"
#include "agent/place.h"
#include "base/auto.h"
#include "base/error.h"

enum { ENTRIES_MAX = 1000000 };

/* --- Content --------------------------------------------------------------------------
 */

/* Room for exactly so many bytes; none is taken before it is written. */
static int open_room(uint64_t bytes, const char *op, int *ret_fd, struct cay_error *err)
{
    AUTO_FD fd = memfd_create("file", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_GROW) != 0)
        return cay_fail_errno(err, errno, op, "memfd");
    *ret_fd = TAKE_FD(fd);
    return CAY_OK;
}

static int take_bytes(int fd, uint64_t offset, size_t len,
                      struct cay_content *ret_content, struct cay_error *err)
{
    static const char op[] = "file.read";
    AUTO_FREE char *data = malloc(len + 1);
    size_t have = 0;

    if (!data)
        return cay_fail_memory(err, op);
    while (have < len) {
        ssize_t got = pread(fd, data + have, len - have, (off_t)(offset + have));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return cay_fail_errno(err, got < 0 ? errno : EIO, op, "memfd");
        have += (size_t)got;
    }
    data[len] = '\0';
    *ret_content = (struct cay_content){TAKE_PTR(data), len};
    return CAY_OK;
}

static int read_part(struct place *place, const char *path, uint64_t offset, uint64_t max,
                     struct cay_content *ret_content, uint64_t *ret_total,
                     struct cay_error *err)
{
    struct cay_error why = {0};
    struct cay_stat stat = {0};
    AUTO_FD fd = -1;

    if (offset > CAY_READ_MAX)
        return cay_fail(err, CAY_E_LIMIT, 0, "file.read", path,
                        "that is too far from the beginning of the file",
                        "at most the first 100 MiB are read here");
    uint64_t room = max < CAY_READ_MAX - offset ? offset + max : CAY_READ_MAX;
    int code = open_room(room, "file.read", &fd, err);
    if (code)
        return code;
    code = place->backend->read(place->cookie, place->user, path, fd, &why);
    off_t got = lseek(fd, 0, SEEK_CUR);
    bool full = got >= 0 && (uint64_t)got == room;
    if (code && !full) {
        if (err)
            *err = why;
        return code;
    }
    *ret_total = got > 0 ? (uint64_t)got : 0;
    if (full &&
        place->backend->stat(place->cookie, place->user, path, false, &stat, NULL) ==
            CAY_OK &&
        stat.bytes > *ret_total)
        *ret_total = stat.bytes;
    uint64_t len = got > 0 && (uint64_t)got > offset ? (uint64_t)got - offset : 0;
    return take_bytes(fd, offset, (size_t)len, ret_content, err);
}

static int write_all(struct place *place, const char *path, const void *data, size_t len,
                     unsigned flags, const struct cay_pin *pin, struct cay_error *err)
{
    const char *bytes = data;
    AUTO_FD fd = memfd_create("file", MFD_CLOEXEC);

    (void)pin;
    if (fd < 0)
        return cay_fail_errno(err, errno, "file.write", path);
    while (len) {
        ssize_t put = write(fd, bytes, len);
        if (put < 0 && errno != EINTR)
            return cay_fail_errno(err, errno, "file.write", path);
        bytes += put > 0 ? put : 0;
        len -= put > 0 ? (size_t)put : 0;
    }
    if (lseek(fd, 0, SEEK_SET) != 0)
        return cay_fail_errno(err, errno, "file.write", path);
    return place->backend->write(place->cookie, place->user, path, fd, flags, err);
}

static bool pin_none(struct place *place, const char *path, struct cay_pin *ret_pin)
{
    (void)place;
    (void)path;
    (void)ret_pin;
    return false;
}

static int get_stat(struct place *place, const char *path, bool no_follow,
                    struct cay_stat *ret_stat, struct cay_error *err)
{
    return place->backend->stat(place->cookie, place->user, path, no_follow, ret_stat,
                                err);
}

static int read_to(struct place *place, const char *path, int fd,
                   struct cay_stat *ret_stat, struct cay_error *err)
{
    int code = get_stat(place, path, false, ret_stat, err);

    if (!code && ret_stat->type != CAY_TYPE_FILE)
        code = cay_fail(err, CAY_E_NOT_A_FILE, 0, "file.read", path, "is no regular file",
                        "name a regular file");
    return code ? code : place->backend->read(place->cookie, place->user, path, fd, err);
}

static int keep_mode(struct place *place, const char *path, int fd, struct cay_error *err)
{
    struct cay_stat now = {0};
    struct stat st;

    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) ||
        get_stat(place, path, false, &now, NULL) != CAY_OK ||
        (now.mode & 0777) == (st.st_mode & 0777))
        return CAY_OK;
    return modes_set(place, path, st.st_mode, err);
}

static int write_from(struct place *place, const char *path, int fd, unsigned flags,
                      uint64_t *ret_bytes, struct cay_error *err)
{
    struct cay_stat stat = {0};

    int code = place->backend->write(place->cookie, place->user, path, fd,
                                     flags & ~(unsigned)CAY_WRITE_KEEP, err);
    if (!code && flags & CAY_WRITE_KEEP)
        code = keep_mode(place, path, fd, err);
    if (code || !ret_bytes)
        return code;
    off_t at = lseek(fd, 0, SEEK_CUR);
    if (at < 0 && get_stat(place, path, false, &stat, NULL) == CAY_OK)
        at = (off_t)stat.bytes;
    *ret_bytes = at > 0 ? (uint64_t)at : 0;
    return CAY_OK;
}

/* --- Names ----------------------------------------------------------------------------
 */

static bool is_below(const char *path, const char *top, size_t len)
{
    return strncmp(path, top, len) == 0 && path[len] == '/';
}

static size_t depth_of(const char *path)
{
    size_t depth = 0;

    for (; *path; path++)
        depth += *path == '/';
    return depth;
}

/* Paths may come relative to what was asked for, below it, or, if links lead there, below
 * another spelling of it: then that is what the least deep of them is in.  The bytes that
 * are to go from each, at the beginning of `*ret_top`; -1 if they are relative. */
static ssize_t find_top(const struct cay_listing *listing, const char *asked,
                        const char **ret_top)
{
    size_t len = strlen(asked);

    while (len && asked[len - 1] == '/')
        len--;
    *ret_top = NULL;
    for (size_t i = 0; i < listing->count; i++) {
        const char *path = listing->entries[i].path;
        if (!path || *path != '/')
            return -1;
        if (is_below(path, asked, len)) {
            *ret_top = asked;
            return (ssize_t)len;
        }
        if (!*ret_top || depth_of(path) < depth_of(*ret_top))
            *ret_top = path;
    }
    return *ret_top ? strrchr(*ret_top, '/') - *ret_top : -1;
}

/* Plain names only. */
static bool is_plain(const char *path)
{
    for (;;) {
        size_t len = strcspn(path, "/");
        if (len == 0 || (len <= 2 && strncmp(path, "..", len) == 0))
            return false;
        if (!path[len])
            return true;
        path += len + 1;
    }
}

/* Takes the top away from the paths, and leaves out what is not below it. */
static int make_relative(struct cay_listing *listing, const char *asked,
                         struct cay_error *err)
{
    const char *found;
    ssize_t len = find_top(listing, asked, &found);
    AUTO_FREE char *top = strndup(len < 0 ? "" : found, len < 0 ? 0 : (size_t)len);
    size_t kept = 0;

    if (!top)
        return cay_fail_memory(err, "file.list");
    for (size_t i = 0; i < listing->count; i++) {
        struct cay_entry entry = listing->entries[i];
        bool fits = entry.path && (len < 0 || is_below(entry.path, top, (size_t)len));
        if (fits && len >= 0)
            memmove(entry.path, entry.path + len + 1, strlen(entry.path + len + 1) + 1);
        if (fits && is_plain(entry.path))
            listing->entries[kept++] = entry;
        else
            free(entry.path);
    }
    listing->count = kept;
    return CAY_OK;
}

static int compare(const void *one, const void *other)
{
    return strcmp(((const struct cay_entry *)one)->path,
                  ((const struct cay_entry *)other)->path);
}

static int list(struct place *place, const char *path, bool recursive, bool with_stat,
                struct cay_listing *ret_listing, struct cay_error *err)
{
    AUTO_FREE char *top = place_absolute(place, path);
    struct cay_listing listing = {0};
    struct cay_stat stat;

    (void)with_stat;
    if (!top)
        return cay_fail_memory(err, "file.list");
    int code = get_stat(place, top, false, &stat, err);
    if (!code && stat.type != CAY_TYPE_DIRECTORY)
        code = cay_fail(err, CAY_E_NOT_A_DIRECTORY, 0, "file.list", path,
                        "is not a directory", "name the directory the file is in");
    if (!code)
        code = place->backend->list(place->cookie, place->user, top, recursive ? 0 : 1,
                                    &listing, err);
    if (code)
        return code;
    if (listing.truncated || listing.count > ENTRIES_MAX) {
        cay_listing_done(&listing);
        return cay_fail(err, CAY_E_LIMIT, 0, "file.list", path,
                        "the directory has too many entries",
                        "list the directories in it one by one");
    }
    code = make_relative(&listing, top, err);
    if (code) {
        cay_listing_done(&listing);
        return code;
    }
    if (listing.count)
        qsort(listing.entries, listing.count, sizeof *listing.entries, compare);
    *ret_listing = listing;
    return CAY_OK;
}

static int read_link(struct place *place, const char *path, char **ret_target,
                     struct cay_error *err)
{
    if (!place->backend->read_link)
        return cay_fail(err, CAY_E_UNSUPPORTED, 0, "file.read_link", path,
                        "this kind of sandbox does not tell where links lead",
                        "ask a command in it");
    return place->backend->read_link(place->cookie, place->user, path, ret_target, err);
}

static int get_access(struct place *place, const char *path, const struct cay_stat *stat,
                      struct cay_error *err)
{
    struct identity identity = identity_of(place);

    (void)path;
    (void)err;
    return identity_access(&identity, stat);
}

static int make_directory(struct place *place, const char *path, unsigned flags,
                          struct cay_error *err)
{
    return place->backend->mkdir(place->cookie, place->user, path, flags, err);
}

/* No function here sets a mode, but every system has a command that does. */
static int make_private(struct place *place, const char *path, struct cay_error *err)
{
    const char *const argv[] = {"mkdir", "-m", "700", "--", path, NULL};
    const struct cay_exec_options options = {
        .size = sizeof options, .argv = argv, .user = place->user, .timeout_ms = 60000};
    struct cay_exec_result result = {0};

    if (!place->sandbox)
        return make_directory(place, path, 0, err);
    int code = cay_sandbox_exec(place->sandbox, &options, &result, err);
    bool made = !code && result.cause == CAY_CAUSE_EXITED && result.exit_code == 0;
    cay_exec_done(&result);
    if (code || made)
        return code;
    return make_directory(place, path, 0, err);
}

static int remove_all(struct place *place, const char *path, struct cay_error *err)
{
    return place->backend->remove(place->cookie, place->user, path, CAY_NAME_RECURSIVE,
                                  err);
}

/* What the backend says, else what a command finds. */
static char *base_of(struct place *place)
{
    static const char *const argv[] = {"pwd", NULL};
    const struct cay_exec_options options = {
        .size = sizeof options, .argv = argv, .user = place->user, .timeout_ms = 60000};
    struct cay_sandbox_info info;
    struct cay_exec_result result = {0};
    char *base = NULL;

    if (!place->sandbox)
        return NULL;
    if (cay_sandbox_inspect(place->sandbox, &info, NULL) == CAY_OK &&
        *info.workdir == '/')
        return strdup(info.workdir);
    if (cay_sandbox_exec(place->sandbox, &options, &result, NULL) == CAY_OK &&
        result.exit_code == 0 && result.out_len > 1 && *result.out == '/')
        base = strndup(result.out, result.out_len - 1);
    cay_exec_done(&result);
    return base;
}

static void close_nothing(struct place *place)
{
    (void)place;
}

static const struct place_ops ops = {
    .read = read_part,
    .write = write_all,
    .pin = pin_none,
    .read_to = read_to,
    .write_from = write_from,
    .stat = get_stat,
    .list = list,
    .read_link = read_link,
    .access = get_access,
    .mkdir = make_directory,
    .mkdir_private = make_private,
    .remove = remove_all,
    .upload = host_tree_upload,
    .download = host_tree_download,
    .base = base_of,
    .close = close_nothing,
};

void place_of_backend(const struct cay_file_backend *backend, void *cookie,
                      struct place *ret_place)
{
    *ret_place = (struct place){.ops = &ops, .backend = backend, .cookie = cookie};
}
