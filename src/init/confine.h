/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INIT_CONFINE_H
#define INIT_CONFINE_H

#include <linux/capability.h>
#include <sys/resource.h>

#include "init/plan.h"

/* Capabilities as bits, all among the first 32. */
enum {
    /* The capabilities of root inside, in its own user namespace: enough for apt, dpkg,
     * pip, useradd and su.  They are the bounding set of every command, and PID 1's own
     * set after confine_self().  Without AUDIT_WRITE su and passwd fail; outside the
     * namespace it has no effect. */
    CONFINE_ROOT_CAPS = 1u << CAP_CHOWN | 1u << CAP_DAC_OVERRIDE | 1u << CAP_FOWNER |
                        1u << CAP_FSETID | 1u << CAP_KILL | 1u << CAP_SETGID |
                        1u << CAP_SETUID | 1u << CAP_NET_BIND_SERVICE |
                        1u << CAP_AUDIT_WRITE,
    /* One more that has no effect in a user namespace.  Only a process with at least the
     * same capabilities may ptrace another of the same user: so root inside cannot read
     * PID 1 even where fs.suid_dumpable is 1, which makes PID 1 dumpable again. */
    CONFINE_INIT_CAP = 1u << CAP_SYS_PACCT
};

/* Limits the bounding set of later commands.  PID 1 keeps its own capabilities for now.
 */
void confine_bounding_set(void);

/* Drops capabilities and installs landlock and seccomp.  `below_root` is the mount that
 * the root is on (PLAN_BOTTOM), or -1. */
void confine_self(const struct plan *plan, int below_root);

/* Instead, for an unconfined sandbox: commands have the caller's rights; a caller that is
 * not root gets no_new_privs, since PID 1 could not kill set-user-id programs. */
void confine_nothing(const struct plan *plan);

/* The commands' RLIMIT_NOFILE where PID 1's is higher, or NULL. */
const struct rlimit *confine_files_limit(void);

/* The seccomp listener on which the kernel reports each filter that a process inside
 * installs (filters.h), or -1 if an outer sandbox has a listener: then the kernel refuses
 * every filter but ours. */
int confine_listener(void);

/* The landlock ruleset that each command enters before execve, or -1. */
int confine_ruleset(void);

/* The suid filter: a second seccomp filter that each command installs before execve.  It
 * forbids what PID 1 itself needs. */
void confine_prepare_suid_filter(const struct plan *plan);

/* How many filters a command has in addition to PID 1's: 0 or 1. */
unsigned confine_suid_filters(void);

/* Called in the child, which must not use errno. 0 or an errno. */
int confine_add_suid_filter(void);

#endif
