/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_SECRET_H
#define CLI_SECRET_H

#include "cay/sandbox.h"
#include "cli/options.h"

/* The secrets of --secret and --secret-for, which `secret_done()` wipes and frees. */
struct cli_secrets {
    struct cay_secret *list;
    size_t count;
    char **texts; /* a name and a value of each */
    const char **hosts;
};

int secret_plan(const struct options *options, struct cli_secrets *ret_secrets,
                struct cay_error *err);
void secret_done(struct cli_secrets *secrets);

#endif
