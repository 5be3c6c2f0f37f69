/* SPDX-License-Identifier: Apache-2.0 */
/* backend-registered COMMAND: registers a backend of this program's own, runs a command
 * in a new sandbox of it, and shows that the files outlive the handle.  The folders are
 * made below $FOLDERS. */
#include <stdio.h>
#include <string.h>

#include "folder.h"

static const char config_text[] = "type: folder\n"
                                  "prefix: ${env.FOLDERS}\n"
                                  "envs: {GREETING: hello}\n";

static int run(cay_sandbox *sandbox, const char *command, struct cay_error *err)
{
    const char *const argv[] = {"sh", "-c", command, NULL};
    const struct cay_exec_options options = {
        .size = sizeof options, .argv = argv, .timeout_ms = 60000};
    struct cay_exec_result result = {0};

    int code = cay_sandbox_exec(sandbox, &options, &result, err);
    if (!code)
        printf("%s%sexit code %d\n", result.out, result.error, result.exit_code);
    cay_exec_done(&result);
    return code;
}

/* Connects by the id, as another process would, and removes the sandbox. */
static int look_again(const cay_config *config, const char *id, struct cay_error *err)
{
    cay_sandbox *sandbox = NULL;

    int code = cay_backend_connect(config, id, &sandbox, err);
    if (!code)
        code = run(sandbox, "ls", err);
    if (!code)
        code = cay_sandbox_kill(sandbox, err);
    cay_sandbox_free(sandbox);
    return code;
}

int main(int argc, char **argv)
{
    struct cay_error err = {0};
    cay_config *config = NULL;
    cay_sandbox *sandbox = NULL;
    char id[64] = "";

    if (argc != 2) {
        fprintf(stderr, "usage: backend-registered COMMAND\n");
        return 2;
    }
    int code = cay_backend_register(&folder_backend, &err);
    if (!code)
        code = cay_config_parse(config_text, strlen(config_text), "main.c", NULL, &config,
                                &err);
    if (!code)
        code = cay_backend_create(config, &sandbox, &err);
    if (!code) {
        snprintf(id, sizeof id, "%s", cay_sandbox_id(sandbox));
        code = run(sandbox, argv[1], &err);
    }
    cay_sandbox_free(sandbox);
    if (*id && !code)
        code = look_again(config, id, &err);
    cay_config_free(config);
    if (code)
        fprintf(stderr, "%s: %s: %s (%s)\n", cay_code_slug(code), err.subject,
                err.message, err.hint);
    return cay_code_exit(code);
}
