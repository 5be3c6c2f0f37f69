/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/path.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/auto.h"

enum { MAX_RETRIES = 64, MAX_LINKS = 40 };

int path_open(int dir, const char *path, uint64_t flags, uint64_t mode, uint64_t resolve)
{
    struct open_how how = {.flags = flags | O_CLOEXEC, .mode = mode, .resolve = resolve};

    for (int tries = 0;; tries++) {
        long fd = syscall(SYS_openat2, dir, *path ? path : ".", &how, sizeof how);
        if (fd >= 0)
            return (int)fd;
        int error = errno;
        if (error == EINTR || (error == EAGAIN && tries < MAX_RETRIES))
            continue;
        return -error;
    }
}

int path_rename(int from_dir, const char *from, int to_dir, const char *to,
                unsigned flags)
{
    return syscall(SYS_renameat2, from_dir, from, to_dir, to, flags) == 0 ? 0 : -errno;
}

int path_chmod(int dir, const char *name, unsigned mode)
{
    enum { FCHMODAT2 = 452 }; /* which older C libraries do not use, since Linux 6.6 */
    char link[32];

    if (syscall(FCHMODAT2, dir, name, mode, AT_SYMLINK_NOFOLLOW) == 0 ||
        ((errno == EPERM || errno == ENOSYS) &&
         fchmodat(dir, name, mode, AT_SYMLINK_NOFOLLOW) == 0))
        return 0;
    if (errno != EPERM && errno != ENOSYS)
        return -errno;
    AUTO_FD fd = openat(dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    return chmod(link, mode) == 0 ? 0 : -errno;
}

int path_name(int fd, char ret_path[PATH_MAX])
{
    char link[32];

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t len = readlink(link, ret_path, PATH_MAX - 1);
    ret_path[len > 0 ? len : 0] = '\0';
    return len < 0 ? -errno : 0;
}

int path_reopen(int fd, int flags)
{
    char name[32];

    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    for (;;) {
        int opened = open(name, flags | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
        if (opened >= 0)
            return opened;
        int error = errno;
        if (error == EINTR)
            continue;
        return error == ENOENT && access("/proc/self/fd", F_OK) != 0 ? -ENOSYS : -error;
    }
}

DIR *path_list(int dir)
{
    AUTO_FD own = path_open(dir, "", O_RDONLY | O_DIRECTORY, 0, 0);
    DIR *directory = own < 0 ? NULL : fdopendir(own);

    if (directory)
        (void)TAKE_FD(own);
    return directory;
}

struct dirent *path_next(DIR *list)
{
    struct dirent *entry;

    do
        entry = list ? readdir(list) : NULL;
    while (entry &&
           (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0));
    return entry;
}

/* A walk from the root: `done` is link-free and verified, `todo` is the rest.  Above the
 * root no directory is read: the way there and back is compared with the text of its own
 * path. */
struct walk {
    int root;
    const char *host;
    size_t host_len; /* 0 for "/" */
    size_t at;       /* components of host passed; less than host_len: above the root */
    char done[PATH_MAX];
    size_t missing; /* length of done with the first of it that is not there; 0: all is */
    char todo[PATH_MAX];
    int links;
};

static int push(char *path, const char *name, size_t len)
{
    size_t used = strlen(path);

    if (used + 1 + len >= PATH_MAX)
        return -ENAMETOOLONG;
    if (used)
        path[used++] = '/';
    memcpy(path + used, name, len);
    path[used + len] = '\0';
    return 0;
}

static void pop(char *path)
{
    char *slash = strrchr(path, '/');

    *(slash ? slash : path) = '\0';
}

static void go_up(struct walk *walk)
{
    if (*walk->done)
        pop(walk->done);
    else
        while (walk->at > 0 && walk->host[--walk->at] != '/')
            ;
    if (strlen(walk->done) < walk->missing)
        walk->missing = 0;
}

/* One component back to the root, from above it. */
static int come_back(struct walk *walk, const char *name, size_t len)
{
    const char *next = walk->host + walk->at + 1;

    if (strncmp(next, name, len) != 0 || (next[len] != '/' && next[len] != '\0'))
        return -EXDEV;
    walk->at += 1 + len;
    return 0;
}

/* Prepends the target of the link `fd` to the rest. */
static int follow(struct walk *walk, int fd)
{
    char target[PATH_MAX];
    char rest[PATH_MAX];
    ssize_t len = readlinkat(fd, "", target, sizeof target);

    if (len < 0)
        return -errno;
    if ((size_t)len >= sizeof target)
        return -ENAMETOOLONG;
    target[len] = '\0';
    if (++walk->links > MAX_LINKS)
        return -ELOOP;

    if (*target == '/') {
        *walk->done = '\0';
        walk->at = 0;
    }
    memcpy(rest, walk->todo, sizeof rest);
    size_t used = (size_t)len;
    if (used + 1 + strlen(rest) >= sizeof walk->todo)
        return -ENAMETOOLONG;
    memcpy(walk->todo, target, used);
    walk->todo[used] = '/';
    memcpy(walk->todo + used + 1, rest, strlen(rest) + 1);
    return 0;
}

/* Cuts the first component off `todo`; its length, or 0 when nothing is left. */
static size_t next_component(struct walk *walk, char *name)
{
    char *start = walk->todo + strspn(walk->todo, "/");
    size_t len = strcspn(start, "/");

    memcpy(name, start, len);
    name[len] = '\0';
    memmove(walk->todo, start + len, strlen(start + len) + 1);
    return len;
}

/* Takes one component. */
static int step(struct walk *walk, const char *name, size_t len, bool follow_last)
{
    struct stat st;

    if (strcmp(name, ".") == 0)
        return 0;
    if (strcmp(name, "..") == 0) {
        go_up(walk);
        return 0;
    }
    if (walk->at < walk->host_len)
        return come_back(walk, name, len);
    int error = push(walk->done, name, len);
    /* Below a missing component there are no links: the rest is plain text. */
    if (error || walk->missing)
        return error;

    AUTO_FD fd = path_open(walk->root, walk->done, O_PATH | O_NOFOLLOW, 0, PATH_PLAIN);
    if (fd == -ENOENT || fd == -ENOTDIR) {
        walk->missing = strlen(walk->done);
        return 0;
    }
    /* A verified component has changed: a concurrent rename. */
    if (fd < 0)
        return fd == -ELOOP ? -EAGAIN : fd;
    if (fstat(fd, &st) != 0)
        return -errno;
    if (!S_ISLNK(st.st_mode) ||
        (!follow_last && walk->todo[strspn(walk->todo, "/")] == '\0'))
        return 0;
    pop(walk->done);
    return follow(walk, fd);
}

static int walk_down(struct walk *walk, const char *rel, bool follow_last)
{
    char name[PATH_MAX];

    if (strlen(rel) >= sizeof walk->todo)
        return -ENAMETOOLONG;
    memcpy(walk->todo, rel, strlen(rel) + 1);
    *walk->done = '\0';
    walk->missing = 0;
    walk->links = 0;
    walk->at = walk->host_len = strcmp(walk->host, "/") == 0 ? 0 : strlen(walk->host);
    for (;;) {
        size_t len = next_component(walk, name);
        if (!len)
            return walk->at < walk->host_len ? -EXDEV : 0;
        int error = step(walk, name, len, follow_last);
        if (error)
            return error;
    }
}

int path_resolve(int root, const char *host, const char *rel, int follow_last,
                 char *ret_rel, int *ret_fd, struct stat *ret_stat)
{
    struct walk walk = {.root = root, .host = host};
    const char *place = rel;

    for (int tries = 0; tries < MAX_RETRIES; tries++) {
        AUTO_FD fd = path_open(root, place, O_PATH | O_NOFOLLOW, 0, PATH_PLAIN);
        bool is_link = fd == -ELOOP;
        if (fd >= 0) {
            if (fstat(fd, ret_stat) != 0)
                return -errno;
            is_link = follow_last && S_ISLNK(ret_stat->st_mode);
        } else if (!is_link && fd != -ENOENT && fd != -ENOTDIR) {
            return fd;
        }
        if (!is_link) {
            if (place != ret_rel)
                memcpy(ret_rel, place, strlen(place) + 1);
            *ret_fd = fd >= 0 ? TAKE_FD(fd) : -1;
            return 0;
        }

        int error = walk_down(&walk, rel, follow_last);
        if (error && error != -EAGAIN)
            return error;
        place = rel;
        if (!error) {
            memcpy(ret_rel, walk.done, strlen(walk.done) + 1);
            place = ret_rel;
        }
    }
    return -EAGAIN;
}
