/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_BROKER_KEEPERS_H
#define SERVER_BROKER_KEEPERS_H

#include <sys/types.h>

#include "server/keeper/keeper.h"
#include "server/wire/channel.h"
#include "server/wire/options.h"
#include "server/wire/record.h"

/* A process of ours that looks after one sandbox: whatever that sandbox does to keep
 * those waiting who ask it something, only it waits. */
struct keeper_handle {
    struct keeper_handle *next;
    char id[SANDBOX_ID_MAX]; /* "": it has none yet */
    pid_t pid;
    int socket;
    bool is_pooled; /* its sandbox is ready and nobody's */
};

struct broker;

/* Starts one; with an id for the sandbox that has it. */
struct keeper_handle *keepers_start(struct broker *broker, const char *id);

/* The one that looks after this sandbox, started if need be; NULL: it cannot be. */
struct keeper_handle *keepers_find(struct broker *broker, const char *id);

/* Lets it go, and with it all its channels. */
void keepers_drop(struct broker *broker, struct keeper_handle *keeper);

/* Whether it has yet to read something that it was sent. */
bool keepers_is_behind(const struct broker *broker, pid_t pid);

/* It takes no questions any more, so it is ending.  What its end says of the sandbox is
 * noted before anybody starts another. */
void keepers_lost(struct broker *broker, struct keeper_handle *keeper);

/* The process has ended with this status of wait(2); whether it was a keeper to spare. */
bool keepers_reaped(struct broker *broker, pid_t pid, int status);

#endif
