/* SPDX-License-Identifier: Apache-2.0 */
#include "native/record/remove.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"
#include "files/walk.h"
#include "init/protocol.h"
#include "native/record/cgroup.h"
#include "native/record/storage.h"
#include "sandbox/backend.h"
#include "sys/fs.h"
#include "sys/io.h"
#include "sys/path.h"
#include "sys/state-home.h"

/* --- The home of a sandbox without namespaces --- */

static const char home_op[] = "sandbox.home";

void record_home_path(const struct record *record, char ret_path[HOME_PATH])
{
    snprintf(ret_path, HOME_PATH, SANDBOX_HOME, record->id);
}

int record_create_home(const struct record *record, uint32_t uid, struct cay_error *err)
{
    char path[HOME_PATH];
    bool is_shared = runtime_is_local(record) && geteuid() == 0;

    record_home_path(record, path);
    int error = state_home_make(AT_FDCWD, path);
    if (error)
        return cay_fail_errno(err, -error, home_op, path);
    AUTO_FD fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    error = fd < 0 ? -errno : state_home_make(fd, "tmp");
    if (error)
        return cay_fail_errno(err, -error, home_op, path);
    if (uid != geteuid() && (fchown(fd, uid, uid) != 0 ||
                             fchownat(fd, "tmp", uid, uid, AT_SYMLINK_NOFOLLOW) != 0))
        return cay_fail_errno(err, errno, home_op, path);
    /* Commands of a local sandbox created by root may run as any user. */
    if (is_shared && (fchmod(fd, 0711) != 0 || fchmodat(fd, "tmp", 01777, 0) != 0))
        return cay_fail_errno(err, errno, home_op, path);
    return CAY_OK;
}

/* A directory may be inaccessible even to its owner: its mode is changed before it is
 * entered or moved. */
static int forced_open(const struct fs *fs, int dir, const char *path, uint64_t flags,
                       uint64_t mode, uint64_t resolve)
{
    (void)path_chmod(dir, path, 0700);
    return fs_direct.open(fs, dir, path, flags, mode, resolve);
}

static int forced_rename(const struct fs *fs, int from_dir, const char *from, int to_dir,
                         const char *to, unsigned flags)
{
    (void)path_chmod(from_dir, from, 0700);
    return fs_direct.rename(fs, from_dir, from, to_dir, to, flags);
}

/* Removes it with its contents, which are untrusted. */
static int remove_home(const struct record *record, struct cay_error *err)
{
    struct fs forced = fs_direct;
    char path[HOME_PATH];

    forced.open = forced_open;
    forced.rename = forced_rename;
    record_home_path(record, path);
    const char *name = strrchr(path, '/') + 1;
    AUTO_FD parent = open("/tmp", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (parent < 0)
        return cay_fail_errno(err, errno, home_op, "/tmp");
    return tree_remove(&forced, home_op, parent, name, path, err);
}

/* --- Ending a sandbox --- */

enum { KILL_MS = 10000 };

bool record_wait_init(int pidfd)
{
    struct pollfd ended = {.fd = pidfd, .events = POLLIN};
    int got;

    do
        got = poll(&ended, 1, KILL_MS);
    while (got < 0 && errno == EINTR);
    return got > 0;
}

/* Without a PID namespace the other processes do not end with init, so init gets a
 * request to end them first.  If init cannot, the subreapers do it. */
bool record_stop_init(const struct record *record, int pidfd)
{
    if (!runtime_has_namespaces(record)) {
        (void)syscall(SYS_pidfd_send_signal, pidfd, SIGTERM, NULL, 0);
        if (record_wait_init(pidfd))
            return true;
    }
    (void)syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
    cgroup_remove_execs(&record->cgroup); /* while init is dying */
    return record_wait_init(pidfd);
}

/* Opens init, or -1 if it has ended.  In another PID namespace its pid may belong to
 * another process. */
static int open_init(const struct record *record, int *ret_pidfd, struct cay_error *err)
{
    *ret_pidfd = -1;
    if (record->init <= 0)
        return CAY_OK;
    AUTO_FD fd = (int)syscall(SYS_pidfd_open, record->init, 0);
    int lives =
        fd < 0 && cay_errno_is_shortage(errno)
            ? -errno
            : runtime_check_alive(
                  record); /* checked after the open, so that it is not a reused pid */
    if (lives < 0)
        return cay_fail_errno(err, -lives, "sandbox.kill", record->id);
    if (lives && (fd < 0 || record->pid_namespace != runtime_pid_namespace()))
        return cay_fail(err, CAY_E_UNAVAILABLE, 0, "sandbox.kill", record->id,
                        "the sandbox was created in another PID namespace",
                        "end it from that PID namespace");
    if (lives)
        *ret_pidfd = TAKE_FD(fd);
    return CAY_OK;
}

int record_kill_init(const struct record *record, int *ret_pidfd, struct cay_error *err)
{
    int code = open_init(record, ret_pidfd, err);

    if (!code && *ret_pidfd >= 0)
        (void)syscall(SYS_pidfd_send_signal, *ret_pidfd,
                      runtime_has_namespaces(record) ? SIGKILL : SIGTERM, NULL, 0);
    return code;
}

int record_fail_end(const struct record *record, int error, struct cay_error *err)
{
    if (error != EBUSY)
        return cay_fail_errno(err, error, "sandbox.kill", record->id);
    return cay_fail(err, CAY_E_BUSY, error, "sandbox.kill", record->id,
                    "the sandbox's processes were killed but have not ended yet",
                    "try again later, or run cay gc");
}

/* It ends with init on its own, but may be stopped, or slower. */
static void stop_relay(const struct record *record)
{
    uint64_t start = 0;

    if (record->relay <= 0 || record->pid_namespace != runtime_pid_namespace())
        return;
    AUTO_FD fd = (int)syscall(SYS_pidfd_open, record->relay, 0);
    if (fd < 0 || runtime_start_time(record->relay, &start) != 0 ||
        start != record->relay_start)
        return;
    (void)syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0);
    (void)record_wait_init(fd);
}

/* The record goes last: without it the rest could not be found again. */
int record_remove(const struct record *record, int pidfd, struct cay_error *err)
{
    AUTO_FD opened = -1;
    int code = pidfd < 0 ? open_init(record, &opened, err) : CAY_OK;

    if (code)
        return code;
    if ((pidfd >= 0 || opened >= 0) &&
        !record_stop_init(record, pidfd >= 0 ? pidfd : opened))
        return record_fail_end(record, EBUSY, err);
    stop_relay(record);
    int error = cgroup_remove(&record->cgroup);
    if (error)
        return record_fail_end(record, -error, err);
    code = runtime_has_namespaces(record) ? CAY_OK : remove_home(record, err);
    if (!code)
        runtime_release(record);
    return code;
}

/* The caller holds the lock.  Processes that are found again after the kill still run:
 * their cgroups and uid range must not go to the next sandbox. */
int record_remove_damaged(const char *id, struct cay_error *err)
{
    struct record record;
    AUTO_FD pidfd = -1;
    int lives = record_recover(id, &record);
    int code = lives > 0 ? open_init(&record, &pidfd, err) : CAY_OK;

    if (code)
        return code;
    if (pidfd >= 0 && !record_stop_init(&record, pidfd))
        return record_fail_end(&record, EBUSY, err);
    int error = lives > 0 ? record_kill_processes(&record) : 0;
    if (!error && lives)
        lives = record_recover(id, &record);
    if (error || lives)
        return record_fail_end(&record, error ? -error : lives < 0 ? -lives : EBUSY, err);
    return record_remove(&record, -1, err);
}

/* --- A sandbox whose record cannot be read --- */

enum { REPLY_MS = 1000, KILL_TRIES = 1000 };

/* --- Processes --- */

/* What /proc/PID/status reports of a process. */
struct process {
    uint32_t uid;
    int inner; /* its pid in the innermost PID namespace */
    int depth; /* number of PID namespaces, starting with ours */
};

/* Reads the relevant lines; the line of the groups is as long as a process inside
 * likes. */
static bool inspect_process(pid_t pid, struct process *ret_process)
{
    AUTO_FREE char *line = NULL;
    char path[64];
    size_t room = 0;
    bool lives = false, has_uid = false;

    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *status = fopen(path, "re");
    memset(ret_process, 0, sizeof *ret_process);
    while (status && getline(&line, &room, status) > 0) {
        if (strncmp(line, "State:\t", 7) == 0) {
            lives = line[7] != 'Z' && line[7] != 'X';
        } else if (strncmp(line, "Uid:\t", 5) == 0) {
            ret_process->uid = (uint32_t)strtoul(line + 5, NULL, 10);
            has_uid = true;
        } else if (strncmp(line, "NSpid:", 6) == 0) {
            for (char *at = line + 6; *at == '\t'; ret_process->depth++)
                ret_process->inner = (int)strtol(at + 1, &at, 10);
        }
    }
    if (status)
        fclose(status);
    return lives && has_uid && ret_process->depth > 0;
}

struct search {
    struct record *record;
    size_t count;  /* number of processes found */
    bool is_asked; /* whether to kill them */
};

static void kill_if(pid_t pid, bool (*is_its)(const struct record *, pid_t),
                    const struct record *record)
{
    AUTO_FD fd = (int)syscall(SYS_pidfd_open, pid, 0);

    /* Checked again, so that it is not another process with a reused pid. */
    if (fd >= 0 && is_its(record, pid))
        (void)syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0);
}

static void note_process(struct record *record, pid_t pid)
{
    uint64_t start = 0;

    if (pid <= 0 || runtime_start_time(pid, &start) != 0 || !start)
        return;
    record->init = pid;
    record->init_start = start;
    record->pid_namespace = runtime_pid_namespace();
}

/* PID 1 is the first process of a PID namespace below ours. */
static void note_init(struct record *record, pid_t pid)
{
    struct process process;

    if (record->init <= 0 && inspect_process(pid, &process) && process.depth >= 2 &&
        process.inner == 1)
        note_process(record, pid);
}

static bool is_in_cgroup(const struct record *record, pid_t pid)
{
    char path[64], text[4096], name[64];

    snprintf(path, sizeof path, "/proc/%d/cgroup", (int)pid);
    snprintf(name, sizeof name, "/cay-%.32s", record->id);
    (void)io_read_text(AT_FDCWD, path, text, sizeof text);
    return strstr(text, name) != NULL;
}

static void note_member(pid_t pid, void *cookie)
{
    struct search *search = cookie;
    struct process process;

    if (pid > 0 && !inspect_process(pid, &process))
        return; /* it has ended; 0 means another PID namespace */
    search->count++;
    note_init(search->record, pid);
    if (search->is_asked)
        kill_if(pid, is_in_cgroup, search->record);
}

/* Only a sandbox without namespaces has a home directory. */
static bool has_home(const struct record *record)
{
    char path[HOME_PATH];
    struct stat st;

    record_home_path(record, path);
    return lstat(path, &st) == 0 && S_ISDIR(st.st_mode) &&
           (st.st_uid == geteuid() ||
            (record->has_range && st.st_uid - record->id_base < record->id_count));
}

static bool is_in_range(const struct record *record, pid_t pid)
{
    struct process process;

    return inspect_process(pid, &process) && process.uid >= record->id_base &&
           process.uid - record->id_base < record->id_count &&
           (process.depth >= 2 || is_in_cgroup(record, pid) || has_home(record));
}

/* The ids of a range belong to this sandbox alone, unless the host also assigns them;
 * such a process is neither in a PID namespace nor in a cgroup of the sandbox. */
static int search_range(struct search *search)
{
    AUTO_DIR list = search->record->has_range ? opendir("/proc") : NULL;

    if (!list)
        return search->record->has_range ? -errno : 0;
    for (struct dirent *entry; (entry = path_next(list));) {
        pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);
        if (pid <= 0 || !is_in_range(search->record, pid))
            continue;
        search->count++;
        note_init(search->record, pid);
        if (search->is_asked)
            kill_if(pid, is_in_range, search->record);
    }
    return 0;
}

static int search_all(struct search *search)
{
    search->count = 0;
    int error = cgroup_visit_pids(&search->record->cgroup, note_member, search);
    int other = search_range(search);
    return error ? error : other;
}

/* --- The control socket --- */

/* The kernel reports the sender of the reply, which is PID 1 whatever the record says. */
static pid_t receive_sender(int fd)
{
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof(struct ucred))];
    } control;
    struct message message;
    struct iovec part = {&message, sizeof message};
    struct msghdr head = {.msg_iov = &part,
                          .msg_iovlen = 1,
                          .msg_control = &control,
                          .msg_controllen = sizeof control};
    struct pollfd waiting = {.fd = fd, .events = POLLIN};
    struct ucred sender;

    if (poll(&waiting, 1, REPLY_MS) <= 0 || recvmsg(fd, &head, MSG_DONTWAIT) <= 0)
        return 0;
    for (struct cmsghdr *one = CMSG_FIRSTHDR(&head); one; one = CMSG_NXTHDR(&head, one))
        if (one->cmsg_level == SOL_SOCKET && one->cmsg_type == SCM_CREDENTIALS) {
            memcpy(&sender, CMSG_DATA(one), sizeof sender);
            return sender.pid;
        }
    return 0;
}

static void note_listener(struct record *record)
{
    const struct message ping = {.version = PROTOCOL_VERSION, .kind = MESSAGE_PING};
    struct sockaddr_un address;
    const int on = 1;
    AUTO_FD fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0 ||
        runtime_address(record->id, &address, NULL) != CAY_OK ||
        connect(fd, (const struct sockaddr *)&address, sizeof address) != 0 ||
        send(fd, &ping, sizeof ping, MSG_NOSIGNAL) != (ssize_t)sizeof ping)
        return;
    pid_t pid = receive_sender(fd);
    if (has_home(record)) /* no PID namespace */
        note_process(record, pid);
    else
        note_init(record, pid);
}

/* --- Recovery --- */

static void note_disk(struct record *record)
{
    struct storage_saved saved;

    if (storage_check(record->id, NULL) != CAY_OK)
        return;
    record->storage = CAY_STORAGE_DISK;
    if (storage_load(record->id, &saved, NULL) == CAY_OK) {
        record->ephemeral = saved.options.ephemeral;
        storage_saved_done(&saved);
    }
}

int record_recover(const char *id, struct record *ret_record)
{
    struct search search = {.record = ret_record};

    memset(ret_record, 0, sizeof *ret_record);
    cay_copy_text(ret_record->id, sizeof ret_record->id, id);
    int blind = runtime_find_range(id, ret_record);
    int heard = runtime_check_listening(id);
    if (heard > 0)
        note_listener(ret_record);
    int no_groups = cgroup_find(id, &ret_record->cgroup);
    note_disk(ret_record);
    ret_record->level = has_home(ret_record)    ? CAY_LEVEL_LANDLOCK
                        : ret_record->has_range ? CAY_LEVEL_ROOT
                                                : CAY_LEVEL_RANGE;
    int error = search_all(&search);
    if (heard > 0 || search.count)
        return 1;
    blind = blind ? blind : no_groups;
    return heard < 0 ? heard : blind ? blind : error;
}

int record_kill_processes(const struct record *record)
{
    struct record copy = *record;
    struct search search = {.record = &copy, .is_asked = true};
    int error = 0;

    for (int tries = 0; tries < KILL_TRIES; tries++) {
        error = search_all(&search);
        if (error || !search.count)
            return error;
        clock_sleep_ms(10);
    }
    return -EBUSY;
}
