/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_FRONT_FORM_H
#define SERVER_FRONT_FORM_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

/* An incremental parser of multipart/form-data.
 *
 * Names are parsed like in Go's mime package: within quotes, a backslash escapes a quote
 * or a backslash, and is literal otherwise.  %22, %0A and %0D, which browsers send, are
 * not decoded, since file names may contain these characters. */

enum { FORM_DELIMITER_MAX = 4 + 70 };

enum form_state { FORM_BEFORE, FORM_LINE_END, FORM_HEAD, FORM_PART, FORM_OVER };

struct form {
    /* A part begins; `filename` may be NULL.  Return false to stop. */
    bool (*begin)(void *cookie, const char *name, const char *filename);
    /* Content of the part. */
    bool (*bytes)(void *cookie, const char *data, size_t len);
    void *cookie;
    enum form_state state;
    char delimiter[FORM_DELIMITER_MAX + 1]; /* with the preceding line end */
    size_t delimiter_len, matched;          /* number of its bytes that were just seen */
    struct buf head; /* header lines of a part, or the rest of a delimiter line */
};

/* False if the Content-Type has no valid boundary. */
bool form_init(struct form *form, const char *content_type);
void form_done(struct form *form);

/* False if the form is malformed, or a callback returned false. */
bool form_feed(struct form *form, const char *data, size_t len);

/* Whether the final delimiter was seen. */
bool form_is_whole(const struct form *form);

#endif
