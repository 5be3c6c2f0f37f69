/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SYS_LANDLOCK_H
#define SYS_LANDLOCK_H

/* Takes every right that this kernel's landlock knows of from the calling thread, for
 * good: no file can be opened, made or renamed, no port used, no process outside
 * signalled. Descriptors that are open already keep working.  Needs no_new_privs.  0 or a
 * negative errno; -ENOSYS or -EOPNOTSUPP where the kernel has no landlock. */
int landlock_deny_all(void);

#endif
