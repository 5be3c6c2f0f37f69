/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_NATIVE_H
#define NATIVE_NATIVE_H

#include "native/doctor/inspect.h"
#include "native/layer/checkpoint.h"
#include "native/make/create.h"
#include "native/process/approve.h"
#include "native/process/handle.h"

/* The calls that every table of these sandboxes has: backend.c, backend-small.c and
 * local.c. */
#define NATIVE_CALLS                                                                     \
    .free = native_free, .id = native_id, .layers = native_layers,                       \
    .state = native_get_state, .inspect = inspect_sandbox, .open_files = native_files,   \
    .exec = native_exec, .set_ttl = native_set_ttl, .kill = native_kill,                 \
    .processes = &native_processes, .code = native_dial_code, .approve = native_approve

/* Those of a sandbox with a network of its own. */
#define NATIVE_NETWORK                                                                   \
    .get_network = native_get_network, .change_network = native_change_network,          \
    .count_network = native_count_network, .network_events = native_network_events

/* Those of a sandbox with a root of its own. */
#define NATIVE_CHECKPOINTS                                                               \
    .checkpoint = native_checkpoint, .checkpoints = native_checkpoints,                  \
    .remove_checkpoint = native_remove_checkpoint,                                       \
    .checkpoint_each = native_checkpoint_each

/* With the option to keep processes. */
int native_rollback_full(void *cookie, const char *which,
                         const struct cay_rollback_options *options,
                         struct cay_rollback *ret_rollback, struct cay_error *err);

/* Handles on a new sandbox, and on an existing one, even if it is stopped.
 * CAY_E_INVALID: it is local and `is_local` is false, or the other way round. */
int native_create(const struct cay_sandbox_options *options, const char *id,
                  void **ret_cookie, struct cay_error *err);
int native_open(const char *id, bool is_local, void **ret_cookie, struct cay_error *err);

/* Checks user and working directory of a new sandbox; removes it if they are invalid. */
int native_check_defaults(struct native *native,
                          const struct cay_sandbox_options *options,
                          struct cay_error *err);

/* create_sandbox() with the files of the sandbox `from` of the options, if that is
 * given. */
int fork_or_create(const struct cay_sandbox_options *options, const char *id,
                   struct create_first *first, struct native *native,
                   struct cay_error *err);

/* The same for create_spare(); a fork only of a checkpoint. */
int fork_or_create_spare(const struct cay_sandbox_options *options, const char *pool,
                         struct spare_key *ret_key, struct native *native,
                         struct cay_error *err);

/* A new sandbox and a command in it, as cay_sandbox_run(): *ret_native is set if the
 * sandbox was created, and *ret_process if the command was started. */
int native_run(const struct cay_sandbox_options *options,
               const struct cay_exec_options *exec, void **ret_native, void **ret_process,
               struct cay_error *err);

int native_restart(void *cookie, struct cay_error *err);
/* native_resume(), or a start after cay_sandbox_pause_disk(). */
int native_wake(void *cookie, struct cay_error *err);

/* The fields of a configuration, and sandboxes created from one. */
enum { NATIVE_FIELDS = 26 };
extern const struct cay_field native_fields[NATIVE_FIELDS];
int native_check_config(void *data, const cay_config *config, struct cay_error *err);
int native_create_config(void *data, const cay_config *config, void **ret_cookie,
                         struct cay_error *err);
int native_connect_config(void *data, const cay_config *config, const char *id,
                          void **ret_cookie, struct cay_error *err);
int native_create_marked(void *data, const cay_config *config, const char *mark,
                         void **ret_cookie, struct cay_error *err);
int native_create_pooled(void *data, const cay_config *config, const char *mark,
                         const char *pool, void **ret_cookie, struct cay_error *err);

/* The id of a new sandbox with that mark, and a handle on the existing one, which has
 * another id if it was a spare.  native_open_marked() also removes what a creator that
 * died left unfinished. */
int native_mark_id(const char *mark, char ret_id[CAY_ID_MAX], struct cay_error *err);
int native_open_marked(const char *mark, bool is_local, void **ret_cookie,
                       struct cay_error *err);

/* The map "envs" as "NAME=value", NULL-terminated, to be freed also on failure; and the
 * number "ttl". */
int native_take_env(const cay_config *config, char ***ret_env, struct cay_error *err);
int native_take_ttl(const cay_config *config, uint64_t *ret_ms, struct cay_error *err);
void native_free_texts(char **texts);

int native_get_network(void *cookie, cay_policy **ret_policy, struct cay_error *err);
int native_change_network(void *cookie, const struct cay_network_config *config,
                          bool replace, struct cay_error *err);
int native_count_network(void *cookie, struct cay_network_counts *ret_counts,
                         struct cay_error *err);
int native_network_events(void *cookie, uint64_t after,
                          struct cay_network_event **ret_events, size_t *ret_count,
                          struct cay_error *err);

int native_get_state(void *cookie, enum cay_state *ret_state, struct cay_error *err);
int native_kill(void *cookie, struct cay_error *err);
int native_remove(void *cookie, struct cay_error *err);

/* Removes what is left of the sandbox, if it has ended and no other process does that. */
void native_collect(const char *id);

#endif
