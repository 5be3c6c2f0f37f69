/* SPDX-License-Identifier: Apache-2.0 */
#include "base/quantity.h"

#include <langinfo.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define DIGITS_MAX 64

/* The program's locale may have another decimal point: "." is replaced by that. */
static bool parse_decimal(const char *text, size_t len, double *ret_value)
{
    const char *point = memchr(text, '.', len);
    size_t before = point ? (size_t)(point - text) : len;
    char room[DIGITS_MAX + 16], *end;

    if (len == 0 || len > DIGITS_MAX)
        return false;
    snprintf(room, sizeof room, "%.*s%s%.*s", (int)before, text,
             point ? nl_langinfo(RADIXCHAR) : "", (int)(point ? len - before - 1 : 0),
             point ? point + 1 : "");
    *ret_value = strtod(room, &end);
    return end > room && !*end && isfinite(*ret_value);
}

bool quantity_parse_number(const char *text, double *ret_value)
{
    /* strtod() would take blanks, "0x1", "inf" and "nan", too. */
    return !text[strspn(text, "0123456789.eE+-")] &&
           parse_decimal(text, strlen(text), ret_value);
}

bool quantity_parse(const char *text, const struct quantity_unit *units,
                    double *ret_value)
{
    size_t len = strspn(text, "0123456789.");
    const char *unit = text + len;

    if (*text == '.' || !parse_decimal(text, len, ret_value))
        return false;
    if (unit[0] == ' ' && unit[1])
        unit++;
    for (; units->suffix; units++)
        if (strcasecmp(unit, units->suffix) == 0) {
            *ret_value *= units->scale;
            return *ret_value <= 1e15;
        }
    return false;
}

bool quantity_parse_size(const char *text, void *field)
{
    static const struct quantity_unit units[] = {
        {"", 1},         {"B", 1},        {"K", 0x1p10},   {"KB", 0x1p10},
        {"KiB", 0x1p10}, {"M", 0x1p20},   {"MB", 0x1p20},  {"MiB", 0x1p20},
        {"G", 0x1p30},   {"GB", 0x1p30},  {"GiB", 0x1p30}, {"T", 0x1p40},
        {"TB", 0x1p40},  {"TiB", 0x1p40}, {NULL, 0},
    };
    double bytes;

    if (!quantity_parse(text, units, &bytes) || bytes < 1)
        return false;
    *(uint64_t *)field = (uint64_t)bytes;
    return true;
}
