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
    int code = place_open(sandbox, user, &script->place, err);
    if (!code)
        code = results_private(&script->place, "cay-code", &script->dir, err);
    if (code)
        return code;
    script->path = place_join(script->dir, name);
    if (!script->path)
        return cay_fail_memory(err, "code.script");
    return script->place.ops->write(&script->place, script->path, text, len,
                                    CAY_WRITE_NEW | CAY_WRITE_NO_PARENTS, NULL, err);
}

void script_done(struct script *script)
{
    if (script->dir)
        (void)!script->place.ops->remove(&script->place, script->dir, NULL);
    free(script->dir);
    free(script->path);
    place_close(&script->place);
    *script = (struct script){0};
}
