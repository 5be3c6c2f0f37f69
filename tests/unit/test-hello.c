/* SPDX-License-Identifier: Apache-2.0 */
#include "relay/hello.h"

#include <stdio.h>

#include "harness.h"

/* --- HTTP --- */

static enum hello_kind read_text(const char *text, char host[NETWORK_NAME_MAX])
{
    struct hello hello;

    hello_read((const uint8_t *)text, strlen(text), &hello);
    memcpy(host, hello.host, sizeof hello.host);
    return hello.kind;
}

static char host[NETWORK_NAME_MAX];

TEST(the_host_of_a_request_is_its_header)
{
    ASSERT_INT(
        read_text("GET / HTTP/1.1\r\nAccept: x\r\nHost: Pypi.ORG:80\r\n\r\n", host),
        HELLO_HTTP);
    ASSERT_STR(host, "pypi.org");
    ASSERT_INT(read_text("GET / HTTP/1.0\r\n\r\n", host), HELLO_HTTP);
    ASSERT_STR(host, "");
}

TEST(a_request_waits_for_its_whole_head)
{
    static const char head[] = "POST /x HTTP/1.1\r\nhost:a.example\r\nX: y\r\n\r\n";
    char text[sizeof head];

    for (size_t len = 0; len < sizeof head - 1; len++) {
        memcpy(text, head, len);
        text[len] = '\0';
        ASSERT_INT(read_text(text, host), HELLO_MORE);
    }
    ASSERT_INT(read_text(head, host), HELLO_HTTP);
    ASSERT_STR(host, "a.example");
}

TEST(a_request_that_names_two_hosts_is_bad)
{
    static const char *const bad[] = {
        "GET / HTTP/1.1\r\nHost: a.example\r\nHost: b.example\r\n\r\n",
        "GET http://evil.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "CONNECT evil.example:443 HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "GET / HTTP/1.1\r\nHost : evil.example\r\n\r\n",
        "GET / HTTP/1.1\r\nX: y\r\n Host: evil.example\r\n\r\n",
        "GET / HTTP/1.1\nHost: evil.example\n\n",
        "GET / HTTP/1.1\r\nHost: a.example\rHost: evil.example\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a@evil.example\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: 192.0.2.1\r\n\r\n",
        "GET / HTTP/2.0 \r\nHost: a.example\r\n\r\n",
        "GET ftp://a.example/ HTTP/1.1\r\n\r\n",
        "GET  HTTP/1.1\r\n\r\n",
    };

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        printf("# %zu\n", i);
        ASSERT_INT(read_text(bad[i], host), HELLO_BAD);
    }
    ASSERT_INT(
        read_text("GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n", host),
        HELLO_HTTP);
    ASSERT_STR(host, "a.example");
}

TEST(an_endless_head_is_bad)
{
    struct hello hello;
    char text[HELLO_MAX];

    memset(text, 'a', sizeof text);
    memcpy(text, "GET /", 5);
    hello_read((const uint8_t *)text, sizeof text, &hello);
    ASSERT_INT(hello.kind, HELLO_BAD);
}

TEST(other_protocols_are_told_by_their_first_bytes)
{
    static const char *const others[] = {
        "SSH-2.0-x y\r\n",
        "EHLO http\r\n",
        "GETX\r\n",
        "PING\r\n",
        "ruok",
        "\r\nhelp\r\n",
        "0030git-upload-pack /HTTP/1.1\x01",
        "PRI * HTTP/2.0\r\n\r\n",
        "\x80",
        "\x16\x10",
    };

    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        ASSERT_INT(read_text(others[i], host), HELLO_OTHER);
    ASSERT_INT(read_text("GE", host), HELLO_MORE);
    ASSERT_INT(read_text("PURGE / HTTP/1.", host), HELLO_MORE);
    ASSERT_INT(read_text("\r\n", host), HELLO_MORE);
    ASSERT_INT(read_text("", host), HELLO_MORE);
}

TEST(a_request_with_an_unknown_method_names_its_host)
{
    ASSERT_INT(read_text("PURGE / HTTP/1.1\r\nHost: a.example\r\n\r\n", host),
               HELLO_HTTP);
    ASSERT_STR(host, "a.example");
    ASSERT_INT(read_text("M-X / http/1.1\r\nHost: a.example\r\n\r\n", host), HELLO_BAD);
    ASSERT_INT(read_text("\r\nGET / HTTP/1.1\r\nHost: a.example\r\n\r\n", host),
               HELLO_BAD);
    ASSERT_INT(read_text("\nPURGE / HTTP/1.1\r\nHost: a.example\r\n\r\n", host),
               HELLO_BAD);
}

/* --- TLS --- */

/* A ClientHello; the length. */
static size_t make_hello(const char *name, uint8_t *out)
{
    uint8_t body[512], *at = body;
    size_t len = name ? strlen(name) : 0;

    memset(at, 3, 34); /* version and random */
    at += 34;
    *at++ = 0;                       /* session */
    memcpy(at, "\0\2\x13\1\1\0", 6); /* ciphers, compression */
    at += 6;
    size_t extensions = 4 + (name ? 9 + len : 0);
    *at++ = (uint8_t)(extensions >> 8);
    *at++ = (uint8_t)extensions;
    memcpy(at, "\0\x2b\0\0", 4);
    at += 4;
    if (name) {
        memcpy(at, "\0\0\0", 3);
        at[3] = (uint8_t)(len + 5);
        at[4] = 0;
        at[5] = (uint8_t)(len + 3);
        at[6] = 0;
        at[7] = 0;
        at[8] = (uint8_t)len;
        memcpy(at + 9, name, len);
        at += 9 + len;
    }
    size_t size = (size_t)(at - body);
    out[0] = 1;
    out[1] = 0;
    out[2] = (uint8_t)(size >> 8);
    out[3] = (uint8_t)size;
    memcpy(out + 4, body, size);
    return size + 4;
}

/* In records of at most `piece` bytes. */
static size_t make_records(const char *name, size_t piece, uint8_t *out)
{
    uint8_t message[600];
    size_t len = make_hello(name, message), at = 0;

    for (size_t done = 0; done < len; done += piece) {
        size_t size = len - done < piece ? len - done : piece;
        memcpy(out + at, "\x16\3\1", 3);
        out[at + 3] = (uint8_t)(size >> 8);
        out[at + 4] = (uint8_t)size;
        memcpy(out + at + 5, message + done, size);
        at += 5 + size;
    }
    return at;
}

TEST(the_host_of_a_client_hello_is_its_server_name)
{
    static const size_t pieces[] = {1, 2, 3, 7, 50, 600};
    uint8_t bytes[8000];
    struct hello hello;

    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        size_t len = make_records("Pypi.org", pieces[i], bytes);
        for (size_t cut = 0; cut < len; cut++) {
            hello_read(bytes, cut, &hello);
            ASSERT_INT(hello.kind, HELLO_MORE);
        }
        hello_read(bytes, len, &hello);
        ASSERT_INT(hello.kind, HELLO_TLS);
        ASSERT_STR(hello.host, "pypi.org");
    }
    size_t len = make_records(NULL, 600, bytes);
    hello_read(bytes, len, &hello);
    ASSERT_INT(hello.kind, HELLO_TLS);
    ASSERT_STR(hello.host, "");
}

TEST(a_client_hello_with_a_wrong_length_is_bad)
{
    uint8_t bytes[8000];
    struct hello hello;
    size_t len = make_records("pypi.org", 600, bytes), bad = 0;

    /* A byte of a length is too large, or too small. */
    for (size_t at = 5 + 4 + 34; at < len - 8; at++)
        for (int by = -1; by <= 1; by += 2) {
            bytes[at] = (uint8_t)(bytes[at] + by);
            hello_read(bytes, len, &hello);
            bad += hello.kind == HELLO_BAD;
            ASSERT(hello.kind != HELLO_OTHER && hello.kind != HELLO_MORE);
            ASSERT(hello.kind == HELLO_BAD || !*hello.host ||
                   strcmp(hello.host, "pypi.org") == 0);
            bytes[at] = (uint8_t)(bytes[at] - by);
        }
    ASSERT(bad > 10);
    len = make_records("a@b", 600, bytes);
    hello_read(bytes, len, &hello);
    ASSERT_INT(hello.kind, HELLO_BAD);
}

TEST(a_client_hello_behind_another_record_is_bad)
{
    static const uint8_t alert[] = {21, 3, 1, 0, 2, 1, 0};
    uint8_t bytes[8000];
    struct hello hello;

    memcpy(bytes, alert, sizeof alert);
    size_t len = sizeof alert + make_records("pypi.org", 600, bytes + sizeof alert);
    hello_read(bytes, len, &hello);
    ASSERT_INT(hello.kind, HELLO_BAD);
    /* Some servers do not look at the version of a record. */
    len = make_records("pypi.org", 600, bytes);
    bytes[1] = 5;
    hello_read(bytes, len, &hello);
    ASSERT_INT(hello.kind, HELLO_BAD);
}
