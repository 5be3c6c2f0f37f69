/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "base/utf8.h"
#include "files/draft.h"
#include "files/handle.h"
#include "files/write.h"

#include "files/copy-into.h"
#include "sys/io.h"

enum { PIECE = 256 << 10 };

static const unsigned all_flags = CAY_WRITE_IN_PLACE | CAY_WRITE_APPEND | CAY_WRITE_NEW |
                                  CAY_WRITE_DURABLE | CAY_WRITE_NO_PARENTS;

int write_take_options(const struct cay_write_options *options, const char *op,
                       struct cay_write_options *ret_known, struct cay_error *err)
{
    int code = cay_take_struct(ret_known, sizeof *ret_known, options, op, err);

    if (code)
        return code;
    if (ret_known->flags & ~all_flags)
        return cay_fail(err, CAY_E_UNSUPPORTED, 0, op, "flags", "unknown flags",
                        "the known ones are 0x%x", all_flags);
    unsigned way =
        ret_known->flags & (CAY_WRITE_IN_PLACE | CAY_WRITE_APPEND | CAY_WRITE_NEW);
    if (way & (way - 1))
        return cay_fail(err, CAY_E_INVALID, 0, op, "flags",
                        "in place, append and new exclude each other",
                        "choose one of them");
    return CAY_OK;
}

int write_check_target(const struct target *target, struct cay_error *err)
{
    if (!*target->rel)
        return target_fail(target, EISDIR, err);
    if (target->fd < 0)
        return CAY_OK;
    int code = target_must_be_file(target, err);
    if (code)
        return code;
    /* Replacing a name asks only for the directory's permission; the file's own counts.
     */
    int error = target->write_error <= 0 ? target->write_error
                                         : target->fs->may_write(target->fs, target->fd);
    return error ? target_fail(target, -error, err) : CAY_OK;
}

int write_commit(struct draft *draft, const char *name, const struct target *target,
                 unsigned flags, struct cay_error *err)
{
    int error =
        draft_commit(draft, name, flags & CAY_WRITE_NEW ? DRAFT_NEW : DRAFT_REPLACE,
                     flags & CAY_WRITE_DURABLE);

    return error ? target_fail(target, -error, err) : CAY_OK;
}

/* The room is taken before the first byte is overwritten, so that a full disk leaves the
 * file as it was, also one with holes; file systems that cannot do that say so and go
 * without. */
static int take_room(const struct target *target, int fd, uint64_t len)
{
    const struct stat *st = &target->st;
    bool is_dense = (uint64_t)st->st_blocks * 512 >= (uint64_t)st->st_size;
    int error;

    if (len == 0 || (is_dense && len <= (uint64_t)st->st_size))
        return 0;
    error = fs_take_room(target->fs, fd, 0, len);
    if (error)
        return error;
    do
        error = fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)len) == 0 ? 0 : errno;
    while (error == EINTR);
    return error == EOPNOTSUPP ? 0 : -error;
}

static int overwrite(const struct target *target, int fd, const void *data, size_t len)
{
    int error = take_room(target, fd, len);

    if (!error)
        error = io_write(fd, data, len);
    if (!error && ftruncate(fd, (off_t)len) != 0)
        error = -errno;
    return error;
}

static int copy_over(const struct target *target, int fd, int from, uint64_t bytes)
{
    AUTO_FREE char *piece = malloc(PIECE);
    int error = piece ? take_room(target, fd, bytes) : -ENOMEM;

    for (uint64_t at = 0; !error && at < bytes;) {
        ssize_t got = io_pread(from, piece, bytes - at < PIECE ? bytes - at : PIECE, at);
        if (got <= 0)
            return got < 0 ? (int)got : -EIO;
        error = io_write(fd, piece, (size_t)got);
        at += (uint64_t)got;
    }
    if (!error && ftruncate(fd, (off_t)bytes) != 0)
        error = -errno;
    return error;
}

/* New content is not to run as somebody else.  The kernel sees to that, but not for root,
 * and it is root's library that writes what is in a sandbox. */
static int open_to_write(const struct target *target, int flags, int *ret_fd,
                         struct cay_error *err)
{
    int code = target_open(target, O_WRONLY | flags, ret_fd, err);

    if (!code && target->st.st_mode & (S_ISUID | S_ISGID))
        (void)!fchmod(*ret_fd, target->st.st_mode & 01777);
    return code;
}

int write_in_place(const struct target *target, int from, uint64_t bytes, unsigned flags,
                   struct cay_error *err)
{
    AUTO_FD fd = -1;

    int code = open_to_write(target, 0, &fd, err);
    if (code)
        return code;
    int error = copy_over(target, fd, from, bytes);
    if (!error && flags & CAY_WRITE_DURABLE && fsync(fd) != 0)
        error = -errno;
    return error ? target_fail(target, -error, err) : CAY_OK;
}

/* What was added before a failure is taken back as far as the file still ends with it:
 * others may add at the same time, and what is theirs is not ours to cut off.  What stays
 * of ours then stands before something of theirs, *ret_left bytes. */
static int append(int fd, const char *data, size_t len, size_t *ret_left)
{
    size_t done = 0, last = 0; /* `last`: those at `end`, in one piece */
    off_t end = -1;
    struct stat now;

    *ret_left = 0;
    while (done < len) {
        ssize_t put = write(fd, data + done, len - done);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            break;
        done += (size_t)put;
        off_t before = end;
        if (done < len && (end = lseek(fd, 0, SEEK_CUR)) < 0)
            return -errno;
        last = end - put == before ? last + (size_t)put : (size_t)put;
    }
    if (done == len)
        return 0;
    int error = -errno;
    bool is_at_end = done > 0 && fstat(fd, &now) == 0 && now.st_size == end;
    *ret_left = is_at_end && ftruncate(fd, end - (off_t)last) == 0 ? done - last : done;
    return error;
}

static int fail_append(const struct target *target, int error, size_t left, size_t len,
                       struct cay_error *err)
{
    struct cay_error why;
    int code = target_fail(target, -error, &why);

    if (left == 0)
        return target_fail(target, -error, err);
    return cay_fail(err, code, why.sys_errno, target->op, target->path, why.message,
                    "%zu of the %zu bytes were added and stay, since something else was "
                    "added after them",
                    left, len);
}

static int write_existing(const struct target *target, const void *data, size_t len,
                          unsigned flags, struct cay_error *err)
{
    AUTO_FD fd = -1;
    bool appends = flags & CAY_WRITE_APPEND;
    size_t left = 0;

    int code = open_to_write(target, appends ? O_APPEND : 0, &fd, err);
    if (code)
        return code;
    int error = appends ? fs_take_room(target->fs, fd, (uint64_t)target->st.st_size, len)
                        : overwrite(target, fd, data, len);
    if (!error && appends)
        error = append(fd, data, len, &left);
    if (!error && flags & CAY_WRITE_DURABLE && fsync(fd) != 0)
        error = -errno;
    return error ? fail_append(target, error, left, len, err) : CAY_OK;
}

/* -EPERM from draft_like(): only the file itself can keep its owner or attributes. */
static int replace(const struct parent *parent, const struct target *target,
                   const void *data, size_t len, unsigned flags, struct cay_error *err)
{
    AUTO_DRAFT draft = DRAFT_NONE;

    int error = draft_open_like(parent->fd, target, len, &draft);
    if (error == -EPERM && target->fd >= 0)
        return write_existing(target, data, len, flags, err);
    if (!error)
        error = fs_take_room(draft.fs, draft.fd, 0, len);
    if (!error)
        error = io_write(draft.fd, data, len);
    if (error)
        return target_fail(target, -error, err);
    return write_commit(&draft, parent->name, target, flags, err);
}

/* Atomically unless the flags say otherwise. */
static int write_content(const cay_files *files, struct target *target, const void *data,
                         size_t len, unsigned flags, struct cay_error *err)
{
    AUTO_PARENT parent = PARENT_NONE;

    if (target->fd >= 0 && flags & (CAY_WRITE_IN_PLACE | CAY_WRITE_APPEND))
        return write_existing(target, data, len, flags, err);
    int code = parent_open(files, target, !(flags & CAY_WRITE_NO_PARENTS), &parent, err);
    if (code)
        return code;
    code = replace(&parent, target, data, len, flags, err);
    if (code)
        parent_undo(&parent);
    return code;
}

/* As many bytes as a file still has; 0 if that cannot be told. */
static uint64_t left_in(int fd)
{
    struct stat st;
    off_t at = lseek(fd, 0, SEEK_CUR);

    return at >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > at
               ? (uint64_t)(st.st_size - at)
               : 0;
}

static bool is_same_file(int one, int other)
{
    struct stat a, b;

    return fstat(one, &a) == 0 && fstat(other, &b) == 0 && a.st_dev == b.st_dev &&
           a.st_ino == b.st_ino;
}

int write_stream(const struct target *target, int from, uint64_t max, unsigned flags,
                 uint64_t *ret_bytes, struct cay_error *err)
{
    AUTO_FD fd = -1;
    bool appends = flags & CAY_WRITE_APPEND;

    int code = open_to_write(target, appends ? O_APPEND : 0, &fd, err);
    if (code)
        return code;
    /* The end of a file that is added to itself would never be reached. */
    if (appends && is_same_file(from, fd) && left_in(from) < max)
        max = left_in(from);
    int error = appends ? 0 : take_room(target, fd, left_in(from));
    if (!error)
        error = copy_into(target->fs, from, fd, max, ret_bytes);
    if (!error && !appends && ftruncate(fd, (off_t)*ret_bytes) != 0)
        error = -errno;
    if (!error && flags & CAY_WRITE_DURABLE && fsync(fd) != 0)
        error = -errno;
    return error ? target_fail(target, -error, err) : CAY_OK;
}

static int ask(cay_files *files, struct target *target, const void *data, size_t len,
               unsigned flags, struct cay_error *err)
{
    bool appends = flags & CAY_WRITE_APPEND;
    char summary[2 * PATH_MAX];
    struct utf8_scan scan = {.count = UTF8_CHARS};

    if (!approval_wanted(files, target, CAY_ACCESS_WRITE))
        return CAY_OK;
    bool text = utf8_scan(&scan, data, len) && utf8_scan_complete(&scan);
    snprintf(summary, sizeof summary, "%s %llu %s to %s", appends ? "Append" : "Write",
             (unsigned long long)(text ? scan.chars : len), text ? "chars" : "bytes",
             target->path);
    struct cay_approval shown = {
        .op = appends ? CAY_OP_APPEND : CAY_OP_WRITE,
        .summary = summary,
        .after = data,
        .after_len = len,
    };
    return approve(files, &shown, target, CAY_ACCESS_WRITE, NULL, 0, err);
}

int write_find(cay_files *files, const char *op, const char *path, uint64_t len,
               const struct cay_write_options *options, struct target *ret_target,
               struct cay_error *err)
{
    int code =
        target_find(files, op, path, CAY_ACCESS_WRITE, TARGET_CHANGE, ret_target, err);
    if (!code)
        code = target_check_suffix(files, ret_target, err);
    if (code)
        return code;
    uint64_t before = options->flags & CAY_WRITE_APPEND && ret_target->fd >= 0
                          ? (uint64_t)ret_target->st.st_size
                          : 0;
    code = target_check_size(files, ret_target, before + len, err);
    if (!code)
        code = write_check_target(ret_target, err);
    if (!code && options->flags & CAY_WRITE_NEW && ret_target->fd >= 0)
        code = target_fail(ret_target, EEXIST, err);
    if (!code)
        code = target_check_pin(files, ret_target, options->pin, err);
    bool is_over =
        ret_target->fd >= 0 && options->flags & (CAY_WRITE_IN_PLACE | CAY_WRITE_APPEND);
    struct stat dir;
    if (!code && !is_over && approval_wanted(files, ret_target, CAY_ACCESS_WRITE))
        code = parent_check(files, ret_target, !(options->flags & CAY_WRITE_NO_PARENTS),
                            &dir, err);
    return code;
}

int cay_files_write(cay_files *files, const char *path, const void *data, size_t len,
                    const struct cay_write_options *options, struct cay_error *err)
{
    static const char op[] = "files.write";
    struct cay_write_options known;
    AUTO_TARGET target = TARGET_NONE;

    int code = write_take_options(options, op, &known, err);
    if (!code)
        code = write_find(files, op, path, len, &known, &target, err);
    if (!code)
        code = ask(files, &target, data, len, known.flags, err);
    if (!code)
        code = write_content(files, &target, data, len, known.flags, err);
    return code;
}

int cay_files_write_many(cay_files *files, struct cay_write_item *items, size_t count,
                         const struct cay_write_options *options, struct cay_error *err)
{
    struct cay_write_options known;
    int code = write_take_options(options, "files.write_many", &known, err);

    if (code)
        return code;
    for (size_t i = 0; i < count; i++) {
        items[i].error = (struct cay_error){0};
        if (cay_files_write(files, items[i].path, items[i].data, items[i].len, options,
                            &items[i].error) == CAY_E_NO_MEMORY)
            return cay_fail_memory(err, "files.write_many");
    }
    return CAY_OK;
}
