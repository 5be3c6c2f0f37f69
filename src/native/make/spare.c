/* SPDX-License-Identifier: Apache-2.0 */
#include "native/make/spare.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/ioprio.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "base/hash.h"
#include "native/make/level.h"
#include "native/make/preflight.h"
#include "policy/policy.h"
#include "sys/io.h"
#include "sys/path.h"

enum {
    KEY_LEN = sizeof((struct spare_key *)0)->text - 1,
    GET_MDWE = 66 /* PR_GET_MDWE of Linux 6.3 */
};

/* --- The key --- */

struct hash {
    uint64_t value;
};

static void add(struct hash *hash, const void *data, size_t len)
{
    hash->value = hash_stable(hash->value, data, len);
}

static void add_number(struct hash *hash, uint64_t number)
{
    add(hash, &number, sizeof number);
}

static void add_text(struct hash *hash, const char *text)
{
    add(hash, text ? text : "", text ? strlen(text) + 1 : 0);
    add_number(hash, text != NULL);
}

/* By readlink(2), which takes a third of the time of stat(2) here. */
static void add_namespaces(struct hash *hash, int thread, bool has_own_network)
{
    static const char *const names[] = {"ns/user",   "ns/mnt",  "ns/pid",
                                        "ns/cgroup", "ns/time", "ns/net"};
    size_t count = sizeof names / sizeof *names - has_own_network;
    char text[64];

    for (size_t i = 0; i < count; i++) {
        ssize_t len = readlinkat(thread, names[i], text, sizeof text - 1);
        text[len > 0 ? len : 0] = '\0';
        add_text(hash, text);
    }
}

/* Restrictions of the creator that no sandbox lifts.  A process cannot find out whether
 * Landlock restricts it. */
static void add_restrictions(struct hash *hash, enum cay_level level)
{
    static const int attributes[] = {PR_GET_SECCOMP, PR_GET_TIMERSLACK,
                                     PR_GET_THP_DISABLE, GET_MDWE};
    gid_t groups[1024];
    char text[4096] = "";

    for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++)
        add_number(hash, (uint64_t)prctl(attributes[i], 0, 0, 0, 0));
    for (unsigned long i = PR_SPEC_STORE_BYPASS; i <= PR_SPEC_INDIRECT_BRANCH; i++)
        add_number(hash, (uint64_t)prctl(PR_GET_SPECULATION_CTRL, i, 0, 0, 0));
    add_number(hash, (uint64_t)personality(UINT32_MAX));
    if (prctl(PR_GET_SECCOMP, 0, 0, 0, 0) == SECCOMP_MODE_FILTER) { /* how many filters */
        (void)io_read_text(AT_FDCWD, "/proc/thread-self/status", text, sizeof text);
        const char *count = strstr(text, "Seccomp_filters:");
        add(hash, count ? count : "", count ? strcspn(count, "\n") : 0);
    }
    (void)io_read_text(AT_FDCWD, "/proc/thread-self/attr/current", text, sizeof text);
    add_text(hash, text); /* AppArmor, SELinux */
    /* One user cannot give up its groups: setgroups(2) is denied. */
    int count =
        level == CAY_LEVEL_SINGLE ? getgroups(sizeof groups / sizeof *groups, groups) : 0;
    add_number(hash, (uint64_t)count);
    add(hash, groups, count > 0 ? (size_t)count * sizeof *groups : 0);
}

/* What a sandbox inherits from the thread that creates it. */
static void add_thread(struct hash *hash, bool has_own_network)
{
    unsigned long processors[128] = {0};
    char score[16] = "", cgroups[4096];
    struct rlimit limit;
    AUTO_FD thread = open("/proc/thread-self", O_PATH | O_DIRECTORY | O_CLOEXEC);

    add_number(hash, geteuid());
    add_number(hash, getegid());
    add_namespaces(hash, thread, has_own_network);
    for (long i = 0; i < RLIM_NLIMITS;
         i++) /* raw: the type of a limit's number differs */
        if (syscall(SYS_prlimit64, 0L, i, NULL, &limit) == 0)
            add(hash, &limit, sizeof limit);
    add_number(hash, (uint64_t)getpriority(PRIO_PROCESS, 0));
    add_number(hash, (uint64_t)syscall(SYS_sched_getscheduler, 0L));
    add_number(hash, (uint64_t)syscall(SYS_ioprio_get, (long)IOPRIO_WHO_PROCESS, 0L));
    long len = syscall(SYS_sched_getaffinity, 0L, sizeof processors, processors);
    add(hash, processors, len > 0 ? (size_t)len : 0);
    (void)io_read_text(thread, "oom_score_adj", score, sizeof score);
    add_text(hash, score);
    /* In every hierarchy: its own limits apply to the sandbox, too. */
    (void)io_read_text(thread, "cgroup", cgroups, sizeof cgroups);
    add_text(hash, cgroups);
}

/* The same directory may be mounted several times, for example read-only. */
static void add_mount(struct hash *hash, int fd)
{
    char path[32], text[512];
    struct stat st = {0};
    struct statfs fs = {0};

    (void)!fstat(fd, &st);
    (void)!fstatfs(fd, &fs);
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
    (void)io_read_text(AT_FDCWD, path, text, sizeof text);
    const char *mount = strstr(text, "mnt_id:");
    add_number(hash, st.st_dev);
    add_number(hash, st.st_ino);
    add_number(hash, (uint64_t)fs.f_flags);
    add(hash, mount ? mount : "", mount ? strcspn(mount, "\n") : 0);
}

static void add_binds(struct hash *hash, const struct binds *binds)
{
    for (size_t i = 0; i < binds->count; i++) {
        const struct bind *bind = &binds->list[i];
        add_text(hash, bind->target);
        add_number(hash, bind->writable);
        add_number(hash, bind->volume >= 0);
        add_number(hash, bind->inside_uid);
        add_number(hash, bind->inside_gid);
        add_mount(hash, bind->is_mount ? bind->volume : bind->fd);
        add_number(hash, bind->changes >= 0);
        if (bind->changes >= 0)
            add_mount(hash, bind->changes);
    }
}

bool spare_key(const struct cay_sandbox_options *options,
               const struct root_sources *sources, struct spare_key *ret_key)
{
    enum cay_level level = level_from(options->level);
    struct hash hash = {HASH_STABLE};
    struct stat resolver;

    if (options->storage != CAY_STORAGE_MEMORY || options->secret_count ||
        options->header_count || (options->policy && options->policy->mount_count) ||
        level == CAY_LEVEL_BEST || level >= CAY_LEVEL_LANDLOCK)
        return false;
    add_text(&hash, CAY_VERSION);
    add_number(&hash, CLAIM_VERSION);
    add_text(&hash, options->pool);
    add_text(&hash, options->hostname);
    add_text(&hash, options->id_prefix);
    add_number(&hash, level);
    /* rules and named networks come with the claim */
    add_number(&hash, options->network > CAY_NETWORK_HOST ? CAY_NETWORK_RULES
                                                          : options->network);
    add_number(&hash, options->disk_bytes);
    add_number(&hash, options->cpu_percent != 0);
    /* copied into the root */
    if (options->network == CAY_NETWORK_HOST &&
        stat("/etc/resolv.conf", &resolver) == 0) {
        add_number(&hash, resolver.st_ino);
        add(&hash, &resolver.st_mtim, sizeof resolver.st_mtim);
    }
    add_number(&hash, sources->template.dev);
    add_number(&hash, sources->template.ino);
    if (sources->template.root < 0 || sources->template.is_host)
        add_number(&hash, root_plan_host_version());
    if (sources->template.root >= 0)
        add_mount(&hash, sources->template.root);
    add_binds(&hash, &sources->binds);
    if (sources->inherited) {
        add_text(&hash, sources->inherited->source);
        add_number(&hash, sources->inherited->life);
        add_number(&hash, sources->inherited->checkpoint);
    }
    add_thread(&hash, options->network != CAY_NETWORK_HOST);
    add_restrictions(&hash, level);
    snprintf(ret_key->text, sizeof ret_key->text, "%016llx",
             (unsigned long long)hash.value);
    return true;
}

/* --- Offers --- */

static const char directory[] = "spares";

static void name_offer(const struct spare_key *key, const char *id,
                       char name[SPARE_OFFER_MAX])
{
    snprintf(name, SPARE_OFFER_MAX, "%s-%s", key->text, id);
}

int spare_offer(const struct spare_key *key, const char *id, struct cay_error *err)
{
    char name[SPARE_OFFER_MAX];
    AUTO_FD dir = runtime_open_dir(directory, err);

    if (dir < 0)
        return dir;
    name_offer(key, id, name);
    AUTO_FD fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    return fd < 0 ? runtime_fail(errno, directory, err) : CAY_OK;
}

bool spare_withdraw(const struct spare_key *key, const char *id)
{
    char name[SPARE_OFFER_MAX];
    AUTO_FD dir = runtime_open_dir(directory, NULL);

    name_offer(key, id, name);
    return dir >= 0 && unlinkat(dir, name, 0) == 0;
}

bool spare_is_offered(const struct spare_key *key, const char *id)
{
    char name[SPARE_OFFER_MAX];
    AUTO_FD dir = runtime_open_dir(directory, NULL);

    name_offer(key, id, name);
    return dir >= 0 && faccessat(dir, name, F_OK, 0) == 0;
}

enum { LIST_PATH_MAX = PATH_MAX + 16 };

/* Of a directory of the runtime directory; false if there is none. */
static bool list_path(const char *name, char path[LIST_PATH_MAX])
{
    char top[PATH_MAX];

    if (runtime_directory(top, NULL) != CAY_OK)
        return false;
    snprintf(path, LIST_PATH_MAX, "%s/%.8s", top, name);
    return true;
}

/* As the kernel fills it in. */
struct entry {
    uint64_t inode;
    int64_t offset;
    unsigned short size;
    unsigned char type;
    char name[];
};

static void read_next(struct spare_offers *offers)
{
    offers->next[0] = '\0';
    while (!offers->next[0]) {
        if (offers->at >= offers->len) {
            offers->at = 0;
            offers->len = syscall(SYS_getdents64, (long)offers->fd, offers->entries,
                                  sizeof offers->entries);
            if (offers->len <= 0)
                return;
        }
        const struct entry *entry =
            (const struct entry *)((const char *)offers->entries + offers->at);
        offers->at += entry->size;
        if (entry->name[0] != '.')
            cay_copy_text(offers->next, sizeof offers->next, entry->name);
    }
}

bool spare_open_offers(struct spare_offers *ret_offers)
{
    char path[LIST_PATH_MAX];

    ret_offers->at = ret_offers->len = 0;
    ret_offers->next[0] = '\0';
    ret_offers->fd = list_path(directory, path)
                         ? open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
                         : -1;
    if (ret_offers->fd >= 0)
        read_next(ret_offers);
    return ret_offers->next[0];
}

void spare_close_offers(struct spare_offers *offers)
{
    auto_close(&offers->fd);
}

bool spare_take(struct spare_offers *offers, const struct spare_key *key,
                char ret_id[CAY_ID_MAX])
{
    bool is_taken = false;

    for (; !is_taken && offers->next[0]; read_next(offers)) {
        const char *id = offers->next + KEY_LEN + 1;
        if (strncmp(offers->next, key->text, KEY_LEN) != 0 ||
            offers->next[KEY_LEN] != '-' || !runtime_is_id(id))
            continue;
        cay_copy_text(ret_id, CAY_ID_MAX, id);
        is_taken = unlinkat(offers->fd, offers->next, 0) == 0;
    }
    return is_taken;
}

bool spare_has_pool(const struct record *record)
{
    char top[PATH_MAX], path[PATH_MAX + sizeof SPARE_POOLS + sizeof record->pool];

    if (!record->pool[0] || strchr(record->pool, '/') ||
        runtime_directory(top, NULL) != CAY_OK)
        return false;
    snprintf(path, sizeof path, "%s/" SPARE_POOLS "/%s", top, record->pool);
    AUTO_FD fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    return fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

/* Status files of pools whose program was killed: it held a lock. */
static void sweep_pools(void)
{
    char path[LIST_PATH_MAX];
    AUTO_DIR list = list_path(SPARE_POOLS, path) ? opendir(path) : NULL;

    for (struct dirent *entry; list && (entry = readdir(list));) {
        if (strncmp(entry->d_name, "p-", 2) != 0)
            continue;
        AUTO_FD fd = openat(dirfd(list), entry->d_name,
                            O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) == 0)
            (void)unlinkat(dirfd(list), entry->d_name, 0);
    }
}

void spare_sweep(void)
{
    char path[LIST_PATH_MAX];
    AUTO_DIR list = list_path(directory, path) ? opendir(path) : NULL;

    for (struct dirent *entry; list && (entry = readdir(list));)
        if (strlen(entry->d_name) > KEY_LEN && entry->d_name[0] != '.' &&
            !runtime_changed_ms(entry->d_name + KEY_LEN + 1))
            (void)unlinkat(dirfd(list), entry->d_name, 0);
    sweep_pools();
}
