/* SPDX-License-Identifier: Apache-2.0 */

/* The file system of a sandbox as a struct fs (sys/fs.h): each call is one request to its
 * init, which opens files inside and passes descriptors, which are read and written here.
 *
 * Every descriptor must be of the requested kind.  A file opened by init is never mapped,
 * names are never looked up here below a directory from inside, and nothing on /proc is
 * accepted.
 *
 * Code inside may have taken over init, so every reply is untrusted: one that does not
 * match the request exactly ends the connection. */
#include "native/process/files.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "files/handle.h"
#include "init/packet.h"
#include "init/user.h"
#include "native/process/handle.h"
#include "native/process/wire.h"
#include "native/record/cgroup.h"
#include "sys/io.h"
#include "sys/rights.h"

/* --- The connection --- */

static const char op[] = "sandbox.files";

/* Longer than init ever takes: afterwards it counts as stuck. */
enum { REPLY_MS = 60000 };

/* About 25 microseconds. */
enum { POLLS = 64 };

/* A connection to init for requests about files, with the rights of one user.  Shared by
 * handles and threads; one request is pending at a time. */
struct remote {
    struct fs fs; /* its cookie is this struct */
    atomic_uint references;
    char user[USER_NAME_MAX];
    struct idmap_shown users, groups;
    struct cgroup cgroups; /* account files in memory, */
    uint64_t memory_bytes; /* up to this limit; 0: none */
    int usage;             /* cgroup_open_usage(), or -1 */
    bool is_in_memory;     /* the root, possibly an overlay */

    pthread_mutex_t mutex; /* guards the fields below */
    int socket;
    pid_t owner; /* the process that connected it, not a child of fork(2) */
    int broken;  /* why there is no socket: an errno */
    int polls;   /* number of polls before sleeping */
    struct packet packet;
};

/* A request and its reply. */
struct files_call {
    struct file_request head;
    const char *name, *other; /* NULL: "" */
    int fds[2];               /* -1: the root */
    unsigned fd_count;

    struct file_reply reply;
    int fd, dir; /* the caller checks and closes them; -1: none */
    char text[PATH_MAX];
    struct file_look *looks; /* look_count entries, all of which must come */
    size_t look_count;
};

static void call_done(struct files_call *call)
{
    auto_close(&call->fd);
    auto_close(&call->dir);
}

#define AUTO_CALL __attribute__((cleanup(call_done))) struct files_call
#define FILES_CALL(operation, ...)                                                       \
    {                                                                                    \
        .head.op = (operation), .fd = -1, .dir = -1, __VA_ARGS__                         \
    }

static int disconnect(struct remote *remote, int sys_errno)
{
    if (remote->socket >= 0)
        rights_hang_up(remote->socket);
    remote->socket = -1;
    remote->broken = sys_errno;
    return -sys_errno;
}

static int send_call(const struct remote *remote, struct files_call *call)
{
    char payload[sizeof call->head + 2 * PATH_MAX];
    const char *texts[2] = {call->name ? call->name : "", call->other ? call->other : ""};
    size_t name = strlen(texts[0]) + 1, other = strlen(texts[1]) + 1;
    size_t len = sizeof call->head, count = 0;
    int fds[2];

    if (name > PATH_MAX || other > PATH_MAX)
        return -ENAMETOOLONG;
    for (unsigned i = 0; i < call->fd_count; i++) {
        if (call->fds[i] < 0)
            call->head.at_root |= 1u << i;
        else
            fds[count++] = call->fds[i];
    }
    memcpy(payload, &call->head, len);
    memcpy(payload + len, texts[0], name);
    memcpy(payload + len + name, texts[1], other);
    return packet_send(remote->socket, MESSAGE_FILE, payload, len + name + other, fds,
                       count);
}

/* Parses a reply; false if it is invalid. */
static bool take_reply(struct packet *packet, struct files_call *call)
{
    struct file_reply *reply = &call->reply;
    size_t len = packet->head.len;
    const char *text = packet->payload + sizeof *reply;

    if (packet->head.kind != MESSAGE_FILE_DONE || len < sizeof *reply)
        return false;
    memcpy(reply, packet->payload, sizeof *reply);
    bool has_fd = reply->flags & FILE_HAS_FD, has_dir = reply->flags & FILE_HAS_DIR;
    size_t text_len = reply->flags & FILE_HAS_TEXT ? (size_t)reply->text_len + 1 : 0;
    size_t looks_len = reply->error ? 0 : call->look_count * sizeof *call->looks;
    if (reply->error > 0 || reply->error < -4095 || text_len > PATH_MAX ||
        (text_len && looks_len) || len != sizeof *reply + text_len + looks_len ||
        packet->head.fd_count != (unsigned)has_fd + has_dir ||
        (reply->error && packet->head.fd_count) ||
        (text_len && strnlen(text, text_len) != text_len - 1))
        return false;
    memcpy(call->text, text, text_len);
    if (looks_len)
        memcpy(call->looks, text, looks_len);
    if (has_fd)
        call->fd = TAKE_FD(packet->fds[0]);
    if (has_dir)
        call->dir = TAKE_FD(packet->fds[has_fd]);
    return true;
}

/* A packet loses its descriptors if there are too few free ones. */
static bool has_room(int fd)
{
    AUTO_FD one = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    AUTO_FD other = fcntl(fd, F_DUPFD_CLOEXEC, 3);

    return one >= 0 && other >= 0;
}

/* Polls first, since a reply mostly arrives sooner than a sleep and a wake-up take. */
static int receive(struct remote *remote)
{
    for (int i = 0; i < remote->polls; i++) {
        int got = packet_poll(remote->socket, &remote->packet);
        if (got != -EAGAIN)
            return got;
    }
    return packet_receive(remote->socket, &remote->packet);
}

static int exchange(struct remote *remote, struct files_call *call)
{
    if (remote->socket < 0)
        return -remote->broken;
    int error = send_call(remote, call);
    if (error == -ENAMETOOLONG)
        return error;
    int got = error ? 0 : receive(remote);
    if (error == -EAGAIN || got == -EAGAIN)
        return disconnect(remote, ETIME);
    if (got == 0)
        return disconnect(remote, ECONNRESET);
    if (got < 0)
        return has_room(remote->socket) ? disconnect(remote, EPROTO) : -EMFILE;
    bool fine = take_reply(&remote->packet, call);
    packet_close_fds(&remote->packet);
    return fine ? call->reply.error : disconnect(remote, EPROTO);
}

/* --- Opening a session --- */

/* With a single CPU, init would have to wait for this process. */
static int count_polls(void)
{
    cpu_set_t processors;

    return sched_getaffinity(0, sizeof processors, &processors) == 0 &&
                   CPU_COUNT(&processors) == 1
               ? 0
               : POLLS;
}

static int fail_open(int sys_errno, struct cay_error *err)
{
    return sys_errno == EPROTO ? cay_fail(err, CAY_E_PROTOCOL, sys_errno, op, NULL,
                                          "PID 1 of the sandbox sent an invalid reply",
                                          "kill the sandbox: it may be compromised")
                               : cay_fail(err, CAY_E_UNAVAILABLE, sys_errno, op, NULL,
                                          "the sandbox has ended", "create a new one");
}

static int take_failure(const struct packet *packet, struct cay_error *err)
{
    struct cay_error failure;
    size_t len = packet->head.fd_count ? 0 : packet->head.len;
    int code = wire_error(packet->payload, len, &failure);

    return cay_fail(err, code, failure.sys_errno, op, failure.subject, failure.message,
                    "%s", failure.hint);
}

/* "start\0user\0", both within their limits. */
static bool take_session(const struct packet *packet, struct remote *remote,
                         char ret_start[PATH_MAX])
{
    size_t len = packet->head.len;
    size_t start = strnlen(packet->payload, len) + 1;

    if (packet->head.kind != MESSAGE_FILES_READY || packet->head.fd_count ||
        start > PATH_MAX || start >= len || packet->payload[0] != '/')
        return false;
    size_t user = strnlen(packet->payload + start, len - start) + 1;
    if (user > sizeof remote->user || start + user != len)
        return false;
    memcpy(ret_start, packet->payload, start);
    memcpy(remote->user, packet->payload + start, user);
    wire_make_text(remote->user, user - 1);
    return true;
}

static int open_session(struct remote *remote, const char *user, uint32_t reply_ms,
                        char ret_start[PATH_MAX], struct cay_error *err)
{
    const struct timeval limit = {.tv_sec = reply_ms / 1000,
                                  .tv_usec = reply_ms % 1000 * 1000};
    struct packet *packet = &remote->packet;

    if (setsockopt(remote->socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) != 0 ||
        setsockopt(remote->socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) != 0)
        return cay_fail_errno(err, errno, op, NULL);
    int got = packet_send(remote->socket, MESSAGE_FILES, user, strlen(user) + 1, NULL, 0);
    if (!got)
        got = packet_receive(remote->socket, packet);
    if (got != 1)
        return fail_open(got == -EPROTO ? EPROTO : ECONNRESET, err);
    packet_close_fds(packet);
    if (packet->head.kind == MESSAGE_FAILED)
        return take_failure(packet, err);
    return take_session(packet, remote, ret_start) ? CAY_OK : fail_open(EPROTO, err);
}

/* --- Requests --- */

/* 0 or a negative errno: that of the reply, or -ECONNRESET (init is gone), -ETIME (no
 * reply in time) or -EPROTO (invalid reply), which then stays for all later requests. */
static int request(const struct fs *fs, struct files_call *call)
{
    struct remote *remote = fs->cookie;

    pthread_mutex_lock(&remote->mutex);
    int error = exchange(remote, call);
    pthread_mutex_unlock(&remote->mutex);
    return error;
}

/* The reply is invalid. */
static int fail_protocol(const struct fs *fs)
{
    struct remote *remote = fs->cookie;

    pthread_mutex_lock(&remote->mutex);
    int error = disconnect(remote, EPROTO);
    pthread_mutex_unlock(&remote->mutex);
    return error;
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
    AUTO_CALL call = FILES_CALL(FILE_FIND, .head.flags = flags, .name = path,
                                .fds = {dir}, .fd_count = 1);
    struct stat dir_stat;

    (void)host;
    int error = request(fs, &call);
    if (error)
        return error;
    const char *place = call.reply.flags & FILE_HAS_TEXT ? call.text : path;
    bool is_open = call.reply.flags & FILE_IS_OPEN && flags & FS_AND_READ;
    bool fine = call.fd < 0 || (is_open ? is_file(call.fd, O_RDONLY, &ret_found->st)
                                        : is_held(call.fd, &ret_found->st));
    if (!fine || !is_plain(place) ||
        (call.dir >= 0 && !(is_held(call.dir, &dir_stat) && S_ISDIR(dir_stat.st_mode))))
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
    AUTO_CALL call = FILES_CALL(FILE_OPEN, .head.flags = flags, .head.resolve = resolve,
                                .name = path, .fds = {dir}, .fd_count = 1);
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
    AUTO_CALL call = FILES_CALL(FILE_REOPEN, .head.flags = (unsigned)flags, .fds = {fd},
                                .fd_count = 1);
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
    AUTO_CALL call = FILES_CALL(FILE_MAY_WRITE, .fds = {fd}, .fd_count = 1);

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
        AUTO_CALL call = FILES_CALL(FILE_LOOK, .name = names, .fds = {dir}, .fd_count = 1,
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
    AUTO_CALL call = FILES_CALL(FILE_READ_LINK, .fds = {fd}, .fd_count = 1);

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
    AUTO_CALL call = FILES_CALL(FILE_MAKE_DIRECTORY, .head.mode = mode, .name = name,
                                .fds = {dir}, .fd_count = 1);

    return request_plain(fs, &call);
}

static int remote_make_link(const struct fs *fs, const char *text, int dir,
                            const char *name)
{
    AUTO_CALL call = FILES_CALL(FILE_MAKE_LINK, .name = name, .other = text, .fds = {dir},
                                .fd_count = 1);

    return request_plain(fs, &call);
}

static int remote_link(const struct fs *fs, int fd, int dir, const char *name)
{
    AUTO_CALL call = FILES_CALL(FILE_LINK, .name = name, .fds = {fd, dir}, .fd_count = 2);

    return request_plain(fs, &call);
}

static int remote_rename(const struct fs *fs, int from_dir, const char *from, int to_dir,
                         const char *to, unsigned flags)
{
    AUTO_CALL call = FILES_CALL(FILE_RENAME, .head.flags = flags, .name = from,
                                .other = to, .fds = {from_dir, to_dir}, .fd_count = 2);

    return request_plain(fs, &call);
}

static int remote_remove(const struct fs *fs, int dir, const char *name, int flags)
{
    AUTO_CALL call = FILES_CALL(FILE_REMOVE, .head.flags = (unsigned)flags, .name = name,
                                .fds = {dir}, .fd_count = 1);

    return request_plain(fs, &call);
}

static int remote_set_times(const struct fs *fs, int fd, const char *name,
                            const struct timespec times[2])
{
    AUTO_CALL call = FILES_CALL(FILE_SET_TIMES, .name = name, .fds = {fd}, .fd_count = 1,
                                .head.times = {times[0].tv_sec, times[0].tv_nsec,
                                               times[1].tv_sec, times[1].tv_nsec});

    return request_plain(fs, &call);
}

static int remote_set_mode(const struct fs *fs, int fd, mode_t mode)
{
    AUTO_CALL call =
        FILES_CALL(FILE_SET_MODE, .head.mode = mode, .fds = {fd}, .fd_count = 1);

    return request_plain(fs, &call);
}

static int remote_set_owner(const struct fs *fs, int fd, uid_t uid, gid_t gid)
{
    AUTO_CALL call = FILES_CALL(FILE_SET_OWNER, .head.flags = uid, .head.resolve = gid,
                                .fds = {fd}, .fd_count = 1);

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
        AUTO_CALL call = FILES_CALL(FILE_TAKE_ROOM, .head.flags = at + done,
                                    .head.resolve = part, .fds = {fd}, .fd_count = 1);
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
    AUTO_CALL call = FILES_CALL(model < 0 ? FILE_DRAFT : FILE_DRAFT_LIKE,
                                .head.mode = mode, .head.resolve = room_ahead(fs, room),
                                .fds = {dir, model}, .fd_count = model < 0 ? 1 : 2);
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
    AUTO_CALL call = FILES_CALL(FILE_LIKE, .fds = {fd, model}, .fd_count = 2);

    return request_plain(fs, &call);
}

static int remote_commit(const struct fs *fs, int fd, int dir, const char *temp,
                         const char *name, bool replace)
{
    AUTO_CALL call = FILES_CALL(FILE_COMMIT, .head.flags = replace, .name = name,
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
            remote->user);
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
    if (remote->socket >= 0)
        rights_let_go(remote->socket, remote->owner);
    pthread_mutex_destroy(&remote->mutex);
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
    .set_owner = remote_set_owner,
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
    const char *user = sandbox->user;
    AUTO_FD socket = sandbox->socket;
    char start[PATH_MAX];

    if (user && (!*user || strlen(user) >= FILES_USER_MAX))
        return cay_fail(err, CAY_E_NOT_FOUND, 0, op, user,
                        "there is no such user in the sandbox",
                        "a user name has 1 to %d characters", USER_NAME_MAX - 1);
    struct remote *remote = malloc(sizeof *remote);
    if (!remote)
        return cay_fail_memory(err, op);
    memset(remote, 0, offsetof(struct remote, packet));
    remote->fs = calls;
    remote->fs.cookie = remote;
    remote->users = sandbox->users;
    remote->groups = sandbox->groups;
    remote->usage = -1;
    remote->socket = TAKE_FD(socket);
    remote->owner = getpid();
    remote->polls = count_polls();
    pthread_mutex_init(&remote->mutex, NULL);
    atomic_init(&remote->references, 1);
    if (sandbox->cgroups && sandbox->memory_bytes) {
        remote->cgroups = *sandbox->cgroups;
        remote->memory_bytes = sandbox->memory_bytes;
        remote->usage = cgroup_open_usage(sandbox->cgroups);
        remote->is_in_memory = sandbox->is_in_memory;
        remote->fs.take_room = remote_take_room;
    }
    int code = open_session(remote, user ? user : "",
                            sandbox->reply_ms ? sandbox->reply_ms : REPLY_MS, start, err);
    if (!code)
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
