/* SPDX-License-Identifier: Apache-2.0 */

/* Creates a template from a directory.  Other file systems are left out, so that a copy
 * of "/" does not include /proc; so are devices, sockets and FIFOs. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "native/template/template.h"
#include "sys/copy.h"
#include "sys/path.h"

static const char op[] = TEMPLATE_OP;

/* A file with several hard links, and its first path below the root. */
struct original {
    dev_t dev;
    ino_t ino;
    char *path;
};

struct copying {
    struct template_draft *draft;
    dev_t dev;        /* of the source */
    struct stat self; /* the draft: a copy must not recurse into itself */
    struct original *originals;
    size_t count, room; /* open addressing; room is a power of two */
    char path[PATH_MAX];
};

/* --- Hard links --- */

static struct original *find(struct original *table, size_t room, const struct stat *st)
{
    size_t at = (size_t)(st->st_ino * 0x9E3779B97F4A7C15u) & (room - 1);

    while (table[at].path && (table[at].ino != st->st_ino || table[at].dev != st->st_dev))
        at = (at + 1) & (room - 1);
    return &table[at];
}

static bool grow(struct copying *copying)
{
    size_t room = copying->room ? 2 * copying->room : 256;
    struct original *table = calloc(room, sizeof *table);

    if (!table)
        return false;
    for (size_t i = 0; i < copying->room; i++) {
        const struct original *old = &copying->originals[i];
        const struct stat st = {.st_dev = old->dev, .st_ino = old->ino};
        if (old->path)
            *find(table, room, &st) = *old;
    }
    free(copying->originals);
    copying->originals = table;
    copying->room = room;
    return true;
}

static void forget(struct copying *copying)
{
    for (size_t i = 0; i < copying->room; i++)
        free(copying->originals[i].path);
    free(copying->originals);
}

/* The slot of this file, with a path if it was copied already; NULL if memory is
 * exhausted. */
static struct original *look_up(struct copying *copying, const struct stat *st)
{
    if (2 * copying->count >= copying->room && !grow(copying))
        return NULL;
    return find(copying->originals, copying->room, st);
}

/* --- Entries --- */

static int fail(const struct copying *copying, int sys_errno, struct cay_error *err)
{
    return cay_fail_errno(err, sys_errno, op, copying->path);
}

static unsigned clamp_id(unsigned id)
{
    return id <= UINT16_MAX ? id : TEMPLATE_NOBODY;
}

static int copy_file(const struct copying *copying, int held, const struct stat *st,
                     int to_dir, const char *name, struct cay_error *err)
{
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, st->st_mtim};
    AUTO_FD from = path_reopen(held, O_RDONLY);
    uint64_t copied;

    if (from < 0)
        return fail(copying, -from, err);
    AUTO_FD to =
        openat(to_dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    int error = to < 0 ? -errno : copy_bytes(from, to, (uint64_t)st->st_size, &copied);
    if (!error && (fchown(to, clamp_id(st->st_uid), clamp_id(st->st_gid)) != 0 ||
                   fchmod(to, st->st_mode & 07777) != 0 || futimens(to, times) != 0))
        error = -errno;
    return error ? fail(copying, -error, err) : CAY_OK;
}

static int add_file(struct copying *copying, int held, const struct stat *st, int to_dir,
                    const char *name, struct cay_error *err)
{
    struct template_draft *draft = copying->draft;
    struct original *original = NULL;

    if (st->st_nlink > 1) {
        original = look_up(copying, st);
        if (!original)
            return cay_fail_memory(err, op);
        if (original->path)
            return linkat(draft->root, original->path, to_dir, name, 0) == 0
                       ? CAY_OK
                       : fail(copying, errno, err);
    }
    draft->bytes += (uint64_t)st->st_size;
    if (draft->bytes > TEMPLATE_BYTES_MAX)
        return cay_fail(err, CAY_E_LIMIT, 0, op, copying->path,
                        "the directory is too large for a template",
                        "the limit is %llu bytes",
                        (unsigned long long)TEMPLATE_BYTES_MAX);
    int code = copy_file(copying, held, st, to_dir, name, err);
    if (code || !original)
        return code;
    *original = (struct original){st->st_dev, st->st_ino, strdup(copying->path)};
    if (!original->path)
        return cay_fail_memory(err, op);
    copying->count++;
    return CAY_OK;
}

static int add_link(const struct copying *copying, int held, const struct stat *st,
                    int to_dir, const char *name, struct cay_error *err)
{
    char target[PATH_MAX];
    ssize_t len = readlinkat(held, "", target, sizeof target);

    if (len <= 0 || (size_t)len >= sizeof target)
        return fail(copying, len < 0 ? errno : ENAMETOOLONG, err);
    target[len] = '\0';
    if (symlinkat(target, to_dir, name) != 0 ||
        fchownat(to_dir, name, clamp_id(st->st_uid), clamp_id(st->st_gid),
                 AT_SYMLINK_NOFOLLOW) != 0)
        return fail(copying, errno, err);
    return CAY_OK;
}

static int copy_directory(struct copying *copying, int from, int to, unsigned depth,
                          struct cay_error *err);

static int add_directory(struct copying *copying, int held, const struct stat *st,
                         int to_dir, const char *name, unsigned depth,
                         struct cay_error *err)
{
    int code = CAY_OK;

    if (mkdirat(to_dir, name, 0700) != 0)
        return fail(copying, errno, err);
    AUTO_FD to = path_open(to_dir, name, O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
    if (to < 0)
        return fail(copying, -to, err);
    bool is_self =
        st->st_dev == copying->self.st_dev && st->st_ino == copying->self.st_ino;
    if (st->st_dev == copying->dev && !is_self)
        code = copy_directory(copying, held, to, depth + 1, err);
    if (!code && (fchown(to, clamp_id(st->st_uid), clamp_id(st->st_gid)) != 0 ||
                  fchmod(to, st->st_mode & 07777) != 0))
        code = fail(copying, errno, err);
    return code;
}

/* Even root cannot stat a FUSE file system of another user, or one whose server is
 * gone. */
static bool is_mounted(int from, const char *name)
{
    AUTO_FD fd =
        path_open(from, name, O_PATH | O_NOFOLLOW, 0, RESOLVE_BENEATH | RESOLVE_NO_XDEV);

    return fd == -EXDEV;
}

static int add(struct copying *copying, int from, int to, const char *name,
               unsigned depth, struct cay_error *err)
{
    struct stat st;
    AUTO_FD held = path_open(from, name, O_PATH | O_NOFOLLOW, 0, RESOLVE_BENEATH);

    if (held == -ENOENT) /* removed meanwhile */
        return CAY_OK;
    if (held < 0)
        return fail(copying, -held, err);
    if (fstat(held, &st) != 0) {
        int error = errno;
        return is_mounted(from, name) ? CAY_OK : fail(copying, error, err);
    }
    if (++copying->draft->entries > TEMPLATE_ENTRIES_MAX)
        return cay_fail(err, CAY_E_LIMIT, 0, op, copying->path,
                        "the directory has too many files for a template",
                        "the limit is %d", TEMPLATE_ENTRIES_MAX);
    if (S_ISDIR(st.st_mode))
        return add_directory(copying, held, &st, to, name, depth, err);
    if (S_ISREG(st.st_mode))
        return add_file(copying, held, &st, to, name, err);
    if (S_ISLNK(st.st_mode))
        return add_link(copying, held, &st, to, name, err);
    return CAY_OK; /* a device, a socket or a FIFO */
}

static int copy_directory(struct copying *copying, int from, int to, unsigned depth,
                          struct cay_error *err)
{
    size_t len = strlen(copying->path);
    int code = CAY_OK;

    if (depth > TEMPLATE_DEPTH_MAX)
        return cay_fail(err, CAY_E_LIMIT, 0, op, copying->path,
                        "the directory is nested too deeply for a template",
                        "the limit is %d", TEMPLATE_DEPTH_MAX);
    AUTO_DIR directory = path_list(from);
    if (!directory)
        return fail(copying, errno, err);
    for (struct dirent *entry; !code && (entry = path_next(directory));) {
        const char *name = entry->d_name;
        size_t name_len = strlen(name);
        if (len + 1 + name_len >= PATH_MAX) {
            code = fail(copying, ENAMETOOLONG, err);
            break;
        }
        char *at = copying->path + len;
        if (len)
            *at++ = '/';
        memcpy(at, name, name_len + 1);
        code = template_report(copying->draft, "copying", err);
        if (!code)
            code = add(copying, from, to, name, depth, err);
        copying->path[len] = '\0';
    }
    return code;
}

int template_from_directory(struct template_draft *draft, struct cay_error *err)
{
    const char *path = draft->options->from;
    AUTO_FREE struct copying *copying = calloc(1, sizeof *copying);
    struct stat st;
    AUTO_FD from = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (!copying)
        return cay_fail_memory(err, op);
    if (from < 0 || fstat(from, &st) != 0 || fstat(draft->dir, &copying->self) != 0)
        return cay_fail_errno(err, errno, op, path);
    copying->draft = draft;
    copying->dev = st.st_dev;
    int code = copy_directory(copying, from, draft->root, 1, err);
    forget(copying);
    return code;
}
