/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
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
#include "base/error.h"
#include "base/hash.h"
#include "base/join.h"
#include "native/make/root-plan.h"
#include "native/make/trust.h"
#include "native/record/runtime.h"
#include "native/record/users.h"
#include "relay/collect.h"
#include "sys/copy.h"
#include "sys/io.h"
#include "sys/path.h"
#include "sys/state-home.h"

/* --- Files that all sandboxes share --- */

/* Host files with the same content in every sandbox are copied once, into a directory of
 * the runtime directory whose name is a hash of their versions.  In it each file has the
 * last component of its own path. */
struct shared_file {
    const char *path; /* "/etc/services" */
    bool is_there;    /* a regular file, not too large, that everybody may read */
};

/* Single files of /etc; missing ones are left out. */
enum { SHARED_FILES = 12 };
static const struct shared_file shared_files[SHARED_FILES] = {
    {.path = "/etc/ld.so.cache"},     {.path = "/etc/ld.so.conf"},
    {.path = "/etc/os-release"},      {.path = "/etc/login.defs"},
    {.path = "/etc/debian_version"},  {.path = "/etc/adduser.conf"},
    {.path = "/etc/deluser.conf"},    {.path = "/etc/services"},
    {.path = "/etc/protocols"},       {.path = "/etc/inputrc"},
    {.path = "/etc/default/useradd"}, {.path = "/etc/matplotlibrc"}};

/* Shared files exist once, but copied ones are part of the plan of every sandbox. */
enum { SHARED_LEN_MAX = 16 << 20, COPIED_LEN_MAX = 256 << 10, RESOLVER_MAX = 64 << 10 };

enum { MAKE_S = 60, TRIES = 3 };

static const char prefix[] = "etc-";

static bool is_fit(const struct stat *st, off_t most)
{
    return S_ISREG(st->st_mode) && st->st_size <= most && st->st_mode & 0004;
}

static int open_host(const char *path, off_t most, size_t *ret_len)
{
    struct stat st;

    AUTO_FD fd = openat(AT_FDCWD, path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0 || !is_fit(&st, most))
        return -1;
    *ret_len = (size_t)st.st_size;
    return TAKE_FD(fd);
}

static uint64_t version_of(struct shared_file files[SHARED_FILES])
{
    uint64_t hash = HASH_STABLE;

    for (size_t i = 0; i < SHARED_FILES; i++) {
        uint64_t state[7] = {0};
        struct stat st;
        files[i].is_there = stat(files[i].path, &st) == 0 && is_fit(&st, SHARED_LEN_MAX);
        if (files[i].is_there) {
            state[0] = st.st_dev;
            state[1] = st.st_ino;
            state[2] = (uint64_t)st.st_size;
            state[3] = (uint64_t)st.st_mtim.tv_sec;
            state[4] = (uint64_t)st.st_mtim.tv_nsec;
            state[5] = (uint64_t)st.st_ctim.tv_sec;
            state[6] = (uint64_t)st.st_ctim.tv_nsec;
        }
        hash = hash_stable(hash, files[i].path, strlen(files[i].path) + 1);
        hash = hash_stable(hash, state, sizeof state);
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

/* The path of the shared directory, which contains a hash of the versions. */
static bool name_directory(struct shared_file files[SHARED_FILES], char top[PATH_MAX],
                           char ret_path[PATH_MAX])
{
    if (runtime_directory(top, NULL) != CAY_OK)
        return false;
    snprintf(ret_path, PATH_MAX, "%.4000s/%s%016llx", top, prefix,
             (unsigned long long)version_of(files));
    return true;
}

/* Created under a temporary name and renamed, so that readers only see it complete, and
 * only if no file has changed meanwhile. */
static bool make(const char *path, struct shared_file files[SHARED_FILES])
{
    char draft[PATH_MAX + 32], top[PATH_MAX], now[PATH_MAX];

    snprintf(draft, sizeof draft, "%s.%ld", path, syscall(SYS_gettid));
    if (state_home_make(AT_FDCWD, draft) != 0)
        return false;
    AUTO_FD dir = open(draft, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    bool is_full = dir >= 0 && fchmod(dir, 0755) == 0;
    for (size_t i = 0; is_full && i < SHARED_FILES; i++)
        is_full = !files[i].is_there || copy_file(dir, files[i].path);
    if (is_full && name_directory(files, top, now) && strcmp(path, now) == 0 &&
        rename(draft, path) == 0)
        return true;
    remove_directory(draft);
    return access(path, F_OK) == 0; /* another process was faster */
}

static bool shared_open(struct shared_file files[SHARED_FILES], char ret_path[PATH_MAX])
{
    char top[PATH_MAX];

    for (int tries = 0; tries < TRIES; tries++) {
        if (!name_directory(files, top, ret_path))
            return false;
        if (access(ret_path, F_OK) == 0 || make(ret_path, files))
            return true;
    }
    return false;
}

uint64_t root_plan_host_version(void)
{
    struct shared_file files[SHARED_FILES];

    memcpy(files, shared_files, sizeof files);
    return version_of(files);
}

/* The current version is kept: a creation may be about to use it. */
void root_plan_host_sweep(void)
{
    struct shared_file files[SHARED_FILES];
    char top[PATH_MAX], current[PATH_MAX], path[PATH_MAX + NAME_MAX + 2];
    bool is_used = false;
    struct timespec now;
    struct stat st;

    memcpy(files, shared_files, sizeof files);
    if (!name_directory(files, top, current))
        return;
    clock_gettime(CLOCK_REALTIME, &now);
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
        /* A time in the future: the clock was set back after the creation. */
        bool is_old =
            lstat(path, &st) == 0 && labs(now.tv_sec - st.st_mtim.tv_sec) > MAKE_S;
        if ((is_draft || !is_used) && strcmp(path, current) != 0 && is_old)
            remove_directory(path);
    }
}

/* --- Parts of a root --- */

static void add_directory(struct root_plan *root_plan, enum plan_kind kind,
                          const char *path, unsigned mode, unsigned owner)
{
    struct plan_step *step = root_plan_add(root_plan, kind, path);

    step->mode = mode;
    step->uid = step->gid = owner;
}

static void add_file(struct root_plan *root_plan, enum plan_kind kind, const char *path,
                     unsigned mode, const char *text)
{
    root_plan_add_data(root_plan, kind, path, text, strlen(text))->mode = mode;
}

static void add_link(struct root_plan *root_plan, const char *path, const char *target)
{
    (void)root_plan_add_data(root_plan, PLAN_LINK, path, target, strlen(target));
}

static void add_tree(struct root_plan *root_plan, const char *path, uint64_t size,
                     unsigned flags)
{
    struct plan_step *step = root_plan_add(root_plan, PLAN_TREE, path);

    step->mode = 0755;
    step->number = size;
    step->flags = flags;
}

/* A copy of an open file of the host, if it is there. */
static void copy_open(struct root_plan *root_plan, enum plan_kind kind, const char *path,
                      int fd, size_t len)
{
    char usual[2048];
    AUTO_FREE char *longer = fd >= 0 && len > sizeof usual ? malloc(len) : NULL;
    char *text = len > sizeof usual ? longer : usual;
    ssize_t got = fd >= 0 && text ? io_pread(fd, text, len, 0) : -1;

    if (got >= 0)
        root_plan_add_data(root_plan, kind, path, text, (size_t)got)->mode = 0644;
}

static void copy_host(struct root_plan *root_plan, const char *path)
{
    size_t len = 0;
    AUTO_FD fd = open_host(path, COPIED_LEN_MAX, &len);

    copy_open(root_plan, PLAN_FILE, path + 1, fd, len);
}

static void add_names(struct root_plan *root_plan, enum plan_kind kind)
{
    const char *hostname = root_plan->head.hostname;
    char text[256];
    struct stat st;

    snprintf(text, sizeof text, "127.0.0.1 localhost %s\n::1 localhost\n", hostname);
    add_file(root_plan, kind, "etc/hosts", 0644, text);
    snprintf(text, sizeof text, "%s\n", hostname);
    add_file(root_plan, kind, "etc/hostname", 0644, text);
    if (root_plan->head.is_relayed)
        add_file(root_plan, kind, "etc/resolv.conf", 0644,
                 "nameserver " COLLECT_NAMESERVER_ADDRESS "\n");
    if (root_plan->head.own_network)
        return;
    AUTO_FD fd = open("/etc/resolv.conf", O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
        st.st_size <= RESOLVER_MAX)
        copy_open(root_plan, kind, "etc/resolv.conf", fd, (size_t)st.st_size);
}

/* --- The template "host" --- */

/* Directories of the host's /etc that programs in /usr need. */
static const char *const shown[] = {"/etc/alternatives", "/etc/ssl", "/etc/pam.d",
                                    "/etc/ld.so.conf.d", "/etc/security"};

/* Files that programs inside may want to change, so they are copied. */
static const char *const copied[] = {"/etc/nsswitch.conf", "/etc/bash.bashrc",
                                     "/etc/timezone"};

static const char group[] =
    "root:x:0:\ndaemon:x:1:\ntty:x:5:\nmail:x:8:\nutmp:x:43:\n"
    "shadow:x:42:\nusers:x:100:\nuser:x:1000:\nnogroup:x:65534:\n";

/* In a root on disk, root inside may have moved the target or replaced it. */
static void show(struct root_plan *root_plan, const char *path, const char *source)
{
    root_plan_add_data(root_plan, PLAN_BIND, path, source, strlen(source))->flags =
        root_plan->keeps_root ? PLAN_ON_DIRECTORY | PLAN_IF_IT_CAN : 0u;
}

static void add_usr(struct root_plan *root_plan)
{
    char path[64], target[64];
    struct stat st;

    show(root_plan, "usr", "/usr");
    for (size_t i = 0; i < TEMPLATE_USR_LINKS; i++) {
        const char *name = template_usr_links[i];
        (void)JOIN(path, sizeof path, "/", name);
        if (lstat(path, &st) != 0)
            continue;
        if (S_ISLNK(st.st_mode)) {
            (void)JOIN(target, sizeof target, "usr/", name);
            add_link(root_plan, name, target);
        } else {
            add_directory(root_plan, PLAN_DIRECTORY, name, 0755, 0);
            show(root_plan, name, path);
        }
    }
}

/* As links into one directory, so that each can be replaced. */
static void link_shared(struct root_plan *root_plan, const struct shared_file *files,
                        const char *directory)
{
    char target[64];

    add_directory(root_plan, PLAN_DIRECTORY, "etc/.host", 0755, 0);
    show(root_plan, "etc/.host", directory);
    for (size_t i = 0; i < SHARED_FILES; i++) {
        const char *path = files[i].path, *name = last_part(path);
        (void)JOIN(target, sizeof target, name - path > (int)sizeof "/etc" ? "../" : "",
                   ".host/", name);
        if (files[i].is_there)
            add_link(root_plan, path + 1, target);
    }
}

static void add_shared(struct root_plan *root_plan)
{
    struct shared_file files[SHARED_FILES];
    char directory[PATH_MAX];

    memcpy(files, shared_files, sizeof files);
    if (root_plan->head.prepared && shared_open(files, directory))
        link_shared(root_plan, files, directory);
    else
        for (size_t i = 0; i < SHARED_FILES; i++)
            copy_host(root_plan, files[i].path);
    for (size_t i = 0; i < sizeof copied / sizeof *copied; i++)
        copy_host(root_plan, copied[i]);
}

/* The host's /etc/ssl, with one authority more. */
static void add_own_trust(struct root_plan *root_plan)
{
    add_directory(root_plan, root_plan->is_copy ? PLAN_NEED : PLAN_DIRECTORY,
                  "etc/ssl/certs", 0755, 0);
    copy_host(root_plan, "/etc/ssl/openssl.cnf");
    trust_plan(root_plan, -1, root_plan->authority);
}

static void add_etc(struct root_plan *root_plan)
{
    struct stat st;

    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++) {
        bool is_own = root_plan->authority && strcmp(shown[i], "/etc/ssl") == 0;
        add_directory(root_plan, PLAN_DIRECTORY, shown[i] + 1, 0755, 0);
        if (!is_own && stat(shown[i], &st) == 0 && S_ISDIR(st.st_mode))
            show(root_plan, shown[i] + 1, shown[i]);
    }
    if (root_plan->authority)
        add_own_trust(root_plan);
    add_directory(root_plan, PLAN_DIRECTORY, "etc/skel", 0755, 0);
    add_shared(root_plan);
    add_file(root_plan, PLAN_FILE, "etc/passwd", 0644,
             TEMPLATE_PASSWD_SYSTEM TEMPLATE_PASSWD_USERS);
    add_file(root_plan, PLAN_FILE, "etc/group", 0644, group);
    add_file(root_plan, PLAN_FILE, "etc/shadow", 0640, TEMPLATE_SHADOW);
    add_file(root_plan, PLAN_FILE, "etc/gshadow", 0640, "");
    add_file(root_plan, PLAN_FILE, "etc/shells", 0644, TEMPLATE_SHELLS);
    add_file(root_plan, PLAN_FILE, "etc/profile", 0644, template_profile);
    add_names(root_plan, root_plan->is_copy ? PLAN_REPLACE : PLAN_FILE);
    add_link(root_plan, "etc/mtab", "/proc/mounts");
    add_link(root_plan, "etc/localtime", "/usr/share/zoneinfo/Etc/UTC");
}

/* --- Common to all templates --- */

static void add_dev(struct root_plan *root_plan, uint64_t shm_bytes)
{
    static const struct {
        const char *name;
        unsigned major, minor;
    } nodes[] = {{"null", 1, 3},   {"zero", 1, 5},    {"full", 1, 7},
                 {"random", 1, 8}, {"urandom", 1, 9}, {"tty", 5, 0}};

    add_tree(root_plan, "dev", shm_bytes, PLAN_WITH_DEVICES);
    add_directory(root_plan, PLAN_DIRECTORY, "pts", 0755, 0);
    add_directory(root_plan, PLAN_DIRECTORY, "shm", 01777, 0);
    for (size_t i = 0; i < sizeof nodes / sizeof *nodes; i++) {
        struct plan_step *step = root_plan_add(root_plan, PLAN_NODE, nodes[i].name);
        step->mode = 0666;
        step->number = makedev(nodes[i].major, nodes[i].minor);
    }
    add_link(root_plan, "ptmx", "pts/ptmx");
    add_link(root_plan, "fd", "/proc/self/fd");
    add_link(root_plan, "stdin", "/proc/self/fd/0");
    add_link(root_plan, "stdout", "/proc/self/fd/1");
    add_link(root_plan, "stderr", "/proc/self/fd/2");
    (void)root_plan_add(root_plan, PLAN_DEVPTS, "dev/pts");
}

static void add_proc(struct root_plan *root_plan)
{
    /* Files that reveal more about the host than its load.  iomem, ioports and modules
     * show no addresses to unprivileged users.  Triggers in /proc/pressure use kernel
     * memory that no cgroup accounts. */
    static const char *const masked[] = {
        "proc/acpi",          "proc/asound",       "proc/bootconfig",
        "proc/cmdline",       "proc/interrupts",   "proc/kallsyms",
        "proc/kcore",         "proc/keys",         "proc/kmsg",
        "proc/kpagecgroup",   "proc/kpagecount",   "proc/kpageflags",
        "proc/latency_stats", "proc/pagetypeinfo", "proc/pressure",
        "proc/sched_debug",   "proc/scsi",         "proc/slabinfo",
        "proc/sysrq-trigger", "proc/timer_list",   "proc/timer_stats",
        "proc/vmallocinfo"};

    (void)root_plan_add(root_plan, PLAN_PROC, "proc");
    for (size_t i = 0; i < sizeof masked / sizeof *masked; i++)
        (void)root_plan_add(root_plan, PLAN_MASK, masked[i]);
    /* Some of /proc/sys belongs to the sandbox's own namespaces and would be writable for
     * root inside.  Everything else outside /proc/PID belongs to host root, which is
     * unmapped. */
    (void)root_plan_add(root_plan, PLAN_READ_ONLY, "proc/sys");
    (void)root_plan_add(root_plan, PLAN_BOOT_ID, "proc/sys/kernel/random/boot_id");
}

/* Devices, shared memory of at most `shm_bytes`, /proc, and landlock write access
 * wherever the mounts are writable. */
static void add_kernel(struct root_plan *root_plan, uint64_t shm_bytes)
{
    add_dev(root_plan, shm_bytes);
    add_proc(root_plan);
    /* Root inside may create directories in /, as everywhere else.  Host files are
     * protected by read-only mounts and unmapped owners. */
    (void)root_plan_add(root_plan, PLAN_WRITABLE, "/");
}

void root_plan_host(struct root_plan *root_plan, const struct template *template,
                    uint64_t disk_bytes)
{
    if (template->is_host) {
        root_plan->overlay.lower = template->root;
        root_plan->overlay.size = disk_bytes;
    }
    if (root_plan->overlay.disk >= 0 || root_plan->is_copy)
        (void)root_plan_add(root_plan, PLAN_ROOT, "");
    else
        add_tree(root_plan, "", disk_bytes, 0);
    for (size_t i = 0; i < TEMPLATE_DIRECTORIES; i++)
        add_directory(root_plan, PLAN_DIRECTORY, template_directories[i].path,
                      template_directories[i].mode, template_directories[i].owner);
    add_etc(root_plan);
    add_usr(root_plan);
    add_kernel(root_plan, disk_bytes);
}

/* --- Any other template --- */

/* These are mount points: a link there could redirect the mounts. */
static int check_paths(const struct template *template, struct cay_error *err)
{
    static const char *const places[] = {"dev", "proc", "sys", "etc"};
    struct stat st;

    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (fstatat(template_layer_with(template, places[i]), places[i], &st,
                    AT_SYMLINK_NOFOLLOW) == 0 &&
            !S_ISDIR(st.st_mode) && !(S_ISCHR(st.st_mode) && st.st_rdev == 0))
            return cay_fail(err, CAY_E_INVALID, 0, "sandbox.template", places[i],
                            "not a directory in this template",
                            "use a template in which dev, proc, sys and etc are "
                            "directories, not links");
    return CAY_OK;
}

/* A directory used as a template may not have a `user`. */
static int add_user(struct root_plan *root_plan, int root, struct cay_error *err)
{
    struct users users;
    int code = users_read(root, &users, err);

    if (code)
        return code;
    for (size_t i = 0; i < USERS_FILES; i++)
        if (users.files[i].text) {
            char path[32];
            snprintf(path, sizeof path, "etc/%s", users.files[i].name);
            add_file(root_plan, PLAN_REPLACE, path, users.files[i].mode,
                     users.files[i].text);
        }
    users_done(&users);
    add_directory(root_plan, PLAN_NEED, "home/user", 0755, PLAN_USER);
    return CAY_OK;
}

int root_plan_template(struct root_plan *root_plan, const struct template *template,
                       uint64_t disk_bytes, struct cay_error *err)
{
    static const struct {
        const char *path;
        unsigned mode;
    } needed[] = {{"dev", 0755},  {"proc", 0555}, {"sys", 0555}, {"etc", 0755},
                  {"tmp", 01777}, {"run", 0755},  {"var", 0755}, {"var/tmp", 01777},
                  {"root", 0700}, {"home", 0755}};

    int code = check_paths(template, err);
    if (code)
        return code;
    if (!root_plan->head.prepared && !*template->info.map)
        return cay_fail(err, CAY_E_UNSUPPORTED, 0, "sandbox.template",
                        template->info.shown.name,
                        "the template was created by root, and its files have other "
                        "owners than an ordinary user's",
                        "remove it and create it again as this user");
    root_plan->overlay.lower = template->root;
    root_plan->overlay.below = template->below;
    root_plan->overlay.below_count = template->below_count;
    root_plan->overlay.usr = template->usr;
    root_plan->overlay.usr_above = template->usr_above;
    root_plan->overlay.size = disk_bytes;
    if (!root_plan->head.prepared)
        root_plan_add_source(root_plan, PLAN_LOWER, template->root);
    for (size_t i = 0; !root_plan->head.prepared && i < template->below_count; i++)
        root_plan_add_source(root_plan, PLAN_LOWER, template->below[i]);
    root_plan_add(root_plan, PLAN_ROOT, "")->number = disk_bytes;
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        add_directory(root_plan, PLAN_NEED, needed[i].path, needed[i].mode, 0);
    add_names(root_plan, PLAN_REPLACE);
    if (root_plan->authority)
        trust_plan(root_plan, template->root, root_plan->authority);
    if (template->usr >= 0)
        root_plan_add_data(root_plan, PLAN_BIND, "usr", "/usr", strlen("/usr"))->flags =
            PLAN_WITH_WRITING | PLAN_WITH_LAYER;
    root_plan->head.has_sudo = template->usr >= 0;
    if (template->dir < 0 && !root_plan->inherited)
        code = add_user(root_plan, template->root, err);
    add_kernel(root_plan, disk_bytes);
    return code;
}
