/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "files/draft.h"
#include "files/handle.h"
#include "files/write.h"

static const char op[] = "files.descriptor";

/* Nobody looks at what goes through a descriptor. */
static int check_rules(const cay_files *files, const struct target *target,
                       struct cay_error *err)
{
    const struct mount *mount = target_mount(files, target);

    if (!mount->read_approval && !mount->write_approval && !mount->limit_suffixes &&
        mount->max_file_bytes == CAY_NO_LIMIT)
        return CAY_OK;
    return cay_fail(err, CAY_E_UNSUPPORTED, 0, op, target->path,
                    "here the policy looks at what is read or written",
                    "use the calls that read and write");
}

/* Under its own name from the start, as open(2) with O_CREAT would do it. */
static int make_empty(cay_files *files, const char *path, struct target *target,
                      struct cay_error *err)
{
    AUTO_PARENT parent = PARENT_NONE;
    AUTO_DRAFT draft = DRAFT_NONE;

    int code = parent_open(files, target, true, &parent, err);
    if (code)
        return code;
    int error = draft_open(target->fs, parent.fd, 0666, &draft);
    if (!error)
        error = draft_commit(&draft, parent.name, DRAFT_NEW, false);
    if (error && error != -EEXIST) {
        parent_undo(&parent);
        return target_fail(target, -error, err);
    }
    target_done(target);
    code = target_find(files, op, path, CAY_ACCESS_WRITE, TARGET_CHANGE, target, err);
    return code ? code : target_must_be_file(target, err);
}

static int open_to_write(cay_files *files, const char *path, bool truncate, int *ret_fd,
                         struct cay_error *err)
{
    AUTO_TARGET target = TARGET_NONE;
    AUTO_FD fd = -1;

    int code =
        target_find(files, op, path, CAY_ACCESS_WRITE, TARGET_CHANGE, &target, err);
    if (!code)
        code = check_rules(files, &target, err);
    if (!code)
        code = write_check_target(&target, err);
    if (!code && target.fd < 0)
        code = make_empty(files, path, &target, err);
    if (!code)
        code = target_open(&target, O_WRONLY, &fd, err);
    if (code)
        return code;
    /* New content is not to run as somebody else. */
    if (target.st.st_mode & (S_ISUID | S_ISGID))
        (void)!fchmod(fd, target.st.st_mode & 01777);
    if (truncate && ftruncate(fd, 0) != 0)
        return target_fail(&target, errno, err);
    *ret_fd = TAKE_FD(fd);
    return CAY_OK;
}

static int open_to_read(cay_files *files, const char *path, int *ret_fd,
                        struct cay_error *err)
{
    AUTO_TARGET target = TARGET_NONE;

    int code = target_find(files, op, path, CAY_ACCESS_READ, TARGET_READ, &target, err);
    if (!code)
        code = check_rules(files, &target, err);
    if (!code)
        code = target_must_be_file(&target, err);
    return code ? code : target_open(&target, O_RDONLY, ret_fd, err);
}

static int open_directory(cay_files *files, const char *path, int *ret_fd,
                          struct cay_error *err)
{
    AUTO_TARGET target = TARGET_NONE;
    bool copied;

    int code = target_find(files, op, path, CAY_ACCESS_READ, TARGET_FOLLOW, &target, err);
    if (!code)
        code = check_rules(files, &target, err);
    if (!code)
        code = target_must_be_directory(&target, err);
    if (code)
        return code;
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
        return open_to_read(files, path, ret_fd, err);
    case CAY_DESCRIPTOR_WRITE:
    case CAY_DESCRIPTOR_UPDATE:
        return open_to_write(files, path, what == CAY_DESCRIPTOR_WRITE, ret_fd, err);
    case CAY_DESCRIPTOR_DIRECTORY:
        return open_directory(files, path, ret_fd, err);
    }
    return cay_fail(err, CAY_E_INVALID, 0, op, path,
                    "there is no such kind of descriptor",
                    "use one of enum cay_descriptor");
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
