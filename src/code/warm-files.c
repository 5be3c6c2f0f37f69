/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <linux/mount.h>
#include <nettle/base16.h>
#include <nettle/sha2.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/array.h"
#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/join.h"
#include "code/warm.h"
#include "sys/clone.h"
#include "sys/io.h"
#include "sys/path.h"
#include "sys/state-home.h"

/* Embedded texts, as src/init/embed makes them. */
extern const char code_python_start_digest[] __attribute__((visibility("hidden")));
extern const char warm_save_digest[] __attribute__((visibility("hidden")));

static const char op[] = "code.warm", language[] = "python";

enum { PATH_ROOM = WARM_NAME_MAX + 8, TOUCH_S = 60, CHECK_S = 60, TEXT_MAX = 4096 };

/* --- Names --- */

/* "numpy,pandas", "matplotlib.pyplot", "" */
static bool is_list(const char *text)
{
    bool begins = true;

    if (strlen(text) >= CAY_PRELOAD_MAX)
        return false;
    for (const char *at = text; *at; at++) {
        bool is_letter = (*at | 32) >= 'a' && (*at | 32) <= 'z';
        bool is_inner = !begins && ((*at >= '0' && *at <= '9') || *at == '.');
        if (*at == ',' ? begins : !is_letter && *at != '_' && !is_inner)
            return false;
        begins = *at == ',' || *at == '.';
    }
    return !*text || !begins;
}

static int check_switch(struct cay_error *err)
{
    const char *value = getenv("CAY_WARM");

    if (!value || !*value || strcmp(value, "on") == 0 || strcmp(value, "off") == 0)
        return CAY_OK;
    return cay_fail(err, CAY_E_INVALID, 0, op, "CAY_WARM", "unknown value",
                    "use on, or off to save no interpreters in the background");
}

/* What tells a template from a later one of the same name.  "host" and "base" are the
 * system of the machine: copies compare its directories themselves. */
struct identity {
    uint64_t dev, ino;
    int64_t seconds, nanoseconds;
};

static struct identity identify(const char *template_name)
{
    char info[sizeof "templates//info" + NAME_MAX];
    struct stat st = {0};

    if (*template_name == '/') {
        (void)stat(template_name, &st);
    } else if (JOIN(info, sizeof info, "templates/", template_name, "/info")) {
        AUTO_FD home = state_home_open(false, NULL);
        if (home >= 0)
            (void)fstatat(home, info, &st, AT_SYMLINK_NOFOLLOW);
    }
    return (struct identity){st.st_dev, st.st_ino, st.st_mtim.tv_sec, st.st_mtim.tv_nsec};
}

/* Half of SHA-256: names that give the file of another template cannot be found. */
static void name_key(struct warm_key *key)
{
    static const char boot_id[] = "/proc/sys/kernel/random/boot_id";
    char boot[64] = "";
    const struct identity identity = identify(key->template_name);
    struct sha256_ctx context;
    uint8_t digest[WARM_NAME_MAX / 2];

    (void)io_read_text(AT_FDCWD, boot_id, boot, sizeof boot);
    const char *const parts[] = {boot,
                                 CAY_VERSION,
                                 language,
                                 code_python_start_digest,
                                 warm_save_digest,
                                 key->preload,
                                 key->user ? key->user : "",
                                 key->template_name};
    sha256_init(&context);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        sha256_update(&context, strlen(parts[i]) + 1, (const uint8_t *)parts[i]);
    sha256_update(&context, sizeof identity, (const uint8_t *)&identity);
    sha256_digest(&context, sizeof digest, digest);
    base16_encode_update(key->name, sizeof digest, digest);
    key->name[WARM_NAME_MAX - 1] = '\0';
}

int warm_key_init(struct warm_key *key, const char *template_name, const char *user,
                  const char *preload, struct cay_error *err)
{
    const char *list = preload ? preload : getenv("CAY_PRELOAD");
    const char *subject = preload ? "preload" : "CAY_PRELOAD";

    *key = (struct warm_key){.template_name = template_name, .user = user};
    TRY(check_switch(err));
    if (!list)
        list = CAY_PRELOAD_DEFAULT;
    if (!is_list(list))
        return cay_fail(err, CAY_E_INVALID, 0, op, subject, "invalid list of modules",
                        "use names with commas, for example numpy,pandas");
    cay_copy_text(key->preload, sizeof key->preload, list);
    name_key(key);
    return CAY_OK;
}

static const char *with_suffix(char room[PATH_ROOM], const char *name, const char *suffix)
{
    snprintf(room, PATH_ROOM, "%.32s%.7s", name, suffix);
    return room;
}

static int open_directory(bool make, struct cay_error *err)
{
    AUTO_FD home = state_home_open(make, err);

    if (home < 0)
        return home;
    int error = make ? state_home_make(home, STATE_WARM) : 0;
    if (error && error != -EEXIST)
        return cay_fail_errno(err, -error, op, STATE_WARM);
    int fd = openat(home, STATE_WARM, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? cay_fail_errno(err, errno, op, STATE_WARM) : fd;
}

static void remove_both(int dir, const char *name)
{
    char room[PATH_ROOM];

    (void)unlinkat(dir, name, 0);
    (void)unlinkat(dir, with_suffix(room, name, ".json"), 0);
}

static bool is_older(const struct stat *st, time_t seconds)
{
    return st->st_mtime + seconds < time(NULL);
}

/* --- Descriptions --- */

static void take_text(char *field, size_t room, const json_t *about, const char *key)
{
    const char *text = json_string_value(json_object_get(about, key));

    cay_copy_text(field, room, text ? text : "");
}

static int64_t in_ms(struct timespec time)
{
    return (int64_t)time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

/* False if it is not one, or gone by now. */
static bool read_info(int dir, const char *name, struct cay_warm_info *info)
{
    char path[PATH_ROOM], text[TEXT_MAX];
    struct stat st;

    *info = (struct cay_warm_info){0};
    cay_copy_text(info->id, sizeof info->id, name);
    if (io_read_text(dir, with_suffix(path, name, ".json"), text, sizeof text) <= 0 ||
        fstatat(dir, path, &st, 0) != 0)
        return false;
    json_t *about = json_loads(text, 0, NULL);
    take_text(info->template_name, sizeof info->template_name, about, "template");
    take_text(info->language, sizeof info->language, about, "language");
    take_text(info->preload, sizeof info->preload, about, "preload");
    take_text(info->failure, sizeof info->failure, about, "failure");
    info->created_ms = json_integer_value(json_object_get(about, "created_ms"));
    info->used_ms = in_ms(st.st_mtim); /* of a coarser clock */
    if (info->used_ms < info->created_ms)
        info->used_ms = info->created_ms;
    json_decref(about);
    if (fstatat(dir, name, &st, 0) == 0)
        info->bytes = (uint64_t)st.st_blocks * 512;
    return info->bytes || *info->failure;
}

/* --- The file for sandboxes ---
 *
 * Through a mount of its own, which is read-only and has no other path than "/": the
 * descriptor goes to code that may belong to the owner of the file, and must neither
 * change the next copies nor see a path of the host.
 *
 * An ordinary user has the right to that mount only in a user namespace and a mount
 * namespace of its own.  So a child is in them for that moment.  It shares the memory and
 * the descriptors of this process and touches only its `struct detour`.  The code of a
 * sandbox is in another user namespace and has no rights over this mount. */

struct detour {
    const char *path;
    int fd;
    char stack[16 << 10] __attribute__((aligned(16)));
};

static int reopen_readonly(int at, const char *path, int flags)
{
    struct mount_attr attributes = {.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID,
                                    .propagation = MS_PRIVATE};
    int tree = (int)syscall(SYS_open_tree, at, path,
                            OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | flags);
    int own = -1;

    if (tree >= 0 && syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH, &attributes,
                             sizeof attributes) == 0)
        own = path_reopen(tree, O_RDONLY);
    auto_close(&tree);
    return own < 0 ? -1 : own;
}

IN_CLONE static void open_in_own_namespace(void *cookie)
{
    struct detour *detour = cookie;

    detour->fd = reopen_readonly(AT_FDCWD, detour->path, AT_SYMLINK_NOFOLLOW);
    _exit(0);
}

static int open_by_detour(const char *path)
{
    struct detour detour = {.path = path, .fd = -1};
    const struct clone_args args = {
        .flags = CLONE_VM | CLONE_VFORK | CLONE_FILES | CLONE_NEWUSER | CLONE_NEWNS,
        .stack = (__u64)(uintptr_t)detour.stack,
        .stack_size = sizeof detour.stack,
    };
    sigset_t all, before;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    long pid = clone_run(&args, open_in_own_namespace, &detour);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (pid < 0)
        return -1;
    while (waitpid((pid_t)pid, NULL, (int)__WCLONE) < 0 && errno == EINTR)
        continue;
    return detour.fd;
}

static int open_for_sandboxes(int fd, const char *name)
{
    char path[PATH_MAX];
    struct stat ours, theirs;
    AUTO_FD own = reopen_readonly(fd, "", AT_EMPTY_PATH);

    if (own >= 0)
        return TAKE_FD(own);
    if (state_home_path(path, NULL) != CAY_OK ||
        strlen(path) + sizeof STATE_WARM + PATH_ROOM + 2 > sizeof path)
        return -1;
    snprintf(path + strlen(path), sizeof path - strlen(path), "/%s/%s", STATE_WARM, name);
    own = open_by_detour(path);
    return own >= 0 && fstat(fd, &ours) == 0 && fstat(own, &theirs) == 0 &&
                   ours.st_dev == theirs.st_dev && ours.st_ino == theirs.st_ino
               ? TAKE_FD(own)
               : -1;
}

int warm_open(const struct warm_key *key)
{
    char room[PATH_ROOM];
    struct stat st;
    AUTO_FD dir = open_directory(false, NULL);
    AUTO_FD fd = dir < 0 ? -1 : openat(dir, key->name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0 || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        return -1;
    if (is_older(&st, TOUCH_S)) {
        (void)utimensat(dir, with_suffix(room, key->name, ".json"), NULL, 0);
        (void)utimensat(dir, key->name, NULL, 0);
        state_home_sweep(STATE_WARM, STATE_WARM_S);
    }
    return open_for_sandboxes(fd, key->name);
}

bool warm_may_check(const struct warm_key *key)
{
    char room[PATH_ROOM];
    struct stat st;
    AUTO_FD dir = open_directory(false, NULL);

    if (dir < 0 || (fstatat(dir, with_suffix(room, key->name, ".check"), &st, 0) == 0 &&
                    !is_older(&st, CHECK_S)))
        return false;
    AUTO_FD fd = openat(dir, room, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    return fd >= 0 && futimens(fd, NULL) == 0;
}

void warm_forget(const struct warm_key *key)
{
    AUTO_FD dir = open_directory(false, NULL);

    if (dir >= 0)
        remove_both(dir, key->name);
}

/* --- Drafts --- */

bool warm_is_tried(const struct warm_key *key)
{
    char room[PATH_ROOM];
    struct stat st;
    AUTO_FD dir = open_directory(false, NULL);

    if (dir < 0)
        return false;
    AUTO_FD draft = openat(dir, with_suffix(room, key->name, ".new"),
                           O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (draft >= 0 && flock(draft, LOCK_EX | LOCK_NB) != 0)
        return true;
    return fstatat(dir, with_suffix(room, key->name, ".json"), &st, 0) == 0 &&
           !is_older(&st, STATE_WARM_S);
}

static int fail_busy(const struct warm_key *key, struct cay_error *err)
{
    return cay_fail(err, CAY_E_BUSY, 0, op, key->template_name,
                    "another process saves an interpreter of this template",
                    "wait for it");
}

/* The process that had the lock may have renamed the draft since it was opened here. */
static bool is_draft(int dir, const char *draft, int fd)
{
    struct stat opened, named;

    return fstat(fd, &opened) == 0 && fstatat(dir, draft, &named, 0) == 0 &&
           opened.st_ino == named.st_ino;
}

int warm_draft(const struct warm_key *key, struct cay_error *err)
{
    char draft[PATH_ROOM];
    AUTO_FD dir = open_directory(true, err);

    if (dir < 0)
        return dir;
    with_suffix(draft, key->name, ".new");
    AUTO_FD fd = openat(dir, draft, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0 || fchmod(fd, 0600) != 0)
        return cay_fail_errno(err, errno, op, draft);
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 || !is_draft(dir, draft, fd))
        return fail_busy(key, err);
    AUTO_FD own = open_for_sandboxes(fd, draft);
    if (own >= 0 && ftruncate(fd, 0) == 0)
        return TAKE_FD(fd);
    int code = own < 0 ? cay_fail(err, CAY_E_UNSUPPORTED, EPERM, op, key->template_name,
                                  "sandboxes of this user cannot share a file safely: "
                                  "it needs user namespaces and Linux 5.12",
                                  "use contexts without it: they start Python as usual")
                       : cay_fail_errno(err, errno, op, draft);
    warm_abandon(key, err);
    return code;
}

static int describe(int dir, const struct warm_key *key, const char *failure)
{
    char path[PATH_ROOM];
    json_t *about =
        json_pack("{s:s, s:s, s:s, s:I, s:s*}", "template", key->template_name,
                  "language", language, "preload", key->preload, "created_ms",
                  (json_int_t)clock_since_1970_ms(), "failure", failure);
    AUTO_FREE char *text = about ? json_dumps(about, JSON_COMPACT) : NULL;
    AUTO_FD fd = openat(dir, with_suffix(path, key->name, ".json"),
                        O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);

    json_decref(about);
    if (!text || fd < 0)
        return text ? -errno : -ENOMEM;
    return io_write(fd, text, strlen(text));
}

int warm_commit(const struct warm_key *key, struct cay_error *err)
{
    char draft[PATH_ROOM];
    AUTO_FD dir = open_directory(true, err);

    if (dir < 0)
        return dir;
    int error = describe(dir, key, NULL);
    if (!error && renameat(dir, with_suffix(draft, key->name, ".new"), dir, key->name))
        error = -errno;
    return error ? cay_fail_errno(err, -error, op, key->name) : CAY_OK;
}

void warm_abandon(const struct warm_key *key, const struct cay_error *why)
{
    char room[PATH_ROOM], text[sizeof why->message + sizeof why->hint + 2];
    AUTO_FD dir = open_directory(false, NULL);

    if (dir < 0)
        return;
    if (why) {
        snprintf(text, sizeof text, "%s%s%s", why->message, *why->hint ? "; " : "",
                 why->hint);
        (void)describe(dir, key, text);
    }
    (void)unlinkat(dir, with_suffix(room, key->name, ".new"), 0);
}

/* --- Lists --- */

struct list {
    struct cay_warm_info *items;
    size_t count, room;
};

static int compare(const void *left, const void *right)
{
    const struct cay_warm_info *one = left, *other = right;

    return (one->created_ms > other->created_ms) - (one->created_ms < other->created_ms);
}

static int list_all(int dir, struct list *list, struct cay_error *err)
{
    int copy = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    AUTO_DIR entries = copy < 0 ? NULL : fdopendir(copy);

    for (struct dirent *entry; entries && (entry = readdir(entries));) {
        const char *dot = strchr(entry->d_name, '.');
        char name[WARM_NAME_MAX];
        if (!dot || dot - entry->d_name != WARM_NAME_MAX - 1 || strcmp(dot, ".json") != 0)
            continue;
        cay_copy_text(name, sizeof name, entry->d_name);
        if (!array_reserve(&list->items, &list->room, list->count + 1,
                           sizeof *list->items))
            return cay_fail_memory(err, op);
        list->count += read_info(dir, name, &list->items[list->count]);
    }
    if (list->count)
        qsort(list->items, list->count, sizeof *list->items, compare);
    return CAY_OK;
}

int cay_warm_list(struct cay_warm_info **ret_infos, size_t *ret_count,
                  struct cay_error *err)
{
    struct list list = {0};
    struct cay_error why;

    *ret_infos = NULL;
    *ret_count = 0;
    state_home_sweep(STATE_WARM, STATE_WARM_S);
    AUTO_FD dir = open_directory(false, &why);
    if (dir < 0)
        return dir == CAY_E_NOT_FOUND ? CAY_OK : cay_fail_as(err, dir, &why);
    int code = list_all(dir, &list, err);
    if (code) {
        free(list.items);
        return code;
    }
    *ret_infos = list.items;
    *ret_count = list.count;
    return CAY_OK;
}

int cay_warm_remove(const char *id, struct cay_error *err)
{
    AUTO_FREE struct cay_warm_info *infos = NULL;
    size_t count = 0, removed = 0;

    TRY(cay_warm_list(&infos, &count, err));
    AUTO_FD dir = count ? open_directory(false, err) : -1;
    for (size_t i = 0; dir >= 0 && i < count; i++)
        if (!id || strcmp(id, infos[i].id) == 0) {
            remove_both(dir, infos[i].id);
            removed++;
        }
    if (!id || removed)
        return CAY_OK;
    return cay_fail(err, CAY_E_NOT_FOUND, 0, op, id, "no such saved interpreter",
                    "list them with cay ls --all");
}
