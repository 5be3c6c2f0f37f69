/* SPDX-License-Identifier: Apache-2.0 */
#include "e2b/value.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

enum { NANOS = 1000000000, YEAR_MAX = 2200 };

static const json_t *get(const json_t *object, const char *name, const char *other)
{
    const json_t *value = json_object_get(object, name);

    return value || !other ? value : json_object_get(object, other);
}

int64_t e2b_value_int(const json_t *object, const char *name, const char *other)
{
    const json_t *value = get(object, name, other);
    const char *text = json_string_value(value);
    char *end;

    if (!text)
        return json_integer_value(value);
    errno = 0;
    long long number = strtoll(text, &end, 10);
    return errno || end == text || *end ? 0 : number;
}

const char *e2b_value_text(const json_t *object, const char *name, const char *other)
{
    return json_string_value(get(object, name, other));
}

static bool take_number(const char **text, int digits, int *ret_number)
{
    int number = 0;

    for (int i = 0; i < digits; i++, (*text)++) {
        if (!isdigit((unsigned char)**text))
            return false;
        number = number * 10 + (**text - '0');
    }
    *ret_number = number;
    return true;
}

static bool take_fields(const char **text, struct tm *tm)
{
    static const char separators[] = "--T::";
    int *const fields[] = {&tm->tm_year, &tm->tm_mon, &tm->tm_mday,
                           &tm->tm_hour, &tm->tm_min, &tm->tm_sec};

    for (int i = 0; i < 6; i++) {
        if (!take_number(text, i == 0 ? 4 : 2, fields[i]))
            return false;
        if (i < 5 && toupper((unsigned char)*(*text)++) != separators[i])
            return false;
    }
    bool fine = tm->tm_year >= 1970 && tm->tm_year < YEAR_MAX && tm->tm_mon >= 1 &&
                tm->tm_mon <= 12;
    tm->tm_year -= 1900;
    tm->tm_mon -= 1;
    return fine;
}

/* Seconds east of Greenwich; "Z" is 0. */
static bool take_zone(const char *text, int *ret_seconds)
{
    int hours, minutes, sign = *text == '-' ? -1 : 1;

    *ret_seconds = 0;
    if (*text == 'Z' || *text == 'z')
        return !text[1];
    if (*text != '+' && *text != '-')
        return false;
    text++;
    if (!take_number(&text, 2, &hours) || *text++ != ':' ||
        !take_number(&text, 2, &minutes) || *text)
        return false;
    *ret_seconds = sign * (hours * 3600 + minutes * 60);
    return true;
}

int64_t e2b_value_time(const json_t *object, const char *name, const char *other)
{
    const char *text = e2b_value_text(object, name, other);
    struct tm tm = {0};
    int64_t nanos = 0;
    int zone;

    if (!text || !take_fields(&text, &tm))
        return 0;
    if (*text == '.') {
        int64_t unit = NANOS;
        for (text++; isdigit((unsigned char)*text); text++) {
            unit /= 10;
            nanos += (*text - '0') * unit;
        }
    }
    if (!take_zone(text, &zone))
        return 0;
    return ((int64_t)timegm(&tm) - zone) * NANOS + nanos;
}
