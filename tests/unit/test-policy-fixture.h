/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_POLICY_FIXTURE_H
#define TESTS_POLICY_FIXTURE_H

#include <stdarg.h>
#include <stdio.h>

#include "harness.h"
#include "policy/policy.h"

/* A read-write policy over /srv/0, /srv/1, ... under these names; NULL ends them. */
__attribute__((sentinel)) static inline cay_policy *policy_of(enum cay_style style, ...)
{
    struct cay_mount mounts[8];
    char hosts[8][16];
    cay_policy *policy = NULL;
    size_t count = 0;
    va_list names;

    va_start(names, style);
    for (const char *name; count < 8 && (name = va_arg(names, const char *)); count++) {
        snprintf(hosts[count], sizeof hosts[count], "/srv/%zu", count);
        mounts[count] = (struct cay_mount)CAY_MOUNT_INIT;
        mounts[count].name = name;
        mounts[count].host = hosts[count];
        mounts[count].writable = true;
    }
    va_end(names);
    struct cay_policy_config config = {
        .size = sizeof config, .style = style, .mounts = mounts, .mount_count = count};
    ASSERT_OK(cay_policy_new(&config, &policy, &err));
    return policy;
}

/* Where the text leads, as "NAME|REL"; "outside", or the slug of another failure. */
static inline const char *placed(const cay_policy *policy, const char *path)
{
    static char text[2 * PATH_MAX];
    struct place place;

    memset(&err, 0, sizeof err);
    int code = policy_place(policy, "test", path, &place, &err);
    if (code)
        return cay_code_slug(code);
    snprintf(text, sizeof text, "%s|%s", policy->mounts[place.mount].name, place.rel);
    return text;
}

#define ASSERT_PLACE(policy, path, expected) ASSERT_STR(placed(policy, path), expected)

#endif
