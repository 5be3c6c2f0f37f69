/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_STORE_STORE_H
#define SERVER_STORE_STORE_H

#include <libpq-fe.h>
#include <stdbool.h>

#include "cay/error.h"
#include "server/wire/store.h"

/* cay-store: one thread, one connection to PostgreSQL in pipeline mode, one socket to the
 * broker.  It alone knows the password. */

enum { STORE_PASSWORD_MAX = 1024 };

/* What the broker has passed: STORE_PLAN. */
struct plan {
    char text[STORE_PLAN_MAX + 1];
    const char *strings[PLAN_STRINGS];
    char password[STORE_PASSWORD_MAX];
};

/* --- The connection: database.c --- */

struct pending {
    enum store_kind kind;
    uint64_t number, sent_ms;
    int statement, count;           /* the present one, and of all */
    int code;                       /* of STORE_DONE */
    int64_t numbers[STORE_NUMBERS]; /* the same */
    char why[256];                  /* the same */
    bool is_taken;                  /* BEAT: another server has the name */
};

enum phase {
    PHASE_AWAY,    /* until again_ms */
    PHASE_CONNECT, /* PQconnectPoll() */
    PHASE_SET,
    PHASE_MIGRATE,
    PHASE_CLAIM,
    PHASE_VERSION,
    PHASE_EVENTS,
    PHASE_LISTEN,
    PHASE_UP
};

struct database {
    const struct plan *plan;
    int socket; /* of the broker */
    PGconn *connection;
    PostgresPollingStatusType wanted; /* PHASE_CONNECT */
    enum phase phase;
    uint64_t phase_ms; /* when it began, by clock_ms() */
    uint64_t again_ms, wait_ms;
    uint64_t failed_ms; /* the first failure since the last success; 0: none */
    uint64_t tidied_ms;
    bool has_unsent; /* PQflush() has more */
    int64_t epoch, version;
    struct pending pending[STORE_WINDOW]; /* a ring */
    unsigned first, count;
};

void database_open(struct database *database, const struct plan *plan, int socket);
/* For poll(2): -1: no socket. */
int database_socket(const struct database *database);
short database_events(const struct database *database);
int database_wait_ms(const struct database *database);
/* Call after each poll(2). */
void database_run(struct database *database, bool is_ready);
bool database_has_room(const struct database *database);
void database_ask(struct database *database, const struct store_packet *packet);

/* Waits until the broker has room for the message; exits if the broker is gone. */
void store_reply(int socket, struct store_message *message, const struct buf *strings);

/* --- SQL: statements.c --- */

/* Sends the statements of a request and returns their number; 0: the request is invalid.
 * -1: the connection failed. */
int statements_send(struct database *database, const struct store_packet *packet);
/* Takes one result of the first request. */
void statements_take(const struct database *database, struct pending *pending,
                     PGresult *result);

/* --- Confinement: confine.c --- */

/* From now on: no user, no capability, no new program, no file to write. */
int store_confine(struct cay_error *err);

#endif
