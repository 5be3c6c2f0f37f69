/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_FRONT_RELAY_H
#define SERVER_FRONT_RELAY_H

#include "server/front/front.h"

struct relay;

/* A reply of 101 after which bytes go both ways between the client and *upstream, which
 * is taken over; `first` has come from there already.  Until that begins the relay is the
 * caller's, in *ret_relay; then that becomes NULL. */
struct MHD_Response *relay_response(struct front *front, int *upstream, const char *first,
                                    size_t len, struct relay **ret_relay);
void relay_free(struct relay *relay);

#endif
