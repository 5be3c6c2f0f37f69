/* SPDX-License-Identifier: Apache-2.0 */
/* Until src/agent is there. */
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "cay/agent.h"

int cay_upload_file(cay_sandbox *sandbox, const char *user, const char *local,
                    const char *inside, struct cay_transfer *ret_transfer,
                    struct cay_error *err)
{
    cay_files *files = NULL;
    static char data[1 << 20];
    FILE *file = fopen(local, "re");

    if (!file)
        return cay_fail_errno(err, 2, "upload", local);
    size_t len = fread(data, 1, sizeof data, file);
    fclose(file);
    int code = cay_sandbox_files(sandbox, user, &files, err);
    if (!code)
        code = cay_files_write(files, inside, data, len, NULL, err);
    cay_files_free(files);
    *ret_transfer = (struct cay_transfer){1, len, 0};
    return code;
}

int cay_upload_directory(cay_sandbox *sandbox, const char *user, const char *local,
                         const char *inside, struct cay_transfer *ret_transfer,
                         struct cay_error *err)
{
    (void)sandbox, (void)user, (void)inside, (void)ret_transfer;
    return cay_fail(err, CAY_E_UNSUPPORTED, 0, "upload", local, "not yet", "wait");
}
