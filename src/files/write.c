/* SPDX-License-Identifier: Apache-2.0 */
#include "files/write.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "base/utf8.h"
#include "sys/copy.h"
#include "sys/io.h"

/* copy_bytes() keeps holes of more than HOLE_MIN bytes. */
enum {
    PIECE = 256 << 10,
    RESERVED = 1 << 20,
    FIRST_RESERVED = 64 << 10,
    HOLE_MIN = 256 << 10
};

/* --- Temporary files -------------------------------------------------------------------
 */

static int open_temp(const struct fs *fs, int dir, mode_t mode, int model, uint64_t room,
                     struct temp_file *ret_temp)
{
    *ret_temp = (struct temp_file){.fs = fs, .dir = dir};
    ret_temp->fd = fs->draft(fs, dir, mode, model, room, ret_temp->temp);
    return ret_temp->fd < 0 ? ret_temp->fd : 0;
}

int temp_file_open(const struct fs *fs, int dir, mode_t mode, struct temp_file *ret_temp)
{
    return open_temp(fs, dir, mode, -1, 0, ret_temp);
}

int temp_file_like(const struct temp_file *temp, const struct target *target)
{
    return temp->fs->like(temp->fs, temp->fd, target->fd);
}

int temp_file_commit(struct temp_file *temp, const char *name, enum temp_file_commit how,
                     bool durable)
{
    const struct fs *fs = temp->fs;
    AUTO_FD dir = -1;
    bool copied;

    if (durable) { /* what can fail does so before the name means the new file */
        dir = fs->reopen(fs, temp->dir, O_RDONLY | O_DIRECTORY, &copied);
        if (dir < 0)
            return dir;
        if (fsync(temp->fd) != 0)
            return -errno;
    }
    int error =
        fs->commit(fs, temp->fd, temp->dir, temp->temp, name, how == TEMP_FILE_REPLACE);
    if (!error)
        temp->temp[0] = '\0';
    if (error || !durable)
        return error;
    return fsync(dir) == 0 ? 0 : -errno;
}

void temp_file_done(struct temp_file *temp)
{
    if (temp->temp[0])
        (void)temp->fs->remove(temp->fs, temp->dir, temp->temp, 0);
    temp->temp[0] = '\0';
    if (temp->fd >= 0)
        (void)close(temp->fd);
    temp->fd = -1;
}

/* --- Copying between descriptors -------------------------------------------------------
 */

/* The size of the next piece of `from`, up to `most`; *ret_is_hole if it is a hole. */
static uint64_t next_piece(int from, uint64_t most, bool is_first, bool *ret_is_hole)
{
    uint64_t piece = is_first ? FIRST_RESERVED : RESERVED;
    struct stat st;
    off_t at = lseek(from, 0, SEEK_CUR);

    *ret_is_hole = false;
    if (at >= 0 && fstat(from, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > at) {
        off_t data = lseek(from, at, SEEK_DATA);
        off_t end = data < 0 ? st.st_size : data;
        *ret_is_hole = end - at > HOLE_MIN && most > HOLE_MIN;
        if (!*ret_is_hole && (data = lseek(from, at, SEEK_HOLE)) > at)
            end = data;
        piece = *ret_is_hole || end - at < RESERVED ? (uint64_t)(end - at) : RESERVED;
        (void)lseek(from, at, SEEK_SET);
    }
    return piece < most ? piece : most;
}

static int end_of(int fd, bool appends, uint64_t *ret_at)
{
    struct stat st;
    off_t at = appends ? fstat(fd, &st) == 0 ? st.st_size : -1 : lseek(fd, 0, SEEK_CUR);

    *ret_at = at < 0 ? 0 : (uint64_t)at;
    return at < 0 ? -errno : 0;
}

int write_copy(const struct fs *fs, int from, int to, uint64_t max, uint64_t *ret_copied)
{
    bool appends = fcntl(to, F_GETFL) & O_APPEND, is_hole;
    uint64_t at, copied, piece = 0, taken = 0;

    if (!fs->take_room)
        return copy_bytes(from, to, max, ret_copied);
    *ret_copied = 0;
    do {
        int error = end_of(to, appends, &at);
        piece = next_piece(from, max - *ret_copied, taken == 0 || appends, &is_hole);
        if (!error && !is_hole)
            error = fs_take_room(fs, to, at, piece);
        if (!error)
            error = copy_bytes(from, to, piece, &copied);
        if (error)
            return error;
        taken = is_hole ? taken : at + piece;
        *ret_copied += copied;
    } while (copied == piece && *ret_copied < max);
    if (appends || at + copied >= taken)
        return 0;
    return ftruncate(to, (off_t)(at + copied)) == 0 ? 0 : -errno;
}

/* --- Writing ---------------------------------------------------------------------------
 */

int write_take_options(const struct cay_write_options *options, const char *op,
                       unsigned allowed, struct cay_write_options *ret_known,
                       struct cay_error *err)
{
    TRY(cay_take_struct(ret_known, sizeof *ret_known, options, op, err));
    if (ret_known->flags & ~allowed)
        return cay_fail(err, CAY_E_UNSUPPORTED, 0, op, "flags", "unknown flags",
                        "the known ones are 0x%x", allowed);
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
    TRY(target_must_be_file(target, err));
    /* rename(2) checks only the permissions of the directory; those of the file count. */
    int error = target->write_error <= 0 ? target->write_error
                                         : target->fs->may_write(target->fs, target->fd);
    return error ? target_fail(target, -error, err) : CAY_OK;
}

int write_commit(struct temp_file *temp, const char *name, const struct target *target,
                 unsigned flags, struct cay_error *err)
{
    int error = temp_file_commit(
        temp, name, flags & CAY_WRITE_NEW ? TEMP_FILE_NEW : TEMP_FILE_REPLACE,
        flags & CAY_WRITE_DURABLE);

    return error ? target_fail(target, -error, err) : CAY_OK;
}

/* Reserves space before the first byte is overwritten, so that a full disk leaves the
 * file as it was, also one with holes.  File systems without fallocate(2) go without. */
static int reserve(const struct target *target, int fd, uint64_t len)
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
    int error = reserve(target, fd, len);

    if (!error)
        error = io_write(fd, data, len);
    if (!error && ftruncate(fd, (off_t)len) != 0)
        error = -errno;
    return error;
}

static int copy_over(const struct target *target, int fd, int from, uint64_t bytes)
{
    AUTO_FREE char *piece = malloc(PIECE);
    int error = piece ? reserve(target, fd, bytes) : -ENOMEM;

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

/* Clears the set-user-id bits, as write(2) does for every user but root: for a sandbox it
 * may be root that writes. */
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

    TRY(open_to_write(target, 0, &fd, err));
    int error = copy_over(target, fd, from, bytes);
    if (!error && flags & CAY_WRITE_DURABLE && fsync(fd) != 0)
        error = -errno;
    return error ? target_fail(target, -error, err) : CAY_OK;
}

/* After a failure, removes what was appended as far as the file still ends with it: other
 * processes may append at the same time.  *ret_left bytes before their data stay. */
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
                    "%zu of the %zu bytes were appended and stay, since another process "
                    "appended after them",
                    left, len);
}

static int write_existing(const struct target *target, const void *data, size_t len,
                          unsigned flags, struct cay_error *err)
{
    AUTO_FD fd = -1;
    bool appends = flags & CAY_WRITE_APPEND;
    size_t left = 0;

    TRY(open_to_write(target, appends ? O_APPEND : 0, &fd, err));
    int error = appends ? fs_take_room(target->fs, fd, (uint64_t)target->st.st_size, len)
                        : overwrite(target, fd, data, len);
    if (!error && appends)
        error = append(fd, data, len, &left);
    if (!error && flags & CAY_WRITE_DURABLE && fsync(fd) != 0)
        error = -errno;
    return error ? fail_append(target, error, left, len, err) : CAY_OK;
}

/* The bytes between the offset and the end of a file; 0 if unknown. */
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

/* Writes up to `max` bytes of `from` over the target's file, or appends them. */
static int write_stream(const struct target *target, int from, uint64_t max,
                        unsigned flags, uint64_t *ret_bytes, struct cay_error *err)
{
    AUTO_FD fd = -1;
    bool appends = flags & CAY_WRITE_APPEND;

    TRY(open_to_write(target, appends ? O_APPEND : 0, &fd, err));
    /* A file that is appended to itself has no end. */
    if (appends && is_same_file(from, fd) && left_in(from) < max)
        max = left_in(from);
    int error = appends ? 0 : reserve(target, fd, left_in(from));
    if (!error)
        error = write_copy(target->fs, from, fd, max, ret_bytes);
    if (!error && !appends && ftruncate(fd, (off_t)*ret_bytes) != 0)
        error = -errno;
    if (!error && flags & CAY_WRITE_DURABLE && fsync(fd) != 0)
        error = -errno;
    return error ? target_fail(target, -error, err) : CAY_OK;
}

/* What is written: the bytes at `data`, or else those that `fd` has. */
struct source {
    const void *data;
    uint64_t len; /* of the data, or of the file that is copied; 0 if unknown */
    int fd;
    bool keeps; /* CAY_WRITE_KEEP, and it is a file */
    struct stat st;
    uint64_t max; /* one byte more than the policy allows */
};

static int ask(cay_files *files, struct target *target, const struct source *source,
               unsigned flags, struct cay_error *err)
{
    const char *verb = flags & CAY_WRITE_APPEND ? "Append" : "Write";
    char summary[2 * PATH_MAX];
    struct utf8_scan scan = {.count = UTF8_CHARS};
    struct cay_approval shown = {
        .op = flags & CAY_WRITE_APPEND ? CAY_OP_APPEND : CAY_OP_WRITE,
        .summary = summary,
    };

    if (!approval_wanted(files, target, CAY_ACCESS_WRITE))
        return CAY_OK;
    if (source->fd >= 0) {
        snprintf(summary, sizeof summary, "%s a stream to %s", verb, target->path);
    } else {
        shown.after = source->data;
        shown.after_len = source->len;
        bool text =
            utf8_scan(&scan, source->data, source->len) && utf8_scan_complete(&scan);
        snprintf(summary, sizeof summary, "%s %" PRIu64 " %s to %s", verb,
                 text ? scan.chars : source->len, text ? "chars" : "bytes", target->path);
    }
    return approve(files, &shown, target, CAY_ACCESS_WRITE, NULL, 0, err);
}

/* Over an existing file.  If the policy has a limit, the whole stream goes to a temporary
 * file first, so that one that is too long changes nothing. */
static int write_over(const cay_files *files, struct target *target,
                      const struct source *source, unsigned flags, uint64_t *ret_bytes,
                      struct cay_error *err)
{
    AUTO_PARENT parent = PARENT_NONE;
    AUTO_TEMP_FILE temp = TEMP_FILE_NONE;

    if (source->fd < 0)
        return write_existing(target, source->data, source->len, flags, err);
    if (source->max == UINT64_MAX)
        return write_stream(target, source->fd, UINT64_MAX, flags, ret_bytes, err);
    TRY(parent_open(files, target, false, &parent, err));
    int error = temp_file_open(target->fs, parent.fd, 0600, &temp);
    if (!error)
        error = write_copy(temp.fs, source->fd, temp.fd, source->max, ret_bytes);
    if (!error && lseek(temp.fd, 0, SEEK_SET) < 0)
        error = -errno;
    if (error)
        return target_fail(target, -error, err);
    uint64_t before = flags & CAY_WRITE_APPEND ? (uint64_t)target->st.st_size : 0;
    TRY(target_check_size(files, target, before + *ret_bytes, err));
    return write_stream(target, temp.fd, *ret_bytes, flags, ret_bytes, err);
}

/* Content, and of a file that is copied also mode and time; 0 or a negative errno. */
static int fill(const struct temp_file *temp, const struct source *source,
                uint64_t *ret_bytes)
{
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, source->st.st_mtim};
    const struct fs *fs = temp->fs;

    *ret_bytes = source->len;
    TRY(source->fd >= 0 ? write_copy(fs, source->fd, temp->fd, source->max, ret_bytes)
                        : fs_take_room(fs, temp->fd, 0, source->len));
    if (source->fd < 0)
        TRY(io_write(temp->fd, source->data, source->len));
    if (!source->keeps)
        return 0;
    TRY(fs->set_mode(fs, temp->fd, source->st.st_mode & 0777));
    return fs->set_times(fs, temp->fd, NULL, times);
}

static int check_whole(const struct target *target, const struct source *source,
                       uint64_t bytes, struct cay_error *err)
{
    if (!source->keeps || bytes >= source->len)
        return CAY_OK;
    return cay_fail(err, CAY_E_CHANGED, 0, target->op, target->path,
                    "the source became shorter while it was copied",
                    "copy again when no process writes to it");
}

static int replace(const cay_files *files, const struct parent *parent,
                   struct target *target, const struct source *source, unsigned flags,
                   uint64_t *ret_bytes, struct cay_error *err)
{
    AUTO_TEMP_FILE temp = TEMP_FILE_NONE;

    int error = open_temp(target->fs, parent->fd, 0666, target->fd,
                          source->fd < 0 ? source->len : 0, &temp);
    /* Only the file itself can keep its owner or attributes. */
    if (error == -EPERM && target->fd >= 0)
        return write_over(files, target, source, flags, ret_bytes, err);
    if (!error)
        error = fill(&temp, source, ret_bytes);
    if (error)
        return target_fail(target, -error, err);
    TRY(target_check_size(files, target, *ret_bytes, err));
    TRY(check_whole(target, source, *ret_bytes, err));
    return write_commit(&temp, parent->name, target, flags, err);
}

/* Atomically unless the flags say otherwise. */
static int write_all(const cay_files *files, struct target *target,
                     const struct source *source, unsigned flags, uint64_t *ret_bytes,
                     struct cay_error *err)
{
    AUTO_PARENT parent = PARENT_NONE;

    if (target->fd >= 0 && flags & (CAY_WRITE_IN_PLACE | CAY_WRITE_APPEND))
        return write_over(files, target, source, flags, ret_bytes, err);
    TRY(parent_open(files, target, !(flags & CAY_WRITE_NO_PARENTS), &parent, err));
    int code = replace(files, &parent, target, source, flags, ret_bytes, err);
    if (code)
        parent_undo(&parent);
    return code;
}

/* Looks up the target of a write of `len` bytes, with all checks in the documented order.
 */
static int write_find(cay_files *files, const char *op, const char *path, uint64_t len,
                      const struct cay_write_options *options, struct target *ret_target,
                      struct cay_error *err)
{
    TRY(target_find(files, op, path, CAY_ACCESS_WRITE, TARGET_CHANGE, ret_target, err));
    TRY(target_check_suffix(files, ret_target, err));
    uint64_t before = options->flags & CAY_WRITE_APPEND && ret_target->fd >= 0
                          ? (uint64_t)ret_target->st.st_size
                          : 0;
    TRY(target_check_size(files, ret_target, before + len, err));
    TRY(write_check_target(ret_target, err));
    if (options->flags & CAY_WRITE_NEW && ret_target->fd >= 0)
        return target_fail(ret_target, EEXIST, err);
    TRY(target_check_pin(files, ret_target, options->pin, err));
    bool is_over =
        ret_target->fd >= 0 && options->flags & (CAY_WRITE_IN_PLACE | CAY_WRITE_APPEND);
    struct stat dir;
    if (!is_over && approval_wanted(files, ret_target, CAY_ACCESS_WRITE))
        TRY(parent_check(files, ret_target, !(options->flags & CAY_WRITE_NO_PARENTS),
                         &dir, err));
    return CAY_OK;
}

int cay_files_write(cay_files *files, const char *path, const void *data, size_t len,
                    const struct cay_write_options *options, struct cay_error *err)
{
    static const char op[] = "files.write";
    struct cay_write_options known;
    const struct source source = {.data = data, .len = len, .fd = -1};
    AUTO_TARGET target = TARGET_NONE;
    uint64_t bytes = 0;

    TRY(write_take_options(options, op, WRITE_FLAGS, &known, err));
    TRY(write_find(files, op, path, len, &known, &target, err));
    TRY(ask(files, &target, &source, known.flags, err));
    return write_all(files, &target, &source, known.flags, &bytes, err);
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

    TRY(write_take_options(options, op, WRITE_FLAGS | CAY_WRITE_KEEP, &known, err));
    TRY(files_check_descriptor(fd, O_RDONLY, op, err));
    TRY(write_find(files, op, path, 0, &known, &target, err));
    if (fstat(fd, &source.st) != 0)
        return target_fail(&target, errno, err);
    source.keeps = known.flags & CAY_WRITE_KEEP && S_ISREG(source.st.st_mode);
    source.len = fs_is_pseudo(fd) ? 0 : left_in(fd); /* sizes there mean nothing */
    int64_t limit = target_mount(files, &target)->max_file_bytes;
    if (limit >= 0)
        source.max = (uint64_t)limit + 1;
    TRY(ask(files, &target, &source, known.flags, err));
    TRY(write_all(files, &target, &source, known.flags, &bytes, err));
    TRY(check_whole(&target, &source, bytes, err));
    if (ret_bytes)
        *ret_bytes = bytes;
    return CAY_OK;
}

int cay_files_write_many(cay_files *files, struct cay_write_item *items, size_t count,
                         const struct cay_write_options *options, struct cay_error *err)
{
    struct cay_write_options known;

    TRY(write_take_options(options, "files.write_many", WRITE_FLAGS, &known, err));
    for (size_t i = 0; i < count; i++) {
        items[i].error = (struct cay_error){0};
        if (cay_files_write(files, items[i].path, items[i].data, items[i].len, options,
                            &items[i].error) == CAY_E_NO_MEMORY)
            return cay_fail_memory(err, "files.write_many");
    }
    return CAY_OK;
}
