/* SPDX-License-Identifier: Apache-2.0 */
/* The network of a policy: public names for network/. */
#include <stdio.h>
#include <string.h>

#include "base/auto.h"
#include "base/error.h"
#include "base/quantity.h"
#include "network/groups.h"
#include "policy/policy.h"

static const char op[] = "policy.network";

static void auto_cay_policy(cay_policy **policy)
{
    cay_policy_free(*policy);
}

enum cay_network cay_policy_network(const cay_policy *policy)
{
    if (!policy->network)
        return CAY_NETWORK_NONE;
    return network_rules_mode(policy->network) == NETWORK_RULES ? CAY_NETWORK_RULES
                                                                : CAY_NETWORK_OPEN;
}

bool cay_policy_allows_first(const cay_policy *policy)
{
    return policy->network && network_rules_mode(policy->network) == NETWORK_E2B;
}

bool cay_policy_network_rule(const cay_policy *policy, size_t index,
                             struct cay_network_rule *ret_rule)
{
    if (!policy->network || index >= network_rules_count(policy->network))
        return false;
    const char *group = network_rules_group(policy->network, index);
    network_rules_text(policy->network, index, ret_rule->text);
    cay_copy_text(ret_rule->group, sizeof ret_rule->group, group ? group : "");
    return true;
}

void cay_policy_network_limits(const cay_policy *policy,
                               struct cay_network_limits *ret_limits)
{
    *ret_limits = (struct cay_network_limits){0};
    if (!policy->network)
        return;
    const uint64_t *at = network_rules_limits(policy->network)->at;
    *ret_limits = (struct cay_network_limits){at[NETWORK_CONNECTIONS], at[NETWORK_BYTES],
                                              at[NETWORK_RATE]};
}

uint64_t cay_policy_network_approval(const cay_policy *policy)
{
    return policy->network ? network_rules_ask(policy->network) : 0;
}

static int fail_limits(const char *text, struct cay_error *err)
{
    return cay_fail(err, CAY_E_INVALID, 0, op, text, "invalid limits of the network",
                    "write connections=64,bytes=1G,rate=10M (a second) or some of them, "
                    "and none for no limit");
}

/* "64", "1G" or "none" */
static bool parse_limit(const char *text, uint64_t *ret_value)
{
    *ret_value = 0;
    return strcmp(text, "none") == 0 || quantity_parse_size(text, ret_value);
}

/* Over those that the rules have already. */
static int take_limits(const char *text, struct network_rules *rules,
                       struct cay_error *err)
{
    struct network_limits limits = *network_rules_limits(rules);
    AUTO_FREE char *copy = strdup(text);

    if (!copy)
        return cay_fail_memory(err, op);
    char *at = copy;
    for (char *name; (name = strsep(&at, ","));) {
        char *value = strchr(name, '=');
        unsigned which = 0;
        if (value)
            *value++ = '\0';
        while (which < NETWORK_LIMITS &&
               strcmp(network_limit_slug((enum network_limit)which), name) != 0)
            which++;
        if (!value || which == NETWORK_LIMITS || !parse_limit(value, &limits.at[which]))
            return fail_limits(text, err);
    }
    return network_rules_set_limits(rules, &limits, err);
}

static int take_mode(const cay_policy *policy, const struct cay_network_config *config,
                     enum network_mode *ret_mode, struct cay_error *err)
{
    enum cay_network network = config->network;

    if (network == CAY_NETWORK_NONE && policy->network && !config->allow_first) {
        *ret_mode = network_rules_mode(policy->network);
        return CAY_OK;
    }
    if (network == CAY_NETWORK_NONE)
        network = policy->network ? cay_policy_network(policy) : CAY_NETWORK_RULES;
    if (network != CAY_NETWORK_RULES && network != CAY_NETWORK_OPEN)
        return cay_fail(err, CAY_E_INVALID, 0, op, "network",
                        "a policy cannot have rules for this network",
                        "use CAY_NETWORK_RULES or CAY_NETWORK_OPEN");
    if (config->allow_first && network != CAY_NETWORK_OPEN)
        return cay_fail(err, CAY_E_INVALID, 0, op, "allow_first",
                        "allow_first is for an open network only",
                        "set network to CAY_NETWORK_OPEN, or leave allow_first out");
    *ret_mode = config->allow_first           ? NETWORK_E2B
                : network == CAY_NETWORK_OPEN ? NETWORK_OPEN
                                              : NETWORK_RULES;
    return CAY_OK;
}

static int take_groups(const struct cay_network_config *config,
                       struct network_groups *groups, struct cay_error *err)
{
    if (!groups->count)
        TRY(network_groups_init(groups, err));
    for (size_t i = 0; i < config->group_count; i++) {
        AUTO_FREE char *name = strdup(config->groups[i]);
        if (!name)
            return cay_fail_memory(err, op);
        char *rule = strchr(name, '=');
        if (!rule)
            return cay_fail(err, CAY_E_INVALID, 0, op, name, "invalid host of a group",
                            "write GROUP=HOST, for example pypi=mirror.example.com");
        *rule++ = '\0';
        TRY(network_groups_add(groups, name, rule, err));
    }
    return CAY_OK;
}

static int add_rules(const struct cay_network_config *config, cay_policy *policy,
                     struct cay_error *err)
{
    AUTO_NETWORK_RULES rules = NULL;
    enum network_mode mode = NETWORK_RULES;

    TRY(take_mode(policy, config, &mode, err));
    TRY(network_rules_add(policy->network, mode, config->rules, config->rule_count,
                          &policy->groups, &rules, err));
    if (config->limits)
        TRY(take_limits(config->limits, rules, err));
    if (config->approve_ms)
        TRY(network_rules_set_ask(rules, config->approve_ms, err));
    network_rules_free(policy->network);
    policy->network = TAKE_PTR(rules);
    return CAY_OK;
}

int cay_policy_add_network(const cay_policy *policy,
                           const struct cay_network_config *config,
                           cay_policy **ret_policy, struct cay_error *err)
{
    static const struct cay_policy_config none = {.size = sizeof none,
                                                  .style = CAY_STYLE_PATHS};
    struct cay_network_config known;
    AUTO(cay_policy) copy = NULL;

    TRY(cay_take_struct(&known, sizeof known, config, op, err));
    TRY(policy ? policy_copy(policy, &copy, err) : cay_policy_new(&none, &copy, err));
    TRY(take_groups(&known, &copy->groups, err));
    if (known.network || known.rule_count || known.allow_first || known.limits ||
        known.approve_ms)
        TRY(add_rules(&known, copy, err));
    *ret_policy = TAKE_PTR(copy);
    return CAY_OK;
}

/* --- Explaining --- */

static int take_address(const char *text, struct network_address *ret_address,
                        struct cay_error *err)
{
    if (network_address_parse(text, ret_address))
        return CAY_OK;
    return cay_fail(err, CAY_E_INVALID, 0, op, text, "invalid address",
                    "write it like 192.0.2.1 or 2001:db8::1");
}

static int ask(const struct network_rules *rules, const struct cay_network_query *query,
               struct network_answer *answer, struct cay_error *err)
{
    struct network_address address;

    if (network_address_parse(query->host, &address)) {
        network_check_address(rules, &address, query->port, NULL, answer);
        return CAY_OK;
    }
    network_check_name(rules, query->host, query->port, answer);
    if (query->method || query->path)
        network_check_request(rules, query->host, query->port,
                              query->method ? query->method : "GET",
                              query->path ? query->path : "/", answer);
    if (query->address && answer->verdict != NETWORK_DENY) {
        TRY(take_address(query->address, &address, err));
        struct network_answer there;
        network_check_resolved(rules, query->host, &address, query->port, NULL, &there);
        if (there.verdict == NETWORK_DENY)
            *answer = there;
    }
    return CAY_OK;
}

int cay_policy_explain_network(const cay_policy *policy,
                               const struct cay_network_query *query,
                               struct cay_network_answer *ret_answer,
                               struct cay_error *err)
{
    static const char none[] = "The sandbox has no network but its own loopback: allow "
                               "hosts with --allow, or a policy with network rules.";
    struct cay_network_query known;
    struct network_answer answer = {.verdict = NETWORK_DENY, .rule = "default"};

    TRY(cay_take_struct(&known, sizeof known, query, op, err));
    if (!known.host)
        return cay_fail(err, CAY_E_INVALID, 0, op, "host", "no host given",
                        "pass a name like pypi.org, or an address");
    if (policy->network)
        TRY(ask(policy->network, &known, &answer, err));
    else
        memcpy(answer.why, none, sizeof none);
    *ret_answer = (struct cay_network_answer){.verdict = (enum cay_reach)answer.verdict};
    memcpy(ret_answer->rule, answer.rule, sizeof ret_answer->rule);
    memcpy(ret_answer->why, answer.why, sizeof ret_answer->why);
    return CAY_OK;
}

_Static_assert(sizeof((struct cay_network_answer *)0)->rule == NETWORK_RULE_MAX &&
                   sizeof((struct cay_network_answer *)0)->why ==
                       sizeof((struct network_answer *)0)->why,
               "the answer is copied whole");
_Static_assert(sizeof((struct cay_network_rule *)0)->text == NETWORK_RULE_MAX &&
                   sizeof((struct cay_network_rule *)0)->group == NETWORK_GROUP_MAX,
               "a rule is copied whole");
