/* SPDX-License-Identifier: Apache-2.0 */

/* The broker's part of GET /metrics. */
#include <dirent.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "cay/pool.h"
#include "server/broker/broker.h"
#include "server/broker/journal.h"
#include "server/broker/shared.h"
#include "server/wire/samples.h"

enum { TEXT_MAX = 256 << 10 };

/* --- Counting --- */

static const struct {
    int status;
    const char *reason;
} failures[STATS_FAILURES] = {
    {400, "invalid"},  {401, "denied"}, {403, "denied_feature"}, {404, "template"},
    {409, "conflict"}, {429, "memory"}, {501, "unsupported"},    {503, "unavailable"},
    {507, "disk"},     {0, "failed"},
};

void stats_count_failure(struct broker_stats *stats, int status)
{
    size_t at = 0;

    while (at < STATS_FAILURES - 1 && failures[at].status != status)
        at++;
    stats->create_failures[at]++;
}

static const char *const ends[STATS_ENDS] = {"was killed", "reached its end of life",
                                             "ran out of memory", "ended by itself", ""};
static const char *const end_labels[STATS_ENDS] = {"killed", "timeout", "out_of_memory",
                                                   "exited", "other"};

void stats_count_end(struct broker_stats *stats, const char *reason)
{
    size_t at = 0;

    while (at < STATS_ENDS - 1 && strcmp(ends[at], reason) != 0)
        at++;
    stats->ends[at]++;
}

/* --- Sandboxes --- */

static void put_sandbox(struct samples *out, const char *state, const char *template_name,
                        const char *class, int64_t count)
{
    (void)buf_text(out->text, "cay_sandboxes{");
    samples_put_label(out->text, "state", state);
    (void)buf_text(out->text, ",");
    samples_put_label(out->text, "template", template_name);
    (void)buf_text(out->text, ",");
    samples_put_label(out->text, "tenant_class", class);
    buf_format(out->text, "} %lld\n", (long long)count);
}

/* A template of this machine, from which a sandbox was created.  Others have names that
 * tenants choose, or random ones: these would be series without end. */
void stats_note_template(struct broker_stats *stats, const char *name)
{
    for (unsigned i = 0; i < stats->template_count; i++)
        if (strcmp(stats->templates[i], name) == 0)
            return;
    if (stats->template_count < STATS_TEMPLATES)
        cay_copy_text(stats->templates[stats->template_count++], TEMPLATE_MAX, name);
}

unsigned stats_find_template(const struct broker_stats *stats, const char *name)
{
    unsigned at = 0;

    while (at < stats->template_count && strcmp(stats->templates[at], name) != 0)
        at++;
    return at < stats->template_count ? at : STATS_TEMPLATES;
}

static void put_sandboxes(struct samples *out, const struct broker *broker)
{
    static const char text[] =
        "SELECT state, template, tenant = 'default', count(*) FROM sandboxes WHERE state "
        "IN (1, 2) GROUP BY 1, 2, 3";
    const struct broker_stats *stats = &broker->stats;
    int64_t counts[STATS_TEMPLATES + 1][2][2] = {{{0}}};
    sqlite3_stmt *statement = NULL;
    struct sqlite3 *db = registry_db(broker->registry);

    if (db && sqlite3_prepare_v2(db, text, -1, &statement, NULL) == SQLITE_OK)
        while (sqlite3_step(statement) == SQLITE_ROW) {
            const char *name = (const char *)sqlite3_column_text(statement, 1);
            unsigned at = stats_find_template(stats, name ? name : "");
            bool is_paused = sqlite3_column_int(statement, 0) == RECORD_PAUSED;
            counts[at][is_paused][sqlite3_column_int(statement, 2) != 0] +=
                sqlite3_column_int64(statement, 3);
        }
    (void)sqlite3_finalize(statement);
    samples_type(out, "cay_sandboxes", "gauge",
                 "Sandboxes by state, template and class of tenant");
    for (unsigned at = 0; at <= STATS_TEMPLATES; at++)
        for (int i = 0; i < 4 && (at < stats->template_count || at == STATS_TEMPLATES);
             i++)
            put_sandbox(out, i & 1 ? "paused" : "running",
                        at == STATS_TEMPLATES ? "(other)" : stats->templates[at],
                        i & 2 ? "default" : "other", counts[at][i & 1][i >> 1]);
}

static void put_life(struct samples *out, const struct broker_stats *stats)
{
    samples_one(out, "cay_creates_total", "counter", "Sandboxes that were created",
                stats->creates);
    samples_type(out, "cay_create_failures_total", "counter",
                 "Creates that failed or were refused, by reason");
    for (size_t i = 0; i < STATS_FAILURES; i++)
        samples_label(out, "cay_create_failures_total", "reason", failures[i].reason,
                      stats->create_failures[i]);
    samples_type(out, "cay_sandboxes_ended_total", "counter",
                 "Sandboxes that ended, by reason");
    for (size_t i = 0; i < STATS_ENDS; i++)
        samples_label(out, "cay_sandboxes_ended_total", "reason", end_labels[i],
                      stats->ends[i]);
}

/* --- Processes --- */

/* -1: not visible, as the front's for a server that is not root. */
static int64_t count_files(pid_t pid)
{
    char path[32];
    int64_t count = 0;
    const struct dirent *entry;

    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *dir = opendir(path);
    if (!dir)
        return -1;
    while ((entry = readdir(dir)))
        count += entry->d_name[0] != '.';
    (void)closedir(dir);
    return pid == getpid() ? count - 1 : count; /* without that of the directory */
}

static void put_files(struct samples *out, const struct broker *broker)
{
    struct rlimit limit = {0};
    int64_t own = count_files(getpid());
    int64_t front = broker->front_pid > 0 ? count_files(broker->front_pid) : -1;

    samples_type(out, "cay_open_files", "gauge", "Open descriptors by process");
    if (own >= 0)
        samples_label(out, "cay_open_files", "process", "broker", (uint64_t)own);
    if (front >= 0)
        samples_label(out, "cay_open_files", "process", "front", (uint64_t)front);
    (void)getrlimit(RLIMIT_NOFILE, &limit);
    samples_one(out, "cay_open_files_max", "gauge", "Limit of open descriptors of each",
                limit.rlim_cur);
}

static void put_restarts(struct samples *out, const struct broker *broker)
{
    const struct broker_stats *stats = &broker->stats;
    uint64_t keepers = 0, pending = 0;

    for (const struct keeper_handle *at = broker->keepers; at; at = at->next)
        keepers += at->socket >= 0;
    for (const struct broker_request *at = broker->pending; at; at = at->next)
        pending++;
    samples_type(out, "cay_restarts_total", "counter",
                 "Processes of the server that ended unexpectedly and were replaced");
    samples_label(out, "cay_restarts_total", "process", "broker",
                  journal_restarts(broker));
    samples_label(out, "cay_restarts_total", "process", "front", stats->front_restarts);
    samples_label(out, "cay_restarts_total", "process", "keeper", stats->keeper_failures);
    samples_label(out, "cay_restarts_total", "process", "pool", stats->pool_restarts);
    samples_one(out, "cay_start_time_seconds", "gauge",
                "When the broker was started, since 1970", stats->started_s);
    samples_one(out, "cay_keepers", "gauge", "Processes that serve one sandbox", keepers);
    samples_one(out, "cay_broker_pending", "gauge",
                "Requests of the broker that wait for a keeper", pending);
    samples_one(out, "cay_unwritten_rows", "gauge",
                "Rows that could not be written to the store yet",
                broker_count_unwritten(broker));
}

static void put_pool(struct samples *out, const struct broker *broker)
{
    struct cay_pool_info *infos = NULL;
    uint64_t ready = 0, claimed = 0;
    size_t count = 0;

    if (broker->pool.pid > 0 && cay_pool_list(&infos, &count, NULL) == CAY_OK)
        for (size_t i = 0; i < count; i++)
            if (infos[i].pid == (int)broker->pool.pid) {
                ready += infos[i].stats.ready;
                claimed += infos[i].stats.claimed;
            }
    cay_free(infos);
    samples_one(out, "cay_pool_size", "gauge", "Sandboxes that --pool keeps ready",
                broker->options->pool);
    samples_one(out, "cay_pool_ready", "gauge", "Sandboxes of the pool that are ready",
                ready);
    samples_one(out, "cay_pool_claimed_total", "counter",
                "Sandboxes that came from the pool", claimed);
}

/* --- The reply --- */

void broker_send_stats(struct broker *broker, struct request_packet *request)
{
    enum { PIECE = CHANNEL_PACKET - 1, BUFFER = 1 << 20 };
    AUTO_BUF text = {.max = TEXT_MAX};
    struct samples out = {&text, request->head.flags & STATS_OPEN};
    int buffer = BUFFER;

    put_sandboxes(&out, broker);
    put_life(&out, &broker->stats);
    put_restarts(&out, broker);
    index_put(&out, broker);
    shared_put(&out, broker);
    put_files(&out, broker);
    put_pool(&out, broker);
    usage_put(&out, broker);
    (void)setsockopt(request->channel, SOL_SOCKET, SO_SNDBUFFORCE, &buffer,
                     sizeof buffer);
    for (size_t at = 0; at < text.len; at += PIECE) {
        struct reply reply = {.kind = REPLY_TEXT, .count = 1};
        AUTO_BUF piece = {.max = CHANNEL_PACKET};
        size_t len = text.len - at < PIECE ? text.len - at : PIECE;
        (void)buf_append(&piece, text.data + at, len);
        (void)buf_append(&piece, "", 1);
        (void)reply_send(request->channel, &reply, &piece, -1);
    }
    broker_reply_done(request);
}
