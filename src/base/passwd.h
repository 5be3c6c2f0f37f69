/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_PASSWD_H
#define BASE_PASSWD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* /etc/passwd and /etc/group of a sandbox or a template.  They are hostile input: a line
 * may have any bytes and any number of fields. */

enum { PASSWD_FIELDS = 7, PASSWD_MAX = 1 << 20 /* bytes of such a file */ };

/* A line, not terminated: "name:password:uid:gid:comment:home:shell", or
 * "name:password:gid:members". */
struct passwd_line {
    struct {
        const char *text;
        size_t len;
    } fields[PASSWD_FIELDS];
    size_t count;
};

/* Takes the next line off the text; false at its end. */
bool passwd_next(const char **text, struct passwd_line *ret_line);

/* Whether the first field is this name. */
bool passwd_is(const struct passwd_line *line, const char *name, size_t len);

/* The first line with this name; false if there is none. */
bool passwd_find(const char *text, const char *name, size_t len,
                 struct passwd_line *ret_line);

/* Whether all `len` bytes are a decimal number without leading zeros, at most `max`. */
bool passwd_parse_id(const char *text, size_t len, uint32_t max, uint32_t *ret_id);

/* The same for a field, counted from 0; false if the line has no such field. */
bool passwd_id(const struct passwd_line *line, size_t field, uint32_t max,
               uint32_t *ret_id);

#endif
