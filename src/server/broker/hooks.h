/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_BROKER_HOOKS_H
#define SERVER_BROKER_HOOKS_H

#include <sys/types.h>

#include "cay/error.h"
#include "server/wire/options.h"

struct broker;

/* Whether --webhook and --webhook-secret-file can be used. */
int hooks_check(const struct serve_options *options, const char *store,
                struct cay_error *err);

/* Starts the process that posts events, if there is a --webhook and no process. */
void hooks_start(struct broker *broker);
void hooks_reaped(struct broker *broker, pid_t pid);

#endif
