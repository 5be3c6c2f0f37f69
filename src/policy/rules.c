/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "policy/parts.h"
#include "policy/words.h"

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
