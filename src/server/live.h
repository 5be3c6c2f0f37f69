/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_LIVE_H
#define SERVER_LIVE_H

#include "server/wire/options.h"

/* The address of each server, for `cay env`: a file $CAY_HOME/serve-PORT.live, which the
 * server keeps locked.  A file without a lock belongs to a server that was killed. */

struct live {
    char address[64], domain[256]; /* domain "": none */
    unsigned port;
    bool has_tls;
};

/* The server works without it, so a failure is ignored. */
void live_write(const struct serve_options *options, const char *store);
void live_remove(void);

/* Counts the servers with this home and store, and returns one of them. */
unsigned live_find(const char *home, const char *store, struct live *ret_live);

#endif
