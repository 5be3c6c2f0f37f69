/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_RECORD_TRY_H
#define NATIVE_RECORD_TRY_H

#include <stddef.h>

#include "cay/error.h"

#define TRY_STORE "tries"

/* What the record of a sandbox calls a try that it shows, among its volumes: this and the
 * id. */
#define TRY_NAME "try/"

/* Locks the directory of a try that no sandbox shows.  A process that creates one that
 * does has the lock until its record is there.  A descriptor, or a code: CAY_E_BUSY if
 * the try is in use. */
int try_claim(int dir, const char *id, struct cay_error *err);

/* CAY_E_BUSY while a sandbox shows the try. */
int try_check_unused(const char *id, struct cay_error *err);

/* Removes what killed processes left; returns the number. */
size_t try_sweep(void);

#endif
