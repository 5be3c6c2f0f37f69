/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SYS_RIGHTS_H
#define SYS_RIGHTS_H

#include <stddef.h>
#include <sys/types.h>
#include <sys/uio.h>

/* Packets with descriptors beside them, on sockets of the type SOCK_SEQPACKET, and bytes
 * of a stream. */

enum { RIGHTS_MAX = 128 }; /* descriptors of one packet */

/* The descriptors stay the caller's.  `flags` are those of sendmsg().  0 or a negative
 * errno. */
int rights_send(int socket, const struct iovec *parts, size_t part_count, const int *fds,
                size_t fd_count, int flags);

/* The bytes received, 0 if the peer is gone, or a negative errno: -EPROTO if the packet
 * was larger than the buffer, -EMFILE if this process could not take the descriptors,
 * which are closed then.  All of `fds` is set, unused entries to -1. */
ssize_t rights_receive(int socket, struct iovec *parts, size_t part_count, int *fds,
                       size_t fd_room, size_t *ret_fd_count, int flags);

/* Closes descriptors from an untrusted sender.  A connection is aborted, so that close(2)
 * does not wait. */
void rights_dismiss(int fd);

/* The same for those that are not -1, which they are then. */
void rights_close(int *fds, size_t count);

/* Closes a socket after closing descriptors in its queue the same way.  Processes that
 * share the socket since a fork lose it as well. */
void rights_hang_up(int socket);

/* The same in the process that connected it; in a forked child only close(2), since the
 * parent still uses it. */
void rights_let_go(int socket, pid_t owner);

#endif
