/* SPDX-License-Identifier: Apache-2.0 */
#include "native/record/runtime.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/join.h"
#include "init/protocol.h"
#include "native/record/idmap.h"
#include "native/record/members.h"
#include "native/record/names.h"
#include "native/record/remove.h"
#include "sys/io.h"
#include "sys/path.h"
#include "sys/procstat.h"
#include "sys/state-home.h"

static const char op[] = "sandbox.runtime";

/* Ranges of 65,536 ids start here: below are ordinary users, above are ids reserved by
 * the kernel. */
enum { FIRST_RANGE = 0x7000, RANGES = 0xFFE };

/* How many seconds a creator may take to fill its record, and for how many milliseconds a
 * process waits for the lock. */
enum { FORGET_S = 5, LOCK_TRIES = 1000, READ_TRIES = 3 };

/* State of the runtime directory.  It is the gate to every sandbox, so it is neither read
 * nor written unless this user alone owns it; an empty path may belong to another user by
 * the time it is opened. */
enum place { PLACE_OWN, PLACE_EMPTY, PLACE_FOREIGN };

static enum place look_at(const char *path, uid_t owner, mode_t forbidden)
{
    struct stat st;

    if (lstat(path, &st) != 0)
        return errno == ENOENT ? PLACE_EMPTY : PLACE_FOREIGN;
    return S_ISDIR(st.st_mode) && st.st_uid == owner && !(st.st_mode & forbidden)
               ? PLACE_OWN
               : PLACE_FOREIGN;
}

/* A directory that only this user can write to. */
static bool is_own(const char *path, uid_t owner)
{
    return look_at(path, owner, 0022) == PLACE_OWN;
}

/* XDG_RUNTIME_DIR is ignored if another user owns it, as after su(1).  Root of a user
 * namespace is an ordinary user for the host's /run. */
static enum place find_place(char ret_path[PATH_MAX])
{
    const char *given = getenv("XDG_RUNTIME_DIR");
    unsigned uid = geteuid();

    if (uid == 0 && (idmap_is_root() || access("/run", W_OK) == 0)) {
        (void)JOIN(ret_path, PATH_MAX, "/run/cay");
        return look_at(ret_path, uid, 0077);
    }
    snprintf(ret_path, PATH_MAX, "/run/user/%u", uid);
    if (given && *given == '/' && strlen(given) < PATH_MAX - 96 && is_own(given, uid))
        (void)JOIN(ret_path, PATH_MAX, given, "/cay");
    else if (is_own(ret_path, uid))
        snprintf(ret_path, PATH_MAX, "/run/user/%u/cay", uid);
    else
        snprintf(ret_path, PATH_MAX, "/tmp/cay-%u", uid);
    return look_at(ret_path, uid, 0077);
}

static int fail_foreign(const char *path, struct cay_error *err)
{
    return cay_fail(err, CAY_E_UNAVAILABLE, 0, op, path,
                    "the runtime directory does not belong to this user alone",
                    "remove it, or set its owner to this user and its mode to 0700");
}

int runtime_directory(char ret_path[PATH_MAX], struct cay_error *err)
{
    enum place place = find_place(ret_path);

    if (place == PLACE_FOREIGN)
        return fail_foreign(ret_path, err);
    return place == PLACE_OWN
               ? CAY_OK
               : cay_fail(err, CAY_E_NOT_FOUND, 0, op, NULL, "there is no such sandbox",
                          "it may have ended; create a new one");
}

int runtime_check(char ret_path[PATH_MAX], struct cay_error *err)
{
    char parent[PATH_MAX];
    enum place place = find_place(ret_path);

    if (place == PLACE_FOREIGN)
        return fail_foreign(ret_path, err);
    if (place == PLACE_OWN)
        return CAY_OK;
    snprintf(parent, sizeof parent, "%.*s", (int)(strrchr(ret_path, '/') - ret_path),
             ret_path);
    return access(parent, W_OK | X_OK) == 0 ? CAY_OK
                                            : cay_fail_errno(err, errno, op, parent);
}

int runtime_fail(int error, const char *subject, struct cay_error *err)
{
    if (error != ENOSPC && error != EDQUOT)
        return cay_fail_errno(err, error, op, subject);
    return cay_fail(
        err, CAY_E_NO_SPACE, error, op, subject, "no space left in the runtime directory",
        "kill some sandboxes, or free space or inodes there (see df and df -i)");
}

/* Opens the runtime directory, or its directory `below`; creates them if missing. */
int runtime_open_dir(const char *below, struct cay_error *err)
{
    char top[PATH_MAX], path[PATH_MAX + 32];
    enum place place = find_place(top);

    int error = place == PLACE_EMPTY ? state_home_make(AT_FDCWD, top) : 0;

    if (place == PLACE_EMPTY && (!error || error == -EEXIST))
        place = look_at(top, geteuid(), 0077);
    if (place == PLACE_FOREIGN)
        return fail_foreign(top, err);
    if (place == PLACE_EMPTY)
        return runtime_fail(-error, top, err);
    (void)JOIN(path, sizeof path, top, *below ? "/" : "", below);
    for (int tries = 0;; tries++) {
        int fd = openat(AT_FDCWD, path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd >= 0)
            return fd;
        error = errno == ENOENT && tries == 0 && *below ? state_home_make(AT_FDCWD, path)
                                                        : -errno;
        if (error && error != -EEXIST)
            return runtime_fail(-error, path, err);
    }
}

static const char letters[] = "abcdefghijklmnopqrstuvwxyz234567"; /* of ids */

/* The prefix is at most 8 letters: options are checked before. */
static void draw_id(const char *prefix, char id[CAY_ID_MAX])
{
    unsigned char random[16];

    (void)!getrandom(random, sizeof random, 0);
    memcpy(id, "sb-", 3);
    for (int i = 0; i < 16; i++)
        id[3 + i] = letters[random[i] % 32];
    if (prefix)
        memcpy(id + 3, prefix, strnlen(prefix, 8));
    id[19] = '\0';
}

/* Whether /etc/subuid assigns one of our ranges: rarely, so the files are read again only
 * when they have changed. */
static bool are_assigned(void)
{
    static const char *const files[] = {SUBIDS_USERS, SUBIDS_GROUPS};
    static struct {
        pthread_mutex_t mutex;
        struct timespec changed[2];
        bool read, assigned;
    } known = {.mutex = PTHREAD_MUTEX_INITIALIZER};
    struct stat st[2] = {{0}};

    pthread_mutex_lock(&known.mutex);
    for (size_t i = 0; i < 2; i++) {
        (void)!stat(files[i], &st[i]);
        if (memcmp(&known.changed[i], &st[i].st_mtim, sizeof known.changed[i]) != 0)
            known.read = false;
    }
    if (!known.read) {
        known.assigned = false;
        for (size_t i = 0; i < 2; i++) {
            known.changed[i] = st[i].st_mtim;
            known.assigned |= st[i].st_size &&
                              subids_overlap(files[i], FIRST_RANGE << 16, RANGES << 16);
        }
        known.read = true;
    }
    bool assigned = known.assigned;
    pthread_mutex_unlock(&known.mutex);
    return assigned;
}

/* The link's name is the range and its target the owner, created in one step: no lock is
 * needed, and no crash leaves a range without an owner. */
static int reserve_range(struct record *record, struct cay_error *err)
{
    uint16_t start;
    char name[16];
    AUTO_FD dir = runtime_open_dir("ranges", err);

    if (dir < 0)
        return dir;
    (void)!getrandom(&start, sizeof start, 0);
    bool look = are_assigned();
    for (unsigned i = 0; i < RANGES; i++) {
        unsigned range = FIRST_RANGE + (start + i) % RANGES;
        if (look && (subids_overlap(SUBIDS_USERS, range << 16, RUNTIME_IDS) ||
                     subids_overlap(SUBIDS_GROUPS, range << 16, RUNTIME_IDS)))
            continue;
        snprintf(name, sizeof name, "%x", range);
        if (symlinkat(record->id, dir, name) == 0) {
            record->has_range = 1;
            record->id_base = range << 16;
            record->id_count = RUNTIME_IDS;
            return CAY_OK;
        }
        if (errno != EEXIST)
            return runtime_fail(errno, "ranges", err);
    }
    return cay_fail(err, CAY_E_LIMIT, 0, op, "ranges",
                    "all ranges of user ids are in use by sandboxes",
                    "kill some sandboxes; the limit is %d per machine", RANGES);
}

/* Only if this sandbox still owns it: releasing twice must not release the next owner's
 * range. */
static bool release_if_of(int ranges, const char *name, const char *id)
{
    char owner[CAY_ID_MAX];
    ssize_t len = readlinkat(ranges, name, owner, sizeof owner);

    return len == (ssize_t)strlen(id) && memcmp(owner, id, (size_t)len) == 0 &&
           unlinkat(ranges, name, 0) == 0;
}

/* By path, which works even when no more descriptors are available. */
static void release_range(const struct record *record)
{
    char directory[PATH_MAX], path[PATH_MAX];

    if (runtime_directory(directory, NULL) != CAY_OK)
        return;
    snprintf(path, sizeof path, "%.4000s/ranges/%x", directory, record->id_base >> 16);
    (void)release_if_of(AT_FDCWD, path, record->id);
}

int runtime_find_range(const char *id, struct record *record)
{
    char owner[CAY_ID_MAX];
    AUTO_FD ranges = runtime_open_dir("ranges", NULL);
    AUTO_DIR list = ranges < 0 ? NULL : path_list(ranges);

    if (!list)
        return -EMFILE;
    for (struct dirent *entry; !record->has_range && (entry = path_next(list));) {
        ssize_t len = readlinkat(ranges, entry->d_name, owner, sizeof owner);
        unsigned long range = strtoul(entry->d_name, NULL, 16);
        if (len != (ssize_t)strlen(id) || memcmp(owner, id, (size_t)len) != 0 ||
            range < FIRST_RANGE || range >= FIRST_RANGE + RANGES)
            continue; /* the host's processes must not be mistaken for the sandbox's */
        record->has_range = 1;
        record->id_base = (uint32_t)range << 16;
        record->id_count = RUNTIME_IDS;
    }
    return 0;
}

static const char no_suffix[] = "", control_suffix[] = ".control",
                  note_suffix[] = ".note", note_draft[] = ".note.new",
                  relay_suffix[] = ".net", events_suffix[] = ".events",
                  rules_suffix[] = ".rules", rules_draft[] = ".rules.new",
                  ports_suffix[] = ".ports", ports_draft[] = ".ports.new",
                  approve_suffix[] = ".approve", approve_draft[] = ".approve.new";

static int record_path(const char *id, const char *suffix, char path[PATH_MAX],
                       struct cay_error *err)
{
    char directory[PATH_MAX];
    int code = runtime_directory(directory, err);

    if (!code && !JOIN(path, PATH_MAX, directory, "/", id, suffix))
        code = cay_fail_errno(err, ENAMETOOLONG, op, directory);
    return code;
}

static void remove_relay(const char *id)
{
    const char *const suffixes[] = {relay_suffix, events_suffix, rules_suffix,
                                    rules_draft};
    char path[PATH_MAX];

    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++)
        if (record_path(id, suffixes[i], path, NULL) == CAY_OK)
            (void)unlink(path);
}

static void remove_approve(const char *id)
{
    char path[PATH_MAX];

    if (record_path(id, approve_suffix, path, NULL) == CAY_OK)
        (void)unlink(path);
    if (record_path(id, approve_draft, path, NULL) == CAY_OK)
        (void)unlink(path);
}

static bool release_ranges(const char *id)
{
    AUTO_FD ranges = runtime_open_dir("ranges", NULL);
    AUTO_DIR list = ranges < 0 ? NULL : path_list(ranges);

    for (struct dirent *entry; (entry = path_next(list));)
        (void)release_if_of(ranges, entry->d_name, id);
    return list;
}

/* Removes everything that can exist without a complete record. */
static bool forget(const char *id)
{
    char path[PATH_MAX];

    if (!release_ranges(id)) /* keep the file, so that the next collect tries again */
        return false;
    if (record_path(id, control_suffix, path, NULL) == CAY_OK)
        (void)unlink(path);
    if (record_path(id, note_suffix, path, NULL) == CAY_OK)
        (void)unlink(path);
    remove_relay(id);
    remove_approve(id);
    return record_path(id, no_suffix, path, NULL) == CAY_OK && unlink(path) == 0;
}

int64_t runtime_changed_ms(const char *id)
{
    struct stat st;
    char path[PATH_MAX];

    if (record_path(id, no_suffix, path, NULL) != CAY_OK || stat(path, &st) != 0)
        return 0;
    return st.st_mtim.tv_sec * 1000 + st.st_mtim.tv_nsec / 1000000;
}

/* A time in the future: the clock was set back after the record was created. */
bool runtime_is_old(const char *id)
{
    int64_t past = clock_since_1970_ms() - runtime_changed_ms(id);

    return llabs(past) >= FORGET_S * 1000;
}

/* A process that restarts a sandbox holds the lock of its disk, and one that creates a
 * marked sandbox holds the session's lock.  An empty record with that id is therefore
 * left from a crash. */
static bool reclaim(const char *id)
{
    struct record record;
    AUTO_FD lock = runtime_lock(id);

    return lock >= 0 && runtime_load(id, &record, NULL) == CAY_E_NOT_FOUND && forget(id);
}

/* Removes a stale socket: its record may have been removed by hand. */
static int make_file(int dir, const char *id)
{
    char control[CAY_ID_MAX + sizeof control_suffix];
    AUTO_FD fd =
        openat(dir, id, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);

    if (fd < 0 || fchmod(fd, 0600) != 0)
        return errno;
    snprintf(control, sizeof control, "%s%s", id, control_suffix);
    return unlinkat(dir, control, 0) == 0 || errno == ENOENT ? 0 : errno;
}

/* The file comes first: resources without a record could not be found again. */
int runtime_reserve(const char *id, const char *prefix, bool with_range,
                    struct record *ret_record, struct cay_error *err)
{
    memset(ret_record, 0, sizeof *ret_record);
    ret_record->version = RECORD_VERSION;
    ret_record->protocol = PROTOCOL_VERSION;
    ret_record->pid_namespace = runtime_pid_namespace();
    ret_record->size = sizeof *ret_record;
    if (id)
        memcpy(ret_record->id, id, strlen(id) + 1);
    else
        draw_id(prefix, ret_record->id);
    AUTO_FD dir = runtime_open_dir("", err);
    if (dir < 0)
        return dir;
    int error = make_file(dir, ret_record->id);
    if (error == EEXIST && id && reclaim(id))
        error = make_file(dir, id);
    if (error)
        return error == EEXIST ? cay_fail(err, CAY_E_BUSY, 0, op, ret_record->id,
                                          "another process has started this sandbox",
                                          "open it by its id")
                               : runtime_fail(error, ret_record->id, err);
    int code = with_range ? reserve_range(ret_record, err) : CAY_OK;
    if (code)
        (void)unlinkat(dir, ret_record->id, 0);
    return code;
}

/* Of a record, without its own field; detects any single changed byte. */
static uint64_t sum_up(const unsigned char *bytes, size_t len)
{
    static const uint64_t none = 0;
    const size_t own = offsetof(struct record, checksum), end = own + sizeof none;
    uint64_t hash = hash_stable(HASH_STABLE, bytes, own);

    hash = hash_stable(hash, &none, sizeof none);
    return hash_stable(hash, bytes + end, len - end);
}

int runtime_save(const struct record *record, struct cay_error *err)
{
    struct record summed = *record;
    char path[PATH_MAX];
    int code = record_path(record->id, no_suffix, path, err);

    if (code)
        return code;
    summed.checksum = sum_up((const unsigned char *)record, sizeof *record);
    /* Written in place: the record is smaller than a page and has a fixed size, and a
     * reader during creation finds the lock taken. */
    AUTO_FD fd = openat(AT_FDCWD, path, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
    int error = fd < 0 ? -errno : io_write(fd, &summed, sizeof summed);
    return error ? runtime_fail(-error, record->id, err) : CAY_OK;
}

_Static_assert(sizeof(struct record) < RECORD_MAX, "a record is smaller than a page");
_Static_assert(offsetof(struct record, checksum) == 2088, "version 4 is as it was");

bool runtime_is_id(const char *text)
{
    size_t len = strlen(text);

    return len == 19 && strncmp(text, "sb-", 3) == 0 && strspn(text + 3, letters) == 16;
}

static bool ends(const char *text, size_t room)
{
    return memchr(text, '\0', room) != NULL;
}

/* Whether the version is supported and the contents are unchanged.  Version 4 has no
 * checksum. */
static bool is_whole(const struct record *record, const unsigned char *bytes, size_t len)
{
    if (len < offsetof(struct record, checksum) || record->size != len)
        return false;
    if (record->version == RECORD_VERSION_MIN)
        return len == offsetof(struct record, checksum);
    return record->version == RECORD_VERSION && len >= offsetof(struct record, home) &&
           record->checksum == sum_up(bytes, len);
}

static bool is_sound(const struct record *record, const char *id)
{
    const struct cgroup *groups = &record->cgroup;

    for (size_t i = 0; i < CGROUP_V1; i++)
        if (!ends(groups->v1[i], sizeof groups->v1[i]))
            return false;
    return ends(record->id, sizeof record->id) && strcmp(record->id, id) == 0 &&
           record->init >= 0 && record->level <= CAY_LEVEL_NONE &&
           record->network <= CAY_NETWORK_OPEN && record->storage <= CAY_STORAGE_DISK &&
           ends(record->template_name, sizeof record->template_name) &&
           ends(record->user, sizeof record->user) &&
           ends(record->workdir, sizeof record->workdir) &&
           ends(groups->unified, sizeof groups->unified) &&
           ends(groups->memory_events, sizeof groups->memory_events) &&
           ends(groups->pids_events, sizeof groups->pids_events) &&
           ends(record->home, sizeof record->home) &&
           ends(record->name, sizeof record->name) &&
           ends(record->mark, sizeof record->mark) &&
           ends(record->pool, sizeof record->pool) &&
           ends(record->volumes, sizeof record->volumes) &&
           ends(record->below, sizeof record->below);
}

enum reading { READ_WHOLE, READ_SHORT, READ_DAMAGED };

static enum reading take_record(const unsigned char *bytes, size_t len, const char *id,
                                struct record *ret_record)
{
    size_t known = len < sizeof *ret_record ? len : sizeof *ret_record;

    memset(ret_record, 0, sizeof *ret_record);
    memcpy(ret_record, bytes, known);
    if (len < offsetof(struct record, id) ||
        (ret_record->size <= RECORD_MAX && len < ret_record->size))
        return READ_SHORT;
    if (!is_whole(ret_record, bytes, len) || !is_sound(ret_record, id))
        return READ_DAMAGED;
    /* A changed byte in the pid of a record without a checksum would make the sandbox
     * look dead; its control socket shows that it is alive. */
    bool is_contradicted = ret_record->version == RECORD_VERSION_MIN &&
                           ret_record->init > 0 && runtime_check_alive(ret_record) == 0 &&
                           runtime_check_listening(id) != 0;
    return is_contradicted ? READ_DAMAGED : READ_WHOLE;
}

static int check_id(const char *who, const char *id, struct cay_error *err)
{
    return runtime_is_id(id)
               ? CAY_OK
               : cay_fail(err, CAY_E_INVALID, 0, who, id, "invalid sandbox id",
                          "ids look like sb-abcdefgh234567xy");
}

static int fail_unknown(const char *who, const char *id, int error, struct cay_error *err)
{
    return cay_fail(err, CAY_E_NOT_FOUND, error, who, id, "there is no such sandbox",
                    "it may have ended; create a new one");
}

int runtime_load(const char *id, struct record *ret_record, struct cay_error *err)
{
    char path[PATH_MAX];

    int code = check_id(op, id, err);
    if (!code)
        code = record_path(id, no_suffix, path, err);
    if (code)
        return code;
    AUTO_FD fd = openat(AT_FDCWD, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? fail_unknown(op, id, ENOENT, err)
                               : cay_fail_errno(err, errno, op, id);
    return runtime_load_locked(fd, id, ret_record, err);
}

/* A record that looks damaged is read again, since it may be being written.  A short one
 * is unfinished: its creator has died or is about to write it, unless processes run. */
int runtime_load_locked(int fd, const char *id, struct record *ret_record,
                        struct cay_error *err)
{
    unsigned char bytes[RECORD_MAX + 1];
    enum reading reading = READ_DAMAGED;

    for (int tries = 0; reading == READ_DAMAGED && tries < READ_TRIES; tries++) {
        if (tries)
            clock_sleep_ms(1);
        ssize_t len = io_pread(fd, bytes, sizeof bytes, 0);
        if (len >= 0)
            reading = take_record(bytes, (size_t)len, id, ret_record);
    }
    if (reading == READ_SHORT && record_recover(id, ret_record) == 0)
        return fail_unknown(op, id, 0, err);
    if (reading != READ_WHOLE)
        return cay_fail(err, CAY_E_INTERNAL, 0, op, id,
                        "the sandbox's record is damaged, or from another version of cay",
                        "run cay kill %s to end the sandbox", id);
    return CAY_OK;
}

void runtime_hide(const struct record *record)
{
    const char *const suffixes[] = {note_suffix, ports_suffix};
    char path[PATH_MAX];

    if (record->name[0] && record->storage != CAY_STORAGE_DISK)
        names_release(record->name, record->id);
    members_release(record);
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++)
        if (record_path(record->id, suffixes[i], path, NULL) == CAY_OK)
            (void)unlink(path);
}

/* The range first: without the record its owner would be unknown. */
void runtime_release(const struct record *record)
{
    const char *const suffixes[] = {control_suffix, no_suffix};
    char path[PATH_MAX];

    if (record->has_range)
        release_range(record);
    runtime_hide(record);
    if (!record->version &&
        !release_ranges(record->id)) /* a recovered record, see remove.h */
        return;
    if (record->is_relayed || !record->version)
        remove_relay(record->id);
    if (record->approves || !record->version)
        remove_approve(record->id);
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++)
        if (record_path(record->id, suffixes[i], path, NULL) == CAY_OK)
            (void)unlink(path);
}

int runtime_lock(const char *id)
{
    char path[PATH_MAX];
    struct stat st;

    if (record_path(id, no_suffix, path, NULL) != CAY_OK) {
        errno = ENOENT;
        return -1;
    }
    AUTO_FD fd = openat(AT_FDCWD, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) != 0)
        return -1;
    /* It may have been removed meanwhile, and the path may now belong to another
     * sandbox. */
    if (fstat(fd, &st) != 0 || st.st_nlink == 0) {
        errno = EWOULDBLOCK;
        return -1;
    }
    return TAKE_FD(fd);
}

int runtime_wait_lock(const char *id)
{
    int fd = runtime_lock(id);

    for (int tries = 0; fd < 0 && errno == EWOULDBLOCK && tries < LOCK_TRIES; tries++) {
        clock_sleep_ms(1);
        fd = runtime_lock(id);
    }
    return fd;
}

int runtime_visit(void (*visit)(const char *id, void *cookie), void *cookie,
                  struct cay_error *err)
{
    char path[PATH_MAX];
    struct cay_error why;
    int code = runtime_directory(path, &why);
    AUTO_DIR directory = code ? NULL : opendir(path);

    if (code)
        return code == CAY_E_NOT_FOUND ? CAY_OK : cay_fail_as(err, code, &why);
    if (!directory)
        return errno == ENOENT ? CAY_OK : cay_fail_errno(err, errno, op, path);
    for (struct dirent *entry; (entry = path_next(directory));)
        if (runtime_is_id(entry->d_name))
            visit(entry->d_name, cookie);
    return CAY_OK;
}

void runtime_mark_collected(void)
{
    const struct timespec times[] = {{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_OMIT}};
    char path[PATH_MAX];

    if (runtime_directory(path, NULL) == CAY_OK)
        (void)utimensat(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW);
}

bool runtime_was_collected(int64_t within_ms)
{
    char path[PATH_MAX];
    struct stat st;

    if (runtime_directory(path, NULL) != CAY_OK || lstat(path, &st) != 0)
        return false;
    int64_t past =
        clock_since_1970_ms() - (st.st_atim.tv_sec * 1000 + st.st_atim.tv_nsec / 1000000);
    return past >= 0 && past < within_ms;
}

static int fill_address(const char *id, const char *suffix,
                        struct sockaddr_un *ret_address, struct cay_error *err)
{
    char path[PATH_MAX];
    int code = record_path(id, suffix, path, err);

    if (code)
        return code;
    *ret_address = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof ret_address->sun_path)
        return cay_fail_errno(err, ENAMETOOLONG, op, path);
    memcpy(ret_address->sun_path, path, strlen(path) + 1);
    return CAY_OK;
}

int runtime_address(const char *id, struct sockaddr_un *ret_address,
                    struct cay_error *err)
{
    return fill_address(id, control_suffix, ret_address, err);
}

int runtime_relay_address(const char *id, struct sockaddr_un *ret_address,
                          struct cay_error *err)
{
    return fill_address(id, relay_suffix, ret_address, err);
}

int runtime_create_events(const char *id, struct cay_error *err)
{
    char path[PATH_MAX];

    TRY(record_path(id, events_suffix, path, err));
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    return fd < 0 ? runtime_fail(errno, id, err) : fd;
}

int runtime_open_events(const char *id, struct cay_error *err)
{
    char path[PATH_MAX];

    TRY(record_path(id, events_suffix, path, err));
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? fail_unknown(op, id, errno, err) : fd;
}

static int save_beside(const char *id, const char *suffix, const char *draft_suffix,
                       const void *data, size_t len, struct cay_error *err)
{
    char draft[PATH_MAX], path[PATH_MAX];

    TRY(record_path(id, suffix, path, err));
    TRY(record_path(id, draft_suffix, draft, err));
    AUTO_FD fd = open(draft, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    int error = fd < 0 ? -errno : io_write(fd, data, len);
    if (!error && rename(draft, path) != 0)
        error = -errno;
    if (error)
        (void)unlink(draft);
    return error ? runtime_fail(-error, id, err) : CAY_OK;
}

/* CAY_E_NOT_FOUND: there is no such file. */
static int load_beside(const char *id, const char *suffix, void *data, size_t room,
                       size_t *ret_len, struct cay_error *err)
{
    char path[PATH_MAX];

    TRY(record_path(id, suffix, path, err));
    AUTO_FD fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return fail_unknown(op, id, errno, err);
    ssize_t got = io_pread(fd, data, room, 0);
    if (got < 0)
        return runtime_fail((int)-got, id, err);
    *ret_len = (size_t)got;
    return CAY_OK;
}

int runtime_save_rules(const char *id, const char *text, size_t len,
                       struct cay_error *err)
{
    return save_beside(id, rules_suffix, rules_draft, text, len, err);
}

int runtime_load_rules(const char *id, char *text, size_t room, size_t *ret_len,
                       struct cay_error *err)
{
    return load_beside(id, rules_suffix, text, room, ret_len, err);
}

int runtime_save_approve(const char *id, const char *text, size_t len,
                         struct cay_error *err)
{
    return save_beside(id, approve_suffix, approve_draft, text, len, err);
}

int runtime_load_approve(const char *id, char *text, size_t room, size_t *ret_len,
                         struct cay_error *err)
{
    return load_beside(id, approve_suffix, text, room, ret_len, err);
}

int runtime_save_ports(const char *id, const void *ports, size_t len,
                       struct cay_error *err)
{
    return save_beside(id, ports_suffix, ports_draft, ports, len, err);
}

int runtime_load_ports(const char *id, void *ports, size_t room, size_t *ret_len,
                       struct cay_error *err)
{
    int code = load_beside(id, ports_suffix, ports, room, ret_len, err);

    *ret_len = code ? 0 : *ret_len;
    return code == CAY_E_NOT_FOUND ? CAY_OK : code;
}

/* --- Whether PID 1 runs --- */

uint64_t runtime_pid_namespace(void)
{
    struct stat st;

    return stat("/proc/self/ns/pid", &st) == 0 ? st.st_ino : 0;
}

int runtime_start_time(pid_t pid, uint64_t *ret_start)
{
    struct procstat stat;
    int error = procstat_read(pid, &stat);

    *ret_start = error || strchr("ZX", stat.state) ? 0 : stat.start;
    return error && cay_errno_is_shortage(-error) ? error : 0;
}

/* PID 1 listens there; when it ends, no other process does. */
int runtime_check_listening(const char *id)
{
    struct sockaddr_un address;
    AUTO_FD fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return -errno;
    if (runtime_address(id, &address, NULL) != CAY_OK)
        return 0;
    if (connect(fd, (const struct sockaddr *)&address, sizeof address) == 0 ||
        errno == EAGAIN)
        return 1;
    return cay_errno_is_shortage(errno) ? -errno : 0;
}

/* In another PID namespace than the creator's, the pid is meaningless. */
int runtime_check_alive(const struct record *record)
{
    uint64_t start;

    if (record->init <= 0 || !record->init_start)
        return 0;
    int error = runtime_start_time(record->init, &start);
    if (error || start == record->init_start)
        return error ? error : 1;
    return record->pid_namespace == runtime_pid_namespace()
               ? 0
               : runtime_check_listening(record->id);
}

bool runtime_is_running(const char *id)
{
    enum { HEAD = offsetof(struct record, layers) };
    struct record record = {0};
    char path[PATH_MAX];
    uint64_t start;

    if (record_path(id, no_suffix, path, NULL) != CAY_OK)
        return false;
    AUTO_FD fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    return fd >= 0 && io_pread(fd, &record, HEAD, 0) == HEAD && record.init > 0 &&
           record.init_start && strncmp(record.id, id, sizeof record.id) == 0 &&
           runtime_start_time(record.init, &start) == 0 && start == record.init_start;
}

/* --- Notes --- */

/* A note is stored beside the record, as "ID.note", and removed with it. */

static const char note_op[] = "sandbox.note";

/* Atomic.  If the record is removed meanwhile, the note is removed too. */
int cay_sandbox_set_note(const char *id, const void *data, size_t len,
                         struct cay_error *err)
{
    char record[PATH_MAX], draft[PATH_MAX], path[PATH_MAX];
    int code = len > CAY_SANDBOX_NOTE_MAX
                   ? cay_fail(err, CAY_E_INVALID, 0, note_op, id, "the note is too long",
                              "the limit is %d bytes", CAY_SANDBOX_NOTE_MAX)
                   : check_id(note_op, id, err);

    if (!code)
        code = record_path(id, no_suffix, record, err);
    if (!code)
        code = record_path(id, note_suffix, path, err);
    if (!code)
        code = record_path(id, note_draft, draft, err);
    if (code)
        return code;
    AUTO_FD fd = open(draft, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    int error = fd < 0 ? -errno : io_write(fd, data, len);
    if (!error && rename(draft, path) != 0)
        error = -errno;
    if (error)
        (void)unlink(draft);
    if (error)
        return runtime_fail(-error, id, err);
    if (access(record, F_OK) == 0)
        return CAY_OK;
    (void)unlink(path);
    return fail_unknown(note_op, id, ENOENT, err);
}

int cay_sandbox_get_note(const char *id, void **ret_data, size_t *ret_len,
                         struct cay_error *err)
{
    char path[PATH_MAX];
    int code = check_id(note_op, id, err);

    if (!code)
        code = record_path(id, note_suffix, path, err);
    if (code)
        return code;
    AUTO_FD fd = openat(AT_FDCWD, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return cay_fail(err, CAY_E_NOT_FOUND, ENOENT, note_op, id,
                        "the sandbox has no note", "set one with cay_sandbox_set_note()");
    if (fd < 0)
        return cay_fail_errno(err, errno, note_op, id);
    AUTO_FREE char *data = malloc(CAY_SANDBOX_NOTE_MAX + 1);
    if (!data)
        return cay_fail_memory(err, note_op);
    ssize_t got = io_pread(fd, data, CAY_SANDBOX_NOTE_MAX, 0);
    if (got < 0)
        return cay_fail_errno(err, (int)-got, note_op, id);
    data[got] = '\0';
    *ret_len = (size_t)got;
    *ret_data = TAKE_PTR(data);
    return CAY_OK;
}

/* A process that was killed in cay_sandbox_set_note() leaves a draft, or the note of a
 * sandbox whose record was removed meanwhile; a version that knows no relay leaves the
 * files of the relay. */
static bool is_stale(int dir, const char *name)
{
    const char *const suffixes[] = {
        note_suffix, note_draft,   relay_suffix, events_suffix,  rules_suffix,
        rules_draft, ports_suffix, ports_draft,  approve_suffix, approve_draft};
    char id[CAY_ID_MAX];
    struct stat st;
    size_t len = strcspn(name, "."), i = 0;

    while (i < sizeof suffixes / sizeof *suffixes && strcmp(name + len, suffixes[i]) != 0)
        i++;
    if (len >= sizeof id || i == sizeof suffixes / sizeof *suffixes)
        return false;
    memcpy(id, name, len);
    id[len] = '\0';
    return runtime_is_id(id) && fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
           llabs(clock_since_1970_ms() / 1000 - st.st_mtim.tv_sec) > FORGET_S &&
           faccessat(dir, id, F_OK, 0) != 0 && errno == ENOENT;
}

size_t runtime_sweep(void)
{
    char path[PATH_MAX];
    DIR *list = runtime_directory(path, NULL) == CAY_OK ? opendir(path) : NULL;
    size_t count = 0;

    for (struct dirent *entry; list && (entry = readdir(list));)
        if (is_stale(dirfd(list), entry->d_name))
            count += unlinkat(dirfd(list), entry->d_name, 0) == 0;
    if (list)
        closedir(list);
    return count;
}
