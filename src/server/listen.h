/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_LISTEN_H
#define SERVER_LISTEN_H

#include "server/wire/options.h"

/* The socket that clients come to: one that systemd has passed, or a new one.  The port
 * that it has goes into the options. */
int listen_open(struct serve_options *options, int *ret_socket, struct cay_error *err);

#endif
