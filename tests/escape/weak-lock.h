/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ESCAPE_WEAK_LOCK_H
#define ESCAPE_WEAK_LOCK_H

#include "weak.h"

/* Capabilities, limits, landlock and the filter, for this process and its children. */
void weak_lock(const struct weak *weak);

#endif
