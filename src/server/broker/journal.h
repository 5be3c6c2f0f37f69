/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_BROKER_JOURNAL_H
#define SERVER_BROKER_JOURNAL_H

#include <stdint.h>

#include "server/broker/broker.h"

/* What clients and the server did with sandboxes: the logs of each sandbox, for its
 * tenant, and the audit record, for the operator. */

struct journal_entry {
    const char *action;         /* "sandbox.create" */
    const char *tenant;         /* NULL: unknown */
    const char *sandbox;        /* NULL: none */
    uint64_t request;           /* of the client; 0: the server's own */
    unsigned status;            /* of a refusal; 0: it was accepted */
    const char *verdict;        /* NULL: by the status */
    enum log_level level;       /* 0: by the status */
    const char *const *details; /* key, value, ..., NULL; values are cut */
};

void journal_open(struct broker *broker);
void journal_close(struct broker *broker);

/* How often a broker of this store and port began although the one before had not ended
 * by itself. */
uint64_t journal_restarts(const struct broker *broker);
void journal_write(struct broker *broker, const struct journal_entry *entry);
/* About a sandbox; `key` may be NULL. */
void journal_write_row(struct broker *broker, const char *action, uint64_t request,
                       const struct record_row *row, const char *key, const char *value);
/* A request that was accepted has failed. */
void journal_write_failure(struct broker *broker, const struct broker_request *pending,
                           int status, const char *message);

/* Requests of clients: begin before the request is handled, and end afterwards, with the
 * tenant if it is known.  Those that change nothing are recorded only if their credential
 * is refused. */
void journal_begin(struct broker *broker, const struct request_packet *request);
/* Before a request is forwarded to a sandbox: nothing is done there without an entry. */
void journal_accept(struct broker *broker, const struct request_packet *request);
void journal_end(struct broker *broker, const struct request_packet *request);
void journal_set_tenant(struct broker *broker, const char *tenant);

/* OP_LOGS */
void journal_send_logs(struct broker *broker, struct request_packet *request,
                       const char *id);

struct samples;
void journal_put(struct samples *out, const struct broker *broker);

#endif
