/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_RECORD_HOME_H
#define NATIVE_RECORD_HOME_H

#include "native/record/runtime.h"

enum { HOME_PATH = 64 };

/* SANDBOX_HOME: the only directory that a sandbox isolated by landlock alone may write
 * to, and where a local sandbox keeps the results of commands. */
void home_path(const struct record *record, char ret_path[HOME_PATH]);

/* Creates it for `uid`, with "tmp" in it; for a local sandbox of root it is open to all
 * users. */
int home_create(const struct record *record, uint32_t uid, struct cay_error *err);

/* Removes it with its contents, which are untrusted. */
int home_remove(const struct record *record, struct cay_error *err);

#endif
