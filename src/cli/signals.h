/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_SIGNALS_H
#define CLI_SIGNALS_H

#include <signal.h>
#include <stdbool.h>

/* For commands that must not leave a sandbox or a raw terminal behind.  From
 * signals_catch() on, SIGINT, SIGTERM, SIGHUP and SIGQUIT are delivered only inside
 * ppoll() with signals_mask(), and remembered; the library's own waits are not disturbed.
 * A signal that was ignored when we started stays ignored.  SIGPIPE becomes EPIPE. */
void signals_catch(void);
const sigset_t *signals_mask(void);

/* Returns and clears the caught or pending signal that ends cay, or 0. */
int signals_take(void);

/* Whether the terminal changed its size, or we were stopped, since the last call. */
bool signals_redraw(void);

/* Ends by the signal, as if it had not been caught. */
_Noreturn void signals_die(int number);

#endif
