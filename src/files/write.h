/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FILES_WRITE_H
#define FILES_WRITE_H

#include "files/handle.h"

/* A new file that has no name yet.  It gets its name in one step or is deleted: a reader
 * never sees half of it, and a crash leaves nothing behind.  On file systems without
 * O_TMPFILE it has a hidden temporary name while it is written. */
struct temp_file {
    const struct fs *fs;
    int fd;  /* for reading and writing */
    int dir; /* its directory; not owned */
    char temp[FS_TEMP_MAX];
};

#define TEMP_FILE_NONE                                                                   \
    {                                                                                    \
        .fd = -1, .dir = -1                                                              \
    }
#define AUTO_TEMP_FILE __attribute__((cleanup(temp_file_done))) struct temp_file

/* `dir` is an O_PATH descriptor that outlives the file; `mode` is subject to the umask.
 * These return 0 or a negative errno. */
int temp_file_open(const struct fs *fs, int dir, mode_t mode, struct temp_file *ret_temp);

/* Copies mode, owner and extended attributes of the file to be replaced, if there is one.
 * -EPERM if some of that cannot be copied: then it must be overwritten in place. */
int temp_file_like(const struct temp_file *temp, const struct target *target);

enum temp_file_commit {
    TEMP_FILE_REPLACE = 0,
    TEMP_FILE_NEW = 1 /* -EEXIST if the name is taken */
};

/* Gives it the name `name` in its directory; `durable` syncs the file and the directory.
 */
int temp_file_commit(struct temp_file *temp, const char *name, enum temp_file_commit how,
                     bool durable);

/* Deletes it unless it was committed. */
void temp_file_done(struct temp_file *temp);

/* copy_bytes() into a file of `fs`, with space reserved for each piece.  Space reserved
 * beyond the end of the copy is freed, unless the file is open for appending. */
int write_copy(const struct fs *fs, int from, int to, uint64_t max, uint64_t *ret_copied);

#define WRITE_FLAGS                                                                      \
    (CAY_WRITE_IN_PLACE | CAY_WRITE_APPEND | CAY_WRITE_NEW | CAY_WRITE_DURABLE |         \
     CAY_WRITE_NO_PARENTS)

/* Copies the options; refuses flags that are not allowed, or that exclude each other. */
int write_take_options(const struct cay_write_options *options, const char *op,
                       unsigned allowed, struct cay_write_options *ret_known,
                       struct cay_error *err);

/* An existing target must be a regular file that may be written. */
int write_check_target(const struct target *target, struct cay_error *err);

/* Overwrites the target's file with the first `bytes` bytes of `from`. */
int write_in_place(const struct target *target, int from, uint64_t bytes, unsigned flags,
                   struct cay_error *err);

/* The new file takes the target's name. */
int write_commit(struct temp_file *temp, const char *name, const struct target *target,
                 unsigned flags, struct cay_error *err);

#endif
