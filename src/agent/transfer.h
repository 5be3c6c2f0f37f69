/* SPDX-License-Identifier: Apache-2.0 */
#ifndef AGENT_TRANSFER_H
#define AGENT_TRANSFER_H

#include "cay/files.h"

/* A file of the host that is being written: it has a temporary name beside its own until
 * it is complete, or is removed. */
struct host_file {
    int dir, fd;
    char name[256], temp[32];
};
#define AUTO_HOST_FILE __attribute__((cleanup(host_file_done))) struct host_file
#define HOST_FILE_NONE                                                                   \
    {                                                                                    \
        .dir = -1, .fd = -1                                                              \
    }

/* Creates missing parent directories.  If the path is a link, its target is replaced. */
int host_file_open(const char *path, struct host_file *ret_file, struct cay_error *err);

/* Renames it to its own name, with the mode and time of `stat`. */
int host_file_commit(struct host_file *file, const char *path,
                     const struct cay_stat *stat, struct cay_error *err);
void host_file_done(struct host_file *file);

/* An unnamed file in that directory, or else in /tmp or in memory; -1 and errno. */
int transfer_spool(const char *dir);

#endif
