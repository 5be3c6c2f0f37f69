/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SYS_SIGPIPE_H
#define SYS_SIGPIPE_H

#include <signal.h>

/* Blocks SIGPIPE for this thread between the two calls, so that writes fail with EPIPE.
 */
void sigpipe_block(sigset_t *ret_before);
void sigpipe_restore(const sigset_t *before);

#endif
