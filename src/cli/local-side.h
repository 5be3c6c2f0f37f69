/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_LOCAL_SIDE_H
#define CLI_LOCAL_SIDE_H

#include <stdbool.h>
#include <sys/types.h>

#include "cay/files.h"

/* The end of a copy that is on this machine.  It runs in a process of its own, so that a
 * tar stream can go through a pipe from one end to the other while both are at work. */
struct local_side {
    int fd; /* our end of the pipe; close it when the other end is done */
    int report;
    pid_t pid;
    bool sends;
};

/* A directory, or one regular file as an archive that has it under `name`. */
int local_side_send_dir(const char *path, struct local_side *ret_side,
                        struct cay_error *err);
int local_side_send_file(int file, const char *path, const char *name,
                         struct local_side *ret_side, struct cay_error *err);

/* Unpacks below a directory, which is made if need be. */
int local_side_receive(const char *path, struct local_side *ret_side,
                       struct cay_error *err);

/* Waits for its end.  `code` is the outcome of the other side, told in *err; if this side
 * failed first, its error is the one returned.  *ret_result may be NULL. */
int local_side_finish(struct local_side *side, int code,
                      struct cay_tar_result *ret_result, struct cay_error *err);

#endif
