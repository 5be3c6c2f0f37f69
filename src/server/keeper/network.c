/* SPDX-License-Identifier: Apache-2.0 */

/* The network rules of a sandbox: those of --internet, and those of the client. */
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/error.h"
#include "server/keeper/keeper.h"

static const char op[] = "server.network";

void keeper_network_done(struct keeper_network *network)
{
    free(network->rules);
    free(network->words);
}

/* What clients have to deny before they can allow a host.  If other destinations wait for
 * approval, it is those that wait. */
static const char everything_else[] = "!0.0.0.0/0";

/* With --internet open the rules are E2B's: everything public, but for what the client
 * denies; if other destinations wait for approval, what the client allows.  With rules,
 * the client can only deny more, which the broker has checked. */
int keeper_network_init(const struct serve_options *options, bool has_internet,
                        uint64_t ask_ms, const char *const *rules, size_t count,
                        struct keeper_network *ret_network, struct cay_error *err)
{
    bool is_open = options->internet == CAY_NETWORK_OPEN;
    const char *given = is_open || !has_internet ? "" : options->internet_rules;
    struct keeper_network network = {.words = strdup(given)};
    struct cay_network_config *config = &network.config;

    /* A rule of one letter and its comma take two bytes. */
    network.rules = calloc(strlen(given) / 2 + count + 2, sizeof *network.rules);
    *ret_network = network;
    if (!network.words || !network.rules)
        return cay_fail_memory(err, op);
    *config = (struct cay_network_config){.size = sizeof *config,
                                          .network = options->internet,
                                          .allow_first = is_open,
                                          .approve_ms = ask_ms,
                                          .rules = network.rules,
                                          .limits = options->network_limit};
    char *at = network.words;
    for (char *word; (word = strsep(&at, ","));)
        if (*word)
            network.rules[config->rule_count++] = word;
    for (size_t i = 0; i < count; i++)
        if (!ask_ms || strcmp(rules[i], everything_else) != 0)
            network.rules[config->rule_count++] = rules[i];
    if (is_open && !has_internet)
        network.rules[config->rule_count++] = everything_else;
    *ret_network = network;
    return CAY_OK;
}

void keeper_headers_done(struct keeper_headers *headers)
{
    free(headers->text);
    free(headers->parts);
    free(headers->list);
}

/* The parts of header `i` are lines of a copy.  Returns its end. */
static char *take_parts(struct keeper_headers *headers, size_t i, char *text,
                        size_t *part_count)
{
    struct cay_header *header = &headers->list[i];

    header->secrets = headers->parts + *part_count;
    for (char *end; (end = strchr(text, '\n')); text = end + 1) {
        *end = '\0';
        headers->parts[(*part_count)++] = text;
        header->secret_count++;
    }
    return text + 1;
}

int keeper_headers_init(const char *const *strings, size_t count,
                        struct keeper_headers *ret_headers, struct cay_error *err)
{
    enum { STRINGS = 4 }; /* of one header */
    size_t bytes = 1, part_count = 0;

    for (size_t i = STRINGS - 1; i < count; i += STRINGS)
        bytes += strlen(strings[i]) + 1;
    struct keeper_headers headers = {
        .list = calloc(count / STRINGS + 1, sizeof *headers.list),
        .count = count / STRINGS,
        .parts = calloc(bytes, sizeof *headers.parts), /* a line has at least one byte */
        .text = calloc(1, bytes)};
    *ret_headers = headers;
    if (!headers.list || !headers.parts || !headers.text)
        return cay_fail_memory(err, op);
    char *at = headers.text;
    for (size_t i = 0; i < headers.count; i++) {
        const char *const *each = strings + i * STRINGS;
        headers.list[i].host = each[0];
        headers.list[i].name = each[1];
        headers.list[i].value = each[2];
        memcpy(at, each[3], strlen(each[3]) + 1);
        at = take_parts(&headers, i, at, &part_count);
    }
    return CAY_OK;
}

int keeper_op_network(struct keeper *keeper, struct keeper_request *request,
                      struct cay_error *err)
{
    size_t header_count = (size_t)request->head.numbers[NETWORK_HEADERS];
    size_t rules_end = request->head.count - header_count;
    struct keeper_network network;
    struct keeper_headers headers = {0};
    int64_t ask_ms = request->head.numbers[NETWORK_ASK_MS];
    int code = keeper_network_init(keeper->options, request->head.flags & CREATE_INTERNET,
                                   ask_ms > 0 ? (uint64_t)ask_ms : 0,
                                   request->strings + 1, rules_end - 1, &network, err);

    if (!code)
        code = keeper_headers_init(request->strings + rules_end, header_count, &headers,
                                   err);
    network.config.headers = headers.list;
    network.config.header_count = headers.count;
    if (!code)
        code = cay_sandbox_change_network(keeper->sandbox, &network.config, true, err);
    keeper_headers_done(&headers);
    keeper_network_done(&network);
    return code ? code : KEEPER_DONE;
}
