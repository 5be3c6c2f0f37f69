/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_CMD_SANDBOX_H
#define CLI_CMD_SANDBOX_H

#include "cay/backend.h"
#include "cay/code.h"
#include "cay/sandbox.h"
#include "cli/cli.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/secret.h"

/* The subcommands of sandbox_grammar.  They share one table of options, so that an option
 * is spelled, checked and explained the same wherever it is taken. */
enum sandbox_command {
    SANDBOX_RUN,
    SANDBOX_TRY,
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
    SANDBOX_NETWORK,
    SANDBOX_EVENTS,
    SANDBOX_FORWARD,
    SANDBOX_PORT,
    SANDBOX_CHECKPOINT,
    SANDBOX_ROLLBACK,
    SANDBOX_CHECKPOINTS,
    SANDBOX_FORK,
    SANDBOX_PAUSE,
    SANDBOX_RESUME,
    SANDBOX_START,
    SANDBOX_KILL,
    SANDBOX_RM,
    SANDBOX_GC,
    SANDBOX_DOCTOR,
    SANDBOX_MCP,
    SANDBOX_COMMANDS
};

/* The options as the library's structs; sandbox_plan_done() frees them. */
struct sandbox_plan {
    struct cay_sandbox_options sandbox;
    struct cay_exec_options exec;
    struct cay_bind *binds;
    char **binds_text; /* of -v, two of `given_count` each */
    size_t given_count;
    const char **env;
    char *template_name, *from;
    const char **networks; /* of --join and the configuration, or NULL */
    const char **approve;  /* the same of --approve */
    char scope[4096];      /* of its rules; "" if the library chooses it */
    struct cli_secrets secrets;
    cay_policy *policy; /* with the rules of --allow and --deny, or NULL */
    char terminal[64];  /* "TERM=..." */
};

/* Options over what --config says, which may be NULL and has to stay.  Checks what no
 * table can: that -v names something that is there, that -t has a terminal.  `argv` is
 * the command's, or NULL. */
int sandbox_plan(const struct options *options,
                 const struct cay_sandbox_options *configured, const char *const *argv,
                 struct sandbox_plan *ret_plan, struct cay_error *err);
/* Whether connections of the sandbox wait for approval, by the options or the
 * configuration. */
bool sandbox_plan_asks_egress(const struct sandbox_plan *plan);

void sandbox_plan_done(struct sandbox_plan *plan);

/* The sandboxes of cay fork. */
struct forks {
    cay_sandbox **made;
    struct cay_error *errors; /* NULL: all or none */
    size_t count;
    bool has_contexts;
    cay_saved_contexts *saved; /* or NULL */
};

/* Its option --contexts: fork-contexts.c. */
struct fork_contexts {
    int (*save)(const char *word, const struct cay_sandbox_options *options,
                struct forks *forks, struct cay_error *err);
    int (*restore)(struct forks *forks, struct cay_error *err);
    void (*print)(const struct forks *forks, struct json *json); /* NULL: as text */
    void (*done)(struct forks *forks);
};
extern const struct fork_contexts fork_contexts;

/* What only the full program has: configurations, archives, and backends besides native.
 * In the small program these functions execute the full one, which starts the command
 * again.  So a command must not have changed anything before it calls them. */
struct sandbox_program {
    call_runner *configure;
    void (*release)(struct call *call); /* what that took */

    /* cay_process_start(), which asks on the terminal if the command needs approval. */
    int (*start)(cay_sandbox *sandbox, const struct cay_exec_options *options,
                 cay_process **ret_process, struct cay_error *err);

    /* A process that requests approval of the sandbox's connections: egress.c. */
    int (*watch_egress)(cay_sandbox *sandbox, struct cay_error *err);

    /* A sandbox of the backend "local". */
    int (*open_local)(const char *id, cay_sandbox **ret_sandbox, struct cay_error *err);

    /* A directory or an archive into the sandbox and out of it: see cp-tree.c. */
    int (*send_dir)(cay_files *files, const char *source, const char *target,
                    struct cay_error *err);
    int (*send_archive)(cay_files *files, int fd, const char *target,
                        struct cay_error *err);
    int (*receive_dir)(cay_files *files, const char *source, const char *target,
                       struct cay_error *err);

    call_runner *try, *mcp;
    /* The same commands for a try; without an argument the newest one of this directory.
     * *ret_is_try: the argument names one. */
    int (*checkpoint_try)(struct call *call, bool *ret_is_try, struct cay_error *err);
    int (*collect_sessions)(size_t *ret_count, struct cay_error *err);
    call_runner *doctor;

    /* Before anything is printed: the small program executes the full one. */
    int (*list_warm)(struct cay_warm_info **ret_infos, size_t *ret_count,
                     struct cay_error *err);
    int (*rollback)(cay_sandbox *sandbox, const char *which,
                    const struct cay_rollback_options *options,
                    struct cay_rollback *ret_rollback, struct cay_error *err);
    const struct fork_contexts *contexts; /* NULL in the small program */
};
extern const struct sandbox_program sandbox_program;

call_runner cmd_checkpoint, cmd_rollback, cmd_checkpoints, cmd_fork;
int cmd_checkpoint_try(struct call *call, bool *ret_is_try, struct cay_error *err);

/* What those commands print. */
void checkpoint_print(struct call *call, const struct cay_checkpoint *checkpoint);
void rollback_print(struct call *call, const struct cay_rollback *rollback);
int checkpoints_print(struct call *call, struct cay_checkpoint *all, size_t count,
                      struct cay_error *err);

call_runner cmd_run, cmd_create, cmd_exec, cmd_shell, cmd_ls, cmd_inspect, cmd_ps,
    cmd_logs, cmd_network, cmd_events, cmd_forward, cmd_port, cmd_cp, cmd_cat, cmd_put,
    cmd_life, cmd_kill, cmd_gc, cmd_doctor, cmd_mcp, cmd_try;

/* Runs the command of a call in a new sandbox, after `adjust` has changed the plan, and
 * calls `after` once that is gone; both may be NULL. */
typedef int plan_adjuster(struct sandbox_plan *plan, void *cookie, struct cay_error *err);
int run_in_new(struct call *call, plan_adjuster *adjust, void (*after)(void *cookie),
               void *cookie, struct cay_error *err);

/* The same on a copy-on-write view of a directory, with a summary afterwards. */
int try_run(struct call *call, plan_adjuster *adjust, void *cookie,
            struct cay_error *err);

/* A copy between the host and a sandbox, as cay cp does it. */
struct cp_ends {
    const char *id, *path; /* inside */
    const char *host;      /* a path of the host, or "-" */
    bool is_out;           /* from the inside to the host */
};
typedef int cp_opener(const char *id, cay_sandbox **ret_sandbox, struct cay_error *err);
int cp_copy(const struct cp_ends *ends, const char *user, cp_opener *opener,
            struct cay_error *err);

/* Where the path begins in "ID:PATH" or "NAME:PATH"; NULL if the word is no such thing.
 * A file of this machine with a colon is written ./FILE. */
const char *cp_path_inside(const char *word);

/* For the whole program's table. */
int cp_send_dir(cay_files *files, const char *source, const char *target,
                struct cay_error *err);
int cp_send_archive(cay_files *files, int fd, const char *target, struct cay_error *err);
int cp_receive_dir(cay_files *files, const char *source, const char *target,
                   struct cay_error *err);

/* The ports of -p, in a process that ends with the sandbox. */
int forward_publish(cay_sandbox *sandbox, const struct option_list *ports,
                    struct cay_error *err);

/* Of an option: "500ms", "30", "2m" into uint64_t milliseconds. */
bool sandbox_parse_time(const char *text, void *field);
#define SIZE_ALLOWED "for example 512M or 2G"
#define TIME_ALLOWED "for example 500ms, 30 (seconds), 2m or 1h"

/* The sandbox of this id, or the only one whose id starts so.  CAY_E_NOT_FOUND if there
 * is none, CAY_E_INVALID if there are several; the hint names them. */
int find_sandbox(const char *word, cay_sandbox **ret_sandbox, struct cay_error *err);

#endif
