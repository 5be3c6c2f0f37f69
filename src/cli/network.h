/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_NETWORK_H
#define CLI_NETWORK_H

#include "cli/options.h"

/* The policy (NULL: none) with the rules of --network, --allow and --deny.  *ret_policy
 * stays as it is if there are none of them; the caller frees it. */
int network_plan(const struct options *options, const cay_policy *policy,
                 cay_policy **ret_policy, struct cay_error *err);

#endif
