/* SPDX-License-Identifier: Apache-2.0 */
#ifndef POLICY_PARTS_H
#define POLICY_PARTS_H

#include "policy/policy.h"
#include "policy/words.h"

/* What the files of policy/ use of each other. */

/* The entry that lets the place in, or NULL. */
const struct prefix *grant_find(const struct grant *grant, size_t mount, const char *rel);

/* Fills the list with policy_roots() and ends it. */
const char *grant_list(const cay_policy *policy, unsigned access,
                       struct words_list *list);

/* False if memory is exhausted; `to` needs grant_done() either way. */
bool grant_copy(const struct grant *from, struct grant *to);

/* Fills the list with the mount's suffixes and ends it. */
const char *rules_list_suffixes(const struct mount *mount, struct words_list *list);

#endif
