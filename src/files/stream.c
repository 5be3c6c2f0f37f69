/* SPDX-License-Identifier: Apache-2.0 */

/* Content that goes straight from one descriptor to another, never through memory as a
 * whole. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "files/copy-into.h"
#include "files/draft.h"
#include "files/handle.h"
#include "files/write.h"
#include "sys/copy.h"

static int check_descriptor(int fd, int access, const char *op, struct cay_error *err)
{
    int flags = fcntl(fd, F_GETFL);
    int mode = flags & O_ACCMODE;

    if (flags >= 0 && !(flags & O_PATH) && (mode == access || mode == O_RDWR))
        return CAY_OK;
    return cay_fail(err, CAY_E_INVALID, EBADF, op, "fd",
                    "the descriptor is not open for this", "open it for %s",
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

    int code = check_descriptor(fd, O_WRONLY, op, err);
    if (!code)
        code = target_open_for_reading(files, op, path, NULL, &target, &from, &st, err);
    if (code)
        return code;
    int error = copy_bytes(from, fd, (uint64_t)st.st_size, &copied);
    if (error)
        return target_fail(&target, -error, err);
    if (copied < (uint64_t)st.st_size)
        return cay_fail(err, CAY_E_CHANGED, 0, op, path,
                        "the file became shorter while it was read",
                        "read it again when nobody writes to it");
    st.st_uid = target.st.st_uid; /* as seen where the file is */
    st.st_gid = target.st.st_gid;
    if (ret_stat)
        stat_of(&st, ret_stat);
    return CAY_OK;
}

/* --- Writing --- */

struct source {
    int fd;
    bool keeps; /* CAY_WRITE_KEEP, and it is a file */
    struct stat st;
    uint64_t max; /* what the policy allows, and one more */
};

static int ask(cay_files *files, struct target *target, unsigned flags,
               struct cay_error *err)
{
    bool appends = flags & CAY_WRITE_APPEND;
    char summary[2 * PATH_MAX];

    if (!approval_wanted(files, target, CAY_ACCESS_WRITE))
        return CAY_OK;
    snprintf(summary, sizeof summary, "%s what comes from a stream to %s",
             appends ? "Append" : "Write", target->path);
    struct cay_approval shown = {.op = appends ? CAY_OP_APPEND : CAY_OP_WRITE,
                                 .summary = summary};
    return approve(files, &shown, target, CAY_ACCESS_WRITE, NULL, 0, err);
}

/* The draft as its source is; 0 or a negative errno. */
static int take_over(const struct draft *draft, const struct source *source)
{
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, source->st.st_mtim};
    const struct fs *fs = draft->fs;

    if (!source->keeps)
        return 0;
    int error = fs->set_mode(fs, draft->fd, source->st.st_mode & 0777);
    return error ? error : fs->set_times(fs, draft->fd, NULL, times);
}

/* Over what is there.  Where the policy has a limit, nothing is touched before it is
 * known how much is to come. */
static int write_over(const cay_files *files, struct target *target,
                      const struct source *source, unsigned flags, uint64_t *ret_bytes,
                      struct cay_error *err)
{
    AUTO_PARENT parent = PARENT_NONE;
    AUTO_DRAFT draft = DRAFT_NONE;

    if (source->max == UINT64_MAX)
        return write_stream(target, source->fd, UINT64_MAX, flags, ret_bytes, err);
    int code = parent_open(files, target, false, &parent, err);
    if (code)
        return code;
    int error = draft_open(target->fs, parent.fd, 0600, &draft);
    if (!error)
        error = copy_into(draft.fs, source->fd, draft.fd, source->max, ret_bytes);
    if (!error && lseek(draft.fd, 0, SEEK_SET) < 0)
        error = -errno;
    if (error)
        return target_fail(target, -error, err);
    uint64_t before = flags & CAY_WRITE_APPEND ? (uint64_t)target->st.st_size : 0;
    code = target_check_size(files, target, before + *ret_bytes, err);
    return code ? code
                : write_stream(target, draft.fd, *ret_bytes, flags, ret_bytes, err);
}

static int replace(const cay_files *files, const struct parent *parent,
                   struct target *target, const struct source *source, unsigned flags,
                   uint64_t *ret_bytes, struct cay_error *err)
{
    AUTO_DRAFT draft = DRAFT_NONE;

    int error = draft_open_like(parent->fd, target, 0, &draft);
    /* Only the file itself can keep its owner or attributes. */
    if (error == -EPERM && target->fd >= 0)
        return write_over(files, target, source, flags, ret_bytes, err);
    if (!error)
        error = copy_into(draft.fs, source->fd, draft.fd, source->max, ret_bytes);
    if (!error)
        error = take_over(&draft, source);
    if (error)
        return target_fail(target, -error, err);
    int code = target_check_size(files, target, *ret_bytes, err);
    return code ? code : write_commit(&draft, parent->name, target, flags, err);
}

static int write_all(const cay_files *files, struct target *target,
                     const struct source *source, unsigned flags, uint64_t *ret_bytes,
                     struct cay_error *err)
{
    AUTO_PARENT parent = PARENT_NONE;

    if (target->fd >= 0 && flags & (CAY_WRITE_IN_PLACE | CAY_WRITE_APPEND))
        return write_over(files, target, source, flags, ret_bytes, err);
    int code = parent_open(files, target, !(flags & CAY_WRITE_NO_PARENTS), &parent, err);
    if (code)
        return code;
    code = replace(files, &parent, target, source, flags, ret_bytes, err);
    if (code)
        parent_undo(&parent);
    return code;
}

static int take_options(const struct cay_write_options *options, const char *op,
                        struct cay_write_options *ret_known, bool *ret_keeps,
                        struct cay_error *err)
{
    struct cay_write_options given;
    int code = cay_take_struct(&given, sizeof given, options, op, err);

    if (code)
        return code;
    given.size = sizeof given;
    *ret_keeps = given.flags & CAY_WRITE_KEEP;
    given.flags &= ~(unsigned)CAY_WRITE_KEEP;
    return write_take_options(&given, op, ret_known, err);
}

int cay_files_write_from(cay_files *files, const char *path, int fd,
                         const struct cay_write_options *options, uint64_t *ret_bytes,
                         struct cay_error *err)
{
    static const char op[] = "files.write_from";
    struct cay_write_options known;
    struct source source = {.fd = fd, .max = UINT64_MAX};
    AUTO_TARGET target = TARGET_NONE;
    uint64_t bytes = 0;

    int code = take_options(options, op, &known, &source.keeps, err);
    if (!code)
        code = check_descriptor(fd, O_RDONLY, op, err);
    if (!code)
        code = write_find(files, op, path, 0, &known, &target, err);
    if (!code)
        code = ask(files, &target, known.flags, err);
    if (code)
        return code;
    if (fstat(fd, &source.st) != 0)
        return target_fail(&target, errno, err);
    source.keeps = source.keeps && S_ISREG(source.st.st_mode);
    int64_t limit = target_mount(files, &target)->max_file_bytes;
    if (limit >= 0)
        source.max = (uint64_t)limit + 1;
    code = write_all(files, &target, &source, known.flags, &bytes, err);
    if (!code && ret_bytes)
        *ret_bytes = bytes;
    return code;
}
