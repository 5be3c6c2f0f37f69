/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_QUANTITY_H
#define BASE_QUANTITY_H

#include <stdbool.h>
#include <stdint.h>

/* Numbers with units, as people write them. */

struct quantity_unit {
    const char *suffix;
    double scale;
};

/* A number of at most 1e15 with one of the suffixes; the table ends with NULL. */
bool quantity_parse(const char *text, const struct quantity_unit *units,
                    double *ret_value);

/* "2", "-0.5", "1e3", whatever the locale; not infinity. */
bool quantity_parse_number(const char *text, double *ret_value);

/* "512M", "2G", "1.5 GiB", "4096" into uint64_t bytes; not 0. */
bool quantity_parse_size(const char *text, void *field);

#endif
