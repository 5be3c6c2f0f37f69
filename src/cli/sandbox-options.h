/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_SANDBOX_OPTIONS_H
#define CLI_SANDBOX_OPTIONS_H

#include "cay/backend.h"
#include "cli/options.h"

/* The commands about sandboxes.  They share one table of options, so that an option is
 * spelled, checked and explained the same wherever it is taken. */
enum sandbox_command {
    SANDBOX_RUN,
    SANDBOX_CREATE,
    SANDBOX_EXEC,
    SANDBOX_SHELL,
    SANDBOX_LS,
    SANDBOX_INSPECT,
    SANDBOX_PS,
    SANDBOX_LOGS,
    SANDBOX_CP,
    SANDBOX_CAT,
    SANDBOX_PUT,
    SANDBOX_PAUSE,
    SANDBOX_RESUME,
    SANDBOX_START,
    SANDBOX_KILL,
    SANDBOX_RM,
    SANDBOX_GC,
    SANDBOX_DOCTOR,
    SANDBOX_COMMANDS
};

extern const struct grammar sandbox_grammar; /* its subcommands are in that order */

struct sandbox_options {
    bool help;
    int as_json; /* 0 or 1 */
    uint64_t memory, disk, timeout_ms, ttl_ms;
    uint32_t pids, cpu_percent;
    struct option_list env, binds;
    const char *user, *workdir, *config, *template_name, *tag, *name;
    unsigned require;     /* enum cay_layer */
    int network, storage; /* which of the choices; -1: none was made */
    bool interactive, tty, detach;
    bool follow, quiet, all, force;
    int signal;
};

/* What the options ask for, in the library's words; sandbox_plan_done() frees it. */
struct sandbox_plan {
    struct cay_sandbox_options sandbox;
    struct cay_exec_options exec;
    struct cay_bind *binds;
    char **binds_text; /* of -v, two of `given_count` each */
    size_t given_count;
    const char **env;
    char *template_name;
    char terminal[64]; /* "TERM=..." */
};

/* Options over what --config says, which may be NULL and has to stay.  Checks what no
 * table can: that -v names something that is there, that -t has a terminal.  `argv` is
 * the command's, or NULL. */
int sandbox_plan(const struct sandbox_options *options,
                 const struct cay_sandbox_options *configured, const char *const *argv,
                 struct sandbox_plan *ret_plan, struct cay_error *err);
void sandbox_plan_done(struct sandbox_plan *plan);

#endif
