/* SPDX-License-Identifier: Apache-2.0 */

/* The directory that commands start in: looked up, or made where it is not there. */
#include <errno.h>

#include "base/error.h"
#include "native/make/create.h"

static const char op[] = "sandbox.create";

enum { MAKE_MS = 10000 };

/* While whoever gave them can be told, and not only at the first command. */
int native_check_defaults(void *cookie, const struct cay_sandbox_options *options,
                          struct cay_error *err)
{
    struct cay_stat found;
    cay_files *files = NULL;
    int code = native_files(cookie, options->user, &files, err);

    if (code || !options->workdir) {
        cay_files_free(files);
        return code;
    }
    code = cay_files_stat(files, options->workdir, false, &found, err);
    cay_files_free(files);
    if (code == CAY_E_NOT_FOUND)
        return cay_fail(err, code, ENOENT, op, options->workdir,
                        "the working directory is not there inside",
                        "choose one that is, such as /tmp, or show one there");
    if (!code && found.type != CAY_TYPE_DIRECTORY)
        return cay_fail(err, CAY_E_INVALID, ENOTDIR, op, options->workdir,
                        "the working directory is no directory", "name a directory");
    return code;
}

/* Nothing of a template is trusted: its programs may be missing, or never end. */
static int make_as_root(void *cookie, const struct cay_sandbox_options *options,
                        struct cay_error *err)
{
    static const char script[] = "mkdir -p -- \"$1\" && chown -- \"$2\" \"$1\"";
    const struct native *native = cookie;
    const char *const argv[] = {"/bin/sh",           "-c", script, "sh", options->workdir,
                                native->record.user, NULL};
    const struct cay_exec_options exec = {.size = sizeof exec,
                                          .argv = argv,
                                          .user = "root",
                                          .cwd = "/",
                                          .timeout_ms = MAKE_MS};
    struct cay_exec_result result = {0};

    int code = native_exec(cookie, &exec, &result, err);
    bool made = !code && result.cause == CAY_CAUSE_EXITED && result.exit_code == 0;
    cay_exec_done(&result);
    if (made || (code && code != CAY_E_EXEC_FAILED && code != CAY_E_UNSUPPORTED))
        return code;
    return cay_fail(err, CAY_E_INVALID, 0, op, options->workdir,
                    "the working directory is not there and cannot be made",
                    "choose one below /home/user or /tmp");
}

/* As the user if it may, so that all of a new path is the user's. */
int native_make_workdir(void *cookie, const struct cay_sandbox_options *options,
                        struct cay_error *err)
{
    const struct cay_name_options name = {.size = sizeof name,
                                          .flags = CAY_NAME_EXIST_OK};
    struct cay_error why;
    cay_files *files = NULL;

    int code = native_files(cookie, NULL, &files, &why);
    if (!code)
        code = cay_files_mkdir(files, options->workdir, &name, &why);
    cay_files_free(files);
    if (code == CAY_E_DENIED || code == CAY_E_READ_ONLY)
        return make_as_root(cookie, options, err);
    if (code && err)
        *err = why;
    return code;
}
