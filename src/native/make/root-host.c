/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "base/auto.h"
#include "native/make/root-plan.h"
#include "native/record/runtime.h"
#include "sys/copy.h"
#include "sys/path.h"
#include "sys/state-home.h"

/* --- Files that all sandboxes share --- */

/* Host files with the same content in every sandbox are copied once, into a directory of
 * the runtime directory whose name is a hash of their versions.  In it each file has the
 * last component of its own path. */
struct shared_file {
    const char *path; /* "etc/services" */
    bool is_there;    /* a regular file, not too large, that everybody may read */
};

/* Shared files exist once, but copied ones are part of the plan of every sandbox. */
enum { SHARED_LEN_MAX = 16 << 20, COPIED_LEN_MAX = 256 << 10 };

enum { MAKE_S = 60, TRIES = 3 };

static const char prefix[] = "etc-";

static bool is_fit(const struct stat *st, off_t most)
{
    return S_ISREG(st->st_mode) && st->st_size <= most && st->st_mode & 0004;
}

static int open_host(const char *path, off_t most, size_t *ret_len)
{
    char name[128];
    struct stat st;

    snprintf(name, sizeof name, "/%s", path);
    AUTO_FD fd = open(name, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0 || !is_fit(&st, most))
        return -1;
    *ret_len = (size_t)st.st_size;
    return TAKE_FD(fd);
}

int root_plan_open_host_file(const char *path, size_t *ret_len)
{
    return open_host(path, COPIED_LEN_MAX, ret_len);
}

/* FNV-1a, which is the same in every process. */
static uint64_t mix(uint64_t hash, const void *data, size_t len)
{
    const unsigned char *bytes = data;

    for (size_t i = 0; i < len; i++)
        hash = (hash ^ bytes[i]) * UINT64_C(0x100000001B3);
    return hash;
}

static uint64_t version_of(struct shared_file *files, size_t count)
{
    uint64_t hash = UINT64_C(0xCBF29CE484222325);
    char name[128];

    for (size_t i = 0; i < count; i++) {
        uint64_t kvfile[7] = {0};
        struct stat st;
        snprintf(name, sizeof name, "/%s", files[i].path);
        files[i].is_there = stat(name, &st) == 0 && is_fit(&st, SHARED_LEN_MAX);
        if (files[i].is_there) {
            kvfile[0] = st.st_dev;
            kvfile[1] = st.st_ino;
            kvfile[2] = (uint64_t)st.st_size;
            kvfile[3] = (uint64_t)st.st_mtim.tv_sec;
            kvfile[4] = (uint64_t)st.st_mtim.tv_nsec;
            kvfile[5] = (uint64_t)st.st_ctim.tv_sec;
            kvfile[6] = (uint64_t)st.st_ctim.tv_nsec;
        }
        hash = mix(hash, files[i].path, strlen(files[i].path) + 1);
        hash = mix(hash, kvfile, sizeof kvfile);
    }
    return hash;
}

static const char *last_part(const char *path)
{
    return strrchr(path, '/') + 1;
}

static bool copy_file(int dir, const char *path)
{
    uint64_t copied;
    size_t len;
    AUTO_FD from = open_host(path, SHARED_LEN_MAX, &len);
    AUTO_FD to = from < 0 ? -1
                          : openat(dir, last_part(path),
                                   O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);

    return to >= 0 && fchmod(to, 0644) == 0 && copy_bytes(from, to, len, &copied) == 0 &&
           copied == len && fsync(to) == 0;
}

static void remove_directory(const char *path)
{
    struct stat st;
    AUTO_FD dir = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (dir < 0 || fstat(dir, &st) != 0 || st.st_uid != geteuid())
        return;
    AUTO_DIR list = path_list(dir);
    for (struct dirent *entry; (entry = path_next(list));)
        (void)unlinkat(dir, entry->d_name, 0);
    (void)rmdir(path);
}

static bool fill(const char *path, const struct shared_file *files, size_t count)
{
    AUTO_FD dir = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (dir < 0 || fchmod(dir, 0755) != 0)
        return false;
    for (size_t i = 0; i < count; i++)
        if (files[i].is_there && !copy_file(dir, files[i].path))
            return false;
    return true;
}

/* The path of the shared directory, which contains a hash of the versions. */
static bool name_directory(struct shared_file *files, size_t count, char top[PATH_MAX],
                           char ret_path[PATH_MAX])
{
    if (runtime_directory(top, NULL) != CAY_OK)
        return false;
    snprintf(ret_path, PATH_MAX, "%.4000s/%s%016llx", top, prefix,
             (unsigned long long)version_of(files, count));
    return true;
}

/* Created under a temporary name and renamed, so that readers only see it complete, and
 * only if no file has changed meanwhile. */
static bool make(const char *path, struct shared_file *files, size_t count)
{
    char draft[PATH_MAX + 32], top[PATH_MAX], now[PATH_MAX];

    snprintf(draft, sizeof draft, "%s.%ld", path, syscall(SYS_gettid));
    if (state_home_make(AT_FDCWD, draft) != 0)
        return false;
    if (fill(draft, files, count) && name_directory(files, count, top, now) &&
        strcmp(path, now) == 0 && rename(draft, path) == 0)
        return true;
    remove_directory(draft);
    return access(path, F_OK) == 0; /* another process was faster */
}

static bool shared_open(struct shared_file *files, size_t count, char ret_path[PATH_MAX])
{
    char top[PATH_MAX];

    for (int tries = 0; tries < TRIES; tries++) {
        if (!name_directory(files, count, top, ret_path))
            return false;
        if (access(ret_path, F_OK) == 0 || make(ret_path, files, count))
            return true;
    }
    return false;
}

/* A time in the future: the clock was set back after the creation. */
static bool is_old(const char *path)
{
    struct stat st;
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return lstat(path, &st) == 0 && labs(now.tv_sec - st.st_mtim.tv_sec) > MAKE_S;
}

/* The current version is kept: a creation may be about to use it. */
static void shared_sweep(struct shared_file *files, size_t count)
{
    char top[PATH_MAX], current[PATH_MAX], path[PATH_MAX + NAME_MAX + 2];
    bool is_used = false;

    if (!name_directory(files, count, top, current))
        return;
    AUTO_DIR list = opendir(top);
    for (struct dirent *entry; (entry = path_next(list));)
        is_used |= runtime_is_id(entry->d_name);
    if (list)
        rewinddir(list);
    for (struct dirent *entry; (entry = path_next(list));) {
        bool is_draft = strchr(entry->d_name, '.') != NULL;
        if (strncmp(entry->d_name, prefix, sizeof prefix - 1) != 0)
            continue;
        snprintf(path, sizeof path, "%s/%s", top, entry->d_name);
        if ((is_draft || !is_used) && strcmp(path, current) != 0 && is_old(path))
            remove_directory(path);
    }
}

static const struct {
    const char *path;
    unsigned mode, owner;
} directories[] = {
    {"usr", 0755, 0},
    {"etc", 0755, 0},
    {"home", 0755, 0},
    {"home/user", 0755, PLAN_USER},
    {"root", 0700, 0},
    {"tmp", 01777, 0},
    {"var", 0755, 0},
    {"var/tmp", 01777, 0},
    {"var/lib", 0755, 0},
    {"var/log", 0755, 0},
    {"var/cache", 0755, 0},
    {"var/mail", 0755, 0},
    {"var/spool", 0755, 0},
    {"run", 0755, 0},
    {"run/lock", 01777, 0},
    {"opt", 0755, 0},
    {"srv", 0755, 0},
    {"mnt", 0755, 0},
    {"media", 0755, 0},
    {"sys", 0555, 0},
    {"proc", 0555, 0},
    {"dev", 0755, 0},
    {"etc/alternatives", 0755, 0},
    {"etc/ssl", 0755, 0},
    {"etc/pam.d", 0755, 0},
    {"etc/ld.so.conf.d", 0755, 0},
    {"etc/security", 0755, 0},
    {"etc/default", 0755, 0},
    {"etc/skel", 0755, 0},
    {"etc/profile.d", 0755, 0},
};

/* The host's profile.d is not mounted: its scripts may refer to files that are missing
 * inside. */
static const char profile[] = "export PATH=${PATH:-/usr/local/bin:/usr/bin:/bin}\n"
                              "for script in /etc/profile.d/*.sh; do\n"
                              "    [ -r \"$script\" ] && . \"$script\"\n"
                              "done\n"
                              "unset script\n";

/* Directories of the host's /etc that programs in /usr need. */
static const char *const shown[] = {"etc/alternatives", "etc/ssl", "etc/pam.d",
                                    "etc/ld.so.conf.d", "etc/security"};

/* Single files of /etc; missing ones are left out. */
static const struct shared_file single[] = {
    {.path = "etc/ld.so.cache"},    {.path = "etc/ld.so.conf"},
    {.path = "etc/os-release"},     {.path = "etc/login.defs"},
    {.path = "etc/debian_version"}, {.path = "etc/adduser.conf"},
    {.path = "etc/deluser.conf"},   {.path = "etc/services"},
    {.path = "etc/protocols"},      {.path = "etc/inputrc"},
    {.path = "etc/default/useradd"}};

/* Files that programs inside may want to change, so they are copied. */
static const char *const copied[] = {"etc/nsswitch.conf", "etc/bash.bashrc",
                                     "etc/timezone"};

enum { SINGLE = sizeof single / sizeof *single };

static const char passwd[] =
    "root:x:0:0:root:/root:/bin/bash\n"
    "daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin\n"
    "user:x:1000:1000:user:/home/user:/bin/bash\n"
    "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n";
static const char group[] =
    "root:x:0:\ndaemon:x:1:\ntty:x:5:\nmail:x:8:\nutmp:x:43:\n"
    "shadow:x:42:\nusers:x:100:\nuser:x:1000:\nnogroup:x:65534:\n";
static const char shadow[] = "root:*:19000:0:99999:7:::\nuser:*:19000:0:99999:7:::\n";

/* In a root on disk, root inside may have moved the target or replaced it. */
static void show(struct root_plan *root_plan, const char *path, const char *source)
{
    root_plan_bind(root_plan, path, source,
                   root_plan->keeps_root ? PLAN_ON_DIRECTORY | PLAN_IF_IT_CAN : 0u);
}

static void add_usr(struct root_plan *root_plan)
{
    static const char *const names[] = {"bin", "sbin", "lib", "lib32", "lib64", "libx32"};
    char path[64], target[64];
    struct stat st;

    show(root_plan, "usr", "/usr");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "/%s", names[i]);
        if (lstat(path, &st) != 0)
            continue;
        if (S_ISLNK(st.st_mode)) {
            snprintf(target, sizeof target, "usr/%s", names[i]);
            root_plan_link(root_plan, names[i], target);
        } else {
            root_plan_directory(root_plan, names[i], 0755, 0);
            show(root_plan, names[i], path);
        }
    }
}

/* As links into one directory, so that each can be replaced. */
static void link_single(struct root_plan *root_plan, const struct shared_file *files,
                        const char *directory)
{
    char target[64];

    root_plan_directory(root_plan, "etc/.host", 0755, 0);
    show(root_plan, "etc/.host", directory);
    for (size_t i = 0; i < SINGLE; i++) {
        const char *path = files[i].path, *name = strrchr(path, '/') + 1;
        snprintf(target, sizeof target, "%s.host/%s",
                 name - path > (int)sizeof "etc" ? "../" : "", name);
        if (files[i].is_there)
            root_plan_link(root_plan, path, target);
    }
}

static void add_single(struct root_plan *root_plan)
{
    struct shared_file files[SINGLE];
    char directory[PATH_MAX];

    memcpy(files, single, sizeof files);
    if (root_plan->head.prepared && shared_open(files, SINGLE, directory))
        link_single(root_plan, files, directory);
    else
        for (size_t i = 0; i < SINGLE; i++)
            root_plan_copy(root_plan, files[i].path, 0644);
    for (size_t i = 0; i < sizeof copied / sizeof *copied; i++)
        root_plan_copy(root_plan, copied[i], 0644);
}

void root_plan_host_sweep(void)
{
    struct shared_file files[SINGLE];

    memcpy(files, single, sizeof files);
    shared_sweep(files, SINGLE);
}

static void add_etc(struct root_plan *root_plan, const char *hostname)
{
    char hosts[256], name[128];
    struct stat st;

    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++) {
        snprintf(name, sizeof name, "/%s", shown[i]);
        if (stat(name, &st) == 0 && S_ISDIR(st.st_mode))
            show(root_plan, shown[i], name);
    }
    add_single(root_plan);
    snprintf(hosts, sizeof hosts, "127.0.0.1 localhost %s\n::1 localhost\n", hostname);
    snprintf(name, sizeof name, "%s\n", hostname);
    root_plan_file(root_plan, "etc/passwd", 0644, passwd);
    root_plan_file(root_plan, "etc/group", 0644, group);
    root_plan_file(root_plan, "etc/shadow", 0640, shadow);
    root_plan_file(root_plan, "etc/gshadow", 0640, "");
    root_plan_file(root_plan, "etc/hosts", 0644, hosts);
    root_plan_file(root_plan, "etc/hostname", 0644, name);
    root_plan_file(root_plan, "etc/shells", 0644, "/bin/sh\n/bin/bash\n");
    root_plan_file(root_plan, "etc/profile", 0644, profile);
    if (!root_plan->head.own_network) {
        size_t len = 0;
        AUTO_FREE char *resolver = root_plan_resolver(&len);
        if (resolver)
            root_plan_bytes(root_plan, "etc/resolv.conf", 0644, resolver, len);
    }
    root_plan_link(root_plan, "etc/mtab", "/proc/mounts");
    root_plan_link(root_plan, "etc/localtime", "/usr/share/zoneinfo/Etc/UTC");
}

static void add_dev(struct root_plan *root_plan, uint64_t shm_bytes)
{
    static const struct {
        const char *name;
        unsigned major, minor;
    } nodes[] = {{"null", 1, 3},   {"zero", 1, 5},    {"full", 1, 7},
                 {"random", 1, 8}, {"urandom", 1, 9}, {"tty", 5, 0}};

    root_plan_tree(root_plan, "dev", 0755, shm_bytes, PLAN_WITH_DEVICES);
    root_plan_directory(root_plan, "pts", 0755, 0);
    root_plan_directory(root_plan, "shm", 01777, 0);
    for (size_t i = 0; i < sizeof nodes / sizeof *nodes; i++)
        root_plan_node(root_plan, nodes[i].name, 0666,
                       makedev(nodes[i].major, nodes[i].minor));
    root_plan_link(root_plan, "ptmx", "pts/ptmx");
    root_plan_link(root_plan, "fd", "/proc/self/fd");
    root_plan_link(root_plan, "stdin", "/proc/self/fd/0");
    root_plan_link(root_plan, "stdout", "/proc/self/fd/1");
    root_plan_link(root_plan, "stderr", "/proc/self/fd/2");
    root_plan_step(root_plan, PLAN_DEVPTS, "dev/pts");
}

static void add_proc(struct root_plan *root_plan)
{
    /* Files that reveal more about the host than its load.  iomem, ioports and modules
     * show no addresses to unprivileged users.  Triggers in /proc/pressure use kernel
     * memory that no cgroup accounts. */
    static const char *const masked[] = {
        "acpi",        "asound",     "bootconfig",    "cmdline",       "interrupts",
        "kallsyms",    "kcore",      "keys",          "kmsg",          "kpagecgroup",
        "kpagecount",  "kpageflags", "latency_stats", "pagetypeinfo",  "pressure",
        "sched_debug", "scsi",       "slabinfo",      "sysrq-trigger", "timer_list",
        "timer_stats", "vmallocinfo"};
    char path[64];

    root_plan_step(root_plan, PLAN_PROC, "proc");
    for (size_t i = 0; i < sizeof masked / sizeof *masked; i++) {
        snprintf(path, sizeof path, "proc/%s", masked[i]);
        root_plan_step(root_plan, PLAN_MASK, path);
    }
    /* Some of /proc/sys belongs to the sandbox's own namespaces and would be writable for
     * root inside.  Everything else outside /proc/PID belongs to host root, which is
     * unmapped. */
    root_plan_step(root_plan, PLAN_READ_ONLY, "proc/sys");
}

void root_plan_kernel(struct root_plan *root_plan, uint64_t shm_bytes)
{
    add_dev(root_plan, shm_bytes);
    add_proc(root_plan);
    /* Root inside may create directories in /, as everywhere else.  Host files are
     * protected by read-only mounts and unmapped owners. */
    root_plan_step(root_plan, PLAN_WRITABLE, "/");
}

void root_plan_host(struct root_plan *root_plan, uint64_t disk_bytes)
{
    if (root_plan->overlay.disk >= 0)
        root_plan_step(root_plan, PLAN_ROOT, "");
    else
        root_plan_tree(root_plan, "", 0755, disk_bytes, 0);
    for (size_t i = 0; i < sizeof directories / sizeof *directories; i++)
        root_plan_directory(root_plan, directories[i].path, directories[i].mode,
                            directories[i].owner);
    add_etc(root_plan, root_plan->head.hostname);
    add_usr(root_plan);
    root_plan_kernel(root_plan, disk_bytes);
}
