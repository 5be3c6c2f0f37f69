/* SPDX-License-Identifier: Apache-2.0 */
#ifndef E2B_VALUE_H
#define E2B_VALUE_H

#include <jansson.h>
#include <stdint.h>

/* Values as protobuf's JSON has them: 64-bit numbers may be texts, names may be written
 * in either case, what is zero is left out.  Whatever is not of the type is as if it were
 * not there. */

int64_t e2b_value_int(const json_t *object, const char *name, const char *other);
const char *e2b_value_text(const json_t *object, const char *name, const char *other);

/* "2026-01-31T10:00:00.5Z" as nanoseconds since 1970; 0 if it is not one. */
int64_t e2b_value_time(const json_t *object, const char *name, const char *other);

#endif
