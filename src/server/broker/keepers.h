/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_BROKER_KEEPERS_H
#define SERVER_BROKER_KEEPERS_H

#include <sys/types.h>

#include "server/keeper/keeper.h"
#include "server/wire/channel.h"
#include "server/wire/options.h"
#include "server/wire/record.h"

/* The broker's handle of a keeper: a process that serves one sandbox.  If the sandbox
 * blocks it, no other sandbox has to wait. */
struct keeper_handle {
    struct keeper_handle *next;
    char id[SANDBOX_ID_MAX]; /* "": none yet */
    pid_t pid;
    int socket;
    bool is_pooled; /* its sandbox is in the pool */
};

struct broker;

/* Starts a keeper, for an existing sandbox if `id` is not "". */
struct keeper_handle *keepers_start(struct broker *broker, const char *id);

/* The keeper of a sandbox, started if necessary; NULL on failure. */
struct keeper_handle *keepers_find(struct broker *broker, const char *id);

/* Closes its socket; the keeper then exits and closes its channels. */
void keepers_drop(struct broker *broker, struct keeper_handle *keeper);

/* Whether it has not read everything that was sent to it. */
bool keepers_is_behind(const struct broker *broker, pid_t pid);

/* The keeper does not read requests any more: kills it, and records what its exit status
 * says about the sandbox before another one is started. */
void keepers_lost(struct broker *broker, struct keeper_handle *keeper);

/* A process exited with this status of wait(2).  Returns true if it was a keeper of the
 * pool. */
bool keepers_reaped(struct broker *broker, pid_t pid, int status);

#endif
