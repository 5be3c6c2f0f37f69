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

/* With --internet open the rules are E2B's: everything public, but for what the client
 * denies.  With rules, the client can only deny more, which the broker has checked. */
int keeper_network_init(const struct serve_options *options, bool has_internet,
                        const char *const *rules, size_t count,
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
                                          .rules = network.rules,
                                          .limits = options->network_limit};
    char *at = network.words;
    for (char *word; (word = strsep(&at, ","));)
        if (*word)
            network.rules[config->rule_count++] = word;
    for (size_t i = 0; i < count; i++)
        network.rules[config->rule_count++] = rules[i];
    if (is_open && !has_internet)
        network.rules[config->rule_count++] = "!0.0.0.0/0";
    *ret_network = network;
    return CAY_OK;
}

int keeper_op_network(struct keeper *keeper, struct keeper_request *request,
                      struct cay_error *err)
{
    struct keeper_network network;
    int code =
        keeper_network_init(keeper->options, request->head.flags & CREATE_INTERNET,
                            request->strings + 1, request->head.count - 1, &network, err);

    if (!code)
        code = cay_sandbox_change_network(keeper->sandbox, &network.config, true, err);
    keeper_network_done(&network);
    return code ? code : KEEPER_DONE;
}
