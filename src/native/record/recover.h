/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_RECORD_RECOVER_H
#define NATIVE_RECORD_RECOVER_H

#include "native/record/runtime.h"

/* A sandbox whose record cannot be read.  Its parts carry its id, so they are found
 * without the record: the control socket and the uid range in the runtime directory, the
 * cgroups by their name, its disk and its home; and by these its processes. */

/* Fills in what can be found out, for record_remove(): the rest is 0.  1 if processes of
 * the sandbox run, 0 if none do, negative if that cannot be told now. */
int recover_record(const char *id, struct record *ret_record);

/* Sends SIGKILL to all of its processes that can be found but PID 1, and waits for their
 * end.  0, or -EBUSY if some take their time, or another negative errno. */
int recover_kill(const struct record *record);

#endif
