/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_RECORD_HOME_H
#define NATIVE_RECORD_HOME_H

#include "native/record/runtime.h"

enum { HOME_PATH = 64 };

/* SANDBOX_HOME: the one directory that a sandbox held by landlock alone may write to, and
 * where results of commands of a local one are kept. */
void home_path(const struct record *record, char ret_path[HOME_PATH]);

/* Makes it, with "tmp" in it, for `uid`; of a local one that is root's, for all. */
int home_create(const struct record *record, uint32_t uid, struct cay_error *err);

/* Removes it and all that is in it, which is not ours to trust. */
int home_remove(const struct record *record, struct cay_error *err);

#endif
