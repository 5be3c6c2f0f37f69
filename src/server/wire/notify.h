/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_WIRE_NOTIFY_H
#define SERVER_WIRE_NOTIFY_H

#include <stdbool.h>

/* Messages to the service manager: the protocol of sd_notify(3), a datagram to the socket
 * that $NOTIFY_SOCKET names.  Without that variable nothing is sent. */

/* Reads and removes the variables: commands in sandboxes must not get them. */
void notify_open(void);

/* Lines such as "READY=1\nSTATUS=serving".  Never blocks; a failure is ignored. */
void notify_send(const char *lines);

/* "WATCHDOG=1", if the manager expects it and a quarter of its interval is over. */
void notify_watchdog(void);

#endif
