/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/native/groups.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "cay/sandbox.h"

static const char op[] = "sandbox.cgroup";

/* Where a hierarchy is mounted and where in it we are. */
struct hierarchy {
    char mount[GROUPS_PATH];
    char own[GROUPS_PATH];
};

/* Whether a list like "rw,memory" has this word. */
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

/* Field number `n` (from 0) of a line whose fields are separated by single blanks. */
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

/* The mount point of the cgroup hierarchy with this controller ("" for cgroup2). */
static bool find_mount(const char *controller, char ret_mount[GROUPS_PATH])
{
    FILE *file = fopen("/proc/self/mountinfo", "re");
    char line[4096], type[64], options[1024];
    bool found = false;

    while (file && !found && fgets(line, sizeof line, file)) {
        const char *rest = strstr(line, " - ");
        if (!rest || !field(rest + 3, 0, type, sizeof type) ||
            !field(rest + 3, 2, options, sizeof options))
            continue;
        found =
            (*controller ? strcmp(type, "cgroup") == 0 && lists(options, ",", controller)
                         : strcmp(type, "cgroup2") == 0) &&
            field(line, 4, ret_mount, GROUPS_PATH);
    }
    if (file)
        fclose(file);
    return found;
}

/* "5:memory:/path" for a controller, "0::/path" for cgroup2. */
static bool find_own(const char *controller, char ret_own[GROUPS_PATH])
{
    FILE *file = fopen("/proc/self/cgroup", "re");
    char line[4096];
    bool found = false;

    while (file && !found && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        char *names = strchr(line, ':');
        char *path = names ? strchr(names + 1, ':') : NULL;
        if (!path)
            continue;
        *path++ = '\0';
        names++;
        const char *own = strcmp(path, "/") == 0 ? "" : path;
        found = (*controller ? lists(names, ",", controller) : !*names) &&
                strlen(own) < GROUPS_PATH;
        if (found)
            memcpy(ret_own, own, strlen(own) + 1);
    }
    if (file)
        fclose(file);
    return found;
}

enum { HIERARCHIES = 4 };

/* Where things are mounted does not change under us, and a process that is moved makes
 * its later sandboxes where it was: both are fine, and looking takes long. */
static bool find_hierarchy(const char *controller, struct hierarchy *ret)
{
    static struct {
        char controller[16];
        bool found;
        struct hierarchy where;
    } known[HIERARCHIES];
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    size_t i = 0;

    pthread_mutex_lock(&mutex);
    while (i < HIERARCHIES - 1 && known[i].found &&
           strcmp(known[i].controller, controller) != 0)
        i++;
    if (!known[i].found || strcmp(known[i].controller, controller) != 0) {
        known[i].found = find_mount(controller, known[i].where.mount) &&
                         find_own(controller, known[i].where.own);
        snprintf(known[i].controller, sizeof known[i].controller, "%s", controller);
    }
    bool found = known[i].found;
    *ret = known[i].where;
    pthread_mutex_unlock(&mutex);
    return found;
}

/* Into a field of struct groups; false if it is too long for one. */
static bool name_group(char out[GROUPS_PATH], const struct hierarchy *where,
                       const char *id)
{
    int len = snprintf(out, GROUPS_PATH, "%s%s/cay-%s", where->mount, where->own, id);

    if (len >= 0 && len < GROUPS_PATH - (int)sizeof "/memory.oom_control")
        return true;
    out[0] = '\0';
    return false;
}

static int put(const char *directory, const char *file, const char *value)
{
    char path[GROUPS_PATH + 64];

    snprintf(path, sizeof path, "%s/%s", directory, file);
    AUTO_FD fd = open(path, O_WRONLY | O_CLOEXEC);
    return fd >= 0 && write(fd, value, strlen(value)) == (ssize_t)strlen(value) ? 0
                                                                                : -errno;
}

static int put_number(const char *directory, const char *file, uint64_t value)
{
    char text[32];

    snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    return put(directory, file, text);
}

static int fail(const char *what, int error, struct cay_error *err)
{
    return cay_fail(err, CAY_E_UNAVAILABLE, -error, op, what,
                    "the kernel does not let us set this limit",
                    "run as root, or under a cgroup that was delegated to this user");
}

/* --- One controller each, cgroup v1 --- */

static int limit_v1(const char *controller, const char *directory,
                    const struct groups_limits *limits)
{
    if (strcmp(controller, "memory") == 0) {
        int error = put_number(directory, "memory.limit_in_bytes", limits->memory_bytes);
        if (error)
            return error;
        /* Memory and swap together: no swap.  Not every kernel counts swap. */
        error =
            put_number(directory, "memory.memsw.limit_in_bytes", limits->memory_bytes);
        return error == -ENOENT ? 0 : error;
    }
    if (strcmp(controller, "pids") == 0)
        return put_number(directory, "pids.max", limits->pids);
    return limits->cpu_percent ? put_number(directory, "cpu.cfs_quota_us",
                                            (uint64_t)limits->cpu_percent * 1000)
                               : 0;
}

static int make_v1(const char *id, const char *controller, unsigned layer,
                   const struct groups_limits *limits, struct groups *groups,
                   struct cay_error *err)
{
    struct hierarchy where;
    size_t slot = 0;

    if (!find_hierarchy(controller, &where))
        return CAY_OK;
    while (groups->v1[slot][0])
        slot++;
    if (!name_group(groups->v1[slot], &where, id))
        return fail(controller, -ENAMETOOLONG, err);
    if (mkdir(groups->v1[slot], 0755) != 0) {
        int error = -errno;
        groups->v1[slot][0] = '\0';
        return fail(controller, error, err);
    }
    int error = limit_v1(controller, groups->v1[slot], limits);
    if (error)
        return fail(controller, error, err);
    groups->layers |= layer;
    if (layer == CAY_LAYER_MEMORY)
        snprintf(groups->memory_events, GROUPS_PATH, "%.200s/memory.oom_control",
                 groups->v1[slot]);
    return CAY_OK;
}

/* --- cgroup v2 --- */

/* The controllers a directory has to give: "cpu memory pids". */
static void read_controllers(const char *directory, char text[256])
{
    char path[GROUPS_PATH + 64];

    snprintf(path, sizeof path, "%s/cgroup.controllers", directory);
    AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t len = fd < 0 ? -1 : read(fd, text, 255);
    text[len > 0 ? len : 0] = '\0';
}

/* Where cgroup2 has controllers of its own, a directory with processes in it cannot hand
 * them on, and ours has us in it.  Root then makes its sandboxes in a place beside. */
static void choose_parent(struct hierarchy *where)
{
    static const char wanted[] = "+memory +pids +cpu";
    char controllers[256], beside[GROUPS_PATH + 8];

    read_controllers(where->mount, controllers);
    if (geteuid() != 0 || !lists(controllers, " \n", "memory"))
        return;
    snprintf(beside, sizeof beside, "%s/cay", where->mount);
    (void)put(where->mount, "cgroup.subtree_control", wanted);
    if ((mkdir(beside, 0755) == 0 || errno == EEXIST) &&
        put(beside, "cgroup.subtree_control", wanted) == 0)
        memcpy(where->own, "/cay", sizeof "/cay");
}

static int limit_unified(const struct groups_limits *limits, struct groups *groups)
{
    char controllers[256], cpu[64];
    int error = 0;

    read_controllers(groups->unified, controllers);
    if (lists(controllers, " \n", "memory")) {
        error = put_number(groups->unified, "memory.max", limits->memory_bytes);
        if (!error)
            (void)put(groups->unified, "memory.swap.max", "0");
        groups->layers |= CAY_LAYER_MEMORY;
        snprintf(groups->memory_events, GROUPS_PATH, "%.200s/memory.events",
                 groups->unified);
    }
    if (!error && lists(controllers, " \n", "pids")) {
        error = put_number(groups->unified, "pids.max", limits->pids);
        groups->layers |= CAY_LAYER_PIDS;
    }
    if (!error && limits->cpu_percent && lists(controllers, " \n", "cpu")) {
        snprintf(cpu, sizeof cpu, "%u 100000", limits->cpu_percent * 1000);
        error = put(groups->unified, "cpu.max", cpu);
        groups->layers |= CAY_LAYER_CPU;
    }
    return error;
}

static int make_unified(const char *id, const struct groups_limits *limits,
                        struct groups *groups, struct cay_error *err)
{
    struct hierarchy where;

    if (!find_hierarchy("", &where))
        return cay_fail(err, CAY_E_UNAVAILABLE, 0, op, "cgroup2",
                        "no cgroup2 hierarchy is mounted",
                        "mount it: mount -t cgroup2 none /sys/fs/cgroup");
    choose_parent(&where);
    if (!name_group(groups->unified, &where, id))
        return fail("cgroup2", -ENAMETOOLONG, err);
    if (mkdir(groups->unified, 0755) != 0) {
        int error = -errno;
        groups->unified[0] = '\0';
        return fail("cgroup2", error, err);
    }
    int error = limit_unified(limits, groups);
    return error ? fail("cgroup2", error, err) : CAY_OK;
}

int groups_make(const char *id, const struct groups_limits *limits,
                struct groups *ret_groups, struct cay_error *err)
{
    memset(ret_groups, 0, sizeof *ret_groups);
    int code = make_unified(id, limits, ret_groups, err);
    if (!code && !(ret_groups->layers & CAY_LAYER_MEMORY))
        code = make_v1(id, "memory", CAY_LAYER_MEMORY, limits, ret_groups, err);
    if (!code && !(ret_groups->layers & CAY_LAYER_PIDS))
        code = make_v1(id, "pids", CAY_LAYER_PIDS, limits, ret_groups, err);
    if (!code && limits->cpu_percent && !(ret_groups->layers & CAY_LAYER_CPU))
        code = make_v1(id, "cpu", CAY_LAYER_CPU, limits, ret_groups, err);
    if (code)
        groups_remove(ret_groups);
    return code;
}

int groups_join(const struct groups *groups, pid_t pid, struct cay_error *err)
{
    for (size_t i = 0; i < GROUPS_V1 && groups->v1[i][0]; i++) {
        int error = put_number(groups->v1[i], "cgroup.procs", (uint64_t)pid);
        if (error)
            return fail("cgroup.procs", error, err);
    }
    return CAY_OK;
}

uint64_t groups_memory_kills(const struct groups *groups)
{
    char text[512] = "";
    AUTO_FD fd = open(groups->memory_events, O_RDONLY | O_CLOEXEC);

    if (fd < 0 || read(fd, text, sizeof text - 1) <= 0)
        return 0;
    const char *count = strstr(text, "oom_kill ");
    return count ? strtoull(count + 9, NULL, 10) : 0;
}

/* Directories go only when empty, and what was killed takes a moment to be gone. */
static void remove_patiently(const char *path)
{
    const struct timespec pause = {.tv_nsec = 1000000};

    for (int tries = 0; tries < 1000; tries++) {
        if (rmdir(path) == 0 || errno != EBUSY)
            return;
        nanosleep(&pause, NULL);
    }
}

static void remove_below(const char *path)
{
    char child[GROUPS_PATH + 300];
    DIR *directory = opendir(path);

    for (struct dirent *entry; directory && (entry = readdir(directory));)
        if (entry->d_type == DT_DIR && entry->d_name[0] != '.') {
            snprintf(child, sizeof child, "%s/%s", path, entry->d_name);
            remove_patiently(child);
        }
    if (directory)
        closedir(directory);
}

static void remove_unified(const char *path)
{
    char work[GROUPS_PATH + 16];

    (void)put(path, "cgroup.kill", "1");
    snprintf(work, sizeof work, "%s/work", path);
    remove_below(work);
    remove_below(path);
    remove_patiently(path);
}

void groups_remove(const struct groups *groups)
{
    if (groups->unified[0])
        remove_unified(groups->unified);
    for (size_t i = 0; i < GROUPS_V1; i++)
        if (groups->v1[i][0])
            remove_patiently(groups->v1[i]);
}
