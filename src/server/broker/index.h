/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_BROKER_INDEX_H
#define SERVER_BROKER_INDEX_H

#include <sys/types.h>

#include "server/broker/registry.h"
#include "server/wire/options.h"
#include "server/wire/store.h"

/* The index that several servers share in PostgreSQL: --store postgresql://.  The store
 * of this node stays the truth about its sandboxes; the broker never waits for the
 * index. */

struct broker;
struct samples;

/* --- The process and its calls: index.c --- */

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
 * and this node has its name; whether another server has that name. */
bool index_is_on(const struct broker *broker);
bool index_is_up(const struct broker *broker);
bool index_is_taken(const struct broker *broker);

/* Sends a request.  `strings` may be NULL; both stay the caller's. */
void index_ask(struct broker *broker, struct index_call *call,
               struct store_message *message, const struct buf *strings);
/* The same, for a request whose result nothing waits for. */
void index_send(struct broker *broker, struct store_message *message,
                const struct buf *strings);
/* Whether requests that can wait should be sent now. */
bool index_has_room(const struct broker *broker);

/* Prepares what index_open() starts; nothing without --store postgresql://.  Call before
 * other processes are started: it removes the URL from the environment. */
int index_prepare(struct broker *broker, struct serve_options *options,
                  struct cay_error *err);
void index_open(struct broker *broker);
void index_close(struct broker *broker);
/* After index_rows_wake_ms() has changed. */
void index_set_timer(struct broker *broker);
void index_reaped(struct broker *broker, pid_t pid);
/* For GET /metrics. */
void index_put(struct samples *out, const struct broker *broker);

/* Whether the node of this sandbox was not seen for STORE_LEASE_S. */
bool index_is_lost(const struct broker *broker, const char *id);

/* --- Rows of sandboxes: index-rows.c --- */

struct index_rows;
struct index_rows *index_rows_new(void);
void index_rows_free(struct index_rows *rows);

/* The row of this sandbox has changed: it is read and written to the index soon.  `claim`
 * (0: none) is released with it. */
void index_mark(struct broker *broker, const char *id, int64_t claim);

enum index_reply { INDEX_REPLY_DONE, INDEX_REPLY_SANDBOX, INDEX_REPLY_RESUMED };
/* Replies once the row is in the index, or after 50 ms.  Takes *channel, if that is not
 * -1. */
void index_reply(struct broker *broker, int *channel, const char *id,
                 enum index_reply kind);

/* Something happened to a sandbox: for the table of events. */
void index_event(struct broker *broker, const char *what, const struct record_row *row);

/* The connection is there: compares all rows. */
void index_rows_up(struct broker *broker, int64_t version);
void index_rows_run(struct broker *broker);
/* By clock_ms(); UINT64_MAX: never. */
uint64_t index_rows_wake_ms(const struct broker *broker);
void index_rows_put(struct samples *out, const struct broker *broker);

/* A row of the index, checked; false: it is invalid. */
bool index_read_row(const struct store_packet *packet, struct record_row *row);

/* --- Keys and limits: index-keys.c --- */

struct request_packet;
struct index_keys;
struct index_keys *index_keys_new(void);
void index_keys_free(struct index_keys *keys);

/* Handles a request with a key that the node's own store does not have. */
void index_check_key(struct broker *broker, struct request_packet *request,
                     const unsigned char key[KEY_HASH]);
/* The tenant of a key that was checked lately; for what cannot wait. */
bool index_knows_key(const struct broker *broker, const unsigned char key[KEY_HASH],
                     char ret_tenant[TENANT_MAX]);
/* Handles a request of a tenant: at once, or after its limit was checked.  `most`: its
 * limit, 0: none, -1: not known. */
void index_check_limit(struct broker *broker, struct request_packet *request,
                       const char *tenant, int64_t most);
void index_release(struct broker *broker, int64_t claim, int64_t count);
/* The key with this hash was added or revoked; "": all may have been. */
void index_keys_changed(struct broker *broker, const char *hash);

/* --- Sessions of browsers that ended early: index-sessions.c --- */

struct browser_session;
struct index_sessions;
struct index_sessions *index_sessions_new(void);
void index_sessions_free(struct index_sessions *sessions);

/* A browser has logged out here: sends it to the other nodes, at once or when the
 * database is back. */
void index_session_ended(struct broker *broker, const struct browser_session *session);
/* STORE_SESSION_ENDED: a browser has logged out, perhaps elsewhere. */
void index_take_session(struct broker *broker, const char *id);
/* The connection is there: exchanges all sessions that ended early. */
void index_sessions_up(struct broker *broker);
/* Goes on after a failure, if there was one. */
void index_sessions_run(struct broker *broker);

/* --- Sandboxes of lost nodes --- */

/* Kills a sandbox of a lost node once that comes back. */
void index_kill_lost(struct broker *broker, struct request_packet *request,
                     const char *tenant);
/* STORE_KILL */
void index_kill(struct broker *broker, const struct store_packet *packet);

/* A copy of a request, which takes its descriptors; NULL: there are too many, and it was
 * refused.  index_let_go() frees it. */
struct index_held {
    struct index_call call;
    struct request_packet *request;
    char tenant[TENANT_MAX];
    char hash[2 * KEY_HASH + 1];
    int64_t most, claim, count;
};
struct index_held *index_hold(struct broker *broker, struct request_packet *request,
                              const char *tenant);
void index_let_go(struct broker *broker, struct index_held *held);

/* --- The program: store-process.c --- */

/* A file with what cay-store has to know; `instance` and `node` may be "".
 * CAY_E_UNSUPPORTED: the program is not installed. */
int store_plan(const struct serve_options *options, const char *node,
               const char *instance, int *ret_plan, struct cay_error *err);
/* Starts it on a new socket: its pid, or -1. */
pid_t store_start(int plan, int *ret_socket);

#endif
