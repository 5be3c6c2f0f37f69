/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_LOCAL_FILE_H
#define CLI_LOCAL_FILE_H

#include <limits.h>
#include <stdbool.h>
#include <sys/stat.h>

#include "cay/error.h"

/* A file of this machine as one end of a copy.  It is checked before it is opened:
 * opening a FIFO blocks, and opening a device may have effects.  Besides regular files
 * only these are accepted: our own standard input or output by another name, an unnamed
 * pipe, and /dev/null. */

/* Open for reading; of a directory it is only held (O_PATH). */
int local_file_read(const char *path, int *ret_fd, struct stat *ret_stat,
                    struct cay_error *err);

/* A regular file takes its name when it is complete, and vanishes if it never is. */
struct local_file {
    int fd;
    bool is_named;        /* temp is there */
    char place[PATH_MAX]; /* what is replaced, links followed; "" if it is a stream */
    char temp[PATH_MAX];  /* beside it */
};
#define AUTO_LOCAL_FILE __attribute__((cleanup(local_file_done))) struct local_file
#define LOCAL_FILE_NONE                                                                  \
    {                                                                                    \
        .fd = -1                                                                         \
    }

/* `mode` is subject to the umask. */
int local_file_create(const char *path, mode_t mode, struct local_file *ret_file,
                      struct cay_error *err);
int local_file_commit(struct local_file *file, const char *path, struct cay_error *err);
void local_file_done(struct local_file *file);

#endif
