/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_RECORD_TRY_H
#define NATIVE_RECORD_TRY_H

#include <stddef.h>

#define TRY_STORE "tries"

/* What the record of a sandbox calls a try that it shows, among its volumes: this and the
 * id. */
#define TRY_NAME "try/"

/* Removes what killed processes left; returns the number. */
size_t try_sweep(void);

#endif
