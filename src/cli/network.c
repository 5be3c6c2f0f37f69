/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/network.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"

static const char op[] = "cli.options";

static int check_together(const struct options *options, const cay_policy *policy,
                          struct cay_error *err)
{
    bool has_rules = options->allow.count || options->deny.count;
    bool is_ruled = policy && cay_policy_network(policy) != CAY_NETWORK_NONE;

    if (has_rules &&
        (options->network == CAY_NETWORK_NONE || options->network == CAY_NETWORK_HOST))
        return cay_fail(err, CAY_E_INVALID, 0, op, "--network",
                        "--allow and --deny have no effect on this network",
                        "leave out --network, or write --network open");
    if (is_ruled && options->network == CAY_NETWORK_NONE)
        return cay_fail(err, CAY_E_INVALID, 0, op, "--network none",
                        "the configuration has network rules",
                        "leave them out of the configuration");
    if (options->deny.count && !options->allow.count && options->network < 0 && !is_ruled)
        return cay_fail(err, CAY_E_INVALID, 0, op, "--deny",
                        "nothing is allowed that --deny could deny",
                        "add --allow RULE or --network open");
    return CAY_OK;
}

int network_plan(const struct options *options, const cay_policy *policy,
                 cay_policy **ret_policy, struct cay_error *err)
{
    size_t allow = options->allow.count, deny = options->deny.count;
    struct cay_network_config config = {.size = sizeof config};

    TRY(check_together(options, policy, err));
    if (options->network > CAY_NETWORK_HOST)
        config.network = (enum cay_network)options->network;
    else if (!allow && !deny)
        return CAY_OK;
    AUTO_FREE char **denied = calloc(deny + 1, sizeof *denied);
    AUTO_FREE const char **rules = calloc(allow + deny + 1, sizeof *rules);
    if (!denied || !rules)
        return cay_fail_memory(err, op);
    int code = CAY_OK;
    while (config.rule_count < allow) {
        rules[config.rule_count] = options->allow.items[config.rule_count];
        config.rule_count++;
    }
    for (size_t i = 0; !code && i < deny; i++) {
        if (asprintf(&denied[i], "!%s", options->deny.items[i]) < 0) {
            denied[i] = NULL;
            code = cay_fail_memory(err, op);
        }
        rules[config.rule_count++] = denied[i];
    }
    config.rules = rules;
    if (!code)
        code = cay_policy_add_network(policy, &config, ret_policy, err);
    for (size_t i = 0; i < deny; i++)
        free(denied[i]);
    return code;
}
