/* SPDX-License-Identifier: Apache-2.0 */
#include "harness.h"
#include "network/rules.h"
#include "policy/policy.h"

static cay_policy *parse(const char *text)
{
    cay_policy *policy = NULL;

    ASSERT_OK(cay_policy_parse(text, strlen(text), "p.yaml", "/base", &policy, &err));
    return policy;
}

static void refused(const char *text, const char *message, const char *hint)
{
    cay_policy *policy = NULL;

    ASSERT_CODE(cay_policy_parse(text, strlen(text), "p.yaml", "/base", &policy, &err),
                CAY_E_INVALID);
    ASSERT(!policy);
    ASSERT_HAS(err.message, message);
    ASSERT_HAS(err.hint, hint);
}

static struct cay_network_answer ask(const cay_policy *policy, const char *host,
                                     uint16_t port)
{
    struct cay_network_query query = {.size = sizeof query, .host = host, .port = port};
    struct cay_network_answer answer;

    ASSERT_OK(cay_policy_explain_network(policy, &query, &answer, &err));
    return answer;
}

static cay_policy *add(const cay_policy *policy, enum cay_network network,
                       const char *rule)
{
    struct cay_network_config config = {.size = sizeof config,
                                        .network = network,
                                        .rules = &rule,
                                        .rule_count = rule ? 1 : 0};
    cay_policy *with = NULL;

    ASSERT_OK(cay_policy_add_network(policy, &config, &with, &err));
    return with;
}

TEST(a_policy_without_network_rules_denies_every_host)
{
    AUTO(cay_policy) policy = parse("root: /x");

    ASSERT_INT(cay_policy_network(policy), CAY_NETWORK_NONE);
    ASSERT_INT(ask(policy, "pypi.org", 443).verdict, CAY_REACH_DENY);
    ASSERT_HAS(ask(policy, "pypi.org", 443).why, "--allow");
}

TEST(a_policy_file_has_network_rules_in_three_forms)
{
    AUTO(cay_policy) list = parse("network: [pypi, '!a.test', 'GET b.test/v1/*']\n");
    ASSERT_INT(cay_policy_network(list), CAY_NETWORK_RULES);
    ASSERT_INT(cay_policy_mount_count(list), 0);
    ASSERT_INT(ask(list, "pypi.org", 443).verdict, CAY_REACH_ALLOW);
    ASSERT_INT(ask(list, "a.test", 443).verdict, CAY_REACH_DENY);
    ASSERT_INT(ask(list, "b.test", 443).verdict, CAY_REACH_REQUESTS);

    AUTO(cay_policy) open = parse("paths: {a: {root: /a}}\nnetwork: open\n");
    ASSERT_INT(cay_policy_network(open), CAY_NETWORK_OPEN);
    ASSERT_INT(cay_policy_mount_count(open), 1);
    ASSERT_INT(ask(open, "c.test", 25).verdict, CAY_REACH_ALLOW);
    ASSERT_INT(ask(open, "10.0.0.1", 25).verdict, CAY_REACH_DENY);

    AUTO(cay_policy)
    map = parse("policy:\n"
                "  network:\n"
                "    mode: open\n"
                "    allow: 10.0.0.1:25\n"
                "    deny: [npm, ours]\n"
                "    groups: {npm: [n.test], ours: o.test}\n"
                "  root: /x\n");
    ASSERT_INT(cay_policy_network(map), CAY_NETWORK_OPEN);
    ASSERT_INT(ask(map, "10.0.0.1", 25).verdict, CAY_REACH_ALLOW);
    ASSERT_STR(ask(map, "n.test", 1).rule, "!n.test (npm)");
    ASSERT_STR(ask(map, "o.test", 1).rule, "!o.test (ours)");
}

TEST(a_bad_network_of_a_policy_file_is_refused_with_its_line)
{
    refused("root: /x\nnetwork: [pypi, a..test]\n",
            "line 2: network: a..test: ", "a label is empty");
    refused("network: [pypy]\n", "line 1: network: pypy: unknown group", "did you mean");
    refused("network: closed\n", "network: must be open",
            "mode, allow, deny, groups and limits");
    refused("network: {allowed: [pypi]}\n", "allowed", "allow");
    refused("network: {mode: host}\n", "network.mode: must be rules or open", "public");
    refused("network: {allow: {}}\n", "network.allow: must be a list", "pypi");
    refused("network: {allow: [[a]]}\n", "network.allow[0]", "");
    refused("network: {groups: [a]}\n", "network.groups: must be a map", "pypi");
    refused("network: {groups: {A: a.test}}\n", "network.groups.A: invalid name",
            "lower-case");
    refused("network: {groups: {a: [b]}}\n", "invalid rule of a group", "pypi.org");
    refused("network: open\nnetwork: open\n", "twice", "keep one");
    refused("policy: {network: open}\nnetwork: open\n", "twice", "keep one");
}

TEST(network_rules_are_added_to_a_copy_of_a_policy)
{
    AUTO(cay_policy) files = parse("paths: {a: {root: /a}}");
    AUTO(cay_policy) one = add(files, CAY_NETWORK_NONE, "a.test");
    AUTO(cay_policy) two = add(one, CAY_NETWORK_OPEN, "!b.test");

    ASSERT_INT(cay_policy_network(files), CAY_NETWORK_NONE);
    ASSERT_INT(cay_policy_network(one), CAY_NETWORK_RULES);
    ASSERT_INT(cay_policy_mount_count(two), 1);
    ASSERT_INT(ask(one, "b.test", 80).verdict, CAY_REACH_DENY);
    ASSERT_STR(ask(two, "a.test", 80).rule, "a.test");
    ASSERT_STR(ask(two, "b.test", 80).rule, "!b.test");
    ASSERT_INT(ask(two, "c.test", 80).verdict, CAY_REACH_ALLOW);
}

TEST(hosts_of_a_group_are_known_to_rules_that_are_added_later)
{
    static const char *const mirror[] = {"pypi=mirror.test:8080"};
    struct cay_network_config config = {
        .size = sizeof config, .groups = mirror, .group_count = 1};
    cay_policy *made = NULL;

    ASSERT_OK(cay_policy_add_network(NULL, &config, &made, &err));
    AUTO(cay_policy) groups = made;
    ASSERT_INT(cay_policy_network(groups), CAY_NETWORK_NONE);
    AUTO(cay_policy) rules = add(groups, CAY_NETWORK_NONE, "pypi");
    ASSERT_STR(ask(rules, "mirror.test", 8080).rule, "mirror.test:8080 (pypi)");
}

TEST(a_network_config_that_contradicts_itself_is_refused)
{
    static const char *const bad[] = {"pypi"};
    struct cay_network_config config = {.size = sizeof config,
                                        .network = CAY_NETWORK_HOST};
    cay_policy *policy = NULL;

    ASSERT_CODE(cay_policy_add_network(NULL, &config, &policy, &err), CAY_E_INVALID);
    config.network = CAY_NETWORK_RULES;
    config.allow_first = true;
    ASSERT_CODE(cay_policy_add_network(NULL, &config, &policy, &err), CAY_E_INVALID);
    config.allow_first = false;
    config.groups = bad;
    config.group_count = 1;
    ASSERT_CODE(cay_policy_add_network(NULL, &config, &policy, &err), CAY_E_INVALID);
    ASSERT_HAS(err.hint, "pypi=mirror.example.com");
    ASSERT(!policy);
}

TEST(rules_of_e2b_are_an_open_network_that_allows_first)
{
    static const char *const rules[] = {"a.test", "!0.0.0.0/0"};
    struct cay_network_config config = {.size = sizeof config,
                                        .network = CAY_NETWORK_OPEN,
                                        .allow_first = true,
                                        .rules = rules,
                                        .rule_count = 2};
    cay_policy *made = NULL;

    ASSERT_OK(cay_policy_add_network(NULL, &config, &made, &err));
    AUTO(cay_policy) policy = made;
    ASSERT_INT(cay_policy_network(policy), CAY_NETWORK_OPEN);
    ASSERT_INT(ask(policy, "a.test", 443).verdict, CAY_REACH_ALLOW);
    ASSERT_INT(ask(policy, "b.test", 443).verdict, CAY_REACH_DENY);
    AUTO(cay_policy) more = add(policy, CAY_NETWORK_NONE, "b.test");
    ASSERT_INT(ask(more, "b.test", 443).verdict, CAY_REACH_ALLOW);
}

TEST(an_explanation_covers_requests_and_the_address_of_a_name)
{
    AUTO(cay_policy) policy = parse("network: ['GET a.test/v1/*', b.test]");
    struct cay_network_query query = {.size = sizeof query, .host = "a.test"};
    struct cay_network_answer answer;

    query.path = "/v1/x";
    ASSERT_OK(cay_policy_explain_network(policy, &query, &answer, &err));
    ASSERT_INT(answer.verdict, CAY_REACH_ALLOW);
    query.method = "POST";
    ASSERT_OK(cay_policy_explain_network(policy, &query, &answer, &err));
    ASSERT_INT(answer.verdict, CAY_REACH_DENY);
    query = (struct cay_network_query){
        .size = sizeof query, .host = "b.test", .port = 443, .address = "10.0.0.1"};
    ASSERT_OK(cay_policy_explain_network(policy, &query, &answer, &err));
    ASSERT_INT(answer.verdict, CAY_REACH_DENY);
    ASSERT_HAS(answer.why, "private");
    query.address = "192.0.2.1";
    ASSERT_OK(cay_policy_explain_network(policy, &query, &answer, &err));
    ASSERT_INT(answer.verdict, CAY_REACH_ALLOW);
    query.address = "nonsense";
    ASSERT_CODE(cay_policy_explain_network(policy, &query, &answer, &err), CAY_E_INVALID);
    query.host = NULL;
    ASSERT_CODE(cay_policy_explain_network(policy, &query, &answer, &err), CAY_E_INVALID);
}
