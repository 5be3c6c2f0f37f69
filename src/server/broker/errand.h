/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_BROKER_ERRAND_H
#define SERVER_BROKER_ERRAND_H

#include "server/broker/broker.h"

/* What a keeper has to do before a record may change: an ask of our own, with a channel
 * of our own, and perhaps a client who waits for the outcome. */
struct errand {
    struct source source;
    struct errand *next;
    enum op op;
    int channel; /* to the keeper */
    int client;  /* of who waits, or -1 */
    bool is_spare;
    bool is_orphan; /* its channel was closed without an answer */
    bool is_lost;   /* its keeper has ended */
    int64_t timeout_s;
    int64_t number;   /* of errand_go_simply() */
    int64_t force_ms; /* when a keeper that has not taken it yet is killed; 0: never */
    pid_t keeper;
    struct record_row row;
    struct asked *held; /* to be handed on when it is done */
    /* What to do, once, if the keeper ends without an answer; NULL: nothing. */
    void (*again)(struct broker *broker, struct errand *errand);
    /* It was done; a failure of this is told to who waits. */
    int (*done)(struct broker *broker, struct errand *errand, const struct told *told,
                struct cay_error *err);
};

/* Copies the record, if there is one, and takes the channel of the ask, if there is one,
 * for who waits.  NULL if memory is exhausted; then the ask was closed. */
struct errand *errand_new(struct broker *broker, enum op op, const struct record_row *row,
                          struct asked *asked);
void errand_free(struct broker *broker, struct errand *errand);

/* Tells who waits. */
void errand_fail(struct errand *errand, int status, const struct cay_error *error);

/* Sends the keeper, or a new one if it has died, to make a sandbox; on failure who waits
 * is told. */
void errand_go(struct broker *broker, struct errand *errand, struct keeper *keeper,
               const struct ask *ask, const struct buf *strings);

/* The same for what needs nothing but a number, to the keeper of its sandbox. */
void errand_go_simply(struct broker *broker, struct errand *errand, int64_t number);

/* The same with strings. */
void errand_go_with(struct broker *broker, struct errand *errand, struct ask *ask,
                    const struct buf *strings);

/* The same once more: for errand->again. */
void errand_go_again(struct broker *broker, struct errand *errand);

/* Whether one that changes this sandbox's state is under way. */
bool errand_is_under_way(const struct broker *broker, const char *id);
/* The one of that kind that is; NULL: none. */
const struct errand *errand_of(const struct broker *broker, enum op op, const char *id);

/* Kills the keepers that have had no time for theirs: others do it then. */
void errand_force_late(struct broker *broker);

/* A keeper has ended: those who waited for it are told what became of the sandbox. */
void errand_keeper_ended(struct broker *broker, pid_t keeper);

#endif
