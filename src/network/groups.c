/* SPDX-License-Identifier: Apache-2.0 */
#include "network/groups.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/auto.h"
#include "base/error.h"
#include "base/nearest.h"
#include "base/words.h"
#include "network/rule.h"

static const char op[] = "network.rules";

extern const char network_groups_data[];
extern const uint64_t network_groups_data_size;

void network_groups_done(struct network_groups *groups)
{
    for (size_t i = 0; i < groups->count; i++) {
        free(groups->at[i].group);
        free(groups->at[i].rule);
    }
    free(groups->at);
    *groups = (struct network_groups){NULL};
}

static int add(struct network_groups *groups, const char *group, size_t group_len,
               const char *rule, size_t rule_len, struct cay_error *err)
{
    if (!array_reserve(&groups->at, &groups->room, groups->count + 1, sizeof *groups->at))
        return cay_fail_memory(err, op);
    struct network_member *member = &groups->at[groups->count++];
    member->group = strndup(group, group_len);
    member->rule = strndup(rule, rule_len);
    return member->group && member->rule ? CAY_OK : cay_fail_memory(err, op);
}

int network_groups_add(struct network_groups *groups, const char *group, const char *rule,
                       struct cay_error *err)
{
    AUTO_FREE char *copy = strdup(rule);
    struct network_rule parsed;

    if (!copy)
        return cay_fail_memory(err, op);
    if (!network_is_group(group))
        return cay_fail(err, CAY_E_INVALID, 0, op, group, "invalid name of a group",
                        "write up to %d lower-case letters, digits, \"-\" and \"_\"",
                        NETWORK_GROUP_MAX - 1);
    if (strlen(rule) >= NETWORK_RULE_MAX - NETWORK_GROUP_MAX || strpbrk(rule, "! \t\n") ||
        network_is_group(rule))
        return cay_fail(err, CAY_E_INVALID, 0, op, rule, "invalid rule of a group",
                        "a group has rules like pypi.org, *.example.com:8080 or "
                        "192.0.2.0/24, without \"!\", methods and other groups");
    TRY(network_rule_parse(copy, &parsed, err));
    return add(groups, group, strlen(group), rule, strlen(rule), err);
}

int network_groups_init(struct network_groups *groups, struct cay_error *err)
{
    const char *at = network_groups_data, *end = at + network_groups_data_size;
    const char *group = at;
    size_t group_len = 0;

    *groups = (struct network_groups){NULL};
    while (at < end) {
        size_t len = strcspn(at, " \n");
        if (*at == '#') {
            at = strchr(at, '\n') + 1;
        } else if (len && at[len - 1] == ':') {
            group = at;
            group_len = len - 1;
            at += len;
        } else if (len) {
            TRY(add(groups, group, group_len, at, len, err));
            at += len;
        } else {
            at++;
        }
    }
    return CAY_OK;
}

int network_groups_copy(const struct network_groups *groups,
                        struct network_groups *ret_copy, struct cay_error *err)
{
    *ret_copy = (struct network_groups){NULL};
    for (size_t i = 0; i < groups->count; i++) {
        const struct network_member *member = &groups->at[i];
        TRY(add(ret_copy, member->group, strlen(member->group), member->rule,
                strlen(member->rule), err));
    }
    return CAY_OK;
}

/* --- Rules as a user writes them --- */

static int fail_group(const struct network_groups *groups, const char *word,
                      struct cay_error *err)
{
    const char *last = "", *near;
    struct words_list list = {.len = 0};

    near = nearest_name(word, &groups->at[0].group, sizeof *groups->at, groups->count);
    for (size_t i = 0; i < groups->count; i++) {
        if (strcmp(groups->at[i].group, last) != 0)
            words_add(&list, groups->at[i].group);
        last = groups->at[i].group;
    }
    return cay_fail(err, CAY_E_INVALID, 0, op, word, "unknown group of hosts",
                    "%s%s%sgroups: %s; write a host of one label with its port: %s:443",
                    near ? "did you mean " : "", near ? near : "", near ? "? " : "",
                    words_end(&list), word);
}

static bool is_known(const struct network_groups *groups, const char *word, size_t len)
{
    for (size_t i = 0; i < groups->count; i++)
        if (strlen(groups->at[i].group) == len &&
            memcmp(groups->at[i].group, word, len) == 0)
            return true;
    return false;
}

/* `prefix` is "!", methods and blanks. */
static int add_group(const struct network_groups *groups, const char *prefix,
                     size_t prefix_len, const char *word, struct buf *text,
                     struct cay_error *err)
{
    if (!is_known(groups, word, strlen(word)))
        return fail_group(groups, word, err);
    for (size_t i = 0; i < groups->count; i++) {
        if (strcmp(groups->at[i].group, word) != 0)
            continue;
        buf_append(text, prefix, prefix_len);
        buf_format(text, "%s\t%s\n", groups->at[i].rule, word);
    }
    return CAY_OK;
}

static int add_text(const struct network_groups *groups, const char *rule,
                    struct buf *text, struct cay_error *err)
{
    const char *blank = strrchr(rule, ' ');
    const char *word = blank ? blank + 1 : rule + (*rule == '!');

    if (strpbrk(rule, "\t\n") || !*word)
        return cay_fail(err, CAY_E_INVALID, 0, op, rule, "invalid rule",
                        "write a group (pypi), a host (api.example.com:443, "
                        "*.example.com) or addresses (192.0.2.0/24:5432)");
    if (network_is_group(word))
        return add_group(groups, rule, (size_t)(word - rule), word, text, err);
    if (is_known(groups, word, strcspn(word, ":/")))
        return cay_fail(err, CAY_E_INVALID, 0, op, rule,
                        "a group has its own ports and paths",
                        "write %.*s alone, or a host with a port: api.example.com:443",
                        (int)strcspn(word, ":/"), word);
    buf_format(text, "%s\n", rule);
    return CAY_OK;
}

static int write_texts(const struct network_rules *first, enum network_mode mode,
                       const char *const *texts, size_t count,
                       const struct network_groups *groups, struct buf *text,
                       struct cay_error *err)
{
    AUTO_BUF before = {.max = NETWORK_TEXT_MAX};

    buf_format(text, NETWORK_MAGIC "%s\n", network_mode_slug(mode));
    if (first && !network_rules_write(first, &before))
        return cay_fail_memory(err, op);
    if (first)
        buf_text(text, strchr(before.data, '\n') + 1);
    for (size_t i = 0; i < count; i++)
        TRY(add_text(groups, texts[i], text, err));
    return CAY_OK;
}

int network_rules_add(const struct network_rules *first, enum network_mode mode,
                      const char *const *texts, size_t count,
                      const struct network_groups *groups,
                      struct network_rules **ret_rules, struct cay_error *err)
{
    AUTO_BUF text = {.max = NETWORK_TEXT_MAX};
    struct network_groups own = {NULL};
    bool is_given = groups && groups->count;
    int code = is_given ? CAY_OK : network_groups_init(&own, err);

    if (!code)
        code =
            write_texts(first, mode, texts, count, is_given ? groups : &own, &text, err);
    network_groups_done(&own);
    if (code)
        return code;
    if (text.failed && text.len + NETWORK_RULE_MAX < NETWORK_TEXT_MAX)
        return cay_fail_memory(err, op);
    if (text.failed)
        return cay_fail(err, CAY_E_INVALID, 0, op, NULL, "too many network rules",
                        "a table has at most %d rules and %d bytes",
                        NETWORK_RULES_MAX - 1, NETWORK_TEXT_MAX);
    return network_rules_read(text.data, text.len, ret_rules, err);
}

int network_rules_new(enum network_mode mode, const char *const *texts, size_t count,
                      const struct network_groups *groups,
                      struct network_rules **ret_rules, struct cay_error *err)
{
    return network_rules_add(NULL, mode, texts, count, groups, ret_rules, err);
}
