/* SPDX-License-Identifier: Apache-2.0 */
#ifndef AGENT_HOST_FILE_H
#define AGENT_HOST_FILE_H

#include "cay/files.h"

/* A file of the host's that is being made: it has a temporary name beside its own until
 * it is complete, or vanishes. */
struct host_file {
    int dir, fd;
    char name[256], temp[32];
};
#define AUTO_HOST_FILE __attribute__((cleanup(host_file_done))) struct host_file
#define HOST_FILE_NONE                                                                   \
    {                                                                                    \
        .dir = -1, .fd = -1                                                              \
    }

/* Missing directories on the way are made.  What a link leads to is what is replaced. */
int host_file_open(const char *path, struct host_file *ret_file, struct cay_error *err);

/* It takes its name, with the mode and time of `stat`. */
int host_file_commit(struct host_file *file, const char *path,
                     const struct cay_stat *stat, struct cay_error *err);
void host_file_done(struct host_file *file);

#endif
