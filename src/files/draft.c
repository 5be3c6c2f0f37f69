/* SPDX-License-Identifier: Apache-2.0 */
#include "files/draft.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/auto.h"
#include "sys/path.h"

enum { MAX_TRIES = 16 };

static void pick_name(char name[24])
{
    uint64_t random = 0;

    (void)!getrandom(&random, sizeof random, 0);
    snprintf(name, 24, ".cay-%016llx", (unsigned long long)random);
}

static int open_named(int dir, mode_t mode, struct draft *draft)
{
    for (int tries = 0; tries < MAX_TRIES; tries++) {
        pick_name(draft->temp);
        draft->fd = openat(dir, draft->temp,
                           O_CREAT | O_EXCL | O_NOFOLLOW | O_RDWR | O_CLOEXEC, mode);
        if (draft->fd >= 0)
            return 0;
        if (errno != EEXIST)
            break;
    }
    int error = errno;
    draft->temp[0] = '\0';
    return -error;
}

int draft_open(int dir, mode_t mode, struct draft *ret_draft)
{
    *ret_draft = (struct draft){.fd = -1, .dir = dir};
    ret_draft->fd = openat(dir, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, mode);
    if (ret_draft->fd >= 0)
        return 0;
    if (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL)
        return open_named(dir, mode, ret_draft);
    return -errno;
}

/* Labels of the security modules are the kernel's to set, the rest is the file's. */
static bool is_ours_to_copy(const char *attribute)
{
    return strncmp(attribute, "user.", 5) == 0 ||
           strcmp(attribute, "system.posix_acl_access") == 0;
}

/* False if not all could be taken over: too large, not ours to read, no space. */
static bool copy_attributes(const struct draft *draft, const struct target *target)
{
    char file[32], names[4096], value[4096];

    snprintf(file, sizeof file, "/proc/self/fd/%d", target->fd);
    ssize_t len = listxattr(file, names, sizeof names);
    if (len < 0)
        return errno == EOPNOTSUPP;
    for (ssize_t at = 0; at < len; at += (ssize_t)strlen(names + at) + 1) {
        if (!is_ours_to_copy(names + at))
            continue;
        ssize_t size = getxattr(file, names + at, value, sizeof value);
        if (size < 0 || fsetxattr(draft->fd, names + at, value, (size_t)size, 0) != 0)
            return false;
    }
    return true;
}

int draft_like(const struct draft *draft, const struct target *target)
{
    struct stat st;
    const struct stat *old = &target->st;

    if (fstat(draft->fd, &st) != 0)
        return -errno;
    if ((st.st_uid != old->st_uid || st.st_gid != old->st_gid) &&
        fchown(draft->fd, old->st_uid, old->st_gid) != 0)
        return -EPERM;
    if (fchmod(draft->fd, old->st_mode & 0777) != 0)
        return -errno;
    return copy_attributes(draft, target) ? 0 : -EPERM;
}

/* A name for a draft that has none: linkat never replaces, so that is exactly "new". */
static int link_draft(const struct draft *draft, const char *name)
{
    char file[32];

    snprintf(file, sizeof file, "/proc/self/fd/%d", draft->fd);
    if (linkat(AT_FDCWD, file, draft->dir, name, AT_SYMLINK_FOLLOW) == 0)
        return 0;
    return -errno;
}

static int rename_draft(struct draft *draft, const char *name, unsigned flags)
{
    if (renameat2(draft->dir, draft->temp, draft->dir, name, flags) != 0)
        return -errno;
    draft->temp[0] = '\0';
    return 0;
}

static int link_and_rename(struct draft *draft, const char *name)
{
    int error = -EEXIST;

    for (int tries = 0; tries < MAX_TRIES && error == -EEXIST; tries++) {
        pick_name(draft->temp);
        error = link_draft(draft, draft->temp);
    }
    if (error) {
        draft->temp[0] = '\0';
        return error;
    }
    return rename_draft(draft, name, 0);
}

static int take_name(struct draft *draft, const char *name, enum draft_commit how)
{
    if (draft->temp[0])
        return rename_draft(draft, name, how == DRAFT_NEW ? RENAME_NOREPLACE : 0);
    int error = link_draft(draft, name);
    return error == -EEXIST && how == DRAFT_REPLACE ? link_and_rename(draft, name)
                                                    : error;
}

int draft_commit(struct draft *draft, const char *name, enum draft_commit how,
                 bool durable)
{
    if (durable && fsync(draft->fd) != 0)
        return -errno;
    int error = take_name(draft, name, how);
    if (error || !durable)
        return error;
    AUTO_FD dir = path_reopen(draft->dir, O_RDONLY | O_DIRECTORY);
    if (dir < 0)
        return dir;
    return fsync(dir) == 0 ? 0 : -errno;
}

void draft_done(struct draft *draft)
{
    if (draft->temp[0])
        (void)unlinkat(draft->dir, draft->temp, 0);
    draft->temp[0] = '\0';
    if (draft->fd >= 0)
        (void)close(draft->fd);
    draft->fd = -1;
}
