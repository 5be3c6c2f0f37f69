/* SPDX-License-Identifier: Apache-2.0 */

/* Creates sandboxes for clients. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/error.h"
#include "server/broker/broker.h"
#include "server/broker/recovery.h"

#define CODE_TEMPLATE     "code" /* of cay template create code */
#define E2B_CODE_TEMPLATE "code-interpreter-v1"

static bool is_stored(const char *name)
{
    struct cay_template_info *infos = NULL;
    size_t count = 0;
    bool found = false;

    if (cay_template_list(&infos, &count, NULL) == CAY_OK)
        for (size_t i = 0; i < count; i++)
            found |= strcmp(infos[i].name, name) == 0;
    cay_free(infos);
    return found;
}

static bool has_template(const char *name)
{
    return strcmp(name, KEEPER_TEMPLATE) == 0 || strcmp(name, E2B_CODE_TEMPLATE) == 0 ||
           is_stored(name);
}

/* The template of Cay for one that exists under the name that clients use. */
static const char *template_of(const char *name)
{
    if (strcmp(name, E2B_CODE_TEMPLATE) != 0)
        return name;
    return is_stored(CODE_TEMPLATE) ? CODE_TEMPLATE : KEEPER_TEMPLATE;
}

/* MemAvailable: what the kernel could give to a new program without swapping. */
static uint64_t available_memory(void)
{
    FILE *file = fopen("/proc/meminfo", "re");
    char line[128];
    uint64_t kib = UINT64_MAX >> 10;

    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, "MemAvailable:", 13) == 0)
            kib = strtoull(line + 13, NULL, 10);
    if (file)
        (void)fclose(file);
    return kib << 10;
}

/* The row is complete except for its id and times, which the keeper returns. */
static void send_create(struct broker *broker, struct broker_request *pending,
                        const char *const *env, const int64_t *numbers,
                        const struct buf *headers)
{
    int64_t env_count = numbers[CREATE_ENV], rule_count = numbers[CREATE_RULES];
    int64_t header_count = numbers[CREATE_HEADERS] / 3 * 4;
    const char *name = pending->row.template_name;
    AUTO_BUF strings = {.max = CHANNEL_STRINGS};
    struct request request = {.flags = pending->row.flags,
                              .count = CREATE_ENV_AT +
                                       (uint32_t)(env_count + rule_count + header_count),
                              .numbers = {[CREATE_TIMEOUT] = pending->timeout_s,
                                          [CREATE_ENV] = env_count,
                                          [CREATE_RULES] = rule_count,
                                          [CREATE_HEADERS] = header_count}};

    strings_add(&strings, template_of(name));
    strings_add(&strings, name);
    strings_add(&strings, pending->row.tenant);
    strings_add(&strings, broker->pool.name);
    for (int64_t i = 0; i < env_count + rule_count; i++)
        strings_add(&strings, env[i]); /* the rules follow the environment */
    (void)buf_append(&strings, headers->data, headers->len);
    broker_request_send_to(broker, pending, &request, &strings);
    if (strings.data)
        explicit_bzero(strings.data, strings.len);
}

static void refuse_template(struct request_packet *request, const char *name)
{
    char message[TEMPLATE_MAX + 32];

    snprintf(message, sizeof message, "template \"%.*s\" not found", TEMPLATE_MAX, name);
    broker_refuse(request, 404, CAY_E_NOT_FOUND, message,
                  "base always exists; cay template ls lists the others");
}

void broker_find_template(struct request_packet *request)
{
    AUTO_FREE char *room = NULL;
    AUTO_FREE const char **strings = request_strings(request, &room);

    if (!strings || !has_template(strings[0])) {
        refuse_template(request, strings ? strings[0] : "");
        return;
    }
    broker_reply_done(request);
}

static bool may_create(struct broker *broker, struct request_packet *request,
                       const char **strings)
{
    const int64_t *numbers = request->head.numbers;

    if (numbers[CREATE_METADATA] < 0 || numbers[CREATE_METADATA] > 2048 ||
        numbers[CREATE_ENV] < 0 || numbers[CREATE_ENV] > 4096 ||
        numbers[CREATE_RULES] < 0 || numbers[CREATE_RULES] > 4096 ||
        numbers[CREATE_HEADERS] < 0 || numbers[CREATE_HEADERS] > 900 ||
        numbers[CREATE_HEADERS] % 3 ||
        1 + 2 * numbers[CREATE_METADATA] + numbers[CREATE_ENV] + numbers[CREATE_RULES] +
                numbers[CREATE_HEADERS] !=
            request->head.count) {
        broker_refuse(request, 400, CAY_E_INVALID, "the request is malformed", "");
        return false;
    }
    if (strlen(strings[0]) >= TEMPLATE_MAX || !has_template(strings[0])) {
        refuse_template(request, strings[0]);
        return false;
    }
    if (request->head.flags & CREATE_INTERNET_EXPLICIT &&
        broker->options->internet == CAY_NETWORK_NONE) {
        broker_refuse(request, 501, CAY_E_UNSUPPORTED,
                      "sandboxes of this server have no internet access",
                      "start it with --internet open, or do not request it");
        return false;
    }
    if (!control_check_rules(broker, request,
                             strings + 1 + 2 * numbers[CREATE_METADATA] +
                                 numbers[CREATE_ENV],
                             numbers[CREATE_RULES]))
        return false;
    if (numbers[CREATE_HEADERS] && broker->options->internet <= CAY_NETWORK_HOST) {
        broker_refuse(request, 501, CAY_E_UNSUPPORTED,
                      "header rules are not supported by this server",
                      "start it with --internet open or rules");
        return false;
    }
    if (registry_is_exclusive(broker->registry)) {
        broker_refuse(request, 507, CAY_E_NO_SPACE,
                      "the disk with the server's records is full", "free some space");
        return false;
    }
    if (available_memory() < broker->options->reserve_bytes) {
        broker_refuse(request, 429, CAY_E_LIMIT, "not enough memory for another sandbox",
                      "kill some sandboxes, or try again later");
        return false;
    }
    return control_check_timeout(broker, request, numbers[CREATE_TIMEOUT]);
}

/* The sandbox has its full time to live; reply to the client only now. */
static int confirmed(struct broker *broker, struct broker_request *pending,
                     const struct reply_packet *reply, struct cay_error *err)
{
    (void)reply;
    (void)err;
    if (pending->client >= 0)
        (void)broker_reply_sandbox(broker, pending->client, &pending->row, false);
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
    int code = registry_add(broker->registry, &pending->row, err);
    if (code) {
        struct broker_request *end =
            broker_request_new(broker, OP_KILL, &pending->row, NULL);
        if (end)
            broker_request_send(broker, end, 0);
        return code;
    }
    /* The row is written.  Until the keeper confirms it the sandbox has a TTL of ten
     * seconds, so that a crash cannot leave a sandbox without a row. */
    struct broker_request *confirm =
        new_confirm(broker, &pending->row, pending->timeout_s);
    if (!confirm)
        return cay_fail_memory(err, "server.create");
    confirm->client = pending->client;
    pending->client = -1;
    send_confirm(broker, confirm);
    return CAY_OK;
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
    AUTO_BUF headers = {.max = CHANNEL_PACKET};
    const char *const *env = strings + 1 + 2 * pairs;
    if (!may_create(broker, request, strings) ||
        !broker_add_headers(broker, request, tenant,
                            env + head.numbers[CREATE_ENV] + head.numbers[CREATE_RULES],
                            head.numbers[CREATE_HEADERS], &headers))
        return;
    struct broker_request *pending = broker_request_new(broker, OP_CREATE, NULL, request);
    if (!pending)
        return;
    pending->done = created;
    cay_copy_text(pending->row.tenant, TENANT_MAX, tenant);
    cay_copy_text(pending->row.template_name, TEMPLATE_MAX, strings[0]);
    pending->row.state = RECORD_RUNNING;
    pending->row.flags = head.flags & ~(uint32_t)CREATE_INTERNET_EXPLICIT;
    if (broker->options->internet == CAY_NETWORK_NONE)
        pending->row.flags &= ~(uint32_t)CREATE_INTERNET;
    pending->row.token_version = 1;
    pending->timeout_s = head.numbers[CREATE_TIMEOUT];
    if (pending->timeout_s < 0)
        pending->timeout_s =
            head.flags & CREATE_LONG ? DEFAULT_LONG_TIMEOUT_S : DEFAULT_TIMEOUT_S;
    for (int64_t i = 0; i < 2 * pairs; i++)
        strings_add(&pending->row.metadata, strings[1 + i]);
    if (pending->row.metadata.failed) {
        struct cay_error error;
        cay_fail(&error, CAY_E_INVALID, 0, "server", NULL, "too much metadata",
                 "give at most %d bytes", METADATA_MAX);
        broker_request_fail(pending, 400, &error);
        broker_request_free(broker, pending);
        return;
    }
    send_create(broker, pending, env, head.numbers, &headers);
    if (headers.data)
        explicit_bzero(headers.data, headers.len);
}
