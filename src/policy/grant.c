/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/words.h"
#include "policy/policy.h"
#include "policy/tidy.h"

const struct prefix *grant_find(const struct grant *grant, size_t mount, const char *rel)
{
    for (size_t i = 0; i < grant->count; i++)
        if (grant->prefixes[i].mount == mount && tidy_covers(grant->prefixes[i].rel, rel))
            return &grant->prefixes[i];
    return NULL;
}

unsigned policy_access(const cay_policy *policy, size_t mount, const char *rel)
{
    unsigned access = 0;

    if (policy->read.all || grant_find(&policy->read, mount, rel))
        access |= CAY_ACCESS_READ;
    if (policy->mounts[mount].writable &&
        (policy->write.all || grant_find(&policy->write, mount, rel)))
        access |= CAY_ACCESS_WRITE;
    return access;
}

bool policy_reads_within(const cay_policy *policy, size_t mount, const char *rel)
{
    const struct grant *read = &policy->read;

    if (policy_access(policy, mount, rel) & CAY_ACCESS_READ)
        return true;
    for (size_t i = 0; i < read->count; i++)
        if (read->prefixes[i].mount == mount && tidy_covers(rel, read->prefixes[i].rel))
            return true;
    return false;
}

/* The next granted root, NULL after the last; *at starts at 0. */
static const char *next_root(const cay_policy *policy, unsigned access, size_t *at)
{
    bool write = access & CAY_ACCESS_WRITE;
    const struct grant *grant = write ? &policy->write : &policy->read;
    size_t count = grant->all ? policy->mount_count : grant->count;

    while (*at < count) {
        size_t i = (*at)++;
        size_t mount = !grant->all                         ? grant->prefixes[i].mount
                       : policy->style == CAY_STYLE_MOUNTS ? policy->by_length[i]
                                                           : i;
        if (!write || policy->mounts[mount].writable)
            return grant->all ? policy->mounts[mount].name : grant->prefixes[i].label;
    }
    return NULL;
}

int policy_roots(const cay_policy *policy, unsigned access, struct cay_strings *ret_roots,
                 struct cay_error *err)
{
    struct cay_strings roots = {0};
    size_t most = policy->mount_count + policy->read.count + policy->write.count;

    roots.items = calloc(most + 1, sizeof *roots.items);
    if (!roots.items)
        return cay_fail_memory(err, "policy.roots");
    size_t at = 0;
    for (const char *root; (root = next_root(policy, access, &at));) {
        roots.items[roots.count] = strdup(root);
        if (!roots.items[roots.count]) {
            while (roots.count > 0)
                free(roots.items[--roots.count]);
            free(roots.items);
            return cay_fail_memory(err, "policy.roots");
        }
        roots.count++;
    }
    *ret_roots = roots;
    return CAY_OK;
}

const char *grant_list(const cay_policy *policy, unsigned access, struct words_list *list)
{
    size_t at = 0;

    for (const char *root; (root = next_root(policy, access, &at));)
        words_add(list, root);
    return words_end(list);
}

int policy_fail_outside(const cay_policy *policy, const char *op, const char *path,
                        const char *why, struct cay_error *err)
{
    struct words_list roots = {.len = 0};
    char message[sizeof err->message];

    snprintf(message, sizeof message, "outside sandbox: %s",
             why ? why : "no readable path covers it");
    return cay_fail(err, CAY_E_OUTSIDE, 0, op, path, message, "readable paths: %s",
                    grant_list(policy, CAY_ACCESS_READ, &roots));
}

int policy_fail_read_only(const cay_policy *policy, const char *op, const char *path,
                          struct cay_error *err)
{
    struct words_list roots = {.len = 0};

    return cay_fail(err, CAY_E_READ_ONLY, 0, op, path, "the path is read-only",
                    "writable paths: %s", grant_list(policy, CAY_ACCESS_WRITE, &roots));
}

void grant_done(struct grant *grant)
{
    for (size_t i = 0; i < grant->count; i++) {
        free(grant->prefixes[i].rel);
        free(grant->prefixes[i].label);
    }
    free(grant->prefixes);
    *grant = (struct grant){0};
}

bool grant_copy(const struct grant *from, struct grant *to)
{
    *to = (struct grant){.all = from->all};
    to->prefixes = calloc(from->count + 1, sizeof *to->prefixes);
    if (!to->prefixes)
        return false;
    for (size_t i = 0; i < from->count; i++) {
        const struct prefix *prefix = &from->prefixes[i];
        struct prefix *copy = &to->prefixes[to->count++];

        *copy =
            (struct prefix){prefix->mount, strdup(prefix->rel), strdup(prefix->label)};
        if (!copy->rel || !copy->label)
            return false;
    }
    return true;
}

/* Moves the entries over, each once. */
static void take(struct grant *from, struct grant *to)
{
    size_t kept = 0;

    for (size_t i = 0; i < from->count; i++) {
        struct prefix prefix = from->prefixes[i];
        size_t same = 0;
        while (same < kept && (from->prefixes[same].mount != prefix.mount ||
                               strcmp(from->prefixes[same].rel, prefix.rel) != 0 ||
                               strcmp(from->prefixes[same].label, prefix.label) != 0))
            same++;
        if (same < kept) {
            free(prefix.rel);
            free(prefix.label);
        } else {
            from->prefixes[kept++] = prefix;
        }
    }
    from->count = kept;
    grant_done(to);
    *to = *from;
    *from = (struct grant){0};
}

int policy_narrow(const cay_policy *parent, struct grant *read, struct grant *write,
                  cay_policy **ret_child, struct cay_error *err)
{
    cay_policy *child;
    int code = policy_copy(parent, &child, err);

    if (code) {
        grant_done(read);
        grant_done(write);
        return code;
    }
    /* "all" can only mean all that the parent has, and of that the child is a copy. */
    if (!read->all)
        take(read, &child->read);
    if (!write->all)
        take(write, &child->write);
    grant_done(read);
    grant_done(write);
    *ret_child = child;
    return CAY_OK;
}
