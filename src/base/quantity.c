/* SPDX-License-Identifier: Apache-2.0 */
#include "base/quantity.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A program may have a locale in which "1.5" is 1; glibc allocates nothing for "C". */
static double parse_double(const char *text, char **ret_end)
{
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    double value = strtod_l(text, ret_end, plain);

    freelocale(plain);
    return value;
}

bool quantity_parse_number(const char *text, double *ret_value)
{
    char *end;

    if (!*text || text[strspn(text, "0123456789.eE+-")])
        return false; /* strtod() would take blanks, "0x1", "inf" and "nan" */
    *ret_value = parse_double(text, &end);
    return end > text && !*end && isfinite(*ret_value);
}

bool quantity_parse(const char *text, const struct quantity_unit *units,
                    double *ret_value)
{
    char *end;

    if (text[0] < '0' || text[0] > '9')
        return false; /* strtod() would take blanks, signs, "inf" and "nan" */
    errno = 0;
    double value = parse_double(text, &end);
    if (errno || strpbrk(text, "xX"))
        return false;
    if (end[0] == ' ' && end[1])
        end++;
    for (; units->suffix; units++)
        if (strcmp(end, units->suffix) == 0) {
            *ret_value = value * units->scale;
            return *ret_value <= 1e15;
        }
    return false;
}

bool quantity_parse_size(const char *text, void *field)
{
    static const struct quantity_unit units[] = {
        {"", 1},         {"K", 0x1p10},   {"M", 0x1p20}, {"G", 0x1p30},   {"T", 0x1p40},
        {"k", 0x1p10},   {"m", 0x1p20},   {"g", 0x1p30}, {"KiB", 0x1p10}, {"MiB", 0x1p20},
        {"GiB", 0x1p30}, {"TiB", 0x1p40}, {NULL, 0},
    };
    double bytes;

    if (!quantity_parse(text, units, &bytes) || bytes < 1)
        return false;
    *(uint64_t *)field = (uint64_t)bytes;
    return true;
}
