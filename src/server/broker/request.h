/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_BROKER_REQUEST_H
#define SERVER_BROKER_REQUEST_H

#include "server/broker/broker.h"

/* What a keeper has to do before a record may change: an ask of our own, with a channel
 * of our own, and perhaps a client who waits for the outcome. */
struct broker_request {
    struct source source;
    struct broker_request *next;
    enum op op;
    int channel; /* to the keeper */
    int client;  /* of who waits, or -1 */
    bool is_pooled;
    bool has_no_reply; /* its channel was closed without an answer */
    bool is_lost;      /* its keeper has ended */
    int64_t timeout_s;
    int64_t number;   /* of broker_request_send() */
    int64_t force_ms; /* when a keeper that has not taken it yet is killed; 0: never */
    pid_t keeper;
    struct record_row row;
    struct request_packet *held; /* to be handed on when it is done */
    /* What to do, once, if the keeper ends without an answer; NULL: nothing. */
    void (*retry)(struct broker *broker, struct broker_request *pending);
    /* It was done; a failure of this is told to who waits. */
    int (*done)(struct broker *broker, struct broker_request *pending,
                const struct reply_packet *reply, struct cay_error *err);
};

/* Copies the record, if there is one, and takes the channel of the ask, if there is one,
 * for who waits.  NULL if memory is exhausted; then the ask was closed. */
struct broker_request *broker_request_new(struct broker *broker, enum op op,
                                          const struct record_row *row,
                                          struct request_packet *request);
void broker_request_free(struct broker *broker, struct broker_request *pending);

/* Tells who waits. */
void broker_request_fail(struct broker_request *pending, int status,
                         const struct cay_error *error);

/* Sends the keeper, or a new one if it has died, to make a sandbox; on failure who waits
 * is told. */
void broker_request_send_to(struct broker *broker, struct broker_request *pending,
                            struct keeper_handle *keeper, const struct request *request,
                            const struct buf *strings);

/* The same for what needs nothing but a number, to the keeper of its sandbox. */
void broker_request_send(struct broker *broker, struct broker_request *pending,
                         int64_t number);

/* The same with strings. */
void broker_request_send_strings(struct broker *broker, struct broker_request *pending,
                                 struct request *request, const struct buf *strings);

/* The same once more: for errand->again. */
void broker_request_resend(struct broker *broker, struct broker_request *pending);

/* Whether one that changes this sandbox's state is under way. */
bool broker_request_is_pending(const struct broker *broker, const char *id);
/* The one of that kind that is; NULL: none. */
const struct broker_request *broker_request_find(const struct broker *broker, enum op op,
                                                 const char *id);

/* Kills the keepers that have had no time for theirs: others do it then. */
void broker_request_force_late(struct broker *broker);

/* A keeper has ended: those who waited for it are told what became of the sandbox. */
void broker_request_keeper_ended(struct broker *broker, pid_t keeper);

#endif
