/* SPDX-License-Identifier: Apache-2.0 */
#include "base/env.h"
#include "harness.h"

TEST(variables_are_counted)
{
    ASSERT_INT(env_count(NULL), 0);
    ASSERT_INT(env_count((const char *const[]){NULL}), 0);
    ASSERT_INT(env_count((const char *const[]){"A=1", "B=", NULL}), 2);
}

TEST(a_variable_is_known_by_its_whole_name)
{
    const char *const env[] = {"PATH=/bin", "A=1", NULL};

    ASSERT(env_sets(env, "A=2") && env_sets(env, "PATH="));
    ASSERT(!env_sets(env, "PAT=x") && !env_sets(env, "PATHS=x") && !env_sets(env, "B=1"));
    ASSERT(!env_sets(NULL, "A=2"));
}
