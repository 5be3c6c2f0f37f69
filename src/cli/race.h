/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_RACE_H
#define CLI_RACE_H

#include "cay/try.h"
#include "cli/options.h"

/* cay try -j N: the command in several tries of a directory at a time, each in a process
 * of its own, then a table that compares them.  `run` is called in that process; what it
 * prints is kept apart, and it returns like a call_runner.  `note`: see struct
 * cay_try_options.  Returns 0 if a command succeeded, else the status of the first. */
int race_run(struct call *call, const char *dir, const char *note,
             int (*run)(struct call *call, const struct cay_try_info *info,
                        struct cay_error *err),
             struct cay_error *err);

#endif
