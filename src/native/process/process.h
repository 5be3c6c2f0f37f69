/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_PROCESS_PROCESS_H
#define NATIVE_PROCESS_PROCESS_H

#include "native/process/command.h"

enum { PROCESS_PIECE = 64 << 10 }; /* output buffer */

/* What has been read of a command's output. */
struct sink {
    const struct cay_exec_options *options; /* on_output of a command that is waited for,
                                               else NULL */
    struct tail tails[2];                   /* output that the caller has not read yet */
    char *piece;                            /* PROCESS_PIECE bytes, or NULL */
    bool fails_on_limit, over_limit;
};

/* A handle on a process.  It does not depend on the sandbox's handle after creation. */
struct process {
    struct command command;
    char id[CAY_ID_MAX]; /* of the sandbox */
    struct limit_events events;
    int epoll; /* for the caller to poll: the socket, the streams and `ready` */
    int ready; /* an eventfd: events that the others do not show */
    bool is_ready;
    bool is_new; /* attached, with nothing read yet */
    bool fetched;
    struct sink sink;
    struct packet packet;
};

/* The calls of struct cay_process_backend that create a handle, and the one that frees
 * it. */
int process_start(void *cookie, const struct cay_exec_options *options,
                  void **ret_process, struct cay_error *err);
int process_attach(void *cookie, const char *which, void **ret_process,
                   struct cay_error *err);
void process_free(void *cookie);

static inline void auto_process(struct process **process)
{
    process_free(*process);
}

#define AUTO_PROCESS __attribute__((cleanup(auto_process))) struct process *

/* The steps of process_start(), for a sandbox that is still being created: copy the
 * accepted options, send the request, receive the reply. */
int process_check_start(const struct cay_exec_options *given,
                        struct cay_exec_options *ret_options, struct cay_error *err);
int process_send_start(struct native *native, const struct cay_exec_options *options,
                       struct process **ret_process, struct cay_error *err);
int process_finish_start(struct process *process, const struct cay_exec_options *options,
                         struct cay_error *err);

int process_list(void *cookie, struct cay_process_info **ret_infos, size_t *ret_count,
                 struct cay_error *err);

#endif
