/* SPDX-License-Identifier: Apache-2.0 */
/* The first byte of the input chooses a policy ('0' to '3'), the rest is a path. Whatever
 * the path, the place it leads to is plain, is not hidden behind another mount, and is
 * found again by its own label; and tidy_path() agrees with a plainer way to do it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policy/policy.h"
#include "policy/tidy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(condition)                                                                 \
    do {                                                                                 \
        if (!(condition)) {                                                              \
            fprintf(stderr, "line %d: not true: %s\n", __LINE__, #condition);            \
            abort();                                                                     \
        }                                                                                \
    } while (0)

static const struct {
    enum cay_style style;
    const char *names[5];
} setups[] = {
    {CAY_STYLE_MOUNTS, {"/", "/data", "/data/special", "/a b", NULL}},
    {CAY_STYLE_ROOT, {NULL}},
    {CAY_STYLE_PATHS, {"data", "data/special", "a", "a:b", NULL}},
    {CAY_STYLE_MOUNTS, {"/data", "/data/x/y", "/~", NULL}},
};
enum { SETUPS = sizeof setups / sizeof *setups };

static cay_policy *make(size_t setup)
{
    static const char *const hosts[] = {"/srv/data", "/srv/special", "/srv/../a", "/mnt"};
    struct cay_mount mounts[4];
    size_t count = setups[setup].style == CAY_STYLE_ROOT;
    cay_policy *policy;

    mounts[0] = (struct cay_mount)CAY_MOUNT_INIT;
    mounts[0].host = hosts[0];
    for (; setups[setup].names[count] && count < 4; count++) {
        mounts[count] = (struct cay_mount)CAY_MOUNT_INIT;
        mounts[count].name = setups[setup].names[count];
        mounts[count].host = hosts[count];
    }
    struct cay_policy_config config = {.size = sizeof config,
                                       .style = setups[setup].style,
                                       .mounts = mounts,
                                       .mount_count = count};
    CHECK(cay_policy_new(&config, &policy, NULL) == CAY_OK);
    return policy;
}

static const cay_policy *policy_at(size_t setup)
{
    static cay_policy *policies[SETUPS];

    if (!policies[setup])
        policies[setup] = make(setup);
    return policies[setup];
}

static bool is_plain(const char *rel)
{
    size_t len = strlen(rel);

    if (len == 0)
        return true;
    while (*rel) {
        size_t name = strcspn(rel, "/");
        if (name == 0 || name > NAME_MAX || (name == 1 && rel[0] == '.') ||
            (name == 2 && rel[0] == '.' && rel[1] == '.'))
            return false;
        rel += name;
        if (*rel == '/' && !*++rel)
            return false;
    }
    return len < PATH_MAX;
}

/* From left to right with a stack of names, as one would do it with memory to spare. */
static void check_tidy(const char *text, size_t len, unsigned flags)
{
    char *joined = calloc(1, len + 2), out[PATH_MAX];
    bool climbs = false, has_up = false, fits = true;
    size_t end = 0;

    CHECK(joined);
    for (size_t i = 0, next; i <= len; i = next + 1) {
        for (next = i; next < len && text[next] != '/' &&
                       !(text[next] == '\\' && flags & TIDY_BACKSLASH);)
            next++;
        size_t name = next - i;
        bool up = name == 2 && memcmp(text + i, "..", 2) == 0;
        has_up |= up;
        if (name == 0 || (name == 1 && text[i] == '.'))
            continue;
        fits = fits && name <= NAME_MAX;
        if (up && !(flags & TIDY_KEEP_UP)) {
            climbs |= end == 0;
            while (end > 0 && joined[--end] != '/')
                ;
        } else {
            if (end > 0)
                joined[end++] = '/';
            memcpy(joined + end, text + i, name);
            end += name;
        }
    }
    joined[end] = '\0';
    struct tidy tidy = tidy_path(text, len, flags, out);
    fits = fits && end <= PATH_MAX - 2;
    CHECK(tidy.has_up == has_up);
    CHECK(tidy.climbs == climbs);
    CHECK(tidy.fits == fits);
    CHECK(!fits || (tidy.len == end && strcmp(out, joined) == 0));
    free(joined);
}

static void check_place(const cay_policy *policy, const char *path)
{
    char label[2 * PATH_MAX + 1];
    struct place place, again;
    struct cay_error err;
    int code = policy_place(policy, "fuzz", path, &place, &err);

    CHECK(code == CAY_OK || code == CAY_E_OUTSIDE || code == CAY_E_INVALID);
    if (code) {
        CHECK(err.code == code && *err.message && *err.hint);
        return;
    }
    CHECK(place.mount < policy->mount_count);
    CHECK(is_plain(place.rel));
    CHECK(!policy_is_hidden(policy, place.mount, place.rel));
    CHECK(policy_label(policy, place.mount, place.rel, label, sizeof label - 1));
    /* A slash at the end says the same, and keeps a blank before it. */
    memcpy(label + strlen(label), "/", 2);
    CHECK(policy_place(policy, "fuzz", label, &again, NULL) == CAY_OK);
    CHECK(again.mount == place.mount && strcmp(again.rel, place.rel) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    char *path = strndup((const char *)data + 1, size - 1);

    CHECK(path);
    for (unsigned flags = 0; flags < 4; flags++)
        check_tidy(path, strlen(path), flags);
    check_place(policy_at(data[0] % SETUPS), path);
    free(path);
    return 0;
}
