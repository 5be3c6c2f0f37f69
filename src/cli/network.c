/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/network.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "cay/approval.h"

static const char op[] = "cli.options";

const char *network_slug(enum cay_network network)
{
    static const char *const slugs[] = {[CAY_NETWORK_NONE] = "none",
                                        [CAY_NETWORK_HOST] = "host",
                                        [CAY_NETWORK_RULES] = "rules",
                                        [CAY_NETWORK_OPEN] = "open"};

    return (unsigned)network < sizeof slugs / sizeof *slugs ? slugs[network] : "none";
}

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
    if (options->approve_egress && options->network >= 0 &&
        options->network != CAY_NETWORK_RULES)
        return cay_fail(err, CAY_E_INVALID, 0, op, "--approve-egress",
                        "this network has no hosts that wait for approval",
                        "leave out --network, or write --network rules");
    if (options->deny.count && !options->approve_egress && !options->allow.count &&
        options->network < 0 && !is_ruled)
        return cay_fail(err, CAY_E_INVALID, 0, op, "--deny",
                        "nothing is allowed that --deny could deny",
                        "add --allow RULE or --network open");
    if (options->network_limit && !options->approve_egress && !has_rules && !is_ruled &&
        !options->join.count && options->network <= CAY_NETWORK_HOST)
        return cay_fail(err, CAY_E_INVALID, 0, op, "--network-limit",
                        "the sandbox has no network that could be limited",
                        "add --allow RULE, --join NETWORK or --network open");
    return CAY_OK;
}

void network_put_rules(struct json *json, const cay_policy *policy)
{
    struct cay_network_rule rule;

    json_put_key(json, "rules");
    json_put_array(json);
    for (size_t i = 0; cay_policy_network_rule(policy, i, &rule); i++) {
        json_put_object(json);
        json_set_text(json, "rule", rule.text);
        json_set_text(json, "group", rule.group[0] ? rule.group : NULL);
        json_put_end(json);
    }
    json_put_end(json);
}

void network_put_counts(struct json *json, const char *key,
                        const struct cay_network_counts *counts)
{
    json_put_key(json, key);
    json_put_object(json);
    json_set_uint(json, "allowed", counts->allowed);
    json_set_uint(json, "refused", counts->refused);
    json_set_uint(json, "up_bytes", counts->up_bytes);
    json_set_uint(json, "down_bytes", counts->down_bytes);
    json_set_uint(json, "events", counts->events);
    json_set_uint(json, "events_lost", counts->events_lost);
    json_set_uint(json, "connections", counts->connections);
    json_set_uint(json, "names", counts->names);
    json_put_end(json);
}

void network_free_rules(char **rules)
{
    for (char **rule = rules; rule && *rule; rule++)
        free(*rule);
    free(rules);
}

char **network_rules(const struct options *options, size_t *ret_count)
{
    size_t allow = options->allow.count, count = allow + options->deny.count;
    char **rules = calloc(count + 1, sizeof *rules);

    for (size_t i = 0; rules && i < count; i++) {
        rules[i] = i < allow ? strdup(options->allow.items[i]) : NULL;
        if (i < allow ? !rules[i]
                      : asprintf(&rules[i], "!%s", options->deny.items[i - allow]) < 0) {
            rules[i] = NULL;
            network_free_rules(TAKE_PTR(rules));
        }
    }
    *ret_count = count;
    return rules;
}

int network_plan(const struct options *options, const cay_policy *policy,
                 cay_policy **ret_policy, struct cay_error *err)
{
    struct cay_network_config config = {.size = sizeof config};

    TRY(check_together(options, policy, err));
    if (options->network > CAY_NETWORK_HOST)
        config.network = (enum cay_network)options->network;
    else if (!options->allow.count && !options->deny.count && !options->network_limit &&
             !options->approve_egress)
        return CAY_OK;
    char **rules = network_rules(options, &config.rule_count);
    if (!rules)
        return cay_fail_memory(err, op);
    config.rules = (const char *const *)rules;
    config.limits = options->network_limit;
    if (options->approve_egress)
        config.approve_ms = options->approve_timeout_ms ? options->approve_timeout_ms
                                                        : CAY_PENDING_TIMEOUT_MS;
    int code = cay_policy_add_network(policy, &config, ret_policy, err);
    network_free_rules(rules);
    return code;
}
