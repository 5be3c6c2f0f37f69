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
};

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

#endif
