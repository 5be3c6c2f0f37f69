/* SPDX-License-Identifier: Apache-2.0 */

/* All the commands about sandboxes, and what --config gives them. */
#include <string.h>

#include "base/error.h"
#include "cay/backend.h"
#include "cay/session.h"
#include "cli/cmd-sandbox.h"

static const char op[] = "cli.options";

static int configure(struct sandbox_call *call, struct cay_error *err)
{
    const char *file = call->options.config;
    int code = cay_config_load(file, &call->config, err);

    if (code)
        return code;
    const char *type = cay_config_type(call->config);
    if (strcmp(type, "native") != 0)
        return cay_fail(err, CAY_E_UNSUPPORTED, 0, op, file,
                        "this command creates native sandboxes only",
                        "its type is %s: cay session start --config %s starts it", type,
                        file);
    if (cay_config_has(call->config, "sandbox_id"))
        return cay_fail(
            err, CAY_E_INVALID, 0, op, file,
            "the configuration has a sandbox_id, but this command creates a new sandbox",
            "cay exec %s -- COMMAND uses that one",
            cay_config_text(call->config, "sandbox_id"));
    return cay_sandbox_options_new(call->config, &call->configured, err);
}

static void release(struct sandbox_call *call)
{
    cay_sandbox_options_free(call->configured);
    cay_config_free(call->config);
}

/* A local sandbox is not isolated, so the library opens one only for a caller that asks
 * for this backend by name.  Here the user names it by its id. */
static int open_local(const char *id, cay_sandbox **ret_sandbox, struct cay_error *err)
{
    static const char local[] = "type: local";
    cay_config *config = NULL;
    int code = cay_config_parse(local, strlen(local), "cay", NULL, &config, err);

    if (!code)
        code = cay_backend_connect(config, id, ret_sandbox, err);
    cay_config_free(config);
    return code;
}

/* Removes what session starts that crashed have left.  If there is no directory for
 * sessions, there are none. */
static int collect_sessions(size_t *ret_count, struct cay_error *err)
{
    struct cay_error own;
    cay_store *store = NULL;
    int code = cay_store_open(NULL, &store, &own);

    if (code == CAY_E_UNAVAILABLE)
        return CAY_OK;
    if (!code)
        code = cay_store_collect(store, ret_count, &own);
    cay_store_free(store);
    if (code)
        *err = own;
    return code;
}

const struct sandbox_program sandbox_program = {
    .commands =
        {
            [SANDBOX_RUN] = {cmd_run, "cay-run"},
            [SANDBOX_CREATE] = {cmd_create, "cay-create"},
            [SANDBOX_EXEC] = {cmd_exec, "cay-exec"},
            [SANDBOX_SHELL] = {cmd_shell, "cay-exec"},
            [SANDBOX_LS] = {cmd_ls, "cay-ls"},
            [SANDBOX_INSPECT] = {cmd_inspect, "cay-ls"},
            [SANDBOX_PS] = {cmd_ps, "cay-ps"},
            [SANDBOX_LOGS] = {cmd_logs, "cay-ps"},
            [SANDBOX_CP] = {cmd_cp, "cay-cp"},
            [SANDBOX_CAT] = {cmd_cat, "cay-cp"},
            [SANDBOX_PUT] = {cmd_put, "cay-cp"},
            [SANDBOX_PAUSE] = {cmd_pause, "cay-kill"},
            [SANDBOX_RESUME] = {cmd_resume, "cay-kill"},
            [SANDBOX_START] = {cmd_start, "cay-kill"},
            [SANDBOX_KILL] = {cmd_kill, "cay-kill"},
            [SANDBOX_RM] = {cmd_rm, "cay-kill"},
            [SANDBOX_GC] = {cmd_gc, "cay-kill"},
            [SANDBOX_DOCTOR] = {cmd_doctor, "cay-doctor"},
        },
    .configure = configure,
    .release = release,
    .open_local = open_local,
    .send_dir = cp_send_dir,
    .send_archive = cp_send_archive,
    .receive_dir = cp_receive_dir,
    .collect_sessions = collect_sessions,
};
