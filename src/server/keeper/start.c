/* SPDX-License-Identifier: Apache-2.0 */

/* The start and ready commands of a template. */
#include <jansson.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/error.h"
#include "server/keeper/keeper.h"

static const char op[] = "server.start";

enum { RETRY_MS = 2000, LOOK_MS = 200, READY_MS = 600 * 1000 };

/* Whether the command has ended with an error. */
static bool has_failed(cay_process *process, int *ret_code)
{
    struct cay_exec_result result;

    if (cay_process_wait(process, 0, &result, NULL) != CAY_OK)
        return false;
    *ret_code = result.exit_code;
    cay_exec_done(&result);
    return *ret_code != 0;
}

static bool is_ready(cay_sandbox *sandbox, const char *const *argv,
                     const char *const *env)
{
    const struct cay_exec_options exec = {
        .size = sizeof exec, .argv = argv, .env = env, .timeout_ms = READY_MS};
    struct cay_exec_result result;

    if (keeper_allow_own(sandbox, &exec, NULL) != CAY_OK ||
        cay_sandbox_exec(sandbox, &exec, &result, NULL) != CAY_OK)
        return false;
    bool is_done = result.cause == CAY_CAUSE_EXITED && result.exit_code == 0;
    cay_exec_done(&result);
    return is_done;
}

static int wait_ready(cay_sandbox *sandbox, cay_process *process, const char *ready,
                      const char *const *env, bool (*is_cancelled)(void *cookie),
                      void *cookie, struct cay_error *err)
{
    const char *const argv[] = {"/bin/bash", "-l", "-c", ready, NULL};
    int64_t end_ms = keeper_now_ms() + READY_MS;
    int exit_code = 0;

    for (;;) {
        bool is_done = is_ready(sandbox, argv, env);
        if (process && has_failed(process, &exit_code))
            return cay_fail(err, CAY_E_EXEC_FAILED, 0, op, NULL,
                            "the start command failed", "exit code %d", exit_code);
        if (is_done)
            return CAY_OK;
        for (int64_t next_ms = keeper_now_ms() + RETRY_MS; keeper_now_ms() < next_ms;) {
            if (keeper_now_ms() > end_ms || (is_cancelled && is_cancelled(cookie)))
                return cay_fail(err, CAY_E_TIMEOUT, 0, op, NULL,
                                "the ready command did not succeed in time",
                                "it is repeated until its exit code is 0");
            (void)poll(NULL, 0, LOOK_MS);
        }
    }
}

/* The variables of the template's configuration; its text is Cay's own. */
static const char **load_env(const char *name, json_t **ret_config)
{
    struct cay_template_info info;
    char *text = NULL;
    const char **env = NULL;

    *ret_config = NULL;
    if (cay_template_inspect(name, &info, &text, NULL) == CAY_OK)
        *ret_config = json_loads(text, 0, NULL);
    cay_free(text);
    const json_t *list = json_object_get(*ret_config, "Env");
    env = calloc(json_array_size(list) + 1, sizeof *env);
    for (size_t i = 0; env && i < json_array_size(list); i++)
        env[i] = json_string_value(json_array_get(list, i));
    return env;
}

int keeper_start_command(cay_sandbox *sandbox, const char *template_name,
                         const char *start, const char *ready,
                         bool (*is_cancelled)(void *cookie), void *cookie,
                         struct cay_error *err)
{
    json_t *config = NULL;
    AUTO_FREE const char **env = load_env(template_name, &config);
    const char *const argv[] = {"/bin/bash", "-l", "-c", start, NULL};
    const struct cay_exec_options exec = {.size = sizeof exec,
                                          .flags = CAY_EXEC_BACKGROUND,
                                          .argv = argv,
                                          .env = env,
                                          .tag = "start_cmd"};
    cay_process *process = NULL;
    int code = env ? CAY_OK : cay_fail_memory(err, op);

    if (!code && *start)
        code = keeper_allow_own(sandbox, &exec, err);
    if (!code && *start)
        code = cay_process_start(sandbox, &exec, &process, err);
    if (!code && (*start || *ready))
        code = wait_ready(sandbox, process, *ready ? ready : "sleep 20", env,
                          is_cancelled, cookie, err);
    cay_process_free(process);
    json_decref(config);
    return code;
}
