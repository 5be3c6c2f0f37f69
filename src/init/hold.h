/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INIT_HOLD_H
#define INIT_HOLD_H

#include <stdbool.h>
#include <stdint.h>

#include "init/command.h"

/* Holding a command's tree together where no cgroup does it.
 *
 * Each command is started by a process of its own, its holder: a copy of us that adopts
 * whatever the command leaves behind, so that all of its tree is below the holder and
 * below no other.  To kill the tree is to kill the holder: what it held becomes our own
 * child, and whatever is our child and no holder dies, until there is none. */

/* What a holder tells: that its command has ended. */
struct hold_end {
    pid_t pid; /* of the command */
    int status;
    uint64_t user_us, system_us, peak_memory;
};

/* As command_start(); *ret_holder is the process and *ret_fd what tells of the end, which
 * stays ours. */
int hold_start(const struct command *command, pid_t *ret_pid, pid_t *ret_holder,
               int *ret_fd, struct cay_error *err);

/* The next that has ended, if any. */
bool hold_next_end(struct hold_end *ret_end);

/* A child of ours has died; whether it was a holder. */
bool hold_reaped(pid_t pid);

void hold_kill(pid_t holder);

/* Whether nothing is left of what holders held that are gone.  Kills what is. */
bool hold_is_swept(void);

/* Ends every tree, and returns when they are dead. */
void hold_end_all(void);

#endif
