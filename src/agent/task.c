/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/task.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/error.h"

enum { RECORD_MAX = 512, OTHERS_MAX = 64 };

void task_done(struct task *task)
{
    results_done(&task->results);
    userfs_close(&task->fs);
}

static int fail_unknown(int pid, struct cay_error *err)
{
    char message[64];

    snprintf(message, sizeof message, "Background task not found: pid=%d", pid);
    return cay_fail(err, CAY_E_NOT_FOUND, 0, "background.find", NULL, message,
                    "the number is the background_pid of a command that was started in "
                    "the background in this sandbox");
}

/* --- Records --------------------------------------------------------------------------
 */

static char *record_path(const char *dir, int pid)
{
    char name[24];

    snprintf(name, sizeof name, "pid-%d", pid);
    return userfs_join(dir, name);
}

/* The content of a small file in `dir`; "" if there is none. */
static void read_record(struct userfs *fs, const char *path, char record[RECORD_MAX])
{
    struct cay_content content = {0};
    uint64_t total;

    *record = '\0';
    if (path &&
        userfs_read(fs, path, 0, RECORD_MAX - 1, &content, &total, NULL) == CAY_OK &&
        content.len < RECORD_MAX && !memchr(content.data, '\0', content.len))
        memcpy(record, content.data, content.len + 1);
    free(content.data);
}

/* The next word up to a blank; "" if there is none or it has no room. */
static void next_word(char **at, char *word, size_t room)
{
    size_t len = strcspn(*at, " \n");

    *word = '\0';
    if (len < room) {
        memcpy(word, *at, len);
        word[len] = '\0';
    }
    *at += len + ((*at)[len] != '\0');
}

static bool next_number(char **at, int64_t *ret_number)
{
    char *end;

    *ret_number = strtoll(*at, &end, 10);
    bool fine = end != *at && (*end == ' ' || *end == '\n');
    *at = end + fine;
    return fine;
}

int task_save(struct userfs *fs, const struct task *task, struct cay_error *err)
{
    char record[RECORD_MAX];
    const char *name = strrchr(task->results.dir, '/') + 1;
    AUTO_FREE char *path = record_path(task->results.base, task->pid);

    if (!path)
        return cay_fail_memory(err, "background.start");
    int len = snprintf(record, sizeof record, "%s %s %lld %llu %s\n", name, task->tag,
                       (long long)task->started_ms, (unsigned long long)task->timeout_ms,
                       cay_sandbox_id(fs->sandbox));
    return userfs_write(fs, path, record, (size_t)len, 0, NULL, err);
}

static bool is_name(const char *name)
{
    static const char hex[] = "0123456789abcdef";

    return strlen(name) == RESULTS_NAME - 1 && strspn(name, hex) == RESULTS_NAME - 1;
}

/* 1 if the base has a task of that number, 0 if not, or a code. */
static int load(struct userfs *fs, const char *base, int pid, struct task *ret_task,
                struct cay_error *err)
{
    AUTO_FREE char *path = record_path(base, pid);
    char record[RECORD_MAX], *at = record;
    char name[RESULTS_NAME], id[RECORD_MAX];
    int64_t started, timeout;

    read_record(fs, path, record);
    next_word(&at, name, sizeof name);
    next_word(&at, ret_task->tag, sizeof ret_task->tag);
    if (!is_name(name) || !*ret_task->tag || !next_number(&at, &started) ||
        !next_number(&at, &timeout))
        return 0;
    /* Several sandboxes may share the machine's /tmp. */
    next_word(&at, id, sizeof id);
    if (strcmp(id, cay_sandbox_id(fs->sandbox)) != 0)
        return 0;
    ret_task->pid = pid;
    ret_task->started_ms = started;
    ret_task->timeout_ms = (uint64_t)timeout;
    int code = results_at(base, name, &ret_task->results, err);
    return code ? code : 1;
}

/* That of another user is looked at with that user's rights, not with ours. */
static int load_of(cay_sandbox *sandbox, const struct results_base *base, int pid,
                   struct task *ret_task, struct cay_error *err)
{
    snprintf(ret_task->user, sizeof ret_task->user, "%u", base->uid);
    userfs_close(&ret_task->fs);
    if (userfs_open(sandbox, ret_task->user, &ret_task->fs, NULL) != CAY_OK)
        return 0;
    return load(&ret_task->fs, base->path, pid, ret_task, err);
}

int task_find(cay_sandbox *sandbox, const char *user, int pid, struct task *ret_task,
              struct cay_error *err)
{
    AUTO_BASES bases = {0};
    int found = 0;

    *ret_task = (struct task){0};
    int code = userfs_open(sandbox, user, &ret_task->fs, err);
    if (!code)
        code = results_bases(&ret_task->fs, &bases, err);
    if (code)
        return code;
    for (size_t i = 0; !found && i < bases.count; i++)
        if (bases.items[i].is_own)
            found = load(&ret_task->fs, bases.items[i].path, pid, ret_task, err);
    unsigned looks = 0; /* anybody can make directories that look like bases */
    for (size_t i = 0; !found && i < bases.count && looks < OTHERS_MAX; i++)
        if (!bases.items[i].is_own && ++looks)
            found = load_of(sandbox, &bases.items[i], pid, ret_task, err);
    return found > 0 ? CAY_OK : found < 0 ? found : fail_unknown(pid, err);
}

/* --- Ends -----------------------------------------------------------------------------
 */

bool task_read_end(struct task *task, struct task_end *ret_end)
{
    AUTO_FREE char *path = userfs_join(task->results.dir, "status");
    char record[RECORD_MAX], *at = record;
    int64_t numbers[5] = {0};

    read_record(&task->fs, path, record);
    for (size_t i = 0; i < 5; i++)
        if (!next_number(&at, &numbers[i]))
            return false;
    *ret_end = (struct task_end){.end = {.cause = (enum cay_cause)numbers[0],
                                         .exit_code = (int)numbers[1],
                                         .signal = (int)numbers[2],
                                         .wall_us = (uint64_t)numbers[3]},
                                 .is_stopped = numbers[4] != 0};
    return numbers[0] >= CAY_CAUSE_EXITED && numbers[0] <= CAY_CAUSE_NOT_STARTED;
}

void task_save_end(struct task *task, const struct task_end *end)
{
    AUTO_FREE char *path = userfs_join(task->results.dir, "status");
    char record[RECORD_MAX];

    if (!path)
        return;
    int len = snprintf(record, sizeof record, "%d %d %d %llu %d\n", (int)end->end.cause,
                       end->end.exit_code, end->end.signal,
                       (unsigned long long)end->end.wall_us, end->is_stopped);
    (void)!userfs_write(&task->fs, path, record, (size_t)len, 0, NULL, NULL);
}
