/* SPDX-License-Identifier: Apache-2.0 */
#include "network/rules.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/error.h"
#include "base/words.h"
#include "network/rule.h"

static const char op[] = "network.rules";

static const char *const slugs[] = {
    [NETWORK_RULES] = "rules", [NETWORK_OPEN] = "open", [NETWORK_E2B] = "e2b"};

static const char *const limit_names[] = {[NETWORK_CONNECTIONS] = "connections",
                                          [NETWORK_BYTES] = "bytes",
                                          [NETWORK_RATE] = "rate"};

/* A rule has no tab before its group, and no rule is one of these words. */
static const char limit_word[] = "limit\t", ask_word[] = "ask\t";

void network_rules_free(struct network_rules *rules)
{
    if (rules)
        free(rules->text);
    free(rules);
}

enum network_mode network_rules_mode(const struct network_rules *rules)
{
    return rules->mode;
}

const struct network_limits *network_rules_limits(const struct network_rules *rules)
{
    return &rules->limits;
}

const char *network_limit_slug(enum network_limit limit)
{
    return limit_names[limit];
}

static int check_limit(enum network_limit limit, uint64_t value, struct cay_error *err)
{
    if (limit == NETWORK_CONNECTIONS && value > NETWORK_CONNECTIONS_MAX)
        return cay_fail(err, CAY_E_INVALID, 0, op, limit_names[limit],
                        "invalid limit on connections", "give a number from 1 to %d",
                        NETWORK_CONNECTIONS_MAX);
    if ((limit == NETWORK_RATE && value && value < NETWORK_RATE_MIN) ||
        value > NETWORK_LIMIT_MAX)
        return cay_fail(err, CAY_E_INVALID, 0, op, limit_names[limit],
                        "invalid limit of the network",
                        "give at most 1024T bytes; a rate is at least 1K a second");
    return CAY_OK;
}

int network_rules_set_limits(struct network_rules *rules,
                             const struct network_limits *limits, struct cay_error *err)
{
    for (unsigned i = 0; i < NETWORK_LIMITS; i++)
        TRY(check_limit((enum network_limit)i, limits->at[i], err));
    rules->limits = *limits;
    return CAY_OK;
}

int network_rules_set_ask(struct network_rules *rules, uint64_t ms, struct cay_error *err)
{
    if (ms > NETWORK_ASK_MAX_MS)
        return cay_fail(err, CAY_E_INVALID, 0, op, "ask",
                        "connections cannot wait so long for approval",
                        "the limit is 7 days");
    rules->ask_ms = ms;
    return CAY_OK;
}

uint64_t network_rules_ask(const struct network_rules *rules)
{
    return rules->ask_ms;
}

const char *network_mode_slug(enum network_mode mode)
{
    return slugs[mode];
}

size_t network_rules_count(const struct network_rules *rules)
{
    return rules->count;
}

void network_rules_text(const struct network_rules *rules, size_t index,
                        char ret_text[NETWORK_RULE_MAX])
{
    network_rule_format(&rules->at[index], ret_text);
}

const char *network_rules_group(const struct network_rules *rules, size_t index)
{
    return rules->at[index].group;
}

bool network_rules_write(const struct network_rules *rules, struct buf *text)
{
    char rule[NETWORK_RULE_MAX];

    buf_format(text, NETWORK_MAGIC "%s\n", slugs[rules->mode]);
    for (unsigned i = 0; i < NETWORK_LIMITS; i++)
        if (rules->limits.at[i])
            buf_format(text, "%s%s=%llu\n", limit_word, limit_names[i],
                       (unsigned long long)rules->limits.at[i]);
    if (rules->ask_ms)
        buf_format(text, "%s%llu\n", ask_word, (unsigned long long)rules->ask_ms);
    for (size_t i = 0; i < rules->count; i++) {
        const char *group = rules->at[i].group;
        network_rule_format(&rules->at[i], rule);
        buf_format(text, "%s%s%s\n", rule, group ? "\t" : "", group ? group : "");
    }
    return !text->failed;
}

/* Ends the line at `*text` and moves on; NULL after the last one. */
static char *next_line(char **text)
{
    char *line = *text, *end = strchr(line, '\n');

    if (!end)
        return NULL;
    *end = '\0';
    *text = end + 1;
    return line;
}

static enum network_mode parse_head(const char *line)
{
    size_t magic = strlen(NETWORK_MAGIC);

    for (unsigned i = NETWORK_RULES; i <= NETWORK_E2B; i++)
        if (line && strncmp(line, NETWORK_MAGIC, magic) == 0 &&
            strcmp(line + magic, slugs[i]) == 0)
            return (enum network_mode)i;
    return 0;
}

static int fail_form(const char *message, struct cay_error *err)
{
    return cay_fail(err, CAY_E_INVALID, 0, op, NULL, message,
                    "network rules are at most %d lines and %d bytes that begin with "
                    "\"" NETWORK_MAGIC "\"",
                    NETWORK_RULES_MAX, NETWORK_TEXT_MAX);
}

/* An error names the whole rule. */
static int parse_line(char *line, struct network_rule *ret_rule, struct cay_error *err)
{
    char *group = strchr(line, '\t'), whole[NETWORK_RULE_MAX];

    if (group)
        *group++ = '\0';
    if (strlen(line) >= NETWORK_RULE_MAX - NETWORK_GROUP_MAX ||
        (group && (strlen(group) >= NETWORK_GROUP_MAX || !network_is_group(group))))
        return cay_fail(err, CAY_E_INVALID, 0, op, line, "invalid rule",
                        "a rule has at most %d bytes, the name of its group %d",
                        NETWORK_RULE_MAX - NETWORK_GROUP_MAX - 1, NETWORK_GROUP_MAX - 1);
    memcpy(whole, line, strlen(line) + 1);
    int code = network_rule_parse(line, ret_rule, err);
    ret_rule->group = group;
    if (code && err)
        cay_copy_text(err->subject, sizeof err->subject, whole);
    return code;
}

/* "bytes=1000" */
static int parse_limit(const char *text, struct network_limits *limits,
                       struct cay_error *err)
{
    for (unsigned i = 0; i < NETWORK_LIMITS; i++) {
        size_t len = strlen(limit_names[i]);
        char *end;
        if (strncmp(text, limit_names[i], len) != 0 || text[len] != '=' ||
            text[len + 1] < '1' || text[len + 1] > '9')
            continue;
        limits->at[i] = strtoull(text + len + 1, &end, 10);
        if (!*end)
            return check_limit((enum network_limit)i, limits->at[i], err);
    }
    return cay_fail(err, CAY_E_INVALID, 0, op, text, "invalid limit of the network",
                    "a limit is connections=N, bytes=N or rate=N");
}

/* "600000" */
static int parse_ask(const char *text, struct network_rules *rules, struct cay_error *err)
{
    char *end;
    unsigned long long ms = strtoull(text, &end, 10);

    if (*text < '1' || *text > '9' || *end)
        return cay_fail(err, CAY_E_INVALID, 0, op, text, "invalid time for approval",
                        "it is a number of milliseconds");
    return network_rules_set_ask(rules, ms, err);
}

bool network_is_group(const char *word)
{
    size_t len = strlen(word);

    return len > 0 && len < NETWORK_GROUP_MAX && word[0] != '-' &&
           strspn(word, "abcdefghijklmnopqrstuvwxyz0123456789-_") == len;
}

static size_t count_lines(const char *text)
{
    size_t count = 0;

    for (; (text = strchr(text, '\n')); text++)
        count++;
    return count;
}

int network_rules_read(const char *text, size_t len, struct network_rules **ret_rules,
                       struct cay_error *err)
{
    if (len > NETWORK_TEXT_MAX || memchr(text, '\0', len))
        return fail_form("the network rules are too large or not text", err);
    AUTO_FREE char *copy = strndup(text, len);
    size_t lines = copy ? count_lines(copy) : 0;
    if (lines > NETWORK_RULES_MAX)
        return fail_form("too many network rules", err);
    AUTO_NETWORK_RULES rules = calloc(1, sizeof *rules + lines * sizeof *rules->at);
    if (!copy || !rules)
        return cay_fail_memory(err, op);
    char *at = rules->text = TAKE_PTR(copy), *line;
    rules->mode = parse_head(next_line(&at));
    if (!rules->mode)
        return fail_form("unknown version or mode of network rules", err);
    while ((line = next_line(&at))) {
        if (strncmp(line, limit_word, strlen(limit_word)) == 0) {
            TRY(parse_limit(line + strlen(limit_word), &rules->limits, err));
            continue;
        }
        if (strncmp(line, ask_word, strlen(ask_word)) == 0) {
            TRY(parse_ask(line + strlen(ask_word), rules, err));
            continue;
        }
        TRY(parse_line(line, &rules->at[rules->count], err));
        rules->count++;
    }
    if (*at)
        return fail_form("the last network rule is cut off", err);
    *ret_rules = TAKE_PTR(rules);
    return CAY_OK;
}

int network_rules_copy(const struct network_rules *rules, struct network_rules **ret_copy,
                       struct cay_error *err)
{
    AUTO_BUF text = {.max = NETWORK_TEXT_MAX};

    if (!network_rules_write(rules, &text))
        return cay_fail_memory(err, op);
    return network_rules_read(text.data, text.len, ret_copy, err);
}

const char *network_rules_list(const struct network_rules *rules, struct words_list *list)
{
    char text[NETWORK_RULE_MAX];

    for (size_t i = 0; i < rules->count; i++) {
        const struct network_rule *rule = &rules->at[i];
        const char *group = rule->group;
        if (rule->denies || (group && i > 0 && rules->at[i - 1].group &&
                             strcmp(rules->at[i - 1].group, group) == 0))
            continue;
        network_rule_format(rule, text);
        words_add(list, group ? group : text);
    }
    return words_end(list);
}

bool network_rules_inspected(const struct network_rules *rules, const char **ret_names,
                             size_t room, size_t *ret_count)
{
    *ret_count = 0;
    for (size_t i = 0; i < rules->count; i++) {
        const struct network_rule *rule = &rules->at[i];
        if (!rule->methods && !rule->path)
            continue;
        if (rule->kind == NETWORK_ANY || *ret_count == room)
            return false;
        ret_names[(*ret_count)++] = rule->name + (rule->kind == NETWORK_BELOW);
    }
    return true;
}
