/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_NATIVE_H
#define NATIVE_NATIVE_H

#include "backend/native/runtime.h"
#include "init/protocol.h"

/* One handle on a native sandbox. */
struct native {
    struct record record;
    int pidfd;         /* of its init, or -1 */
    int leash;         /* closing it ends an ephemeral sandbox, or -1 */
    int socket;        /* a connection that is free, or -1 */
    int memory_events; /* counts kills for the memory limit, or -1 */
    char *piece;       /* room for output, once there was a command */
};

/* Makes a sandbox and waits until it is ready: fills in record, pidfd and leash. */
int native_create(const struct cay_sandbox_options *options, struct native *native,
                  struct cay_error *err);

/* Brings one on disk back, into an empty handle. */
int native_start(const char *id, struct native *native, struct cay_error *err);

/* CAY_E_BUSY if it is one on disk that is stopped; else the record is that of the one
 * that runs, whoever started it. */
int native_check(struct native *native, struct cay_error *err);

/* Connections to its init: the handle's own, and one more. */
int native_connect(struct native *native, struct cay_error *err);
int native_dial(const struct record *record, int *ret_socket, struct cay_error *err);

/* Ends it and removes every trace. */
void native_remove(const struct record *record, int pidfd);

/* Removes what sandboxes that ended without being killed, or whose makers crashed, have
 * left; the number of them. */
int native_collect(size_t *ret_count, struct cay_error *err);

int native_files(void *cookie, const char *user, cay_files **ret_files,
                 struct cay_error *err);
int native_dial_port(void *cookie, uint16_t port, int *ret_fd, struct cay_error *err);
int native_exec(void *cookie, const struct cay_exec_options *options,
                struct cay_exec_result *ret_result, struct cay_error *err);

/* What every call that starts a command refuses; `flags` are those it takes. */
int native_check_exec(const struct cay_exec_options *options, const char *name,
                      unsigned flags, struct cay_error *err);

int native_pause(void *cookie, struct cay_error *err);
int native_resume(void *cookie, struct cay_error *err);
int native_set_ttl(void *cookie, uint64_t ttl_ms, struct cay_error *err);

/* What init says of itself: time left, whether it is paused, how much runs. */
int native_state(struct native *native, struct state *ret_state, struct cay_error *err);

extern const struct process_backend native_processes;

#endif
