/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INIT_SERVE_H
#define INIT_SERVE_H

#include "init/peer.h"
#include "init/plan.h"

/* Says that the sandbox is ready and then answers the control socket for ever. */
_Noreturn void serve(const struct plan *plan);

/* For what is served: 0 or a negative errno. */
int serve_watch(int fd, struct source *source);
void serve_forget(int fd);

/* Closes what is watched.  close(2) alone would not end the watch while a child on its
 * way to execve has a copy of the descriptor. */
void serve_close(int fd);

/* Ends, and with us everything inside. */
_Noreturn void serve_end(void);

#endif
