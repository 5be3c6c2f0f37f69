/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_BROKER_RETURN_H
#define SERVER_BROKER_RETURN_H

#include "server/broker/broker.h"

/* A sandbox whose node is lost returns on the node that gets a request to connect to it,
 * from its last snapshot in the shared directory, under a new id, if it was created with
 * this metadata.  Clients connect by the old id again and get the same new one. */
#define RETURN_KEY   "cay-return"
#define RETURN_VALUE "true"

/* The flags of the new sandbox; -1: it does not return.  One with network rules, volumes
 * or approvals does not, since the snapshot does not have them. */
int64_t return_flags(const struct record_row *row);

/* Handles OP_CONNECT to a sandbox of a lost node; false if that does not return. */
bool return_start(struct broker *broker, struct request_packet *request,
                  const char *tenant);

/* The new sandbox has a row. */
void return_note(struct broker *broker, const char *old, const char *id);

#endif
