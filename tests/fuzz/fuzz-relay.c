/* SPDX-License-Identifier: Apache-2.0 */
/* The input is what a program in a sandbox sends: a message of DNS, and the first bytes
 * of a connection.  A hello that is complete stays what it is with more bytes after it,
 * and a reply to a question is read as a reply to it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "relay/dns.h"
#include "relay/hello.h"
#include "relay/proxy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(condition)                                                                 \
    do {                                                                                 \
        if (!(condition)) {                                                              \
            fprintf(stderr, "line %d: not true: %s\n", __LINE__, #condition);            \
            abort();                                                                     \
        }                                                                                \
    } while (0)

/* A forwarded request stays one for the same host if a server reads it, and has no second
 * Host. */
static void check_proxy(const uint8_t *data, size_t size)
{
    struct proxy_request request;
    struct buf bytes = {.max = (size_t)4 << 20};
    struct hello hello;

    enum proxy_kind kind = proxy_read(data, size, &request);
    if (kind == PROXY_CONNECT || kind == PROXY_FORWARD)
        CHECK(request.port && request.head_len <= size &&
              !request.name[0] == (request.address.len != 0));
    if (kind != PROXY_FORWARD)
        return;
    CHECK(proxy_rewrite(data, size, &request, &bytes));
    hello_read((const uint8_t *)bytes.data, bytes.len, &hello);
    if (hello.kind == HELLO_HTTP)
        CHECK(strcmp(hello.host, request.name) == 0);
    buf_done(&bytes);
}

static void check_hello(const uint8_t *data, size_t size)
{
    struct hello whole, part;
    char clean[NETWORK_NAME_MAX];

    hello_read(data, size, &whole);
    CHECK(memchr(whole.host, '\0', sizeof whole.host));
    if (whole.kind == HELLO_TLS || whole.kind == HELLO_HTTP)
        CHECK(!whole.host[0] ||
              !network_name_clean(whole.host, strlen(whole.host), clean));
    hello_read(data, size / 2, &part);
    if (part.kind == HELLO_TLS || part.kind == HELLO_HTTP)
        CHECK(whole.kind == part.kind && strcmp(whole.host, part.host) == 0);
}

static void check_dns(const uint8_t *data, size_t size)
{
    static const struct dns_answer answers[] = {
        {.address = 0xC6120001},
        {.name = "a.example"},
        {.code = DNS_NO_NAME, .is_forbidden = true},
    };
    uint8_t reply[DNS_MESSAGE_MAX];
    struct dns_question question;
    struct dns_addresses addresses;

    (void)dns_read_reply(data, size, data, size, &addresses);
    if (size > DNS_MESSAGE_MAX || !dns_read_question(data, size, &question))
        return;
    CHECK(strlen(question.name) < NETWORK_NAME_MAX);
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        size_t len = dns_write_reply(data, &question, &answers[i], reply);
        CHECK(len <= sizeof reply);
        CHECK(dns_read_reply(reply, len, data, size, &addresses));
        CHECK(addresses.code == answers[i].code);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check_hello(data, size);
    check_proxy(data, size);
    check_dns(data, size);
    return 0;
}
