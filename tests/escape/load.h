/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ESCAPE_LOAD_H
#define ESCAPE_LOAD_H

/* Takes up something, `amount` of it at most, and prints "made N errno E": how much there
 * was to be had and what stopped it.  The exit status. */
int load_run(const char *kind, long amount);

#endif
