/* SPDX-License-Identifier: Apache-2.0 */
#include "native/record/cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/join.h"
#include "cay/sandbox.h"
#include "sys/io.h"
#include "sys/path.h"

static const char op[] = "sandbox.cgroup";

/* Where a hierarchy is mounted, and the cgroup of this process in it. */
struct hierarchy {
    char mount[CGROUP_PATH];
    char own[CGROUP_PATH];
};

/* Whether a list like "rw,memory" contains this word. */
static bool lists(const char *list, const char *separators, const char *word)
{
    size_t len = strlen(word);

    while (*list) {
        size_t part = strcspn(list, separators);
        if (part == len && memcmp(list, word, len) == 0)
            return true;
        list += part + (list[part] != '\0');
    }
    return false;
}

/* Field number `n` (from 0) of a line of space-separated fields. */
static bool field(const char *line, int n, char *out, size_t room)
{
    while (n-- > 0) {
        line = strchr(line, ' ');
        if (!line)
            return false;
        line++;
    }
    size_t len = strcspn(line, " \n");
    if (len >= room)
        return false;
    memcpy(out, line, len);
    out[len] = '\0';
    return true;
}

enum { MEMORY, PIDS };

/* The controllers in use, in the order of v1[] of struct cgroup. */
static const struct {
    const char *controller;
    unsigned layer;
    const char *limit, *v1_limit; /* the files of their limits */
} controllers[CGROUP_V1] = {
    [MEMORY] = {"memory", CAY_LAYER_MEMORY, "memory.max", "memory.limit_in_bytes"},
    [PIDS] = {"pids", CAY_LAYER_PIDS, "pids.max", "pids.max"},
    {"cpu", CAY_LAYER_CPU, "cpu.max", "cpu.cfs_quota_us"},
};

/* The mounted hierarchies: one for each v1 controller, then cgroup2. */
enum { CGROUP2 = CGROUP_V1, HIERARCHIES };
struct hierarchies {
    struct hierarchy where[HIERARCHIES];
    bool mounted[HIERARCHIES], joined[HIERARCHIES];
};

static void read_mount(void *cookie, char *line)
{
    struct hierarchies *all = cookie;
    const char *rest = strstr(line, " - ");
    char type[64], options[1024];

    if (!rest || !field(rest + 3, 0, type, sizeof type) ||
        !field(rest + 3, 2, options, sizeof options))
        return;
    for (size_t i = 0; i < HIERARCHIES; i++)
        if (!all->mounted[i] &&
            (i == CGROUP2 ? strcmp(type, "cgroup2") == 0
                          : strcmp(type, "cgroup") == 0 &&
                                lists(options, ",", controllers[i].controller)))
            all->mounted[i] = field(line, 4, all->where[i].mount, CGROUP_PATH);
}

/* "5:memory:/path" for a controller, "0::/path" for cgroup2. */
static void read_own(void *cookie, char *line)
{
    struct hierarchies *all = cookie;
    char *names = strchr(line, ':');
    char *path = names ? strchr(names + 1, ':') : NULL;
    if (!path)
        return;
    *path++ = '\0';
    names++;
    const char *own = strcmp(path, "/") == 0 ? "" : path;
    for (size_t i = 0; i < HIERARCHIES; i++)
        if (!all->joined[i] && strlen(own) < CGROUP_PATH &&
            (i == CGROUP2 ? !*names : lists(names, ",", controllers[i].controller))) {
            memcpy(all->where[i].own, own, strlen(own) + 1);
            all->joined[i] = true;
        }
}

/* The usual mount point.  It is tried first because the kernel takes long to list all
 * mounts. */
static void try_usual_mount(struct hierarchies *all, size_t which)
{
    static const char top[] = "/sys/fs/cgroup";
    char *path = all->where[which].mount;
    long type = which == CGROUP2 ? CGROUP2_SUPER_MAGIC : CGROUP_SUPER_MAGIC;
    struct statfs fs;

    if (which == CGROUP2 && statfs(top, &fs) == 0 && fs.f_type == type)
        snprintf(path, CGROUP_PATH, "%s", top);
    else
        snprintf(path, CGROUP_PATH, "%s/%s", top,
                 which == CGROUP2 ? "unified" : controllers[which].controller);
    all->mounted[which] = statfs(path, &fs) == 0 && fs.f_type == type;
}

/* Negative if the file cannot be read for want of resources; a machine may have no such
 * file. */
static int read_lines(const char *path, void (*note)(void *cookie, char *line),
                      struct hierarchies *all)
{
    int error = io_each_line(path, note, all);

    return error == -EIO || cay_errno_is_shortage(-error) ? error : 0;
}

/* Negative if some hierarchies may be missing from the result. */
static int find_hierarchies(struct hierarchies *all)
{
    bool all_usual = true;

    *all = (struct hierarchies){0};
    int error = read_lines("/proc/self/cgroup", read_own, all);
    for (size_t i = 0; i < HIERARCHIES; i++)
        if (all->joined[i]) {
            try_usual_mount(all, i);
            all_usual &= all->mounted[i];
        }
    if (!error && !all_usual)
        error = read_lines("/proc/self/mountinfo", read_mount, all);
    return error;
}

/* The result is cached, because reading mountinfo is slow; a process that is moved later
 * creates its sandboxes in its first cgroup.  1; 0 if there is no such hierarchy;
 * negative if that is unknown: creating a sandbox without its limits would be wrong. */
static int find_hierarchy(size_t which, struct hierarchy *ret)
{
    static struct hierarchies known;
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static pid_t owner; /* a child process may have been moved, so it looks again */

    pthread_mutex_lock(&mutex);
    int found = owner == getpid() ? 0 : find_hierarchies(&known);
    owner = found ? 0 : getpid();
    if (!found)
        found = known.mounted[which] && known.joined[which];
    *ret = known.where[which];
    pthread_mutex_unlock(&mutex);
    return found;
}

int cgroup_find_mount(size_t which, char ret_path[CGROUP_PATH])
{
    struct hierarchy where;
    int found = find_hierarchy(which, &where);

    memcpy(ret_path, where.mount, CGROUP_PATH);
    return found;
}

/* Whether this process may create cgroups there and move processes into them. */
static bool may_create(const struct hierarchy *where)
{
    char path[2 * CGROUP_PATH + 32];

    return JOIN(path, sizeof path, where->mount, where->own) && access(path, W_OK) == 0 &&
           JOIN(path, sizeof path, where->mount, where->own, "/cgroup.procs") &&
           access(path, W_OK) == 0;
}

/* Writes the path into a field of struct cgroup; false if it is too long. */
static bool name_cgroup(char out[CGROUP_PATH], const struct hierarchy *where,
                        const char *id)
{
    /* The longest name of a file in it fits, too. */
    return JOIN(out, CGROUP_PATH - sizeof "/memory.oom_control", where->mount, where->own,
                "/cay-", id);
}

static int put(const char *directory, const char *file, const char *value)
{
    char path[CGROUP_PATH + 64];

    return JOIN(path, sizeof path, directory, "/", file) ? io_write_text(path, value)
                                                         : -ENAMETOOLONG;
}

/* False if the file is missing; `directory` may be "". */
static bool get(const char *directory, const char *file, char *text, size_t room)
{
    char path[2 * CGROUP_PATH + 64];

    *text = '\0';
    return *directory && JOIN(path, sizeof path, directory, "/", file) &&
           io_read_text(AT_FDCWD, path, text, room) >= 0;
}

static int put_number(const char *directory, const char *file, uint64_t value)
{
    char text[32];

    snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    return put(directory, file, text);
}

static int fail(const char *what, int error, struct cay_error *err)
{
    if (cay_errno_is_shortage(-error))
        return cay_fail_errno(err, -error, op, what);
    return cay_fail(
        err, CAY_E_UNAVAILABLE, -error, op, what, "the kernel rejects this limit", "%s",
        error == -EINVAL ? "the value is out of range for the kernel; use a smaller one"
        : geteuid() == 0
            ? "run cay doctor to see which limits this host's cgroups support"
            : "run as root, or in a cgroup that is delegated to this user");
}

/* Forbids swap beyond the memory limit.  If the kernel does not account swap, this is
 * only correct on a machine without swap: the memory limit could be bypassed
 * otherwise. */
static int limit_swap(const char *directory, const char *file, uint64_t value)
{
    struct sysinfo machine;
    int error = put_number(directory, file, value);

    if (error == -ENOENT && sysinfo(&machine) == 0 && machine.totalswap == 0)
        return 0;
    return error;
}

/* --- One controller each, cgroup v1 --- */

static int limit_v1(const char *controller, const char *directory,
                    const struct cgroup_limits *limits)
{
    if (strcmp(controller, "memory") == 0) {
        int error = put_number(directory, "memory.limit_in_bytes", limits->memory_bytes);
        if (error)
            return error;
        /* this file limits memory and swap together */
        error =
            limit_swap(directory, "memory.memsw.limit_in_bytes", limits->memory_bytes);
        if (error)
            return error;
        /* TCP buffers are accounted separately, and not at all without this. */
        error = put_number(directory, "memory.kmem.tcp.limit_in_bytes",
                           limits->memory_bytes / 4);
        return error == -ENOENT ? 0 : error;
    }
    if (strcmp(controller, "pids") == 0)
        return put_number(directory, "pids.max", limits->pids);
    return limits->cpu_percent ? put_number(directory, "cpu.cfs_quota_us",
                                            (uint64_t)limits->cpu_percent * 1000)
                               : 0;
}

static int make_v1(size_t i, const struct cgroup_limits *limits, struct cgroup *cgroup,
                   struct cay_error *err)
{
    if (mkdir(cgroup->v1[i], 0755) != 0)
        return fail(controllers[i].controller, -errno, err);
    int error = limit_v1(controllers[i].controller, cgroup->v1[i], limits);
    if (error)
        return fail(controllers[i].controller, error, err);
    cgroup->layers |= controllers[i].layer;
    if (controllers[i].layer == CAY_LAYER_MEMORY)
        snprintf(cgroup->memory_events, CGROUP_PATH, "%.200s/memory.oom_control",
                 cgroup->v1[i]);
    if (controllers[i].layer == CAY_LAYER_PIDS)
        snprintf(cgroup->pids_events, CGROUP_PATH, "%.200s/pids.events", cgroup->v1[i]);
    return CAY_OK;
}

/* --- cgroup v2 --- */

static void cut_last(char *path)
{
    char *slash = strrchr(path, '/');

    if (slash)
        *slash = '\0';
}

/* An ordinary user may own a parent of the cgroup it runs in.  False if none of its
 * parents delegates controllers. */
static bool find_delegating_parent(struct hierarchy *where)
{
    char path[2 * CGROUP_PATH], handed[256];

    while (may_create(where)) {
        snprintf(path, sizeof path, "%s%s", where->mount, where->own);
        (void)get(path, "cgroup.subtree_control", handed, sizeof handed);
        if (lists(handed, " \n", "memory") || lists(handed, " \n", "pids"))
            return true;
        if (!where->own[0])
            return false;
        cut_last(where->own);
    }
    return false;
}

/* Delegates all available controllers to child cgroups; returns how many of the
 * controllers in use are delegated. */
static size_t delegate(const char *directory)
{
    char there[256], handed[256], order[32];
    size_t count = 0;

    (void)get(directory, "cgroup.controllers", there, sizeof there);
    (void)get(directory, "cgroup.subtree_control", handed, sizeof handed);
    for (size_t i = 0; i < CGROUP_V1; i++) {
        const char *name = controllers[i].controller;
        snprintf(order, sizeof order, "+%s", name);
        count += lists(handed, " \n", name) ||
                 (lists(there, " \n", name) &&
                  put(directory, "cgroup.subtree_control", order) == 0);
    }
    return count;
}

/* With cgroup2 controllers, a cgroup that contains processes cannot delegate them, and
 * the cgroup of this process contains at least this process.  Sandboxes are then created
 * in a sibling cgroup, "cay".  It delegates the controllers itself, so that systemd does
 * not disable them when none of its own units uses them. */
static void choose_parent(struct hierarchy *where)
{
    struct hierarchy at = *where;
    char there[256], above[2 * CGROUP_PATH], beside[2 * CGROUP_PATH + 8];

    (void)get(at.mount, "cgroup.controllers", there, sizeof there);
    if (!lists(there, " \n", "memory"))
        return;
    if (geteuid() == 0)
        at.own[0] = '\0';
    else if (!find_delegating_parent(&at))
        return;
    snprintf(above, sizeof above, "%s%s", at.mount, at.own);
    snprintf(beside, sizeof beside, "%s/cay", above);
    if (delegate(beside) < CGROUP_V1) {
        (void)delegate(above);
        (void)!mkdir(beside, 0755);
        if (delegate(beside) == 0)
            return;
    }
    if (strlen(at.own) + sizeof "/cay" <= sizeof at.own) {
        memcpy(at.own + strlen(at.own), "/cay", sizeof "/cay");
        *where = at;
    }
}

static int limit_unified(const struct cgroup_limits *limits, struct cgroup *cgroup)
{
    char there[256], cpu[64];
    int error = 0;

    (void)get(cgroup->unified, "cgroup.controllers", there, sizeof there);
    if (lists(there, " \n", "memory")) {
        error = put_number(cgroup->unified, "memory.max", limits->memory_bytes);
        if (!error)
            error = limit_swap(cgroup->unified, "memory.swap.max", 0);
        cgroup->layers |= CAY_LAYER_MEMORY;
        snprintf(cgroup->memory_events, CGROUP_PATH, "%.200s/memory.events",
                 cgroup->unified);
    }
    if (!error && lists(there, " \n", "pids")) {
        error = put_number(cgroup->unified, "pids.max", limits->pids);
        cgroup->layers |= CAY_LAYER_PIDS;
        snprintf(cgroup->pids_events, CGROUP_PATH, "%.200s/pids.events", cgroup->unified);
    }
    if (!error && limits->cpu_percent && lists(there, " \n", "cpu")) {
        snprintf(cpu, sizeof cpu, "%" PRIu64 " 100000",
                 (uint64_t)limits->cpu_percent * 1000);
        error = put(cgroup->unified, "cpu.max", cpu);
        cgroup->layers |= CAY_LAYER_CPU;
    }
    return error;
}

int cgroup_name(const char *id, const struct cgroup_limits *limits,
                struct cgroup *ret_cgroup, struct cay_error *err)
{
    struct hierarchy where;
    bool fits = true;
    int found = find_hierarchy(CGROUP2, &where); /* covers all hierarchies */

    memset(ret_cgroup, 0, sizeof *ret_cgroup);
    if (found < 0)
        return cay_fail_errno(err, -found, op, "cgroup");
    if (found) {
        choose_parent(&where);
        fits = !may_create(&where) || name_cgroup(ret_cgroup->unified, &where, id);
    }
    for (size_t i = 0; fits && i < CGROUP_V1; i++)
        if ((controllers[i].layer != CAY_LAYER_CPU || limits->cpu_percent) &&
            find_hierarchy(i, &where) > 0 && may_create(&where))
            fits = name_cgroup(ret_cgroup->v1[i], &where, id);
    return fits ? CAY_OK : fail("cgroup", -ENAMETOOLONG, err);
}

unsigned cgroup_preview_layers(const struct cgroup *cgroup,
                               const struct cgroup_limits *limits)
{
    char parent[CGROUP_PATH], handed[256] = "";
    unsigned layers = 0;

    memcpy(parent, cgroup->unified, sizeof parent);
    cut_last(parent);
    if (parent[0])
        (void)get(parent, "cgroup.subtree_control", handed, sizeof handed);
    for (size_t i = 0; i < CGROUP_V1; i++)
        if (cgroup->v1[i][0] || lists(handed, " \n", controllers[i].controller))
            layers |= controllers[i].layer;
    return limits->cpu_percent ? layers : layers & ~(unsigned)CAY_LAYER_CPU;
}

int cgroup_create(const struct cgroup *cgroup, int *ret_fd, struct cay_error *err)
{
    *ret_fd = -1;
    if (!cgroup->unified[0])
        return CAY_OK;
    if (mkdir(cgroup->unified, 0755) == 0)
        *ret_fd = openat(AT_FDCWD, cgroup->unified, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return *ret_fd < 0 ? fail("cgroup2", -errno, err) : CAY_OK;
}

int cgroup_set_limits(struct cgroup *cgroup, const struct cgroup_limits *limits,
                      struct cay_error *err)
{
    int code = CAY_OK;
    int error = cgroup->unified[0] ? limit_unified(limits, cgroup) : 0;

    if (error)
        return fail("cgroup2", error, err);
    for (size_t i = 0; !code && i < CGROUP_V1; i++)
        if (cgroup->layers & controllers[i].layer)
            cgroup->v1[i][0] = '\0'; /* cgroup2 enforces this limit already */
        else if (cgroup->v1[i][0])
            code = make_v1(i, limits, cgroup, err);
    return code;
}

/* The limit of memory and swap together is never below that of memory, so it is lifted
 * first. */
int cgroup_change_limits(const struct cgroup *cgroup, const struct cgroup_limits *limits,
                         struct cay_error *err)
{
    struct cgroup unused = *cgroup;
    int error = cgroup->unified[0] ? limit_unified(limits, &unused) : 0;

    for (size_t i = 0; !error && i < CGROUP_V1; i++) {
        if (!cgroup->v1[i][0])
            continue;
        if (controllers[i].layer == CAY_LAYER_MEMORY)
            (void)!put(cgroup->v1[i], "memory.memsw.limit_in_bytes", "-1");
        error = limit_v1(controllers[i].controller, cgroup->v1[i], limits);
    }
    return error ? fail("limits", error, err) : CAY_OK;
}

int cgroup_open_tasks(const struct cgroup *cgroup, int ret_fds[CGROUP_V1],
                      struct cay_error *err)
{
    char path[CGROUP_PATH + 64];

    for (size_t i = 0; i < CGROUP_V1; i++)
        ret_fds[i] = -1;
    for (size_t i = 0, count = 0; i < CGROUP_V1; i++) {
        if (!cgroup->v1[i][0])
            continue;
        (void)JOIN(path, sizeof path, cgroup->v1[i], "/tasks");
        int fd = openat(AT_FDCWD, path, O_WRONLY | O_CLOEXEC);
        if (fd < 0)
            return fail("tasks", -errno, err);
        ret_fds[count++] = fd;
    }
    return CAY_OK;
}

/* Removes a cgroup whose processes were killed; they take a moment to disappear. */
static int remove_and_wait(const char *path)
{
    for (int tries = 0; tries < 1000; tries++) {
        if (rmdir(path) == 0 || errno == ENOENT)
            return 0;
        if (errno != EBUSY)
            return -errno;
        clock_sleep_ms(1);
    }
    return -EBUSY;
}

static int remove_empty(const char *path)
{
    return rmdir(path) == 0 || errno == ENOENT ? 0 : -errno;
}

/* Returns the first error, if any. */
static int remove_below(const char *path, int (*remove)(const char *path))
{
    char child[CGROUP_PATH + 300];
    AUTO_DIR directory = opendir(path);
    int first = directory || errno == ENOENT ? 0 : -errno;

    for (struct dirent *entry; (entry = path_next(directory));)
        if (entry->d_type == DT_DIR) {
            snprintf(child, sizeof child, "%s/%s", path, entry->d_name);
            int error = remove(child);
            first = first ? first : error;
        }
    return first;
}

static void work_path(char out[CGROUP_PATH + 16], const struct cgroup *cgroup)
{
    (void)JOIN(out, CGROUP_PATH + 16, cgroup->unified, "/work");
}

void cgroup_remove_execs(const struct cgroup *cgroup)
{
    char work[CGROUP_PATH + 16], first[CGROUP_PATH + 32];

    if (!cgroup->unified[0])
        return;
    work_path(work, cgroup);
    /* Most sandboxes that end have had one command; a list of the directory takes time.
     */
    (void)JOIN(first, sizeof first, work, "/e0");
    if (remove_empty(first) == 0 && remove_empty(work) == 0)
        return;
    (void)remove_below(work, remove_empty);
    (void)remove_empty(work);
}

static int remove_unified(const struct cgroup *cgroup)
{
    char work[CGROUP_PATH + 16];

    work_path(work, cgroup);
    (void)remove_empty(work);
    if (remove_empty(cgroup->unified) == 0)
        return 0;
    /* Some processes are left. */
    (void)put(cgroup->unified, "cgroup.kill", "1");
    int below = remove_below(work, remove_and_wait);
    if (!below)
        below = remove_below(cgroup->unified, remove_and_wait);
    /* The error from below is more specific. */
    return below ? below : remove_and_wait(cgroup->unified);
}

int cgroup_remove(const struct cgroup *cgroup)
{
    int first = cgroup->unified[0] ? remove_unified(cgroup) : 0;

    for (size_t i = 0; i < CGROUP_V1; i++)
        if (cgroup->v1[i][0]) {
            int error = remove_and_wait(cgroup->v1[i]);
            first = first ? first : error;
        }
    return first;
}

/* --- Usage and limits, as the kernel reports them --- */

enum { ROOM_SPARED = 64 }; /* 1/64 of the memory limit is left free */

/* A file of a controller: only the hierarchy that has the controller is asked, because
 * the kernel keeps memory for each name that was looked up and is missing. */
static bool get_of(const struct cgroup *cgroup, size_t which, const char *unified,
                   const char *v1, char *text, size_t room)
{
    const char *directory = cgroup->v1[which];

    return *directory ? get(directory, v1, text, room)
                      : get(cgroup->unified, unified, text, room);
}

/* The number at the start of the file. */
static bool get_number(const struct cgroup *cgroup, size_t which, const char *unified,
                       const char *v1, uint64_t *ret_value)
{
    char text[64];
    bool found = get_of(cgroup, which, unified, v1, text, sizeof text);

    if (found)
        *ret_value = strtoull(text, NULL, 10);
    return found;
}

static bool starts_with(const char *text, const char *word)
{
    return strncmp(text, word, strlen(word)) == 0;
}

/* The value of "KEY VALUE" in a file of such lines. */
static bool get_key(const char *directory, const char *file, const char *key,
                    uint64_t *ret_value)
{
    char text[8192];

    if (!get(directory, file, text, sizeof text))
        return false;
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (starts_with(line, key) && line[strlen(key)] == ' ') {
            *ret_value = strtoull(line + strlen(key), NULL, 10);
            return true;
        }
    }
    return false;
}

void cgroup_usage(const struct cgroup *cgroup, struct cgroup_usage *ret_usage)
{
    uint64_t pids = 0, frozen = 0;

    *ret_usage = (struct cgroup_usage){0};
    ret_usage->has_memory = get_number(cgroup, MEMORY, "memory.current",
                                       "memory.usage_in_bytes", &ret_usage->memory);
    ret_usage->has_pids = get_number(cgroup, PIDS, "pids.current", "pids.current", &pids);
    ret_usage->pids = (uint32_t)pids;
    ret_usage->has_cpu =
        get_key(cgroup->unified, "cpu.stat", "usage_usec", &ret_usage->cpu_us);
    ret_usage->frozen =
        get_key(cgroup->unified, "work/cgroup.events", "frozen", &frozen) && frozen == 1;
}

/* Memory that the kernel can reclaim from the cgroup without killing a process. */
static uint64_t read_cache(const struct cgroup *cgroup)
{
    uint64_t sum = 0, value;

    for (size_t i = 0; i <= CGROUP_V1; i++) {
        const char *directory = i < CGROUP_V1 ? cgroup->v1[i] : cgroup->unified;
        if (get_key(directory, "memory.stat", "inactive_file", &value))
            sum += value;
        if (get_key(directory, "memory.stat", "active_file", &value))
            sum += value;
    }
    return sum;
}

int cgroup_open_usage(const struct cgroup *cgroup)
{
    char path[CGROUP_PATH + 64];
    int fd = -1;

    for (size_t i = 0; i <= CGROUP_V1 && fd < 0; i++) {
        const char *directory = i ? cgroup->v1[i - 1] : cgroup->unified;
        snprintf(path, sizeof path, "%s/%s", directory,
                 i ? "memory.usage_in_bytes" : "memory.current");
        fd = *directory ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    }
    return fd;
}

bool cgroup_has_room(const struct cgroup *cgroup, int usage, uint64_t limit,
                     uint64_t bytes)
{
    char text[32];
    ssize_t len = pread(usage, text, sizeof text - 1, 0);

    if (len <= 0)
        return true;
    text[len] = '\0';
    uint64_t used = strtoull(text, NULL, 10);
    /* The kernel charges in batches, and other processes allocate meanwhile. */
    bytes += limit / ROOM_SPARED;
    if (used + bytes <= limit)
        return true;
    uint64_t cache = read_cache(cgroup);
    return used - (cache < used ? cache : used) + bytes <= limit;
}

bool cgroup_has_limit(const struct cgroup *cgroup, unsigned layer, char *ret_by,
                      size_t room)
{
    char text[64];
    size_t i = 0;

    while (controllers[i].layer != layer)
        i++;
    snprintf(ret_by, room, "cgroup v%d %s", *cgroup->v1[i] ? 1 : 2,
             controllers[i].controller);
    return get_of(cgroup, i, controllers[i].limit, controllers[i].v1_limit, text,
                  sizeof text) &&
           !starts_with(text, "max") && !starts_with(text, "-1");
}

/* --- Cgroups of a sandbox without a readable record --- */

/* A delegated cgroup may contain nested ones. */
enum { DEPTH_MAX = 16 };

/* The path of a child cgroup; false if the entry is not a directory. */
static bool name_child(const char *path, const struct dirent *entry,
                       char ret_child[CGROUP_PATH])
{
    if (entry->d_type != DT_DIR)
        return false;
    int len = snprintf(ret_child, CGROUP_PATH, "%s/%s", path, entry->d_name);
    return len > 0 && len < CGROUP_PATH;
}

/* With delegated cgroups another user can create a cgroup of the same name. */
static bool is_own_directory(const char *path)
{
    struct stat st;

    return lstat(path, &st) == 0 && st.st_uid == geteuid();
}

/* 1 if found, 0 if not, negative if that is unknown. */
static int find_below(const char *path, const char *name, int depth,
                      char ret_path[CGROUP_PATH])
{
    char child[CGROUP_PATH];
    AUTO_DIR directory = depth < DEPTH_MAX ? opendir(path) : NULL;
    int found = !directory && cay_errno_is_shortage(errno) ? -errno : 0;

    for (struct dirent *entry; !found && (entry = path_next(directory));) {
        if (!name_child(path, entry, child))
            continue;
        found = strcmp(entry->d_name, name) == 0 && is_own_directory(child);
        if (found)
            memcpy(ret_path, child, sizeof child);
        else if (strncmp(entry->d_name, "cay-sb-", 7) !=
                 0) /* belongs to another sandbox */
            found = find_below(child, name, depth + 1, ret_path);
    }
    return found;
}

int cgroup_find(const char *id, struct cgroup *ret_cgroup)
{
    char mount[CGROUP_PATH], name[64];
    int error = 0;

    memset(ret_cgroup, 0, sizeof *ret_cgroup);
    snprintf(name, sizeof name, "cay-%.32s", id);
    for (size_t i = 0; i <= CGROUP_V1 && error >= 0; i++) {
        int found = cgroup_find_mount(i, mount);
        error = found > 0
                    ? find_below(mount, name, 0,
                                 i == CGROUP_V1 ? ret_cgroup->unified : ret_cgroup->v1[i])
                    : found;
    }
    return error < 0 ? error : 0;
}

static int visit_below(const char *path, int depth,
                       void (*visit)(pid_t pid, void *cookie), void *cookie)
{
    char child[CGROUP_PATH], file[CGROUP_PATH + 16], line[32];
    AUTO_DIR directory = depth < DEPTH_MAX ? opendir(path) : NULL;
    int error = directory || errno == ENOENT ? 0 : -errno;

    for (struct dirent *entry; (entry = path_next(directory));)
        if (name_child(path, entry, child)) {
            int below = visit_below(child, depth + 1, visit, cookie);
            error = error ? error : below;
        }
    snprintf(file, sizeof file, "%s/cgroup.procs", path);
    FILE *procs = fopen(file, "re");
    if (!procs)
        return error || errno == ENOENT ? error : -errno;
    while (fgets(line, sizeof line, procs))
        visit((pid_t)strtol(line, NULL, 10), cookie);
    fclose(procs);
    return error;
}

int cgroup_visit_pids(const struct cgroup *cgroup, void (*visit)(pid_t pid, void *cookie),
                      void *cookie)
{
    int error = cgroup->unified[0] ? visit_below(cgroup->unified, 0, visit, cookie) : 0;

    for (size_t i = 0; i < CGROUP_V1; i++)
        if (cgroup->v1[i][0]) {
            int other = visit_below(cgroup->v1[i], 0, visit, cookie);
            error = error ? error : other;
        }
    return error;
}
