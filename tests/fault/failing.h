/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_FAILING_H
#define TESTS_FAILING_H

#include <stdbool.h>
#include <stddef.h>

/* An allocation that fails.  The linker sends the calls of our own objects here first
 * (see meson.build); those inside other libraries are not touched, but their constructors
 * that return NULL for want of memory count as allocations, too. */

enum failing_where {
    FAILING_HERE, /* in this process */
    FAILING_CHILD /* in one that it forks: the confined reader of archives */
};

/* From now on the nth allocation there (1 is the first) fails, once. */
void failing_start(enum failing_where where, unsigned nth);

struct failing_tally {
    unsigned here, child; /* allocations tried since failing_start() */
    bool failed;          /* the nth was reached */
};

/* Nothing fails any more. */
struct failing_tally failing_stop(void);

/* How many of the blocks allocated between start and stop have not been freed by now. */
size_t failing_unfreed(void);

#endif
