/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes are a policy or an error that says why not, and never both. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policy/policy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(condition)                                                                 \
    do {                                                                                 \
        if (!(condition)) {                                                              \
            fprintf(stderr, "line %d: not true: %s\n", __LINE__, #condition);            \
            abort();                                                                     \
        }                                                                                \
    } while (0)

static void check_mount(const cay_policy *policy, size_t index)
{
    struct cay_mount mount = {.size = sizeof mount};
    struct place place;
    char name[PATH_MAX + 2];

    CHECK(cay_policy_mount(policy, index, &mount));
    CHECK(mount.host[0] == '/' && strlen(mount.host) < PATH_MAX);
    CHECK(strncmp(mount.origin, "fuzz:", 5) == 0);
    CHECK(mount.max_file_bytes >= CAY_NO_LIMIT);
    CHECK(mount.exec <= CAY_EXEC_RW);
    CHECK(mount.limit_suffixes || mount.suffix_count == 0);
    for (size_t i = 0; i < mount.suffix_count; i++)
        CHECK(mount.suffixes[i]);

    int len = snprintf(name, sizeof name, "%s/", mount.name);
    CHECK(len > 1 && (size_t)len < sizeof name);
    CHECK(policy_place(policy, "fuzz", name, &place, NULL) == CAY_OK);
    CHECK(place.mount == index && !*place.rel);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cay_error err = {.code = 0};
    cay_policy *policy = NULL;
    int code = cay_policy_parse((const char *)data, size, "fuzz", "/base", &policy, &err);

    if (code) {
        CHECK(!policy);
        CHECK(code == CAY_E_INVALID && err.code == code);
        CHECK(strcmp(err.op, "policy.parse") == 0 && strcmp(err.subject, "fuzz") == 0);
        CHECK(*err.message && *err.hint && !strpbrk(err.message, "\n\r"));
        return 0;
    }
    CHECK(policy && err.code == 0);
    size_t count = cay_policy_mount_count(policy);
    enum cay_style style = cay_policy_style(policy);
    CHECK(style == CAY_STYLE_PATHS || (style == CAY_STYLE_ROOT && count == 1) ||
          (style == CAY_STYLE_MOUNTS && count >= 1));
    for (size_t i = 0; i < count; i++)
        check_mount(policy, i);
    cay_policy_free(policy);
    return 0;
}
