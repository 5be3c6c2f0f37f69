/* SPDX-License-Identifier: Apache-2.0 */

/* What a sandbox uses.  The use of the processor is that between two samples, which are
 * not too close and not too far apart; a request that finds no such sample waits for the
 * next one. */
#include <stdlib.h>
#include <unistd.h>

#include "base/error.h"
#include "server/keeper/keep.h"

enum { SAMPLE_MS = 100, SAMPLE_OLD_MS = 5000 };

/* False if it is not known yet. */
static bool take_sample(struct keep *keep, const struct cay_sandbox_info *info)
{
    int64_t now_ms = keep_now_ms(), passed = now_ms - keep->sampled.at_ms;
    bool is_usable = keep->sampled.at_ms && info->cpu_us >= keep->sampled.cpu_us &&
                     passed <= SAMPLE_OLD_MS;

    if (is_usable && passed < SAMPLE_MS)
        return keep->sampled.permille >= 0;
    keep->sampled.permille =
        is_usable ? (int64_t)(info->cpu_us - keep->sampled.cpu_us) / passed : -1;
    keep->sampled.at_ms = now_ms;
    keep->sampled.cpu_us = info->cpu_us;
    return is_usable;
}

static void send_usage(const struct keep *keep, const struct cay_sandbox_info *info,
                       int channel)
{
    struct tell tell = {.kind = TELL_DONE};

    tell.numbers[USAGE_CPU_PERMILLE] = keep->sampled.permille;
    tell.numbers[USAGE_CPUS] = sysconf(_SC_NPROCESSORS_ONLN);
    tell.numbers[USAGE_MEMORY] = (int64_t)info->memory_used;
    tell.numbers[USAGE_MEMORY_MAX] = (int64_t)info->memory_bytes;
    if (info->disk_bytes) /* else it would be that of all who share the disk */
        tell.numbers[USAGE_DISK] = (int64_t)info->disk_used;
    tell.numbers[USAGE_DISK_MAX] = (int64_t)info->disk_bytes;
    (void)tell_send(channel, &tell, NULL, -1);
}

static void wait_for_sample(struct keep *keep, struct task *task)
{
    struct cay_sandbox_info info;
    struct cay_error error;

    if (keep_now_ms() - keep->sampled.at_ms < SAMPLE_MS && keep->sampled.permille < 0)
        return;
    int code = cay_sandbox_inspect(keep->sandbox, &info, &error);
    if (!code && !take_sample(keep, &info))
        return;
    if (code)
        (void)tell_failed(task->channel, 0, &error);
    else
        send_usage(keep, &info, task->channel);
    task->is_over = true;
}

static void task_done(struct task *task)
{
    free(task);
}

int keep_usage(struct keep *keep, struct question *question, struct cay_error *err)
{
    struct cay_sandbox_info info;
    int code = cay_sandbox_inspect(keep->sandbox, &info, err);

    if (code)
        return code;
    if (take_sample(keep, &info)) {
        send_usage(keep, &info, question->channel);
        return CAY_OK;
    }
    struct task *task = calloc(1, sizeof *task);
    if (!task)
        return cay_fail_memory(err, "server.usage");
    *task = (struct task){
        .channel = question->channel, .done = task_done, .tick = wait_for_sample};
    question->channel = -1;
    keep_add(keep, task);
    return CAY_OK;
}
