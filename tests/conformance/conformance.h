/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_CONFORMANCE_H
#define TESTS_CONFORMANCE_H

#include <stdio.h>

#include "../unit/harness.h"
#include "cay/backend.h"

/* What every backend is held to, whatever it is, through nothing but the public headers.
 * A case is a test that may make sandboxes by make(), and hold processes in
 * AUTO(cay_process): none is left when it ends, however it ends. */
#define CASE(name)                                                                       \
    static void case_##name(void);                                                       \
    TEST(name)                                                                           \
    {                                                                                    \
        begin_case();                                                                    \
        case_##name();                                                                   \
        end_case();                                                                      \
    }                                                                                    \
    static void case_##name(void)

void begin_case(void);
void end_case(void);

/* A new sandbox of the configuration, and another handle on it; both are the suite's. */
cay_sandbox *make(void);
cay_sandbox *reach(const char *id);
int try_to_reach(const char *id);

/* Sees to it that one that was not made by make() is removed at the end of the case. */
void note_made(const char *id);

/* Frees a handle early; the sandbox lives on, and is removed at the end of the case. */
void let_go(cay_sandbox *sandbox);

/* The backend under test, and what its configuration says. */
const struct cay_backend *backend(void);
const cay_config *configuration(void);

/* Something it lacks.  The case ends here: `what` is reported as unsupported, and is a
 * failure unless it was named beforehand (--lacks). */
_Noreturn void report_unsupported(const char *what);

/* For a call that it may lack: `function` is the one of the table, if that tells. */
#define MAY_LACK(what, function, call)                                                   \
    do {                                                                                 \
        memset(&err, 0, sizeof err);                                                     \
        int code_ = (call);                                                              \
        if (!(function))                                                                 \
            harness_code(__FILE__, __LINE__, #call, code_, CAY_E_UNSUPPORTED, &err);     \
        if (code_ == CAY_E_UNSUPPORTED)                                                  \
            report_unsupported(what);                                                    \
        harness_code(__FILE__, __LINE__, #call, code_, CAY_OK, &err);                    \
    } while (0)

/* --- Commands --- */

extern struct cay_exec_result result; /* of the last command */

enum { PATIENCE_MS = 60000 };

/* `sh -c script` with the other options filled in. */
void run_with(cay_sandbox *sandbox, const char *script, struct cay_exec_options options);

/* The same; ends within PATIENCE_MS, or the case fails. */
void run(cay_sandbox *sandbox, const char *script);

/* What `script` writes, which must succeed, without its last newline; until the next
 * command. */
const char *told(cay_sandbox *sandbox, const char *script);

/* --- Processes --- */

static inline void auto_cay_process(cay_process **process)
{
    cay_process_free(*process);
}

/* Words for a command line that nothing else on the machine has; until the next. */
const char *new_mark(void);

/* How many processes have that in their command line; and as this machine sees it, when
 * there is no sandbox to ask any more. */
int count_marked(cay_sandbox *sandbox, const char *mark);
int count_marked_here(const char *mark);

/* Waits, PATIENCE_MS at most, until it is so many or more (wrappers of a backend's own
 * may count, too), or none. */
void await_marked(cay_sandbox *sandbox, const char *mark, int count);

void rest_ms(long ms);
uint64_t now_ms(void);

/* Runs one of the acts below in a program of its own, which reaches the sandbox by its
 * id; it must not fail. */
void elsewhere(const char *act, const char *id, const char *argument);

struct act {
    const char *name;
    void (*run)(cay_sandbox *sandbox, const char *argument);
};
void register_act(const struct act *act);
#define ACT(act_name)                                                                    \
    static void act_##act_name(cay_sandbox *sandbox, const char *argument);              \
    __attribute__((constructor)) static void register_act_##act_name(void)               \
    {                                                                                    \
        static const struct act act = {#act_name, act_##act_name};                       \
        register_act(&act);                                                              \
    }                                                                                    \
    static void act_##act_name(cay_sandbox *sandbox, const char *argument)

#endif
