/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONFIG_SCALAR_H
#define CONFIG_SCALAR_H

#include "config/yaml.h"

/* Single values as YAML means them.  What was replaced ("${env.X}") is text, and may be
 * whatever else its text looks like. */

bool scalar_is_word(const struct yaml_event *event, const char *word);
bool scalar_is_null(const struct yaml_event *event);    /* it is said to be null */
bool scalar_is_nothing(const struct yaml_event *event); /* or nothing is said at all */

/* `12` and `true` are a number and a boolean in YAML, and no text. */
bool scalar_is_text(const struct yaml_event *event);

int scalar_check_nul(const struct yaml *yaml, const struct yaml_event *event,
                     struct cay_error *err);
int scalar_take_text(const struct yaml *yaml, const struct yaml_event *event,
                     char **ret_text, struct cay_error *err);

#endif
