/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_STORE_CLIENT_H
#define SERVER_STORE_CLIENT_H

#include <sys/types.h>

#include "cay/error.h"
#include "server/wire/options.h"
#include "server/wire/store.h"

/* For commands: requests to a cay-store of their own, which wait for the replies. */
struct store_client {
    int socket;
    pid_t pid;
    struct store_packet packet;
};

/* Fails if the database cannot be reached. */
int store_client_open(const struct serve_options *options, struct store_client *client,
                      struct cay_error *err);
void store_client_close(struct store_client *client);

/* `visit` (may be NULL) gets each row. */
int store_client_ask(struct store_client *client, struct store_message *message,
                     const struct buf *strings,
                     void (*visit)(const struct store_packet *packet, void *cookie),
                     void *cookie, struct cay_error *err);

#endif
