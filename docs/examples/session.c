/* SPDX-License-Identifier: Apache-2.0 */
/* session CONFIG SESSION COMMAND: runs a shell command in a session's sandbox, which is
 * as the file says and is found again the next time, with all that is in it; then it is
 * paused, stopped or kept, as the file says, too. */
#include <cay/session.h>
#include <stdio.h>

static int run(cay_sandbox *sandbox, const cay_config *config, const char *command,
               struct cay_error *err)
{
    struct cay_command_options options = {.size = sizeof options, .timeout_ms = 60000};
    struct cay_command_result result = {0};

    cay_command_configure(config, &options);
    int code = cay_bash_run(sandbox, command, &options, &result, err);
    if (!code)
        printf("%s%s[%s, exit code %d]\n", result.out, result.error,
               cay_status_slug(result.status), result.exit_code);
    cay_command_done(&result);
    return code;
}

int main(int argc, char **argv)
{
    struct cay_error err = {0};
    cay_config *config = NULL;
    cay_store *store = NULL;
    cay_manager *manager = NULL;
    cay_sandbox *sandbox = NULL;

    if (argc != 4) {
        fprintf(stderr, "usage: session CONFIG SESSION COMMAND\n");
        return 2;
    }
    int code = cay_config_load(argv[1], &config, &err);
    if (!code)
        code = cay_store_open(NULL, &store, &err);
    const struct cay_manager_options options = {.size = sizeof options,
                                                .store = store,
                                                .user_id = "example",
                                                .session_id = argv[2],
                                                .config = config};
    if (!code)
        code = cay_manager_new(&options, &manager, &err);
    if (!code)
        code = cay_manager_sandbox(manager, &sandbox, &err);
    if (!code)
        code = run(sandbox, config, argv[3], &err);
    if (!code)
        code = cay_manager_run_done(manager, &err);
    if (code)
        fprintf(stderr, "%s: %s: %s (%s)\n", cay_code_slug(code), err.subject,
                err.message, err.hint);
    cay_manager_free(manager);
    cay_store_free(store);
    cay_config_free(config);
    return cay_code_exit(code);
}
