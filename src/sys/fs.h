/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SYS_FS_H
#define SYS_FS_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "cay/error.h"

/* Every call of the file layer that takes a name or depends on the caller's identity.
 *
 * There are two implementations: fs_direct makes the system calls itself; that of a
 * sandbox sends them to the sandbox's PID 1, which makes them as a user inside and passes
 * descriptors back.  Calls on an open descriptor (read, write, fstat, getdents, fsync) do
 * not go through here.
 *
 * They return 0, a descriptor (always CLOEXEC), or a negative errno.  A directory of -1
 * is the root of a file system that has only one.  Names are single components. */

enum fs_find_flag {
    FS_NO_FOLLOW = 1 << 0, /* do not follow a link in the last component */
    /* Also return what the caller needs next, if that saves a round trip: */
    FS_AND_READ = 1 << 1,  /* the file open for reading */
    FS_AND_CHANGE = 1 << 2 /* its parent directory, and whether it is writable */
};

struct fs_found {
    int fd; /* O_PATH, or open for reading if is_open; -1: missing */
    bool is_open;
    struct stat st;  /* of fd, with the owner as seen where the file is */
    int dir;         /* O_PATH of the directory it is in, or -1 */
    int write_error; /* result of may_write(), or 1 if not requested */
};

struct fs_look {
    const char *name;
    int error; /* 0 or a negative errno */
    struct stat st;
};

enum { FS_TEMP_MAX = 24 };

struct fs {
    /* Resolves a path below `dir`. ret_rel is the result without links; ret_found has the
     * descriptor.  Links in an ordinary directory may lead only below it; absolute and
     * climbing ones only by the names of `host`, its own path: else -EXDEV. */
    int (*find)(const struct fs *fs, int dir, const char *host, const char *path,
                unsigned flags, char ret_rel[PATH_MAX], struct fs_found *ret_found);

    /* openat2(2), with "" for the directory itself. */
    int (*open)(const struct fs *fs, int dir, const char *path, uint64_t flags,
                uint64_t mode, uint64_t resolve);
    /* Opens an O_PATH descriptor for real. *ret_copied: the result is a copy, of a /proc
     * file. */
    int (*reopen)(const struct fs *fs, int fd, int flags, bool *ret_copied);
    int (*may_write)(const struct fs *fs, int fd);
    int (*stat)(const struct fs *fs, int dir, const char *name, struct stat *ret_stat);
    /* The same for many names of one directory, where each alone would be a trip. */
    int (*look)(const struct fs *fs, int dir, struct fs_look *looks, size_t count);
    ssize_t (*read_link)(const struct fs *fs, int fd, char *text, size_t room);

    int (*make_directory)(const struct fs *fs, int dir, const char *name, mode_t mode);
    int (*make_link)(const struct fs *fs, const char *text, int dir, const char *name);
    int (*link)(const struct fs *fs, int fd, int dir, const char *name);
    int (*rename)(const struct fs *fs, int from_dir, const char *from, int to_dir,
                  const char *to, unsigned flags);
    int (*remove)(const struct fs *fs, int dir, const char *name, int flags);

    /* Of the file `fd`, or of `name` in it; links are not followed. */
    int (*set_times)(const struct fs *fs, int fd, const char *name,
                     const struct timespec times[2]);
    int (*set_mode)(const struct fs *fs, int fd, mode_t mode);
    /* -1: unchanged.  Of a link itself. */
    int (*set_owner)(const struct fs *fs, int fd, uid_t uid, gid_t gid);

    /* A new file for reading and writing, without a name or with a temporary one.  With a
     * `model` (else -1) as by like().  `room`: bytes for take_room(), if that saves a
     * round trip; 0: unknown. */
    int (*draft)(const struct fs *fs, int dir, mode_t mode, int model, uint64_t room,
                 char ret_temp[FS_TEMP_MAX]);
    /* Takes over mode, owner and extended attributes of `model`.  -EPERM if not all of
     * that can be kept. */
    int (*like)(const struct fs *fs, int fd, int model);
    /* Gives a draft its name in one step; without `replace` -EEXIST if that is taken. */
    int (*commit)(const struct fs *fs, int fd, int dir, const char *temp,
                  const char *name, bool replace);

    /* Before bytes are written to a file: allocates them where the file is, so that a
     * tmpfs charges the sandbox and not the writer. -EDQUOT: they do not fit.  NULL if
     * nothing is to be charged. */
    int (*take_room)(const struct fs *fs, int fd, uint64_t at, uint64_t len);

    /* Like cay_fail_errno(), with more detail; NULL if there is none. */
    int (*fail)(const struct fs *fs, int sys_errno, const char *op, const char *subject,
                struct cay_error *err);
    void (*ref)(const struct fs *fs); /* both NULL if it lives for ever */
    void (*unref)(const struct fs *fs);
    void *cookie;
};

/* take_room(), if there is one. */
static inline int fs_take_room(const struct fs *fs, int fd, uint64_t at, uint64_t len)
{
    return fs->take_room && len ? fs->take_room(fs, fd, at, len) : 0;
}

extern const struct fs fs_direct;

/* Whether the descriptor is on a pseudo file system: /proc and the like.  Writes there
 * are commands, and reads depend on the reader.  True if unknown. */
bool fs_is_pseudo(int fd);

int fs_fail(const struct fs *fs, int sys_errno, const char *op, const char *subject,
            struct cay_error *err);

#endif
