/* SPDX-License-Identifier: Apache-2.0 */
#include "native/make/shared-files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/auto.h"
#include "native/record/runtime.h"
#include "sys/copy.h"
#include "sys/path.h"
#include "sys/state-home.h"

/* There is one of each, but a plan may have to hold them for one sandbox. */
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

int shared_open_host(const char *path, size_t *ret_len)
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
        uint64_t facts[7] = {0};
        struct stat st;
        snprintf(name, sizeof name, "/%s", files[i].path);
        files[i].is_there = stat(name, &st) == 0 && is_fit(&st, SHARED_LEN_MAX);
        if (files[i].is_there) {
            facts[0] = st.st_dev;
            facts[1] = st.st_ino;
            facts[2] = (uint64_t)st.st_size;
            facts[3] = (uint64_t)st.st_mtim.tv_sec;
            facts[4] = (uint64_t)st.st_mtim.tv_nsec;
            facts[5] = (uint64_t)st.st_ctim.tv_sec;
            facts[6] = (uint64_t)st.st_ctim.tv_nsec;
        }
        hash = mix(hash, files[i].path, strlen(files[i].path) + 1);
        hash = mix(hash, facts, sizeof facts);
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
    DIR *list = path_list(dir);
    for (struct dirent *entry; list && (entry = readdir(list));)
        if (entry->d_name[0] != '.')
            (void)unlinkat(dir, entry->d_name, 0);
    if (list)
        closedir(list);
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

/* Where it is, and its version as a name. */
static bool name_directory(struct shared_file *files, size_t count, char top[PATH_MAX],
                           char ret_path[PATH_MAX])
{
    if (runtime_directory(top, NULL) != CAY_OK)
        return false;
    snprintf(ret_path, PATH_MAX, "%.4000s/%s%016llx", top, prefix,
             (unsigned long long)version_of(files, count));
    return true;
}

/* Under another name first, so that whoever finds it finds all of it, and only if nothing
 * has changed meanwhile. */
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
    return access(path, F_OK) == 0; /* somebody else was faster */
}

bool shared_open(struct shared_file *files, size_t count, char ret_path[PATH_MAX])
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

/* One of the future was made before the clock was set back. */
static bool is_old(const char *path)
{
    struct stat st;
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return lstat(path, &st) == 0 && labs(now.tv_sec - st.st_mtim.tv_sec) > MAKE_S;
}

/* The version of now may be about to be used. */
void shared_sweep(struct shared_file *files, size_t count)
{
    char top[PATH_MAX], current[PATH_MAX], path[PATH_MAX + NAME_MAX + 2];
    bool is_used = false;

    if (!name_directory(files, count, top, current))
        return;
    DIR *list = opendir(top);
    for (struct dirent *entry; list && (entry = readdir(list));)
        is_used |= runtime_is_id(entry->d_name);
    if (list)
        rewinddir(list);
    for (struct dirent *entry; list && (entry = readdir(list));) {
        bool is_draft = strchr(entry->d_name, '.') != NULL;
        if (strncmp(entry->d_name, prefix, sizeof prefix - 1) != 0)
            continue;
        snprintf(path, sizeof path, "%s/%s", top, entry->d_name);
        if ((is_draft || !is_used) && strcmp(path, current) != 0 && is_old(path))
            remove_directory(path);
    }
    if (list)
        closedir(list);
}
