/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONFIG_POLICY_FILE_H
#define CONFIG_POLICY_FILE_H

#include "cay/policy.h"
#include "config/yaml.h"

/* Parses a policy from the map that `first` starts: the value of "policy:". */
int policy_read(struct yaml *yaml, const struct yaml_event *first,
                cay_policy **ret_policy, struct cay_error *err);

#endif
