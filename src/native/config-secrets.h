/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_CONFIG_SECRETS_H
#define NATIVE_CONFIG_SECRETS_H

#include "cay/backend.h"
#include "cay/sandbox.h"

/* The secrets that a configuration refers to; it never has a value itself. */
struct config_secrets {
    struct cay_secret *list;
    size_t count;
    char **values;      /* wiped when they are freed */
    const char **hosts; /* of all secrets, one row for each */
};

int config_secrets_init(const cay_config *config, struct config_secrets *ret_secrets,
                        struct cay_error *err);
void config_secrets_done(struct config_secrets *secrets);

#endif
