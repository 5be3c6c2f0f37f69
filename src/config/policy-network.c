/* SPDX-License-Identifier: Apache-2.0 */
/* "network:" of a policy: cay-policy(5) describes the form. */
#include "config/policy-network.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/error.h"

static void free_texts(char **texts, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(texts[i]);
    free(texts);
}

void network_key_done(struct network_key *key)
{
    free_texts(key->rules, key->rule_count);
    free_texts(key->groups, key->group_count);
    free(key->limits);
}

/* Adds the prefix and the event's text. */
static int add_text(const struct yaml *yaml, const struct yaml_event *event,
                    const char *prefix, char ***texts, size_t *count,
                    struct cay_error *err)
{
    AUTO_FREE char *text = NULL;
    char **grown = reallocarray(*texts, *count + 1, sizeof *grown);

    if (!grown)
        return yaml_fail_memory(err, yaml);
    *texts = grown;
    TRY(yaml_take_text(yaml, event, &text, err));
    if (asprintf(&grown[*count], "%s%s", prefix, text) < 0)
        return yaml_fail_memory(err, yaml);
    ++*count;
    return CAY_OK;
}

/* A list of texts, or one text. */
static int read_texts(struct yaml *yaml, const struct yaml_event *first,
                      const char *prefix, char ***texts, size_t *count,
                      struct cay_error *err)
{
    struct yaml_event item;

    if (yaml_is_text(first))
        return add_text(yaml, first, prefix, texts, count, err);
    if (first->kind != YAML_LIST)
        return yaml_fail(err, yaml, first->line, "must be a list of rules",
                         "write [pypi, api.example.com:443]");
    for (size_t index = 0;; index++) {
        size_t mark = yaml_enter_index(yaml, index);
        TRY(yaml_next(yaml, &item, err));
        if (item.kind == YAML_LIST_END) {
            yaml_leave(yaml, mark);
            return CAY_OK;
        }
        TRY(add_text(yaml, &item, prefix, texts, count, err));
        yaml_leave(yaml, mark);
    }
}

static int read_groups(struct yaml *yaml, const struct yaml_event *first,
                       struct network_key *key, struct cay_error *err)
{
    struct yaml_event event;
    char prefix[NETWORK_GROUP_MAX + 2];

    if (first->kind != YAML_MAP)
        return yaml_fail(err, yaml, first->line, "must be a map of groups",
                         "write {pypi: [mirror.example.com]}");
    for (;;) {
        TRY(yaml_next_key(yaml, &event, err));
        if (event.kind == YAML_MAP_END)
            return CAY_OK;
        size_t mark = yaml_enter(yaml, event.text);
        if (!network_is_group(event.text))
            return yaml_fail(err, yaml, event.line, "invalid name of a group",
                             "write up to %d lower-case letters, digits, \"-\" and \"_\"",
                             NETWORK_GROUP_MAX - 1);
        snprintf(prefix, sizeof prefix, "%s=", event.text);
        TRY(yaml_next(yaml, &event, err));
        TRY(read_texts(yaml, &event, prefix, &key->groups, &key->group_count, err));
        yaml_leave(yaml, mark);
    }
}

/* A map as cay_network_config has it: "bytes=1G,rate=10M". */
static int read_limits(struct yaml *yaml, const struct yaml_event *first,
                       struct network_key *key, struct cay_error *err)
{
    struct yaml_event event;

    if (first->kind != YAML_MAP)
        return yaml_fail(err, yaml, first->line, "must be a map of limits",
                         "write {connections: 64, bytes: 1G, rate: 10M}");
    for (;;) {
        TRY(yaml_next_key(yaml, &event, err));
        if (event.kind == YAML_MAP_END)
            return CAY_OK;
        size_t mark = yaml_enter(yaml, event.text);
        AUTO_FREE char *name = strdup(event.text), *before = TAKE_PTR(key->limits);
        TRY(yaml_next(yaml, &event, err));
        if (event.kind != YAML_SCALAR)
            return yaml_fail(err, yaml, event.line, "must be a number or a size",
                             "write {connections: 64, bytes: 1G, rate: 10M}");
        TRY(yaml_check_nul(yaml, &event, err));
        if (!name || asprintf(&key->limits, "%s%s%s=%s", before ? before : "",
                              before ? "," : "", name, event.text) < 0) {
            key->limits = NULL;
            return yaml_fail_memory(err, yaml);
        }
        yaml_leave(yaml, mark);
    }
}

static int take_mode(const struct yaml *yaml, const struct yaml_event *event,
                     struct network_key *key, struct cay_error *err)
{
    if (!yaml_is_word(event, "open") && !yaml_is_word(event, "rules"))
        return yaml_fail(err, yaml, event->line, "must be rules or open",
                         "rules reaches only what a rule allows, open every public "
                         "address");
    key->network = yaml_is_word(event, "open") ? CAY_NETWORK_OPEN : CAY_NETWORK_RULES;
    return CAY_OK;
}

static int read_member(struct yaml *yaml, const char *name, unsigned line,
                       struct network_key *key, struct cay_error *err)
{
    static const char *const names[] = {"mode",   "allow",  "deny",
                                        "groups", "limits", NULL};
    struct yaml_event value;

    size_t which = 0;
    while (names[which] && strcmp(names[which], name) != 0)
        which++;
    if (!names[which])
        return yaml_fail_unknown(yaml, line, name, names, err);
    size_t mark = yaml_enter(yaml, names[which]);
    TRY(yaml_next(yaml, &value, err));
    switch (which) {
    case 0:
        TRY(take_mode(yaml, &value, key, err));
        break;
    case 3:
        TRY(read_groups(yaml, &value, key, err));
        break;
    case 4:
        TRY(read_limits(yaml, &value, key, err));
        break;
    default:
        TRY(read_texts(yaml, &value, which == 2 ? "!" : "", &key->rules, &key->rule_count,
                       err));
    }
    yaml_leave(yaml, mark);
    return CAY_OK;
}

int network_key_read(struct yaml *yaml, const struct yaml_event *first,
                     struct network_key *key, struct cay_error *err)
{
    struct yaml_event event;

    key->line = first->line;
    key->network = CAY_NETWORK_RULES;
    if (first->kind == YAML_LIST)
        return read_texts(yaml, first, "", &key->rules, &key->rule_count, err);
    if (yaml_is_word(first, "open")) {
        key->network = CAY_NETWORK_OPEN;
        return CAY_OK;
    }
    if (first->kind != YAML_MAP)
        return yaml_fail(err, yaml, first->line,
                         "must be open, a list of rules, or a map",
                         "write [pypi, api.example.com:443], or a map with mode, allow, "
                         "deny, groups and limits");
    key->network = CAY_NETWORK_NONE; /* with rules, and without a mode: RULES */
    for (;;) {
        TRY(yaml_next_key(yaml, &event, err));
        if (event.kind == YAML_MAP_END)
            return CAY_OK;
        AUTO_FREE char *name = strdup(event.text);
        if (!name)
            return yaml_fail_memory(err, yaml);
        TRY(read_member(yaml, name, event.line, key, err));
    }
}

int network_key_apply(const struct yaml *yaml, const struct network_key *key,
                      cay_policy **policy, struct cay_error *err)
{
    struct cay_network_config config = {
        .size = sizeof config,
        .network = key->network,
        .rules = (const char *const *)key->rules,
        .rule_count = key->rule_count,
        .groups = (const char *const *)key->groups,
        .group_count = key->group_count,
        .limits = key->limits,
    };
    cay_policy *with = NULL;
    struct cay_error rule;
    char message[1024];
    int code = cay_policy_add_network(*policy, &config, &with, &rule);

    if (code == CAY_E_INVALID) {
        snprintf(message, sizeof message, "line %u: network: %s: %s", key->line,
                 rule.subject, rule.message);
        return cay_fail(err, code, 0, yaml_origin(yaml)->op, yaml_origin(yaml)->name,
                        message, "%s", rule.hint);
    }
    if (code)
        return cay_fail_as(err, code, &rule);
    cay_policy_free(*policy);
    *policy = with;
    return CAY_OK;
}
