/* SPDX-License-Identifier: Apache-2.0 */
#ifndef AGENT_TASK_H
#define AGENT_TASK_H

#include "agent/results.h"
#include "agent/userfs.h"

/* What is known of a background command, whoever asks and however long ago it ended.
 *
 * It is kept in its user's base directory (results.h): a file "pid-N" names the directory
 * of the command, its tag and when it started; once somebody has learnt how it ended, a
 * file "status" in that directory says it.  The numbers of processes come again, tags
 * that nobody chose do not: it is by its tag that the process is reached. */

enum { TASK_TAG = 64 };

/* Elsewhere also there: the exit code, and what the shell that wrote it had to say.  All
 * that the command starts has the path of the former in its environment. */
#define TASK_EXIT "exit"
#define TASK_SAID "said.txt"
#define TASK_MARK "CAY_TASK="

struct task {
    struct userfs fs; /* as the user who started it */
    char user[16];    /* that user by number, if it is not who asks */
    struct results results;
    int pid;
    char tag[TASK_TAG];
    int64_t started_ms; /* since 1970 */
    uint64_t timeout_ms;
};
#define AUTO_TASK __attribute__((cleanup(task_done))) struct task

void task_done(struct task *task);

/* Writes down what the members but `fs` say. */
int task_save(struct userfs *fs, const struct task *task, struct cay_error *err);

/* CAY_E_NOT_FOUND "Background task not found: pid=N".  Always safe to task_done() after.
 */
int task_find(cay_sandbox *sandbox, const char *user, int pid, struct task *ret_task,
              struct cay_error *err);

/* How it ended: cause, exit code, signal and wall_us of the result count. */
struct task_end {
    struct cay_exec_result end;
    bool is_stopped; /* on request */
};

bool task_read_end(struct task *task, struct task_end *ret_end);
void task_save_end(struct task *task, const struct task_end *end);

#endif
