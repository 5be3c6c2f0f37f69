/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SYS_SIGPIPE_H
#define SYS_SIGPIPE_H

#include <signal.h>

/* A reader that goes away is our business, not a reason for the process to die.  For this
 * thread, between the two calls. */
void sigpipe_block(sigset_t *ret_before);
void sigpipe_restore(const sigset_t *before);

#endif
