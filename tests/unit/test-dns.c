/* SPDX-License-Identifier: Apache-2.0 */
#include "relay/dns.h"

#include <stdio.h>

#include "harness.h"
#include "relay/hosts.h"

static uint8_t message[DNS_MESSAGE_MAX], reply[DNS_MESSAGE_MAX];
static struct dns_question question;

static size_t ask(const char *name, uint16_t type)
{
    size_t len = dns_write_question(0x1234, name, type, true, message);

    ASSERT(dns_read_question(message, len, &question));
    return len;
}

TEST(a_question_is_read_as_it_was_written)
{
    ask("a.Example.com", DNS_TYPE_AAAA);
    ASSERT_STR(question.name, "a.Example.com");
    ASSERT_INT(question.type, DNS_TYPE_AAAA);
    ASSERT(question.is_internet && question.has_extensions);
}

TEST(an_address_in_a_reply_is_read_back)
{
    size_t len = ask("pypi.org", DNS_TYPE_A);
    const struct dns_answer answer = {.address = 0xC6120001};
    struct dns_addresses addresses;

    size_t reply_len = dns_write_reply(message, &question, &answer, reply);
    ASSERT(dns_read_reply(reply, reply_len, message, len, &addresses));
    ASSERT_INT(addresses.code, DNS_OK);
    ASSERT_INT(addresses.count, 1);
    ASSERT_MEM(addresses.at[0].bytes, 4, "\xC6\x12\x00\x01", 4);
    ASSERT_INT(addresses.ttl_s, 60);
}

TEST(a_refusal_has_no_records_and_an_extended_error)
{
    size_t len = ask("evil.example", DNS_TYPE_A);
    const struct dns_answer answer = {.code = DNS_NO_NAME, .is_forbidden = true};
    struct dns_addresses addresses;

    size_t reply_len = dns_write_reply(message, &question, &answer, reply);
    ASSERT(dns_read_reply(reply, reply_len, message, len, &addresses));
    ASSERT_INT(addresses.code, DNS_NO_NAME);
    ASSERT_INT(addresses.count, 0);
    ASSERT_MEM(reply + reply_len - 6, 6, "\0\x0F\0\x02\0\x12", 6);
}

TEST(a_reply_to_another_question_is_dropped)
{
    const struct dns_answer answer = {.address = 1};
    struct dns_addresses addresses;
    uint8_t other[DNS_MESSAGE_MAX];
    size_t len = ask("pypi.org", DNS_TYPE_A);
    size_t reply_len = dns_write_reply(message, &question, &answer, reply);

    ASSERT(dns_read_reply(reply, reply_len, message, len, &addresses));
    len = dns_write_question(0x1234, "pypi.orb", DNS_TYPE_A, true, other);
    ASSERT(!dns_read_reply(reply, reply_len, other, len, &addresses));
    len = dns_write_question(0x1235, "pypi.org", DNS_TYPE_A, true, other);
    ASSERT(!dns_read_reply(reply, reply_len, other, len, &addresses));
    len = dns_write_question(0x1234, "pypi.org", DNS_TYPE_AAAA, true, other);
    ASSERT(!dns_read_reply(reply, reply_len, other, len, &addresses));
    ASSERT(!dns_read_reply(message, len, message, len, &addresses)); /* no reply */
}

TEST(a_cut_message_is_read_or_refused_at_every_length)
{
    const struct dns_answer answer = {.name = "some.name.example"};
    struct dns_addresses addresses;
    size_t len = ask("1.0.18.198.in-addr.arpa", DNS_TYPE_PTR);
    size_t reply_len = dns_write_reply(message, &question, &answer, reply);

    for (size_t cut = 0; cut < question.end; cut++) {
        struct dns_question other;
        ASSERT(!dns_read_question(message, cut, &other));
    }
    for (size_t cut = 0; cut < reply_len; cut++)
        (void)dns_read_reply(reply, cut, message, len, &addresses);
    ASSERT(memmem(reply, reply_len, "\4some\4name\7example", 18));
}

TEST(a_name_that_is_no_text_is_a_question_mark)
{
    size_t len = ask("abc.example", DNS_TYPE_A);

    message[13] = '.';
    ASSERT(dns_read_question(message, len, &question));
    ASSERT_STR(question.name, "?");
    message[13] = 0;
    ASSERT(dns_read_question(message, len, &question));
    ASSERT_STR(question.name, "?");
}

TEST(a_compressed_or_endless_name_is_no_question)
{
    size_t len = ask("abc.example", DNS_TYPE_A);

    message[12] = 0xC0;
    ASSERT(!dns_read_question(message, len, &question));
    memset(message + 12, 63, sizeof message - 12);
    ASSERT(!dns_read_question(message, sizeof message, &question));
}

TEST(a_reverse_name_has_an_address)
{
    ASSERT_INT(dns_reverse_address("1.0.18.198.in-addr.arpa"), 0xC6120001);
    ASSERT_INT(dns_reverse_address("1.0.18.198.IN-ADDR.ARPA"), 0xC6120001);
    ASSERT_INT(dns_reverse_address("256.0.18.198.in-addr.arpa"), 0);
    ASSERT_INT(dns_reverse_address("0.18.198.in-addr.arpa"), 0);
    ASSERT_INT(dns_reverse_address("1.0.18.198.in-addr.arpa.x"), 0);
    ASSERT_INT(dns_reverse_address(""), 0);
}

static void free_names(struct hosts *hosts)
{
    for (size_t i = 0; i < hosts->count; i++) {
        free(hosts->at[i]->name);
        free(hosts->at[i]);
    }
    free(hosts->at);
    free(hosts->slots);
}

TEST(each_name_has_an_address_of_its_own_up_to_a_limit)
{
    struct hosts hosts = {NULL};
    char name[32];

    for (unsigned i = 0; i < HOSTS_MAX; i++) {
        snprintf(name, sizeof name, "n%u.example", i);
        ASSERT_INT(hosts_address(&hosts, name), HOSTS_FIRST + i);
    }
    ASSERT_INT(hosts_address(&hosts, "one-more.example"), 0);
    ASSERT_INT(hosts_address(&hosts, "n77.example"), HOSTS_FIRST + 77);
    ASSERT_STR(hosts_find(&hosts, HOSTS_FIRST + 4095)->name, "n4095.example");
    ASSERT(!hosts_find(&hosts, HOSTS_FIRST + 4096));
    ASSERT(!hosts_find(&hosts, HOSTS_FIRST - 1));
    free_names(&hosts);
}
