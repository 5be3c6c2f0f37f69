/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/words.h"
#include "network/rule.h"

/* Hosts are compared in their clean form.  Every function here fills all of the answer,
 * and none allows what it does not understand. */

/* --- Which rules match --- */

struct request {
    uint8_t method;   /* a bit, or 0 for a method that no rule can name */
    const char *path; /* clean */
};

/* The first rule of each sort for a host. */
struct found {
    const struct network_rule *allow, *deny;
    const struct network_rule *allow_some, *deny_some; /* only some requests */
    const struct network_rule *other_port;             /* would allow another port */
};

static bool covers_port(enum network_mode mode, const struct network_rule *rule,
                        uint16_t port)
{
    bool is_all = rule->low == 1 && rule->high == UINT16_MAX;

    if (port == 0) /* a port that is denied leaves others */
        return !rule->denies || !rule->low || is_all;
    if (rule->low)
        return rule->low <= port && port <= rule->high;
    if (rule->denies || (mode == NETWORK_E2B && rule->kind == NETWORK_RANGE))
        return true;
    return port == 80 || port == 443;
}

static bool covers_name(const struct network_rule *rule, const char *name)
{
    size_t len = strlen(name), tail;

    switch (rule->kind) {
    case NETWORK_NAME:
        return strcmp(rule->name, name) == 0;
    case NETWORK_BELOW:
        tail = strlen(rule->name);
        return len > tail && strcmp(rule->name, name + len - tail) == 0;
    case NETWORK_ANY:
        return true;
    case NETWORK_RANGE:
        break;
    }
    return false;
}

/* "*" takes any characters, none and "/" among them. */
static bool covers_path(const char *pattern, const char *path)
{
    const char *star = NULL, *from = path;

    while (*path) {
        if (*pattern == '*') {
            star = ++pattern;
            from = path;
        } else if (*pattern == *path) {
            pattern++;
            path++;
        } else if (star) {
            pattern = star;
            path = ++from;
        } else {
            return false;
        }
    }
    return pattern[strspn(pattern, "*")] == '\0';
}

static bool covers_request(const struct network_rule *rule, const struct request *request)
{
    return (!rule->methods || rule->methods & request->method) &&
           (!rule->path || covers_path(rule->path, request->path + 1));
}

static void keep_first(const struct network_rule **field, const struct network_rule *rule)
{
    if (!*field)
        *field = rule;
}

/* `request` NULL: not known yet. */
static struct found find_name(const struct network_rules *rules, const char *name,
                              uint16_t port, const struct request *request)
{
    struct found found = {NULL};

    for (size_t i = 0; i < rules->count; i++) {
        const struct network_rule *rule = &rules->at[i];
        bool some = !request && (rule->methods || rule->path);
        if (!covers_name(rule, name) || (request && !covers_request(rule, request)))
            continue;
        if (!covers_port(rules->mode, rule, port)) {
            if (!rule->denies)
                keep_first(&found.other_port, rule);
        } else if (rule->denies) {
            keep_first(some ? &found.deny_some : &found.deny, rule);
        } else {
            keep_first(some ? &found.allow_some : &found.allow, rule);
        }
    }
    return found;
}

/* A rule of E2B for 0.0.0.0/0 is for both families. */
static bool covers_address(enum network_mode mode, const struct network_rule *rule,
                           const struct network_address *address)
{
    return rule->kind == NETWORK_RANGE &&
           ((mode == NETWORK_E2B && rule->bits == 0) ||
            network_address_within(address, &rule->range, rule->bits));
}

/* `bits`: rules that allow must have as long a prefix. */
static struct found find_address(const struct network_rules *rules,
                                 const struct network_address *address, uint16_t port,
                                 unsigned bits)
{
    struct found found = {NULL};

    for (size_t i = 0; i < rules->count; i++) {
        const struct network_rule *rule = &rules->at[i];
        if (!covers_address(rules->mode, rule, address) ||
            (!rule->denies && rule->bits < bits))
            continue;
        if (covers_port(rules->mode, rule, port))
            keep_first(rule->denies ? &found.deny : &found.allow, rule);
        else if (!rule->denies)
            keep_first(&found.other_port, rule);
    }
    return found;
}

/* --- Answers --- */

/* What an answer is about: "pypi.org:443". */
struct subject {
    char text[384];
};

static void put_rule(const struct network_rule *rule, struct network_answer *answer)
{
    size_t len;

    if (!rule) {
        cay_copy_text(answer->rule, sizeof answer->rule, "default");
        return;
    }
    network_rule_format(rule, answer->rule);
    len = strlen(answer->rule);
    if (rule->group)
        snprintf(answer->rule + len, sizeof answer->rule - len, " (%s)", rule->group);
}

/* The text of the rule is there before the sentence, which may contain it. */
__attribute__((format(printf, 4, 5))) static void give(struct network_answer *answer,
                                                       enum network_verdict verdict,
                                                       const struct network_rule *rule,
                                                       const char *format, ...)
{
    va_list values;

    answer->verdict = verdict;
    answer->may_ask = false;
    put_rule(rule, answer);
    va_start(values, format);
    vsnprintf(answer->why, sizeof answer->why, format, values);
    va_end(values);
}

static void give_by_rule(struct network_answer *answer, enum network_verdict verdict,
                         const struct network_rule *rule, const struct subject *subject)
{
    static const char *const words[] = {[NETWORK_DENY] = "denied",
                                        [NETWORK_ALLOW] = "allowed",
                                        [NETWORK_INSPECT] = "allowed for some requests"};

    give(answer, verdict, rule, "%s is %s by the rule \"%.*s\".", subject->text,
         words[verdict], 300, answer->rule);
}

static void give_default(struct network_answer *answer, const struct network_rules *rules,
                         const struct network_rule *other_port,
                         const struct subject *subject)
{
    struct words_list list = {.len = 0};
    char rule[NETWORK_RULE_MAX];

    if (rules->mode == NETWORK_OPEN || (rules->mode == NETWORK_E2B && !rules->ask_ms)) {
        give(answer, NETWORK_ALLOW, NULL,
             "%s is allowed: the network is open to all public addresses.",
             subject->text);
        return;
    }
    if (other_port)
        network_rule_format(other_port, rule);
    give(answer, NETWORK_DENY, NULL, "%s is not allowed: %s%.*s%s. Allowed: %.300s.",
         subject->text, other_port ? "the rule \"" : "no rule names it", 200,
         other_port ? rule : "", other_port ? "\" is for other ports" : "",
         network_rules_list(rules, &list));
    answer->may_ask = rules->ask_ms > 0;
}

/* What the rules say, the class of an address aside. */
static void decide(const struct network_rules *rules, const struct found *found,
                   const struct subject *subject, struct network_answer *answer)
{
    bool allow_first = rules->mode == NETWORK_E2B;
    bool closed = rules->mode == NETWORK_RULES;

    if (found->deny && !(allow_first && (found->allow || found->allow_some)))
        give_by_rule(answer, NETWORK_DENY, found->deny, subject);
    else if (found->allow && (allow_first || !found->deny_some))
        give_by_rule(answer, NETWORK_ALLOW, found->allow, subject);
    else if (found->allow_some && (closed || found->deny || found->deny_some))
        give_by_rule(answer, NETWORK_INSPECT, found->allow_some, subject);
    else if (found->deny_some && (found->allow || !closed))
        give_by_rule(answer, NETWORK_INSPECT, found->deny_some, subject);
    else
        give_default(answer, rules, found->other_port, subject);
}

/* --- Names --- */

/* Text of a program in the sandbox, for one line of a log. */
static void put_foreign(char *field, size_t room, const char *text)
{
    size_t len = 0;

    for (; text[len] && len + 1 < room; len++)
        field[len] = (char)(text[len] > ' ' && text[len] < 0x7F ? text[len] : '?');
    field[len] = '\0';
}

static struct subject subject_of(const char *name, uint16_t port)
{
    struct subject subject;

    if (port)
        snprintf(subject.text, sizeof subject.text, "%s:%d", name, port);
    else
        snprintf(subject.text, sizeof subject.text, "%s", name);
    return subject;
}

/* False, with an answer, if the text is no name. */
static bool clean_name(const char *text, char name[NETWORK_NAME_MAX],
                       struct network_answer *answer)
{
    char shown[80];
    const char *fault = network_name_clean(text, strlen(text), name);

    if (!fault)
        return true;
    put_foreign(shown, sizeof shown, text);
    give(answer, NETWORK_DENY, NULL, "\"%s\" is not a host name: %s.", shown, fault);
    return false;
}

/* In a table of E2B: the rule that denies all addresses, if no rule allows some.  A name
 * then need not be looked up. */
static const struct network_rule *deny_of_all(const struct network_rules *rules,
                                              uint16_t port)
{
    const struct network_rule *all = NULL;

    for (size_t i = 0; i < rules->count; i++) {
        const struct network_rule *rule = &rules->at[i];
        if (rules->mode != NETWORK_E2B || rule->kind != NETWORK_RANGE ||
            !covers_port(rules->mode, rule, port))
            continue;
        if (!rule->denies)
            return NULL;
        if (rule->bits == 0)
            keep_first(&all, rule);
    }
    return all;
}

static void check_name(const struct network_rules *rules, const char *name, uint16_t port,
                       struct found *ret_found, struct network_answer *answer)
{
    struct subject subject = subject_of(name, port);

    *ret_found = find_name(rules, name, port, NULL);
    keep_first(&ret_found->deny, deny_of_all(rules, port));
    decide(rules, ret_found, &subject, answer);
}

void network_check_name(const struct network_rules *rules, const char *name,
                        uint16_t port, struct network_answer *ret_answer)
{
    char clean[NETWORK_NAME_MAX];
    struct found found;

    if (clean_name(name, clean, ret_answer))
        check_name(rules, clean, port, &found, ret_answer);
}

void network_check_request(const struct network_rules *rules, const char *name,
                           uint16_t port, const char *method, const char *path,
                           struct network_answer *ret_answer)
{
    struct request request = {.method = network_method_bit(method, strlen(method))};
    char clean[NETWORK_NAME_MAX], clean_path[4096], shown_method[16], shown_path[80];
    struct subject subject;
    struct found found;

    if (!clean_name(name, clean, ret_answer))
        return;
    check_name(rules, clean, port, &found, ret_answer);
    if (ret_answer->verdict != NETWORK_INSPECT)
        return;
    put_foreign(shown_method, sizeof shown_method, method);
    put_foreign(shown_path, sizeof shown_path, path);
    subject = subject_of(clean, port);
    struct subject host = subject;
    snprintf(subject.text, sizeof subject.text, "%s %.*s%s", shown_method, 280, host.text,
             shown_path);
    if (!network_path_clean(path, clean_path, sizeof clean_path)) {
        give(ret_answer, NETWORK_DENY, NULL,
             "%s is not allowed: servers may take its path for another one.",
             subject.text);
        return;
    }
    request.path = clean_path;
    found = find_name(rules, clean, port, &request);
    keep_first(&found.deny, deny_of_all(rules, port));
    decide(rules, &found, &subject, ret_answer);
}

/* --- Addresses --- */

static bool is_own(const struct network_addresses *own,
                   const struct network_address *address)
{
    for (size_t i = 0; own && i < own->count; i++)
        if (network_address_equal(&own->at[i], address))
            return true;
    return false;
}

/* An address that is not public, and what a rule needs to open it. */
struct closed {
    unsigned bits; /* the prefix of such a rule; 0: the address is public */
    const char *range, *what;
};

enum { NEVER = 255 };

static struct closed closed_of(const struct network_rules *rules,
                               const struct network_address *address,
                               const struct network_addresses *own)
{
    const struct network_class *class = network_class_find(address);
    struct network_address within = {.len = 4};
    bool e2b = rules->mode == NETWORK_E2B;

    if (class && class->embedded) {
        memcpy(within.bytes, address->bytes + class->embedded, 4);
        if (network_class_find(&within) || is_own(own, &within))
            return (struct closed){NEVER, class->text, class->what};
    }
    if (is_own(own, address) && !(class && class->opens == NEVER))
        return (struct closed){e2b ? NEVER : 8u * address->len, "the address",
                               "the host's own"};
    if (class)
        return (struct closed){e2b ? NEVER : class->opens, class->text, class->what};
    return (struct closed){0, NULL, NULL};
}

static void give_closed(struct network_answer *answer, const struct closed *closed,
                        const struct network_address *address,
                        const struct subject *subject)
{
    const char *need = closed->bits == NEVER ? "No rule opens it"
                       : closed->bits == 8u * address->len
                           ? "Only a rule for exactly this "
                             "address and port opens it"
                           : "Only a rule for a range within "
                             "it and this port opens it";

    give(answer, NETWORK_DENY, NULL, "%s is not allowed: %s is %s. %s.", subject->text,
         closed->range, closed->what, need);
}

void network_check_address(const struct network_rules *rules,
                           const struct network_address *address, uint16_t port,
                           const struct network_addresses *own,
                           struct network_answer *ret_answer)
{
    struct closed closed = closed_of(rules, address, own);
    struct found found = find_address(rules, address, port, closed.bits);
    char text[NETWORK_ADDRESS_TEXT + 2], bare[NETWORK_ADDRESS_TEXT];

    network_address_format(address, bare);
    snprintf(text, sizeof text, address->len == 16 ? "[%s]" : "%s", bare);
    struct subject subject = subject_of(text, port);
    if (closed.bits && !found.allow)
        give_closed(ret_answer, &closed, address, &subject);
    else
        decide(rules, &found, &subject, ret_answer);
}

void network_check_resolved(const struct network_rules *rules, const char *name,
                            const struct network_address *address, uint16_t port,
                            const struct network_addresses *own,
                            struct network_answer *ret_answer)
{
    struct closed closed = closed_of(rules, address, own);
    struct found by_name, found = find_address(rules, address, port, closed.bits);
    char clean[NETWORK_NAME_MAX], text[NETWORK_ADDRESS_TEXT];
    struct subject subject;

    if (!clean_name(name, clean, ret_answer))
        return;
    check_name(rules, clean, port, &by_name, ret_answer);
    if (ret_answer->verdict == NETWORK_DENY)
        return;
    network_address_format(address, text);
    struct subject host = subject_of(clean, port);
    snprintf(subject.text, sizeof subject.text, "%.*s at %s", 300, host.text, text);
    bool allowed = rules->mode == NETWORK_E2B && (by_name.allow || found.allow);
    if (closed.bits && !found.allow)
        give_closed(ret_answer, &closed, address, &subject);
    else if (found.deny && !allowed)
        give_by_rule(ret_answer, NETWORK_DENY, found.deny, &subject);
}
