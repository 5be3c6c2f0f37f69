/* SPDX-License-Identifier: Apache-2.0 */
#include "base/passwd.h"

#include <string.h>

bool passwd_next(const char **text, struct passwd_line *ret_line)
{
    const char *at = *text;

    ret_line->count = 0;
    if (!*at)
        return false;
    for (;; at++) {
        size_t len = strcspn(at, ":\n");
        if (ret_line->count < PASSWD_FIELDS) {
            ret_line->fields[ret_line->count].text = at;
            ret_line->fields[ret_line->count++].len = len;
        }
        at += len;
        if (*at != ':')
            break;
    }
    *text = at + (*at == '\n');
    return true;
}

bool passwd_is(const struct passwd_line *line, const char *name, size_t len)
{
    return line->count > 1 && line->fields[0].len == len &&
           memcmp(line->fields[0].text, name, len) == 0;
}

bool passwd_find(const char *text, const char *name, size_t len,
                 struct passwd_line *ret_line)
{
    while (passwd_next(&text, ret_line))
        if (passwd_is(ret_line, name, len))
            return true;
    return false;
}

bool passwd_parse_id(const char *text, size_t len, uint32_t max, uint32_t *ret_id)
{
    uint64_t id = 0;

    if (len == 0 || len > 10 || (*text == '0' && len > 1))
        return false;
    for (size_t i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        id = 10 * id + (uint64_t)(text[i] - '0');
    }
    if (id > max)
        return false;
    *ret_id = (uint32_t)id;
    return true;
}

bool passwd_id(const struct passwd_line *line, size_t field, uint32_t max,
               uint32_t *ret_id)
{
    return field < line->count && passwd_parse_id(line->fields[field].text,
                                                  line->fields[field].len, max, ret_id);
}
