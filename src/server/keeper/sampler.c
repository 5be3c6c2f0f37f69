/* SPDX-License-Identifier: Apache-2.0 */

/* The sampler: a process of the server that measures what sandboxes use, every five
 * seconds, so that idle ones need no keeper for that.  A sandbox that does not respond
 * delays a round, and nothing else. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"
#include "cay/sandbox.h"
#include "server/keeper/keeper.h"
#include "server/wire/usage.h"

#define ID_PREFIX "sb-"

/* CPU time at the previous round, by id. */
struct measured {
    char id[SANDBOX_ID_MAX];
    uint64_t cpu_us;
    uint64_t event; /* number of the last one of the network */
};

struct sampler {
    int socket;
    long cpus;
    int64_t since_ms; /* earlier events were reported */
    struct measured *before;
    size_t before_count;
    uint64_t before_ms; /* by clock_ms() */
    struct usage_packet packet;
};

/* The broker sends nothing: it closes the socket. */
static void wait_for_round(const struct sampler *sampler)
{
    int64_t left_ms = SAMPLER_MS - clock_since_1970_ms() % SAMPLER_MS;
    struct pollfd broker = {.fd = sampler->socket, .events = POLLIN};

    if (poll(&broker, 1, (int)left_ms) != 0)
        _exit(0);
}

/* Waits for the broker. */
static void send_bytes(const struct sampler *sampler, const void *bytes, size_t len)
{
    struct pollfd broker = {.fd = sampler->socket, .events = POLLOUT};

    while (send(sampler->socket, bytes, len, MSG_NOSIGNAL) < 0) {
        if (errno != EAGAIN && errno != EINTR)
            _exit(0);
        (void)poll(&broker, 1, SAMPLER_MS);
        if (broker.revents & (POLLHUP | POLLERR))
            _exit(0);
    }
}

static void send_packet(struct sampler *sampler, bool is_last)
{
    struct usage_packet *packet = &sampler->packet;

    packet->version = CHANNEL_VERSION;
    packet->is_last = is_last;
    send_bytes(sampler, packet,
               offsetof(struct usage_packet, samples) +
                   packet->count * sizeof *packet->samples);
    packet->count = 0;
}

static int by_id(const void *a, const void *b)
{
    return strcmp(((const struct measured *)a)->id, ((const struct measured *)b)->id);
}

static const struct measured *find_before(const struct sampler *sampler,
                                          const struct measured *now)
{
    return sampler->before_count ? bsearch(now, sampler->before, sampler->before_count,
                                           sizeof *sampler->before, by_id)
                                 : NULL;
}

/* Of one CPU, since the previous round; 0 if that did not have the sandbox. */
static int64_t permille(const struct sampler *sampler, const struct measured *now,
                        uint64_t now_ms)
{
    const struct measured *before = find_before(sampler, now);
    uint64_t passed = now_ms - sampler->before_ms;

    if (!before || !passed || now->cpu_us < before->cpu_us)
        return 0;
    return (int64_t)((now->cpu_us - before->cpu_us) / passed);
}

/* --- The network --- */

enum { EVENTS_A_ROUND = 16 }; /* of a sandbox, which could fill the disk */

static void send_event(const struct sampler *sampler, const struct measured *now,
                       const struct cay_network_event *event, uint32_t left_out)
{
    struct usage_event packet = {.version = CHANNEL_VERSION,
                                 .kind = USAGE_EVENT,
                                 .at_ms = event->time_ms,
                                 .event = event->kind,
                                 .is_denied = event->verdict == CAY_REACH_DENY,
                                 .port = event->port,
                                 .left_out = left_out};

    cay_copy_text(packet.id, sizeof packet.id, now->id);
    cay_copy_text(packet.name, sizeof packet.name, event->name);
    cay_copy_text(packet.address, sizeof packet.address, event->address);
    cay_copy_text(packet.rule, sizeof packet.rule, event->rule);
    cay_copy_text(packet.program, sizeof packet.program, event->program);
    send_bytes(sampler, &packet, sizeof packet);
}

/* Those of a sandbox that the previous round did not have are reported if they are newer
 * than that round. */
static void report_events(const struct sampler *sampler, cay_sandbox *sandbox,
                          struct measured *now, bool is_known)
{
    struct cay_network_event *events = NULL;
    size_t count = 0;

    if (cay_sandbox_network_events(sandbox, now->event, &events, &count, NULL) != CAY_OK)
        return;
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        now->event = events[i].number;
        if (events[i].kind != CAY_EVENT_CLOSE &&
            (is_known || events[i].time_ms >= sampler->since_ms))
            events[kept++] = events[i];
    }
    for (size_t i = 0; i < kept && i < EVENTS_A_ROUND; i++)
        send_event(sampler, now, &events[i],
                   i + 1 == EVENTS_A_ROUND ? (uint32_t)(kept - EVENTS_A_ROUND) : 0);
    cay_free(events);
}

/* A paused sandbox has no open connections to count. */
static void add_network(const struct sampler *sampler,
                        const struct cay_sandbox_info *info, struct measured *now,
                        int64_t *numbers)
{
    const struct measured *before = find_before(sampler, now);
    struct cay_network_counts counts;
    cay_sandbox *sandbox = NULL;

    now->event = before ? before->event : 0;
    if (info->network <= CAY_NETWORK_HOST || info->state != CAY_STATE_RUNNING ||
        cay_sandbox_open(info->id, &sandbox, NULL) != CAY_OK)
        return;
    if (cay_sandbox_count_network(sandbox, &counts, NULL) == CAY_OK) {
        numbers[USAGE_CONNECTIONS] = (int64_t)counts.allowed;
        numbers[USAGE_REFUSED] = (int64_t)counts.refused;
        numbers[USAGE_UP] = (int64_t)counts.up_bytes;
        numbers[USAGE_DOWN] = (int64_t)counts.down_bytes;
    }
    report_events(sampler, sandbox, now, before);
    cay_sandbox_free(sandbox);
}

static void add_sample(struct sampler *sampler, const struct cay_sandbox_info *info,
                       struct measured *now, uint64_t now_ms)
{
    struct usage_packet *packet = &sampler->packet;
    struct usage_sample *sample = &packet->samples[packet->count++];

    memset(sample, 0, sizeof *sample);
    cay_copy_text(sample->id, sizeof sample->id, now->id);
    sample->numbers[USAGE_CPUS] = sampler->cpus;
    sample->numbers[USAGE_CPU_PERMILLE] = permille(sampler, now, now_ms);
    sample->numbers[USAGE_MEMORY] = (int64_t)info->memory_used;
    sample->numbers[USAGE_MEMORY_MAX] = (int64_t)info->memory_bytes;
    if (info->disk_bytes) /* as in send_usage() of keeper.c */
        sample->numbers[USAGE_DISK] = (int64_t)info->disk_used;
    sample->numbers[USAGE_DISK_MAX] = (int64_t)info->disk_bytes;
    add_network(sampler, info, now, sample->numbers);
    if (packet->count == USAGE_PACKET)
        send_packet(sampler, false);
}

/* Whether it may be a sandbox of a server; the broker knows which it has. */
static bool is_ours(const struct cay_sandbox_info *info)
{
    return (info->state == CAY_STATE_RUNNING || info->state == CAY_STATE_PAUSED) &&
           strncmp(info->id, ID_PREFIX, strlen(ID_PREFIX)) == 0 &&
           record_is_id(info->id + strlen(ID_PREFIX));
}

static void measure(struct sampler *sampler)
{
    struct cay_sandbox_info *infos = NULL;
    size_t count = 0, kept = 0;

    sampler->packet.at_ms = clock_since_1970_ms() - clock_since_1970_ms() % SAMPLER_MS;
    if (cay_sandbox_list(&infos, &count, NULL) != CAY_OK)
        return;
    uint64_t now_ms = clock_ms();
    struct measured *now = calloc(count + 1, sizeof *now);
    for (size_t i = 0; now && i < count; i++) {
        if (!is_ours(&infos[i]))
            continue;
        cay_copy_text(now[kept].id, SANDBOX_ID_MAX, infos[i].id + strlen(ID_PREFIX));
        now[kept].cpu_us = infos[i].cpu_us;
        add_sample(sampler, &infos[i], &now[kept++], now_ms);
    }
    cay_free(infos);
    send_packet(sampler, true);
    if (!now)
        return;
    sampler->since_ms = sampler->packet.at_ms;
    qsort(now, kept, sizeof *now, by_id);
    free(sampler->before);
    sampler->before = now;
    sampler->before_count = kept;
    sampler->before_ms = now_ms;
}

_Noreturn void sampler_run(int socket, int64_t since_ms)
{
    static struct sampler sampler;

    sampler.socket = socket;
    sampler.since_ms = since_ms ? since_ms : clock_since_1970_ms();
    sampler.cpus = sysconf(_SC_NPROCESSORS_ONLN);
    for (;;) {
        wait_for_round(&sampler);
        measure(&sampler);
    }
}
