/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_NETWORK_H
#define CLI_NETWORK_H

#include "cli/options.h"

/* The policy (NULL: none) with the rules of --network, --allow and --deny.  *ret_policy
 * stays as it is if there are none of them; the caller frees it. */
int network_plan(const struct options *options, const cay_policy *policy,
                 cay_policy **ret_policy, struct cay_error *err);

/* The rules of --allow and --deny, NULL-terminated; NULL if memory is exhausted. */
char **network_rules(const struct options *options, size_t *ret_count);
void network_free_rules(char **rules);

/* "none", "host", "rules" or "open". */
const char *network_slug(enum cay_network network);

/* The key "rules" of an object: an array of rules with their groups. */
void network_put_counts(struct json *json, const char *key,
                        const struct cay_network_counts *counts);
void network_put_rules(struct json *json, const cay_policy *policy);

#endif
