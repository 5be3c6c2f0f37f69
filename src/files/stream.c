/* SPDX-License-Identifier: Apache-2.0 */

/* Files by descriptor: their content goes from one to another, never through memory as a
 * whole. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "files/write.h"
#include "sys/copy.h"

static const char descriptor_op[] = "files.descriptor";

int files_check_descriptor(int fd, int access, const char *op, struct cay_error *err)
{
    int flags = fcntl(fd, F_GETFL);
    int mode = flags & O_ACCMODE;

    if (flags >= 0 && !(flags & O_PATH) && (mode == access || mode == O_RDWR))
        return CAY_OK;
    return cay_fail(err, CAY_E_INVALID, EBADF, op, "fd",
                    "the descriptor is not open for this access", "open it for %s",
                    access == O_RDONLY ? "reading" : "writing");
}

int cay_files_read_to(cay_files *files, const char *path, int fd,
                      struct cay_stat *ret_stat, struct cay_error *err)
{
    static const char op[] = "files.read_to";
    AUTO_TARGET target = TARGET_NONE;
    AUTO_FD from = -1;
    struct stat st;
    uint64_t copied;

    TRY(files_check_descriptor(fd, O_WRONLY, op, err));
    TRY(target_open_for_reading(files, op, path, NULL, &target, &from, &st, err));
    int error = copy_bytes(from, fd, (uint64_t)st.st_size, &copied);
    if (error)
        return target_fail(&target, -error, err);
    if (copied < (uint64_t)st.st_size)
        return cay_fail(err, CAY_E_CHANGED, 0, op, path,
                        "the file became shorter while it was read",
                        "read it again when no process writes to it");
    st.st_uid = target.st.st_uid; /* as seen where the file is */
    st.st_gid = target.st.st_gid;
    if (ret_stat)
        stat_of(&st, ret_stat);
    return CAY_OK;
}

/* --- Descriptors -----------------------------------------------------------------------
 */

/* Reads and writes through a descriptor cannot be checked. */
static int check_rules(const cay_files *files, const struct target *target,
                       struct cay_error *err)
{
    const struct mount *mount = target_mount(files, target);

    if (!mount->read_approval && !mount->write_approval && !mount->limit_suffixes &&
        mount->max_file_bytes == CAY_NO_LIMIT)
        return CAY_OK;
    return cay_fail(err, CAY_E_UNSUPPORTED, 0, descriptor_op, target->path,
                    "the policy has rules here that a descriptor would bypass",
                    "use cay_files_read() and cay_files_write()");
}

/* Under its own name at once, as by open(2) with O_CREAT. */
static int create_empty(cay_files *files, const char *path, struct target *target,
                        struct cay_error *err)
{
    AUTO_PARENT parent = PARENT_NONE;
    AUTO_TEMP_FILE temp = TEMP_FILE_NONE;

    TRY(parent_open(files, target, true, &parent, err));
    int error = temp_file_open(target->fs, parent.fd, 0666, &temp);
    if (!error)
        error = temp_file_commit(&temp, parent.name, TEMP_FILE_NEW, false);
    if (error && error != -EEXIST) {
        parent_undo(&parent);
        return target_fail(target, -error, err);
    }
    target_done(target);
    TRY(target_find(files, descriptor_op, path, CAY_ACCESS_WRITE, TARGET_CHANGE, target,
                    err));
    return target_must_be_file(target, err);
}

static int open_descriptor(cay_files *files, const char *path, bool truncate, int *ret_fd,
                           struct cay_error *err)
{
    AUTO_TARGET target = TARGET_NONE;
    AUTO_FD fd = -1;

    TRY(target_find(files, descriptor_op, path, CAY_ACCESS_WRITE, TARGET_CHANGE, &target,
                    err));
    TRY(check_rules(files, &target, err));
    TRY(write_check_target(&target, err));
    if (target.fd < 0)
        TRY(create_empty(files, path, &target, err));
    TRY(target_open(&target, O_WRONLY, &fd, err));
    /* Clear the set-user-id bits, as write(2) does. */
    if (target.st.st_mode & (S_ISUID | S_ISGID))
        (void)!fchmod(fd, target.st.st_mode & 01777);
    if (truncate && ftruncate(fd, 0) != 0)
        return target_fail(&target, errno, err);
    *ret_fd = TAKE_FD(fd);
    return CAY_OK;
}

static int open_for_reading(cay_files *files, const char *path, int *ret_fd,
                            struct cay_error *err)
{
    AUTO_TARGET target = TARGET_NONE;

    TRY(target_find(files, descriptor_op, path, CAY_ACCESS_READ, TARGET_READ, &target,
                    err));
    TRY(check_rules(files, &target, err));
    TRY(target_must_be_file(&target, err));
    return target_open(&target, O_RDONLY, ret_fd, err);
}

static int open_directory(cay_files *files, const char *path, int *ret_fd,
                          struct cay_error *err)
{
    AUTO_TARGET target = TARGET_NONE;
    bool copied;

    TRY(target_find(files, descriptor_op, path, CAY_ACCESS_READ, TARGET_FOLLOW, &target,
                    err));
    TRY(check_rules(files, &target, err));
    TRY(target_must_be_directory(&target, err));
    int fd = target.fs->reopen(target.fs, target.fd, O_RDONLY | O_DIRECTORY, &copied);
    if (fd < 0)
        return target_fail(&target, -fd, err);
    *ret_fd = fd;
    return CAY_OK;
}

int cay_files_descriptor(cay_files *files, const char *path, enum cay_descriptor what,
                         int *ret_fd, struct cay_error *err)
{
    switch (what) {
    case CAY_DESCRIPTOR_READ:
        return open_for_reading(files, path, ret_fd, err);
    case CAY_DESCRIPTOR_WRITE:
    case CAY_DESCRIPTOR_UPDATE:
        return open_descriptor(files, path, what == CAY_DESCRIPTOR_WRITE, ret_fd, err);
    case CAY_DESCRIPTOR_DIRECTORY:
        return open_directory(files, path, ret_fd, err);
    }
    return cay_fail(err, CAY_E_INVALID, 0, descriptor_op, path,
                    "unknown type of descriptor", "use one of enum cay_descriptor");
}

int cay_files_reserve(cay_files *files, int fd, uint64_t offset, uint64_t bytes,
                      struct cay_error *err)
{
    static const char step[] = "files.reserve";
    struct stat st;

    if (fstat(fd, &st) != 0)
        return cay_fail_errno(err, errno, step, NULL);
    if (!S_ISREG(st.st_mode) || offset > INT64_MAX || bytes > INT64_MAX - offset)
        return cay_fail(err, CAY_E_INVALID, 0, step, NULL,
                        "the descriptor or the range is invalid",
                        "pass a regular file that is open for writing");
    int error = fs_take_room(files->fs, fd, offset, bytes);
    return error ? fs_fail(files->fs, -error, step, NULL, err) : CAY_OK;
}
