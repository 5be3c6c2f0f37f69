/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_RECORD_USERNS_H
#define NATIVE_RECORD_USERNS_H

#include "cay/error.h"

/* Files of an ordinary user's templates and disks belong to subordinate ids, which only a
 * process in a user namespace with these ids can create, read and remove. */

/* Calls act(cookie) as root of such a user namespace and returns its code.  The map is
 * that of the user's sandboxes at level range; without subordinate ids, root inside is
 * the caller.
 *
 * act() runs in another process, which shares the memory and the descriptors of this
 * thread, while this thread waits: it may use any function of the library, and callbacks
 * of the caller, as this thread would.  All signals are blocked there, and handlers run
 * in this thread; signals that are pending here become pending there, too. */
int userns_run(int (*act)(void *cookie, struct cay_error *err), void *cookie,
               struct cay_error *err);

#endif
