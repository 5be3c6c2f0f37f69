/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_BROKER_REQUEST_H
#define SERVER_BROKER_REQUEST_H

#include "server/broker/broker.h"

/* A request of the broker's own, which a keeper has to finish before a row changes.  Has
 * its own channel, and the channel of the client that waits for the result, if there is
 * one. */
struct broker_request {
    struct source source;
    struct broker_request *next;
    enum op op;
    int channel; /* to the keeper */
    int client;  /* channel of the waiting client, or -1 */
    bool is_pooled;
    bool has_no_reply; /* its channel was closed without a reply */
    bool is_lost;      /* its keeper exited */
    int64_t timeout_s;
    int64_t number;   /* of broker_request_send() */
    int64_t force_ms; /* when to kill a keeper that has not read it; 0: never */
    pid_t keeper;
    struct record_row row;
    struct request_packet *held; /* forwarded after a resume */
    /* Called once if the keeper exits without a reply; NULL: fail. */
    void (*retry)(struct broker *broker, struct broker_request *pending);
    /* Called when it is done; an error is sent to the client. */
    int (*done)(struct broker *broker, struct broker_request *pending,
                const struct reply_packet *reply, struct cay_error *err);
};

/* Copies the row, and takes the channel of the client's request; both may be NULL.
 * Returns NULL if memory is exhausted; the client's request is closed in any case. */
struct broker_request *broker_request_new(struct broker *broker, enum op op,
                                          const struct record_row *row,
                                          struct request_packet *request);
void broker_request_free(struct broker *broker, struct broker_request *pending);

/* Sends an error to the client. */
void broker_request_fail(struct broker_request *pending, int status,
                         const struct cay_error *error);

/* Sends a create request to this keeper, or to a new one if it exited.  On failure the
 * client gets an error. */
void broker_request_send_to(struct broker *broker, struct broker_request *pending,
                            struct keeper_handle *keeper, const struct request *request,
                            const struct buf *strings);

/* The same with only a number, to the keeper of the sandbox. */
void broker_request_send(struct broker *broker, struct broker_request *pending,
                         int64_t number);

/* The same with strings. */
void broker_request_send_strings(struct broker *broker, struct broker_request *pending,
                                 struct request *request, const struct buf *strings);

/* Sends the same request once more: a value for pending->retry. */
void broker_request_resend(struct broker *broker, struct broker_request *pending);

/* Whether a request that changes the state of this sandbox is pending. */
bool broker_request_is_pending(const struct broker *broker, const char *id);
/* The pending request of this kind, or NULL. */
const struct broker_request *broker_request_find(const struct broker *broker, enum op op,
                                                 const char *id);

/* Kills keepers that have not read a kill request in time; a new keeper repeats it. */
void broker_request_force_late(struct broker *broker);

/* A keeper exited: retries its requests, or sends errors to the waiting clients. */
void broker_request_keeper_ended(struct broker *broker, pid_t keeper);

#endif
