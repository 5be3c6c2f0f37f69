/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_APPROVE_H
#define CLI_APPROVE_H

#include "cay/approval.h"

/* Reports on standard error that a request waits. */
void approve_waits(const char *id, const char *summary);

/* CAY_E_NOT_APPROVED unless the user or a rule allows it. */
int approve_wait(const struct cay_request *request, struct cay_error *err);

#endif
