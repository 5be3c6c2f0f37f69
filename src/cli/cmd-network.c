/* SPDX-License-Identifier: Apache-2.0 */
/* cay network and cay events: what a sandbox may reach, and what it tried to reach. */
#include <inttypes.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <time.h>

#include "base/auto.h"
#include "base/error.h"
#include "cli/cmd-sandbox.h"
#include "cli/network.h"
#include "cli/output.h"
#include "json/json.h"

static const char op[] = "cli.network";

enum { FOLLOW_MS = 100 };

/* --- network --- */

static int change(cay_sandbox *sandbox, const struct options *options,
                  struct cay_error *err)
{
    struct cay_network_config config = {.size = sizeof config};
    char **rules = network_rules(options, &config.rule_count);

    if (!rules)
        return cay_fail_memory(err, op);
    if (options->network >= 0) /* the choices are rules and open */
        config.network = (enum cay_network)(CAY_NETWORK_RULES + options->network);
    config.rules = (const char *const *)rules;
    config.limits = options->network_limit;
    int code = cay_sandbox_change_network(sandbox, &config, options->reset, err);
    network_free_rules(rules);
    return code;
}

static void put_limit(struct json *json, const char *name, uint64_t limit)
{
    if (limit)
        json_set_uint(json, name, limit);
}

static void put_limits(struct json *json, const cay_policy *policy)
{
    struct cay_network_limits limits;

    cay_policy_network_limits(policy, &limits);
    json_put_key(json, "limits");
    json_put_object(json);
    put_limit(json, "connections", limits.connections);
    put_limit(json, "bytes", limits.bytes);
    put_limit(json, "rate", limits.rate);
    json_put_end(json);
}

static void print_limits(FILE *file, const cay_policy *policy)
{
    struct cay_network_limits limits;
    char text[QUANTITY_ROOM];

    cay_policy_network_limits(policy, &limits);
    if (limits.connections)
        fprintf(file, "limit: %" PRIu64 " connections at a time\n", limits.connections);
    if (limits.bytes)
        fprintf(file, "limit: %s in all\n", quantity_bytes(limits.bytes, text));
    if (limits.rate)
        fprintf(file, "limit: %s a second\n", quantity_bytes(limits.rate, text));
    if (cay_policy_network_approval(policy))
        fprintf(file, "other hosts: wait %" PRIu64 " s for approval\n",
                (cay_policy_network_approval(policy) + 999) / 1000);
}

static void put_network(struct json *json, const char *id, const cay_policy *policy,
                        const struct cay_network_counts *counts)
{
    json_set_text(json, "id", id);
    json_set_text(json, "network", network_slug(cay_policy_network(policy)));
    json_set_bool(json, "allow_first", cay_policy_allows_first(policy));
    network_put_rules(json, policy);
    put_limits(json, policy);
    put_limit(json, "approve_ms", cay_policy_network_approval(policy));
    network_put_counts(json, "counts", counts);
}

static void print_network(FILE *file, const cay_policy *policy,
                          const struct cay_network_counts *counts)
{
    struct cay_network_rule rule;
    char up[QUANTITY_ROOM], down[QUANTITY_ROOM];

    fprintf(file, "network: %s%s\n", network_slug(cay_policy_network(policy)),
            cay_policy_allows_first(policy) ? ", rules that allow come first" : "");
    for (size_t i = 0; cay_policy_network_rule(policy, i, &rule); i++)
        fprintf(file, "  %s%s%s%s\n", rule.text, rule.group[0] ? " (" : "", rule.group,
                rule.group[0] ? ")" : "");
    if (cay_policy_network(policy) == CAY_NETWORK_NONE)
        return;
    print_limits(file, policy);
    fprintf(file,
            "connections: %" PRIu64 " allowed, %" PRIu32 " open, %s up, %s down\n"
            "refused: %" PRIu64 "\nevents: %" PRIu64 ", %" PRIu64 " lost\n",
            counts->allowed, counts->connections, quantity_bytes(counts->up_bytes, up),
            quantity_bytes(counts->down_bytes, down), counts->refused, counts->events,
            counts->events_lost);
}

int cmd_network(struct call *call, struct cay_error *err)
{
    const struct options *options = &call->options;
    struct cay_network_counts counts = {0};
    AUTO(cay_sandbox) sandbox = NULL;
    AUTO(cay_policy) policy = NULL;

    TRY(find_sandbox(call->line.arguments[0], &sandbox, err));
    if (options->allow.count || options->deny.count || options->reset ||
        options->network >= 0 || options->network_limit)
        TRY(change(sandbox, options, err));
    TRY(cay_sandbox_get_network(sandbox, &policy, err));
    if (cay_policy_network(policy) != CAY_NETWORK_NONE)
        TRY(cay_sandbox_count_network(sandbox, &counts, err));
    if (options->as_json)
        put_network(output_json(&call->output), cay_sandbox_id(sandbox), policy, &counts);
    else
        print_network(call->output.file, policy, &counts);
    return CAY_OK;
}

/* --- events --- */

static const char *kind_of(const struct cay_network_event *event)
{
    static const char *const kinds[] = {[CAY_EVENT_LOOKUP] = "lookup",
                                        [CAY_EVENT_CONNECT] = "connect",
                                        [CAY_EVENT_CLOSE] = "close",
                                        [CAY_EVENT_PACKET] = "packet",
                                        [CAY_EVENT_REQUEST] = "request"};

    return kinds[event->kind];
}

static const char *verdict_of(const struct cay_network_event *event)
{
    return event->verdict == CAY_REACH_DENY ? "deny" : "allow";
}

static const char *protocol_of(const struct cay_network_event *event)
{
    switch (event->protocol) {
    case IPPROTO_TCP:
        return "tcp";
    case IPPROTO_UDP:
        return "udp";
    case IPPROTO_ICMP:
        return "icmp";
    default:
        return "other";
    }
}

/* "2026-11-18T06:55:00.123Z" */
static void format_time(int64_t ms, char *text, size_t room)
{
    char seconds[32];
    struct tm parts;
    time_t when = (time_t)(ms / 1000);

    if (!gmtime_r(&when, &parts) ||
        !strftime(seconds, sizeof seconds, "%Y-%m-%dT%H:%M:%S", &parts))
        seconds[0] = '\0';
    snprintf(text, room, "%s.%03dZ", seconds, (int)(ms % 1000));
}

static void put_event(FILE *file, const struct cay_network_event *event)
{
    char when[64];
    struct json json;

    format_time(event->time_ms, when, sizeof when);
    json_to_file(&json, file);
    json_put_object(&json);
    json_set_uint(&json, "number", event->number);
    json_set_text(&json, "time", when);
    json_set_text(&json, "event", kind_of(event));
    json_set_text(&json, "verdict", verdict_of(event));
    json_set_text(&json, "name", event->name[0] ? event->name : NULL);
    json_set_text(&json, "address", event->address[0] ? event->address : NULL);
    json_set_uint(&json, "port", event->port);
    json_set_text(&json, "protocol", protocol_of(event));
    json_set_text(&json, "rule", event->rule);
    json_set_uint(&json, "up_bytes", event->up_bytes);
    json_set_uint(&json, "down_bytes", event->down_bytes);
    json_set_uint(&json, "duration_ms", event->duration_ms);
    json_set_uint(&json, "lost", event->lost);
    if (event->pid) {
        json_set_uint(&json, "pid", event->pid);
        json_set_uint(&json, "uid", event->uid);
    } else {
        json_set_text(&json, "pid", NULL);
        json_set_text(&json, "uid", NULL);
    }
    json_set_text(&json, "program", event->pid ? event->program : NULL);
    json_put_end(&json);
    fputc('\n', file);
}

static void print_event(FILE *file, const struct cay_network_event *event)
{
    char when[64], up[QUANTITY_ROOM], down[QUANTITY_ROOM];
    bool has_name = event->name[0], has_both = has_name && event->address[0];

    format_time(event->time_ms, when, sizeof when);
    if (event->lost)
        fprintf(file, "%s  %" PRIu64 " events lost: there were too many\n", when,
                event->lost);
    fprintf(file, "%s  %-7s  %-5s  ", when, kind_of(event), verdict_of(event));
    show_name(file, has_name ? event->name : event->address);
    if (event->kind != CAY_EVENT_LOOKUP)
        fprintf(file, " %s", protocol_of(event));
    if (event->kind != CAY_EVENT_LOOKUP && event->port)
        fprintf(file, " %u", event->port);
    if (has_both)
        fprintf(file, " at %s", event->address);
    if (event->kind == CAY_EVENT_CLOSE)
        fprintf(file, ": %s up, %s down in %" PRIu64 " ms%s%s",
                quantity_bytes(event->up_bytes, up),
                quantity_bytes(event->down_bytes, down), event->duration_ms,
                event->verdict == CAY_REACH_DENY ? ", cut by " : "",
                event->verdict == CAY_REACH_DENY ? event->rule : "");
    else {
        fputs(": rule ", file);
        show_name(file, event->rule);
    }
    if (event->pid) {
        fputs(", by ", file);
        show_name(file, event->program);
        fprintf(file, " (%" PRIu32 ")", event->pid);
    }
    fputc('\n', file);
}

static int print_new(struct call *call, cay_sandbox *sandbox, uint64_t *after,
                     struct cay_error *err)
{
    AUTO_FREE struct cay_network_event *events = NULL;
    size_t count = 0;

    TRY(cay_sandbox_network_events(sandbox, *after, &events, &count, err));
    for (size_t i = 0; i < count; i++)
        (call->options.as_json ? put_event : print_event)(call->output.file, &events[i]);
    if (count)
        *after = events[count - 1].number;
    return output_finish(&call->output, err);
}

int cmd_events(struct call *call, struct cay_error *err)
{
    AUTO(cay_sandbox) sandbox = NULL;
    uint64_t after = 0;

    TRY(find_sandbox(call->line.arguments[0], &sandbox, err));
    TRY(print_new(call, sandbox, &after, err));
    while (call->options.follow) {
        struct cay_error why;
        (void)poll(NULL, 0, FOLLOW_MS);
        int code = print_new(call, sandbox, &after, &why);
        if (code == CAY_E_NOT_FOUND)
            break;
        if (code) {
            *err = why;
            return code;
        }
    }
    return CAY_OK;
}
