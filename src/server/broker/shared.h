/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_BROKER_SHARED_H
#define SERVER_BROKER_SHARED_H

#include "server/broker/broker.h"

/* The directory or bucket of --shared: what other nodes have put there becomes rows of
 * this node's store, before a request is handled that may name it, and files when a
 * sandbox is created from it.  Keepers without a sandbox read and write it
 * (keeper/shared.c); the broker never waits for it. */

/* Remembers it in the store, or compares it: CAY_E_INVALID if it is another one, such as
 * the empty directory below a mount.  A bucket that this node has used may be away: its
 * keepers compare it.  Without --shared what is not on this node is forgotten. */
int shared_open(struct broker *broker, struct cay_error *err);

/* Whether a bucket can be read, for --check.  *ret_is_new: it is empty. */
int shared_check_bucket(const struct serve_options *options, bool *ret_is_new,
                        struct cay_error *err);

bool shared_is_on(const struct broker *broker);

/* Takes the request and handles it again when this node knows what the directory has for
 * the tenant; false if that is not necessary. */
bool shared_sync(struct broker *broker, struct request_packet *request,
                 const char *tenant);

/* Takes the request and handles it again when the files of this snapshot are here; false
 * if they are. */
bool shared_fetch(struct broker *broker, struct request_packet *request,
                  const struct snapshot_row *row);

/* The directory could not be read: what is not known may well exist. */
bool shared_is_away(const struct broker *broker);

/* Writes a snapshot to the directory and calls `done` with the request, which then has
 * pending->digest; the client of `pending` gets an error if that fails. */
int shared_publish(struct broker *broker, struct broker_request *pending,
                   int (*done)(struct broker *broker, struct broker_request *pending,
                               const struct reply_packet *reply, struct cay_error *err),
                   void (*failed)(struct broker *broker, struct broker_request *pending,
                                  const struct cay_error *error),
                   struct cay_error *err);

/* Adds the strings of OP_SNAPSHOT_REMOVE that name its record, and returns their number:
 * 0 without --shared. */
uint32_t shared_add_record(const struct broker *broker, const struct snapshot_row *row,
                           struct buf *strings);

/* Rows of the store: a snapshot that is in the directory, and whether it is here. */
int shared_note(struct broker *broker, const struct snapshot_row *row, const char *digest,
                bool is_here, struct cay_error *err);
void shared_forget(struct broker *broker, const char *id);
/* Its files are gone: they are fetched again.  False: the directory has none. */
bool shared_lost(struct broker *broker, const char *id);

/* For GET /metrics. */
void shared_put(struct samples *out, const struct broker *broker);

#endif
