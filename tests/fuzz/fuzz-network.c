/* SPDX-License-Identifier: Apache-2.0 */
/* The input is a serialised table, an empty line, and a host, a method and a path, one a
 * line.  Any bytes are a table or an error, a table is written as it is read, and every
 * question gets a whole answer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "network/rules.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(condition)                                                                 \
    do {                                                                                 \
        if (!(condition)) {                                                              \
            fprintf(stderr, "line %d: not true: %s\n", __LINE__, #condition);            \
            abort();                                                                     \
        }                                                                                \
    } while (0)

static void check_answer(const struct network_answer *answer)
{
    CHECK(answer->verdict <= NETWORK_INSPECT);
    CHECK(answer->rule[0] && memchr(answer->rule, '\0', sizeof answer->rule));
    CHECK(answer->why[0] && memchr(answer->why, '\0', sizeof answer->why));
    for (const char *at = answer->why; *at; at++)
        CHECK(*at >= ' ' && *at < 0x7F);
}

static void check_round(const struct network_rules *rules)
{
    AUTO_BUF text = {.max = 2 * NETWORK_TEXT_MAX}, again = {.max = 2 * NETWORK_TEXT_MAX};
    struct network_rules *copy = NULL;

    CHECK(network_rules_write(rules, &text));
    if (text.len > NETWORK_TEXT_MAX)
        return;
    CHECK(network_rules_read(text.data, text.len, &copy, NULL) == CAY_OK);
    CHECK(network_rules_write(copy, &again));
    CHECK(strcmp(text.data, again.data) == 0);
    network_rules_free(copy);
}

static void ask(const struct network_rules *rules, const char *host, const char *method,
                const char *path)
{
    static const char *const addresses[] = {"127.0.0.1", "10.0.0.1", "169.254.169.254",
                                            "::ffff:8.8.8.8", "0.0.0.0"};
    struct network_answer answer, resolved;
    struct network_address address;

    network_check_name(rules, host, 443, &answer);
    check_answer(&answer);
    network_check_request(rules, host, 443, method, path, &resolved);
    check_answer(&resolved);
    CHECK(resolved.verdict != NETWORK_INSPECT);
    CHECK(answer.verdict == NETWORK_INSPECT || answer.verdict == resolved.verdict);
    for (size_t i = 0; i < sizeof addresses / sizeof *addresses; i++) {
        CHECK(network_address_parse(addresses[i], &address));
        network_check_resolved(rules, host, &address, 443, NULL, &resolved);
        check_answer(&resolved);
        CHECK(answer.verdict != NETWORK_DENY || resolved.verdict == NETWORK_DENY);
        CHECK(i < 3 || resolved.verdict == NETWORK_DENY);
    }
    if (network_address_parse(host, &address)) {
        network_check_address(rules, &address, 443, NULL, &answer);
        check_answer(&answer);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO_FREE char *text = calloc(1, size + 4);
    struct network_rules *rules = NULL;
    struct cay_error err = {.code = 0};

    if (!text)
        return 0;
    memcpy(text, data, size);
    char *end = strstr(text, "\n\n");
    size_t len = end ? (size_t)(end + 1 - text) : size;
    int code = network_rules_read(text, len, &rules, &err);
    if (code) {
        CHECK(!rules && code == CAY_E_INVALID && err.message[0] && err.hint[0]);
        return 0;
    }
    check_round(rules);
    const char *lines[3] = {"", "", ""};
    for (size_t i = 0; i < 3 && end; i++) {
        lines[i] = end + (i == 0 ? 2 : 1);
        end = strchr(lines[i], '\n');
        if (end)
            *end = '\0';
    }
    ask(rules, lines[0], lines[1], lines[2]);
    network_rules_free(rules);
    return 0;
}
