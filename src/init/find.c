/* SPDX-License-Identifier: Apache-2.0 */

/* The kernel follows the links: our own root is the sandbox's, so whatever they say leads
 * nowhere else, and ".." and absolute links mean what they mean to any program inside.
 * Only where nothing is there yet, the way to the place of it is looked for by hand. */
#include "init/find.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "sys/fs.h"
#include "sys/path.h"

enum { LINKS_MAX = 40, TRIES_MAX = 16 };

/* No way but by names: a link of /proc may lead to what has none. */
#define BY_NAMES (RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS)

static bool has_up(const char *path)
{
    for (const char *at = path; (at = strstr(at, "..")); at += 2)
        if ((at == path || at[-1] == '/') && (at[2] == '/' || !at[2]))
            return true;
    return false;
}

/* Takes the empty and "." components out of a path that has no "..". */
static void tidy(char *path)
{
    char *to = path;

    for (const char *from = path; *from;) {
        size_t len = strcspn(from, "/");
        if (len > 1 || (len == 1 && *from != '.')) {
            if (to != path)
                *to++ = '/';
            memmove(to, from, len);
            to += len;
        }
        from += len + (from[len] == '/');
    }
    *to = '\0';
}

/* The name that the kernel has for what is held. */
static int place_of(int fd, char ret_place[PATH_MAX], struct stat *ret_stat)
{
    char name[32], text[PATH_MAX];

    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    ssize_t len = readlink(name, text, sizeof text);
    if (len < 0)
        return -errno;
    if ((size_t)len >= sizeof text)
        return -ENAMETOOLONG;
    /* Deleted since, or moved away: what the text then says is no name. */
    if (fstat(fd, ret_stat) != 0 || ret_stat->st_nlink == 0 || text[0] != '/')
        return -EAGAIN;
    memcpy(ret_place, text + 1, (size_t)len - 1);
    ret_place[len - 1] = '\0';
    return 0;
}

/* "dir/name/rest" without what is empty. */
static int join(const char *dir, const char *name, const char *rest,
                char ret_path[PATH_MAX])
{
    char text[PATH_MAX];
    int len = snprintf(text, sizeof text, "%s%s%s%s%s", dir, *dir ? "/" : "", name,
                       *rest ? "/" : "", rest);

    if (len < 0 || (size_t)len >= sizeof text)
        return -ENAMETOOLONG;
    memcpy(ret_path, text, (size_t)len + 1);
    return 0;
}

/* The deepest directory on the way that is there: its descriptor, and what of the path
 * comes after it. */
static int open_deepest(int root, const char *path, char ret_rest[PATH_MAX])
{
    char head[PATH_MAX];
    size_t len = strlen(path);

    memcpy(head, path, len + 1);
    for (;;) {
        while (len > 0 && head[len - 1] == '/')
            len--;
        while (len > 0 && head[len - 1] != '/')
            len--;
        head[len] = '\0';
        int fd = path_open(root, head, O_PATH | O_DIRECTORY, 0, BY_NAMES);
        if (fd != -ENOENT || len == 0) {
            memcpy(ret_rest, path + len, strlen(path + len) + 1);
            return fd;
        }
    }
}

/* One step towards what is not there: 0 and the place of it, or 1 and the path that a
 * link in the way means instead. */
static int approach(int root, char path[PATH_MAX], char ret_place[PATH_MAX])
{
    char tail[PATH_MAX], name[NAME_MAX + 1], target[PATH_MAX];
    struct stat st;
    AUTO_FD dir = open_deepest(root, path, tail);

    if (dir < 0)
        return dir;
    int error = place_of(dir, ret_place, &st);
    if (error)
        return error;
    if (has_up(tail)) {
        *ret_place = '\0';
        return -ENOENT;
    }
    tidy(tail);
    size_t len = strcspn(tail, "/");
    if (len == 0 || len > NAME_MAX)
        return len ? -ENAMETOOLONG : -EAGAIN;
    memcpy(name, tail, len);
    name[len] = '\0';
    const char *rest = tail + len + (tail[len] == '/');

    AUTO_FD link = path_open(dir, name, O_PATH | O_NOFOLLOW, 0, PATH_PLAIN);
    if (link == -ENOENT)
        return join(ret_place, name, rest, ret_place);
    if (link < 0)
        return link;
    if (fstat(link, &st) != 0 || !S_ISLNK(st.st_mode))
        return -EAGAIN;
    ssize_t got = readlinkat(link, "", target, sizeof target);
    if (got < 0 || (size_t)got >= sizeof target || fs_is_pseudo(link))
        return -ELOOP;
    target[got] = '\0';
    error = join(*target == '/' ? "" : ret_place, target, rest, path);
    return error ? error : 1;
}

static int find_missing(int root, const char *path, char ret_place[PATH_MAX])
{
    char way[PATH_MAX];

    memcpy(way, path, strlen(path) + 1);
    for (int links = 0; links < LINKS_MAX; links++) {
        int more = approach(root, way, ret_place);
        if (more == 0)
            return -ENOENT;
        if (more < 0) {
            *ret_place = '\0';
            return more;
        }
    }
    *ret_place = '\0';
    return -ELOOP;
}

static int find_once(int root, const char *path, bool follow, char ret_place[PATH_MAX],
                     struct stat *ret_stat)
{
    *ret_place = '\0';
    if (!has_up(path)) {
        AUTO_FD fd = path_open(root, path, O_PATH | O_NOFOLLOW, 0, PATH_PLAIN);
        bool is_plain =
            fd >= 0 ? fstat(fd, ret_stat) == 0 && !(follow && S_ISLNK(ret_stat->st_mode))
                    : fd == -ENOENT || fd == -ENOTDIR;
        if (is_plain) {
            memcpy(ret_place, path, strlen(path) + 1);
            return fd >= 0 ? TAKE_FD(fd) : -ENOENT;
        }
        if (fd < 0 && fd != -ELOOP)
            return fd;
    }
    AUTO_FD fd = path_open(root, path, O_PATH | (follow ? 0 : O_NOFOLLOW), 0, BY_NAMES);
    if (fd == -ENOENT)
        return find_missing(root, path, ret_place);
    if (fd < 0)
        return fd;
    int error = place_of(fd, ret_place, ret_stat);
    return error ? error : TAKE_FD(fd);
}

bool find_is_own(int fd)
{
    char name[32], own[32], text[PATH_MAX];

    if (!fs_is_pseudo(fd))
        return false;
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    ssize_t got = readlink(name, text, sizeof text - 1);
    int len = snprintf(own, sizeof own, "/proc/%d", getpid());
    text[got < 0 ? 0 : got] = '\0';
    return got < 0 || (strncmp(text, own, (size_t)len) == 0 &&
                       (text[len] == '/' || text[len] == '\0'));
}

int find_place(int root, const char *path, bool follow, char ret_place[PATH_MAX],
               struct stat *ret_stat)
{
    int result = -EAGAIN;

    if (strlen(path) >= PATH_MAX)
        return -ENAMETOOLONG;
    for (int tries = 0; tries < TRIES_MAX && result == -EAGAIN; tries++)
        result = find_once(root, path, follow, ret_place, ret_stat);
    if (result < 0 || !find_is_own(result))
        return result;
    (void)close(result);
    *ret_place = '\0';
    return -EACCES;
}
