/* SPDX-License-Identifier: Apache-2.0 */
#include "base/env.h"

#include <string.h>

size_t env_count(const char *const *env)
{
    size_t count = 0;

    while (env && env[count])
        count++;
    return count;
}

bool env_sets(const char *const *env, const char *assignment)
{
    size_t len = strcspn(assignment, "=") + 1;

    for (; env && *env; env++)
        if (strncmp(*env, assignment, len) == 0)
            return true;
    return false;
}
