/* SPDX-License-Identifier: Apache-2.0 */

/* The file system of a sandbox as a struct fs (sys/fs.h): each call is one request to its
 * init, which opens files inside and passes descriptors, which are read and written here.
 *
 * Every descriptor must be of the requested kind.  A file opened by init is never mapped,
 * names are never looked up here below a directory from inside, and nothing on /proc is
 * accepted. */
#include "native/process/files.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "files/handle.h"
#include "native/process/files-client.h"
#include "native/process/handle.h"
#include "native/record/cgroup.h"
#include "sys/io.h"

struct remote {
    struct fs fs; /* its cookie is this struct */
    atomic_uint references;
    struct files_client *client;
    struct idmap_shown users, groups;
    struct cgroup cgroups; /* account files in memory, */
    uint64_t memory_bytes; /* up to this limit; 0: none */
    int usage;             /* cgroup_open_usage(), or -1 */
    bool is_in_memory;     /* the root, possibly an overlay */
};

static int request(const struct fs *fs, struct files_call *call)
{
    const struct remote *remote = fs->cookie;

    return files_client_request(remote->client, call);
}

static int fail_protocol(const struct fs *fs)
{
    const struct remote *remote = fs->cookie;

    return files_client_fail(remote->client);
}

/* For requests whose reply is only an error code. */
static int request_plain(const struct fs *fs, struct files_call *call)
{
    int error = request(fs, call);

    return error || (call->fd < 0 && call->dir < 0) ? error : fail_protocol(fs);
}

/* --- Descriptors --- */

static bool is_held(int fd, struct stat *ret_stat)
{
    int flags = fcntl(fd, F_GETFL);

    return flags >= 0 && flags & O_PATH && fstat(fd, ret_stat) == 0;
}

static bool is_held_directory(int fd)
{
    struct stat st;

    return is_held(fd, &st) && S_ISDIR(st.st_mode);
}

/* A regular file with this access mode, on which reads and writes cannot block. */
static bool is_file(int fd, int way, struct stat *ret_stat)
{
    int flags = fcntl(fd, F_GETFL);
    int opened = flags & O_ACCMODE;

    return flags >= 0 && !(flags & O_PATH) && flags & O_NONBLOCK &&
           (opened == way || opened == O_RDWR) && fstat(fd, ret_stat) == 0 &&
           S_ISREG(ret_stat->st_mode) && !fs_is_pseudo(fd);
}

static bool is_directory(int fd)
{
    struct stat st;
    int flags = fcntl(fd, F_GETFL);

    return flags >= 0 && !(flags & O_PATH) && fstat(fd, &st) == 0 && S_ISDIR(st.st_mode);
}

/* A path below the root: only names, none too long. */
static bool is_plain(const char *place)
{
    while (*place) {
        size_t len = strcspn(place, "/");
        if (len == 0 || len > NAME_MAX || (len <= 2 && memcmp(place, "..", len) == 0))
            return false;
        place += len;
        if (*place && !*++place)
            return false;
    }
    return true;
}

/* Converts owners to ids inside. */
static void own(const struct fs *fs, struct stat *st)
{
    const struct remote *remote = fs->cookie;

    st->st_uid = idmap_inside(&remote->users, st->st_uid);
    st->st_gid = idmap_inside(&remote->groups, st->st_gid);
}

/* --- struct fs --- */

static int remote_find(const struct fs *fs, int dir, const char *host, const char *path,
                       unsigned flags, char ret_rel[PATH_MAX], struct fs_found *ret_found)
{
    AUTO_FILES_CALL call = FILES_CALL(FILE_FIND, .head.flags = flags, .name = path,
                                      .fds = {dir}, .fd_count = 1);

    (void)host;
    int error = request(fs, &call);
    if (error)
        return error;
    const char *place = call.reply.flags & FILE_HAS_TEXT ? call.text : path;
    bool is_open = call.reply.flags & FILE_IS_OPEN && flags & FS_AND_READ;
    bool fine = call.fd < 0 || (is_open ? is_file(call.fd, O_RDONLY, &ret_found->st)
                                        : is_held(call.fd, &ret_found->st));
    if (!fine || !is_plain(place) || (call.dir >= 0 && !is_held_directory(call.dir)))
        return fail_protocol(fs);
    memcpy(ret_rel, place, strlen(place) + 1);
    if (call.fd >= 0)
        own(fs, &ret_found->st);
    ret_found->is_open = is_open;
    ret_found->write_error = call.reply.write_error;
    ret_found->fd = TAKE_FD(call.fd);
    ret_found->dir = TAKE_FD(call.dir);
    return 0;
}

static int remote_open(const struct fs *fs, int dir, const char *path, uint64_t flags,
                       uint64_t mode, uint64_t resolve)
{
    AUTO_FILES_CALL call =
        FILES_CALL(FILE_OPEN, .head.flags = flags, .head.resolve = resolve, .name = path,
                   .fds = {dir}, .fd_count = 1);
    struct stat st;

    (void)mode;
    int error = request(fs, &call);
    if (error)
        return error;
    bool fine = flags & O_PATH ? is_held(call.fd, &st) &&
                                     (!(flags & O_DIRECTORY) || S_ISDIR(st.st_mode))
                               : is_directory(call.fd);
    return fine && call.dir < 0 ? TAKE_FD(call.fd) : fail_protocol(fs);
}

static int remote_reopen(const struct fs *fs, int fd, int flags, bool *ret_copied)
{
    AUTO_FILES_CALL call = FILES_CALL(FILE_REOPEN, .head.flags = (unsigned)flags,
                                      .fds = {fd}, .fd_count = 1);
    struct stat st;

    *ret_copied = false;
    int error = request(fs, &call);
    if (error)
        return error;
    bool fine = flags & O_DIRECTORY ? is_directory(call.fd)
                                    : is_file(call.fd, flags & O_ACCMODE, &st);
    *ret_copied = call.reply.flags & FILE_IS_COPY && (flags & O_ACCMODE) == O_RDONLY;
    return fine && call.dir < 0 ? TAKE_FD(call.fd) : fail_protocol(fs);
}

static int remote_may_write(const struct fs *fs, int fd)
{
    AUTO_FILES_CALL call = FILES_CALL(FILE_MAY_WRITE, .fds = {fd}, .fd_count = 1);

    return request_plain(fs, &call);
}

static int remote_stat(const struct fs *fs, int dir, const char *name,
                       struct stat *ret_stat)
{
    AUTO_FD fd = remote_open(fs, dir, name, O_PATH | O_NOFOLLOW, 0, 0);

    if (fd < 0)
        return fd;
    if (fstat(fd, ret_stat) != 0)
        return -errno;
    own(fs, ret_stat);
    return 0;
}

/* From inside, where owners need no conversion. */
static bool take_look(const struct file_look *look, struct fs_look *ret_look)
{
    if (look->error > 0 || look->error < -4095 || look->bytes > INT64_MAX ||
        look->mtime_nanoseconds >= 1000000000)
        return false;
    ret_look->error = look->error;
    ret_look->st = (struct stat){
        .st_mode = look->mode,
        .st_uid = look->uid,
        .st_gid = look->gid,
        .st_nlink = look->links,
        .st_size = (off_t)look->bytes,
        .st_mtim = {look->mtime, look->mtime_nanoseconds},
    };
    return true;
}

/* Joins as many names as fit into one request; returns their number. */
static size_t join_names(const struct fs_look *looks, size_t count, char names[PATH_MAX])
{
    size_t done = 0, used = 0;

    while (done < count && done < FILE_LOOKS_MAX) {
        size_t len = strlen(looks[done].name);
        if (used + len + 1 > PATH_MAX)
            break;
        memcpy(names + used, looks[done++].name, len);
        used += len;
        names[used++] = '/';
    }
    names[used - 1] = '\0';
    return done;
}

static int remote_look(const struct fs *fs, int dir, struct fs_look *looks, size_t count)
{
    struct file_look found[FILE_LOOKS_MAX];
    char names[PATH_MAX];

    while (count) {
        size_t part = join_names(looks, count, names);
        AUTO_FILES_CALL call =
            FILES_CALL(FILE_LOOK, .name = names, .fds = {dir}, .fd_count = 1,
                       .looks = found, .look_count = part);
        int error = request_plain(fs, &call);
        if (error)
            return error;
        for (size_t i = 0; i < part; i++)
            if (!take_look(&found[i], &looks[i]))
                return fail_protocol(fs);
        looks += part;
        count -= part;
    }
    return 0;
}

static ssize_t remote_read_link(const struct fs *fs, int fd, char *text, size_t room)
{
    AUTO_FILES_CALL call = FILES_CALL(FILE_READ_LINK, .fds = {fd}, .fd_count = 1);

    int error = request_plain(fs, &call);
    if (error)
        return error;
    size_t len = strlen(call.text);
    if (len > room)
        len = room;
    memcpy(text, call.text, len);
    return (ssize_t)len;
}

static int remote_make_directory(const struct fs *fs, int dir, const char *name,
                                 mode_t mode)
{
    AUTO_FILES_CALL call = FILES_CALL(FILE_MAKE_DIRECTORY, .head.mode = mode,
                                      .name = name, .fds = {dir}, .fd_count = 1);

    return request_plain(fs, &call);
}

static int remote_make_link(const struct fs *fs, const char *text, int dir,
                            const char *name)
{
    AUTO_FILES_CALL call = FILES_CALL(FILE_MAKE_LINK, .name = name, .other = text,
                                      .fds = {dir}, .fd_count = 1);

    return request_plain(fs, &call);
}

static int remote_link(const struct fs *fs, int fd, int dir, const char *name)
{
    AUTO_FILES_CALL call =
        FILES_CALL(FILE_LINK, .name = name, .fds = {fd, dir}, .fd_count = 2);

    return request_plain(fs, &call);
}

static int remote_rename(const struct fs *fs, int from_dir, const char *from, int to_dir,
                         const char *to, unsigned flags)
{
    AUTO_FILES_CALL call =
        FILES_CALL(FILE_RENAME, .head.flags = flags, .name = from, .other = to,
                   .fds = {from_dir, to_dir}, .fd_count = 2);

    return request_plain(fs, &call);
}

static int remote_remove(const struct fs *fs, int dir, const char *name, int flags)
{
    AUTO_FILES_CALL call = FILES_CALL(FILE_REMOVE, .head.flags = (unsigned)flags,
                                      .name = name, .fds = {dir}, .fd_count = 1);

    return request_plain(fs, &call);
}

static int remote_set_times(const struct fs *fs, int fd, const char *name,
                            const struct timespec times[2])
{
    AUTO_FILES_CALL call =
        FILES_CALL(FILE_SET_TIMES, .name = name, .fds = {fd}, .fd_count = 1,
                   .head.times = {times[0].tv_sec, times[0].tv_nsec, times[1].tv_sec,
                                  times[1].tv_nsec});

    return request_plain(fs, &call);
}

static int remote_set_mode(const struct fs *fs, int fd, mode_t mode)
{
    AUTO_FILES_CALL call =
        FILES_CALL(FILE_SET_MODE, .head.mode = mode, .fds = {fd}, .fd_count = 1);

    return request_plain(fs, &call);
}

static bool is_in_memory(const struct remote *remote, int fd)
{
    struct statfs fs;

    return fstatfs(fd, &fs) == 0 &&
           (fs.f_type == TMPFS_MAGIC ||
            (fs.f_type == OVERLAYFS_SUPER_MAGIC && remote->is_in_memory));
}

static int give_back(int fd, uint64_t at, uint64_t len, int error)
{
    io_free_room(fd, at, at + len);
    return error;
}

/* Init allocates the pages, so that they are charged to the sandbox's cgroup.  Beyond the
 * limit the kernel would kill a process there, so the usage is checked first. */
static int remote_take_room(const struct fs *fs, int fd, uint64_t at, uint64_t len)
{
    const struct remote *remote = fs->cookie;
    struct stat st;

    /* A new file with preallocated space has it at its beginning. */
    if (at == 0 && fstat(fd, &st) == 0 && st.st_size == 0 &&
        (uint64_t)st.st_blocks * 512 >= len)
        return 0;
    if (!is_in_memory(remote, fd))
        return 0;
    for (uint64_t done = 0; done < len;) {
        uint64_t part = len - done < FILE_ROOM_MAX ? len - done : FILE_ROOM_MAX;
        AUTO_FILES_CALL call =
            FILES_CALL(FILE_TAKE_ROOM, .head.flags = at + done, .head.resolve = part,
                       .fds = {fd}, .fd_count = 1);
        if (!cgroup_has_room(&remote->cgroups, remote->usage, remote->memory_bytes, part))
            return give_back(fd, at, done, -EDQUOT);
        int error = request_plain(fs, &call);
        if (error == -EOPNOTSUPP)
            return 0;
        if (error)
            return give_back(fd, at, done + part, error == -ENOMEM ? -EDQUOT : error);
        done += part;
    }
    return 0;
}

/* How much of a new file's space init allocates when it creates the file. */
static uint64_t room_ahead(const struct fs *fs, uint64_t room)
{
    const struct remote *remote = fs->cookie;

    return fs->take_room && remote->is_in_memory && room <= FILE_ROOM_MAX &&
                   cgroup_has_room(&remote->cgroups, remote->usage, remote->memory_bytes,
                                   room)
               ? room
               : 0;
}

static int remote_draft(const struct fs *fs, int dir, mode_t mode, int model,
                        uint64_t room, char ret_temp[FS_TEMP_MAX])
{
    AUTO_FILES_CALL call =
        FILES_CALL(model < 0 ? FILE_DRAFT : FILE_DRAFT_LIKE, .head.mode = mode,
                   .head.resolve = room_ahead(fs, room), .fds = {dir, model},
                   .fd_count = model < 0 ? 1 : 2);
    struct stat st;

    *ret_temp = '\0';
    int error = request(fs, &call);
    if (error)
        return error;
    if (!is_file(call.fd, O_RDWR, &st) || call.dir >= 0 ||
        strlen(call.text) >= FS_TEMP_MAX || !is_plain(call.text))
        return fail_protocol(fs);
    memcpy(ret_temp, call.text, strlen(call.text) + 1);
    return TAKE_FD(call.fd);
}

static int remote_like(const struct fs *fs, int fd, int model)
{
    AUTO_FILES_CALL call = FILES_CALL(FILE_LIKE, .fds = {fd, model}, .fd_count = 2);

    return request_plain(fs, &call);
}

static int remote_commit(const struct fs *fs, int fd, int dir, const char *temp,
                         const char *name, bool replace)
{
    AUTO_FILES_CALL call = FILES_CALL(FILE_COMMIT, .head.flags = replace, .name = name,
                                      .other = temp, .fds = {fd, dir}, .fd_count = 2);

    return request_plain(fs, &call);
}

static int remote_fail(const struct fs *fs, int sys_errno, const char *step,
                       const char *subject, struct cay_error *err)
{
    const struct remote *remote = fs->cookie;

    switch (sys_errno) {
    case EACCES:
    case EPERM:
        return cay_fail(
            err, CAY_E_DENIED, sys_errno, step, subject,
            "permission denied inside the sandbox",
            "user \"%s\" has no permission here; use another path or another user",
            files_client_user(remote->client));
    case ELOOP:
        return cay_fail(err, CAY_E_INVALID, sys_errno, step, subject,
                        "too many symbolic links, or a link through /proc",
                        "use the path of the file itself");
    case EMSGSIZE:
        return cay_fail(err, CAY_E_LIMIT, sys_errno, step, subject,
                        "a kernel file with no known size is too large",
                        "at most 1 MiB is read from such files");
    case ETOOMANYREFS:
        return cay_fail(
            err, CAY_E_BUSY, sys_errno, step, subject,
            "programs in the sandbox have too many file descriptors in flight",
            "end them, or try again later");
    case EDQUOT:
        return cay_fail(err, CAY_E_NO_SPACE, sys_errno, step, subject,
                        "the sandbox's memory limit is reached",
                        "files in memory count towards it: delete some, or create a "
                        "sandbox with a higher limit (-m)");
    case ECONNRESET:
        return cay_fail(err, CAY_E_UNAVAILABLE, sys_errno, step, subject,
                        "the sandbox has ended", "create a new one");
    case ETIME:
        return cay_fail(err, CAY_E_TIMEOUT, sys_errno, step, subject,
                        "the sandbox did not reply in time",
                        "kill it and create a new one");
    case EPROTO:
        return cay_fail(err, CAY_E_PROTOCOL, sys_errno, step, subject,
                        "PID 1 of the sandbox sent an invalid reply",
                        "kill the sandbox: it may be compromised");
    default:
        return cay_fail_errno(err, sys_errno, step, subject);
    }
}

static void remote_ref(const struct fs *fs)
{
    struct remote *remote = fs->cookie;

    atomic_fetch_add(&remote->references, 1);
}

static void remote_unref(const struct fs *fs)
{
    struct remote *remote = fs->cookie;

    if (atomic_fetch_sub(&remote->references, 1) != 1)
        return;
    files_client_free(remote->client);
    auto_close(&remote->usage);
    free(remote);
}

static const struct fs calls = {
    .find = remote_find,
    .open = remote_open,
    .reopen = remote_reopen,
    .may_write = remote_may_write,
    .stat = remote_stat,
    .look = remote_look,
    .read_link = remote_read_link,
    .make_directory = remote_make_directory,
    .make_link = remote_make_link,
    .link = remote_link,
    .rename = remote_rename,
    .remove = remote_remove,
    .set_times = remote_set_times,
    .set_mode = remote_set_mode,
    .draft = remote_draft,
    .like = remote_like,
    .commit = remote_commit,
    .fail = remote_fail,
    .ref = remote_ref,
    .unref = remote_unref,
};

/* --- The handle --- */

int files_open_sandbox(const struct files_target *sandbox, cay_files **ret_files,
                       struct cay_error *err)
{
    char start[PATH_MAX];
    struct files_client *client;

    int code = files_client_new(sandbox->socket, sandbox->user, sandbox->reply_ms,
                                &client, start, err);
    if (code)
        return code;
    struct remote *remote = malloc(sizeof *remote);
    if (!remote) {
        files_client_free(client);
        return cay_fail_memory(err, "sandbox.files");
    }
    *remote = (struct remote){.fs = calls,
                              .client = client,
                              .usage = -1,
                              .users = sandbox->users,
                              .groups = sandbox->groups};
    remote->fs.cookie = remote;
    if (sandbox->cgroups && sandbox->memory_bytes) {
        remote->cgroups = *sandbox->cgroups;
        remote->memory_bytes = sandbox->memory_bytes;
        remote->usage = cgroup_open_usage(sandbox->cgroups);
        remote->is_in_memory = sandbox->is_in_memory;
        remote->fs.take_room = remote_take_room;
    }
    atomic_init(&remote->references, 1);
    code = files_open_fs(&remote->fs, start, ret_files, err);
    remote_unref(&remote->fs);
    return code;
}

int native_files(void *cookie, const char *user, cay_files **ret_files,
                 struct cay_error *err)
{
    struct native *native = cookie;
    struct files_target sandbox = {.socket = -1, .user = user};
    char users[64], groups[64];

    int code = native_check(native, err);
    if (!code)
        code =
            native_connect_init(&native->record, native->reply_ms, &sandbox.socket, err);
    if (code)
        return code;
    /* The init of an older record does not support allocation. */
    if (native->record.version >= RECORD_VERSION &&
        native->record.layers & CAY_LAYER_MEMORY)
        sandbox.cgroups = &native->record.cgroup;
    sandbox.memory_bytes = native->record.memory_bytes;
    sandbox.is_in_memory = native->record.storage == CAY_STORAGE_MEMORY;
    snprintf(users, sizeof users, "/proc/%d/uid_map", (int)native->record.init);
    snprintf(groups, sizeof groups, "/proc/%d/gid_map", (int)native->record.init);
    idmap_read(AT_FDCWD, users, &sandbox.users);
    idmap_read(AT_FDCWD, groups, &sandbox.groups);
    return files_open_sandbox(&sandbox, ret_files, err);
}
