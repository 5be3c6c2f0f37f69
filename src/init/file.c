/* SPDX-License-Identifier: Apache-2.0 */

/* Files are opened here and read outside.
 *
 * Every operation is done with the file system identity of the connection's user: the
 * kernel judges it as if that user did it.  What is opened for real was looked at before,
 * through O_PATH: it is a regular file or a directory, never a FIFO or a device, so that
 * no open can wait for anybody.  Of /proc nothing that is open goes out: what a read
 * there tells depends on who reads, and a write would be the host's; what can be read is
 * read here, and a copy of it goes out. */
#include "init/file.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/fs.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "init/find.h"
#include "init/request.h"
#include "init/user.h"
#include "sys/fs.h"
#include "sys/io.h"
#include "sys/path.h"

struct file_user {
    uint64_t number; /* tells users apart that lived at the same address */
    uid_t uid;
    gid_t gid;
    bool with_roots_rights; /* only what is made is the user's */
    size_t group_count;
    gid_t groups[USER_GROUPS_MAX];
};

/* A request with its descriptors in order, and what is to be answered. */
struct job {
    struct file_request head;
    const char *name, *other;
    int fds[2];
    int fd, dir; /* to be sent, or -1 */
    struct file_answer answer;
    union { /* follows it in the packet, too */
        char text[PATH_MAX];
        struct file_look looks[FILE_LOOKS_MAX];
    };
    size_t look_count;
};
_Static_assert(offsetof(struct job, text) ==
                   offsetof(struct job, answer) + sizeof(struct file_answer),
               "an answer is sent as it lies there");

static int root_fd = -1;
static uid_t own_uid;
static bool no_pseudo; /* what is there is the host's */

void file_prepare(const struct plan *plan)
{
    no_pseudo = plan->no_namespaces && !plan->unconfined;
}

/* --- The user ------------------------------------------------------------------------
 */

/* The groups stay as they are after an operation: they give root nothing it has not got,
 * and a command sets its own. */
static bool take_groups(const struct file_user *user)
{
    static uint64_t now;

    if (user->number == now)
        return true;
    /* Where it is forbidden there is only one user, and that is us. */
    if (setgroups(user->group_count, user->groups) != 0 && user->uid != own_uid)
        return false;
    (void)setfsgid(user->gid);
    if (user->uid != own_uid && (gid_t)setfsgid((gid_t)-1) != user->gid)
        return false;
    now = user->number;
    return true;
}

/* setfsuid(2) has taken them away, for whoever is not root. */
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

/* If not, we still are who we were. */
static bool become(const struct file_user *user)
{
    if (!take_groups(user))
        return false;
    if ((uid_t)setfsuid((uid_t)-1) != user->uid)
        (void)setfsuid(user->uid);
    /* It needs memory, and reports no failure. */
    if ((uid_t)setfsuid((uid_t)-1) == user->uid &&
        (!user->with_roots_rights || take_rights()))
        return true;
    become_ourselves(user);
    return false;
}

/* These calls never fail; they only do nothing. */
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
                 "this sandbox has only one user", "leave the user out");
        return NULL;
    }
    return TAKE_PTR(user);
}

/* Where commands start: in the root, if there is no home. */
static const char *start_of(const struct user *user)
{
    const char *workdir = request_workdir();
    char place[PATH_MAX];
    struct stat st;

    if (*workdir)
        return workdir;
    AUTO_FD fd =
        find_place(root_fd, user->home + strspn(user->home, "/"), true, place, &st);
    return fd >= 0 && *user->home == '/' ? user->home : "/";
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

/* --- Opening -------------------------------------------------------------------------
 */

/* The content of a file that has none but while it is read. */
static int copy_out(int fd)
{
    static char piece[16 << 10];
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

/* Opens what is held for real, having looked at it. */
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
    uint32_t flags = job->answer.flags;
    int fd = open_held(job->fd, mode, O_RDONLY, &flags);

    if (fd < 0)
        return; /* it will be told when it is asked for */
    (void)close(job->fd);
    job->fd = fd;
    job->answer.flags = flags | FILE_IS_OPEN;
}

static void hold_directory(struct job *job, const char *place)
{
    char above[PATH_MAX];
    const char *slash = strrchr(place, '/');
    size_t len = slash ? (size_t)(slash - place) : 0;

    if (job->fd >= 0)
        job->answer.write_error = fs_direct.may_write(&fs_direct, job->fd);
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
    int fd = find_place(job->fds[0], job->name, !(flags & FS_NO_FOLLOW), job->text, &st);
    if (fd < 0 && (fd != -ENOENT || !*job->text))
        return fd;
    job->fd = fd < 0 ? -1 : fd;
    if (flags & FS_AND_CHANGE)
        hold_directory(job, job->text);
    if (fd >= 0 && flags & FS_AND_READ)
        open_ahead(job, st.st_mode);
    if (strcmp(job->text, job->name) != 0)
        job->answer.flags |= FILE_HAS_TEXT;
    return 0;
}

/* Directories, and what is only held. */
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
    if (find_is_own(fd) || (!(flags & O_PATH) && no_pseudo && fs_is_pseudo(fd)))
        return -EACCES;
    /* Who walks through everything does not mean the numbers of /proc. */
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
    int fd = open_held(job->fds[0], st.st_mode, (int)job->head.flags, &job->answer.flags);
    if (fd < 0)
        return fd;
    job->fd = fd;
    return 0;
}

/* --- Names -------------------------------------------------------------------------
 */

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

/* --- The rest ------------------------------------------------------------------------
 */

static int read_link(struct job *job)
{
    ssize_t len = fs_direct.read_link(&fs_direct, job->fds[0], job->text, PATH_MAX);

    if (len < 0)
        return (int)len;
    if (len >= PATH_MAX)
        return -ENAMETOOLONG;
    job->text[len] = '\0';
    job->answer.flags |= FILE_HAS_TEXT;
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

/* The pages of a file in memory are counted for the cgroup of the process that allocates
 * them, which is ours.  The library has made sure that its limit leaves so much. */
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
    job->answer.flags |= FILE_HAS_TEXT;
    if (job->head.resolve) /* the library sees whether it was taken */
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
        return fs->set_mode(fs, fds[0], mode);
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
    }
    return -EINVAL;
}

/* --- Requests ------------------------------------------------------------------------
 */

/* What goes with each operation: how many descriptors, which of them are of what is
 * changed (bits), and the two strings. */
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
};

/* The strings and descriptors of a request, if they are what its operation takes. */
static bool parse(const struct packet *packet, struct job *job)
{
    const char *end = packet->payload + packet->head.len;
    uint32_t used = 0;

    if (packet->head.len < sizeof job->head + 2 || end[-1] != '\0')
        return false;
    memcpy(&job->head, packet->payload, sizeof job->head);
    if (job->head.op < FILE_FIND || job->head.op > FILE_TAKE_ROOM)
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

static int reply(int socket, struct job *job)
{
    int fds[2];
    size_t count = 0, len = sizeof job->answer;

    if (job->fd >= 0) {
        fds[count++] = job->fd;
        job->answer.flags |= FILE_HAS_FD;
    }
    if (job->dir >= 0) {
        fds[count++] = job->dir;
        job->answer.flags |= FILE_HAS_DIR;
    }
    if (job->answer.flags & FILE_HAS_TEXT) {
        job->answer.text_len = (uint32_t)strlen(job->text);
        len += job->answer.text_len + 1;
    } else if (!job->answer.error)
        len += job->look_count * sizeof *job->looks;
    int error = packet_send(socket, MESSAGE_FILE_DONE, &job->answer, len, fds, count);
    if (error != -ETOOMANYREFS)
        return error;
    /* So many descriptors are under way inside that no more may be. */
    const struct file_answer refusal = {.error = error, .write_error = 1};
    return packet_send(socket, MESSAGE_FILE_DONE, &refusal, sizeof refusal, NULL, 0);
}

bool file_answer(int socket, const struct packet *packet, struct file_user **user)
{
    static struct job job;

    if (packet->head.kind == MESSAGE_FILES)
        return begin(socket, packet, user);
    job.fd = job.dir = -1;
    job.answer = (struct file_answer){.write_error = 1};
    job.text[0] = '\0';
    job.look_count = 0;
    if (!*user || !parse(packet, &job))
        return false;
    job.answer.error = act_as(*user, &job);
    int error = reply(socket, &job);
    if (job.fd >= 0)
        (void)close(job.fd);
    if (job.dir >= 0)
        (void)close(job.dir);
    return error == 0;
}
