/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INIT_PTY_H
#define INIT_PTY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Terminals of the sandbox's own devpts.  All return 0 or a negative errno. */

/* Opens /dev/pts before a process inside can replace it. */
void pty_prepare(bool are_ours);

/* A new terminal that belongs to `owner`. */
int pty_open(uid_t owner, uint16_t rows, uint16_t columns, int *ret_master,
             int *ret_slave);

int pty_resize(int master, uint16_t rows, uint16_t columns);

#endif
