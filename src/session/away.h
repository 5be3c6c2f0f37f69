/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SESSION_AWAY_H
#define SESSION_AWAY_H

#include <stdbool.h>
#include <sys/types.h>

#include "cay/error.h"

/* Work in a background process, which ends by itself, after ten minutes at the latest;
 * its parent may be gone by then. */
struct away {
    pid_t pid;
    int pidfd;
    int channel;
};
#define AWAY_NONE                                                                        \
    {                                                                                    \
        .pid = -1, .pidfd = -1, .channel = -1                                            \
    }

enum { AWAY_ID_MAX = 257 };

struct away_outcome {
    struct cay_error error; /* its code is CAY_OK if it went well */
    char id[AWAY_ID_MAX];   /* of the sandbox */
};

/* The child has one thread and a copy of the memory; it must not use its parent's
 * connections. */
int away_start(const char *op,
               void (*run)(void *cookie, struct away_outcome *ret_outcome), void *cookie,
               struct away *ret_away, struct cay_error *err);

/* Waits for its end, and fills in the outcome even if it was killed. */
void away_wait(struct away *away, const char *op, struct away_outcome *ret_outcome);

bool away_has_ended(const struct away *away);

#endif
