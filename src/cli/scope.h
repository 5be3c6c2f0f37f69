/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_SCOPE_H
#define CLI_SCOPE_H

/* Moves this process into a scope of the user's service manager, as systemd-run --user
 * --scope -p Delegate=yes does, so that sandboxes have limits and can be paused.  Only
 * from the scope of a login session, whose cgroup belongs to root: the kernel refuses to
 * move a process out of that one into a delegated cgroup, but systemd can.  Without such
 * a manager nothing happens. */
void scope_join(void);

#endif
