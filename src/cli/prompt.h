/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_PROMPT_H
#define CLI_PROMPT_H

#include "cay/files.h"

/* The approver of the command: prompts at the terminal. */
struct prompt {
    bool no_terminal; /* an approval was needed, but there is no terminal */
    enum cay_op op;   /* what was last allowed, for files that are read page by page */
    char *path;
};

/* A cay_approver; its cookie is a struct prompt. */
enum cay_verdict prompt_ask(void *cookie, const struct cay_approval *request,
                            char note[CAY_NOTE_MAX]);
void prompt_done(struct prompt *prompt);

#endif
