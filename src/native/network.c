/* SPDX-License-Identifier: Apache-2.0 */
/* The network of a running sandbox: its rules, which cay-net applies, and its events. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"
#include "native/make/headers.h"
#include "native/make/network.h"
#include "native/native.h"
#include "native/process/wire.h"
#include "policy/policy.h"
#include "relay/relay.h"
#include "sys/io.h"

static const char op[] = "sandbox.network";

static void auto_cay_policy(cay_policy **policy)
{
    cay_policy_free(*policy);
}

static int check_relayed(struct native *native, struct cay_error *err)
{
    TRY(native_check(native, err));
    if (native->record.is_relayed)
        return CAY_OK;
    return cay_fail(err, CAY_E_UNSUPPORTED, 0, op, native->record.id,
                    native->record.network == CAY_NETWORK_HOST
                        ? "the sandbox uses the network of this machine, without rules"
                        : "the sandbox was created without a network",
                    "create it with network rules, or with the network rules or open");
}

/* --- Counts --- */

int native_count_network(void *cookie, struct cay_network_counts *ret_counts,
                         struct cay_error *err)
{
    struct native *native = cookie;
    struct relay_reply reply;

    TRY(check_relayed(native, err));
    TRY(network_request(native->record.id, RELAY_COUNT, NULL, 0, &reply, err));
    *ret_counts = (struct cay_network_counts){
        .allowed = reply.counts.allowed,
        .refused = reply.counts.refused,
        .up_bytes = reply.counts.up_bytes,
        .down_bytes = reply.counts.down_bytes,
        .events = reply.counts.events,
        .events_lost = reply.counts.events_lost,
        .connections = reply.counts.links,
        .names = reply.counts.names,
    };
    return CAY_OK;
}

/* --- Rules --- */

static int load_rules(const char *id, struct network_rules **ret_rules,
                      struct cay_error *err)
{
    AUTO_FREE char *text = malloc(NETWORK_TEXT_MAX);
    size_t len = 0;

    if (!text)
        return cay_fail_memory(err, op);
    TRY(runtime_load_rules(id, text, NETWORK_TEXT_MAX, &len, err));
    return network_rules_read(text, len, ret_rules, err);
}

/* Owns the rules. */
static int policy_of(struct network_rules *rules, cay_policy **ret_policy,
                     struct cay_error *err)
{
    const struct cay_network_config nothing = {.size = sizeof nothing};
    int code = cay_policy_add_network(NULL, &nothing, ret_policy, err);

    if (code)
        network_rules_free(rules);
    else
        (*ret_policy)->network = rules;
    return code;
}

int native_get_network(void *cookie, cay_policy **ret_policy, struct cay_error *err)
{
    struct native *native = cookie;
    struct network_rules *rules = NULL;

    TRY(native_check(native, err));
    if (native->record.network == CAY_NETWORK_HOST)
        return check_relayed(native, err);
    if (native->record.is_relayed)
        TRY(load_rules(native->record.id, &rules, err));
    return policy_of(rules, ret_policy, err);
}

/* The rules that a change starts from. */
static int take_base(const char *id, bool replace, cay_policy **ret_policy,
                     struct cay_error *err)
{
    struct network_rules *rules = NULL;

    TRY(load_rules(id, &rules, err));
    if (replace) {
        AUTO_NETWORK_RULES old = TAKE_PTR(rules);
        TRY(network_rules_new(network_rules_mode(old), NULL, 0, NULL, &rules, err));
        TRY(network_rules_set_limits(rules, network_rules_limits(old), err));
    }
    return policy_of(rules, ret_policy, err);
}

int native_change_network(void *cookie, const struct cay_network_config *config,
                          bool replace, struct cay_error *err)
{
    struct native *native = cookie;
    AUTO(cay_policy) before = NULL;
    AUTO(cay_policy) after = NULL;

    TRY(check_relayed(native, err));
    AUTO_FD lock = runtime_wait_lock(native->record.id);
    if (lock < 0 && errno == EWOULDBLOCK)
        return cay_fail(err, CAY_E_BUSY, 0, op, native->record.id,
                        "another process changes or removes the sandbox", "try again");
    if (lock < 0)
        return wire_fail_gone(op, native->record.id, errno, err);
    TRY(runtime_load_locked(lock, native->record.id, &native->record, err));
    TRY(take_base(native->record.id, replace, &before, err));
    TRY(cay_policy_add_network(before, config, &after, err));
    if (replace || config->header_count)
        TRY(headers_set(native->record.id, config->headers, config->header_count, err));
    return network_change(&native->record, after->network, err);
}

/* --- Events --- */

/* cay-net may write the slot at the same moment: it counts once two reads are equal. */
static bool read_slot(int file, uint64_t slot, struct relay_event *ret_event)
{
    const uint64_t at = slot % RELAY_EVENTS_MAX * RELAY_EVENT_BYTES;
    char bytes[RELAY_EVENT_BYTES], again[RELAY_EVENT_BYTES];

    for (int tries = 0; tries < 8; tries++) {
        if (io_pread(file, bytes, sizeof bytes, at) != sizeof bytes ||
            io_pread(file, again, sizeof again, at) != sizeof again)
            return false;
        if (memcmp(bytes, again, sizeof again) != 0)
            continue;
        memcpy(ret_event, bytes, sizeof *ret_event);
        return ret_event->number > 0;
    }
    return false;
}

static void copy_event(const struct relay_event *from, struct cay_network_event *to)
{
    *to = (struct cay_network_event){
        .number = from->number,
        .time_ms = from->time_ms,
        .kind = (enum cay_event_kind)from->kind,
        .verdict = from->verdict ? CAY_REACH_ALLOW : CAY_REACH_DENY,
        .port = from->port,
        .protocol = from->protocol,
        .up_bytes = from->up_bytes,
        .down_bytes = from->down_bytes,
        .duration_ms = from->duration_ms,
        .lost = from->lost,
        .pid = from->owner.pid == RELAY_OWNER_PENDING ? 0 : from->owner.pid,
        .uid = from->owner.uid,
    };
    memcpy(to->name, from->name, strnlen(from->name, sizeof from->name));
    memcpy(to->rule, from->rule, strnlen(from->rule, sizeof from->rule - 1));
    wire_make_text(to->name, strlen(to->name));
    wire_make_text(to->rule, strlen(to->rule));
    memcpy(to->program, from->owner.program,
           strnlen(from->owner.program, sizeof from->owner.program - 1));
    wire_make_text(to->program, strlen(to->program));
    if (from->address.len == 4 || from->address.len == 16)
        network_address_format(&from->address, to->address);
}

static int by_number(const void *one, const void *other)
{
    uint64_t a = ((const struct cay_network_event *)one)->number,
             b = ((const struct cay_network_event *)other)->number;

    return a < b ? -1 : a > b;
}

/* The processes of the last events are being looked up. */
static bool is_pending(const struct relay_event *event)
{
    return event->owner.pid == RELAY_OWNER_PENDING &&
           clock_since_1970_ms() - event->time_ms < RELAY_OWNER_MS;
}

/* Most calls of a caller that follows the events find none: that takes one read. */
static size_t collect_events(int file, uint64_t after, struct cay_network_event *events,
                             bool *ret_early)
{
    struct relay_event event;
    size_t count = 0;

    *ret_early = false;
    if (!read_slot(file, after + 1, &event) || event.number <= after)
        return 0;
    for (uint64_t slot = 0; slot < RELAY_EVENTS_MAX; slot++)
        if (read_slot(file, slot, &event) && event.number > after &&
            event.number % RELAY_EVENTS_MAX == slot && event.kind >= RELAY_EVENT_NAME &&
            event.kind <= RELAY_EVENT_REQUEST) {
            copy_event(&event, &events[count++]);
            *ret_early |= is_pending(&event);
        }
    qsort(events, count, sizeof *events, by_number);
    return count;
}

int native_network_events(void *cookie, uint64_t after,
                          struct cay_network_event **ret_events, size_t *ret_count,
                          struct cay_error *err)
{
    enum { STEP_MS = 5 };
    struct native *native = cookie;
    struct stat st;
    bool is_early;

    if (native->attempts < 0) {
        TRY(check_relayed(native, err));
        native->attempts = runtime_open_events(native->record.id, err);
        if (native->attempts < 0)
            return native->attempts;
    }
    bool is_removed = fstat(native->attempts, &st) != 0 || st.st_nlink == 0;
    AUTO_FREE struct cay_network_event *events = calloc(RELAY_EVENTS_MAX, sizeof *events);
    if (!events)
        return cay_fail_memory(err, op);
    *ret_count = collect_events(native->attempts, after, events, &is_early);
    for (int ms = 0; is_early && ms < RELAY_OWNER_MS; ms += STEP_MS) {
        (void)poll(NULL, 0, STEP_MS);
        *ret_count = collect_events(native->attempts, after, events, &is_early);
    }
    if (!*ret_count && is_removed)
        return cay_fail(err, CAY_E_NOT_FOUND, 0, op, native->record.id,
                        "the sandbox has ended", "cay ls lists the sandboxes that run");
    *ret_events = TAKE_PTR(events);
    return CAY_OK;
}
