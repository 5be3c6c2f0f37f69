/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_QUANTITY_H
#define CLI_QUANTITY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/quantity.h"

/* Times and shares as people write and read them, beside the sizes of base/quantity.h.
 * The parsers are for options.h: they fill a field and are false for text that is no such
 * value. */

/* "500ms", "30" (seconds), "2m", "1h", "1d" into uint64_t milliseconds; not 0. */
bool quantity_parse_time(const char *text, void *field);

/* "4" into uint32_t; not 0. */
bool quantity_parse_count(const char *text, void *field);

/* "0.5", "2" into uint32_t hundredths; not 0. */
bool quantity_parse_share(const char *text, void *field);

#define QUANTITY_ROOM 24

/* "512 MiB", "1.5 GiB", "0 B" */
const char *quantity_bytes(uint64_t bytes, char room[QUANTITY_ROOM]);

/* "450 ms", "12 s", "5 min", "3 h", "2 d": the largest unit that fits. */
const char *quantity_time(uint64_t ms, char room[QUANTITY_ROOM]);

/* The time since a moment in milliseconds since 1970. */
const char *quantity_age(int64_t since_ms, char room[QUANTITY_ROOM]);

#endif
