/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_ENV_H
#define BASE_ENV_H

#include <stdbool.h>
#include <stddef.h>

/* "NAME=value", NULL-terminated; NULL: empty. */
size_t env_count(const char *const *env);

/* Whether the environment has the variable that "NAME=value" sets. */
bool env_sets(const char *const *env, const char *assignment);

#endif
