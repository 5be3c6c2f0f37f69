/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_FRONT_FIELDS_H
#define SERVER_FRONT_FIELDS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

/* Fields of a JSON object, named in camelCase; snake_case is taken too.  One that is null
 * or not there is not given; one of another type is wrong. */

struct fields {
    const json_t *object;
    struct fields *top; /* of the object that this one is in; NULL: it is in none */
    const char *wrong;  /* of the top: the first field that is not what it should be */
};

/* A field is wrong in a way that only the caller knows; always false. */
bool field_reject(struct fields *fields, const char *name);

/* What to tell a client whose message is not taken, of the top. */
enum { FIELDS_ERROR_MAX = 128 };
const char *fields_error(const struct fields *fields, char ret_text[FIELDS_ERROR_MAX]);

json_t *field_get(struct fields *fields, const char *name);
const char *field_text(struct fields *fields, const char *name); /* NULL: not given */
bool field_bool(struct fields *fields, const char *name, bool unless_given);

/* A whole number, or text that is one, between the two; else it is wrong. */
int64_t field_int(struct fields *fields, const char *name, int64_t least, int64_t most,
                  int64_t unless_given);

/* The object of that name, or one that has nothing. */
struct fields field_object(struct fields *fields, const char *name);

/* Adds the strings of an array, or the pairs of an object (as "key", "value", or with
 * `joined` as "key=value"); how many. */
int64_t field_add_array(struct fields *fields, const char *name, struct buf *strings);
int64_t field_add_pairs(struct fields *fields, const char *name, bool joined,
                        struct buf *strings);

#endif
