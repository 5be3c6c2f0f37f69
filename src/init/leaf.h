/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INIT_LEAF_H
#define INIT_LEAF_H

#include <stdbool.h>

/* A cgroup of one command: whoever it starts stays in it, so that killing the leaf kills
 * the whole tree, setsid and double forks included.  Where there are no cgroups a process
 * does that (hold.h).  All return 0 or a negative errno. */
struct leaf {
    int fd; /* O_PATH of its directory, or the socket to its holder; -1: there is none */
    int events; /* cgroup.events */
    unsigned number;
    bool is_held;
};

#define LEAF_NONE                                                                        \
    {                                                                                    \
        .fd = -1, .events = -1                                                           \
    }

/* Before the first of the following. */
void leaf_prepare(bool has_cgroup);

int leaf_open(unsigned number, struct leaf *ret_leaf);
int leaf_kill(const struct leaf *leaf);
bool leaf_is_empty(const struct leaf *leaf);

/* Removes it if it is empty; else it stays until the sandbox goes. */
void leaf_close(struct leaf *leaf);

#endif
