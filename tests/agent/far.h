/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_FAR_H
#define TESTS_FAR_H

#include "cay/agent.h"

/* A sandbox whose backend has no cay_files and forgets what has ended, as one on another
 * machine would: its commands and files are those of a native sandbox, which must outlive
 * it.  far_free() it. */
cay_sandbox *far_new(cay_sandbox *native);
void far_free(cay_sandbox *sandbox);

/* Whether it takes directories as archives; not unless told. */
void far_take_archives(bool takes);

/* What its files were asked since the last time, as letters: r, w, s, l, m, d, t, a. */
const char *far_calls(void);

/* Bytes that its last read sent before it was stopped, or all. */
extern uint64_t far_sent;

/* What happens meanwhile, before it makes a directory; NULL: nothing. */
extern void (*far_meanwhile)(void);

#endif
