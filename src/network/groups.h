/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NETWORK_GROUPS_H
#define NETWORK_GROUPS_H

/* Named lists of rules.  The built-in ones are data/network/groups; a configuration adds
 * hosts to them, or groups of its own. */

#include "network/rules.h"

struct network_member {
    char *group, *rule;
};

struct network_groups {
    struct network_member *at;
    size_t count, room;
};

/* The built-in groups, and a copy.  Both need network_groups_done() also on failure. */
int network_groups_init(struct network_groups *groups, struct cay_error *err);
int network_groups_copy(const struct network_groups *groups,
                        struct network_groups *ret_copy, struct cay_error *err);
void network_groups_done(struct network_groups *groups);

/* Adds a rule to a group, which need not exist.  The rule may not deny, name a method or
 * another group. */
int network_groups_add(struct network_groups *groups, const char *group, const char *rule,
                       struct cay_error *err);

#endif
