/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ESCAPE_NEIGHBOUR_H
#define ESCAPE_NEIGHBOUR_H

#include "world.h"

/* Another sandbox that counts while the first one misbehaves.  neighbour_end() prints the
 * longest time it was kept waiting, and fails the test if it lost count. */
void neighbour_begin(void);
void neighbour_end(const char *during);

#endif
