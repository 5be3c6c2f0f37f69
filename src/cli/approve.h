/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_APPROVE_H
#define CLI_APPROVE_H

#include <stdio.h>

#include "cay/approval.h"

/* Reports on standard error that a request waits. */
void approve_waits(const char *id, const char *summary);

/* The content of a request, safely. */
void approve_show_content(FILE *file, const char *content, size_t len);

/* cay_process_start(): if the command needs approval, asks on the terminal of standard
 * input, or reports that it waits. */
int approve_start(cay_sandbox *sandbox, const struct cay_exec_options *options,
                  cay_process **ret_process, struct cay_error *err);

/* Requests approval of the sandbox's connections until it ends: in a process of its own,
 * or in this one, which a signal ends. */
int egress_watch(cay_sandbox *sandbox, struct cay_error *err);
int egress_serve(cay_sandbox *sandbox, struct cay_error *err);

/* Those of main(), which that process does not show. */
void egress_keep_arguments(char **argv);

/* Sends the requests that wait, and those that will, to a webhook until a signal. */
int notify_serve(const char *url, const char *secret_file, uint64_t timeout_ms,
                 struct cay_error *err);

/* CAY_E_NOT_APPROVED unless the user or a rule allows it. */
int approve_wait(const struct cay_request *request, struct cay_error *err);

#endif
