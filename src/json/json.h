/* SPDX-License-Identifier: Apache-2.0 */
#ifndef JSON_JSON_H
#define JSON_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct buf;

/* Writes a JSON document as a stream, without buffering or allocating.  Commas, colons
 * and nesting are automatic; a call that would not give JSON (a value without a key, an
 * end without a start, more than 64 levels) makes the document fail.  After a failure
 * nothing more is written, so a caller may check once, with json_finish(). (jansson,
 * which parses JSON here, has taken plain names such as json_object().) */
struct json {
    FILE *file; /* one of the two is set */
    struct buf *buf;
    uint64_t objects; /* bit N: level N is an object, not an array */
    unsigned depth;
    bool comma;   /* a value was written at this level */
    bool has_key; /* in an object: the value for a key comes next */
    bool failed;
    bool is_unicode, is_ascii;
};

void json_to_buf(struct json *json, struct buf *buf);
/* The same for readers that refuse lone surrogates: invalid UTF-8 becomes U+FFFD. */
void json_to_unicode(struct json *json, struct buf *buf);
/* The same with all characters above 0x7e escaped, for readers that decode pieces. */
void json_to_ascii(struct json *json, struct buf *buf);
void json_to_file(struct json *json, FILE *file);

void json_put_object(struct json *json);
void json_put_array(struct json *json);
void json_put_end(struct json *json); /* of the innermost object or array */

void json_put_key(struct json *json, const char *key);

/* Any bytes.  Invalid UTF-8 is written byte by byte as \udc80 to \udcff, which Python
 * decodes with encode("utf-8", "surrogateescape"); control characters are escaped,
 * including those above 0x7e, so that the text is safe to display. */
void json_put_bytes(struct json *json, const void *bytes, size_t len);
void json_put_text(struct json *json, const char *text); /* NULL is null */
void json_put_int(struct json *json, int64_t value);
void json_put_uint(struct json *json, uint64_t value);
void json_put_number(struct json *json, double value); /* that is finite */
void json_put_bool(struct json *json, bool value);
void json_put_null(struct json *json);

/* A whole value that is JSON already, in UTF-8; safe to show like the others. */
void json_put_raw(struct json *json, const char *text);

/* A key and its value. */
void json_set_text(struct json *json, const char *key, const char *text);
void json_set_int(struct json *json, const char *key, int64_t value);
void json_set_uint(struct json *json, const char *key, uint64_t value);
void json_set_bool(struct json *json, const char *key, bool value);

/* True if exactly one complete value was written and none of it failed. */
bool json_finish(struct json *json);

#endif
