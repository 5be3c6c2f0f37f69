/* SPDX-License-Identifier: Apache-2.0 */
#ifndef E2B_KEPT_H
#define E2B_KEPT_H

#include "e2b/command.h"

/* The output of a command in the background, which lies in two files inside.  They are
 * read from where the last reading stopped, so nothing is lost or told twice, whoever
 * reads.  Nobody tells when there is more: it is looked for, at growing intervals. */

enum { E2B_KEPT_PIECE = 256 << 10, E2B_KEPT_MAX = 1 << 20 };

struct output_files {
    bool is_there;
    int pid;
    uint64_t at[2];
    uint64_t skipped[2]; /* before what is read first */
    uint64_t next_ms;    /* when it is time to look again */
    uint64_t pause_ms;
    unsigned turn;
};

void output_files_init(struct output_files *kept, int pid);

/* Whether there is any of a command that somebody else has started.  Of what it wrote
 * before, the last E2B_KEPT_MAX bytes are read. */
void output_files_find(struct e2b *e2b, struct output_files *kept, int pid);

/* The next piece, if there is one: as e2b_command_next().  `is_last`: the command is
 * over. */
int output_files_next(struct e2b *e2b, struct output_files *kept, bool is_last,
                      struct e2b_event *ret_event);

void output_files_remove(struct e2b *e2b, struct output_files *kept);

#endif
