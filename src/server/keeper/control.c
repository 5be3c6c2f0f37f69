/* SPDX-License-Identifier: Apache-2.0 */

/* What was started, and what is done to it besides reading its output. */
#include <nettle/base64.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/auto.h"
#include "base/error.h"
#include "server/keeper/started.h"

enum {
    RETAINED_MS = 30000, /* an end can be heard of for so long */
    STARTED_MAX = 1024,  /* more than run at a time */
    INPUT_MAX = 6 << 20,
    INPUT_SMALL = 64 << 10,  /* is always taken: who sends it waits for it */
    INPUT_WAITING = 64 << 20 /* of all that is larger */
};

static void auto_cay_process(cay_process **process)
{
    cay_process_free(*process);
}

#define AUTO_PROCESS __attribute__((cleanup(auto_cay_process))) cay_process *

/* --- What was started --- */

struct started **started_find(struct keep *keep, const char *which)
{
    struct started **link = &keep->started;
    char *end;
    long pid = strtol(which, &end, 10);

    while (*link && (*end ? strcmp((*link)->tag, which) != 0 : (*link)->pid != pid))
        link = &(*link)->next;
    return link;
}

static void drop_started(struct started **link)
{
    struct started *started = *link;

    *link = started->next;
    buf_done(&started->strings);
    free(started);
}

void started_tidy(struct keep *keep)
{
    struct started **link = &keep->started;
    unsigned count = 0;

    while (*link) {
        const struct started *started = *link;
        bool is_old =
            started->ended_ms && keep_now_ms() - started->ended_ms > RETAINED_MS;
        if (is_old || ++count > STARTED_MAX)
            drop_started(link);
        else
            link = &(*link)->next;
    }
}

void started_add(struct keep *keep, const struct question *question, int pid)
{
    struct started *started = calloc(1, sizeof *started);
    const char **strings = question->strings;

    started_tidy(keep);
    if (!started)
        return;
    started->pid = pid;
    started->has_pty = question->head.flags & START_PTY;
    if (question->head.numbers[START_TIMEOUT_MS] > 0)
        started->deadline_ms = keep_now_ms() + question->head.numbers[START_TIMEOUT_MS];
    started->argc = (uint32_t)question->head.numbers[START_ARGS];
    started->envc = (uint32_t)question->head.numbers[START_ENV];
    started->count = 1 + started->argc + started->envc;
    cay_copy_text(started->tag, sizeof started->tag, strings[1]);
    buf_init(&started->strings, CHANNEL_PACKET - 128);
    strings_add(&started->strings, strings[0]);
    for (uint32_t i = 0; i < started->argc + started->envc; i++)
        strings_add(&started->strings, strings[2 + i]);
    started->next = keep->started;
    keep->started = started;
}

/* --- Acting on one --- */

/* The handle of a stream that is there, or one of our own for the moment. */
static int reach(struct keep *keep, const char *which, cay_process **ret_process,
                 cay_process **ret_own, struct cay_error *err)
{
    const struct started *started = *started_find(keep, which);

    *ret_process = started ? started_handle(keep, started->pid) : NULL;
    if (*ret_process)
        return CAY_OK;
    if (started && started->ended_ms)
        return cay_fail(err, CAY_E_NOT_FOUND, 0, "process.find", which,
                        "the process has ended", "list the processes");
    int code = cay_process_attach(keep->sandbox, which, ret_own, err);
    *ret_process = *ret_own;
    return code;
}

int keep_signal(struct keep *keep, struct question *question, struct cay_error *err)
{
    AUTO_PROCESS own = NULL;
    cay_process *process = NULL;
    int code = reach(keep, question->strings[0], &process, &own, err);

    if (!code)
        code =
            cay_process_signal(process, (int)question->head.numbers[SIGNAL_NUMBER], err);
    if (!code)
        (void)tell_done(question->channel);
    return code;
}

int keep_resize(struct keep *keep, struct question *question, struct cay_error *err)
{
    AUTO_PROCESS own = NULL;
    cay_process *process = NULL;
    const int64_t *numbers = question->head.numbers;
    int code = reach(keep, question->strings[0], &process, &own, err);

    if (!code)
        code = cay_process_resize(process, (uint16_t)numbers[RESIZE_ROWS],
                                  (uint16_t)numbers[RESIZE_COLUMNS], err);
    if (!code)
        (void)tell_done(question->channel);
    return code;
}

int keep_close_input(struct keep *keep, struct question *question, struct cay_error *err)
{
    AUTO_PROCESS own = NULL;
    cay_process *process = NULL;
    const struct started *started = *started_find(keep, question->strings[0]);
    int code = reach(keep, question->strings[0], &process, &own, err);

    if (!code && started && started->has_pty)
        code = cay_fail(err, CAY_E_PROTOCOL, 0, "process.close-input", NULL,
                        "a terminal has no input that could be closed",
                        "send ^D as input instead");
    if (!code)
        code = cay_process_close_input(process, err);
    if (!code)
        (void)tell_done(question->channel);
    return code;
}

/* --- Input --- */

/* Input that the command does not take yet: tried again and again. */
struct input {
    struct task task;
    char which[64];
    int pid; /* what that means, as soon as it is known */
    size_t len, at;
    unsigned char data[];
};

static void input_done(struct task *task)
{
    free(task);
}

/* Whether some that came before it for the same process is still there: later tasks lead
 * to earlier ones. */
static bool has_to_wait(const struct input *input)
{
    for (const struct task *task = input->task.next; task; task = task->next)
        if (task->done == input_done && !task->is_over &&
            ((const struct input *)task)->pid == input->pid)
            return true;
    return false;
}

static size_t input_waiting(const struct keep *keep)
{
    size_t len = 0;

    for (const struct task *task = keep->tasks; task; task = task->next)
        if (task->done == input_done && !task->is_over)
            len += ((const struct input *)task)->len;
    return len;
}

static void feed(struct keep *keep, struct task *task)
{
    struct input *input = (struct input *)task;
    AUTO_PROCESS own = NULL;
    cay_process *process = NULL;
    struct cay_error error;
    size_t put = 0;
    char gone;
    int code = reach(keep, input->which, &process, &own, &error);

    if (!code)
        input->pid = cay_process_pid(process);
    bool waits = !code && has_to_wait(input);
    if (!code && !waits)
        code = cay_process_write(process, input->data + input->at, input->len - input->at,
                                 &put, &error);
    input->at += put;
    if (code)
        (void)tell_failed(task->channel, 0, &error);
    else if (input->at == input->len && !waits)
        (void)tell_done(task->channel);
    else if (recv(task->channel, &gone, 1, MSG_PEEK | MSG_DONTWAIT) != 0)
        return; /* who asked still waits */
    task->is_over = true;
}

static int fail_input(const char *message, struct cay_error *err)
{
    return cay_fail(err, CAY_E_INVALID, 0, "process.input", NULL, message,
                    "send base64, at most %d bytes at a time", INPUT_MAX);
}

static int fail_waiting(struct cay_error *err)
{
    char message[96];

    snprintf(message, sizeof message,
             "at most %d MiB of input can wait for the processes of a sandbox",
             INPUT_WAITING >> 20);
    return cay_fail(err, CAY_E_LIMIT, 0, "process.input", NULL, message,
                    "send more when they have read it");
}

int keep_input(struct keep *keep, struct question *question, struct cay_error *err)
{
    const char *text = question->strings[1];
    size_t text_len = strlen(text), len = BASE64_DECODE_LENGTH(text_len);
    const struct started *started = *started_find(keep, question->strings[0]);
    bool is_pty = question->head.numbers[INPUT_IS_PTY];
    struct base64_decode_ctx base64;

    if (len > INPUT_MAX)
        return fail_input("that is too much input at once", err);
    if (len > INPUT_SMALL && input_waiting(keep) + len > INPUT_WAITING)
        return fail_waiting(err);
    if (started && started->has_pty != is_pty)
        return cay_fail(err, CAY_E_INTERNAL, 0, "process.input", NULL,
                        is_pty ? "tty not assigned to process"
                               : "tty assigned to process",
                        "send %s input", started->has_pty ? "pty" : "stdin");
    struct input *input = calloc(1, sizeof *input + len);
    if (!input)
        return cay_fail_memory(err, "process.input");
    base64_decode_init(&base64);
    input->len = len;
    if (!base64_decode_update(&base64, &input->len, input->data, text_len, text) ||
        !base64_decode_final(&base64)) {
        free(input);
        return fail_input("the input is not base64", err);
    }
    cay_copy_text(input->which, sizeof input->which, question->strings[0]);
    input->task.channel = question->channel;
    input->task.done = input_done;
    input->task.tick = feed;
    question->channel = -1;
    keep_add(keep, &input->task);
    feed(keep, &input->task);
    return CAY_OK;
}
