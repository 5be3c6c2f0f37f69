/* SPDX-License-Identifier: Apache-2.0 */
/* cay explain: which rule of a policy decides. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/auto.h"
#include "base/error.h"
#include "cay/backend.h"
#include "cli/cli.h"
#include "cli/cmd-sandbox.h"
#include "cli/network.h"
#include "cli/options.h"
#include "cli/output.h"

static const char op[] = "cli.explain";

enum { NETWORK, COUNT };

static call_runner explain_network;

static const struct subcommand subcommands[] = {
    [NETWORK] = {"network", "HOST[:PORT][/PATH]", "Show which rule decides about a host",
                 1, 1, explain_network},
};

#define BIT(word)   (UINT32_C(1) << (word))
#define FIELD(name) offsetof(struct options, name)

static const struct option_rule option_rules[] = {
    {"config", 0, OPTION_TEXT, BIT(NETWORK), FIELD(config), "FILE",
     "configuration: a cay.yaml, or a policy"},
    {"sandbox", 0, OPTION_TEXT, BIT(NETWORK), FIELD(sandbox), "ID",
     "the rules that this sandbox has now"},
    {"network", 0, OPTION_CHOICE, BIT(NETWORK), FIELD(network), "none|host|rules|open",
     "as for cay run"},
    {"allow", 0, OPTION_LIST, BIT(NETWORK), FIELD(allow), "RULE", "as for cay run"},
    {"deny", 0, OPTION_LIST, BIT(NETWORK), FIELD(deny), "RULE", "as for cay run"},
    {"method", 0, OPTION_TEXT, BIT(NETWORK), FIELD(method), "METHOD",
     "explain an HTTP request with this method"},
    {"address", 0, OPTION_TEXT, BIT(NETWORK), FIELD(address), "ADDRESS",
     "explain a connection to the name at this address"},
    {"output", 'o', OPTION_CHOICE, BIT(NETWORK), FIELD(as_json), "text|json",
     "output format: text or json"},
    OPTIONS_HELP("show this help"),
};

const struct grammar explain_grammar = {
    .program = "cay explain",
    .usage = "COMMAND [ARGUMENT]...\nShow which rule of a policy decides.",
    .manual = "Manual: cay-explain(1), cay-policy(5).",
    .subcommands = subcommands,
    .subcommand_count = COUNT,
    .options = option_rules,
    .option_count = sizeof option_rules / sizeof *option_rules,
};

static int fail_place(const char *place, struct cay_error *err)
{
    return cay_fail(
        err, CAY_E_INVALID, 0, op, place, "invalid host and port",
        "write HOST, HOST:PORT or HOST:PORT/PATH with a port from 1 to 65535; "
        "an IPv6 address in brackets: [2001:db8::1]:443");
}

/* Cuts `text`, a copy of `place`, into the parts of the query. */
static int parse_place(const char *place, char *text, struct cay_network_query *query,
                       struct cay_error *err)
{
    char *port = NULL, *slash = strchr(text, '/');
    unsigned number = 0;

    query->host = text;
    if (slash) {
        query->path = place + (slash - text);
        *slash = '\0';
    }
    if (*text == '[') {
        char *end = strchr(text, ']');
        if (!end || (end[1] && end[1] != ':'))
            return fail_place(place, err);
        port = end[1] ? end + 2 : NULL;
        *end = '\0';
        query->host = text + 1;
    } else if (strchr(text, ':') && strchr(text, ':') == strrchr(text, ':')) {
        port = strchr(text, ':');
        *port++ = '\0';
    }
    for (const char *at = port; at && *at; at++) {
        if (*at < '0' || *at > '9' || number > UINT16_MAX)
            return fail_place(place, err);
        number = number * 10 + (unsigned)(*at - '0');
    }
    if (!*query->host || number > UINT16_MAX || (port && !number))
        return fail_place(place, err);
    query->port = (uint16_t)number;
    return CAY_OK;
}

static void auto_options(struct cay_sandbox_options **options)
{
    cay_sandbox_options_free(*options);
}

/* What a sandbox with these options would get. */
static int explain(const struct call *call, const struct cay_network_query *query,
                   struct cay_network_answer *ret_answer, struct cay_error *err)
{
    struct cay_sandbox_options *configured __attribute__((cleanup(auto_options))) = NULL;
    const struct cay_network_config no_rules = {.size = sizeof no_rules};
    AUTO(cay_config) config = NULL;
    AUTO(cay_policy) policy = NULL;
    const cay_policy *base = NULL;
    int network = call->options.network;

    if (call->options.config) {
        TRY(cay_config_load(call->options.config, &config, err));
        TRY(cay_sandbox_options_new(config, &configured, err));
        base = configured->policy;
    }
    TRY(network_plan(&call->options, base, &policy, err));
    if (network < 0 && configured && !policy)
        network = (int)configured->network;
    if (network == CAY_NETWORK_HOST) {
        *ret_answer = (struct cay_network_answer){
            CAY_REACH_ALLOW, "default",
            "The sandbox uses the network of this machine, without rules."};
        return CAY_OK;
    }
    if (!policy)
        TRY(cay_policy_add_network(base, &no_rules, &policy, err));
    return cay_policy_explain_network(policy, query, ret_answer, err);
}

/* What a running sandbox has. */
static int explain_sandbox(const struct options *options,
                           const struct cay_network_query *query,
                           struct cay_network_answer *ret_answer, struct cay_error *err)
{
    AUTO(cay_sandbox) sandbox = NULL;
    AUTO(cay_policy) policy = NULL;

    if (options->config || options->network >= 0 || options->allow.count ||
        options->deny.count)
        return cay_fail(err, CAY_E_INVALID, 0, op, "--sandbox",
                        "--sandbox does not go together with other rules",
                        "leave out --config, --network, --allow and --deny");
    TRY(find_sandbox(options->sandbox, &sandbox, err));
    TRY(cay_sandbox_get_network(sandbox, &policy, err));
    return cay_policy_explain_network(policy, query, ret_answer, err);
}

static int explain_network(struct call *call, struct cay_error *err)
{
    static const char *const verdicts[] = {[CAY_REACH_DENY] = "deny",
                                           [CAY_REACH_ALLOW] = "allow",
                                           [CAY_REACH_REQUESTS] = "requests"};
    const char *place = call->line.arguments[0];
    struct cay_network_query query = {.size = sizeof query,
                                      .method = call->options.method,
                                      .address = call->options.address};
    struct cay_network_answer answer;
    AUTO_FREE char *text = strdup(place);

    if (!text)
        return cay_fail_memory(err, op);
    TRY(parse_place(place, text, &query, err));
    TRY(call->options.sandbox ? explain_sandbox(&call->options, &query, &answer, err)
                              : explain(call, &query, &answer, err));
    if (call->options.as_json) {
        struct json *json = output_json(&call->output);
        json_set_text(json, "host", query.host);
        if (query.port)
            json_set_uint(json, "port", query.port);
        json_set_text(json, "verdict", verdicts[answer.verdict]);
        json_set_text(json, "rule", answer.rule);
        json_set_text(json, "why", answer.why);
    } else {
        fprintf(call->output.file, "%s: %s\n", verdicts[answer.verdict], answer.why);
    }
    return 0;
}
