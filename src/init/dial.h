/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INIT_DIAL_H
#define INIT_DIAL_H

#include "init/peer.h"

/* DIAL: a socket connected to a port of the sandbox's own network.  False if the request
 * broke the rules. */
bool dial_answer(struct peer *peer, const struct packet *packet);

#endif
