/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INIT_SUDO_H
#define INIT_SUDO_H

#include <stdbool.h>

#include "init/plan.h"
#include "init/serve.h"

/* `sudo` of the template "base".  Set-user-id programs have no effect under no_new_privs,
 * so PID 1 starts the command: the client connects to a socket inside and sends the same
 * EXEC that the library sends from outside, with its own standard streams.  This gives
 * `user` what E2B's template gives it, and nothing that a caller outside cannot have with
 * user=root; the command has the same cgroup, filter and mounts.
 *
 * Messages on this socket are written by processes inside: only EXEC and SIGNAL are
 * accepted, with a few flags, and these connections have their own limit, so that they
 * cannot use up those of callers outside. */

/* In /dev, which no checkpoint replaces: a socket's file is found by its inode. */
#define SUDO_SOCKET "/dev/cay-sudo"
enum { SUDO_PEERS_MAX = 64 };

/* The listening socket, or -1 if this sandbox has none. */
int sudo_listen(const struct plan *plan);

/* Whether the process at the other end is root's or `user`'s. */
bool sudo_may_connect(int fd);

/* False if the peer violated the protocol. */
bool sudo_handle(struct peer *peer, struct packet *packet);

/* The program `sudo` itself. */
int sudo_main(char **argv);

#endif
