/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_CMD_SANDBOX_H
#define CLI_CMD_SANDBOX_H

#include "cli/output.h"
#include "cli/sandbox-options.h"

/* One command about sandboxes, as it was typed. */
struct sandbox_call {
    struct sandbox_options options;
    struct command_line line;
    struct output output;
    cay_config *config; /* of --config, or NULL, and what it says */
    struct cay_sandbox_options *configured;
};

/* What `cay` can do by itself.  The small program has no configurations, archives or
 * backends but native: there these calls become the whole program, which starts the
 * command again.  So a command must not have changed anything before them. */
struct sandbox_program {
    struct {
        int (*run)(struct sandbox_call *call, struct cay_error *err);
        const char *manual;
    } commands[SANDBOX_COMMANDS];
    int (*configure)(struct sandbox_call *call, struct cay_error *err);
    void (*release)(struct sandbox_call *call); /* what that took */

    /* A sandbox of the backend "local". */
    int (*open_local)(const char *id, cay_sandbox **ret_sandbox, struct cay_error *err);

    /* A directory or an archive into the sandbox and out of it: see cp-tree.c. */
    int (*send_dir)(cay_files *files, const char *source, const char *target,
                    struct cay_error *err);
    int (*send_archive)(cay_files *files, int fd, const char *target,
                        struct cay_error *err);
    int (*receive_dir)(cay_files *files, const char *source, const char *target,
                       struct cay_error *err);

    int (*collect_sessions)(size_t *ret_count, struct cay_error *err);
};
extern const struct sandbox_program sandbox_program;

/* Each returns a negative code with `err` filled in, or else the exit status. */
int cmd_run(struct sandbox_call *call, struct cay_error *err);
int cmd_create(struct sandbox_call *call, struct cay_error *err);
int cmd_exec(struct sandbox_call *call, struct cay_error *err);
int cmd_shell(struct sandbox_call *call, struct cay_error *err);
int cmd_ls(struct sandbox_call *call, struct cay_error *err);
int cmd_inspect(struct sandbox_call *call, struct cay_error *err);
int cmd_ps(struct sandbox_call *call, struct cay_error *err);
int cmd_logs(struct sandbox_call *call, struct cay_error *err);
int cmd_cp(struct sandbox_call *call, struct cay_error *err);
int cmd_cat(struct sandbox_call *call, struct cay_error *err);
int cmd_put(struct sandbox_call *call, struct cay_error *err);
int cmd_pause(struct sandbox_call *call, struct cay_error *err);
int cmd_resume(struct sandbox_call *call, struct cay_error *err);
int cmd_start(struct sandbox_call *call, struct cay_error *err);
int cmd_kill(struct sandbox_call *call, struct cay_error *err);
int cmd_rm(struct sandbox_call *call, struct cay_error *err);
int cmd_gc(struct sandbox_call *call, struct cay_error *err);
int cmd_doctor(struct sandbox_call *call, struct cay_error *err);

/* For the whole program's table. */
int cp_send_dir(cay_files *files, const char *source, const char *target,
                struct cay_error *err);
int cp_send_archive(cay_files *files, int fd, const char *target, struct cay_error *err);
int cp_receive_dir(cay_files *files, const char *source, const char *target,
                   struct cay_error *err);

#endif
