/* SPDX-License-Identifier: Apache-2.0 */

/* What sandboxes use: the sampler (keeper/sampler.c) measures it, the history stores it,
 * and the samples of the last round are in memory. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"
#include "server/broker/broker.h"
#include "server/broker/history.h"
#include "server/broker/journal.h"
#include "server/wire/samples.h"

enum {
    AGAIN_MS = 1000,                /* before a sampler that ended is replaced */
    LATEST_MAX = 100000,            /* samples in memory */
    LATEST_OLD_MS = 4 * SAMPLER_MS, /* from then on they are not shown */
    HISTORY_MOST = 1000,            /* samples in a reply */
    TOP = 5
};

/* A sandbox in the last round. */
struct latest {
    struct usage_sample sample;
    char tenant[TENANT_MAX];
    unsigned template_at; /* in the names of struct broker_stats */
};

struct usage {
    struct source source;
    pid_t pid;  /* 0: none */
    int socket; /* -1: none */
    struct history *history;
    struct latest *list, *next; /* by id; `next`: the round that is being received */
    size_t count, next_count, next_room;
    int64_t at_ms;
    uint64_t restarts;
    struct usage_packet packet;
};

/* --- A round --- */

static int by_id(const void *a, const void *b)
{
    return strcmp(((const struct latest *)a)->sample.id,
                  ((const struct latest *)b)->sample.id);
}

static const struct latest *find_latest(const struct usage *usage, const char *id)
{
    struct latest wanted;

    cay_copy_text(wanted.sample.id, sizeof wanted.sample.id, id);
    return usage->count
               ? bsearch(&wanted, usage->list, usage->count, sizeof *usage->list, by_id)
               : NULL;
}

/* The sampler sees every sandbox of this user: those without a row are of others. */
static bool identify(struct broker *broker, struct latest *latest)
{
    const struct latest *before = find_latest(broker->usage, latest->sample.id);
    AUTO_RECORD row = RECORD_INIT;

    if (before) {
        memcpy(latest->tenant, before->tenant, sizeof latest->tenant);
        latest->template_at = before->template_at;
        return true;
    }
    if (broker_find_record(broker, latest->sample.id, &row, NULL) != CAY_OK ||
        row.state == RECORD_GONE)
        return false;
    cay_copy_text(latest->tenant, sizeof latest->tenant, row.tenant);
    latest->template_at = stats_find_template(&broker->stats, row.template_name);
    return true;
}

static bool reserve(struct usage *usage)
{
    enum { FIRST = 64 };
    size_t room = usage->next_room ? 2 * usage->next_room : FIRST;

    if (usage->next_count < usage->next_room)
        return true;
    struct latest *grown =
        room <= 2 * LATEST_MAX ? realloc(usage->next, room * sizeof *grown) : NULL;
    if (!grown)
        return false;
    usage->next = grown;
    usage->next_room = room;
    return true;
}

static void end_round(struct usage *usage)
{
    free(usage->list);
    usage->list = usage->next;
    usage->count = usage->next_count;
    usage->at_ms = usage->packet.at_ms;
    usage->next = NULL;
    usage->next_count = usage->next_room = 0;
    if (usage->count)
        qsort(usage->list, usage->count, sizeof *usage->list, by_id);
}

static void take_packet(struct broker *broker)
{
    struct usage *usage = broker->usage;
    const struct usage_packet *packet = &usage->packet;

    if (usage->history)
        history_begin(usage->history);
    for (uint32_t i = 0; i < packet->count && reserve(usage); i++) {
        struct latest *latest = &usage->next[usage->next_count];
        *latest = (struct latest){.sample = packet->samples[i]};
        latest->sample.id[SANDBOX_ID_MAX - 1] = '\0';
        if (!record_is_id(latest->sample.id) || !identify(broker, latest))
            continue;
        usage->next_count++;
        if (usage->history)
            history_add(usage->history, latest->sample.id, packet->at_ms,
                        latest->sample.numbers);
    }
    if (usage->history) {
        if (packet->is_last)
            history_prune(usage->history, packet->at_ms);
        history_commit(usage->history);
    }
    if (packet->is_last)
        end_round(usage);
}

/* What a sandbox has tried to reach.  Names are those of programs inside. */
static void take_event(struct broker *broker)
{
    static const char *const names[] = {[CAY_EVENT_LOOKUP] = "network.lookup",
                                        [CAY_EVENT_CONNECT] = "network.connect",
                                        [CAY_EVENT_PACKET] = "network.packet",
                                        [CAY_EVENT_REQUEST] = "network.request"};
    AUTO_RECORD row = RECORD_INIT;
    struct usage_event event;
    char where[sizeof event.name + sizeof event.address], time_ms[24], left_out[16];

    memcpy(&event, &broker->usage->packet, sizeof event);
    event.id[sizeof event.id - 1] = event.name[sizeof event.name - 1] =
        event.address[sizeof event.address - 1] = event.rule[sizeof event.rule - 1] =
            event.program[sizeof event.program - 1] = '\0';
    if (event.event >= sizeof names / sizeof *names || !names[event.event] ||
        !record_is_id(event.id) ||
        broker_find_record(broker, event.id, &row, NULL) != CAY_OK)
        return;
    snprintf(where, sizeof where, "%s:%u", *event.name ? event.name : event.address,
             event.port);
    snprintf(time_ms, sizeof time_ms, "%lld", (long long)event.at_ms);
    snprintf(left_out, sizeof left_out, "%u", event.left_out);
    const char *const details[] = {"to",      where,      "address",  event.address,
                                   "rule",    event.rule, "program",  event.program,
                                   "time_ms", time_ms,    "left_out", left_out,
                                   NULL};
    journal_write(broker, &(struct journal_entry){
                              .action = names[event.event],
                              .tenant = row.tenant,
                              .sandbox = row.id,
                              .verdict = event.is_denied ? "deny" : "allow",
                              .level = event.is_denied ? LOG_LEVEL_WARN : LOG_LEVEL_INFO,
                              .details = details});
}

static void on_packet(struct broker *broker, struct source *source)
{
    struct usage *usage = (struct usage *)source;
    const size_t head = offsetof(struct usage_packet, samples);
    ssize_t len = recv(usage->socket, &usage->packet, sizeof usage->packet,
                       MSG_DONTWAIT | MSG_TRUNC);

    if (len < 0 && errno == EAGAIN)
        return;
    if (len == (ssize_t)sizeof(struct usage_event) &&
        usage->packet.version == CHANNEL_VERSION && usage->packet.kind == USAGE_EVENT) {
        take_event(broker);
        return;
    }
    if (len < (ssize_t)head || usage->packet.kind != USAGE_SAMPLES ||
        usage->packet.version != CHANNEL_VERSION || usage->packet.count > USAGE_PACKET ||
        usage->packet.at_ms <= 0 ||
        (size_t)len != head + usage->packet.count * sizeof *usage->packet.samples) {
        broker_poll_remove(broker, usage->socket); /* it exits: SIGCHLD follows */
        (void)shutdown(usage->socket, SHUT_RDWR);
        return;
    }
    take_packet(broker);
}

/* --- The process --- */

static void lose(struct broker *broker)
{
    struct usage *usage = broker->usage;

    broker_poll_remove(broker, usage->socket);
    (void)close(usage->socket);
    usage->socket = -1;
    usage->pid = 0;
    usage->next_count = 0;
    usage->restarts++;
    broker_wake_at(broker, server_clock_ms() + AGAIN_MS);
}

void usage_start(struct broker *broker)
{
    struct usage *usage = broker->usage;
    int ends[2];

    if (!usage || usage->pid || broker->drain_end_ms)
        return;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) !=
        0) {
        broker_wake_at(broker, server_clock_ms() + AGAIN_MS);
        return;
    }
    usage->socket = ends[0];
    usage->pid = broker_poll_add(broker, ends[0], &usage->source)
                     ? fork() /* allow: fork the sampler; there are no threads */
                     : -1;
    if (usage->pid == 0) {
        keepers_leave_broker(broker, ends[1], "cay-sampler");
        sampler_run(KEPT_FD, usage->at_ms);
    }
    (void)close(ends[1]);
    if (usage->pid < 0)
        lose(broker);
}

void usage_reaped(struct broker *broker, pid_t pid)
{
    if (broker->usage && broker->usage->pid == pid)
        lose(broker);
}

void usage_open(struct broker *broker)
{
    const char *store = registry_path(broker->registry);
    bool is_file = strcmp(store, ":memory:") != 0;
    char path[PATH_MAX];
    struct cay_error error;

    broker->usage = calloc(1, sizeof *broker->usage);
    if (!broker->usage)
        return;
    broker->usage->source.ready = on_packet;
    broker->usage->socket = -1;
    snprintf(path, sizeof path, "%s%s", store, is_file ? HISTORY_SUFFIX : "");
    if (history_open(path, &broker->usage->history, &error) != CAY_OK &&
        broker->log_error)
        broker->log_error("history", &error);
}

void usage_close(struct broker *broker)
{
    struct usage *usage = broker->usage;

    if (!usage)
        return;
    if (usage->socket >= 0)
        (void)close(usage->socket); /* it exits */
    history_close(usage->history);
    free(usage->list);
    free(usage->next);
    free(usage);
    broker->usage = NULL;
}

struct history *usage_history(const struct broker *broker)
{
    return broker->usage ? broker->usage->history : NULL;
}

/* --- Replies --- */

static bool is_fresh(const struct usage *usage)
{
    return usage && clock_since_1970_ms() - usage->at_ms < LATEST_OLD_MS;
}

/* A second, as milliseconds that do not overflow. */
static int64_t to_ms(int64_t seconds)
{
    const int64_t most = INT64_MAX / 1000;

    return (seconds < 0 ? 0 : seconds > most ? most : seconds) * 1000;
}

void usage_send_history(struct broker *broker, const struct request_packet *request,
                        const char *id)
{
    static struct usage_record records[HISTORY_MOST];
    enum { PIECE = CHANNEL_PACKET / sizeof *records, BUFFER = 1 << 20 };
    int64_t to = to_ms(request->head.numbers[USAGE_TO]);
    int buffer = BUFFER;

    if (!broker->usage || !broker->usage->history)
        return;
    size_t count =
        history_find(broker->usage->history, id, to_ms(request->head.numbers[USAGE_FROM]),
                     to > INT64_MAX - 999 ? to : to + 999, records, HISTORY_MOST);
    (void)setsockopt(request->channel, SOL_SOCKET, SO_SNDBUFFORCE, &buffer,
                     sizeof buffer);
    for (size_t at = 0; at < count; at += PIECE) {
        size_t some = count - at < PIECE ? count - at : PIECE;
        struct reply reply = {.kind = REPLY_SAMPLES};
        AUTO_BUF bytes = {.max = CHANNEL_PACKET};
        (void)buf_append(&bytes, (const char *)&records[at], some * sizeof *records);
        (void)reply_send(request->channel, &reply, &bytes, -1);
    }
}

void usage_send_latest(struct broker *broker, struct request_packet *request,
                       const char *tenant)
{
    AUTO_FREE char *room = NULL;
    AUTO_FREE const char **strings = request_strings(request, &room);

    for (uint32_t i = 0; strings && is_fresh(broker->usage) && i < request->head.count;
         i++) {
        const struct latest *latest =
            record_is_id(strings[i]) ? find_latest(broker->usage, strings[i]) : NULL;
        struct reply reply = {.kind = REPLY_SAMPLE, .count = 1};
        AUTO_BUF id = {.max = SANDBOX_ID_MAX};
        if (!latest || strcmp(latest->tenant, tenant) != 0)
            continue;
        memcpy(reply.numbers, latest->sample.numbers, sizeof latest->sample.numbers);
        reply.numbers[USAGE_AT_MS] = broker->usage->at_ms;
        strings_add(&id, latest->sample.id);
        (void)reply_send(request->channel, &reply, &id, -1);
    }
    broker_reply_done(request);
}

/* --- GET /metrics --- */

static const struct {
    enum usage_number number;
    const char *name, *label, *help;
    double scale;
} shown[] = {
    {USAGE_CPU_PERMILLE, "cay_sandbox_cpus", "cpu", "CPUs that sandboxes use", 1e-3},
    {USAGE_MEMORY, "cay_sandbox_memory_bytes", "memory", "Memory that sandboxes use", 1},
    {USAGE_DISK, "cay_sandbox_disk_bytes", "disk", "Disk space that sandboxes use", 1},
    {USAGE_UP, "cay_sandbox_sent_bytes", "sent",
     "Bytes that living sandboxes have sent to the internet", 1},
    {USAGE_DOWN, "cay_sandbox_received_bytes", "received",
     "Bytes that living sandboxes have received from the internet", 1},
};
enum { SHOWN = sizeof shown / sizeof *shown };

struct sums {
    int64_t of[STATS_TEMPLATES + 1][2][SHOWN]; /* template, class of tenant */
    int64_t top[SHOWN][TOP];                   /* greatest first */
};

static void add_top(int64_t top[TOP], int64_t value)
{
    for (int i = 0; i < TOP; i++)
        if (value > top[i]) {
            int64_t smaller = top[i];
            top[i] = value;
            value = smaller;
        }
}

static void sum_up(const struct usage *usage, struct sums *sums)
{
    for (size_t i = 0; is_fresh(usage) && i < usage->count; i++) {
        const struct latest *latest = &usage->list[i];
        bool is_default = strcmp(latest->tenant, "default") == 0;
        for (int j = 0; j < SHOWN; j++) {
            int64_t value = latest->sample.numbers[shown[j].number];
            sums->of[latest->template_at][is_default][j] += value;
            add_top(sums->top[j], value);
        }
    }
}

static void put_sums(struct samples *out, const struct broker_stats *stats,
                     const struct sums *sums, int which)
{
    samples_type(out, shown[which].name, "gauge", shown[which].help);
    for (unsigned at = 0; at <= STATS_TEMPLATES; at++)
        for (int is_default = 0;
             is_default < 2 && (at < stats->template_count || at == STATS_TEMPLATES);
             is_default++) {
            buf_format(out->text, "%s{", shown[which].name);
            samples_put_label(out->text, "template",
                              at == STATS_TEMPLATES ? "(other)" : stats->templates[at]);
            (void)buf_text(out->text, ",");
            samples_put_label(out->text, "tenant_class",
                              is_default ? "default" : "other");
            buf_format(out->text, "} %.15g\n",
                       (double)sums->of[at][is_default][which] * shown[which].scale);
        }
}

/* By rank, since ids of sandboxes would be series without end. */
void usage_put(struct samples *out, const struct broker *broker)
{
    static struct sums sums;
    const struct usage *usage = broker->usage;

    memset(&sums, 0, sizeof sums);
    sum_up(usage, &sums);
    for (int i = 0; i < SHOWN; i++)
        put_sums(out, &broker->stats, &sums, i);
    samples_type(out, "cay_sandbox_top", "gauge",
                 "The largest values of single sandboxes, in CPUs and bytes");
    for (int i = 0; i < SHOWN; i++)
        for (int rank = 0; rank < TOP; rank++)
            buf_format(out->text, "cay_sandbox_top{resource=\"%s\",rank=\"%d\"} %.15g\n",
                       shown[i].label, rank + 1,
                       (double)sums.top[i][rank] * shown[i].scale);
    journal_put(out, broker);
    samples_one(out, "cay_sampler_restarts_total", "counter",
                "Samplers that ended unexpectedly", usage ? usage->restarts : 0);
    samples_one(out, "cay_history_failures_total", "counter",
                "Samples that could not be stored",
                usage && usage->history ? history_failures(usage->history) : 0);
}
