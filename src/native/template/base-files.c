/* SPDX-License-Identifier: Apache-2.0 */

/* Only what every user of the host may read is taken, and no file with credentials in it:
 * code inside is trusted less than any user of the host. */
#include "native/template/base-files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "init/plan.h"
#include "sys/copy.h"
#include "sys/io.h"
#include "sys/path.h"

/* cay-init, which is also the `sudo` of this template. */
extern const unsigned char cay_init[];
extern const uint64_t cay_init_size;

enum {
    FORMAT = 3,            /* of what is made here */
    DEPTH_MAX = 16,        /* of trees */
    CHECKED_MAX = 1 << 20, /* bytes of a file; what is larger is left out */
    SAMPLE = 61            /* every so many bytes of cay-init make the version */
};

static const struct {
    const char *path;
    unsigned mode, owner;
} directories[] = {
    {"usr", 0755, 0},
    {"etc", 0755, 0},
    {"etc/xdg", 0755, 0},
    {"etc/xdg/pip", 0755, 0},
    {"etc/default", 0755, 0},
    {"etc/dpkg", 0755, 0},
    {"etc/dpkg/dpkg.cfg.d", 0755, 0},
    {"etc/profile.d", 0755, 0},
    {"home", 0755, 0},
    {"home/user", 0755, PLAN_USER},
    {"root", 0700, 0},
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
    {"var/backups", 0755, 0},
    {"var/mail", 0755, 0},
    {"var/spool", 0755, 0},
    {"var/log", 0755, 0},
    {"var/log/apt", 0755, 0},
    {"var/cache", 0755, 0},
    {"var/cache/apt", 0755, 0},
    {"var/cache/apt/archives", 0755, 0},
    {"var/cache/apt/archives/partial", 0700, 0},
    {"var/cache/debconf", 0755, 0},
    {"var/cache/ldconfig", 0700, 0},
    {"var/lib", 0755, 0},
    {"var/lib/misc", 0755, 0},
    {"var/lib/apt", 0755, 0},
    {"var/lib/apt/lists", 0755, 0},
    {"var/lib/apt/lists/partial", 0700, 0},
    {"var/lib/dpkg", 0755, 0},
    {"var/lib/dpkg/updates", 0755, 0},
    {"var/lib/dpkg/parts", 0755, 0},
};

/* Of the host.  The rest of /etc stays outside. */
static const char *const trees[] = {"etc/alternatives",
                                    "etc/apt",
                                    "etc/dpkg/origins",
                                    "etc/ld.so.conf.d",
                                    "etc/pam.d",
                                    "etc/security",
                                    "etc/ssl",
                                    "etc/skel",
                                    "var/lib/dpkg/alternatives",
                                    "var/lib/dpkg/info",
                                    "var/lib/dpkg/triggers"};

static const char *const files[] = {"etc/adduser.conf",
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

/* Of which the version is made besides: directories change with what is in them. */
static const char *const watched[] = {"etc/ssl/certs", "usr/bin/python",
                                      "usr/bin/python3"};

/* Of Debian's base-passwd; packages expect these. */
static const char passwd[] =
    "root:x:0:0:root:/root:/bin/bash\n"
    "daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin\n"
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
    "_apt:x:42:65534::/nonexistent:/usr/sbin/nologin\n"
    "user:x:1000:1000:user:/home/user:/bin/bash\n"
    "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n";
static const char group[] =
    "root:x:0:\ndaemon:x:1:\nbin:x:2:\nsys:x:3:\nadm:x:4:\ntty:x:5:\ndisk:x:6:\n"
    "lp:x:7:\nmail:x:8:\nnews:x:9:\nuucp:x:10:\nman:x:12:\nproxy:x:13:\nkmem:x:15:\n"
    "dialout:x:20:\nfax:x:21:\nvoice:x:22:\ncdrom:x:24:\nfloppy:x:25:\ntape:x:26:\n"
    "sudo:x:27:user\naudio:x:29:\ndip:x:30:\nwww-data:x:33:\nbackup:x:34:\n"
    "operator:x:37:\nlist:x:38:\nirc:x:39:\nsrc:x:40:\nshadow:x:42:\nutmp:x:43:\n"
    "video:x:44:\nsasl:x:45:\nplugdev:x:46:\nstaff:x:50:\ngames:x:60:\nusers:x:100:\n"
    "user:x:1000:\nnogroup:x:65534:\n";

/* Packages that are upgraded may have configuration files that are not inside: those are
 * made, and nothing is asked. */
static const char dpkg_settings[] = "force-confmiss\nforce-confdef\nforce-confold\n";

static const char profile[] = "export PATH=${PATH:-/usr/local/bin:/usr/bin:/bin}\n"
                              "for i in /etc/profile.d/*.sh; do\n"
                              "  if [ -r \"$i\" ]; then . \"$i\"; fi\n"
                              "done\n"
                              "unset i\n";

static const struct {
    const char *path, *text;
    unsigned mode;
} made[] = {
    {"etc/passwd", passwd, 0644},
    {"etc/group", group, 0644},
    {"etc/shadow", "root:*:19000:0:99999:7:::\nuser:*:19000:0:99999:7:::\n", 0640},
    {"etc/gshadow", "", 0640},
    {"etc/shells", "/bin/sh\n/bin/bash\n", 0644},
    {"etc/profile", profile, 0644},
    /* Beside /etc/pip.conf, which is the host's. */
    {"etc/xdg/pip/pip.conf", "[global]\nbreak-system-packages = true\n", 0644},
    {&BASE_APT_OFFLINE[1], "Acquire::Retries \"0\";\n", 0644},
    {"etc/dpkg/dpkg.cfg.d/cay", dpkg_settings, 0644},
    /* The host's names groups that are not inside, at which dpkg gives up. */
    {"var/lib/dpkg/statoverride", "", 0644},
};

/* --- The version --- */

/* FNV-1a, which is the same in every process. */
static uint64_t mix(uint64_t hash, const void *data, size_t len)
{
    const unsigned char *bytes = data;

    for (size_t i = 0; i < len; i++)
        hash = (hash ^ bytes[i]) * UINT64_C(0x100000001B3);
    return hash;
}

static uint64_t mix_state(uint64_t hash, const char *path)
{
    uint64_t facts[6] = {0};
    char name[PATH_MAX + 1];
    struct stat st;

    snprintf(name, sizeof name, "/%s", path);
    if (stat(name, &st) == 0) {
        facts[0] = st.st_dev;
        facts[1] = st.st_ino;
        facts[2] = (uint64_t)st.st_size;
        facts[3] = st.st_mode;
        facts[4] = (uint64_t)st.st_mtim.tv_sec;
        facts[5] = (uint64_t)st.st_mtim.tv_nsec;
    }
    return mix(hash, facts, sizeof facts);
}

static uint64_t mix_states(uint64_t hash, const char *const *paths, size_t count)
{
    for (size_t i = 0; i < count; i++)
        hash = mix_state(hash, paths[i]);
    return hash;
}

/* And of what is in it: a file may be closed to others where it is. */
static uint64_t mix_tree(uint64_t hash, const char *path, unsigned depth)
{
    char name[PATH_MAX];
    DIR *list;

    hash = mix_state(hash, path);
    snprintf(name, sizeof name, "/%s", path);
    list = depth < DEPTH_MAX ? opendir(name) : NULL;
    for (struct dirent *entry; list && (entry = readdir(list));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
            (size_t)snprintf(name, sizeof name, "%s/%s", path, entry->d_name) <
                sizeof name)
            hash = entry->d_type == DT_DIR ? mix_tree(hash, name, depth + 1)
                                           : mix_state(hash, name);
    if (list)
        closedir(list);
    return hash;
}

uint64_t base_version(void)
{
    static const char version[] = CAY_VERSION;
    uint64_t hash = UINT64_C(0xCBF29CE484222325) + FORMAT;
    char boot[64];
    AUTO_FD fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t len = fd < 0 ? 0 : read(fd, boot, sizeof boot);

    hash = mix(hash, boot, len > 0 ? (size_t)len : 0);
    hash = mix(hash, version, sizeof version);
    hash = mix(hash, &cay_init_size, sizeof cay_init_size);
    for (uint64_t i = 0; i < cay_init_size; i += SAMPLE)
        hash = mix(hash, cay_init + i, 1);
    hash = mix_states(hash, trees, sizeof trees / sizeof *trees);
    hash = mix_states(hash, files, sizeof files / sizeof *files);
    hash = mix_tree(hash, "etc/apt", 0);
    hash = mix_tree(hash, "etc/skel", 0);
    return mix_states(hash, watched, sizeof watched / sizeof *watched);
}

/* --- Copies of the host's --- */

/* Where clients of registries and users keep what they sign in with. */
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

/* Whether a URL in it has a user before its host, or it has words that come with keys,
 * passwords or tokens.  PAM's own files are full of "password"; in keyrings and
 * certificates such a word is chance. */
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

/* What cannot be looked at as text is left out, unless it is known to be something else.
 */
static bool may_be_binary(const char *name, const char *top)
{
    return is_keyring(name) || strcmp(top, "etc/ssl") == 0 ||
           strcmp(top, "etc/ld.so.cache") == 0;
}

static bool may_be_shown(int fd, const struct stat *st, const char *name, const char *top)
{
    if (st->st_size > CHECKED_MAX)
        return false;
    AUTO_FREE char *text = malloc((size_t)st->st_size + 1);
    ssize_t len = text ? io_pread(fd, text, (size_t)st->st_size, 0) : -1;
    if (len < 0 || (memchr(text, '\0', (size_t)len) && !may_be_binary(name, top)))
        return false;
    for (ssize_t i = 0; i < len; i++)
        if (!text[i])
            text[i] = '\n'; /* what follows is looked at, too */
    text[len] = '\0';
    return !has_credentials(text, name, top);
}

/* The package database is large, and its files are replaced and never changed: a second
 * name is as good as a copy. */
static bool link_file(int from, int to, const char *name, const char *top)
{
    return strncmp(top, "var/lib/dpkg/", 13) == 0 && linkat(from, name, to, name, 0) == 0;
}

static int copy_file(int from, int to, const char *name, const char *top)
{
    struct stat st;
    uint64_t copied;
    AUTO_FD source = openat(from, name, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);

    if (source < 0 || fstat(source, &st) != 0 || !S_ISREG(st.st_mode) ||
        !(st.st_mode & S_IROTH))
        return 0;
    bool is_public = strncmp(top, "var/", 4) == 0 || may_be_shown(source, &st, name, top);
    if (!is_public || (st.st_nlink > 0 && link_file(from, to, name, top)))
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

/* apt's auth.conf holds passwords, whatever its mode. */
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
    DIR *list = path_list(from);
    int error = 0;

    for (struct dirent *entry; !error && list && (entry = readdir(list));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            error = copy_entry(from, to, entry->d_name, top, depth);
    if (list)
        closedir(list);
    return error;
}

/* "etc/apt" of the host, below `root`. */
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

/* --- What is made --- */

static int put_file(int dir, const char *path, unsigned mode, const void *data,
                    size_t len)
{
    AUTO_FD fd = openat(dir, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    if (fd < 0 || fchmod(fd, mode) != 0)
        return -errno;
    return io_write(fd, data, len);
}

static int put_directories(int root)
{
    for (size_t i = 0; i < sizeof directories / sizeof *directories; i++) {
        const char *path = directories[i].path;
        unsigned owner = directories[i].owner;
        if (mkdirat(root, path, 0755) != 0 ||
            fchmodat(root, path, directories[i].mode, 0) != 0 ||
            (owner && fchownat(root, path, owner, owner, 0) != 0))
            return -errno;
    }
    return 0;
}

static int put_link(int dir, const char *path, const char *target)
{
    return symlinkat(target, dir, path) == 0 ? 0 : -errno;
}

static int put_links(int root)
{
    static const char *const names[] = {"bin", "sbin", "lib", "lib32", "lib64", "libx32"};
    char path[16], target[16];
    struct stat st;
    int error = put_link(root, "etc/mtab", "/proc/mounts");

    if (!error)
        error = put_link(root, "etc/localtime", "/usr/share/zoneinfo/Etc/UTC");
    if (!error)
        error = put_link(root, "var/run", "/run");
    for (size_t i = 0; !error && i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "/%s", names[i]);
        snprintf(target, sizeof target, "usr/%s", names[i]);
        if (lstat(path, &st) == 0)
            error = put_link(root, names[i], target);
    }
    return error;
}

/* The files of a new user's home; those that are there already are the host's choice. */
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

/* No service is started by the installation of its package: there is no init for it. */
static const char policy[] = "#!/bin/sh\nexit 101\n";

static int fill_usr(int usr)
{
    static const char *const names[] = {"bin", "sbin"};

    for (size_t i = 0; i < 2; i++)
        if (mkdirat(usr, names[i], 0755) != 0 || fchmodat(usr, names[i], 0755, 0) != 0)
            return -errno;
    int error = put_file(usr, "bin/sudo", 0755, cay_init, cay_init_size);
    if (!error)
        error = put_file(usr, "sbin/policy-rc.d", 0755, policy, sizeof policy - 1);
    if (!error && access("/usr/bin/python3", X_OK) == 0 &&
        access("/usr/bin/python", F_OK) != 0)
        error = put_link(usr, "bin/python", "python3");
    return error;
}

int base_fill(int root, int usr)
{
    int error = put_directories(root);

    for (size_t i = 0; !error && i < sizeof made / sizeof *made; i++)
        error = put_file(root, made[i].path, made[i].mode, made[i].text,
                         strlen(made[i].text));
    for (size_t i = 0; !error && i < sizeof trees / sizeof *trees; i++)
        error = copy_path(root, trees[i]);
    for (size_t i = 0; !error && i < sizeof files / sizeof *files; i++)
        error = copy_path(root, files[i]);
    if (!error)
        error = put_links(root);
    if (!error)
        error = fill_home(root);
    return error ? error : fill_usr(usr);
}
