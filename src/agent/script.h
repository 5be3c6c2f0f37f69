/* SPDX-License-Identifier: Apache-2.0 */
#ifndef AGENT_SCRIPT_H
#define AGENT_SCRIPT_H

#include "agent/userfs.h"

/* A file for an interpreter, in a private directory of its own outside the working
 * directory; it is gone when this is done with. */
struct script {
    struct userfs fs;
    char *dir, *path;
};
#define AUTO_SCRIPT __attribute__((cleanup(script_done))) struct script

/* Always safe to script_done() after, also on failure. */
int script_make(cay_sandbox *sandbox, const char *user, const char *name,
                const void *text, size_t len, struct script *ret_script,
                struct cay_error *err);
void script_done(struct script *script);

#endif
