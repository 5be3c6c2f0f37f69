/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_PROCESS_HANDLE_H
#define NATIVE_PROCESS_HANDLE_H

#include <unistd.h>

#include "cay/backend.h"
#include "init/protocol.h"
#include "native/record/runtime.h"

/* Files in which the kernel counts events of a limit; -1 for none. */
struct limit_events {
    int memory; /* kills */
    int pids;   /* failed forks */
};

/* A handle on a native sandbox. */
struct native {
    struct record record;
    int pidfd;       /* of its init, or -1 */
    int leash;       /* closing it ends an ephemeral sandbox, or -1 */
    int socket;      /* an idle connection, or -1 */
    pid_t owner;     /* the process that created the handle, not a child of fork(2) */
    int reply_ms;    /* timeout for replies of init */
    bool is_damaged; /* the record was recovered (remove.h): the sandbox can only be
                        killed */
    struct limit_events events;
    int attempts; /* the file of events of its network, or -1 */
    char *piece;  /* output buffer, after the first command */
};

/* Init replies at once unless something is wrong with it. */
enum { NATIVE_REPLY_MS = 10000 };

#define NATIVE_NONE                                                                      \
    (struct native)                                                                      \
    {                                                                                    \
        .pidfd = -1, .leash = -1, .socket = -1, .owner = getpid(),                       \
        .reply_ms = NATIVE_REPLY_MS, .events = {-1, -1}, .attempts = -1,                 \
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

/* CAY_E_BUSY if a sandbox on disk is stopped; otherwise the record is refreshed, since
 * another process may have started it. */
int native_check(struct native *native, struct cay_error *err);

/* Closes all descriptors: of an ended sandbox, or before the handle is freed. */
void native_close(struct native *native);

/* Opens and keeps what the handle needs for commands. */
int native_prepare_exec(struct native *native, struct cay_error *err);

/* Connect to init: the handle's own connection, and a separate one. */
int native_connect(struct native *native, struct cay_error *err);
int native_connect_init(const struct record *record, int reply_ms, int *ret_socket,
                        struct cay_error *err);

int native_files(void *cookie, const char *user, cay_files **ret_files,
                 struct cay_error *err);
int native_dial_port(void *cookie, uint16_t port, int *ret_fd, struct cay_error *err);
int native_dial_code(void *cookie, const char *user, int *ret_fd,
                     uint64_t *ret_memory_kills, const char **ret_template,
                     struct cay_error *err);
int native_exec(void *cookie, const struct cay_exec_options *options,
                struct cay_exec_result *ret_result, struct cay_error *err);

int native_pause(void *cookie, struct cay_error *err);
int native_resume(void *cookie, struct cay_error *err);
int native_set_ttl(void *cookie, uint64_t ttl_ms, struct cay_error *err);

/* The state that init reports: time left, whether it is paused, number of commands. */
int native_init_state(struct native *native, struct state *ret_state,
                      struct cay_error *err);

extern const struct cay_process_backend native_processes;

#endif
