/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <stdio.h>

#include "base/words.h"
#include "harness.h"
#include "network/groups.h"
#include "network/rules.h"

/* Rules with ";" between them. */
static struct network_rules *make(enum network_mode mode, const char *list)
{
    struct network_rules *rules = NULL;
    AUTO_FREE char *copy = strdup(list);
    const char *texts[64];
    size_t count = 0;

    for (char *at = copy; at && *at;) {
        texts[count++] = at;
        at = strchr(at, ';');
        if (at)
            *at++ = '\0';
    }
    ASSERT_OK(network_rules_new(mode, texts, count, NULL, &rules, &err));
    return rules;
}

static void refused(const char *rule, const char *message, const char *hint)
{
    struct network_rules *rules = NULL;

    ASSERT_CODE(network_rules_new(NETWORK_RULES, &rule, 1, NULL, &rules, &err),
                CAY_E_INVALID);
    ASSERT(!rules);
    ASSERT_HAS(err.message, message);
    ASSERT_HAS(err.hint, hint);
}

static struct network_address address_of(const char *text)
{
    struct network_address address;

    ASSERT(network_address_parse(text, &address));
    return address;
}

static struct network_answer by_name(const struct network_rules *rules, const char *name,
                                     uint16_t port)
{
    struct network_answer answer;

    network_check_name(rules, name, port, &answer);
    ASSERT(answer.rule[0] && answer.why[0]);
    return answer;
}

static struct network_answer by_address(const struct network_rules *rules,
                                        const char *text, uint16_t port)
{
    struct network_answer answer;
    struct network_address address = address_of(text);
    struct network_address host[] = {address_of("203.0.113.77"),
                                     address_of("2001:db8::77"),
                                     address_of("10.77.77.77")};
    struct network_addresses own = {host, 3};

    network_check_address(rules, &address, port, &own, &answer);
    ASSERT(answer.rule[0] && answer.why[0]);
    return answer;
}

static struct network_answer by_lookup(const struct network_rules *rules,
                                       const char *name, const char *text, uint16_t port)
{
    struct network_answer answer;
    struct network_address address = address_of(text), host = address_of("203.0.113.77");
    struct network_addresses own = {&host, 1};

    network_check_resolved(rules, name, &address, port, &own, &answer);
    ASSERT(answer.rule[0] && answer.why[0]);
    return answer;
}

static struct network_answer by_request(const struct network_rules *rules,
                                        const char *name, const char *method,
                                        const char *path)
{
    struct network_answer answer;

    network_check_request(rules, name, 80, method, path, &answer);
    ASSERT(answer.rule[0] && answer.why[0]);
    return answer;
}

TEST(a_name_rule_decides_by_name_and_port)
{
    static const struct {
        const char *rules, *name;
        uint16_t port;
        enum network_verdict verdict;
        const char *rule;
    } cases[] = {
        {"pypi.org", "pypi.org", 443, NETWORK_ALLOW, "pypi.org"},
        {"pypi.org", "pypi.org", 80, NETWORK_ALLOW, "pypi.org"},
        {"pypi.org", "pypi.org", 22, NETWORK_DENY, "default"},
        {"pypi.org", "PyPI.org.", 443, NETWORK_ALLOW, "pypi.org"},
        {"PyPI.org.", "pypi.org", 443, NETWORK_ALLOW, "pypi.org"},
        {"pypi.org", "evil-pypi.org", 443, NETWORK_DENY, "default"},
        {"pypi.org", "pypi.org.evil.test", 443, NETWORK_DENY, "default"},
        {"pypi.org", "a.pypi.org", 443, NETWORK_DENY, "default"},
        {"*.x.test", "a.x.test", 443, NETWORK_ALLOW, "*.x.test"},
        {"*.x.test", "a.b.x.test", 443, NETWORK_ALLOW, "*.x.test"},
        {"*.x.test", "x.test", 443, NETWORK_DENY, "default"},
        {"*.x.test", "ax.test", 443, NETWORK_DENY, "default"},
        {"*.x.test", ".x.test", 443, NETWORK_DENY, "default"},
        {"*:443", "any.test", 443, NETWORK_ALLOW, "*:443"},
        {"*:443", "any.test", 80, NETWORK_DENY, "default"},
        {"x.test:22", "x.test", 22, NETWORK_ALLOW, "x.test:22"},
        {"x.test:22", "x.test", 443, NETWORK_DENY, "default"},
        {"x.test:22", "x.test", 0, NETWORK_ALLOW, "x.test:22"},
        {"x.test;!x.test:80", "x.test", 0, NETWORK_ALLOW, "x.test"},
        {"x.test;!x.test:*", "x.test", 0, NETWORK_DENY, "!x.test:*"},
        {"x.test:20-30", "x.test", 30, NETWORK_ALLOW, "x.test:20-30"},
        {"x.test:20-30", "x.test", 31, NETWORK_DENY, "default"},
        {"x.test:*", "x.test", 65535, NETWORK_ALLOW, "x.test:*"},
        {"*.x.test:*;!a.x.test", "a.x.test", 8080, NETWORK_DENY, "!a.x.test"},
        {"!a.x.test;*.x.test:*", "b.x.test", 8080, NETWORK_ALLOW, "*.x.test:*"},
        {"*.x.test:*;!a.x.test:22", "a.x.test", 23, NETWORK_ALLOW, "*.x.test:*"},
        {"db:5432", "db", 5432, NETWORK_ALLOW, "db:5432"},
        {"db.", "db", 443, NETWORK_ALLOW, "db"},
        {"_srv.x.test", "_srv.x.test", 443, NETWORK_ALLOW, "_srv.x.test"},
        {"192.0.2.0/24:*", "2.0.192.test", 443, NETWORK_DENY, "default"},
        {"pypi", "pypi.org", 443, NETWORK_ALLOW, "pypi.org (pypi)"},
        {"pypi", "files.pythonhosted.org", 443, NETWORK_ALLOW,
         "files.pythonhosted.org (pypi)"},
        {"*:*;!github", "api.github.com", 22, NETWORK_DENY, "!api.github.com (github)"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        AUTO_NETWORK_RULES rules = make(NETWORK_RULES, cases[i].rules);
        struct network_answer answer = by_name(rules, cases[i].name, cases[i].port);
        if (answer.verdict != cases[i].verdict)
            printf("# case %zu: %s\n", i, answer.why);
        ASSERT_INT(answer.verdict, cases[i].verdict);
        ASSERT_STR(answer.rule, cases[i].rule);
    }
}

TEST(a_text_that_is_no_host_name_is_denied_whatever_the_rules)
{
    static const char *const names[] = {
        "",
        ".",
        "a..b",
        "-a.test",
        "a-.test",
        "a b.test",
        "b\xc3\xbc.test",
        "a@b.test",
        "a.test\r\nX: y",
        "2130706433",
        "0x7f.1",
        "127.1",
        "1.2.3.4",
        "[::1]",
        "a/b",
        "a.test:80",
        "..",
        "a.0x7f",
    };
    AUTO_NETWORK_RULES rules = make(NETWORK_OPEN, "*:*");
    char label[70] = "", whole[300] = "";

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct network_answer answer = by_name(rules, names[i], 80);
        ASSERT_INT(answer.verdict, NETWORK_DENY);
        ASSERT_HAS(answer.why, "is not a host name: ");
        ASSERT(!strpbrk(answer.why, "\r\n"));
    }
    memset(label, 'a', 64);
    ASSERT_INT(by_name(rules, label, 80).verdict, NETWORK_DENY);
    label[63] = '\0';
    ASSERT_INT(by_name(rules, label, 80).verdict, NETWORK_ALLOW);
    for (size_t i = 0; i < 253; i++)
        whole[i] = i % 2 ? '.' : 'a';
    ASSERT_INT(by_name(rules, whole, 80).verdict, NETWORK_ALLOW);
    memcpy(whole + 253, ".a", 2);
    ASSERT_INT(by_name(rules, whole, 80).verdict, NETWORK_DENY);
}

TEST(an_address_needs_a_rule_for_addresses)
{
    static const struct {
        const char *rules, *address;
        uint16_t port;
        enum network_verdict verdict;
    } cases[] = {
        {"*:*", "192.0.2.1", 443, NETWORK_DENY},
        {"192.0.2.1", "192.0.2.1", 443, NETWORK_ALLOW},
        {"192.0.2.1", "192.0.2.2", 443, NETWORK_DENY},
        {"192.0.2.1", "192.0.2.1", 22, NETWORK_DENY},
        {"192.0.2.0/24:5432", "192.0.2.255", 5432, NETWORK_ALLOW},
        {"192.0.2.7/24:5432", "192.0.2.255", 5432, NETWORK_ALLOW},
        {"192.0.2.0/24:5432", "192.0.3.0", 5432, NETWORK_DENY},
        {"192.0.2.0/23:5432", "192.0.3.0", 5432, NETWORK_ALLOW},
        {"2001:db8::/32", "2001:db8:1::1", 443, NETWORK_ALLOW},
        {"[2001:db8::/32]:22", "2001:db8:1::1", 22, NETWORK_ALLOW},
        {"[2001:db8::1]:22", "2001:db8::1", 22, NETWORK_ALLOW},
        {"[2001:db8::1]:22", "2001:db8::2", 22, NETWORK_DENY},
        {"2001:db8::/33", "2001:db8:8000::", 443, NETWORK_DENY},
        {"0.0.0.0/0:*", "2001:db8::1", 443, NETWORK_DENY},
        {"0.0.0.0/0:*;!192.0.2.0/24", "192.0.2.1", 9, NETWORK_DENY},
        {"0.0.0.0/0:*;!192.0.2.0/24:22", "192.0.2.1", 9, NETWORK_ALLOW},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        AUTO_NETWORK_RULES rules = make(NETWORK_RULES, cases[i].rules);
        struct network_answer answer = by_address(rules, cases[i].address, cases[i].port);
        if (answer.verdict != cases[i].verdict)
            printf("# case %zu: %s\n", i, answer.why);
        ASSERT_INT(answer.verdict, cases[i].verdict);
    }
}

/* Per address: a rule for all addresses, for its class, and for itself. */
TEST(a_private_address_is_open_only_to_a_rule_within_its_range)
{
    static const struct {
        const char *address, *class, *alone; /* NULL: no rule opens it */
        bool class_opens;
    } cases[] = {
        {"10.1.2.3", "10.0.0.0/8:*", "10.1.2.3:*", true},
        {"100.64.0.1", "100.64.0.0/10:*", "100.64.0.1:*", true},
        {"127.0.0.1", "127.0.0.0/8:*", "127.0.0.1:*", true},
        {"169.254.1.1", "169.254.0.0/16:*", "169.254.1.1:*", true},
        {"172.16.0.1", "172.16.0.0/12:*", "172.16.0.1:*", true},
        {"172.31.255.255", "172.16.0.0/12:*", "172.31.255.255:*", true},
        {"192.168.1.1", "192.168.0.0/16:*", "192.168.1.1:*", true},
        {"198.19.0.1", "198.18.0.0/15:*", "198.19.0.1:*", true},
        {"192.0.0.8", "192.0.0.0/24:*", "192.0.0.8:*", true},
        {"169.254.169.254", "169.254.0.0/16:*", "169.254.169.254:*", false},
        {"100.100.100.200", "100.64.0.0/10:*", "100.100.100.200:*", false},
        {"168.63.129.16", "168.63.129.0/24:*", "168.63.129.16:*", false},
        {"203.0.113.77", "203.0.113.0/24:*", "203.0.113.77:*", false}, /* the host's */
        {"10.77.77.77", "10.0.0.0/8:*", "10.77.77.77:*", false},
        {"0.0.0.0", NULL, NULL, false},
        {"224.0.0.1", NULL, NULL, false},
        {"255.255.255.255", NULL, NULL, false},
        {"::1", "[::1]:*", "[::1]:*", true},
        {"fd12::1", "[fc00::/7]:*", "[fd12::1]:*", true},
        {"fe80::1", "[fe80::/10]:*", "[fe80::1]:*", true},
        {"fec0::1", "[fec0::/10]:*", "[fec0::1]:*", true},
        {"fd00:ec2::254", "[fc00::/7]:*", "[fd00:ec2::254]:*", false},
        {"2001:db8::77", "[2001:db8::/32]:*", "[2001:db8::77]:*", false},
        {"2001:0:1::1", "[2001::/32]:*", "[2001:0:1::1]:*", true},
        {"64:ff9b::192.0.2.1", "[64:ff9b::/96]:*", "[64:ff9b::c000:201]:*", true},
        {"64:ff9b:1::1", "[64:ff9b:1::/48]:*", "[64:ff9b:1::1]:*", true},
        {"2002:c000:201::1", "[2002::/16]:*", "[2002:c000:201::1]:*", true},
        {"::", NULL, NULL, false},
        {"::192.0.2.1", NULL, NULL, false},
        {"::ffff:192.0.2.1", NULL, NULL, false},
        {"ff02::1", NULL, NULL, false},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        AUTO_NETWORK_RULES all = make(NETWORK_RULES, "*:*;0.0.0.0/0:*;[::/0]:*");
        struct network_answer answer = by_address(all, cases[i].address, 80);
        if (answer.verdict)
            printf("# case %zu: %s\n", i, answer.why);
        ASSERT_INT(answer.verdict, NETWORK_DENY);
        ASSERT_STR(answer.rule, "default");
        AUTO_NETWORK_RULES open = make(NETWORK_OPEN, "");
        ASSERT_INT(by_address(open, cases[i].address, 80).verdict, NETWORK_DENY);
        if (!cases[i].class)
            continue;
        AUTO_NETWORK_RULES class = make(NETWORK_RULES, cases[i].class);
        ASSERT_INT(by_address(class, cases[i].address, 80).verdict,
                   cases[i].class_opens ? NETWORK_ALLOW : NETWORK_DENY);
        AUTO_NETWORK_RULES alone = make(NETWORK_OPEN, cases[i].alone);
        ASSERT_INT(by_address(alone, cases[i].address, 80).verdict, NETWORK_ALLOW);
    }
}

TEST(an_address_behind_a_translator_is_as_closed_as_the_address_inside)
{
    AUTO_NETWORK_RULES rules =
        make(NETWORK_RULES, "[64:ff9b::/96]:*;[2002::/16]:*;10.0.0.0/8:*");

    ASSERT_INT(by_address(rules, "64:ff9b::8.8.8.8", 80).verdict, NETWORK_ALLOW);
    ASSERT_INT(by_address(rules, "64:ff9b::10.0.0.1", 80).verdict, NETWORK_DENY);
    ASSERT_INT(by_address(rules, "64:ff9b::169.254.169.254", 80).verdict, NETWORK_DENY);
    ASSERT_INT(by_address(rules, "64:ff9b::203.0.113.77", 80).verdict, NETWORK_DENY);
    ASSERT_INT(by_address(rules, "2002:0a00:1::", 80).verdict, NETWORK_DENY);
}

TEST(the_address_of_an_allowed_name_must_be_public)
{
    AUTO_NETWORK_RULES rules = make(NETWORK_RULES, "a.test;b.test;10.0.0.9:443;"
                                                   "!192.0.2.0/24");
    struct network_answer answer = by_lookup(rules, "a.test", "10.0.0.1", 443);

    ASSERT_INT(answer.verdict, NETWORK_DENY);
    ASSERT_STR(answer.why, "a.test:443 at 10.0.0.1 is not allowed: 10.0.0.0/8 is "
                           "private. Only a rule for a range within it and this port "
                           "opens it.");
    ASSERT_INT(by_lookup(rules, "a.test", "10.0.0.9", 443).verdict, NETWORK_ALLOW);
    ASSERT_INT(by_lookup(rules, "a.test", "10.0.0.9", 80).verdict, NETWORK_DENY);
    ASSERT_INT(by_lookup(rules, "a.test", "198.51.100.1", 80).verdict, NETWORK_ALLOW);
    ASSERT_INT(by_lookup(rules, "a.test", "203.0.113.77", 80).verdict, NETWORK_DENY);
    ASSERT_INT(by_lookup(rules, "a.test", "::ffff:198.51.100.1", 80).verdict,
               NETWORK_DENY);
    answer = by_lookup(rules, "a.test", "192.0.2.1", 80);
    ASSERT_INT(answer.verdict, NETWORK_DENY);
    ASSERT_STR(answer.rule, "!192.0.2.0/24");
    ASSERT_INT(by_lookup(rules, "c.test", "198.51.100.1", 80).verdict, NETWORK_DENY);
    ASSERT_INT(by_lookup(rules, "c.test", "10.0.0.9", 443).verdict, NETWORK_DENY);
}

TEST(an_open_network_reaches_what_is_public_and_not_denied)
{
    AUTO_NETWORK_RULES rules =
        make(NETWORK_OPEN, "!*.evil.test;!198.51.100.0/24:25;10.0.0.9:5432");

    ASSERT_INT(by_name(rules, "a.test", 22).verdict, NETWORK_ALLOW);
    ASSERT_INT(by_name(rules, "a.evil.test", 22).verdict, NETWORK_DENY);
    ASSERT_INT(by_address(rules, "8.8.8.8", 53).verdict, NETWORK_ALLOW);
    ASSERT_INT(by_address(rules, "2606:4700::1", 53).verdict, NETWORK_ALLOW);
    ASSERT_INT(by_address(rules, "198.51.100.1", 25).verdict, NETWORK_DENY);
    ASSERT_INT(by_address(rules, "198.51.100.1", 26).verdict, NETWORK_ALLOW);
    ASSERT_INT(by_address(rules, "10.0.0.9", 5432).verdict, NETWORK_ALLOW);
    ASSERT_INT(by_address(rules, "10.0.0.9", 5433).verdict, NETWORK_DENY);
    ASSERT_INT(by_lookup(rules, "a.test", "198.51.100.1", 25).verdict, NETWORK_DENY);
    ASSERT_INT(by_lookup(rules, "a.test", "127.0.0.1", 80).verdict, NETWORK_DENY);
    ASSERT_INT(by_lookup(rules, "a.test", "8.8.8.8", 80).verdict, NETWORK_ALLOW);
}

TEST(rules_of_e2b_allow_first)
{
    AUTO_NETWORK_RULES some = make(NETWORK_E2B, "1.1.1.1;!0.0.0.0/0");
    ASSERT_INT(by_address(some, "1.1.1.1", 9999).verdict, NETWORK_ALLOW);
    ASSERT_INT(by_address(some, "8.8.8.8", 443).verdict, NETWORK_DENY);
    ASSERT_INT(by_address(some, "2606:4700::1", 443).verdict, NETWORK_DENY);
    ASSERT_INT(by_name(some, "one.test", 443).verdict, NETWORK_ALLOW);
    ASSERT_INT(by_lookup(some, "one.test", "1.1.1.1", 443).verdict, NETWORK_ALLOW);
    ASSERT_INT(by_lookup(some, "one.test", "1.1.1.2", 443).verdict, NETWORK_DENY);

    AUTO_NETWORK_RULES names = make(NETWORK_E2B, "a.test;*.b.test;!0.0.0.0/0");
    ASSERT_INT(by_name(names, "a.test", 443).verdict, NETWORK_ALLOW);
    ASSERT_INT(by_name(names, "a.test", 22).verdict, NETWORK_DENY);
    ASSERT_INT(by_name(names, "b.test", 443).verdict, NETWORK_DENY);
    ASSERT_INT(by_name(names, "x.b.test", 443).verdict, NETWORK_ALLOW);
    ASSERT_INT(by_lookup(names, "a.test", "1.1.1.1", 443).verdict, NETWORK_ALLOW);
    ASSERT_INT(by_lookup(names, "a.test", "10.0.0.1", 443).verdict, NETWORK_DENY);

    AUTO_NETWORK_RULES deny = make(NETWORK_E2B, "!8.8.8.8;10.0.0.0/8");
    ASSERT_INT(by_address(deny, "8.8.8.8", 443).verdict, NETWORK_DENY);
    ASSERT_INT(by_address(deny, "1.1.1.1", 22).verdict, NETWORK_ALLOW);
    ASSERT_INT(by_address(deny, "10.0.0.1", 22).verdict, NETWORK_DENY);
    ASSERT_INT(by_lookup(deny, "a.test", "8.8.8.8", 443).verdict, NETWORK_DENY);
    ASSERT_INT(by_lookup(deny, "a.test", "1.1.1.1", 22).verdict, NETWORK_ALLOW);

    AUTO_NETWORK_RULES none = make(NETWORK_E2B, "!0.0.0.0/0");
    ASSERT_INT(by_name(none, "a.test", 443).verdict, NETWORK_DENY);
}

TEST(methods_and_paths_decide_about_requests)
{
    AUTO_NETWORK_RULES rules =
        make(NETWORK_RULES, "GET a.test/v1/*;POST,PUT a.test/v1/items;GET b.test;"
                            "c.test;!DELETE c.test;!c.test/admin*;d.test;GET d.test/x");
    static const struct {
        const char *host, *method, *path;
        enum network_verdict verdict;
    } cases[] = {
        {"a.test", "GET", "/v1/", NETWORK_ALLOW},
        {"a.test", "HEAD", "/v1/x/y?z=../..", NETWORK_ALLOW},
        {"a.test", "GET", "/v1", NETWORK_DENY},
        {"a.test", "POST", "/v1/x", NETWORK_DENY},
        {"a.test", "PUT", "/v1/items", NETWORK_ALLOW},
        {"a.test", "PUT", "/v1/items/", NETWORK_DENY},
        {"a.test", "put", "/v1/items", NETWORK_DENY},
        {"a.test", "GET", "/v1/../admin", NETWORK_DENY},
        {"a.test", "GET", "/v1/%2e%2E/admin", NETWORK_DENY},
        {"a.test", "GET", "/v1/x%2f..%2fadmin", NETWORK_DENY},
        {"a.test", "GET", "/v1/x\\..\\admin", NETWORK_DENY},
        {"a.test", "GET", "/%761/x", NETWORK_ALLOW},
        {"a.test", "GET", "/v1/%zz", NETWORK_DENY},
        {"a.test", "GET", "/v1/%", NETWORK_DENY},
        {"a.test", "GET", "v1/x", NETWORK_DENY},
        {"a.test", "GET", "*", NETWORK_DENY},
        {"a.test", "GET", "", NETWORK_DENY},
        {"b.test", "GET", "/anything", NETWORK_ALLOW},
        {"b.test", "POST", "/anything", NETWORK_DENY},
        {"b.test", "PROPFIND", "/anything", NETWORK_DENY},
        {"c.test", "GET", "/x", NETWORK_ALLOW},
        {"c.test", "PROPFIND", "/x", NETWORK_ALLOW},
        {"c.test", "DELETE", "/x", NETWORK_DENY},
        {"c.test", "GET", "/administrator", NETWORK_DENY},
        {"c.test", "GET", "/%61dmin", NETWORK_DENY},
        {"c.test", "GET", "//admin", NETWORK_DENY},
        {"c.test", "GET", "/./admin", NETWORK_DENY},
        {"d.test", "POST", "/../y", NETWORK_ALLOW},
        {"e.test", "GET", "/", NETWORK_DENY},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct network_answer answer =
            by_request(rules, cases[i].host, cases[i].method, cases[i].path);
        if (answer.verdict != cases[i].verdict)
            printf("# case %zu: %s\n", i, answer.why);
        ASSERT_INT(answer.verdict, cases[i].verdict);
    }
    ASSERT_INT(by_name(rules, "a.test", 80).verdict, NETWORK_INSPECT);
    ASSERT_INT(by_name(rules, "c.test", 443).verdict, NETWORK_INSPECT);
    ASSERT_INT(by_name(rules, "d.test", 443).verdict, NETWORK_ALLOW);
    ASSERT_INT(by_name(rules, "a.test", 22).verdict, NETWORK_DENY);
    ASSERT_INT(by_lookup(rules, "a.test", "192.0.2.1", 80).verdict, NETWORK_INSPECT);
    ASSERT_INT(by_lookup(rules, "a.test", "10.0.0.1", 80).verdict, NETWORK_DENY);
}

TEST(a_rule_that_cannot_be_read_is_refused_with_what_is_allowed)
{
    refused("", "invalid rule", "api.example.com:443");
    refused("!", "invalid rule", "pypi");
    refused("pypy", "unknown group", "did you mean pypi? groups: pypi, npm, debian, ");
    refused("nonsense", "unknown group", "nonsense:443");
    refused("pypi:443", "its own ports", "pypi alone");
    refused("a.test:0", "invalid port", "1 to 65535");
    refused("a.test:65536", "invalid port", "1 to 65535");
    refused("a.test:99999999999", "invalid port", "1 to 65535");
    refused("a.test:90-80", "invalid port", "8000-8010");
    refused("a.test:", "invalid port", "host:443");
    refused("a.test:80,443", "invalid port", "host:443");
    refused("a.test:http", "invalid port", "host:*");
    refused("b\xc3\xbc"
            "cher.test",
            "invalid host", "xn--");
    refused("a_b.test@x", "invalid host", "only letters, digits");
    refused("*x.test", "invalid host", "*.example.com");
    refused("a.*.test", "invalid host", "*.example.com");
    refused("*.", "invalid host", "it is empty");
    refused("1.2.3", "invalid host", "number");
    refused("https://a.test", "no scheme", "leave out https://");
    ASSERT_STR(err.subject, "https://a.test");
    refused("192.0.2.0/33:80", "invalid prefix length", "0 to 32");
    refused("192.0.2.0/", "invalid prefix length", "192.0.2.0/24");
    refused("192.0.2.0/24:5432/udp", "UDP cannot be allowed", "only TCP");
    refused("192.0.2.0/24/x", "no path", "host name before the path");
    refused("[2001:db8::/129]", "invalid prefix length", "0 to 128");
    refused("[2001:db8::g]", "invalid address", "[2001:db8::1]");
    refused("[::1]x", "after the host", ":443");
    refused("0.0.0.0", "no rule opens", "this host");
    refused("::ffff:10.0.0.1", "no rule opens", "IPv4 in disguise");
    refused("224.0.0.0/4", "no rule opens", "multicast");
    refused("FETCH a.test", "unknown HTTP method", "GET, HEAD, POST");
    refused("GET 192.0.2.1", "no methods", "GET api.example.com");
    refused("a.test/../x", "invalid path", "/v1/*");
    refused("a.test/x?y", "invalid path", "/v1/*");
    refused("a.test\nb.test", "invalid rule", "pypi");
    refused("a.test\tpypi", "invalid rule", "pypi");
}

TEST(a_denial_names_what_is_allowed)
{
    AUTO_NETWORK_RULES rules = make(NETWORK_RULES, "pypi;api.example.com:8443;!x.test");

    ASSERT_STR(by_name(rules, "evil.test", 443).why,
               "evil.test:443 is not allowed: no rule names it. Allowed: pypi, "
               "api.example.com:8443.");
    ASSERT_STR(by_name(rules, "api.example.com", 443).why,
               "api.example.com:443 is not allowed: the rule \"api.example.com:8443\" is "
               "for other ports. Allowed: pypi, api.example.com:8443.");
    ASSERT_STR(by_name(rules, "pypi.org", 443).why,
               "pypi.org:443 is allowed by the rule \"pypi.org (pypi)\".");
    ASSERT_STR(by_name(rules, "x.test", 443).why,
               "x.test:443 is denied by the rule \"!x.test\".");
    ASSERT_STR(by_address(rules, "169.254.169.254", 80).why,
               "169.254.169.254:80 is not allowed: 169.254.169.254 is a metadata service "
               "of clouds. Only a rule for exactly this address and port opens it.");
}

TEST(a_configuration_adds_hosts_to_groups)
{
    struct network_groups groups;
    struct network_rules *made = NULL;
    const char *texts[] = {"GET pypi", "ours"};

    ASSERT_OK(network_groups_init(&groups, &err));
    ASSERT_OK(network_groups_add(&groups, "pypi", "mirror.example.com:8080", &err));
    ASSERT_OK(network_groups_add(&groups, "ours", "*.example.org", &err));
    ASSERT_CODE(network_groups_add(&groups, "Ours", "a.test", &err), CAY_E_INVALID);
    ASSERT_CODE(network_groups_add(&groups, "ours", "npm", &err), CAY_E_INVALID);
    ASSERT_CODE(network_groups_add(&groups, "ours", "!a.test", &err), CAY_E_INVALID);
    ASSERT_CODE(network_groups_add(&groups, "ours", "GET a.test", &err), CAY_E_INVALID);
    ASSERT_CODE(network_groups_add(&groups, "ours", "a.test:x", &err), CAY_E_INVALID);
    ASSERT_OK(network_rules_new(NETWORK_RULES, texts, 2, &groups, &made, &err));
    AUTO_NETWORK_RULES rules = made;
    network_groups_done(&groups);
    ASSERT_INT(by_name(rules, "mirror.example.com", 8080).verdict, NETWORK_INSPECT);
    ASSERT_STR(by_name(rules, "mirror.example.com", 8080).rule,
               "GET mirror.example.com:8080 (pypi)");
    ASSERT_INT(by_name(rules, "a.example.org", 443).verdict, NETWORK_ALLOW);
}

TEST(every_built_in_rule_is_valid)
{
    struct network_groups groups, checked = {NULL};

    ASSERT_OK(network_groups_init(&groups, &err));
    ASSERT(groups.count > 8);
    for (size_t i = 0; i < groups.count; i++)
        ASSERT_OK(
            network_groups_add(&checked, groups.at[i].group, groups.at[i].rule, &err));
    network_groups_done(&groups);
    network_groups_done(&checked);
}

static void read_refused(const char *text, size_t len, const char *message)
{
    struct network_rules *rules = NULL;

    ASSERT_CODE(network_rules_read(text, len, &rules, &err), CAY_E_INVALID);
    ASSERT(!rules);
    ASSERT_HAS(err.message, message);
}

TEST(the_serialised_form_is_read_back_as_it_was_written)
{
    AUTO_NETWORK_RULES rules =
        make(NETWORK_RULES, "npm;!POST,GET,HEAD Example.ORG.:80-90/a%41/*;*:*;"
                            "2001:DB8::1;[2001:db8::/32]:22;10.1.2.3/8;!*.x.test;"
                            "HEAD *.x.test:443");
    struct network_rules *made = NULL;
    AUTO_BUF text = {.max = NETWORK_TEXT_MAX}, again = {.max = NETWORK_TEXT_MAX};

    ASSERT(network_rules_write(rules, &text));
    ASSERT_STR(text.data, "cay-network 1 rules\n"
                          "registry.npmjs.org\tnpm\n"
                          "registry.yarnpkg.com\tnpm\n"
                          "!GET,POST example.org:80-90/aA/*\n"
                          "*:*\n"
                          "[2001:db8::1]\n"
                          "[2001:db8::/32]:22\n"
                          "10.0.0.0/8\n"
                          "!*.x.test\n"
                          "HEAD *.x.test:443\n");
    ASSERT_OK(network_rules_read(text.data, text.len, &made, &err));
    AUTO_NETWORK_RULES copy = made;
    ASSERT(network_rules_write(copy, &again));
    ASSERT_STR(again.data, text.data);
}

TEST(a_serialised_form_that_is_damaged_is_refused)
{
    AUTO_BUF text = {.max = 2 * NETWORK_TEXT_MAX};

    read_refused("", 0, "unknown version");
    read_refused("cay-network 2 rules\n", 20, "unknown version");
    read_refused("cay-network 1 what\n", 19, "unknown version");
    read_refused("cay-network 1 rules\na.test", 26, "cut off");
    read_refused("cay-network 1 rules\n\n", 21, "invalid host");
    read_refused("cay-network 1 rules\na\0b\n", 24, "not text");
    read_refused("cay-network 1 rules\na.test\tPYPI\n", 32, "invalid rule");
    buf_text(&text, "cay-network 1 rules\n");
    for (int i = 1; i < NETWORK_RULES_MAX; i++)
        buf_text(&text, "a.test\n");
    struct network_rules *most = NULL;
    ASSERT_OK(network_rules_read(text.data, text.len, &most, &err));
    ASSERT_INT(network_rules_count(most), NETWORK_RULES_MAX - 1);
    network_rules_free(most);
    buf_text(&text, "a.test\n");
    read_refused(text.data, text.len, "too many");
    while (text.len <= NETWORK_TEXT_MAX)
        buf_text(&text, "                                                             ");
    read_refused(text.data, text.len, "too large");
}

TEST(a_table_has_a_largest_size)
{
    struct network_rules *rules = NULL;
    const char *texts[NETWORK_RULES_MAX];
    char longest[NETWORK_RULE_MAX + 9];

    for (size_t i = 0; i < NETWORK_RULES_MAX; i++)
        texts[i] = "a.test";
    ASSERT_CODE(
        network_rules_new(NETWORK_RULES, texts, NETWORK_RULES_MAX, NULL, &rules, &err),
        CAY_E_INVALID);
    ASSERT_HAS(err.message, "too many");
    memset(longest, 'a', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    memcpy(longest, "b.test/", 7);
    refused(longest, "invalid rule", "at most");
    for (size_t i = 0; i < NETWORK_RULES_MAX; i++)
        texts[i] = longest;
    ASSERT_CODE(
        network_rules_new(NETWORK_RULES, texts, NETWORK_RULES_MAX, NULL, &rules, &err),
        CAY_E_INVALID);
    ASSERT_HAS(err.message, "too many");
}

/* --- Against a model --- */

/* Names are words over the labels a, b and c, the last one first; the model compares
 * label by label from the right. */
struct model_rule {
    bool denies, below;
    int labels[3], count;
    int low, high;
};

static int pick(unsigned *seed, int below)
{
    *seed = *seed * 1103515245 + 12345;
    return (int)(*seed >> 16) % below;
}

static const char *spell(const int *labels, int count)
{
    static char text[16];
    size_t len = 0;

    for (int i = count - 1; i >= 0; i--) {
        text[len++] = "abc"[labels[i]];
        text[len++] = '.';
    }
    text[len - 1] = '\0';
    return text;
}

static void write_rule(const struct model_rule *rule, char text[64])
{
    char ports[32] = ".";

    if (rule->low)
        snprintf(ports, sizeof ports, ":%d-%d", rule->low, rule->high);
    snprintf(text, 64, "%s%s%s%s", rule->denies ? "!" : "", rule->below ? "*." : "",
             spell(rule->labels, rule->count), ports);
}

static bool model_covers(const struct model_rule *rule, const int *labels, int count,
                         int port)
{
    bool default_port = rule->denies || port == 80 || port == 443;

    if (rule->below ? count <= rule->count : count != rule->count)
        return false;
    for (int i = 0; i < rule->count; i++)
        if (rule->labels[i] != labels[i])
            return false;
    return rule->low ? rule->low <= port && port <= rule->high : default_port;
}

static struct model_rule random_rule(unsigned *seed)
{
    struct model_rule rule = {.denies = pick(seed, 3) == 0,
                              .below = pick(seed, 2) == 0,
                              .count = 1 + pick(seed, 3)};

    for (int i = 0; i < 3; i++)
        rule.labels[i] = pick(seed, 3);
    if (pick(seed, 2)) {
        rule.low = 79 + pick(seed, 4);
        rule.high = rule.low + pick(seed, 3);
    }
    return rule;
}

TEST(verdicts_about_names_are_those_of_a_simple_model)
{
    static const int ports[] = {79, 80, 81, 82, 83, 443};
    unsigned seed = 20;

    for (int round = 0; round < 3000; round++) {
        struct model_rule model[5];
        char texts[5][64];
        const char *list[5];
        struct network_rules *made = NULL;
        int labels[4], count = 1 + pick(&seed, 4), port = ports[pick(&seed, 6)];
        enum network_mode mode = (enum network_mode)(1 + pick(&seed, 3));

        for (int i = 0; i < 5; i++) {
            model[i] = random_rule(&seed);
            write_rule(&model[i], texts[i]);
            list[i] = texts[i];
        }
        ASSERT_OK(network_rules_new(mode, list, 5, NULL, &made, &err));
        AUTO_NETWORK_RULES rules = made;
        bool allow = false, deny = false;
        for (int i = 0; i < 4; i++)
            labels[i] = pick(&seed, 3);
        for (int i = 0; i < 5; i++)
            if (model_covers(&model[i], labels, count, port))
                *(model[i].denies ? &deny : &allow) = true;
        bool expected = mode == NETWORK_RULES  ? allow && !deny
                        : mode == NETWORK_OPEN ? !deny
                                               : allow || !deny;
        ASSERT_INT(by_name(rules, spell(labels, count), (uint16_t)port).verdict,
                   expected);
    }
}

TEST(verdicts_about_addresses_are_those_of_arithmetic)
{
    unsigned seed = 21;

    for (int round = 0; round < 3000; round++) {
        const char *list[4];
        char texts[4][64];
        struct network_rules *made = NULL;
        uint32_t base = 0x08000000u + (uint32_t)pick(&seed, 64);
        bool allow = false, deny = false;

        for (int i = 0; i < 4; i++) {
            uint32_t range = 0x08000000u + (uint32_t)pick(&seed, 64);
            int bits = 24 + pick(&seed, 9), denies = pick(&seed, 3) == 0;
            snprintf(texts[i], sizeof texts[i], "%s%u.%u.%u.%u/%d:80", denies ? "!" : "",
                     range >> 24, range >> 16 & 255, range >> 8 & 255, range & 255, bits);
            list[i] = texts[i];
            if (range >> (32 - bits) == base >> (32 - bits))
                *(denies ? &deny : &allow) = true;
        }
        ASSERT_OK(network_rules_new(NETWORK_RULES, list, 4, NULL, &made, &err));
        AUTO_NETWORK_RULES rules = made;
        char text[32];
        snprintf(text, sizeof text, "%u.%u.%u.%u", base >> 24, base >> 16 & 255,
                 base >> 8 & 255, base & 255);
        ASSERT_INT(by_address(rules, text, 80).verdict, allow && !deny);
    }
}

/* --- Limits --- */

TEST(limits_are_written_and_read_with_the_rules)
{
    static const char text[] =
        "cay-network 1 open\nlimit\tconnections=7\nlimit\trate=1024\n"
        "a.test\n";
    static const char *const bad[] = {"limit\tbytes=0",
                                      "limit\tbytes=-1",
                                      "limit\tbytes=1x",
                                      "limit\tspeed=1",
                                      "limit\trate=1023",
                                      "limit\tconnections=257",
                                      "limit\tbytes=99999999999999999999999",
                                      "limit\t"};
    struct network_rules *rules = NULL;
    AUTO_BUF written = {.max = 4096};
    char line[128];

    ASSERT_OK(network_rules_read(text, strlen(text), &rules, &err));
    ASSERT_INT(network_rules_limits(rules)->at[NETWORK_CONNECTIONS], 7);
    ASSERT_INT(network_rules_limits(rules)->at[NETWORK_BYTES], 0);
    ASSERT(network_rules_write(rules, &written));
    ASSERT_STR(written.data, text);
    network_rules_free(rules);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(line, sizeof line, "cay-network 1 rules\n%s\n", bad[i]);
        ASSERT_CODE(network_rules_read(line, strlen(line), &rules, &err), CAY_E_INVALID);
    }
}

/* --- Approval --- */

TEST(the_rules_of_e2b_let_other_hosts_wait_and_open_no_private_address)
{
    static const char text[] = "cay-network 1 e2b\nask\t600000\na.test\n10.0.0.0/8\n"
                               "!b.test\n";
    struct network_rules *rules = NULL;
    struct network_answer answer;

    ASSERT_OK(network_rules_read(text, strlen(text), &rules, &err));
    network_check_name(rules, "c.test", 443, &answer);
    ASSERT(answer.verdict == NETWORK_DENY && answer.may_ask);
    network_check_name(rules, "b.test", 443, &answer);
    ASSERT(answer.verdict == NETWORK_DENY && !answer.may_ask);
    network_check_name(rules, "a.test", 443, &answer);
    ASSERT(answer.verdict == NETWORK_ALLOW);
    ASSERT(by_address(rules, "93.184.216.34", 443).may_ask);
    answer = by_address(rules, "10.0.0.5", 443);
    ASSERT(answer.verdict == NETWORK_DENY && !answer.may_ask);
    network_rules_free(rules);
}

TEST(hosts_that_no_rule_names_may_wait_for_approval)
{
    static const char text[] = "cay-network 1 rules\nask\t600000\na.test\n!b.test\n";
    static const char *const bad[] = {"ask\t0", "ask\t-1", "ask\t1x", "ask\t",
                                      "ask\t604800001"};
    struct network_rules *rules = NULL;
    AUTO_BUF written = {.max = 4096};
    struct network_answer answer;
    char line[128];

    ASSERT_OK(network_rules_read(text, strlen(text), &rules, &err));
    ASSERT(network_rules_write(rules, &written));
    ASSERT_STR(written.data, text);
    network_check_name(rules, "c.test", 443, &answer);
    ASSERT(answer.verdict == NETWORK_DENY && answer.may_ask);
    network_check_name(rules, "b.test", 443, &answer);
    ASSERT(answer.verdict == NETWORK_DENY && !answer.may_ask);
    network_check_name(rules, "a.test", 443, &answer);
    ASSERT(answer.verdict == NETWORK_ALLOW && !answer.may_ask);
    network_check_name(rules, "not a name", 443, &answer);
    ASSERT(answer.verdict == NETWORK_DENY && !answer.may_ask);
    ASSERT(by_address(rules, "93.184.216.34", 443).may_ask);
    ASSERT(!by_address(rules, "10.0.0.5", 443).may_ask);
    ASSERT(!by_address(rules, "127.0.0.1", 443).may_ask);
    network_rules_free(rules);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(line, sizeof line, "cay-network 1 rules\n%s\n", bad[i]);
        ASSERT_CODE(network_rules_read(line, strlen(line), &rules, &err), CAY_E_INVALID);
    }
}
