/* SPDX-License-Identifier: Apache-2.0 */

/* The control plane.  What a keeper has to do before a record may change is an errand: an
 * ask of our own, with a channel of our own, and a client who waits for the outcome. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "server/broker.h"

enum {
    DEFAULT_TIMEOUT_S = 15,       /* of the first version of the API */
    DEFAULT_LONG_TIMEOUT_S = 300, /* of the second */
    REMEMBERED_MS = 24 * 3600 * 1000,
    LIST_MAX = 100
};

struct errand {
    struct source source;
    struct errand *next;
    enum op op;
    int channel; /* to the keeper */
    int client;  /* of who waits, or -1 */
    bool is_resume, is_wake, is_spare;
    int64_t timeout_s;
    pid_t keeper;
    struct record_row row;
    struct asked *held; /* to be handed on when it is done */
};

/* --- Answers --- */

static void fill_sandbox(struct broker *broker, const struct record_row *row,
                         struct tell *tell, struct buf *strings)
{
    const struct serve_options *options = broker->options;
    char token[TOKEN_MAX], traffic[TOKEN_MAX] = "";

    secrets_token(&broker->secrets, TOKEN_ENVD, row->id, row->token_version, token);
    if (row->flags & CREATE_PRIVATE_TRAFFIC)
        secrets_token(&broker->secrets, TOKEN_TRAFFIC, row->id, row->token_version,
                      traffic);
    *tell = (struct tell){.kind = TELL_SANDBOX};
    tell->numbers[SANDBOX_STATE] = row->state;
    tell->numbers[SANDBOX_STARTED_MS] = row->started_ms;
    tell->numbers[SANDBOX_END_MS] = row->end_ms;
    tell->numbers[SANDBOX_FLAGS] = row->flags;
    tell->numbers[SANDBOX_CPUS] = sysconf(_SC_NPROCESSORS_ONLN);
    tell->numbers[SANDBOX_MEMORY_MB] = (int64_t)(options->memory_bytes >> 20);
    tell->numbers[SANDBOX_DISK_MB] = (int64_t)(options->disk_bytes >> 20);
    strings_add(strings, row->id);
    strings_add(strings, row->template_name);
    strings_add(strings, token);
    strings_add(strings, traffic);
    strings_add(strings, broker->domain);
    (void)buf_append(strings, row->metadata.data, row->metadata.len);
    for (size_t i = 0; i < strings->len; i++)
        tell->count += strings->data[i] == '\0';
}

static int tell_sandbox(struct broker *broker, int channel, const struct record_row *row,
                        bool resumed)
{
    AUTO_BUF strings = {0};
    struct tell tell;

    buf_init(&strings, CHANNEL_PACKET);
    fill_sandbox(broker, row, &tell, &strings);
    tell.numbers[SANDBOX_RESUMED] = resumed;
    return tell_send(channel, &tell, &strings, -1);
}

static void answer(struct asked *asked, int code, const struct cay_error *error)
{
    if (code)
        (void)tell_failed(asked->channel, 0, error);
    else
        (void)tell_done(asked->channel);
    asked_done(asked);
}

/* --- Errands --- */

static void errand_free(struct broker *broker, struct errand *errand)
{
    struct errand **link = &broker->errands;

    while (*link && *link != errand)
        link = &(*link)->next;
    if (*link)
        *link = errand->next;
    const int fds[] = {errand->channel, errand->client};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        if (fds[i] >= 0)
            (void)close(fds[i]);
    if (errand->held)
        asked_done(errand->held);
    free(errand->held);
    record_done(&errand->row);
    free(errand);
}

static void errand_fail(struct errand *errand, int status, const struct cay_error *error)
{
    if (errand->client >= 0)
        (void)tell_failed(errand->client, status, error);
    if (errand->held)
        (void)tell_failed(errand->held->channel, 502, error);
}

static void hear_keeper(struct broker *broker, struct source *source);

static struct errand *errand_new(struct broker *broker, enum op op,
                                 const struct record_row *row, struct asked *asked)
{
    struct errand *errand = calloc(1, sizeof *errand);

    if (!errand)
        return NULL;
    errand->source.ready = hear_keeper;
    errand->op = op;
    errand->channel = errand->client = -1;
    record_init(&errand->row);
    if (row) {
        struct buf metadata = errand->row.metadata;
        errand->row = *row;
        errand->row.metadata = metadata;
        (void)buf_append(&errand->row.metadata, row->metadata.data, row->metadata.len);
    }
    if (asked) {
        errand->client = asked->channel;
        asked->channel = -1;
        asked_done(asked);
    }
    errand->next = broker->errands;
    broker->errands = errand;
    return errand;
}

/* Sends the keeper on its way; on failure who waits is told. */
static void errand_go(struct broker *broker, struct errand *errand, struct keeper *keeper,
                      const struct ask *ask, const struct buf *strings)
{
    struct cay_error error = {0};
    int ends[2] = {-1, -1};

    if (keeper && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0,
                             ends) == 0) {
        errand->channel = ends[0];
        errand->keeper = keeper->pid;
        int failed = ask_send(keeper->socket, ask, strings, ends[1]);
        (void)close(ends[1]);
        if (!failed && broker_watch(broker, ends[0], &errand->source))
            return;
    }
    cay_fail(&error, CAY_E_BUSY, 0, "server", NULL, "the server has too much to do",
             "try again in a moment");
    errand_fail(errand, 503, &error);
    errand_free(broker, errand);
}

static void go_simply(struct broker *broker, struct errand *errand, int64_t number)
{
    struct ask ask = {.version = CHANNEL_VERSION,
                      .op = (uint32_t)errand->op,
                      .numbers = {[TIMEOUT_SECONDS] = number}};
    AUTO_BUF none = {0};

    buf_init(&none, 1);
    errand_go(broker, errand, keeper_of(broker, errand->row.id), &ask, &none);
}

/* --- Creating --- */

static bool is_default_template(const char *name)
{
    return strcmp(name, "base") == 0 || strcmp(name, "code-interpreter-v1") == 0 ||
           strcmp(name, "host") == 0;
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

static bool timeout_is_fine(struct broker *broker, struct asked *asked, int64_t seconds)
{
    char message[96];

    if (seconds <= (int64_t)broker->options->max_timeout_s && seconds >= -1)
        return true;
    snprintf(message, sizeof message, "Timeout cannot be greater than %u hours",
             broker->options->max_timeout_s / 3600);
    broker_refuse(asked, 400, CAY_E_INVALID,
                  seconds < -1 ? "Timeout is negative" : message,
                  "give a timeout between 0 and the limit of this server");
    return false;
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
static void send_create(struct broker *broker, struct errand *errand,
                        const char *const *env, int64_t env_count)
{
    const char *name = errand->row.template_name;
    AUTO_BUF strings = {0};
    struct ask ask = {
        .version = CHANNEL_VERSION,
        .op = OP_CREATE,
        .flags = errand->row.flags,
        .count = 1 + (uint32_t)env_count,
        .numbers = {[CREATE_TIMEOUT] = errand->timeout_s, [CREATE_ENV] = env_count}};

    buf_init(&strings, CHANNEL_STRINGS);
    strings_add(&strings, is_default_template(name) ? "host" : name);
    for (int64_t i = 0; i < env_count; i++)
        strings_add(&strings, env[i]);
    ask.strings_len = (uint32_t)strings.len;
    struct keeper *keeper = take_spare(broker, name, env_count, errand->row.flags);
    errand_go(broker, errand, keeper ? keeper : keeper_start(broker, ""), &ask, &strings);
    control_fill_pool(broker);
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
        broker_refuse(asked, 404, CAY_E_NOT_FOUND, "template not found",
                      "base is always there; cay template ls lists the others");
        return false;
    }
    if (available_memory() < broker->options->reserve_bytes) {
        broker_refuse(asked, 429, CAY_E_LIMIT,
                      "this machine has no memory left for another sandbox",
                      "end some, or try again later");
        return false;
    }
    return timeout_is_fine(broker, asked, numbers[CREATE_TIMEOUT]);
}

static void create(struct broker *broker, struct asked *asked, const char *tenant)
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
    if (!errand) {
        asked_done(asked);
        return;
    }
    cay_copy_text(errand->row.tenant, TENANT_MAX, tenant);
    cay_copy_text(errand->row.template_name, TEMPLATE_MAX, strings[0]);
    errand->row.state = RECORD_RUNNING;
    errand->row.flags = head.flags;
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

static struct keeper *keeper_by_pid(struct broker *broker, pid_t pid)
{
    struct keeper *keeper = broker->keepers;

    while (keeper && keeper->pid != pid)
        keeper = keeper->next;
    return keeper;
}

static void set_clock(struct broker *broker, struct record_row *row, int64_t seconds)
{
    row->end_ms = broker_now_ms() + seconds * 1000;
    broker_note_end(broker, row->end_ms);
}

/* It is ready: its time begins now. */
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
    set_clock(broker, &errand->row, errand->timeout_s);
    int code = registry_add(broker->registry, &errand->row, err);
    if (code) {
        struct errand *end = errand_new(broker, OP_KILL, &errand->row, NULL);
        if (end)
            go_simply(broker, end, 0);
        return code;
    }
    (void)tell_sandbox(broker, errand->client, &errand->row, false);
    return CAY_OK;
}

void control_fill_pool(struct broker *broker)
{
    unsigned ready = broker->starting_spares;

    for (const struct keeper *keeper = broker->keepers; keeper; keeper = keeper->next)
        ready += keeper->is_spare;
    for (; ready < broker->options->pool; ready++) {
        struct errand *errand = errand_new(broker, OP_CREATE, NULL, NULL);
        AUTO_BUF strings = {0};
        struct ask ask = {.version = CHANNEL_VERSION,
                          .op = OP_CREATE,
                          .count = 1,
                          .numbers = {[CREATE_TIMEOUT] = -1}};
        if (!errand || available_memory() < broker->options->reserve_bytes)
            return;
        errand->is_spare = true;
        broker->starting_spares++;
        buf_init(&strings, 64);
        strings_add(&strings, "host");
        ask.strings_len = (uint32_t)strings.len;
        errand_go(broker, errand, keeper_start(broker, ""), &ask, &strings);
    }
}

/* --- The outcome of errands --- */

static void update(struct broker *broker, const struct record_row *row)
{
    (void)registry_update(broker->registry, row, NULL);
}

static void killed(struct broker *broker, struct errand *errand)
{
    errand->row.state = RECORD_GONE;
    errand->row.end_ms = broker_now_ms();
    update(broker, &errand->row);
    if (errand->client >= 0)
        (void)tell_done(errand->client);
    (void)registry_forget(broker->registry, broker_now_ms() - REMEMBERED_MS, NULL);
}

static void paused(struct broker *broker, struct errand *errand)
{
    errand->row.state = RECORD_PAUSED;
    update(broker, &errand->row);
    if (errand->client >= 0)
        (void)tell_done(errand->client);
}

static void resumed(struct broker *broker, struct errand *errand)
{
    errand->row.state = RECORD_RUNNING;
    set_clock(broker, &errand->row, errand->timeout_s);
    update(broker, &errand->row);
    if (errand->client >= 0)
        (void)tell_sandbox(broker, errand->client, &errand->row, true);
    if (errand->held)
        broker_hand_on(broker, errand->held, errand->row.id);
}

static void note(struct broker *broker, struct errand *errand, const struct told *told)
{
    struct cay_error error = {0};

    switch ((unsigned)errand->op) {
    case OP_CREATE:
        if (created(broker, errand, told, &error))
            errand_fail(errand, 500, &error);
        break;
    case OP_KILL:
        killed(broker, errand);
        break;
    case OP_PAUSE:
        paused(broker, errand);
        break;
    case OP_RESUME:
        resumed(broker, errand);
        break;
    default: /* the clock was set before it was told */
        break;
    }
}

static int status_of(int code)
{
    return code == CAY_E_NOT_FOUND     ? 404
           : code == CAY_E_BUSY        ? 409
           : code == CAY_E_INVALID     ? 400
           : code == CAY_E_LIMIT       ? 429
           : code == CAY_E_UNSUPPORTED ? 501
                                       : 500;
}

static void note_failure(struct broker *broker, struct errand *errand,
                         const struct told *told)
{
    struct cay_error error;
    const char *message = told ? told_next(told, NULL) : NULL;
    const char *hint = message ? told_next(told, message) : NULL;
    int code = told ? told->head.code : CAY_E_KILLED;

    if (errand->op == OP_KILL && (!told || code == CAY_E_NOT_FOUND)) {
        killed(broker, errand); /* it was gone already */
        return;
    }
    cay_fail(&error, code < 0 ? code : CAY_E_INTERNAL, 0, "server", NULL,
             message ? message : "the sandbox's keeper has died", "%s",
             hint ? hint : "try again");
    errand_fail(errand, status_of(error.code), &error);
}

static void hear_keeper(struct broker *broker, struct source *source)
{
    static struct told told;
    struct errand *errand = (struct errand *)source;
    int got = tell_receive(errand->channel, &told);

    if (got == -EAGAIN)
        return;
    broker_forget(broker, errand->channel);
    if (errand->is_spare)
        broker->starting_spares--;
    if (got == 1 && told.fd >= 0)
        (void)close(told.fd);
    if (got == 1 && told.head.kind != TELL_FAILED)
        note(broker, errand, &told);
    else
        note_failure(broker, errand, got == 1 ? &told : NULL);
    errand_free(broker, errand);
}

/* --- Those that exist --- */

static bool find(struct broker *broker, struct asked *asked, const char *tenant,
                 struct record_row *row)
{
    char message[160];
    bool known =
        record_is_id(asked->head.sandbox) &&
        registry_find(broker->registry, asked->head.sandbox, row, NULL) == CAY_OK &&
        strcmp(row->tenant, tenant) == 0;

    if (known && row->state != RECORD_GONE)
        return true;
    snprintf(message, sizeof message, "sandbox \"%.31s\" %s",
             record_is_id(asked->head.sandbox) ? asked->head.sandbox : "",
             known ? row->reason : "does not exist");
    broker_refuse(asked, 404, CAY_E_NOT_FOUND, message,
                  "list the sandboxes to see which there are");
    return false;
}

static void start_errand(struct broker *broker, enum op op, struct record_row *row,
                         struct asked *asked, const char *reason, int64_t seconds)
{
    struct errand *errand = errand_new(broker, op, row, asked);

    if (!errand)
        return;
    errand->timeout_s = seconds;
    cay_copy_text(errand->row.reason, REASON_MAX, reason);
    /* A sandbox that is to be paused at the end of its time is not to end itself. */
    bool sets_ttl = op == OP_TIMEOUT || op == OP_RESUME;
    go_simply(broker, errand,
              sets_ttl && !(row->flags & CREATE_AUTO_PAUSE) ? seconds : 0);
}

static void set_timeout(struct broker *broker, struct record_row *row, int64_t seconds)
{
    set_clock(broker, row, seconds);
    update(broker, row);
    start_errand(broker, OP_TIMEOUT, row, NULL, "", seconds);
}

/* A running one is only ever given more time. */
static void connect_to(struct broker *broker, struct asked *asked, struct record_row *row)
{
    int64_t seconds = asked->head.numbers[TIMEOUT_SECONDS];

    if (!timeout_is_fine(broker, asked, seconds))
        return;
    if (seconds < 0)
        seconds = DEFAULT_LONG_TIMEOUT_S;
    if (row->state == RECORD_PAUSED) {
        start_errand(broker, OP_RESUME, row, asked, "", seconds);
        return;
    }
    if (broker_now_ms() + seconds * 1000 > row->end_ms)
        set_timeout(broker, row, seconds);
    (void)tell_sandbox(broker, asked->channel, row, false);
    asked_done(asked);
}

static void change_timeout(struct broker *broker, struct asked *asked,
                           struct record_row *row)
{
    int64_t seconds = asked->head.numbers[TIMEOUT_SECONDS];

    if (!timeout_is_fine(broker, asked, seconds))
        return;
    bool only_more = asked->head.op == OP_REFRESH;
    if (seconds < 0)
        seconds = DEFAULT_TIMEOUT_S;
    if (row->state == RECORD_PAUSED) {
        broker_refuse(asked, 409, CAY_E_BUSY, "the sandbox is paused",
                      "connect to it first");
        return;
    }
    if (!only_more || broker_now_ms() + seconds * 1000 > row->end_ms)
        set_timeout(broker, row, seconds);
    answer(asked, CAY_OK, NULL);
}

static void pause_or_resume(struct broker *broker, struct asked *asked,
                            struct record_row *row)
{
    bool pauses = asked->head.op == OP_PAUSE;
    int64_t seconds = asked->head.numbers[TIMEOUT_SECONDS];

    if (row->state != (pauses ? RECORD_RUNNING : RECORD_PAUSED)) {
        char message[96];
        snprintf(message, sizeof message, "Sandbox '%s' is %s", row->id,
                 pauses ? "already paused" : "already running");
        broker_refuse(asked, 409, CAY_E_BUSY, message, "");
    } else if (pauses) {
        start_errand(broker, OP_PAUSE, row, asked, "", 0);
    } else if (timeout_is_fine(broker, asked, seconds)) {
        start_errand(broker, OP_RESUME, row, asked, "",
                     seconds < 0 ? DEFAULT_TIMEOUT_S : seconds);
    }
}

void control_wake(struct broker *broker, struct asked *asked,
                  const struct record_row *row)
{
    struct errand *errand = errand_new(broker, OP_RESUME, row, NULL);
    struct asked *held = malloc(sizeof *held);

    if (!errand || !held) {
        free(held);
        if (errand)
            errand_free(broker, errand);
        asked_done(asked);
        return;
    }
    memcpy(held, asked, sizeof *held);
    asked->channel = asked->memfd = -1;
    errand->held = held;
    errand->timeout_s = DEFAULT_LONG_TIMEOUT_S;
    go_simply(broker, errand,
              row->flags & CREATE_AUTO_PAUSE ? 0 : DEFAULT_LONG_TIMEOUT_S);
}

/* --- Listing --- */

struct listing {
    struct broker *broker;
    struct asked *asked;
    const char **wanted; /* metadata: key, value, ... */
    int64_t pairs, left;
    bool failed, more;
};

static bool has_metadata(const struct record_row *row, const char *key, const char *value)
{
    const char *at = row->metadata.data, *end = at + row->metadata.len;

    while (at && at < end) {
        const char *text = at + strlen(at) + 1;
        if (text >= end)
            return false;
        if (strcmp(at, key) == 0)
            return strcmp(text, value) == 0;
        at = text + strlen(text) + 1;
    }
    return false;
}

static bool list_one(const struct record_row *row, void *cookie)
{
    struct listing *listing = cookie;

    for (int64_t i = 0; i < listing->pairs; i++)
        if (!has_metadata(row, listing->wanted[2 * i], listing->wanted[2 * i + 1]))
            return true;
    if (listing->left-- == 0) {
        listing->more = true;
        return false;
    }
    if (tell_sandbox(listing->broker, listing->asked->channel, row, false) != 0)
        listing->failed = true;
    return !listing->failed;
}

static void list(struct broker *broker, struct asked *asked, const char *tenant)
{
    AUTO_FREE char *room = NULL;
    AUTO_FREE const char **strings = ask_strings(asked, &room);
    const struct ask *head = &asked->head;
    struct cay_error error = {0};
    struct tell last = {.kind = TELL_DONE};
    int buffer = 32 << 20; /* a page of sandboxes with all their metadata */

    if (!strings || head->numbers[LIST_LIMIT] < 1 ||
        head->numbers[LIST_LIMIT] > LIST_MAX || head->numbers[LIST_METADATA] < 0 ||
        2 + 2 * head->numbers[LIST_METADATA] != head->count) {
        broker_refuse(asked, 400, CAY_E_INVALID, "the request is malformed", "");
        return;
    }
    (void)setsockopt(asked->channel, SOL_SOCKET, SO_SNDBUFFORCE, &buffer, sizeof buffer);
    struct registry_filter filter = {
        .tenant = tenant,
        .template_name = *strings[0] ? strings[0] : NULL,
        .oldest_first = head->flags & LIST_OLDEST_FIRST,
        .after_ms = head->numbers[LIST_AFTER_MS],
        .after_id = strings[1],
    };
    if (head->flags & LIST_RUNNING)
        filter.states |= 1u << RECORD_RUNNING;
    if (head->flags & LIST_PAUSED)
        filter.states |= 1u << RECORD_PAUSED;
    struct listing listing = {.broker = broker,
                              .asked = asked,
                              .wanted = strings + 2,
                              .pairs = head->numbers[LIST_METADATA],
                              .left = head->numbers[LIST_LIMIT]};
    int code = registry_visit(broker->registry, &filter, list_one, &listing, &error);
    if (!code && !listing.failed) {
        last.numbers[0] = listing.more;
        (void)tell_send(asked->channel, &last, NULL, -1);
    } else if (code) {
        (void)tell_failed(asked->channel, 0, &error);
    }
    asked_done(asked);
}

/* --- Dispatch --- */

static void answer_about(struct broker *broker, struct asked *asked, const char *tenant)
{
    AUTO_RECORD row = {0};

    record_init(&row);
    if (!find(broker, asked, tenant, &row))
        return;
    switch (asked->head.op) {
    case OP_CONNECT:
        connect_to(broker, asked, &row);
        break;
    case OP_INFO:
        (void)tell_sandbox(broker, asked->channel, &row, false);
        asked_done(asked);
        break;
    case OP_KILL:
        start_errand(broker, OP_KILL, &row, asked, "was killed", 0);
        break;
    case OP_TIMEOUT:
    case OP_REFRESH:
        change_timeout(broker, asked, &row);
        break;
    case OP_PAUSE:
    case OP_RESUME:
        pause_or_resume(broker, asked, &row);
        break;
    default: /* what only its keeper knows */
        broker_hand_on(broker, asked, row.id);
        break;
    }
}

void control_answer(struct broker *broker, struct asked *asked, const char *tenant)
{
    switch (asked->head.op) {
    case OP_CREATE:
        create(broker, asked, tenant);
        break;
    case OP_LIST:
        list(broker, asked, tenant);
        break;
    case OP_CHECK:
        answer(asked, CAY_OK, NULL);
        break;
    default:
        answer_about(broker, asked, tenant);
        break;
    }
}

/* --- After a restart --- */

struct alive {
    struct broker *broker;
    const struct cay_sandbox_info *infos;
    size_t count;
    char (*gone)[SANDBOX_ID_MAX];
    size_t gone_count, gone_room;
};

static bool note_if_gone(const struct record_row *row, void *cookie)
{
    struct alive *alive = cookie;

    for (size_t i = 0; i < alive->count; i++)
        if (strcmp(alive->infos[i].id + 3, row->id) == 0 &&
            alive->infos[i].state != CAY_STATE_STOPPED)
            return true;
    if (alive->gone_count < alive->gone_room)
        memcpy(alive->gone[alive->gone_count++], row->id, sizeof row->id);
    return true;
}

void control_reconcile(struct broker *broker)
{
    static char gone[1024][SANDBOX_ID_MAX];
    const struct registry_filter filter = {.states = 1u << RECORD_RUNNING |
                                                     1u << RECORD_PAUSED};
    struct cay_sandbox_info *infos = NULL;
    struct alive alive = {
        .broker = broker, .gone = gone, .gone_room = sizeof gone / sizeof *gone};

    if (cay_sandbox_list(&infos, &alive.count, NULL) != CAY_OK)
        return;
    alive.infos = infos;
    if (registry_visit(broker->registry, &filter, note_if_gone, &alive, NULL) == CAY_OK)
        for (size_t i = 0; i < alive.gone_count; i++)
            control_gone(broker, gone[i]);
    cay_free(infos);
}

/* --- Time --- */

struct due {
    struct broker *broker;
    int64_t now_ms, next_ms;
    struct record_row *rows;
    size_t count;
};

enum { DUE_AT_A_TIME = 64 };

static bool is_due(const struct record_row *row, void *cookie)
{
    struct due *due = cookie;

    if (row->end_ms > due->now_ms) {
        if (!due->next_ms || row->end_ms < due->next_ms)
            due->next_ms = row->end_ms;
        return true;
    }
    if (due->count < DUE_AT_A_TIME) {
        struct record_row *copy = &due->rows[due->count++];
        *copy = *row;
        copy->metadata = (struct buf){0};
    } else {
        due->next_ms = due->now_ms + 1;
    }
    return true;
}

static bool has_errand(const struct broker *broker, const char *id)
{
    const struct errand *errand = broker->errands;

    while (errand && (errand->op == OP_TIMEOUT || strcmp(errand->row.id, id) != 0))
        errand = errand->next;
    return errand != NULL;
}

void control_expire(struct broker *broker)
{
    static struct record_row rows[DUE_AT_A_TIME];
    const struct registry_filter filter = {.states = 1u << RECORD_RUNNING,
                                           .oldest_first = true};
    struct due due = {broker, broker_now_ms(), 0, rows, 0};

    if (registry_visit(broker->registry, &filter, is_due, &due, NULL) != CAY_OK)
        due.next_ms = due.now_ms + 1000;
    for (size_t i = 0; i < due.count; i++) {
        bool pauses = rows[i].flags & CREATE_AUTO_PAUSE;
        if (!has_errand(broker, rows[i].id))
            start_errand(broker, pauses ? OP_PAUSE : OP_KILL, &rows[i], NULL,
                         pauses ? "" : "reached its end of life", 0);
    }
    if (due.next_ms)
        broker_note_end(broker, due.next_ms);
}

void control_gone(struct broker *broker, const char *id)
{
    AUTO_RECORD row = {0};

    record_init(&row);
    if (registry_find(broker->registry, id, &row, NULL) != CAY_OK ||
        row.state == RECORD_GONE)
        return;
    row.state = RECORD_GONE;
    cay_copy_text(row.reason, sizeof row.reason,
                  row.end_ms <= broker_now_ms() + 1000 ? "reached its end of life"
                                                       : "ended by itself");
    row.end_ms = broker_now_ms();
    (void)registry_update(broker->registry, &row, NULL);
}
