/* SPDX-License-Identifier: Apache-2.0 */

/* Sandboxes that are made for clients, and those that are made before anybody asks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/error.h"
#include "server/broker/errand.h"
#include "server/broker/recovery.h"

static const char default_template[] = "base";

/* Names under which E2B's clients ask for it. */
static bool is_default_template(const char *name)
{
    return strcmp(name, default_template) == 0 ||
           strcmp(name, "code-interpreter-v1") == 0;
}

static bool has_template(const char *name)
{
    struct cay_template_info *infos = NULL;
    size_t count = 0;
    bool found = is_default_template(name);

    if (!found && cay_template_list(&infos, &count, NULL) == CAY_OK)
        for (size_t i = 0; i < count; i++)
            found |= strcmp(infos[i].name, name) == 0;
    cay_free(infos);
    return found;
}

/* What the kernel thinks could be given to a new program without swapping. */
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

static void take_metadata(const char **strings, int64_t pairs, struct buf *metadata)
{
    for (int64_t i = 0; i < 2 * pairs; i++)
        strings_add(metadata, strings[i]);
}

static struct keeper *take_spare(struct broker *broker, const char *template_name,
                                 int64_t env_count, uint32_t flags)
{
    if (env_count || !is_default_template(template_name) || flags & CREATE_INTERNET)
        return NULL;
    for (struct keeper *keeper = broker->keepers; keeper; keeper = keeper->next)
        if (keeper->is_spare) {
            keeper->is_spare = false;
            return keeper;
        }
    return NULL;
}

/* The record is complete but for its id and times, which the keeper knows. */
static void send_to(struct broker *broker, struct errand *errand, struct keeper *keeper,
                    const char *const *env, int64_t env_count)
{
    const char *name = errand->row.template_name;
    AUTO_BUF strings = {0};
    struct ask ask = {
        .version = CHANNEL_VERSION,
        .op = OP_CREATE,
        .flags = errand->row.flags,
        .count = CREATE_ENV_AT + (uint32_t)env_count,
        .numbers = {[CREATE_TIMEOUT] = errand->timeout_s, [CREATE_ENV] = env_count}};

    buf_init(&strings, CHANNEL_STRINGS);
    strings_add(&strings, is_default_template(name) ? default_template : name);
    strings_add(&strings, name);
    strings_add(&strings, errand->row.tenant);
    for (int64_t i = 0; i < env_count; i++)
        strings_add(&strings, env[i]);
    ask.strings_len = (uint32_t)strings.len;
    errand_go(broker, errand, keeper, &ask, &strings);
}

/* The sandbox that was ready has just ended. */
static void send_anew(struct broker *broker, struct errand *errand)
{
    send_to(broker, errand, keeper_start(broker, ""), NULL, 0);
}

static void send_create(struct broker *broker, struct errand *errand,
                        const char *const *env, int64_t env_count)
{
    struct keeper *spare =
        take_spare(broker, errand->row.template_name, env_count, errand->row.flags);

    errand->again = spare ? send_anew : NULL;
    send_to(broker, errand, spare ? spare : keeper_start(broker, ""), env, env_count);
    broker_fill_pool(broker);
}

static void refuse_template(struct asked *asked, const char *name)
{
    char message[TEMPLATE_MAX + 32];

    snprintf(message, sizeof message, "template \"%.*s\" not found", TEMPLATE_MAX, name);
    broker_refuse(asked, 404, CAY_E_NOT_FOUND, message,
                  "base is always there; cay template ls lists the others");
}

void broker_find_template(struct asked *asked)
{
    AUTO_FREE char *room = NULL;
    AUTO_FREE const char **strings = ask_strings(asked, &room);

    if (!strings || !has_template(strings[0])) {
        refuse_template(asked, strings ? strings[0] : "");
        return;
    }
    (void)tell_done(asked->channel);
    asked_done(asked);
}

static bool may_create(struct broker *broker, struct asked *asked, const char **strings)
{
    const int64_t *numbers = asked->head.numbers;

    if (numbers[CREATE_METADATA] < 0 || numbers[CREATE_METADATA] > 2048 ||
        numbers[CREATE_ENV] < 0 || numbers[CREATE_ENV] > 4096 ||
        1 + 2 * numbers[CREATE_METADATA] + numbers[CREATE_ENV] != asked->head.count) {
        broker_refuse(asked, 400, CAY_E_INVALID, "the request is malformed", "");
        return false;
    }
    if (strlen(strings[0]) >= TEMPLATE_MAX || !has_template(strings[0])) {
        refuse_template(asked, strings[0]);
        return false;
    }
    if (asked->head.flags & CREATE_INTERNET_SAID &&
        broker->options->internet == CAY_NETWORK_NONE) {
        broker_refuse(asked, 501, CAY_E_UNSUPPORTED,
                      "sandboxes of this server have no internet access",
                      "start it with --internet host, or do not ask for it");
        return false;
    }
    if (registry_is_alone(broker->registry)) {
        broker_refuse(asked, 507, CAY_E_NO_SPACE,
                      "the disk with the server's records is full", "make room on it");
        return false;
    }
    if (available_memory() < broker->options->reserve_bytes) {
        broker_refuse(asked, 429, CAY_E_LIMIT,
                      "this machine has no memory left for another sandbox",
                      "end some, or try again later");
        return false;
    }
    return control_timeout_is_fine(broker, asked, numbers[CREATE_TIMEOUT]);
}

static struct keeper *keeper_by_pid(struct broker *broker, pid_t pid)
{
    struct keeper *keeper = broker->keepers;

    while (keeper && keeper->pid != pid)
        keeper = keeper->next;
    return keeper;
}

/* The sandbox has its full time to live: only now does the client hear of it. */
static int confirmed(struct broker *broker, struct errand *errand,
                     const struct told *told, struct cay_error *err)
{
    (void)told;
    (void)err;
    if (errand->client >= 0)
        (void)broker_tell_sandbox(broker, errand->client, &errand->row, false);
    return CAY_OK;
}

static void send_confirm(struct broker *broker, struct errand *errand)
{
    AUTO_BUF strings = {0};
    struct ask ask = {.numbers = {[TIMEOUT_SECONDS] = errand->number}};

    buf_init(&strings, CAY_SANDBOX_NOTE_MAX);
    ask.count = note_write(broker->registry, &errand->row, &strings);
    errand_go_with(broker, errand, &ask, &strings);
}

/* One that is to be paused at the end of its time gets no other time to live: the broker
 * pauses it. */
static struct errand *new_confirm(struct broker *broker, const struct record_row *row,
                                  int64_t seconds)
{
    struct errand *errand = errand_new(broker, OP_CONFIRM, row, NULL);

    if (!errand)
        return NULL;
    errand->done = confirmed;
    errand->again = send_confirm;
    errand->number = row->flags & CREATE_AUTO_PAUSE ? 0 : seconds;
    return errand;
}

/* The row is written.  Until the keeper has confirmed it the sandbox has ten seconds to
 * live, so that no crash leaves a sandbox that is in no store. */
static int confirm(struct broker *broker, struct errand *created, struct cay_error *err)
{
    struct errand *errand = new_confirm(broker, &created->row, created->timeout_s);

    if (!errand)
        return cay_fail_memory(err, "server.create");
    errand->client = created->client;
    created->client = -1;
    send_confirm(broker, errand);
    return CAY_OK;
}

void broker_confirm(struct broker *broker, const struct record_row *row)
{
    int64_t left_ms = row->end_ms - broker_now_ms();
    struct errand *errand =
        new_confirm(broker, row, left_ms > 1000 ? (left_ms + 999) / 1000 : 1);

    if (errand)
        send_confirm(broker, errand);
}

/* The sandbox is ready: its time begins now. */
static int created(struct broker *broker, struct errand *errand, const struct told *told,
                   struct cay_error *err)
{
    struct keeper *keeper = keeper_by_pid(broker, errand->keeper);
    const char *id = told_next(told, NULL);

    if (!keeper || !id || strncmp(id, "sb-", 3) != 0 || !record_is_id(id + 3))
        return cay_fail(err, CAY_E_INTERNAL, 0, "server.create", NULL,
                        "the sandbox has a name that cannot be told", "see the log");
    cay_copy_text(keeper->id, sizeof keeper->id, id + 3);
    memcpy(errand->row.id, keeper->id, sizeof errand->row.id);
    if (errand->is_spare) {
        keeper->is_spare = true;
        return CAY_OK;
    }
    errand->row.started_ms = broker_now_ms();
    control_set_clock(broker, &errand->row, errand->timeout_s);
    int code = registry_add(broker->registry, &errand->row, err);
    if (code) {
        struct errand *end = errand_new(broker, OP_KILL, &errand->row, NULL);
        if (end)
            errand_go_simply(broker, end, 0);
        return code;
    }
    return confirm(broker, errand, err);
}

void broker_create(struct broker *broker, struct asked *asked, const char *tenant)
{
    AUTO_FREE char *room = NULL;
    AUTO_FREE const char **strings = ask_strings(asked, &room);
    const struct ask head = asked->head;
    int64_t pairs = head.numbers[CREATE_METADATA];

    if (!strings) {
        broker_refuse(asked, 400, CAY_E_INVALID, "the request is malformed", "");
        return;
    }
    if (!may_create(broker, asked, strings))
        return;
    struct errand *errand = errand_new(broker, OP_CREATE, NULL, asked);
    if (!errand)
        return;
    errand->done = created;
    cay_copy_text(errand->row.tenant, TENANT_MAX, tenant);
    cay_copy_text(errand->row.template_name, TEMPLATE_MAX, strings[0]);
    errand->row.state = RECORD_RUNNING;
    errand->row.flags = head.flags & ~(uint32_t)CREATE_INTERNET_SAID;
    if (broker->options->internet == CAY_NETWORK_NONE)
        errand->row.flags &= ~(uint32_t)CREATE_INTERNET;
    errand->row.token_version = 1;
    errand->timeout_s = head.numbers[CREATE_TIMEOUT];
    if (errand->timeout_s < 0)
        errand->timeout_s =
            head.flags & CREATE_LONG ? DEFAULT_LONG_TIMEOUT_S : DEFAULT_TIMEOUT_S;
    take_metadata(strings + 1, pairs, &errand->row.metadata);
    if (errand->row.metadata.failed) {
        struct cay_error error;
        cay_fail(&error, CAY_E_INVALID, 0, "server", NULL, "there is too much metadata",
                 "give at most %d bytes of it", METADATA_MAX);
        errand_fail(errand, 400, &error);
        errand_free(broker, errand);
        return;
    }
    send_create(broker, errand, strings + 1 + 2 * pairs, head.numbers[CREATE_ENV]);
}

void broker_fill_pool(struct broker *broker)
{
    unsigned ready = broker->starting_spares;

    if (broker->drain_end_ms)
        return;
    for (const struct keeper *keeper = broker->keepers; keeper; keeper = keeper->next)
        ready += keeper->is_spare;
    for (; ready < broker->options->pool; ready++) {
        struct errand *errand = available_memory() < broker->options->reserve_bytes
                                    ? NULL
                                    : errand_new(broker, OP_CREATE, NULL, NULL);
        AUTO_BUF strings = {0};
        struct ask ask = {.version = CHANNEL_VERSION,
                          .op = OP_CREATE,
                          .count = CREATE_ENV_AT,
                          .numbers = {[CREATE_TIMEOUT] = -1}};
        if (!errand) {
            broker_note_end(broker, broker_now_ms() + POOL_AGAIN_MS);
            return;
        }
        errand->is_spare = true;
        errand->done = created;
        broker->starting_spares++;
        buf_init(&strings, 64);
        strings_add(&strings, default_template);
        strings_add(&strings, "");
        strings_add(&strings, "");
        ask.strings_len = (uint32_t)strings.len;
        errand_go(broker, errand, keeper_start(broker, ""), &ask, &strings);
    }
}
