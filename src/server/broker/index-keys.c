/* SPDX-License-Identifier: Apache-2.0 */

/* API keys and limits of tenants that all nodes share, and sandboxes of lost nodes.  What
 * a request needs from the database is asked while other requests go on. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "server/broker/broker.h"
#include "server/broker/index.h"
#include "server/broker/journal.h"

enum {
    SETS = 1024,
    WAYS = 4,
    HIT_MS = 30 * 1000,
    MISS_MS = 5 * 1000,
    STALE_MS = 3600 * 1000, /* while the database is away */
    HELD_MAX = 256,
    STRANGERS_MAX = HELD_MAX / 2 /* of them with keys that are to be checked */
};

struct slot {
    char hash[2 * KEY_HASH + 1], tenant[TENANT_MAX];
    int64_t most;        /* limit of the tenant; 0: none */
    uint64_t checked_ms; /* 0: not used */
    bool is_old;         /* to be checked before it is used again, unless that fails */
};

/* Unknown keys cannot displace known ones. */
struct index_keys {
    struct slot hits[SETS][WAYS], misses[SETS][WAYS];
    unsigned held, strangers;
};

struct index_keys *index_keys_new(void)
{
    return calloc(1, sizeof(struct index_keys));
}

void index_keys_free(struct index_keys *keys)
{
    if (keys)
        explicit_bzero(keys, sizeof *keys);
    free(keys);
}

/* --- Requests that wait --- */

static void refuse_away(struct request_packet *request, const char *message)
{
    broker_refuse(request, 503, CAY_E_UNAVAILABLE, message, "try again in a moment");
}

struct index_held *index_hold(struct broker *broker, struct request_packet *request,
                              const char *tenant)
{
    struct index_keys *keys = broker->index_keys;
    struct index_held *held = keys->held < HELD_MAX ? calloc(1, sizeof *held) : NULL;

    if (held)
        held->request = malloc(sizeof *held->request);
    if (!held || !held->request) {
        free(held);
        refuse_away(request, "too many requests wait for the database");
        return NULL;
    }
    memcpy(held->request, request, sizeof *request);
    request->channel = request->memfd = -1;
    cay_copy_text(held->tenant, sizeof held->tenant, tenant);
    keys->held++;
    broker->held_count++;
    return held;
}

void index_let_go(struct broker *broker, struct index_held *held)
{
    broker->index_keys->held--;
    request_packet_done(held->request);
    explicit_bzero(held->request, sizeof *held->request);
    free(held->request);
    free(held);
}

/* --- Keys --- */

static struct slot *find_slot(struct slot sets[SETS][WAYS], const char *hash)
{
    struct slot *set = sets[hash_bytes(hash, strlen(hash)) % SETS];

    for (size_t i = 0; i < WAYS; i++)
        if (set[i].checked_ms && strcmp(set[i].hash, hash) == 0)
            return &set[i];
    return NULL;
}

/* The one with this key, else the oldest. */
static struct slot *make_slot(struct slot sets[SETS][WAYS], const char *hash)
{
    struct slot *set = sets[hash_bytes(hash, strlen(hash)) % SETS], *found;

    if ((found = find_slot(sets, hash)))
        return found;
    found = set;
    for (size_t i = 1; i < WAYS; i++)
        if (set[i].checked_ms < found->checked_ms)
            found = &set[i];
    return found;
}

static void remember(struct index_keys *keys, const char *hash, const char *tenant,
                     int64_t most)
{
    struct slot *other = find_slot(tenant ? keys->misses : keys->hits, hash);
    struct slot *slot = make_slot(tenant ? keys->hits : keys->misses, hash);

    if (other)
        *other = (struct slot){0};
    *slot = (struct slot){.checked_ms = clock_ms(), .most = most};
    cay_copy_text(slot->hash, sizeof slot->hash, hash);
    cay_copy_text(slot->tenant, sizeof slot->tenant, tenant ? tenant : "");
}

void index_keys_changed(struct broker *broker, const char *hash)
{
    struct index_keys *keys = broker->index_keys;
    struct slot *hit = find_slot(keys->hits, hash), *miss = find_slot(keys->misses, hash);

    if (hit)
        *hit = (struct slot){0};
    if (miss)
        *miss = (struct slot){0};
    if (*hash)
        return;
    memset(keys->misses, 0, sizeof keys->misses);
    for (size_t i = 0; i < SETS * (size_t)WAYS; i++)
        keys->hits[i / WAYS][i % WAYS].is_old = true;
}

static bool is_fresh(const struct slot *slot, uint64_t ms)
{
    return slot && !slot->is_old && clock_ms() - slot->checked_ms < ms;
}

/* The database cannot be asked. */
static void use_stale(struct broker *broker, struct request_packet *request,
                      const char *hash)
{
    const struct slot *slot = find_slot(broker->index_keys->hits, hash);

    if (slot && clock_ms() - slot->checked_ms < STALE_MS) {
        char tenant[TENANT_MAX];
        memcpy(tenant, slot->tenant, sizeof tenant);
        index_check_limit(broker, request, tenant, slot->most);
        return;
    }
    refuse_away(request, "the database with the API keys is away");
}

/* The request goes on, as broker.c began it. */
static uint64_t begin_again(struct broker *broker, const struct index_held *held)
{
    journal_begin(broker, held->request);
    return broker->held_count;
}

static void end_again(struct broker *broker, struct index_held *held, uint64_t count)
{
    if (broker->held_count == count) /* else it waits once more */
        journal_end(broker, held->request);
    index_let_go(broker, held);
}

static void key_done(struct broker *broker, struct index_call *call,
                     const struct store_packet *packet)
{
    struct index_held *held = (struct index_held *)call;
    struct index_keys *keys = broker->index_keys;
    const char *tenant = store_next(packet, NULL);
    char hash[sizeof held->hash];

    if (packet->head.kind == STORE_ROW) {
        if (!tenant || !options_is_tenant(tenant))
            return;
        cay_copy_text(held->tenant, sizeof held->tenant, tenant);
        held->most = packet->head.numbers[STORE_MAX_RUNNING];
        return;
    }
    keys->strangers--;
    memcpy(hash, held->hash, sizeof hash);
    uint64_t count = begin_again(broker, held);
    if (packet->head.code) {
        use_stale(broker, held->request, hash);
    } else {
        remember(keys, hash, *held->tenant ? held->tenant : NULL, held->most);
        if (*held->tenant)
            index_check_limit(broker, held->request, held->tenant, held->most);
        else
            broker_refuse_key(held->request);
    }
    end_again(broker, held, count);
}

static void ask_key(struct broker *broker, struct request_packet *request,
                    const char *hash)
{
    struct store_message message = {.kind = STORE_KEY};
    AUTO_BUF strings = {.max = 2 * KEY_HASH + 1};
    struct index_keys *keys = broker->index_keys;

    /* Clients without a key must leave room for the others. */
    if (keys->strangers >= STRANGERS_MAX) {
        refuse_away(request, "too many requests with unknown keys wait for the database");
        return;
    }
    struct index_held *held = index_hold(broker, request, "");
    if (!held)
        return;
    keys->strangers++;
    cay_copy_text(held->hash, sizeof held->hash, hash);
    strings_add(&strings, hash);
    held->call.done = key_done;
    index_ask(broker, &held->call, &message, &strings);
}

bool index_knows_key(const struct broker *broker, const unsigned char key[KEY_HASH],
                     char ret_tenant[TENANT_MAX])
{
    char hash[2 * KEY_HASH + 1];

    if (!index_is_on(broker))
        return false;
    secrets_hash_text(key, hash);
    const struct slot *slot = find_slot(broker->index_keys->hits, hash);
    if (!slot || (index_is_up(broker) && !is_fresh(slot, HIT_MS)) ||
        clock_ms() - slot->checked_ms >= STALE_MS)
        return false;
    memcpy(ret_tenant, slot->tenant, TENANT_MAX);
    return true;
}

void index_check_key(struct broker *broker, struct request_packet *request,
                     const unsigned char key[KEY_HASH])
{
    struct index_keys *keys = broker->index_keys;
    char hash[2 * KEY_HASH + 1];

    secrets_hash_text(key, hash);
    const struct slot *hit = find_slot(keys->hits, hash);
    if (is_fresh(hit, HIT_MS)) {
        char tenant[TENANT_MAX];
        memcpy(tenant, hit->tenant, sizeof tenant);
        index_check_limit(broker, request, tenant, hit->most);
    } else if (is_fresh(find_slot(keys->misses, hash), MISS_MS))
        broker_refuse_key(request);
    else if (index_is_up(broker))
        ask_key(broker, request, hash);
    else
        use_stale(broker, request, hash);
}

/* --- Limits --- */

static bool is_data(const struct request_packet *request)
{
    return request_credential((enum op)request->head.op) != CREDENTIAL_KEY;
}

/* Whether the request resumes its sandbox, and no other request does so already. */
static bool is_resume(struct broker *broker, const struct request_packet *request,
                      const char *tenant)
{
    const char *id = request->head.sandbox;
    AUTO_RECORD row = RECORD_INIT;

    return (is_data(request) || request->head.op == OP_CONNECT ||
            request->head.op == OP_RESUME) &&
           record_is_id(id) && broker_find_record(broker, id, &row, NULL) == CAY_OK &&
           control_is_paused(broker, &row) && strcmp(row.tenant, tenant) == 0 &&
           !broker_request_find(broker, OP_RESUME, id);
}

/* Sandboxes that run after the request and did not before. */
static int64_t count_wanted(struct broker *broker, const struct request_packet *request,
                            const char *tenant)
{
    int64_t forks = request->head.numbers[FORK_COUNT];

    if (request->head.op == OP_CREATE)
        return 1;
    if (request->head.op == OP_FORK)
        return forks >= 1 && forks <= 100 ? forks : 0; /* else it is refused */
    if (request->head.op == OP_CONNECT && index_is_lost(broker, request->head.sandbox))
        return 1; /* it may return */
    return is_resume(broker, request, tenant);
}

/* Of a tenant whose keys were checked; 0: none, or it is not known. */
static int64_t find_limit(const struct index_keys *keys, const char *tenant)
{
    for (size_t i = 0; i < SETS * (size_t)WAYS; i++) {
        const struct slot *slot = &keys->hits[i / WAYS][i % WAYS];
        if (slot->checked_ms && strcmp(slot->tenant, tenant) == 0)
            return slot->most;
    }
    return 0;
}

static void refuse_limit(struct request_packet *request)
{
    broker_refuse(request, 429, CAY_E_LIMIT,
                  "the tenant has as many running sandboxes as it may",
                  "kill or pause some, or get a higher limit from the operator");
}

void index_release(struct broker *broker, int64_t claim, int64_t count)
{
    struct store_message message = {.kind = STORE_RELEASE};

    if (!claim || !index_is_on(broker))
        return;
    message.numbers[STORE_CLAIM] = claim;
    message.numbers[STORE_COUNT] = count;
    index_send(broker, &message, NULL);
}

static void handle_admitted(struct broker *broker, struct request_packet *request,
                            const char *tenant, int64_t claim, int64_t count)
{
    broker->claim = claim;
    broker->is_admitted = true;
    if (is_data(request))
        broker_handle_data(broker, request);
    else
        broker_handle_as(broker, request, tenant);
    if (broker->claim) /* the request was refused */
        index_release(broker, broker->claim, count);
    broker->claim = 0;
    broker->is_admitted = false;
}

/* While the database is away each node applies the limit to its own sandboxes. */
static void check_alone(struct broker *broker, struct request_packet *request,
                        const char *tenant, int64_t most, int64_t count)
{
    int64_t running = 0;

    if (most < 0)
        most = find_limit(broker->index_keys, tenant);
    if (most > 0 && (registry_count(broker->registry, tenant, RECORD_RUNNING, &running,
                                    NULL) != CAY_OK ||
                     running + count > most))
        refuse_limit(request);
    else
        handle_admitted(broker, request, tenant, 0, count);
}

static void admit_done(struct broker *broker, struct index_call *call,
                       const struct store_packet *packet)
{
    struct index_held *held = (struct index_held *)call;

    if (packet->head.kind == STORE_ROW) {
        held->claim = packet->head.numbers[STORE_CLAIM];
        return;
    }
    uint64_t count = begin_again(broker, held);
    journal_set_tenant(broker, held->tenant);
    /* Another request may have resumed the sandbox, and has its place. */
    bool is_wanted = count_wanted(broker, held->request, held->tenant) > 0;
    if (packet->head.code == CAY_E_LIMIT && is_wanted)
        refuse_limit(held->request);
    else if (packet->head.code == CAY_E_LIMIT)
        handle_admitted(broker, held->request, held->tenant, 0, 0);
    else if (packet->head.code)
        check_alone(broker, held->request, held->tenant, held->most, held->count);
    else
        handle_admitted(broker, held->request, held->tenant, held->claim, held->count);
    end_again(broker, held, count);
}

void index_check_limit(struct broker *broker, struct request_packet *request,
                       const char *tenant, int64_t most)
{
    struct store_message message = {.kind = STORE_ADMIT};
    AUTO_BUF strings = {.max = TENANT_MAX};
    int64_t count = most ? count_wanted(broker, request, tenant) : 0;

    if (!count) {
        handle_admitted(broker, request, tenant, 0, 0);
        return;
    }
    if (!index_is_up(broker)) {
        check_alone(broker, request, tenant, most, count);
        return;
    }
    struct index_held *held = index_hold(broker, request, tenant);
    if (!held)
        return;
    held->most = most;
    held->count = message.numbers[STORE_COUNT] = count;
    strings_add(&strings, tenant);
    held->call.done = admit_done;
    index_ask(broker, &held->call, &message, &strings);
}

/* --- Sandboxes of lost nodes --- */

static void kill_lost_done(struct broker *broker, struct index_call *call,
                           const struct store_packet *packet)
{
    struct index_held *held = (struct index_held *)call;

    if (packet->head.kind != STORE_DONE)
        return;
    uint64_t count = begin_again(broker, held);
    journal_set_tenant(broker, held->tenant);
    if (packet->head.code == CAY_OK)
        broker_reply_done(held->request);
    else if (packet->head.code == CAY_E_NOT_FOUND)
        node_refuse(broker, held->request, 404, "the sandbox does not exist",
                    "list the sandboxes");
    else
        refuse_away(held->request, "the database is away");
    end_again(broker, held, count);
}

void index_kill_lost(struct broker *broker, struct request_packet *request,
                     const char *tenant)
{
    struct store_message message = {.kind = STORE_KILL_LOST};
    AUTO_BUF strings = {.max = STORE_NAME_MAX};
    struct index_held *held = index_hold(broker, request, tenant);

    if (!held)
        return;
    strings_add(&strings, held->request->head.sandbox);
    strings_add(&strings, tenant);
    held->call.done = kill_lost_done;
    index_ask(broker, &held->call, &message, &strings);
}

/* The next beat lists those that are still to be killed. */
void index_kill(struct broker *broker, const struct store_packet *packet)
{
    for (const char *id = NULL; (id = store_next(packet, id));) {
        struct store_message message = {.kind = STORE_KILLED};
        AUTO_BUF strings = {.max = SANDBOX_ID_MAX};
        AUTO_RECORD row = RECORD_INIT;
        if (!record_is_id(id))
            continue;
        int code = broker_find_record(broker, id, &row, NULL);
        strings_add(&strings, id);
        if (code == CAY_E_NOT_FOUND || (!code && row.state == RECORD_GONE))
            index_send(broker, &message, &strings);
        else if (!code && !broker_request_is_pending(broker, id))
            control_start(broker, OP_KILL, &row, NULL, "was killed", 0);
    }
}
