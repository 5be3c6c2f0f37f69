/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INIT_CONFINE_H
#define INIT_CONFINE_H

#include <linux/capability.h>
#include <sys/resource.h>

#include "init/plan.h"

/* Capabilities as bits, all of them among the first 32. */
enum {
    /* What root inside may have, within its own user namespace: enough for apt, dpkg,
     * pip, useradd and su.  Whatever PID 1 starts is held to these by its bounding set,
     * and once the door is locked it has them itself.  Without AUDIT_WRITE su and passwd
     * give up; outside it means nothing. */
    CONFINE_ROOT_CAPS = 1u << CAP_CHOWN | 1u << CAP_DAC_OVERRIDE | 1u << CAP_FOWNER |
                        1u << CAP_FSETID | 1u << CAP_KILL | 1u << CAP_SETGID |
                        1u << CAP_SETUID | 1u << CAP_NET_BIND_SERVICE |
                        1u << CAP_AUDIT_WRITE,
    /* And one more that means nothing in a user namespace.  Who has no less may look into
     * another process of the same user: so root inside is kept from PID 1 even where
     * fs.suid_dumpable is 1, which makes PID 1 dumpable again. */
    CONFINE_INIT_CAP = 1u << CAP_SYS_PACCT
};

/* Takes from commands to come what they may never have.  We keep it for now. */
void confine_bounding_set(void);

/* Gives up what nothing inside may have, and installs landlock and seccomp. */
void confine_self(const struct plan *plan);

/* Instead, where commands are the caller's own: they have what the caller has, but if
 * that is not root they get no more by set-user-id programs, which we could not kill. */
void confine_nothing(const struct plan *plan);

/* The open files that commands may have where we may have more, or NULL. */
const struct rlimit *confine_files_limit(void);

/* Where the kernel reports each filter that is to be installed (filters.h), or -1 if an
 * outer sandbox has such a listener: then the kernel refuses every filter but ours. */
int confine_listener(void);

/* The fourth argument with which seccomp(2) installs one of ours. */
uint64_t confine_pass(void);

/* A landlock ruleset that each command puts on before it executes, or -1. */
int confine_ruleset(void);

#endif
