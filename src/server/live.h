/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_LIVE_H
#define SERVER_LIVE_H

#include "server/wire/options.h"

/* Where servers listen, for `cay env`: a file $CAY_HOME/serve-PORT.live for each, which
 * the server holds a lock on for as long as it lives.  One without a lock was left by a
 * server that was killed. */

struct live {
    char address[64], domain[256]; /* domain "": none given */
    unsigned port;
    bool has_tls;
};

/* Failing is not an error: the server works without. */
void live_write(const struct serve_options *options, const char *store);
void live_remove(void);

/* How many servers with this home and store live; one of them is returned. */
unsigned live_find(const char *home, const char *store, struct live *ret_live);

#endif
