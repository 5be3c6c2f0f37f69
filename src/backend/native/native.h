/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_NATIVE_H
#define NATIVE_NATIVE_H

#include <unistd.h>

#include "backend/native/runtime.h"
#include "cay/backend.h"
#include "init/protocol.h"

/* Files in which the kernel counts what it did for a limit; -1 where there is none. */
struct events {
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
    int answer_ms;   /* that init may take for an answer */
    bool is_damaged; /* the record is what recover.h found out: it can only be killed */
    struct events events;
    char *piece; /* room for output, once there was a command */
};

/* Init answers at once, or something is wrong with it. */
enum { NATIVE_ANSWER_MS = 10000 };

#define NATIVE_NONE                                                                      \
    (struct native)                                                                      \
    {                                                                                    \
        .pidfd = -1, .leash = -1, .socket = -1, .owner = getpid(),                       \
        .answer_ms = NATIVE_ANSWER_MS, .events = {-1, -1},                               \
    }

struct native *native_new(void); /* an empty handle; NULL if memory is exhausted */
void native_free(void *cookie);

static inline void auto_native(struct native **native)
{
    native_free(*native);
}

#define AUTO_NATIVE __attribute__((cleanup(auto_native))) struct native *

/* A request that is sent as soon as there is a connection, before the other end is ready
 * to answer; once more for each rung that is tried. */
struct native_first {
    int (*send)(struct native *native, void *cookie, struct cay_error *err);
    void *cookie;
};

/* Makes a sandbox and waits until it is ready: fills in all but the room for output. `id`
 * is one that no other has or has had, or NULL: it is drawn.  `first` may be NULL. */
int native_create(const struct cay_sandbox_options *options, const char *id,
                  const struct native_first *first, struct native *native,
                  struct cay_error *err);

/* The same with a command, as cay_sandbox_run(): *ret_native is there if the sandbox is,
 * and *ret_process if the command is, too. */
int native_run(const struct cay_sandbox_options *options,
               const struct cay_exec_options *exec, void **ret_native, void **ret_process,
               struct cay_error *err);

/* The same for the backend "local", where nothing keeps it in: of the options it takes
 * those of commands (env, user, workdir), ttl_ms and ephemeral. */
int native_create_local(const struct cay_sandbox_options *options, const char *id,
                        struct native *native, struct cay_error *err);

/* Brings one on disk back, into an empty handle. */
int native_start(const char *id, struct native *native, struct cay_error *err);

/* The same with handles: a new sandbox, one that exists (even if it is stopped;
 * CAY_E_INVALID if it is of the other kind), and that one once it runs. */
int native_make(const struct cay_sandbox_options *options, const char *id,
                void **ret_cookie, struct cay_error *err);
int native_open(const char *id, bool is_local, void **ret_cookie, struct cay_error *err);

/* The working directory of the options, for their user, in one that runs. */
int native_check_defaults(void *cookie, const struct cay_sandbox_options *options,
                          struct cay_error *err);
int native_make_workdir(void *cookie, const struct cay_sandbox_options *options,
                        struct cay_error *err);

int native_start_again(void *cookie, struct cay_error *err);

/* What a configuration may say, and sandboxes made by one. */
enum { NATIVE_FIELDS = 16 };
extern const struct cay_field native_fields[NATIVE_FIELDS];
int native_check_as(void *data, const cay_config *config, struct cay_error *err);
int native_create_as(void *data, const cay_config *config, void **ret_cookie,
                     struct cay_error *err);
int native_connect_as(void *data, const cay_config *config, const char *id,
                      void **ret_cookie, struct cay_error *err);
int native_create_marked(void *data, const cay_config *config, const char *mark,
                         void **ret_cookie, struct cay_error *err);

/* The id of a sandbox with that mark, and the sandbox.  What a maker that died has left
 * unfinished is removed by the latter. */
int native_id_of_mark(const char *mark, char ret_id[CAY_ID_MAX], struct cay_error *err);
int native_open_marked(const char *mark, bool is_local, void **ret_cookie,
                       struct cay_error *err);

/* The map "envs" as "NAME=value", NULL-terminated, to be freed also on failure; and the
 * number "ttl". */
int native_take_env(const cay_config *config, char ***ret_env, struct cay_error *err);
int native_take_ttl(const cay_config *config, uint64_t *ret_ms, struct cay_error *err);
void native_free_texts(char **texts);

const char *native_id(const void *cookie);
unsigned native_layers(const void *cookie);
int native_state_of(void *cookie, enum cay_state *ret_state, struct cay_error *err);
int native_kill(void *cookie, struct cay_error *err);
int native_remove_it(void *cookie, struct cay_error *err);

/* CAY_E_BUSY if it is one on disk that is stopped; else the record is that of the one
 * that runs, whoever started it. */
int native_check(struct native *native, struct cay_error *err);

/* Closes all descriptors: of a sandbox that has ended, or of a handle that goes. */
void native_let_go(struct native *native);

/* Opens what the handle needs for a command, and keeps it for the next. */
int native_get_ready(struct native *native, struct cay_error *err);

/* Connections to its init: the handle's own, and one more. */
int native_connect(struct native *native, struct cay_error *err);
int native_dial(const struct record *record, int answer_ms, int *ret_socket,
                struct cay_error *err);

/* Ends it and removes every trace.  Of what cannot be ended now the record stays, so that
 * who collects tries again. */
int native_remove(const struct record *record, int pidfd, struct cay_error *err);

/* The first half of that: lets it end, and does not wait.  *ret_pidfd is of its init, or
 * -1 if that has ended. */
int native_begin_end(const struct record *record, int *ret_pidfd, struct cay_error *err);

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

extern const struct cay_process_backend native_processes;

#endif
