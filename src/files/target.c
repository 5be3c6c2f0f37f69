/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "files/handle.h"
#include "policy/tidy.h"

const struct mount *target_mount(const cay_files *files, const struct target *target)
{
    return &files->policy->mounts[target->mount];
}

int target_fail(const struct target *target, int sys_errno, struct cay_error *err)
{
    return fs_fail(target->fs, sys_errno, target->op, target->path, err);
}

static int check_access(const cay_files *files, const struct target *target,
                        unsigned access, struct cay_error *err)
{
    const cay_policy *policy = files->policy;
    unsigned granted = policy_access(policy, target->mount, target->rel);

    if (access & ~(unsigned)(CAY_ACCESS_READ | CAY_ACCESS_WRITE))
        return cay_fail(err, CAY_E_UNSUPPORTED, 0, target->op, "access",
                        "an unknown access is asked for",
                        "use the bits of enum cay_access");
    if (policy_is_hidden(policy, target->mount, target->rel))
        return policy_fail_outside(policy, target->op, target->path, NULL, err);
    if (access & CAY_ACCESS_WRITE & ~granted)
        return policy_fail_read_only(policy, target->op, target->path, err);
    if (access & CAY_ACCESS_READ & ~granted)
        return policy_fail_outside(policy, target->op, target->path, NULL, err);
    return CAY_OK;
}

int target_find(const cay_files *files, const char *op, const char *path, unsigned access,
                unsigned how, struct target *ret_target, struct cay_error *err)
{
    struct place place;
    struct fs_found found = {.fd = -1, .dir = -1};

    ret_target->fs = files->fs;
    ret_target->op = op;
    ret_target->path = path;
    ret_target->fd = ret_target->dir = -1;
    int code = policy_place(files->policy, op, path, &place, err);
    if (code)
        return code;
    ret_target->mount = place.mount;

    int error = files->fs->find(files->fs, files->roots[place.mount],
                                files->policy->mounts[place.mount].host, place.rel, how,
                                ret_target->rel, &found);
    ret_target->fd = found.fd;
    ret_target->st = found.st;
    ret_target->is_open = found.is_open;
    ret_target->dir = found.dir;
    ret_target->write_error = found.write_error;
    if (error == -EXDEV)
        return policy_fail_outside(files->policy, op, path,
                                   "a symbolic link in it leads out", err);
    if (error)
        return target_fail(ret_target, -error, err);
    return check_access(files, ret_target, access, err);
}

void target_done(struct target *target)
{
    if (target->fd >= 0)
        (void)close(target->fd);
    if (target->dir >= 0)
        (void)close(target->dir);
    target->fd = target->dir = -1;
    target->is_open = false;
}

bool target_link_tells_host(const struct target *target, const char *text)
{
    char joined[2 * PATH_MAX + 4], plain[PATH_MAX];
    int len = snprintf(joined, sizeof joined, "%s/../%s", target->rel, text);

    return *text == '/' || tidy_path(joined, (size_t)len, 0, plain).climbs;
}

int target_must_exist(const struct target *target, struct cay_error *err)
{
    return target->fd >= 0 ? CAY_OK : target_fail(target, ENOENT, err);
}

static const char *kind_of(mode_t mode)
{
    return S_ISDIR(mode)    ? "is a directory, not a file"
           : S_ISLNK(mode)  ? "is a symbolic link, not a file"
           : S_ISFIFO(mode) ? "is a FIFO, not a regular file"
           : S_ISSOCK(mode) ? "is a socket, not a regular file"
                            : "is a device, not a regular file";
}

int target_must_be_file(const struct target *target, struct cay_error *err)
{
    int code = target_must_exist(target, err);

    if (code || S_ISREG(target->st.st_mode))
        return code;
    return cay_fail(err, CAY_E_NOT_A_FILE, S_ISDIR(target->st.st_mode) ? EISDIR : 0,
                    target->op, target->path, kind_of(target->st.st_mode),
                    "name a regular file; list the directory to see what is there");
}

int target_must_be_directory(const struct target *target, struct cay_error *err)
{
    int code = target_must_exist(target, err);

    if (code || S_ISDIR(target->st.st_mode))
        return code;
    return cay_fail(err, CAY_E_NOT_A_DIRECTORY, ENOTDIR, target->op, target->path,
                    "is not a directory", "name the directory the file is in");
}

int target_check_suffix(const cay_files *files, const struct target *target,
                        struct cay_error *err)
{
    return policy_check_suffix(target_mount(files, target), target->op, target->path,
                               target->rel, err);
}

int target_check_size(const cay_files *files, const struct target *target, uint64_t bytes,
                      struct cay_error *err)
{
    return policy_check_size(target_mount(files, target), target->op, target->path, bytes,
                             err);
}

uint64_t target_text_max(const struct stat *st)
{
    enum { BLOCK = 512, COMPRESSED = 64 };
    uint64_t stored = (uint64_t)st->st_blocks * BLOCK * COMPRESSED;

    return stored > TARGET_TEXT_MAX ? stored : TARGET_TEXT_MAX;
}

static int duplicate(int fd)
{
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);

    return copy < 0 ? -errno : copy;
}

int target_open(const struct target *target, int flags, int *ret_fd,
                struct cay_error *err)
{
    struct stat st;
    bool copied = false;
    AUTO_FD fd = target->is_open && flags == O_RDONLY
                     ? duplicate(target->fd)
                     : target->fs->reopen(target->fs, target->fd, flags, &copied);

    if (fd == -ENOSYS)
        return cay_fail(err, CAY_E_UNAVAILABLE, ENOSYS, target->op, target->path,
                        "/proc is not mounted, so that an open file cannot be verified",
                        "mount it: mount -t proc proc /proc");
    if (fd < 0)
        return target_fail(target, -fd, err);
    if (fstat(fd, &st) != 0)
        return target_fail(target, errno, err);
    bool is_same = st.st_dev == target->st.st_dev && st.st_ino == target->st.st_ino;
    if (!S_ISREG(st.st_mode) || !(is_same || copied))
        return target_fail(target, EAGAIN, err);
    *ret_fd = TAKE_FD(fd);
    return CAY_OK;
}

int target_try_read(const struct target *target)
{
    int flags = S_ISDIR(target->st.st_mode) ? O_RDONLY | O_DIRECTORY : O_RDONLY;
    bool copied;

    if (target->is_open)
        return 0;
    if (!S_ISREG(target->st.st_mode) && !S_ISDIR(target->st.st_mode))
        return -ENXIO;
    AUTO_FD fd = target->fs->reopen(target->fs, target->fd, flags, &copied);
    return fd < 0 ? fd : 0;
}

int target_open_for_reading(cay_files *files, const char *op, const char *path,
                            const struct cay_pin *pin, struct target *ret_target,
                            int *ret_fd, struct stat *ret_stat, struct cay_error *err)
{
    struct cay_approval shown = {.op = CAY_OP_READ};
    AUTO_FD fd = -1;

    int code =
        target_find(files, op, path, CAY_ACCESS_READ, TARGET_READ, ret_target, err);
    if (!code)
        code = target_must_be_file(ret_target, err);
    if (!code)
        code = target_check_suffix(files, ret_target, err);
    if (!code)
        code =
            target_check_size(files, ret_target, (uint64_t)ret_target->st.st_size, err);
    if (!code)
        code = target_check_pin(files, ret_target, pin, err);
    if (!code)
        code = target_open(ret_target, O_RDONLY, &fd, err);
    if (!code)
        code = approve(files, &shown, ret_target, CAY_ACCESS_READ, NULL, 0, err);
    if (code)
        return code;
    if (fstat(fd, ret_stat) != 0)
        return target_fail(ret_target, errno, err);
    /* It may have grown since it was found, and what is read is what it has now. */
    code = target_check_size(files, ret_target, (uint64_t)ret_stat->st_size, err);
    if (code)
        return code;
    *ret_fd = TAKE_FD(fd);
    return CAY_OK;
}
