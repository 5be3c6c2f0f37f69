/* SPDX-License-Identifier: Apache-2.0 */

/* The template "base": a system that root inside can change, with the host's programs.
 *
 * Its root is an overlay like that of any template.  The lower layer is created from the
 * host's /etc and package database when it is first needed, in the template store as
 * ".base-VERSION".  The version is a hash of its sources and of the boot id: files may be
 * lost in a power failure, so none is used after a reboot.  /usr is not copied: overlay.c
 * mounts the host's, with the layer "usr" above it. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/env.h"
#include "base/error.h"
#include "base/hash.h"
#include "files/walk.h"
#include "init/plan.h"
#include "native/record/idmap.h"
#include "native/record/state.h"
#include "native/template/template.h"
#include "sys/copy.h"
#include "sys/fs.h"
#include "sys/io.h"
#include "sys/path.h"
#include "sys/shift.h"

/* --- Contents --- */

/* Only files that every user of the host may read are copied, and none with credentials:
 * code inside is less trusted than any user of the host. */

/* cay-init, which is also the `sudo` of this template. */
extern const unsigned char cay_init[];
extern const uint64_t cay_init_size;

/* Settings of apt inside a sandbox without a network. */
#define BASE_APT_OFFLINE "/etc/apt-offline.conf"

enum {
    FORMAT = 4,            /* version of this layout */
    DEPTH_MAX = 16,        /* of trees */
    CHECKED_MAX = 1 << 20, /* bytes of a file; larger ones are left out */
    SAMPLE = 61            /* every 61st byte of cay-init is part of the version */
};

const struct template_directory template_directories[TEMPLATE_DIRECTORIES] = {
    {"usr", 0755, 0},
    {"etc", 0755, 0},
    {"etc/default", 0755, 0},
    {"home", 0755, 0},
    {"home/user", 0755, PLAN_USER},
    {"root", 0700, 0},
    {"etc/profile.d", 0755, 0},
    {"tmp", 01777, 0},
    {"run", 0755, 0},
    {"run/lock", 01777, 0},
    {"opt", 0755, 0},
    {"srv", 0755, 0},
    {"mnt", 0755, 0},
    {"media", 0755, 0},
    {"sys", 0555, 0},
    {"proc", 0555, 0},
    {"dev", 0755, 0},
    {"var", 0755, 0},
    {"var/tmp", 01777, 0},
    {"var/mail", 0755, 0},
    {"var/spool", 0755, 0},
    {"var/log", 0755, 0},
    {"var/cache", 0755, 0},
    {"var/lib", 0755, 0},
};

const char *const template_usr_links[TEMPLATE_USR_LINKS] = {"bin",   "sbin",  "lib",
                                                            "lib32", "lib64", "libx32"};

/* The host's profile.d is not mounted: its scripts may refer to files that are missing
 * inside. */
const char template_profile[] = "export PATH=${PATH:-/usr/local/bin:/usr/bin:/bin}\n"
                                "for script in /etc/profile.d/*.sh; do\n"
                                "    [ -r \"$script\" ] && . \"$script\"\n"
                                "done\n"
                                "unset script\n";

/* Of "base" alone. */
static const struct template_directory directories[] = {
    {"etc/xdg", 0755, 0},
    {"etc/xdg/pip", 0755, 0},
    {"etc/dpkg", 0755, 0},
    {"etc/dpkg/dpkg.cfg.d", 0755, 0},
    {"var/backups", 0755, 0},
    {"var/log/apt", 0755, 0},
    {"var/cache/apt", 0755, 0},
    {"var/cache/apt/archives", 0755, 0},
    {"var/cache/apt/archives/partial", 0700, 0},
    {"var/cache/debconf", 0755, 0},
    {"var/cache/ldconfig", 0700, 0},
    {"var/lib/misc", 0755, 0},
    {"var/lib/apt", 0755, 0},
    {"var/lib/apt/lists", 0755, 0},
    {"var/lib/apt/lists/partial", 0700, 0},
    {"var/lib/dpkg", 0755, 0},
    {"var/lib/dpkg/updates", 0755, 0},
    {"var/lib/dpkg/parts", 0755, 0},
};

/* Directories and files of the host.  The rest of /etc is not copied. */
static const char *const host_paths[] = {"etc/alternatives",
                                         "etc/apt",
                                         "etc/dpkg/origins",
                                         "etc/ld.so.conf.d",
                                         "etc/pam.d",
                                         "etc/security",
                                         "etc/ssl",
                                         "etc/skel",
                                         "var/lib/dpkg/alternatives",
                                         "var/lib/dpkg/info",
                                         "var/lib/dpkg/triggers",
                                         "etc/adduser.conf",
                                         "etc/bash.bashrc",
                                         "etc/ca-certificates.conf",
                                         "etc/debconf.conf",
                                         "etc/debian_version",
                                         "etc/default/useradd",
                                         "etc/deluser.conf",
                                         "etc/dpkg/dpkg.cfg",
                                         "etc/inputrc",
                                         "etc/ld.so.cache",
                                         "etc/ld.so.conf",
                                         "etc/login.defs",
                                         "etc/lsb-release",
                                         "etc/matplotlibrc",
                                         "etc/npmrc",
                                         "etc/nsswitch.conf",
                                         "etc/os-release",
                                         "etc/pip.conf",
                                         "etc/protocols",
                                         "etc/services",
                                         "etc/timezone",
                                         "var/lib/dpkg/arch",
                                         "var/lib/dpkg/available",
                                         "var/lib/dpkg/diversions",
                                         "var/lib/dpkg/status"};

/* Also part of the version: a directory changes with its entries. */
static const char *const watched[] = {"etc/ssl/certs", "usr/bin/python",
                                      "usr/bin/python3"};

/* From Debian's base-passwd; packages expect these. */
static const char passwd[] = TEMPLATE_PASSWD_SYSTEM
    "bin:x:2:2:bin:/bin:/usr/sbin/nologin\n"
    "sys:x:3:3:sys:/dev:/usr/sbin/nologin\n"
    "games:x:5:60:games:/usr/games:/usr/sbin/nologin\n"
    "man:x:6:12:man:/var/cache/man:/usr/sbin/nologin\n"
    "lp:x:7:7:lp:/var/spool/lpd:/usr/sbin/nologin\n"
    "mail:x:8:8:mail:/var/mail:/usr/sbin/nologin\n"
    "news:x:9:9:news:/var/spool/news:/usr/sbin/nologin\n"
    "proxy:x:13:13:proxy:/bin:/usr/sbin/nologin\n"
    "www-data:x:33:33:www-data:/var/www:/usr/sbin/nologin\n"
    "backup:x:34:34:backup:/var/backups:/usr/sbin/nologin\n"
    "list:x:38:38:list:/var/list:/usr/sbin/nologin\n"
    "irc:x:39:39:irc:/run/ircd:/usr/sbin/nologin\n"
    "_apt:x:42:65534::/nonexistent:/usr/sbin/nologin\n" TEMPLATE_PASSWD_USERS;
static const char group[] =
    "root:x:0:\ndaemon:x:1:\nbin:x:2:\nsys:x:3:\nadm:x:4:\ntty:x:5:\ndisk:x:6:\n"
    "lp:x:7:\nmail:x:8:\nnews:x:9:\nuucp:x:10:\nman:x:12:\nproxy:x:13:\nkmem:x:15:\n"
    "dialout:x:20:\nfax:x:21:\nvoice:x:22:\ncdrom:x:24:\nfloppy:x:25:\ntape:x:26:\n"
    "sudo:x:27:user\naudio:x:29:\ndip:x:30:\nwww-data:x:33:\nbackup:x:34:\n"
    "operator:x:37:\nlist:x:38:\nirc:x:39:\nsrc:x:40:\nshadow:x:42:\nutmp:x:43:\n"
    "video:x:44:\nsasl:x:45:\nplugdev:x:46:\nstaff:x:50:\ngames:x:60:\nusers:x:100:\n"
    "user:x:1000:\nnogroup:x:65534:\n";

/* Upgraded packages may have configuration files that are missing inside: dpkg installs
 * those without a prompt. */
static const char dpkg_settings[] = "force-confmiss\nforce-confdef\nforce-confold\n";

static const struct {
    const char *path, *text;
    unsigned mode;
} new_files[] = {
    {"etc/passwd", passwd, 0644},
    {"etc/group", group, 0644},
    {"etc/shadow", TEMPLATE_SHADOW, 0640},
    {"etc/gshadow", "", 0640},
    {"etc/shells", TEMPLATE_SHELLS, 0644},
    {"etc/profile", template_profile, 0644},
    /* Beside /etc/pip.conf, which is the host's. */
    {"etc/xdg/pip/pip.conf", "[global]\nbreak-system-packages = true\n", 0644},
    {&BASE_APT_OFFLINE[1], "Acquire::Retries \"0\";\n", 0644},
    {"etc/dpkg/dpkg.cfg.d/cay", dpkg_settings, 0644},
    /* The host's file names groups that do not exist inside, on which dpkg fails. */
    {"var/lib/dpkg/statoverride", "", 0644},
};

/* --- The version --- */

static uint64_t mix_state(uint64_t hash, const char *path)
{
    uint64_t state[6] = {0};
    char name[PATH_MAX + 1];
    struct stat st;

    snprintf(name, sizeof name, "/%s", path);
    if (stat(name, &st) == 0) {
        state[0] = st.st_dev;
        state[1] = st.st_ino;
        state[2] = (uint64_t)st.st_size;
        state[3] = st.st_mode;
        state[4] = (uint64_t)st.st_mtim.tv_sec;
        state[5] = (uint64_t)st.st_mtim.tv_nsec;
    }
    return hash_stable(hash, state, sizeof state);
}

static uint64_t mix_states(uint64_t hash, const char *const *paths, size_t count)
{
    for (size_t i = 0; i < count; i++)
        hash = mix_state(hash, paths[i]);
    return hash;
}

/* Includes the entries, since a file's mode may change in place. */
static uint64_t mix_tree(uint64_t hash, const char *path, unsigned depth)
{
    char name[PATH_MAX];

    hash = mix_state(hash, path);
    snprintf(name, sizeof name, "/%s", path);
    AUTO_DIR list = depth < DEPTH_MAX ? opendir(name) : NULL;
    for (struct dirent *entry; (entry = path_next(list));)
        if ((size_t)snprintf(name, sizeof name, "%s/%s", path, entry->d_name) <
            sizeof name)
            hash = entry->d_type == DT_DIR ? mix_tree(hash, name, depth + 1)
                                           : mix_state(hash, name);
    return hash;
}

static uint64_t base_version(void)
{
    static const char version[] = CAY_VERSION;
    uint64_t hash = HASH_STABLE + FORMAT;
    char boot[64];

    (void)io_read_text(AT_FDCWD, "/proc/sys/kernel/random/boot_id", boot, sizeof boot);
    hash = hash_stable(hash, boot, strlen(boot));
    hash = hash_stable(hash, version, sizeof version);
    hash = hash_stable(hash, &cay_init_size, sizeof cay_init_size);
    for (uint64_t i = 0; i < cay_init_size; i += SAMPLE)
        hash = hash_stable(hash, cay_init + i, 1);
    hash = mix_states(hash, host_paths, sizeof host_paths / sizeof *host_paths);
    hash = mix_tree(hash, "etc/apt", 0);
    hash = mix_tree(hash, "etc/skel", 0);
    return mix_states(hash, watched, sizeof watched / sizeof *watched);
}

/* --- Copies of host files --- */

/* Where package clients keep credentials. */
static bool is_settings(const char *top)
{
    return strcmp(top, "etc/apt") == 0 || strcmp(top, "etc/skel") == 0 ||
           strcmp(top, "etc/pip.conf") == 0 || strcmp(top, "etc/npmrc") == 0;
}

static bool is_keyring(const char *name)
{
    const char *end = strrchr(name, '.');

    return end && (strcmp(end, ".gpg") == 0 || strcmp(end, ".asc") == 0 ||
                   strcmp(end, ".pgp") == 0);
}

static bool has_words(const char *text, const char *const *words)
{
    for (; *words; words++)
        if (strcasestr(text, *words))
            return true;
    return false;
}

/* Whether a URL in it has a user name, or it contains words of keys, passwords or tokens.
 * PAM's own files are full of "password"; in keyrings and certificates such a word is
 * accidental. */
static bool has_credentials(const char *text, const char *name, const char *top)
{
    static const char *const always[] = {"private key", "_auth", NULL};
    static const char *const given[] = {"password=", "passwd=", NULL};
    static const char *const mentioned[] = {"pass", "token", "secret", NULL};

    if (has_words(text, always))
        return true;
    for (const char *at = text; (at = strstr(at, "://"));) {
        at += 3;
        if (at[strcspn(at, "@/ \t\r\n\"")] == '@')
            return true;
    }
    if (is_keyring(name) || strcmp(top, "etc/ssl") == 0)
        return false;
    return has_words(text, is_settings(top) ? mentioned : given);
}

static bool may_be_shown(int fd, const struct stat *st, const char *name, const char *top)
{
    if (st->st_size > CHECKED_MAX)
        return false;
    AUTO_FREE char *text = malloc((size_t)st->st_size + 1);
    ssize_t len = text ? io_pread(fd, text, (size_t)st->st_size, 0) : -1;
    if (len < 0)
        return false;
    /* Files that cannot be checked as text are left out, unless their kind is known. */
    if (memchr(text, '\0', (size_t)len) && !is_keyring(name) &&
        strcmp(top, "etc/ssl") != 0 && strcmp(top, "etc/ld.so.cache") != 0)
        return false;
    for (ssize_t i = 0; i < len; i++)
        if (!text[i])
            text[i] = '\n'; /* the text after a NUL is checked too */
    text[len] = '\0';
    return !has_credentials(text, name, top);
}

static int copy_file(int from, int to, const char *name, const char *top)
{
    struct stat st;
    uint64_t copied;
    AUTO_FD source = openat(from, name, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);

    if (source < 0 || fstat(source, &st) != 0 || !S_ISREG(st.st_mode) ||
        !(st.st_mode & S_IROTH))
        return 0;
    if (strncmp(top, "var/", 4) != 0 && !may_be_shown(source, &st, name, top))
        return 0;
    /* The package database is large, and its files are replaced, never changed: hard
     * links are as good as copies. */
    if (strncmp(top, "var/lib/dpkg/", 13) == 0 && st.st_nlink > 0 &&
        linkat(from, name, to, name, 0) == 0)
        return 0;
    AUTO_FD copy = openat(to, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (copy < 0 || fchmod(copy, st.st_mode & 0755) != 0)
        return -errno;
    return copy_bytes(source, copy, UINT64_MAX, &copied);
}

static int copy_link(int from, int to, const char *name)
{
    char target[PATH_MAX];
    ssize_t len = readlinkat(from, name, target, sizeof target - 1);

    if (len < 0)
        return 0;
    target[len] = '\0';
    return symlinkat(target, to, name) == 0 ? 0 : -errno;
}

static int copy_tree(int from, int to, const char *top, unsigned depth);

/* apt's auth.conf has passwords, whatever its mode. */
static int copy_entry(int from, int to, const char *name, const char *top, unsigned depth)
{
    struct stat st;

    if (strncmp(name, "auth.conf", 9) == 0 || strcmp(name, "lock") == 0 ||
        fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return 0;
    if (S_ISLNK(st.st_mode))
        return copy_link(from, to, name);
    if (S_ISREG(st.st_mode))
        return copy_file(from, to, name, top);
    if (!S_ISDIR(st.st_mode) || (st.st_mode & 0005) != 0005 || depth == DEPTH_MAX)
        return 0;
    AUTO_FD source = path_open(from, name, O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
    if (source < 0)
        return 0;
    if (mkdirat(to, name, 0755) != 0 && errno != EEXIST)
        return -errno;
    AUTO_FD copy = path_open(to, name, O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
    if (copy < 0 || fchmod(copy, 0755) != 0)
        return copy < 0 ? TAKE_FD(copy) : -errno;
    return copy_tree(source, copy, top, depth + 1);
}

static int copy_tree(int from, int to, const char *top, unsigned depth)
{
    AUTO_DIR list = path_list(from);
    int error = 0;

    for (struct dirent *entry; !error && (entry = path_next(list));)
        error = copy_entry(from, to, entry->d_name, top, depth);
    return error;
}

/* Copies a path of the host, "etc/apt", below `root`. */
static int copy_path(int root, const char *path)
{
    char parent[64];
    const char *name = strrchr(path, '/') + 1;

    snprintf(parent, sizeof parent, "/%.*s", (int)(name - path - 1), path);
    AUTO_FD from = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    AUTO_FD to = path_open(root, parent + 1, O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
    if (from < 0)
        return 0;
    return to < 0 ? TAKE_FD(to) : copy_entry(from, to, name, path, 0);
}

/* --- New files --- */

static int put_file(int dir, const char *path, unsigned mode, const void *data,
                    size_t len)
{
    AUTO_FD fd = openat(dir, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    if (fd < 0 || fchmod(fd, mode) != 0)
        return -errno;
    return io_write(fd, data, len);
}

/* Independent of the caller's umask. */
static int make_directory(int dir, const char *path)
{
    return mkdirat(dir, path, 0755) == 0 && fchmodat(dir, path, 0755, 0) == 0 ? 0
                                                                              : -errno;
}

static int put_directories(int root, const struct template_directory *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (mkdirat(root, list[i].path, 0755) != 0 ||
            fchmodat(root, list[i].path, list[i].mode, 0) != 0 ||
            (list[i].owner &&
             fchownat(root, list[i].path, list[i].owner, list[i].owner, 0) != 0))
            return -errno;
    return 0;
}

static int put_link(int dir, const char *path, const char *target)
{
    return symlinkat(target, dir, path) == 0 ? 0 : -errno;
}

static int put_links(int root)
{
    char path[16], target[16];
    struct stat st;
    int error = put_link(root, "etc/mtab", "/proc/mounts");

    if (!error)
        error = put_link(root, "etc/localtime", "/usr/share/zoneinfo/Etc/UTC");
    if (!error)
        error = put_link(root, "var/run", "/run");
    for (size_t i = 0; !error && i < TEMPLATE_USR_LINKS; i++) {
        const char *name = template_usr_links[i];
        snprintf(path, sizeof path, "/%s", name);
        snprintf(target, sizeof target, "usr/%s", name);
        if (lstat(path, &st) == 0)
            error = put_link(root, name, target);
    }
    return error;
}

/* The files of a new user's home; existing ones are the host's choice. */
static int fill_home(int root)
{
    static const char *const names[] = {".bashrc", ".profile", ".bash_logout"};
    AUTO_FD from = path_open(root, "etc/skel", O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
    AUTO_FD to = path_open(root, "home/user", O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
    int error = 0;

    for (size_t i = 0; from >= 0 && to >= 0 && !error && i < 3; i++) {
        error = copy_file(from, to, names[i], "etc/skel");
        if (!error &&
            fchownat(to, names[i], PLAN_USER, PLAN_USER, AT_SYMLINK_NOFOLLOW) != 0 &&
            errno != ENOENT)
            error = -errno;
    }
    return error;
}

/* Installing a package starts no service: there is no init system. */
static const char policy[] = "#!/bin/sh\nexit 101\n";

static int fill_usr(int usr)
{
    int error = make_directory(usr, "bin");

    if (!error)
        error = make_directory(usr, "sbin");
    if (!error)
        error = put_file(usr, "bin/sudo", 0755, cay_init, cay_init_size);
    if (!error)
        error = put_file(usr, "sbin/policy-rc.d", 0755, policy, sizeof policy - 1);
    if (!error && access("/usr/bin/python3", X_OK) == 0 &&
        access("/usr/bin/python", F_OK) != 0)
        error = put_link(usr, "bin/python", "python3");
    return error;
}

static const char op[] = "template.base";
static const char prefix[] = ".base-";

enum { TRIES = 3 };

static void name_version(char ret_name[NAME_MAX + 1])
{
    snprintf(ret_name, NAME_MAX + 1, "%s%016llx", prefix,
             (unsigned long long)base_version());
}

/* --- Creation --- */

static int fill(int draft)
{
    int error = make_directory(draft, "root");

    if (!error)
        error = make_directory(draft, "usr");
    AUTO_FD root = error ? -1 : path_open(draft, "root", O_RDONLY, 0, PATH_PLAIN);
    AUTO_FD usr = error ? -1 : path_open(draft, "usr", O_RDONLY, 0, PATH_PLAIN);
    if (!error)
        error = put_directories(root, template_directories, TEMPLATE_DIRECTORIES);
    if (!error)
        error =
            put_directories(root, directories, sizeof directories / sizeof *directories);
    for (size_t i = 0; !error && i < sizeof new_files / sizeof *new_files; i++)
        error = put_file(root, new_files[i].path, new_files[i].mode, new_files[i].text,
                         strlen(new_files[i].text));
    for (size_t i = 0; !error && i < sizeof host_paths / sizeof *host_paths; i++)
        error = copy_path(root, host_paths[i]);
    if (!error)
        error = put_links(root);
    if (!error)
        error = fill_home(root);
    return error ? error : fill_usr(usr);
}

/* 1: it exists now; 0: this machine does not support it; or a code.  One process at a
 * time creates it, and the others wait for it. */
static int make(int store, const char *name, struct cay_error *err)
{
    char draft_name[NAME_MAX + 1];
    struct stat st;
    AUTO_FD turn = path_open(store, ".base", O_RDWR | O_CREAT, 0600, PATH_PLAIN);

    if (turn < 0 || flock(turn, LOCK_EX) != 0)
        return cay_fail_errno(err, turn < 0 ? -turn : errno, op, "base");
    if (fstatat(store, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
        return 1;
    AUTO_FD draft = state_draft(store, ".new-", draft_name, err);
    if (draft < 0)
        return TAKE_FD(draft);
    /* Whether the file systems support idmapped mounts; only a try shows it. */
    AUTO_FD map = shift_map("0 1879048192 65536\n", "0 1879048192 65536\n");
    AUTO_FD usr = open("/usr", O_PATH | O_DIRECTORY | O_CLOEXEC);
    AUTO_FD own_view = map < 0 ? -1 : shift_mount(draft, map, MOUNT_ATTR_RDONLY);
    AUTO_FD usr_view = map < 0 || usr < 0 ? -1 : shift_mount(usr, map, MOUNT_ATTR_RDONLY);
    bool is_fit = own_view >= 0 && usr_view >= 0;
    int error = is_fit ? fill(draft) : 0;
    if (is_fit && !error && renameat(store, draft_name, store, name) != 0)
        error = -errno;
    if (is_fit && !error)
        return 1;
    (void)tree_remove(&fs_direct, op, store, draft_name, draft_name, NULL);
    return error ? cay_fail_errno(err, -error, op, "base") : 0;
}

/* --- Use --- */

/* 0 or a negative errno: -ENOENT if it is missing, or was removed meanwhile. */
static int open_version(int store, const char *name, struct template *template)
{
    struct stat st;
    AUTO_FD dir = path_open(store, name, O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);

    if (dir < 0)
        return TAKE_FD(dir);
    if (flock(dir, LOCK_SH) != 0)
        return -errno;
    AUTO_FD root = path_open(dir, "root", O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
    AUTO_FD usr = path_open(dir, "usr", O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
    if (root < 0 || usr < 0 || fstat(root, &st) != 0)
        return -ENOENT;
    template->dev = st.st_dev;
    template->ino = st.st_ino;
    template->dir = TAKE_FD(dir);
    template->root = TAKE_FD(root);
    template->usr = TAKE_FD(usr);
    return 0;
}

static int open_or_make(int store, struct template *template, struct cay_error *err)
{
    char name[NAME_MAX + 1];
    int error = -ENOENT;

    for (int tries = 0; error == -ENOENT && tries < TRIES; tries++) {
        name_version(name);
        error = open_version(store, name, template);
        int made = error == -ENOENT ? make(store, name, err) : 1;
        if (made <= 0)
            return made;
        if (error == -ENOENT)
            error = open_version(store, name, template);
    }
    return error ? cay_fail_errno(err, -error, op, "base") : CAY_OK;
}

/* For every command.  Without a network, retries would only take time. */
int template_base_env(bool is_offline, struct template *template, struct cay_error *err)
{
    static const struct {
        const char *text;
        bool is_of_root, is_offline;
    } all[] = {
        {"PATH=/home/user/.local/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:"
         "/sbin:/bin",
         true, false},
        {"PIP_BREAK_SYSTEM_PACKAGES=1", false, false},
        {"PIP_RETRIES=0", false, true},
        {"UV_HTTP_RETRIES=0", false, true},
        {"npm_config_fetch_retries=0", false, true},
        {"APT_CONFIG=" BASE_APT_OFFLINE, true, true},
    };
    enum { ALL = sizeof all / sizeof *all };
    size_t used = env_count((const char *const *)template->info.env);
    char **env = calloc(used + ALL + 1, sizeof *env);

    if (!env)
        return cay_fail_memory(err, op);
    if (used)
        memcpy(env, template->info.env, used * sizeof *env);
    free(template->info.env);
    template->info.env = env;
    for (size_t i = 0; i < ALL; i++) {
        if ((all[i].is_of_root && template->root < 0) ||
            (all[i].is_offline && !is_offline))
            continue;
        env[used] = strdup(all[i].text);
        if (!env[used++])
            return cay_fail_memory(err, op);
    }
    return CAY_OK;
}

int template_base_open(bool is_offline, struct template *ret_template,
                       struct cay_error *err)
{
    struct stat st;
    int code = CAY_OK;

    *ret_template = (struct template)TEMPLATE_NONE;
    cay_copy_text(ret_template->info.shown.name, sizeof ret_template->info.shown.name,
                  "base");
    /* All programs must be in /usr. */
    if (idmap_is_root() && lstat("/bin", &st) == 0 && S_ISLNK(st.st_mode)) {
        AUTO_FD store = state_open("templates", true, err);
        code = store < 0 ? store : open_or_make(store, ret_template, err);
    }
    return code ? code : template_base_env(is_offline, ret_template, err);
}

/* A sandbox of a snapshot above "base" uses a version that its record does not name. */
static bool has_snapshots(int store)
{
    AUTO_DIR list = path_list(store);
    bool found = false;

    for (struct dirent *entry; !found && (entry = path_next(list));) {
        struct template_info info;
        AUTO_FD dir =
            path_open(store, entry->d_name, O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
        if (entry->d_name[0] == '.' || dir < 0 ||
            template_info_load(dir, &info, NULL) != CAY_OK)
            continue;
        found = strcmp(info.base, "base") == 0;
        template_info_done(&info);
    }
    return found;
}

size_t template_base_sweep(int store)
{
    AUTO_DIR list = path_list(store);
    char current[NAME_MAX + 1];
    size_t count = 0;

    name_version(current);
    for (struct dirent *entry; (entry = path_next(list));) {
        const char *name = entry->d_name;
        if (strncmp(name, prefix, sizeof prefix - 1) != 0 || strcmp(name, current) == 0)
            continue;
        AUTO_FD dir = path_open(store, name, O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
        if (dir >= 0 && template_check_unused(dir, op, name, NULL) == CAY_OK &&
            !has_snapshots(store))
            count += state_remove(store, name, op, NULL) == CAY_OK;
    }
    return count;
}
