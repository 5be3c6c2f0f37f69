/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CAY_CODE_H
#define CAY_CODE_H

#include "cay/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Code in contexts.  A context is an interpreter inside the sandbox that keeps its
 * variables from one execution to the next.  Contexts are processes of the sandbox: they
 * count against its limits, pause and end with it.  Each user and language has a default
 * context, created at its first execution.
 *
 * A context runs one execution at a time; others wait in the order of their calls.  Code
 * that fails is a result.  cay_context_language() lists the languages; cay_code_run() of
 * agent.h runs others, without a context. */

#define CAY_CONTEXT_MAX 32 /* bytes of a context's id or language, including the NUL */

/* One representation of a value. */
struct cay_code_part {
    const char *mime; /* "text/plain", "image/png"; "e2b/data", "e2b/chart" */
    const char *data; /* followed by a NUL */
    size_t len;
    bool is_json; /* data is JSON text; otherwise text, or the bytes of a picture */
};

/* A value that the code displays, or the value of its last expression. */
struct cay_code_value {
    bool is_main; /* of the last expression */
    int64_t time_ns;
    const struct cay_code_part *parts;
    size_t part_count;
};

struct cay_code_options {
    size_t size;
    const char *language;   /* NULL: python; must be NULL if `context` is set */
    const char *context;    /* id; NULL: the default context of the language */
    const char *user;       /* NULL: the default; contexts belong to a user */
    const char *const *env; /* for this execution: "NAME=value", NULL-terminated */
    /* Of the whole call, 0: none.  Code that runs too long is interrupted and keeps its
     * variables; if it does not react within 5 seconds, its interpreter is killed. */
    uint64_t timeout_ms;
    uint64_t output_limit; /* bytes of each stream; 0: CAY_OUTPUT_DEFAULT */
    /* Called as things happen; what a function gets is not in the result.  A return value
     * other than 0 interrupts the execution.  Text is UTF-8; `stream` is 1 or 2;
     * `time_ns` is nanoseconds since 1970. */
    int (*on_text)(void *cookie, int stream, const char *text, size_t len,
                   int64_t time_ns);
    int (*on_value)(void *cookie, const struct cay_code_value *value);
    void *cookie;
    int cancel_fd; /* when it is readable, the execution is interrupted; 0: none */
    /* Modules that Python has imported before it starts: see cay_warm_create().  For the
     * first context of the sandbox that Python runs in; others use the same list. */
    const char *preload;
};

enum cay_code_status {
    CAY_CODE_SUCCESS = 1,
    CAY_CODE_ERROR = 2, /* an exception: see error_name */
    CAY_CODE_TIMEOUT = 3,
    CAY_CODE_INTERRUPTED = 4, /* by cay_context_interrupt() or by a callback */
    CAY_CODE_LOST = 5         /* the interpreter ended, or its context was removed */
};

/* Free with cay_code_execution_done(). */
struct cay_code_execution {
    enum cay_code_status status;
    char context[CAY_CONTEXT_MAX], language[CAY_CONTEXT_MAX];
    uint64_t count; /* of executions in this interpreter; 0: it was not reported */
    char *out, *error;
    size_t out_len, error_len;
    uint64_t out_dropped, error_dropped; /* bytes beyond the limit */
    struct cay_code_value *values;
    size_t value_count;
    uint64_t values_dropped; /* beyond 64 MiB, 1000 values, 64 types; or not valid */
    /* NULL without an error.  "ContextRestarting": the interpreter ended. */
    char *error_name, *error_value, *traceback;
    /* Why this execution got a new interpreter, which has no variables; NULL if the
     * caller knows: it is the first execution, or the one after a restart. */
    char *restarted;
    uint64_t background_dropped; /* bytes of output since the execution before */
    bool is_warm;                /* the interpreter is a copy: cay_warm_create() */
};
CAY_PUBLIC void cay_code_execution_done(struct cay_code_execution *execution);

/* CAY_E_NOT_FOUND: no such context.  CAY_E_EXEC_FAILED: the sandbox lacks the
 * interpreter.  CAY_E_UNSUPPORTED: the backend has no contexts, or the language none.
 * CAY_E_LIMIT: too many contexts or waiting executions.  CAY_E_KILLED: the process in the
 * sandbox that serves contexts has ended; the next call starts it again. */
CAY_PUBLIC CAY_NODISC int cay_code_execute(cay_sandbox *sandbox, const char *code,
                                           size_t len,
                                           const struct cay_code_options *options,
                                           struct cay_code_execution *ret_execution,
                                           struct cay_error *err);

struct cay_context_info {
    char id[CAY_CONTEXT_MAX], language[CAY_CONTEXT_MAX];
    char *cwd; /* as requested; "" for the working directory */
    bool is_default, is_busy;
    int pid;          /* inside; 0: the interpreter has ended */
    uint32_t waiting; /* executions */
};

struct cay_context_options {
    size_t size;
    const char *language; /* NULL: python */
    const char *cwd;      /* NULL: the working directory */
    const char *user;
    const char *const *env;
    uint64_t timeout_ms; /* of the start; 0: none */
    const char *preload; /* as in cay_code_options */
};

/* Returns when the interpreter is ready.  At most 64 contexts of a user exist. */
CAY_PUBLIC CAY_NODISC int cay_context_create(cay_sandbox *sandbox,
                                             const struct cay_context_options *options,
                                             struct cay_context_info *ret_info,
                                             struct cay_error *err);
/* In the order of their creation.  Free with cay_context_infos_done(). */
struct cay_context_infos {
    struct cay_context_info *items;
    size_t count;
};
CAY_PUBLIC CAY_NODISC int cay_context_list(cay_sandbox *sandbox, const char *user,
                                           struct cay_context_infos *ret_infos,
                                           struct cay_error *err);
CAY_PUBLIC void cay_context_info_done(struct cay_context_info *info);
CAY_PUBLIC void cay_context_infos_done(struct cay_context_infos *infos);

/* A new interpreter for the same context, with no variables.  Its running execution ends
 * as CAY_CODE_LOST; waiting ones run in the new interpreter. */
CAY_PUBLIC CAY_NODISC int cay_context_restart(cay_sandbox *sandbox, const char *user,
                                              const char *id, struct cay_error *err);
CAY_PUBLIC CAY_NODISC int cay_context_remove(cay_sandbox *sandbox, const char *user,
                                             const char *id, struct cay_error *err);
/* Interrupts the running execution, if there is one; variables are kept. */
CAY_PUBLIC CAY_NODISC int cay_context_interrupt(cay_sandbox *sandbox, const char *user,
                                                const char *id, struct cay_error *err);

/* --- Contexts of forks ---------------------------------------------------------------
 *
 * A fork (cay_sandbox_fork()) has no processes.  But idle Python contexts can save their
 * memory to a file, and contexts of forks begin as copies of it, with variables, modules,
 * functions, open files, working directory and the environment that code has changed; the
 * global random generators get a new state.  Save, fork, and restore the contexts in each
 * fork before code runs there:
 *
 *   cay_contexts_save(sandbox, NULL, &saved, &err);
 *   cay_sandbox_fork(sandbox, NULL, NULL, count, forks, NULL, &err);
 *   cay_contexts_restore(forks[0], saved, &err); ...
 *
 * The file has no name, and its memory counts as that of the first sandbox; copies share
 * it until they write to it.  Contexts that cannot be saved begin anew, and their first
 * execution in a fork says so: those in which code runs, and those that have threads,
 * child processes, connections, pipes, files that were removed, memory that is shared
 * with others, or more than 4 GiB; other languages than Python; another C library than
 * glibc. */

typedef struct cay_saved_contexts cay_saved_contexts;

struct cay_saved_context {
    char id[CAY_CONTEXT_MAX], language[CAY_CONTEXT_MAX];
    bool is_default, is_saved;
    uint64_t bytes;   /* of its memory */
    char reason[256]; /* why it is not saved, which code inside may have written */
};

/* All contexts of the user (NULL: the default).  Free with cay_saved_contexts_free(). */
CAY_PUBLIC CAY_NODISC int cay_contexts_save(cay_sandbox *sandbox, const char *user,
                                            cay_saved_contexts **ret_saved,
                                            struct cay_error *err);
/* In the order of their creation, as long as `saved` exists. */
CAY_PUBLIC const struct cay_saved_context *
cay_saved_contexts_items(const cay_saved_contexts *saved, size_t *ret_count);

/* Creates contexts with the same ids in a fork, any number of times in different forks.
 * Their interpreters start with their first execution; one whose memory does not fit, for
 * instance since a library is another one, begins anew and says so.  CAY_E_EXISTS: code
 * has run in the fork. */
CAY_PUBLIC CAY_NODISC int cay_contexts_restore(cay_sandbox *fork,
                                               const cay_saved_contexts *saved,
                                               struct cay_error *err);
CAY_PUBLIC void cay_saved_contexts_free(cay_saved_contexts *saved);

/* --- Warm interpreters ---------------------------------------------------------------
 *
 * A Python that has started and imported modules is saved to a file, in a sandbox of its
 * template in which nothing else runs.  Contexts of the default user in later sandboxes
 * start as copies of it, in a fraction of the time; docs/design/warm.md says what copies
 * have in common.  The first execution in a template saves one in the background, by a
 * process of its own; the variable CAY_WARM=off prevents that.  A file is removed ten
 * minutes after its last use, and is not valid after a reboot. */

#define CAY_PRELOAD_MAX     256 /* bytes of a list of modules, including the NUL */
#define CAY_PRELOAD_DEFAULT "numpy,pandas,matplotlib.pyplot"

/* Saves one for this template (NULL: "host") and list of modules (NULL: the default, or
 * that of the variable CAY_PRELOAD), without those that the template lacks.  Does nothing
 * if there is one.  CAY_E_UNSUPPORTED: the interpreter cannot be saved, or the host
 * cannot share the file safely; CAY_E_BUSY: another process saves it now. */
CAY_PUBLIC CAY_NODISC int cay_warm_create(const char *template_name, const char *preload,
                                          struct cay_error *err);

struct cay_warm_info {
    char id[40], template_name[256], language[CAY_CONTEXT_MAX], preload[CAY_PRELOAD_MAX];
    uint64_t bytes; /* on disk */
    int64_t created_ms, used_ms;
    char failure[512]; /* why it could not be saved, or "" */
};

/* Of this user, oldest first.  Free the array with cay_free(). */
CAY_PUBLIC CAY_NODISC int cay_warm_list(struct cay_warm_info **ret_infos,
                                        size_t *ret_count, struct cay_error *err);

/* NULL: all of them.  Copies that run are not affected. */
CAY_PUBLIC CAY_NODISC int cay_warm_remove(const char *id, struct cay_error *err);

/* Names of the languages that have contexts; NULL past the last. */
CAY_PUBLIC const char *cay_context_language(size_t index);

#ifdef __cplusplus
}
#endif
#endif
