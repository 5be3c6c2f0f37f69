/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SYS_STATE_HOME_H
#define SYS_STATE_HOME_H

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

#include "cay/error.h"

/* The state directory, which outlives processes and reboots: $CAY_HOME, else /var/lib/cay
 * for root and $XDG_STATE_HOME/cay for others. */
int state_home_path(char ret_path[PATH_MAX], struct cay_error *err);

/* mkdirat(2) with mode 0700, whatever the umask, which may take the owner's own rights
 * and is not for a library to change.  0 or a negative errno. */
int state_home_make(int dir, const char *path);

/* A descriptor of it, or a code; CAY_E_NOT_FOUND if it does not exist and is not to be
 * created.  No other user can write to it. */
int state_home_open(bool make, struct cay_error *err);

/* Saved interpreters, which are removed this many seconds after their last use:
 * src/code/warm.h. */
#define STATE_WARM   "warm"
#define STATE_WARM_S 600

/* Removes the files of a directory in it whose time is older than this. */
void state_home_sweep(const char *directory, time_t seconds);

/* CAY_E_UNAVAILABLE unless this user owns the directory and its mode has none of the
 * `forbidden` bits. */
int state_home_check(int fd, const char *subject, mode_t forbidden,
                     struct cay_error *err);

#endif
