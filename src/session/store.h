/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SESSION_STORE_H
#define SESSION_STORE_H

#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>

#include "cay/session.h"
#include "session/sqlite.h"

/* One connection, which one thread uses at a time.  SQLite's own state does not survive a
 * fork: in any other process than its owner's the handle is of no use, and not even
 * closed. */
struct cay_store {
    sqlite3 *database;
    pthread_mutex_t mutex;
    pid_t owner;
    int locks; /* the file of the sessions' locks: see lock.h */
    bool is_in_memory;
    char name[256]; /* as the caller spelled it */
};

/* How a database of each version becomes one of the next; an empty one is version 0. */
struct schema {
    const char *const *steps;
    size_t count;
};
extern const struct schema schema_current;

int store_open(const char *path, const struct schema *schema, cay_store **ret_store,
               struct cay_error *err);

/* Brings the database up to the schema, all or nothing. */
int schema_apply(cay_store *store, const struct schema *schema, struct cay_error *err);

/* CAY_E_INVALID in a process forked from the one that opened the store. */
int store_check_owner(const cay_store *store, const char *op, struct cay_error *err);

/* A recursive lock on the connection. */
int store_enter(cay_store *store, const char *op, struct cay_error *err);
void store_leave(cay_store *store);

/* CAY_E_INVALID unless each is UTF-8 text of 1 to 256 bytes. */
int store_check_ids(const char *op, const char *user_id, const char *session_id,
                    struct cay_error *err);

#endif
