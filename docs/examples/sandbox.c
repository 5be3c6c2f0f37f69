/* SPDX-License-Identifier: Apache-2.0 */
/* sandbox COMMAND [ARGUMENT...]: creates a sandbox with 256 MiB of memory and no network,
 * runs the command in it for at most ten seconds, prints the output and exits with the
 * command's status.  The sandbox ends with this program, however that ends. */
#include <cay/sandbox.h>
#include <stdio.h>
#include <string.h>

static int run(cay_sandbox *sandbox, const char *const *argv, int *ret_status,
               struct cay_error *err)
{
    const struct cay_exec_options options = {
        .size = sizeof options, .argv = argv, .timeout_ms = 10000};
    struct cay_exec_result result = {0};

    int code = cay_sandbox_exec(sandbox, &options, &result, err);
    if (code)
        return code;
    fwrite(result.out, 1, result.out_len, stdout);
    fwrite(result.error, 1, result.error_len, stderr);
    if (result.cause == CAY_CAUSE_TIMEOUT)
        fprintf(stderr, "%s: stopped after ten seconds\n", argv[0]);
    if (result.cause == CAY_CAUSE_NOT_STARTED)
        fprintf(stderr, "%s: %s\n", argv[0], strerror(result.exec_errno));
    *ret_status = result.exit_code;
    cay_exec_done(&result);
    return CAY_OK;
}

int main(int argc, char **argv)
{
    const struct cay_sandbox_options options = {
        .size = sizeof options, .memory_bytes = 256u << 20, .ephemeral = true};
    struct cay_error err = {0};
    cay_sandbox *sandbox = NULL;
    int status = 0;

    if (argc < 2) {
        fprintf(stderr, "usage: sandbox COMMAND [ARGUMENT...]\n");
        return 2;
    }
    int code = cay_sandbox_create(&options, &sandbox, &err);
    if (!code)
        code = run(sandbox, (const char *const *)(argv + 1), &status, &err);
    if (code)
        fprintf(stderr, "%s: %s: %s (%s)\n", cay_code_slug(code), err.subject,
                err.message, err.hint);
    cay_sandbox_free(sandbox);
    return code ? cay_code_exit(code) : status;
}
