/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_BROKER_INDEX_H
#define SERVER_BROKER_INDEX_H

#include "server/wire/store.h"

/* The index that several servers share in PostgreSQL: --store postgresql://.  The store
 * of this node stays the truth about its sandboxes; the broker never waits for the
 * index. */

struct broker;

/* A request to cay-store.  Embed it in a struct, which must live until `done` was called
 * with STORE_DONE: that happens exactly once for each index_ask(), perhaps within it. */
struct index_call {
    struct index_call *next;
    uint64_t number;
    uint64_t sent_ms;
    /* Each STORE_ROW, then STORE_DONE, whose code is CAY_OK or why it failed:
     * CAY_E_UNAVAILABLE if the database is away. */
    void (*done)(struct broker *broker, struct index_call *call,
                 const struct store_packet *packet);
};

/* Whether the server has --store postgresql://; whether the database can be reached now,
 * and this node has its name. */
bool index_is_on(const struct broker *broker);
bool index_is_up(const struct broker *broker);

/* Sends a request.  `strings` may be NULL; both stay the caller's. */
void index_ask(struct broker *broker, struct index_call *call,
               struct store_message *message, const struct buf *strings);

#endif
