/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SYS_RIGHTS_H
#define SYS_RIGHTS_H

#include <stddef.h>
#include <sys/types.h>
#include <sys/uio.h>

/* Packets with descriptors beside them, on sockets of the type SOCK_SEQPACKET. */

enum { RIGHTS_MAX = 128 }; /* descriptors of one packet */

/* The descriptors stay the caller's.  `flags` are those of sendmsg().  0 or a negative
 * errno. */
int rights_send(int socket, const struct iovec *parts, size_t part_count, const int *fds,
                size_t fd_count, int flags);

/* The bytes that came, 0 if the peer is gone, or a negative errno: -EPROTO if there was
 * more than there is room for, -EMFILE if this process could not take the descriptors,
 * which are closed then.  All of `fds` is set, to -1 where no descriptor came. */
ssize_t rights_receive(int socket, struct iovec *parts, size_t part_count, int *fds,
                       size_t fd_room, size_t *ret_fd_count, int flags);

/* Closes what somebody has sent whom nobody trusts.  A connection is broken off, and not
 * waited for, as close(2) may do. */
void rights_dismiss(int fd);

/* The same for those that are not -1, which they are then. */
void rights_close(int *fds, size_t count);

/* Closes a socket, and before it in the same way what a peer may have put there.  Whoever
 * shares the socket since a fork loses it as well. */
void rights_hang_up(int socket);

/* The same in the process that connected it; in a child that has it since a fork only
 * close(2), for the parent goes on with it. */
void rights_let_go(int socket, pid_t owner);

#endif
