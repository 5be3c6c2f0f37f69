/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_PROCESSES_H
#define TESTS_PROCESSES_H

#include <poll.h>
#include <sys/wait.h>
#include <time.h>

#include "ledger.h"

static inline void auto_cay_process(cay_process **process)
{
    cay_process_free(*process);
}

/* `sh -c script` with the other options, whose argv and size are filled in. */
static inline int start_script(cay_sandbox *sandbox, const char *script,
                               struct cay_exec_options options, cay_process **ret_process)
{
    const char *const argv[] = {"sh", "-c", script, NULL};

    options.size = sizeof options;
    options.argv = argv;
    return cay_process_start(sandbox, &options, ret_process, &err);
}

static inline cay_process *start(cay_sandbox *sandbox, unsigned flags, const char *script)
{
    cay_process *process = NULL;

    ASSERT_OK(start_script(sandbox, script, (struct cay_exec_options){.flags = flags},
                           &process));
    ASSERT(cay_process_pid(process) > 1);
    return process;
}

static inline cay_process *attach(cay_sandbox *sandbox, const char *which)
{
    cay_process *process = NULL;

    ASSERT_OK(cay_process_attach(sandbox, which, &process, &err));
    return process;
}

/* The result of waiting is in `result`, until the next. */
static inline void wait_for(cay_process *process)
{
    cay_exec_done(&result);
    ASSERT_OK(cay_process_wait(process, PATIENCE_MS, &result, &err));
}

static inline bool poll_process(const cay_process *process, int timeout_ms)
{
    struct pollfd waiting = {.fd = cay_process_fd(process), .events = POLLIN};

    return poll(&waiting, 1, timeout_ms) > 0;
}

/* Output as it comes, of both streams. */
struct heard {
    char text[2][4096]; /* the first bytes, NUL-terminated */
    uint64_t len[2], dropped[2];
    bool ended;
};

static inline void hear_once(cay_process *process, struct heard *heard)
{
    char data[65536];
    int stream = 0;
    size_t len = 0;
    uint64_t dropped = 0;

    ASSERT_OK(
        cay_process_read(process, &stream, data, sizeof data, &len, &dropped, &err));
    ASSERT(stream >= -1 && stream <= 2);
    heard->ended = stream < 0;
    if (stream <= 0) {
        ASSERT_INT(len, 0);
        return;
    }
    int i = stream - 1;
    for (size_t k = 0; k < len && heard->len[i] + k < sizeof heard->text[i] - 1; k++)
        heard->text[i][heard->len[i] + k] = data[k];
    heard->len[i] += len;
    heard->dropped[i] += dropped;
}

/* Until its output has `part` in it. */
static inline void hear_until(cay_process *process, struct heard *heard, int stream,
                              const char *part)
{
    for (int i = 0; i < 10000 && !strstr(heard->text[stream - 1], part); i++) {
        ASSERT(poll_process(process, PATIENCE_MS));
        hear_once(process, heard);
        if (heard->ended)
            break;
    }
    ASSERT_HAS(heard->text[stream - 1], part);
}

static inline void hear_all(cay_process *process, struct heard *heard)
{
    while (!heard->ended) {
        ASSERT(poll_process(process, PATIENCE_MS));
        hear_once(process, heard);
    }
}

static inline void rest_ms(long ms)
{
    const struct timespec pause = {ms / 1000, ms % 1000 * 1000000};

    nanosleep(&pause, NULL);
}

static inline uint64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Runs `act` in another process, which must not fail. */
static inline void elsewhere(void (*act)(const char *id), const char *id)
{
    int status = 0;
    pid_t child = fork();

    ASSERT(child >= 0);
    if (child == 0) {
        act(id);
        fflush(stdout);
        _exit(0);
    }
    ASSERT_INT(waitpid(child, &status, 0), child);
    ASSERT_INT(status, 0);
}

static inline cay_sandbox *open_sandbox(const char *id)
{
    cay_sandbox *sandbox = NULL;

    ASSERT_OK(cay_sandbox_open(id, &sandbox, &err));
    return sandbox;
}

#endif
