/* SPDX-License-Identifier: Apache-2.0 */
#include "server/front/filter.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/auto.h"
#include "base/error.h"

uint32_t filter_states(const char *text)
{
    uint32_t states = 0;

    if (!text || !*text)
        return LIST_RUNNING | LIST_PAUSED;
    while (*text) {
        size_t len = strcspn(text, ",");
        if (len == 7 && strncmp(text, "running", 7) == 0)
            states |= LIST_RUNNING;
        else if (len == 6 && strncmp(text, "paused", 6) == 0)
            states |= LIST_PAUSED;
        else
            return 0;
        text += len + (text[len] == ',');
    }
    return states;
}

bool filter_number(const char *text, int64_t least, int64_t most, int64_t *ret_number)
{
    size_t len = strspn(text, "0123456789");

    if (len == 0 || len > 18 || text[len])
        return false;
    *ret_number = strtoll(text, NULL, 10);
    return *ret_number >= least && *ret_number <= most;
}

bool filter_page(const char *text, int64_t *ret_ms, char ret_id[SANDBOX_ID_MAX])
{
    char number[20];

    *ret_ms = 0;
    ret_id[0] = '\0';
    if (!text || !*text)
        return true;
    size_t len = strcspn(text, "-");
    if (len >= sizeof number || text[len] != '-' ||
        strlen(text + len + 1) >= SANDBOX_ID_MAX)
        return false;
    memcpy(number, text, len);
    number[len] = '\0';
    cay_copy_text(ret_id, SANDBOX_ID_MAX, text + len + 1);
    return filter_number(number, 1, INT64_MAX, ret_ms);
}

/* --- Times --- */

/* Parses this many digits; returns their end, or NULL. */
static const char *take_digits(const char *text, int count, int *ret_number)
{
    *ret_number = 0;
    for (; text && count > 0; count--, text++) {
        if (!isdigit((unsigned char)*text))
            return NULL;
        *ret_number = *ret_number * 10 + (*text - '0');
    }
    return text;
}

static const char *take_one_of(const char *text, const char *letters)
{
    return text && *text && strchr(letters, *text) ? text + 1 : NULL;
}

/* Rounds up to milliseconds: rows have their start in milliseconds, and a start at or
 * after the given time is at or after the rounded one. */
static const char *take_fraction(const char *text, int *ret_ms)
{
    int weight = 100;

    *ret_ms = 0;
    if (!text || *text != '.' || !isdigit((unsigned char)text[1]))
        return text && *text == '.' ? NULL : text;
    bool has_more = false;
    for (text++; isdigit((unsigned char)*text); text++, weight /= 10) {
        *ret_ms += weight * (*text - '0');
        has_more |= weight == 0 && *text != '0';
    }
    *ret_ms += has_more;
    return text;
}

/* "Z", "+01:00"; URL decoding may have turned the plus into a space. */
static const char *take_zone(const char *text, int *ret_minutes)
{
    int hours, minutes;

    *ret_minutes = 0;
    if (text && (*text == 'Z' || *text == 'z'))
        return text + 1;
    int sign = text && *text == '-' ? -1 : 1;
    text = take_digits(take_one_of(text, "+- "), 2, &hours);
    text = take_digits(take_one_of(text, ":"), 2, &minutes);
    *ret_minutes = sign * (hours * 60 + minutes);
    return hours < 24 && minutes < 60 ? text : NULL;
}

bool filter_time(const char *text, int64_t *ret_ms)
{
    struct tm tm = {0}, real;
    int ms, zone;

    text = take_digits(text, 4, &tm.tm_year);
    text = take_digits(take_one_of(text, "-"), 2, &tm.tm_mon);
    text = take_digits(take_one_of(text, "-"), 2, &tm.tm_mday);
    text = take_digits(take_one_of(text, "Tt "), 2, &tm.tm_hour);
    text = take_digits(take_one_of(text, ":"), 2, &tm.tm_min);
    text = take_digits(take_one_of(text, ":"), 2, &tm.tm_sec);
    text = take_fraction(text, &ms);
    text = take_zone(text, &zone);
    if (!text || *text || tm.tm_sec > 59)
        return false;
    tm.tm_year -= 1900;
    tm.tm_mon -= 1;
    real = tm;
    time_t seconds = timegm(&real);
    if (real.tm_mon != tm.tm_mon || real.tm_mday != tm.tm_mday ||
        real.tm_hour != tm.tm_hour || real.tm_min != tm.tm_min)
        return false; /* such as February 30 */
    *ret_ms = ((int64_t)seconds - zone * INT64_C(60)) * 1000 + ms;
    return true;
}

const char *filter_template(const char *text, char ret_name[FILTER_TEMPLATE_MAX])
{
    size_t len = strcspn(text, ":");

    if (len >= FILTER_TEMPLATE_MAX ||
        (strcmp(text + len, ":default") != 0 && strcmp(text + len, ":latest") != 0))
        return text;
    memcpy(ret_name, text, len);
    ret_name[len] = '\0';
    return ret_name;
}

/* --- Metadata --- */

/* Decodes "%41" and "+" in place.  "%00" is not decoded, since text cannot contain NUL.
 */
static void unescape(char *text, bool plus)
{
    char *to = text;

    for (const char *at = text; *at; at++) {
        char digits[3] = {at[1], at[1] ? at[2] : '\0', '\0'};
        if (*at == '%' && isxdigit((unsigned char)digits[0]) &&
            isxdigit((unsigned char)digits[1]) && strcmp(digits, "00") != 0) {
            *to++ = (char)strtoul(digits, NULL, 16);
            at += 2;
        } else {
            *to++ = plus && *at == '+' ? ' ' : *at;
        }
    }
    *to = '\0';
}

int64_t filter_metadata(const char *text, struct buf *strings)
{
    int64_t count = 0;
    AUTO_FREE char *copy = text ? strdup(text) : NULL;

    for (char *at = copy; at && *at;) {
        size_t len = strcspn(at, "&");
        char *next = at[len] ? at + len + 1 : at + len;
        at[len] = '\0';
        char *value = strchr(at, '=');
        if (value)
            *value++ = '\0';
        char none[1] = "";
        char *const parts[] = {at, value ? value : none};
        for (int i = 0; i < 2; i++) {
            unescape(parts[i], true);
            unescape(parts[i], false);
            strings_add(strings, parts[i]);
        }
        count++;
        at = next;
    }
    return count;
}
