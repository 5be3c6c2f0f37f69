/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INIT_SERVE_H
#define INIT_SERVE_H

#include "init/peer.h"
#include "init/plan.h"

/* Reports that the sandbox is ready, then serves the control socket and never returns. */
_Noreturn void serve(const struct plan *plan);

/* Adds `fd` to the epoll set: 0 or a negative errno. */
int serve_watch(int fd, struct source *source);
void serve_forget(int fd);

/* Closes a watched descriptor. close(2) alone would not end the watch while a child
 * before its execve has a copy of the descriptor. */
void serve_close(int fd);

/* Exits, which ends everything inside. */
_Noreturn void serve_end(void);

#endif
