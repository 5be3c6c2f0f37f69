/* SPDX-License-Identifier: Apache-2.0 */

/* Creates sandboxes for clients. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/error.h"
#include "server/broker/broker.h"
#include "server/broker/journal.h"
#include "server/broker/recovery.h"
#include "server/broker/return.h"
#include "server/broker/shared.h"
#include "server/broker/stored.h"

void create_send(struct broker *broker, struct broker_request *pending,
                 const struct broker_template *template, const int64_t *numbers,
                 const struct buf *strings, const char *from)
{
    int64_t header_count = numbers[CREATE_HEADERS] / 3 * 4, env_count = 0;
    const struct catalog_build *build = &template->build;
    AUTO_BUF sent = {.max = CHANNEL_STRINGS};

    for (size_t i = 0; i < pending->env.len; i++)
        env_count += pending->env.data[i] == '\0';
    struct request request = {.flags = pending->row.flags,
                              .count = CREATE_ENV_AT +
                                       (uint32_t)(env_count + numbers[CREATE_RULES] +
                                                  header_count + numbers[CREATE_VOLUMES]),
                              .numbers = {[CREATE_TIMEOUT] = pending->timeout_s,
                                          [CREATE_ENV] = env_count,
                                          [CREATE_RULES] = numbers[CREATE_RULES],
                                          [CREATE_HEADERS] = header_count,
                                          [CREATE_VOLUMES] = numbers[CREATE_VOLUMES]}};
    strings_add(&sent, template->source);
    strings_add(&sent, pending->row.template_name);
    strings_add(&sent, pending->row.tenant);
    strings_add(&sent, broker->pool.name);
    strings_add(&sent, from);
    strings_add(&sent, build->start.len ? build->start.data : "");
    strings_add(&sent, build->ready.len ? build->ready.data : "");
    strings_add(&sent, broker_find_approvals(&pending->row));
    (void)buf_append(&sent, pending->env.data, pending->env.len);
    (void)buf_append(&sent, strings->data, strings->len);
    broker_request_send_to(broker, pending, &request, &sent);
    if (sent.data)
        explicit_bzero(sent.data, sent.len);
}

bool broker_check_memory(const struct broker *broker, struct request_packet *request,
                         int status)
{
    if (node_memory().available >= broker->options->reserve_bytes)
        return true;
    broker_refuse(request, status, CAY_E_LIMIT, "not enough memory for another sandbox",
                  "kill some sandboxes, or try again later");
    return false;
}

bool create_has_room(struct broker *broker, struct request_packet *request, int status)
{
    if (registry_is_exclusive(broker->registry)) {
        broker_refuse(request, 507, CAY_E_NO_SPACE,
                      "the disk with the server's records is full", "free some space");
        return false;
    }
    if (*broker->options->node) /* the proxy tries another node */
        status = 503;
    return node_has_room(broker, request, status) &&
           broker_check_memory(broker, request, status);
}

bool create_has_counts(const struct request_packet *request)
{
    const int64_t *numbers = request->head.numbers;

    return numbers[CREATE_METADATA] >= 0 && numbers[CREATE_METADATA] <= 2048 &&
           numbers[CREATE_ENV] >= 0 && numbers[CREATE_ENV] <= 4096 &&
           numbers[CREATE_RULES] >= 0 && numbers[CREATE_RULES] <= 4096 &&
           numbers[CREATE_HEADERS] >= 0 && numbers[CREATE_HEADERS] <= 900 &&
           numbers[CREATE_HEADERS] % 3 == 0 && numbers[CREATE_VOLUMES] >= 0 &&
           numbers[CREATE_VOLUMES] <= 128 && numbers[CREATE_VOLUMES] % 2 == 0 &&
           1 + 2 * numbers[CREATE_METADATA] + numbers[CREATE_ENV] +
                   numbers[CREATE_RULES] + numbers[CREATE_HEADERS] +
                   numbers[CREATE_VOLUMES] ==
               request->head.count;
}

bool create_check_network(struct broker *broker, struct request_packet *request,
                          const char *const *rules)
{
    const int64_t *numbers = request->head.numbers;

    if (!control_check_rules(broker, request, rules, numbers[CREATE_RULES]))
        return false;
    if (!numbers[CREATE_HEADERS] || broker->options->internet > CAY_NETWORK_HOST)
        return true;
    broker_refuse(request, 501, CAY_E_UNSUPPORTED,
                  "header rules are not supported by this server",
                  "start it with --internet open or rules");
    return false;
}

static bool may_create(struct broker *broker, struct request_packet *request,
                       const char **strings)
{
    const int64_t *numbers = request->head.numbers;

    if (!create_has_counts(request)) {
        broker_refuse(request, 400, CAY_E_INVALID, "the request is malformed", "");
        return false;
    }
    if (request->head.flags & CREATE_INTERNET_EXPLICIT &&
        broker->options->internet == CAY_NETWORK_NONE) {
        broker_refuse(request, 501, CAY_E_UNSUPPORTED,
                      "sandboxes of this server have no internet access",
                      "start it with --internet open, or do not request it");
        return false;
    }
    if (request->head.flags & CREATE_APPROVE_EGRESS &&
        broker->options->internet != CAY_NETWORK_OPEN) {
        broker_refuse(request, 501, CAY_E_UNSUPPORTED,
                      "the server decides what sandboxes reach: approval of other "
                      "destinations is not supported",
                      "start it with --internet open, or leave approvals.egress out");
        return false;
    }
    /* A sandbox that cannot be paused at its end would never end. */
    if (request->head.flags & CREATE_PAUSE_COLD &&
        broker->options->storage != CAY_STORAGE_DISK) {
        broker_refuse(request, 501, CAY_E_UNSUPPORTED,
                      "pausing without memory needs a server with --storage disk",
                      "leave autoPauseMemory out");
        return false;
    }
    return create_check_network(broker, request,
                                strings + 1 + 2 * numbers[CREATE_METADATA] +
                                    numbers[CREATE_ENV]) &&
           create_has_room(broker, request, 429) &&
           control_check_timeout(broker, request, numbers[CREATE_TIMEOUT]);
}

/* A snapshot, or a template.  Clients see the id of a snapshot, whatever they named. */
static bool find_source(struct broker *broker, struct request_packet *request,
                        const char *tenant, const char *text,
                        struct broker_template *template)
{
    struct snapshot_row snapshot;
    struct cay_error error = {0};
    int code = snapshot_find(broker->registry, tenant, text, &snapshot, &error);

    if (!code && shared_fetch_snapshot(broker, request, &snapshot))
        return false;
    if (!code) {
        cay_copy_text(template->shown, sizeof template->shown, snapshot.id);
        snapshot_source(broker->registry, snapshot.id, template->source);
    } else if (code == CAY_E_NOT_FOUND) {
        code = broker_resolve_template(broker, tenant, text, template, &error);
        if (!code && template->is_own &&
            shared_fetch_build(broker, request, tenant, &template->build))
            return false;
        template->is_of_machine = !code && !template->is_own;
    }
    if (code == CAY_E_NOT_FOUND && shared_is_away(broker))
        broker_refuse(request, 503, CAY_E_UNAVAILABLE,
                      "the shared store with the templates and snapshots is away",
                      "try again later");
    else if (code)
        broker_refuse(request, code == CAY_E_NOT_FOUND ? 404 : 503, code, error.message,
                      error.hint);
    return !code;
}

/* The sandbox has its full time to live; reply to the client only now. */
static int confirmed(struct broker *broker, struct broker_request *pending,
                     const struct reply_packet *reply, struct cay_error *err)
{
    (void)reply;
    (void)err;
    broker->stats.creates += pending->is_new;
    if (pending->is_new)
        journal_write_row(broker, "sandbox.create", pending->id, &pending->row,
                          "template", pending->row.template_name);
    index_reply(broker, &pending->client, pending->row.id, INDEX_REPLY_SANDBOX);
    if (pending->forks)
        fork_report_created(broker, TAKE_PTR(pending->forks), &pending->row);
    return CAY_OK;
}

static void send_confirm(struct broker *broker, struct broker_request *pending)
{
    AUTO_BUF strings = {.max = CAY_SANDBOX_NOTE_MAX};
    struct request request = {.numbers = {[TIMEOUT_SECONDS] = pending->number}};

    request.count = recovery_write(broker->registry, &pending->row, &strings);
    broker_request_send_to(broker, pending, &request, &strings);
}

/* A sandbox that is paused at its end gets no TTL: the broker pauses it. */
static struct broker_request *new_confirm(struct broker *broker,
                                          const struct record_row *row, int64_t seconds)
{
    struct broker_request *pending = broker_request_new(broker, OP_CONFIRM, row, NULL);

    if (!pending)
        return NULL;
    pending->done = confirmed;
    pending->retry = send_confirm;
    pending->number = row->flags & CREATE_AUTO_PAUSE ? 0 : seconds;
    return pending;
}

void broker_confirm(struct broker *broker, const struct record_row *row)
{
    int64_t left_ms = row->end_ms - server_clock_ms();
    struct broker_request *pending =
        new_confirm(broker, row, left_ms > 1000 ? (left_ms + 999) / 1000 : 1);

    if (pending)
        send_confirm(broker, pending);
}

enum { ENV_LABEL_MAX = SANDBOX_ID_MAX + 16 };

static void fill_env_label(const char *id, char ret_label[ENV_LABEL_MAX])
{
    snprintf(ret_label, ENV_LABEL_MAX, "environment %s", id);
}

int create_find_env(struct broker *broker, const char *id, struct buf *ret_env,
                    struct cay_error *err)
{
    char label[ENV_LABEL_MAX];

    fill_env_label(id, label);
    TRY(registry_find_env(broker->registry, id, ret_env, err));
    return !ret_env->len || stored_unseal(&broker->secrets, label, ret_env)
               ? CAY_OK
               : cay_fail(err, CAY_E_IO, 0, "server.fork", NULL,
                          "the environment of the sandbox was sealed with another key",
                          "the store and serve.key belong together");
}

/* Forks of the sandbox get its environment, which has secrets of clients. */
static int add_row(struct broker *broker, struct broker_request *pending,
                   struct cay_error *err)
{
    AUTO_BUF sealed = {.max = CHANNEL_STRINGS + CREATE_SEAL_MAX};
    char label[ENV_LABEL_MAX];

    fill_env_label(pending->row.id, label);
    if (pending->env.len)
        TRY(stored_seal(&broker->secrets, label, pending->env.data, pending->env.len,
                        &sealed, err));
    TRY(registry_add(broker->registry, &pending->row, &sealed, err));
    index_mark(broker, pending->row.id, pending->claim);
    pending->claim = 0;
    return CAY_OK;
}

/* The sandbox is ready; its time starts now. */
static int created(struct broker *broker, struct broker_request *pending,
                   const struct reply_packet *reply, struct cay_error *err)
{
    struct keeper_handle *keeper = keepers_by_pid(broker, pending->keeper);
    const char *id = reply_next(reply, NULL);

    if (!keeper || !id || strncmp(id, "sb-", 3) != 0 || !record_is_id(id + 3))
        return cay_fail(err, CAY_E_INTERNAL, 0, "server.create", NULL,
                        "the sandbox has an invalid id", "see the log of the server");
    cay_copy_text(keeper->id, sizeof keeper->id, id + 3);
    memcpy(pending->row.id, keeper->id, sizeof pending->row.id);
    pending->row.started_ms = server_clock_ms();
    control_set_end(broker, &pending->row, pending->timeout_s);
    if (pending->is_of_machine)
        stats_note_template(&broker->stats, pending->row.template_name);
    int code = add_row(broker, pending, err);
    if (code) {
        struct broker_request *end =
            broker_request_new(broker, OP_KILL, &pending->row, NULL);
        if (end)
            broker_request_send(broker, end, 0);
        return code;
    }
    if (*pending->returns)
        return_note(broker, pending->returns, pending->row.id);
    /* The row is written.  Until the keeper confirms it the sandbox has a TTL of ten
     * seconds, so that a crash cannot leave a sandbox without a row. */
    struct broker_request *confirm =
        new_confirm(broker, &pending->row, pending->timeout_s);
    if (!confirm)
        return cay_fail_memory(err, "server.create");
    confirm->is_new = true;
    confirm->id = pending->id;
    confirm->client = pending->client;
    pending->client = -1;
    confirm->forks = TAKE_PTR(pending->forks);
    send_confirm(broker, confirm);
    return CAY_OK;
}

struct broker_request *create_new(struct broker *broker, const struct record_row *row,
                                  struct request_packet *request)
{
    struct broker_request *pending = broker_request_new(broker, OP_CREATE, row, request);

    if (pending) {
        pending->done = created;
        pending->claim = broker->claim;
        pending->claim_count = 1;
        broker->claim = 0;
    }
    return pending;
}

bool create_add_parts(struct broker *broker, struct request_packet *request,
                      const char *tenant, const char *const *rules, struct buf *strings)
{
    const int64_t *numbers = request->head.numbers;
    const char *const *headers = rules + numbers[CREATE_RULES];
    const char *const *volumes = headers + numbers[CREATE_HEADERS];

    for (int64_t i = 0; i < numbers[CREATE_RULES]; i++)
        strings_add(strings, rules[i]);
    return broker_add_headers(broker, request, tenant, headers, numbers[CREATE_HEADERS],
                              strings) &&
           broker_add_volumes(request, tenant, volumes, numbers[CREATE_VOLUMES], strings);
}

void broker_create(struct broker *broker, struct request_packet *request,
                   const char *tenant)
{
    AUTO_FREE char *room = NULL;
    AUTO_FREE const char **strings = request_strings(request, &room);
    const struct request head = request->head;
    int64_t pairs = head.numbers[CREATE_METADATA];

    if (!strings) {
        broker_refuse(request, 400, CAY_E_INVALID, "the request is malformed", "");
        return;
    }
    const char *const *env = strings + 1 + 2 * pairs;
    AUTO_BUF sent = {.max = CHANNEL_STRINGS};
    AUTO_BROKER_TEMPLATE template = BROKER_TEMPLATE_INIT;
    if (!may_create(broker, request, strings) ||
        !find_source(broker, request, tenant, strings[0], &template) ||
        !create_add_parts(broker, request, tenant, env + head.numbers[CREATE_ENV], &sent))
        return;
    struct broker_request *pending = create_new(broker, NULL, request);
    if (!pending)
        return;
    pending->is_of_machine = template.is_of_machine;
    cay_copy_text(pending->row.tenant, TENANT_MAX, tenant);
    cay_copy_text(pending->row.template_name, TEMPLATE_MAX, template.shown);
    pending->row.state = RECORD_RUNNING;
    pending->row.flags = head.flags & ~(uint32_t)(CREATE_INTERNET_EXPLICIT | RECORD_COLD);
    if (broker->options->internet == CAY_NETWORK_NONE)
        pending->row.flags &= ~(uint32_t)CREATE_INTERNET;
    pending->row.token_version = 1;
    pending->timeout_s = head.numbers[CREATE_TIMEOUT];
    if (pending->timeout_s < 0)
        pending->timeout_s =
            head.flags & CREATE_LONG ? DEFAULT_LONG_TIMEOUT_S : DEFAULT_TIMEOUT_S;
    for (int64_t i = 0; i < 2 * pairs; i++)
        strings_add(&pending->row.metadata, strings[1 + i]);
    for (int64_t i = 0; i < head.numbers[CREATE_ENV]; i++)
        strings_add(&pending->env, env[i]);
    if (template.build.start.len || template.build.ready.len) {
        strings_add(&pending->row.metadata, RECORD_BUILD);
        strings_add(&pending->row.metadata, template.build.id);
    }
    if (pending->row.metadata.failed) {
        struct cay_error error;
        cay_fail(&error, CAY_E_INVALID, 0, "server", NULL, "too much metadata",
                 "give at most %d bytes", METADATA_MAX);
        broker_request_fail(pending, 400, &error);
        broker_request_free(broker, pending);
        return;
    }
    if (template.is_own)
        (void)!catalog_count_spawn(broker->registry, template.shown, NULL);
    create_send(broker, pending, &template, head.numbers, &sent, "");
    if (sent.data)
        explicit_bzero(sent.data, sent.len);
}
