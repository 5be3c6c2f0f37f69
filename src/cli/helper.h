/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_HELPER_H
#define CLI_HELPER_H

#include "cay/error.h"

/* Becomes another program of ours: one that lies beside this one, where both were built,
 * or in the directory for such helpers, where they are installed.  argv[0] is for show.
 * Returns only if it cannot. */
int helper_become(const char *name, char *const *argv, struct cay_error *err);

#endif
