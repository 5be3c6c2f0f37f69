/* SPDX-License-Identifier: Apache-2.0 */
#include "relay/proxy.h"

#include "base/auto.h"
#include "harness.h"

static struct proxy_request request;

static enum proxy_kind read_text(const char *text)
{
    return proxy_read((const uint8_t *)text, strlen(text), &request);
}

TEST(a_target_has_a_host_and_a_port)
{
    static const struct {
        const char *text;
        enum proxy_kind kind;
        const char *name, *address;
        uint16_t port;
    } cases[] = {
        {"CONNECT A.test:443 HTTP/1.1\r\n\r\n", PROXY_CONNECT, "a.test", NULL, 443},
        {"CONNECT 192.0.2.1:22 HTTP/1.1\r\n\r\n", PROXY_CONNECT, "", "192.0.2.1", 22},
        {"CONNECT [2001:db8::1]:22 HTTP/1.0\r\n\r\n", PROXY_CONNECT, "", "2001:db8::1",
         22},
        {"GET http://a.test/x HTTP/1.1\r\nHost: b\r\n\r\n", PROXY_FORWARD, "a.test", NULL,
         80},
        {"GET HTTP://a.test:8080 HTTP/1.1\r\n\r\n", PROXY_FORWARD, "a.test", NULL, 8080},
    };
    char text[NETWORK_ADDRESS_TEXT];

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ASSERT_INT(read_text(cases[i].text), cases[i].kind);
        ASSERT_STR(request.name, cases[i].name);
        ASSERT_INT(request.port, cases[i].port);
        ASSERT_INT(request.head_len, strlen(cases[i].text));
        ASSERT_INT(request.address.len != 0, cases[i].address != NULL);
        if (cases[i].address) {
            network_address_format(&request.address, text);
            ASSERT_STR(text, cases[i].address);
        }
    }
}

TEST(a_request_that_is_not_for_a_proxy_is_bad)
{
    static const char *const cases[] = {
        "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n",
        "GET https://a.test/ HTTP/1.1\r\n\r\n",
        "GET http://u@a.test/ HTTP/1.1\r\n\r\n",
        "GET http://a.test?x HTTP/1.1\r\n\r\n",
        "GET http://a.test:99999/ HTTP/1.1\r\n\r\n",
        "GET http:///x HTTP/1.1\r\n\r\n",
        "GET http://a.test/ HTTP/2.0\r\n\r\n",
        "CONNECT a.test HTTP/1.1\r\n\r\n",
        "CONNECT a.test:0 HTTP/1.1\r\n\r\n",
        "CONNECT a.test:443/ HTTP/1.1\r\n\r\n",
        "CONNECT [a.test]:443 HTTP/1.1\r\n\r\n",
        "CONNECT [::1 HTTP/1.1\r\n\r\n",
        "CONNECT 127.1:443 HTTP/1.1\r\n\r\n",
        "CONNECT a.test:443 HTTP/1.1\nX: y\r\n\r\n",
        "CONNECT a.test:443 HTTP/1.1\r\n folded\r\n\r\n",
        "CONNECT a.test:443 HTTP/1.1\r\nX : y\r\n\r\n",
        "CONNECT a.test:443 HTTP/1.1\r\nnothing\r\n\r\n",
        "\r\n\r\n",
        "\x16\x03\x01 \r\n\r\n",
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        ASSERT_INT(read_text(cases[i]), PROXY_BAD);
    ASSERT_INT(read_text("CONNECT a.test:443 HTTP/1.1\r\n"), PROXY_MORE);
}

TEST(a_forwarded_request_has_one_host_and_ends_its_connection)
{
    static const char text[] =
        "POST http://A.test:81/x?y=http://b/ HTTP/1.1\r\nHost: other.test\r\nAccept: "
        "z\r\n"
        "Proxy-Connection: keep-alive\r\nproxy-authorization: Basic eA==\r\n"
        "Content-Length: 3\r\n\r\nabc";
    AUTO_BUF bytes = {.max = 4096};

    ASSERT_INT(read_text(text), PROXY_FORWARD);
    ASSERT(proxy_rewrite((const uint8_t *)text, strlen(text), &request, &bytes));
    ASSERT_STR(bytes.data,
               "POST /x?y=http://b/ HTTP/1.1\r\nHost: A.test:81\r\n"
               "Connection: close\r\nAccept: z\r\nContent-Length: 3\r\n\r\nabc");
    bytes.len = 0;
    ASSERT_INT(read_text("GET http://a.test HTTP/1.0\r\n\r\n"), PROXY_FORWARD);
    ASSERT(proxy_rewrite((const uint8_t *)"GET http://a.test HTTP/1.0\r\n\r\n", 30,
                         &request, &bytes));
    ASSERT_STR(bytes.data, "GET / HTTP/1.0\r\nHost: a.test\r\nConnection: close\r\n\r\n");
}
