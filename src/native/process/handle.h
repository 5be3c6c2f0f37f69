/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_PROCESS_HANDLE_H
#define NATIVE_PROCESS_HANDLE_H

#include <unistd.h>

#include "cay/backend.h"
#include "init/protocol.h"
#include "native/record/runtime.h"

/* Files in which the kernel counts what it did for a limit; -1 where there is none. */
struct limit_events {
    int memory; /* kills */
    int pids;   /* processes that it did not start */
};

/* One handle on a native sandbox. */
struct native {
    struct record record;
    int pidfd;       /* of its init, or -1 */
    int leash;       /* closing it ends an ephemeral sandbox, or -1 */
    int socket;      /* a connection that is free, or -1 */
    pid_t owner;     /* who has made the handle, and no child of a fork */
    int reply_ms;    /* that init may take for an answer */
    bool is_damaged; /* the record is what recover.h found out: it can only be killed */
    struct limit_events events;
    char *piece; /* room for output, once there was a command */
};

/* Init answers at once, or something is wrong with it. */
enum { NATIVE_REPLY_MS = 10000 };

#define NATIVE_NONE                                                                      \
    (struct native)                                                                      \
    {                                                                                    \
        .pidfd = -1, .leash = -1, .socket = -1, .owner = getpid(),                       \
        .reply_ms = NATIVE_REPLY_MS, .events = {-1, -1},                                 \
    }

struct native *native_new(void); /* an empty handle; NULL if memory is exhausted */
void native_free(void *cookie);

static inline void auto_native(struct native **native)
{
    native_free(*native);
}

#define AUTO_NATIVE __attribute__((cleanup(auto_native))) struct native *

const char *native_id(const void *cookie);
unsigned native_layers(const void *cookie);

int native_fail_damaged(const char *id, struct cay_error *err);

/* CAY_E_BUSY if it is one on disk that is stopped; else the record is that of the one
 * that runs, whoever started it. */
int native_check(struct native *native, struct cay_error *err);

/* Closes all descriptors: of a sandbox that has ended, or of a handle that goes. */
void native_close(struct native *native);

/* Opens what the handle needs for a command, and keeps it for the next. */
int native_prepare_exec(struct native *native, struct cay_error *err);

/* Connections to its init: the handle's own, and one more. */
int native_connect(struct native *native, struct cay_error *err);
int native_connect_init(const struct record *record, int reply_ms, int *ret_socket,
                        struct cay_error *err);

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
int native_init_state(struct native *native, struct state *ret_state,
                      struct cay_error *err);

extern const struct cay_process_backend native_processes;

#endif
