/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_BROKER_RESTARTS_H
#define SERVER_BROKER_RESTARTS_H

#include <stdbool.h>
#include <stdint.h>

/* How often a process may be started again: one that ends now and then may do so for
 * years, one that ends again and again would never serve anybody. */

enum {
    RESTARTS_MAX = 100, /* of them within RESTARTS_MS */
    RESTARTS_MS = 3600 * 1000,
    DEATHS_MAX = 5, /* in a row, each before it was ALIVE_MS old */
    ALIVE_MS = 1000
};

struct restarts {
    int64_t started_ms[RESTARTS_MAX]; /* the last of them, around the end */
    uint64_t count;                   /* of all */
    unsigned deaths;
};

/* It is to be started, now by a clock that only goes on: false if that was too often. */
bool restarts_note(struct restarts *restarts, int64_t now_ms);

#endif
