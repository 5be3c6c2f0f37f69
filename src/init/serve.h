/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INIT_SERVE_H
#define INIT_SERVE_H

#include "init/plan.h"

/* Says that the sandbox is ready and then answers the control socket for ever. */
_Noreturn void serve(const struct plan *plan);

#endif
