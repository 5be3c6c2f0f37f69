/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/auto.h"
#include "base/error.h"
#include "base/words.h"
#include "policy/policy.h"

/* "" if the name has none. */
static const char *suffix_of(const char *path, size_t *ret_len)
{
    size_t end = strlen(path);

    while (end > 0 && path[end - 1] == '/')
        end--;
    size_t start = end;
    while (start > 0 && path[start - 1] != '/')
        start--;
    const char *dot = memrchr(path + start, '.', end - start);
    if (!dot || dot == path + start || dot + 1 == path + end)
        dot = path + end;
    *ret_len = (size_t)(path + end - dot);
    return dot;
}

const char *rules_list_suffixes(const struct mount *mount, struct words_list *list)
{
    for (size_t i = 0; i < mount->suffix_count; i++)
        words_add(list, *mount->suffixes[i] ? mount->suffixes[i] : "'' (no suffix)");
    return words_end(list);
}

/* Lower case without a locale: only A to Z differ. */
static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

int policy_check_suffix(const struct mount *mount, const char *op, const char *path,
                        const char *name, struct cay_error *err)
{
    struct words_list allowed = {.len = 0};
    char suffix[NAME_MAX + 1], message[NAME_MAX + 32];
    size_t len;

    if (!mount->limit_suffixes)
        return CAY_OK;
    const char *text = suffix_of(name, &len);
    if (len > NAME_MAX)
        return cay_fail_errno(err, ENAMETOOLONG, op, path);
    for (size_t i = 0; i < len; i++)
        suffix[i] = lower(text[i]);
    suffix[len] = '\0';
    for (size_t i = 0; i < mount->suffix_count; i++)
        if (strcmp(mount->suffixes[i], suffix) == 0)
            return CAY_OK;
    snprintf(message, sizeof message, "suffix '%s' not allowed", suffix);
    return cay_fail(err, CAY_E_SUFFIX, 0, op, path, message, "allowed suffixes: %s",
                    rules_list_suffixes(mount, &allowed));
}

int policy_check_size(const struct mount *mount, const char *op, const char *path,
                      uint64_t bytes, struct cay_error *err)
{
    char message[128];

    if (mount->max_file_bytes < 0 || bytes <= (uint64_t)mount->max_file_bytes)
        return CAY_OK;
    struct words_number size = words_number(bytes);
    struct words_number limit = words_number((uint64_t)mount->max_file_bytes);
    snprintf(message, sizeof message, "%s bytes is over the limit of %s bytes", size.text,
             limit.text);
    return cay_fail(err, CAY_E_TOO_LARGE, 0, op, path, message,
                    "the largest file allowed here has %s bytes", limit.text);
}

/* --- Explaining --- */

static void put_rule(struct buf *text, const cay_policy *policy, size_t index)
{
    const struct mount *mount = &policy->mounts[index];
    const char *mode = mount->writable ? "rw" : "ro";

    if (policy->base) {
        buf_text(text, " as the sandbox's user may");
        return;
    }
    switch (policy->style) {
    case CAY_STYLE_ROOT:
        buf_format(text, " by the root (%s)", mode);
        break;
    case CAY_STYLE_PATHS:
        buf_format(text, " by path \"%s\" (%s)", mount->name, mode);
        break;
    case CAY_STYLE_MOUNTS:
        buf_format(text, " by mount \"%s\" (%s)", mount->name, mode);
        break;
    }
}

/* In a derived policy the mount alone does not decide: names the entry that allows the
 * place, or all entries. */
static void put_narrowing(struct buf *text, const cay_policy *policy, size_t mount,
                          const char *rel, unsigned access)
{
    bool write = access == CAY_ACCESS_WRITE;
    const struct grant *grant = write ? &policy->write : &policy->read;
    const struct prefix *prefix = grant_find(grant, mount, rel);
    struct words_list roots = {.len = 0};

    if (grant->all || (write && !policy->mounts[mount].writable))
        return;
    if (prefix)
        buf_format(text, "; %s is allowed below \"%s\"", write ? "writing" : "reading",
                   prefix->label);
    else
        buf_format(text, "; this view may %s only below: %s", write ? "write" : "read",
                   grant_list(policy, access, &roots));
}

static void put_limits(struct buf *text, const struct mount *mount, unsigned granted)
{
    bool ask_read = mount->read_approval && granted & CAY_ACCESS_READ;
    bool ask_write = mount->write_approval && granted & CAY_ACCESS_WRITE;

    if (ask_read || ask_write)
        buf_format(text, "; %s need approval",
                   !ask_write  ? "reads"
                   : !ask_read ? "writes"
                               : "reads and writes");
    if (mount->limit_suffixes) {
        struct words_list list = {.len = 0};
        buf_format(text, "; %s%s", mount->suffix_count ? "only " : "allowed suffixes: ",
                   rules_list_suffixes(mount, &list));
    }
    if (mount->max_file_bytes >= 0)
        buf_format(text, "; files up to %s bytes",
                   words_number((uint64_t)mount->max_file_bytes).text);
}

char *policy_explain(const cay_policy *policy, const char *path, size_t mount,
                     const char *rel)
{
    static const char *const verdicts[] = {
        [0] = "not readable and not writable",
        [CAY_ACCESS_READ] = "readable but not writable",
        [CAY_ACCESS_WRITE] = "writable but not readable",
        [CAY_ACCESS_READ | CAY_ACCESS_WRITE] = "readable and writable",
    };
    unsigned granted = policy_access(policy, mount, rel);
    AUTO_BUF text = {.max = strlen(path) + 4 * PATH_MAX};

    buf_format(&text, "%s: %s", path, verdicts[granted]);
    put_rule(&text, policy, mount);
    put_narrowing(&text, policy, mount, rel, CAY_ACCESS_READ);
    put_narrowing(&text, policy, mount, rel, CAY_ACCESS_WRITE);
    if (granted)
        put_limits(&text, &policy->mounts[mount], granted);
    return buf_take(&text);
}
