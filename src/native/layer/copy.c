/* SPDX-License-Identifier: Apache-2.0 */

/* Each copy has a mark, the inode and the ctime of its original.  The next copy compares
 * them with the file: since Linux 6.13 the file systems below give a file that has been
 * looked at another ctime with its next change.  An overlay neither shows nor copies the
 * mark.  A file without one is always copied.
 *
 * The files may be hostile: names only, no link is followed, depth and time have limits.
 */
#include "native/layer/copy.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "native/layer/held.h"
#include "native/make/store.h"
#include "sys/copy.h"
#include "sys/path.h"

enum {
    DEPTH_MAX = 200,
    XATTRS_MAX = 64 << 10,
    XFS_MAGIC = 0x58465342 /* not in linux/magic.h of older kernels */
};

static const char mark_name[] = "trusted.overlay.cay", marks[] = "trusted.overlay.",
                  opaque[] = "trusted.overlay.opaque";

/* --- Mapped files --- */

struct search {
    long root, usr; /* mounts */
    int live;
    struct copy_mapped *mapped;
};

static int open_original(const struct search *search, long mount, const char *path)
{
    static const char usr[] = "usr/";
    const bool is_usr = mount != search->root;

    if (is_usr && strncmp(path, usr, strlen(usr)) != 0)
        return -EXDEV;
    AUTO_FD part = path_open(search->live, is_usr ? "usr" : "upper", O_PATH | O_DIRECTORY,
                             0, PATH_PLAIN);
    return part < 0 ? TAKE_FD(part)
                    : path_open(part, is_usr ? path + strlen(usr) : path,
                                O_PATH | O_NOFOLLOW, 0, PATH_PLAIN);
}

/* A file with several names that was removed by one of them cannot be found. */
static int note_mapped(void *cookie, int fd)
{
    struct search *search = cookie;
    struct copy_mapped *mapped = search->mapped;
    char path[PATH_MAX];
    struct stat st;
    long mount = held_mount(fd);

    if (mount != search->root && mount != search->usr)
        return mount < 0 ? (int)mount : 0;
    if (fstat(fd, &st) != 0)
        return -errno;
    if (!S_ISREG(st.st_mode) || st.st_nlink == 0)
        return 0;
    AUTO_FD original =
        held_path(fd, path, sizeof path) == 0 ? open_original(search, mount, path) : -1;
    if (original < 0 || fstat(original, &st) != 0 || !S_ISREG(st.st_mode) ||
        mapped->count == COPY_MAPPED_MAX)
        mapped->is_all = true;
    else
        mapped->inodes[mapped->count++] = st.st_ino;
    return 0;
}

int copy_find_mapped(pid_t init, const pid_t *pids, size_t count, int live,
                     struct copy_mapped *ret_mapped)
{
    char path[64];
    struct search search = {.live = live, .mapped = ret_mapped};
    int error = 0;

    ret_mapped->is_all = false;
    ret_mapped->count = 0;
    snprintf(path, sizeof path, "/proc/%d/root", (int)init);
    AUTO_FD root = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        return -errno;
    AUTO_FD usr = path_open(root, "usr", O_PATH | O_DIRECTORY, 0, PATH_PLAIN);
    search.root = held_mount(root);
    search.usr = usr < 0 ? search.root : held_mount(usr);
    for (size_t i = 0; !error && !ret_mapped->is_all && i < count; i++)
        error = held_each(pids[i], HELD_MAPPED_WRITABLE, note_mapped, &search);
    return error;
}

/* --- Originals and copies --- */

struct mark {
    uint64_t inode, seconds, nanoseconds;
};

static struct mark mark_of(const struct stat *st)
{
    return (struct mark){st->st_ino, (uint64_t)st->st_ctim.tv_sec,
                         (uint64_t)st->st_ctim.tv_nsec};
}

/* "/proc/self/fd/N/NAME", for calls on a name that have no descriptor variant. */
static const char *name_entry(int dir, const char *name, char *path, size_t room)
{
    snprintf(path, room, "/proc/self/fd/%d/%s", dir, name);
    return path;
}

struct walk {
    const struct copy_mapped *mapped;
    uint64_t end_ms;
    bool is_live;    /* the copy is not in a layer */
    bool with_marks; /* the times of this file system are exact */
    bool is_same;
    int to; /* the highest directory */
    struct link *links;
    size_t link_count, link_room;
    char path[PATH_MAX]; /* of the directory, from `to` */
    char *names, *value; /* XATTRS_MAX bytes each */
};

static bool is_mapped(const struct copy_mapped *mapped, uint64_t inode)
{
    for (size_t i = 0; i < mapped->count; i++)
        if (mapped->inodes[i] == inode)
            return true;
    return mapped->is_all;
}

static bool may_mark(const struct walk *walk, const struct stat *st)
{
    return walk->with_marks &&
           (!S_ISREG(st->st_mode) || !is_mapped(walk->mapped, st->st_ino));
}

static bool has_mark(int dir, const char *name, const struct stat *st)
{
    char path[NAME_MAX + 32];
    struct mark found, wanted = mark_of(st);

    return dir >= 0 &&
           lgetxattr(name_entry(dir, name, path, sizeof path), mark_name, &found,
                     sizeof found) == sizeof found &&
           memcmp(&found, &wanted, sizeof found) == 0;
}

/* --- Hard links --- */

struct link {
    uint64_t inode; /* 0: free */
    char *path;     /* of the copy */
};

static struct link *find_link(const struct walk *walk, uint64_t inode)
{
    size_t at = (size_t)(inode * 0x9E3779B97F4A7C15u) & (walk->link_room - 1);

    while (walk->links[at].inode && walk->links[at].inode != inode)
        at = (at + 1) & (walk->link_room - 1);
    return &walk->links[at];
}

static int grow_links(struct walk *walk)
{
    struct walk old = *walk;

    walk->link_room = old.link_room ? 2 * old.link_room : 64;
    walk->links = calloc(walk->link_room, sizeof *walk->links);
    if (!walk->links) {
        walk->links = old.links;
        walk->link_room = old.link_room;
        return -ENOMEM;
    }
    for (size_t i = 0; i < old.link_room; i++)
        if (old.links[i].inode)
            *find_link(walk, old.links[i].inode) = old.links[i];
    free(old.links);
    return 0;
}

static int note_link(struct walk *walk, uint64_t inode, const char *name)
{
    char *path = NULL;

    if (2 * walk->link_count >= walk->link_room && grow_links(walk) != 0)
        return -ENOMEM;
    if (asprintf(&path, "%s%s", walk->path, name) < 0)
        return -ENOMEM;
    *find_link(walk, inode) = (struct link){inode, path};
    walk->link_count++;
    return 0;
}

static void free_links(struct walk *walk)
{
    for (size_t i = 0; i < walk->link_room; i++)
        free(walk->links[i].path);
    free(walk->links);
}

/* --- Attributes --- */

static bool is_kept(const struct walk *walk, const char *name)
{
    return strncmp(name, marks, strlen(marks)) != 0 ||
           (!walk->is_live && strcmp(name, opaque) == 0);
}

static int copy_xattrs(const struct walk *walk, const char *from, const char *to)
{
    ssize_t len = llistxattr(from, walk->names, XATTRS_MAX);

    if (len < 0)
        return errno == EOPNOTSUPP ? 0 : -errno;
    for (const char *name = walk->names; name < walk->names + len;
         name += strlen(name) + 1) {
        if (!is_kept(walk, name))
            continue;
        ssize_t size = lgetxattr(from, name, walk->value, XATTRS_MAX);
        if (size < 0 || lsetxattr(to, name, walk->value, (size_t)size, 0) != 0)
            return -errno;
    }
    return 0;
}

/* The owner first: a change of it removes setuid bits and capabilities. */
static int copy_attributes(const struct walk *walk, int from, int to, const char *name,
                           const struct stat *st)
{
    char from_path[NAME_MAX + 32], to_path[NAME_MAX + 32];
    const struct timespec times[2] = {st->st_atim, st->st_mtim};
    struct mark mark = mark_of(st);

    name_entry(from, name, from_path, sizeof from_path);
    name_entry(to, name, to_path, sizeof to_path);
    if (fchownat(to, name, st->st_uid, st->st_gid, AT_SYMLINK_NOFOLLOW) != 0 ||
        (!S_ISLNK(st->st_mode) &&
         fchmodat(to, name, st->st_mode & 07777, AT_SYMLINK_NOFOLLOW) != 0))
        return -errno;
    int error = copy_xattrs(walk, from_path, to_path);
    if (error)
        return error;
    if (may_mark(walk, st) && lsetxattr(to_path, mark_name, &mark, sizeof mark, 0) != 0)
        return -errno;
    return utimensat(to, name, times, AT_SYMLINK_NOFOLLOW) == 0 ? 0 : -errno;
}

/* --- Files --- */

static int copy_content(int from, int to, const char *name)
{
    uint64_t copied;
    AUTO_FD source = path_open(from, name, O_RDONLY | O_NOATIME | O_NONBLOCK | O_NOFOLLOW,
                               0, PATH_PLAIN);
    AUTO_FD target = source < 0
                         ? -1
                         : path_open(to, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW,
                                     0600, PATH_PLAIN);

    if (source < 0 || target < 0)
        return source < 0 ? TAKE_FD(source) : TAKE_FD(target);
    return copy_bytes(source, target, UINT64_MAX, &copied);
}

static int copy_symlink(int from, int to, const char *name)
{
    char text[PATH_MAX];
    ssize_t len = readlinkat(from, name, text, sizeof text - 1);

    if (len < 0)
        return -errno;
    text[len] = '\0';
    return symlinkat(text, to, name) == 0 ? 0 : -errno;
}

static bool is_whiteout(const struct stat *st)
{
    return S_ISCHR(st->st_mode) && st->st_rdev == 0;
}

static int create_copy(const struct walk *walk, int from, int to, const char *name,
                       const struct stat *st)
{
    int error = S_ISREG(st->st_mode)   ? copy_content(from, to, name)
                : S_ISLNK(st->st_mode) ? copy_symlink(from, to, name)
                : mknodat(to, name, st->st_mode, st->st_rdev) == 0 ? 0
                                                                   : -errno;

    return error || is_whiteout(st) ? error : copy_attributes(walk, from, to, name, st);
}

/* Whiteouts are links to one inode, whose ctime says nothing. */
static int copy_whiteout(struct walk *walk, int last, int to, const char *name)
{
    struct stat before;

    if (last < 0 || fstatat(last, name, &before, AT_SYMLINK_NOFOLLOW) != 0 ||
        !is_whiteout(&before))
        walk->is_same = false;
    return mknodat(to, name, S_IFCHR, 0) == 0 ? 0 : -errno;
}

static int copy_file(struct walk *walk, int from, int last, int to, const char *name,
                     const struct stat *st)
{
    const bool has_links = st->st_nlink > 1;

    if (is_whiteout(st))
        return copy_whiteout(walk, last, to, name);
    if (may_mark(walk, st) && has_mark(last, name, st))
        return linkat(last, name, to, name, 0) == 0 ? 0 : -errno;
    walk->is_same = false;
    const struct link *link =
        has_links && walk->link_room ? find_link(walk, st->st_ino) : NULL;
    if (link && link->inode)
        return linkat(walk->to, link->path, to, name, 0) == 0 ? 0 : -errno;
    int error = create_copy(walk, from, to, name, st);
    return error || !has_links ? error : note_link(walk, st->st_ino, name);
}

/* --- Directories --- */

static int open_dir(int dir, const char *name)
{
    return dir < 0 ? -ENOENT
                   : path_open(dir, name, O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
}

static int copy_entries(struct walk *walk, int from, int last, int to, int depth);

static int copy_directory(struct walk *walk, int from, int last, int to, const char *name,
                          const struct stat *st, int depth)
{
    size_t len = strlen(walk->path);
    AUTO_FD own_from = open_dir(from, name);
    AUTO_FD own_last = open_dir(last, name);

    if (own_from < 0)
        return TAKE_FD(own_from);
    if (len + strlen(name) + 2 > sizeof walk->path)
        return -ENAMETOOLONG;
    int error = store_mkdir(to, name, 0700, 0);
    AUTO_FD own_to = error ? -1 : open_dir(to, name);
    if (error || own_to < 0)
        return error ? error : TAKE_FD(own_to);
    snprintf(walk->path + len, sizeof walk->path - len, "%s/", name);
    error = copy_entries(walk, own_from, own_last, own_to, depth + 1);
    walk->path[len] = '\0';
    if (!has_mark(last, name, st))
        walk->is_same = false;
    return error ? error : copy_attributes(walk, from, to, name, st);
}

static int copy_entries(struct walk *walk, int from, int last, int to, int depth)
{
    struct stat st;
    AUTO_DIR list = path_list(from);
    int error = !list                       ? -errno
                : depth > DEPTH_MAX         ? -ELOOP
                : clock_ms() > walk->end_ms ? -ETIME
                                            : 0;

    for (struct dirent *entry; !error && (entry = path_next(list));) {
        const char *name = entry->d_name;
        if (fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
            error = -errno;
        else if (S_ISDIR(st.st_mode))
            error = copy_directory(walk, from, last, to, name, &st, depth);
        else
            error = copy_file(walk, from, last, to, name, &st);
        if (!error && clock_ms() > walk->end_ms)
            error = -ETIME;
    }
    return error;
}

/* The directory `part` exists in the new layer, like the one of the live layer. */
static int copy_part(const struct copy_job *job, const char *part, struct walk *walk)
{
    AUTO_FD from = store_open_layer(job->store, job->from);
    AUTO_FD last = job->last ? store_open_layer(job->store, job->last) : -1;
    AUTO_FD to = store_open_layer(job->store, job->to);
    AUTO_FD own_from = open_dir(from, part);
    AUTO_FD own_last = open_dir(last, part);
    AUTO_FD own_to = open_dir(to, part);
    struct stat st;

    if (own_from < 0 || own_to < 0)
        return own_from < 0 ? TAKE_FD(own_from) : TAKE_FD(own_to);
    if (fstat(own_from, &st) != 0)
        return -errno;
    if (!has_mark(last, part, &st))
        walk->is_same = false;
    walk->to = own_to;
    walk->path[0] = '\0';
    int error = copy_entries(walk, own_from, own_last, own_to, 0);
    free_links(walk);
    walk->links = NULL;
    walk->link_count = walk->link_room = 0;
    return error ? error : copy_attributes(walk, from, to, part, &st);
}

static bool has_exact_times(int store)
{
    struct statfs fs;

    return fstatfs(store, &fs) == 0 &&
           (fs.f_type == TMPFS_MAGIC || fs.f_type == EXT4_SUPER_MAGIC ||
            fs.f_type == XFS_MAGIC || fs.f_type == BTRFS_SUPER_MAGIC);
}

int copy_layer(const struct copy_job *job, bool *ret_is_same)
{
    struct walk *walk = calloc(1, sizeof *walk);
    int error = walk ? 0 : -ENOMEM;

    if (error)
        return error;
    walk->mapped = job->mapped;
    walk->end_ms = job->end_ms;
    walk->with_marks = has_exact_times(job->store);
    walk->is_same = job->last != 0;
    walk->names = malloc(XATTRS_MAX);
    walk->value = malloc(XATTRS_MAX);
    if (!walk->names || !walk->value)
        error = -ENOMEM;
    if (!error)
        error = copy_part(job, "upper", walk);
    if (!error && job->has_usr)
        error = copy_part(job, "usr", walk);
    *ret_is_same = walk->is_same;
    free(walk->names);
    free(walk->value);
    free(walk);
    return error;
}

int copy_entry(int from, int to, const char *name, const struct stat *st)
{
    AUTO_FREE char *names = malloc(XATTRS_MAX);
    AUTO_FREE char *value = malloc(XATTRS_MAX);
    AUTO_FREE struct walk *walk = calloc(1, sizeof *walk);

    if (!names || !value || !walk)
        return -ENOMEM;
    walk->is_live = true;
    walk->names = names;
    walk->value = value;
    if (!S_ISDIR(st->st_mode))
        return create_copy(walk, from, to, name, st);
    int error = store_mkdir(to, name, 0700, 0);
    return error && error != -EEXIST ? error : copy_attributes(walk, from, to, name, st);
}
