/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONFIG_POLICY_NETWORK_H
#define CONFIG_POLICY_NETWORK_H

#include "config/yaml.h"
#include "policy/policy.h"

/* The value of "network:" in a policy. */
struct network_key {
    unsigned line; /* 0: there is none */
    enum cay_network network;
    char **rules, **groups; /* as in struct cay_network_config */
    size_t rule_count, group_count;
    char *limits; /* or NULL */
};

/* Reads the value that `first` starts.  `key` needs network_key_done() either way. */
int network_key_read(struct yaml *yaml, const struct yaml_event *first,
                     struct network_key *key, struct cay_error *err);
void network_key_done(struct network_key *key);

/* Replaces the policy by one with these rules. */
int network_key_apply(const struct yaml *yaml, const struct network_key *key,
                      cay_policy **policy, struct cay_error *err);

#endif
