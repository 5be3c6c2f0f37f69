/* SPDX-License-Identifier: Apache-2.0 */

/* Files are opened here and read outside.
 *
 * Every operation runs with the fsuid, fsgid and groups of the connection's user, so the
 * kernel checks it as that user's.  A file is opened for real only after a look at it
 * through O_PATH: it is a regular file or a directory, never a FIFO or a device, so no
 * open can block.  An open file of /proc is never sent out: what a read returns depends
 * on the reader, and a write would be the host's; its content is read here, and a copy is
 * sent. */
#include "init/file.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <linux/capability.h>
#include <linux/fs.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "init/request.h"
#include "init/user.h"
#include "sys/fs.h"
#include "sys/io.h"
#include "sys/path.h"

struct file_user {
    uint64_t number; /* unique, unlike the address */
    uid_t uid;
    gid_t gid;
    bool with_roots_rights; /* root's rights; new files belong to the user */
    size_t group_count;
    gid_t groups[USER_GROUPS_MAX];
};

/* A request with its descriptors in order, and its reply. */
struct job {
    struct file_request head;
    const char *name, *other;
    int fds[2];
    int fd, dir; /* to send, or -1 */
    struct file_reply reply;
    union { /* in the packet it follows the reply */
        char text[PATH_MAX];
        struct file_look looks[FILE_LOOKS_MAX];
    };
    size_t look_count;
};
_Static_assert(offsetof(struct job, text) ==
                   offsetof(struct job, reply) + sizeof(struct file_reply),
               "a reply is sent as it lies in memory");

static int root_fd = -1;
static uid_t own_uid;
static bool no_pseudo; /* /proc is the host's */

void file_prepare(const struct plan *plan)
{
    no_pseudo = plan->no_namespaces && !plan->unconfined;
}

/* --- Resolving paths.  The kernel follows the links: PID 1's root is the sandbox's, so
 * no link leads out of it.  Only a path whose target is missing is resolved by hand. ---
 */

enum { LINKS_MAX = 40, TRIES_MAX = 16 };

/* Without magic links: a link of /proc may lead to a file that has no name. */
#define BY_NAMES (RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS)

static bool has_up(const char *path)
{
    for (const char *at = path; (at = strstr(at, "..")); at += 2)
        if ((at == path || at[-1] == '/') && (at[2] == '/' || !at[2]))
            return true;
    return false;
}

/* Removes empty and "." components from a path without "..". */
static void tidy(char *path)
{
    char *to = path;

    for (const char *from = path; *from;) {
        size_t len = strcspn(from, "/");
        if (len > 1 || (len == 1 && *from != '.')) {
            if (to != path)
                *to++ = '/';
            memmove(to, from, len);
            to += len;
        }
        from += len + (from[len] == '/');
    }
    *to = '\0';
}

/* The kernel's path of an open descriptor. */
static int place_of(int fd, char ret_place[PATH_MAX], struct stat *ret_stat)
{
    char text[PATH_MAX];
    int error = path_name(fd, text);

    if (error)
        return error;
    /* Deleted or moved away meanwhile: the text is not a path then. */
    if (fstat(fd, ret_stat) != 0 || ret_stat->st_nlink == 0 || text[0] != '/')
        return -EAGAIN;
    memcpy(ret_place, text + 1, strlen(text));
    return 0;
}

/* "dir/name/rest" without the empty parts. */
static int join(const char *dir, const char *name, const char *rest,
                char ret_path[PATH_MAX])
{
    char text[PATH_MAX];
    int len = snprintf(text, sizeof text, "%s%s%s%s%s", dir, *dir ? "/" : "", name,
                       *rest ? "/" : "", rest);

    if (len < 0 || (size_t)len >= sizeof text)
        return -ENAMETOOLONG;
    memcpy(ret_path, text, (size_t)len + 1);
    return 0;
}

/* Opens the deepest existing directory of the path, and returns the rest of the path. */
static int open_deepest(int root, const char *path, char ret_rest[PATH_MAX])
{
    char head[PATH_MAX];
    size_t len = strlen(path);

    memcpy(head, path, len + 1);
    for (;;) {
        while (len > 0 && head[len - 1] == '/')
            len--;
        while (len > 0 && head[len - 1] != '/')
            len--;
        head[len] = '\0';
        int fd = path_open(root, head, O_PATH | O_DIRECTORY, 0, BY_NAMES);
        if (fd != -ENOENT || len == 0) {
            memcpy(ret_rest, path + len, strlen(path + len) + 1);
            return fd;
        }
    }
}

/* One step towards a missing file: 0 and its resolved path, or 1 and the path that a link
 * on the way leads to. */
static int approach(int root, char path[PATH_MAX], char ret_place[PATH_MAX])
{
    char tail[PATH_MAX], name[NAME_MAX + 1], target[PATH_MAX];
    struct stat st;
    AUTO_FD dir = open_deepest(root, path, tail);

    if (dir < 0)
        return dir;
    int error = place_of(dir, ret_place, &st);
    if (error)
        return error;
    if (has_up(tail)) {
        *ret_place = '\0';
        return -ENOENT;
    }
    tidy(tail);
    size_t len = strcspn(tail, "/");
    if (len == 0 || len > NAME_MAX)
        return len ? -ENAMETOOLONG : -EAGAIN;
    memcpy(name, tail, len);
    name[len] = '\0';
    const char *rest = tail + len + (tail[len] == '/');

    AUTO_FD link = path_open(dir, name, O_PATH | O_NOFOLLOW, 0, PATH_PLAIN);
    if (link == -ENOENT)
        return join(ret_place, name, rest, ret_place);
    if (link < 0)
        return link;
    if (fstat(link, &st) != 0 || !S_ISLNK(st.st_mode))
        return -EAGAIN;
    ssize_t got = readlinkat(link, "", target, sizeof target);
    if (got < 0 || (size_t)got >= sizeof target || fs_is_pseudo(link))
        return -ELOOP;
    target[got] = '\0';
    error = join(*target == '/' ? "" : ret_place, target, rest, path);
    return error ? error : 1;
}

static int resolve_missing(int root, const char *path, char ret_place[PATH_MAX])
{
    char way[PATH_MAX];

    memcpy(way, path, strlen(path) + 1);
    for (int links = 0; links < LINKS_MAX; links++) {
        int more = approach(root, way, ret_place);
        if (more == 0)
            return -ENOENT;
        if (more < 0) {
            *ret_place = '\0';
            return more;
        }
    }
    *ret_place = '\0';
    return -ELOOP;
}

static int resolve_once(int root, const char *path, bool follow, char ret_place[PATH_MAX],
                        struct stat *ret_stat)
{
    *ret_place = '\0';
    if (!has_up(path)) {
        AUTO_FD fd = path_open(root, path, O_PATH | O_NOFOLLOW, 0, PATH_PLAIN);
        bool is_plain =
            fd >= 0 ? fstat(fd, ret_stat) == 0 && !(follow && S_ISLNK(ret_stat->st_mode))
                    : fd == -ENOENT || fd == -ENOTDIR;
        if (is_plain) {
            memcpy(ret_place, path, strlen(path) + 1);
            return fd >= 0 ? TAKE_FD(fd) : -ENOENT;
        }
        if (fd < 0 && fd != -ELOOP)
            return fd;
    }
    AUTO_FD fd = path_open(root, path, O_PATH | (follow ? 0 : O_NOFOLLOW), 0, BY_NAMES);
    if (fd == -ENOENT)
        return resolve_missing(root, path, ret_place);
    if (fd < 0)
        return fd;
    int error = place_of(fd, ret_place, ret_stat);
    return error ? error : TAKE_FD(fd);
}

/* Whether `fd` is an entry of PID 1 itself below /proc.  The kernel shows a process its
 * own memory map and descriptors whatever its fsuid is; callers must not see them. */
static bool is_own_entry(int fd)
{
    char own[32], text[PATH_MAX];

    if (!fs_is_pseudo(fd))
        return false;
    int len = snprintf(own, sizeof own, "/proc/%d", getpid());
    return path_name(fd, text) != 0 || (strncmp(text, own, (size_t)len) == 0 &&
                                        (text[len] == '/' || text[len] == '\0'));
}

/* Where a path below the root leads: an O_PATH descriptor with its fstat; -ENOENT with
 * ret_place filled in if nothing is there; or another negative errno with ret_place
 * empty. ret_place has no links and no slashes at its ends.  PID 1's own entries of /proc
 * are -EACCES. */
static int resolve(int root, const char *path, bool follow, char ret_place[PATH_MAX],
                   struct stat *ret_stat)
{
    int result = -EAGAIN;

    if (strlen(path) >= PATH_MAX)
        return -ENAMETOOLONG;
    for (int tries = 0; tries < TRIES_MAX && result == -EAGAIN; tries++)
        result = resolve_once(root, path, follow, ret_place, ret_stat);
    if (result < 0 || !is_own_entry(result))
        return result;
    (void)close(result);
    *ret_place = '\0';
    return -EACCES;
}

/* --- The user --- */

/* The groups stay set after an operation: they give root nothing it does not have, and
 * each command sets its own. */
static bool take_groups(const struct file_user *user)
{
    static uint64_t now;

    if (user->number == now)
        return true;
    /* Where setgroups is denied there is only one user, PID 1's own. */
    if (setgroups(user->group_count, user->groups) != 0 && user->uid != own_uid)
        return false;
    (void)setfsgid(user->gid);
    if (user->uid != own_uid && (gid_t)setfsgid((gid_t)-1) != user->gid)
        return false;
    now = user->number;
    return true;
}

/* setfsuid(2) to a user other than root drops the effective file capabilities. */
static bool take_rights(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2];

    if (syscall(SYS_capget, &header, data) != 0)
        return false;
    data[0].effective = data[0].permitted;
    data[1].effective = data[1].permitted;
    return syscall(SYS_capset, &header, data) == 0;
}

static void become_ourselves(const struct file_user *user)
{
    if (user->uid != own_uid)
        (void)setfsuid(own_uid);
}

/* If it fails, the identity is unchanged. */
static bool become(const struct file_user *user)
{
    if (!take_groups(user))
        return false;
    if ((uid_t)setfsuid((uid_t)-1) != user->uid)
        (void)setfsuid(user->uid);
    /* setfsuid(2) needs memory and reports no failure. */
    if ((uid_t)setfsuid((uid_t)-1) == user->uid &&
        (!user->with_roots_rights || take_rights()))
        return true;
    become_ourselves(user);
    return false;
}

/* These calls report no failure; they just have no effect. */
static bool may_become(const struct file_user *user)
{
    bool fine = become(user) && (uid_t)setfsuid((uid_t)-1) == user->uid &&
                (gid_t)setfsgid((gid_t)-1) == user->gid;

    become_ourselves(user);
    return fine;
}

static struct file_user *find_user(const char *who, bool with_roots_rights,
                                   struct user *ret_found, struct cay_error *err)
{
    static uint64_t count;
    AUTO_FREE struct file_user *user = calloc(1, sizeof *user);

    if (!user) {
        cay_fail_memory(err, "files.user");
        return NULL;
    }
    if (user_find(who, ret_found, err) != CAY_OK)
        return NULL;
    *user = (struct file_user){.number = ++count,
                               .uid = ret_found->uid,
                               .gid = ret_found->gid,
                               .with_roots_rights = with_roots_rights,
                               .group_count = ret_found->group_count};
    memcpy(user->groups, ret_found->groups, sizeof user->groups);
    if (!may_become(user) || (with_roots_rights && own_uid != 0)) {
        cay_fail(err, CAY_E_UNSUPPORTED, 0, "files.user", who,
                 "this sandbox has only one user", "omit the user");
        return NULL;
    }
    return TAKE_PTR(user);
}

/* The directory where commands start: / if the home is missing. */
static const char *start_of(const struct user *user)
{
    const char *workdir = request_workdir();
    char place[PATH_MAX];
    struct stat st;

    if (*workdir)
        return workdir;
    AUTO_FD fd = resolve(root_fd, user->home + strspn(user->home, "/"), true, place, &st);
    return fd >= 0 && *user->home == '/' ? user->home : "/";
}

void file_forget_root(void)
{
    if (root_fd < 0)
        return;
    (void)close(root_fd);
    root_fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
}

static bool begin(int socket, const struct packet *packet, struct file_user **user)
{
    struct cay_error error = {0};
    struct user found;
    char payload[PATH_MAX + USER_NAME_MAX];

    if (*user || packet->head.fd_count || packet->head.len == 0 ||
        packet->head.len > FILES_USER_MAX || packet->payload[packet->head.len - 1] ||
        strlen(packet->payload) + 1 != packet->head.len)
        return false;
    if (root_fd < 0)
        root_fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    own_uid = geteuid();
    const char *who = packet->payload;
    bool with_roots_rights = strncmp(who, FILES_AS_ROOT, sizeof FILES_AS_ROOT - 1) == 0;
    if (with_roots_rights)
        who += sizeof FILES_AS_ROOT - 1;
    if (!*who)
        who = request_default_user();
    *user = find_user(who, with_roots_rights, &found, &error);
    if (!*user)
        return packet_send(socket, MESSAGE_FAILED, &error, sizeof error, NULL, 0) == 0;
    int len = snprintf(payload, sizeof payload, "%s%c%s", start_of(&found), 0, who);
    return packet_send(socket, MESSAGE_FILES_READY, payload, (size_t)len + 1, NULL, 0) ==
           0;
}

/* --- Opening --- */

/* A copy of a /proc file, whose content exists only while it is read. */
static int copy_out(int fd)
{
    static LARGE char piece[16 << 10];
    AUTO_FD from = path_reopen(fd, O_RDONLY);
    struct stat st;
    size_t total = 0;

    if (from < 0)
        return from;
    AUTO_FD to = memfd_create("file", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (to < 0 || fstat(from, &st) != 0 || fchmod(to, st.st_mode & 07777) != 0)
        return -errno;
    for (;;) {
        ssize_t got = read(from, piece, sizeof piece);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -errno;
        if (got == 0)
            break;
        total += (size_t)got;
        int error = total > FILE_COPY_MAX ? -EMSGSIZE : io_write(to, piece, (size_t)got);
        if (error)
            return error;
    }
    if (lseek(to, 0, SEEK_SET) != 0 || fcntl(to, F_SETFL, O_NONBLOCK) != 0)
        return -errno;
    return TAKE_FD(to);
}

/* Opens an O_PATH descriptor for real, after checking its type. */
static int open_held(int fd, mode_t mode, int flags, uint32_t *ret_flags)
{
    bool is_writing = (flags & O_ACCMODE) != O_RDONLY;

    if (flags & O_DIRECTORY ? !S_ISDIR(mode) : !S_ISREG(mode))
        return flags & O_DIRECTORY ? -ENOTDIR : -ENXIO;
    bool is_pseudo = fs_is_pseudo(fd);
    if (is_pseudo && no_pseudo)
        return -EACCES;
    if (S_ISREG(mode) && is_pseudo) {
        *ret_flags |= FILE_IS_COPY;
        return is_writing ? -EPERM : copy_out(fd);
    }
    return path_reopen(fd, flags);
}

static void open_ahead(struct job *job, mode_t mode)
{
    uint32_t flags = job->reply.flags;
    int fd = open_held(job->fd, mode, O_RDONLY, &flags);

    if (fd < 0)
        return; /* the error is reported when the file is opened */
    (void)close(job->fd);
    job->fd = fd;
    job->reply.flags = flags | FILE_IS_OPEN;
}

static void hold_directory(struct job *job, const char *place)
{
    char above[PATH_MAX];
    const char *slash = strrchr(place, '/');
    size_t len = slash ? (size_t)(slash - place) : 0;

    if (job->fd >= 0)
        job->reply.write_error = fs_direct.may_write(&fs_direct, job->fd);
    if (!*place)
        return;
    memcpy(above, place, len);
    above[len] = '\0';
    job->dir = path_open(job->fds[0], above, O_PATH | O_DIRECTORY, 0, PATH_PLAIN);
    if (job->dir < 0)
        job->dir = -1;
}

static int find(struct job *job)
{
    const uint64_t flags = job->head.flags;
    struct stat st;

    if (flags & ~(uint64_t)(FS_NO_FOLLOW | FS_AND_READ | FS_AND_CHANGE))
        return -EINVAL;
    int fd = resolve(job->fds[0], job->name, !(flags & FS_NO_FOLLOW), job->text, &st);
    if (fd < 0 && (fd != -ENOENT || !*job->text))
        return fd;
    job->fd = fd < 0 ? -1 : fd;
    if (flags & FS_AND_CHANGE)
        hold_directory(job, job->text);
    if (fd >= 0 && flags & FS_AND_READ)
        open_ahead(job, st.st_mode);
    if (strcmp(job->text, job->name) != 0)
        job->reply.flags |= FILE_HAS_TEXT;
    return 0;
}

/* Directories, and O_PATH descriptors. */
static int open_path(struct job *job)
{
    const uint64_t known = O_PATH | O_DIRECTORY | O_NOFOLLOW;
    const uint64_t resolve = PATH_PLAIN | RESOLVE_NO_XDEV;
    uint64_t flags = job->head.flags;

    if (flags & ~known || !(flags & (O_PATH | O_DIRECTORY)) ||
        job->head.resolve & ~resolve)
        return -EINVAL;
    AUTO_FD fd = path_open(job->fds[0], job->name, flags, 0,
                           job->head.resolve | RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS);
    if (fd < 0)
        return fd;
    if (is_own_entry(fd) || (!(flags & O_PATH) && no_pseudo && fs_is_pseudo(fd)))
        return -EACCES;
    /* A recursive walk should not descend into /proc. */
    if (!(flags & O_PATH) && *job->name && fs_is_pseudo(fd) && !fs_is_pseudo(job->fds[0]))
        return -EXDEV;
    job->fd = TAKE_FD(fd);
    return 0;
}

static int reopen(struct job *job)
{
    struct stat st;

    if (job->head.flags & ~(uint64_t)(O_ACCMODE | O_APPEND | O_DIRECTORY))
        return -EINVAL;
    if (fstat(job->fds[0], &st) != 0)
        return -errno;
    int fd = open_held(job->fds[0], st.st_mode, (int)job->head.flags, &job->reply.flags);
    if (fd < 0)
        return fd;
    job->fd = fd;
    return 0;
}

/* --- Names --- */

enum text { NOTHING, NAME, NAME_OR_NOTHING, ANYTHING };

static bool fits(const char *text, enum text kind)
{
    if (kind == ANYTHING)
        return strlen(text) < PATH_MAX;
    if (!*text)
        return kind != NAME;
    return kind != NOTHING && strlen(text) <= NAME_MAX && !strchr(text, '/') &&
           strcmp(text, ".") != 0 && strcmp(text, "..") != 0;
}

/* --- The rest --- */

static int read_link(struct job *job)
{
    ssize_t len = fs_direct.read_link(&fs_direct, job->fds[0], job->text, PATH_MAX);

    if (len < 0)
        return (int)len;
    if (len >= PATH_MAX)
        return -ENAMETOOLONG;
    job->text[len] = '\0';
    job->reply.flags |= FILE_HAS_TEXT;
    return 0;
}

static struct file_look look_at(int dir, const char *name)
{
    struct stat st;
    int error = fs_direct.stat(&fs_direct, dir, name, &st);

    if (error)
        return (struct file_look){.error = error};
    return (struct file_look){
        .mode = st.st_mode,
        .uid = st.st_uid,
        .gid = st.st_gid,
        .links = st.st_nlink < UINT32_MAX ? (uint32_t)st.st_nlink : UINT32_MAX,
        .bytes = (uint64_t)st.st_size,
        .mtime = st.st_mtim.tv_sec,
        .mtime_nanoseconds = (uint32_t)st.st_mtim.tv_nsec,
    };
}

static int look(struct job *job)
{
    char name[NAME_MAX + 1];
    const char *names = job->name;

    do {
        size_t len = strcspn(names, "/");
        if (len > NAME_MAX || job->look_count == FILE_LOOKS_MAX)
            return -EINVAL;
        memcpy(name, names, len);
        name[len] = '\0';
        if (!fits(name, NAME))
            return -EINVAL;
        job->looks[job->look_count++] = look_at(job->fds[0], name);
        names += len;
    } while (*names++);
    return 0;
}

static int set_times(const struct job *job)
{
    const int64_t *times = job->head.times;
    const struct timespec both[2] = {{times[0], times[1]}, {times[2], times[3]}};

    return fs_direct.set_times(&fs_direct, job->fds[0], *job->name ? job->name : NULL,
                               both);
}

/* The pages of a tmpfs file are charged to the cgroup of the process that allocates them,
 * here PID 1's.  The library has checked that its limit allows that. */
static int take_room(int fd, uint64_t at, uint64_t len)
{
    if (len == 0 || len > FILE_ROOM_MAX || at > INT64_MAX - len)
        return -EINVAL;
    return fallocate(fd, FALLOC_FL_KEEP_SIZE, (off_t)at, (off_t)len) == 0 ? 0 : -errno;
}

static int draft(struct job *job, int model)
{
    int fd = fs_direct.draft(&fs_direct, job->fds[0], job->head.mode & 0777, model, 0,
                             job->text);

    if (fd < 0)
        return fd;
    (void)fcntl(fd, F_SETFL, O_NONBLOCK);
    job->fd = fd;
    job->reply.flags |= FILE_HAS_TEXT;
    if (job->head.resolve) /* the library checks whether it was allocated */
        (void)take_room(fd, 0, job->head.resolve);
    return 0;
}

static int act(struct job *job)
{
    const struct fs *fs = &fs_direct;
    const int *fds = job->fds;
    mode_t mode = job->head.mode & 0777;

    switch ((enum file_op)job->head.op) {
    case FILE_FIND:
        return find(job);
    case FILE_OPEN:
        return open_path(job);
    case FILE_REOPEN:
        return reopen(job);
    case FILE_MAY_WRITE:
        return fs->may_write(fs, fds[0]);
    case FILE_READ_LINK:
        return read_link(job);
    case FILE_MAKE_DIRECTORY:
        return fs->make_directory(fs, fds[0], job->name, mode);
    case FILE_MAKE_LINK:
        return fs->make_link(fs, job->other, fds[0], job->name);
    case FILE_LINK:
        return fs->link(fs, fds[0], fds[1], job->name);
    case FILE_RENAME:
        return fs->rename(fs, fds[0], job->name, fds[1], job->other,
                          job->head.flags & RENAME_NOREPLACE);
    case FILE_REMOVE:
        return fs->remove(fs, fds[0], job->name, job->head.flags & AT_REMOVEDIR);
    case FILE_SET_TIMES:
        return set_times(job);
    case FILE_SET_MODE:
        return fs->set_mode(fs, fds[0], job->head.mode & 01777);
    case FILE_DRAFT:
        return draft(job, -1);
    case FILE_DRAFT_LIKE:
        return draft(job, fds[1]);
    case FILE_LIKE:
        return fs->like(fs, fds[0], fds[1]);
    case FILE_COMMIT:
        return fs->commit(fs, fds[0], fds[1], job->other, job->name, job->head.flags & 1);
    case FILE_LOOK:
        return look(job);
    case FILE_TAKE_ROOM:
        return take_room(fds[0], job->head.flags, job->head.resolve);
    case FILE_SET_OWNER:
        return fs->set_owner(fs, fds[0], (uid_t)job->head.flags,
                             (gid_t)job->head.resolve);
    }
    return -EINVAL;
}

/* --- Requests --- */

/* The arguments of each operation: how many descriptors, which of them it changes (bits),
 * and the two strings. */
static const struct rule {
    unsigned char fds, changed;
    enum text name, other;
} rules[] = {
    [FILE_FIND] = {1, 0, ANYTHING, NOTHING},
    [FILE_OPEN] = {1, 0, ANYTHING, NOTHING},
    [FILE_REOPEN] = {1, 0, NOTHING, NOTHING},
    [FILE_MAY_WRITE] = {1, 0, NOTHING, NOTHING},
    [FILE_READ_LINK] = {1, 0, NOTHING, NOTHING},
    [FILE_MAKE_DIRECTORY] = {1, 1, NAME, NOTHING},
    [FILE_MAKE_LINK] = {1, 1, NAME, ANYTHING},
    [FILE_LINK] = {2, 2, NAME, NOTHING},
    [FILE_RENAME] = {2, 3, NAME, NAME},
    [FILE_REMOVE] = {1, 1, NAME, NOTHING},
    [FILE_SET_TIMES] = {1, 1, NAME_OR_NOTHING, NOTHING},
    [FILE_SET_MODE] = {1, 1, NOTHING, NOTHING},
    [FILE_DRAFT] = {1, 1, NOTHING, NOTHING},
    [FILE_DRAFT_LIKE] = {2, 1, NOTHING, NOTHING},
    [FILE_LIKE] = {2, 1, NOTHING, NOTHING},
    [FILE_COMMIT] = {2, 2, NAME, NAME_OR_NOTHING},
    [FILE_LOOK] = {1, 0, ANYTHING, NOTHING},
    [FILE_TAKE_ROOM] = {1, 1, NOTHING, NOTHING},
    [FILE_SET_OWNER] = {1, 1, NOTHING, NOTHING},
};

/* Parses the strings and descriptors of a request; false if they do not fit its
 * operation. */
static bool parse(const struct packet *packet, struct job *job)
{
    const char *end = packet->payload + packet->head.len;
    uint32_t used = 0;

    if (packet->head.len < sizeof job->head + 2 || end[-1] != '\0')
        return false;
    memcpy(&job->head, packet->payload, sizeof job->head);
    if (job->head.op < FILE_FIND || job->head.op > FILE_SET_OWNER)
        return false;
    const struct rule *rule = &rules[job->head.op];
    job->name = packet->payload + sizeof job->head;
    job->other = job->name + strlen(job->name) + 1;
    if (job->other >= end || job->other + strlen(job->other) + 1 != end ||
        !fits(job->name, rule->name) || !fits(job->other, rule->other))
        return false;
    for (uint32_t i = 0; i < rule->fds; i++) {
        bool at_root = job->head.at_root & 1u << i;
        if (!at_root && used == packet->head.fd_count)
            return false;
        job->fds[i] = at_root ? root_fd : packet->fds[used++];
    }
    return used == packet->head.fd_count;
}

static int act_as(const struct file_user *user, struct job *job)
{
    unsigned changed = rules[job->head.op].changed;

    for (unsigned i = 0; i < 2; i++)
        if (changed & 1u << i && fs_is_pseudo(job->fds[i]))
            return -EPERM;
    if (!become(user))
        return -EPERM;
    int error = act(job);
    become_ourselves(user);
    return error;
}

static int send_reply(int socket, struct job *job)
{
    int fds[2];
    size_t count = 0, len = sizeof job->reply;

    if (job->fd >= 0) {
        fds[count++] = job->fd;
        job->reply.flags |= FILE_HAS_FD;
    }
    if (job->dir >= 0) {
        fds[count++] = job->dir;
        job->reply.flags |= FILE_HAS_DIR;
    }
    if (job->reply.flags & FILE_HAS_TEXT) {
        job->reply.text_len = (uint32_t)strlen(job->text);
        len += job->reply.text_len + 1;
    } else if (!job->reply.error)
        len += job->look_count * sizeof *job->looks;
    int error = packet_send(socket, MESSAGE_FILE_DONE, &job->reply, len, fds, count);
    if (error != -ETOOMANYREFS)
        return error;
    /* ETOOMANYREFS: too many descriptors are in flight inside. */
    const struct file_reply refusal = {.error = error, .write_error = 1};
    return packet_send(socket, MESSAGE_FILE_DONE, &refusal, sizeof refusal, NULL, 0);
}

bool file_handle(int socket, const struct packet *packet, struct file_user **user)
{
    static LARGE struct job job;

    if (packet->head.kind == MESSAGE_FILES)
        return begin(socket, packet, user);
    job.fd = job.dir = -1;
    job.reply = (struct file_reply){.write_error = 1};
    job.text[0] = '\0';
    job.look_count = 0;
    if (!*user || !parse(packet, &job))
        return false;
    job.reply.error = act_as(*user, &job);
    int error = send_reply(socket, &job);
    if (job.fd >= 0)
        (void)close(job.fd);
    if (job.dir >= 0)
        (void)close(job.dir);
    return error == 0;
}
