/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_PROCESS_H
#define NATIVE_PROCESS_H

#include "backend/native/run.h"

/* A handle on a process.  It needs nothing of the sandbox's handle once it is there. */
struct process {
    struct run run;
    char id[CAY_ID_MAX]; /* of the sandbox */
    int memory_events;
    int epoll; /* for the caller to poll: the socket, the streams and `ready` */
    int ready; /* an eventfd: there is something that they do not show */
    bool is_ready;
    bool fails_on_limit, over_limit, fetched;
    struct tail tails[2]; /* output that a wait took in and nobody has read yet */
    char *piece;
    struct packet packet;
};

int process_list(void *cookie, struct cay_process_info **ret_infos, size_t *ret_count,
                 struct cay_error *err);

#endif
