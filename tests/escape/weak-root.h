/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ESCAPE_WEAK_ROOT_H
#define ESCAPE_WEAK_ROOT_H

#include "weak.h"

/* Ends the process with a line that names the step, unless `fine`. */
void weak_need(bool fine, const char *step);

/* In a mount namespace of its own: a root like a sandbox's, or the host's. */
void weak_make_root(const struct weak *weak);

#endif
