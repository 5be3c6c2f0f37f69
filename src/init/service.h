/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INIT_SERVICE_H
#define INIT_SERVICE_H

#include "init/serve.h"

/* CODE: replies with a socket to the code service of a user (code.h), which PID 1 starts
 * if it does not run.  False if the peer violated the protocol. */
bool service_dial(struct peer *peer, const struct packet *packet);

#endif
