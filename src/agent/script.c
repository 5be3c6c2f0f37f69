/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/script.h"

#include <stdlib.h>

#include "agent/results.h"
#include "base/error.h"

int script_make(cay_sandbox *sandbox, const char *user, const char *name,
                const void *text, size_t len, struct script *ret_script,
                struct cay_error *err)
{
    struct script *script = ret_script;

    *script = (struct script){0};
    int code = userfs_open(sandbox, user, &script->fs, err);
    if (!code)
        code = results_private(&script->fs, "cay-code", &script->dir, err);
    if (code)
        return code;
    script->path = userfs_join(script->dir, name);
    if (!script->path)
        return cay_fail_memory(err, "code.script");
    return userfs_write(&script->fs, script->path, text, len,
                        CAY_WRITE_NEW | CAY_WRITE_NO_PARENTS, NULL, err);
}

void script_done(struct script *script)
{
    if (script->dir)
        (void)!userfs_remove(&script->fs, script->dir, NULL);
    free(script->dir);
    free(script->path);
    userfs_close(&script->fs);
    *script = (struct script){0};
}
