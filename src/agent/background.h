/* SPDX-License-Identifier: Apache-2.0 */
#ifndef AGENT_BACKGROUND_H
#define AGENT_BACKGROUND_H

#include "cay/agent.h"

/* Those that are tried, in this order; NULL behind the last. */
extern const char *const shells[];

int background_start(cay_sandbox *sandbox, const char *command,
                     const struct cay_command_options *options,
                     struct cay_command_result *ret_result, struct cay_error *err);

#endif
