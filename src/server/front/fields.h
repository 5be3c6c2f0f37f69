/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_FRONT_FIELDS_H
#define SERVER_FRONT_FIELDS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

/* Fields of a JSON object, named in camelCase; snake_case is accepted as well.  A field
 * that is null is treated as missing; one of the wrong type is an error. */

struct fields {
    const json_t *object;
    struct fields *top; /* the outermost object; NULL: this one */
    const char *wrong;  /* in the outermost object: the first invalid field */
};

/* Marks a field as invalid; always false. */
bool field_reject(struct fields *fields, const char *name);

/* The error message for the first invalid field. */
enum { FIELDS_ERROR_MAX = 128 };
const char *fields_error(const struct fields *fields, char ret_text[FIELDS_ERROR_MAX]);

json_t *field_get(struct fields *fields, const char *name);
const char *field_text(struct fields *fields, const char *name); /* NULL: missing */
bool field_bool(struct fields *fields, const char *name, bool unless_given);

/* An integer, or text that is one, within the limits; otherwise the field is invalid. */
int64_t field_int(struct fields *fields, const char *name, int64_t least, int64_t most,
                  int64_t unless_given);

/* The object with this name, or an empty one. */
struct fields field_object(struct fields *fields, const char *name);

/* Adds the strings of an array, or the pairs of an object as "key", "value" (`joined`: as
 * "key=value"), and returns their number. */
int64_t field_add_array(struct fields *fields, const char *name, struct buf *strings);
int64_t field_add_pairs(struct fields *fields, const char *name, bool joined,
                        struct buf *strings);

#endif
