/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INIT_INSIDE_H
#define INIT_INSIDE_H

#include "init/plan.h"

/* Becomes the sandbox. */
_Noreturn void inside_begin(const struct plan *plan);

#endif
