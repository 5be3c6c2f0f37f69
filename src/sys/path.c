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

/* A walk from the root: `done` is link-free and verified, `todo` is what is left. */
struct walk {
    int root;
    const char *host;
    char done[PATH_MAX];
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

static int pop(char *path)
{
    char *slash = strrchr(path, '/');

    if (!*path)
        return -EXDEV;
    *(slash ? slash : path) = '\0';
    return 0;
}

/* The part of an absolute link target that lies below the root, or NULL. */
static const char *below_host(const char *host, const char *target)
{
    size_t len = strlen(host);

    if (len == 1)
        return target + 1;
    if (strncmp(target, host, len) != 0 || (target[len] != '/' && target[len] != '\0'))
        return NULL;
    return target + len;
}

/* Puts the target of the link held by `fd` in front of what is left to do. */
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

    const char *start = target;
    if (*target == '/') {
        start = below_host(walk->host, target);
        if (!start)
            return -EXDEV;
        *walk->done = '\0';
    }
    memcpy(rest, walk->todo, sizeof rest);
    if (strlen(start) + 1 + strlen(rest) >= sizeof walk->todo)
        return -ENAMETOOLONG;
    size_t used = strlen(start);
    memmove(walk->todo, start, used);
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

static bool nothing_left(const struct walk *walk)
{
    return walk->todo[strspn(walk->todo, "/")] == '\0';
}

/* Takes one component: 0 to go on, 1 when it does not exist, or a negative errno. */
static int step(struct walk *walk, const char *name, size_t len, bool follow_last)
{
    struct stat st;
    int error;

    if (strcmp(name, ".") == 0)
        return 0;
    if (strcmp(name, "..") == 0)
        return pop(walk->done);
    error = push(walk->done, name, len);
    if (error)
        return error;

    AUTO_FD fd = path_open(walk->root, walk->done, O_PATH | O_NOFOLLOW, 0, PATH_PLAIN);
    if (fd == -ENOENT || fd == -ENOTDIR)
        return 1;
    /* What was link-free a moment ago is not any more: somebody is at work here. */
    if (fd < 0)
        return fd == -ELOOP ? -EAGAIN : fd;
    if (fstat(fd, &st) != 0)
        return -errno;
    if (!S_ISLNK(st.st_mode) || (!follow_last && nothing_left(walk)))
        return 0;
    error = pop(walk->done);
    return error ? error : follow(walk, fd);
}

static int walk_down(struct walk *walk, bool follow_last)
{
    char name[PATH_MAX];
    bool exists = true;

    for (;;) {
        size_t len = next_component(walk, name);
        if (!len)
            return 0;
        /* Below what does not exist there are no links: the rest is plain text. */
        int result = exists                    ? step(walk, name, len, follow_last)
                     : strcmp(name, ".") == 0  ? 0
                     : strcmp(name, "..") == 0 ? pop(walk->done)
                                               : push(walk->done, name, len);
        if (result < 0)
            return result;
        if (result > 0)
            exists = false;
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

        *walk.done = '\0';
        walk.links = 0;
        if (strlen(rel) >= sizeof walk.todo)
            return -ENAMETOOLONG;
        memcpy(walk.todo, rel, strlen(rel) + 1);
        int error = walk_down(&walk, follow_last);
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
