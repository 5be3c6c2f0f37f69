/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_FRONT_FORM_H
#define SERVER_FRONT_FORM_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

/* multipart/form-data as it comes.
 *
 * Names are read as Go's mime package reads them: in quotes, a backslash before a quote
 * or a backslash stands for that character, and any other is itself.  What browsers write
 * as %22, %0A and %0D stays as it was sent, since names may have those characters. */

enum { FORM_DELIMITER_MAX = 4 + 70 };

enum form_state { FORM_BEFORE, FORM_LINE_END, FORM_HEAD, FORM_PART, FORM_OVER };

struct form {
    /* A part begins; `filename` is NULL if it has none.  False stops. */
    bool (*begin)(void *cookie, const char *name, const char *filename);
    /* Some of its bytes. */
    bool (*bytes)(void *cookie, const char *data, size_t len);
    void *cookie;
    enum form_state state;
    char delimiter[FORM_DELIMITER_MAX + 1]; /* with the line end before it */
    size_t delimiter_len, matched;          /* so many of its bytes have just come */
    struct buf head;                        /* of the part that begins, or a line end */
};

/* False if the Content-Type names no boundary that can be one. */
bool form_init(struct form *form, const char *content_type);
void form_done(struct form *form);

/* False if this is no form, or a callback has said so. */
bool form_feed(struct form *form, const char *data, size_t len);

/* Whether its end has come. */
bool form_is_whole(const struct form *form);

#endif
