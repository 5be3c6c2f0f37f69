/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_AGENT_H
#define TESTS_AGENT_H

#include <signal.h>
#include <time.h>

#include "../sandbox/ledger.h"
#include "base/clock.h"
#include "cay/agent.h"
#include "far.h"

/* One sandbox and what is done with it.  Most tests are made twice: once on a native
 * sandbox, and once on one that seems to be somewhere else. */
#define BOTH(name)                                                                       \
    static void both_##name(cay_sandbox *sandbox);                                       \
    TEST(name)                                                                           \
    {                                                                                    \
        AUTO(cay_sandbox) sandbox = make_sandbox(NULL);                                  \
        both_##name(sandbox);                                                            \
    }                                                                                    \
    TEST(name##_also_far_away)                                                           \
    {                                                                                    \
        AUTO(cay_sandbox) native = make_sandbox(NULL);                                   \
        __attribute__((cleanup(auto_far))) cay_sandbox *sandbox = far_new(native);       \
        both_##name(sandbox);                                                            \
    }                                                                                    \
    static void both_##name(cay_sandbox *sandbox)

static inline void auto_far(cay_sandbox **sandbox)
{
    far_free(*sandbox);
}

static inline void clear_answer(void);

/* The result of the last command; until the next, or the end of the test. */
static struct cay_command_result answer;

static inline void clear_answer(void)
{
    cay_command_done(&answer);
}

static inline void bash_with(cay_sandbox *sandbox, const char *command,
                             struct cay_command_options options)
{
    options.size = sizeof options;
    clear_answer();
    ASSERT_OK(cay_bash_run(sandbox, command, &options, &answer, &err));
    ASSERT(answer.out && answer.error);
    ASSERT_INT(answer.out[answer.out_len], 0);
    ASSERT_INT(answer.error[answer.error_len], 0);
}

/* A command that writes and does not end.  It has the options' timeout, or as much more
 * as it needs to write something first; that is given. */
static inline uint64_t bash_late(cay_sandbox *sandbox, const char *command,
                                 struct cay_command_options options)
{
    for (;; options.timeout_ms *= 4) {
        bash_with(sandbox, command, options);
        ASSERT_INT(answer.status, CAY_STATUS_TIMEOUT);
        if (answer.out_len > 0 || options.timeout_ms > PATIENCE_MS)
            return options.timeout_ms;
    }
}

static inline void bash(cay_sandbox *sandbox, const char *command)
{
    bash_with(sandbox, command, (struct cay_command_options){0});
}

/* What a command says, which must succeed, without its last newline. */
static inline const char *says(cay_sandbox *sandbox, const char *command)
{
    bash(sandbox, command);
    if (answer.status != CAY_STATUS_SUCCESS)
        harness_fail(__FILE__, __LINE__, "%s: %s: %s", command, answer.message,
                     answer.error);
    if (answer.out_len && answer.out[answer.out_len - 1] == '\n')
        answer.out[answer.out_len - 1] = '\0';
    return answer.out;
}

static inline void put_inside(cay_sandbox *sandbox, const char *path, const char *text)
{
    ASSERT_OK(cay_file_write(sandbox, NULL, path, text, strlen(text), 0, &err));
}

static inline void expect_inside(cay_sandbox *sandbox, const char *path, const char *text)
{
    struct cay_content content = {0};

    ASSERT_OK(cay_file_read(sandbox, NULL, path, &content, &err));
    ASSERT_MEM(content.data, content.len, text, strlen(text));
    ASSERT_INT(content.data[content.len], 0);
    cay_free(content.data);
}

static inline int read_code(cay_sandbox *sandbox, const char *user, const char *path)
{
    struct cay_content content = {0};
    int code = cay_file_read(sandbox, user, path, &content, &err);

    cay_free(content.data);
    return code;
}

static inline void rest_ms(long ms)
{
    const struct timespec pause = {ms / 1000, ms % 1000 * 1000000};

    nanosleep(&pause, NULL);
}

/* Names that break what is put together from text. */
static const char *const odd_names[] = {
    "with space", "quote'd", "double\"d", "new\nline",   "-rf",      "--",
    "$(id)",      "`id`",    "back\\",    "st*r [a-z]?", "\xFF\xFE", "~",
    "a;b|c&d",    "#hash",   "é",         "tab\there"};
enum { ODD_NAMES = sizeof odd_names / sizeof *odd_names };

#endif
