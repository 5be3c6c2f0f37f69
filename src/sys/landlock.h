/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SYS_LANDLOCK_H
#define SYS_LANDLOCK_H

#include <stdint.h>

/* The kernel's struct landlock_ruleset_attr, whose header may be older than the kernel.
 */
struct landlock_rights {
    uint64_t fs;
    uint64_t net;    /* ABI 4 */
    uint64_t scoped; /* ABI 6 */
};

/* The ABI of this kernel; 0, and errno, if it has no landlock. */
unsigned landlock_abi(void);

/* Every right that this kernel's ABI has, and is known here; NULL, and errno, if none. */
const struct landlock_rights *landlock_all(void);

/* A ruleset without rules, or a negative errno. */
int landlock_create(const struct landlock_rights *rights);

/* Drops every right that this kernel's landlock knows from the calling thread: no file
 * can be opened, created or renamed, no port used, no process outside signalled.  Open
 * descriptors keep working.  Needs no_new_privs. 0 or a negative errno; -ENOSYS or
 * -EOPNOTSUPP without landlock. */
int landlock_deny_all(void);

#endif
