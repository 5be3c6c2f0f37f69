/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_ERRAND_H
#define SERVER_ERRAND_H

#include "server/broker.h"

/* What a keeper has to do before a record may change: an ask of our own, with a channel
 * of our own, and perhaps a client who waits for the outcome. */
struct errand {
    struct source source;
    struct errand *next;
    enum op op;
    int channel; /* to the keeper */
    int client;  /* of who waits, or -1 */
    bool is_spare;
    int64_t timeout_s;
    pid_t keeper;
    struct record_row row;
    struct asked *held; /* to be handed on when it is done */
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

/* Sends the keeper on its way; on failure who waits is told. */
void errand_go(struct broker *broker, struct errand *errand, struct keeper *keeper,
               const struct ask *ask, const struct buf *strings);

/* The same for one that needs nothing but a number, to the keeper of its sandbox. */
void errand_go_simply(struct broker *broker, struct errand *errand, int64_t number);

/* Whether one that changes this sandbox's state is under way. */
bool errand_is_under_way(const struct broker *broker, const char *id);

#endif
