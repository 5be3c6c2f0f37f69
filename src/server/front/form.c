/* SPDX-License-Identifier: Apache-2.0 */
#include "server/front/form.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/auto.h"

enum { HEAD_MAX = 16 << 10 };

static const char blanks[] = " \t";

/* --- Parameters of a header: NAME=VALUE after each semicolon --- */

/* Decodes into `to`, which must be as long as `at`; returns the rest, or NULL. */
static const char *take_value(const char *at, char *to)
{
    bool is_quoted = *at == '"';

    at += is_quoted;
    while (*at && !strchr(is_quoted ? "\"" : "; \t", *at)) {
        if (is_quoted && *at == '\\' && (at[1] == '"' || at[1] == '\\'))
            at++;
        *to++ = *at++;
    }
    *to = '\0';
    return is_quoted && *at++ != '"' ? NULL : at;
}

/* Returns a copy, or NULL if there is none. */
static char *find_parameter(const char *header, const char *wanted)
{
    AUTO_FREE char *value = malloc(strlen(header) + 1);
    const char *at = strchr(header, ';');

    while (value && at && *at == ';') {
        const char *name = at + 1 + strspn(at + 1, blanks);
        size_t len = strcspn(name, "=;");
        if (name[len] != '=')
            return NULL;
        at = take_value(name + len + 1, value);
        if (at && len == strlen(wanted) && strncasecmp(name, wanted, len) == 0)
            return TAKE_PTR(value);
        if (at)
            at += strspn(at, blanks);
    }
    return NULL;
}

bool form_init(struct form *form, const char *content_type)
{
    AUTO_FREE char *boundary = find_parameter(content_type, "boundary");
    size_t len = boundary ? strlen(boundary) : 0;
    if (len < 1 || len > FORM_DELIMITER_MAX - 4 || strchr(boundary, '\r'))
        return false;
    buf_init(&form->head, HEAD_MAX);
    memcpy(form->delimiter, "\r\n--", 4);
    memcpy(form->delimiter + 4, boundary, len + 1);
    form->delimiter_len = 4 + len;
    form->matched = 2; /* the first delimiter starts the body */
    form->state = FORM_BEFORE;
    return true;
}

void form_done(struct form *form)
{
    buf_done(&form->head);
}

bool form_is_whole(const struct form *form)
{
    return form->state == FORM_OVER;
}

/* --- The head of a part --- */

static bool take_head(struct form *form)
{
    static const char wanted[] = "Content-Disposition:";
    const char *found = "";
    char *line = form->head.data;

    if (memchr(form->head.data, '\0', form->head.len))
        return false;
    for (char *end; (end = strstr(line, "\r\n")); line = end + 2) {
        *end = '\0';
        if (strncasecmp(line, wanted, strlen(wanted)) == 0)
            found = line + strlen(wanted);
    }
    form->state = FORM_PART;
    form->matched = 0;
    AUTO_FREE char *name = find_parameter(found, "name");
    AUTO_FREE char *filename = find_parameter(found, "filename");
    form->head.len = 0;
    return form->begin(form->cookie, name ? name : "", filename);
}

static bool ends_with(const struct buf *buf, const char *text)
{
    size_t len = strlen(text);

    return buf->len >= len && memcmp(buf->data + buf->len - len, text, len) == 0;
}

/* One byte between a delimiter and the content of a part. */
static bool take_head_byte(struct form *form, char byte)
{
    struct buf *head = &form->head;

    if (!buf_append(head, &byte, 1))
        return false;
    bool is_line = ends_with(head, "\r\n");
    if (form->state == FORM_HEAD)
        return (!is_line || head->len > 2) && !ends_with(head, "\r\n\r\n")
                   ? true
                   : take_head(form);
    if (head->len == 2 && ends_with(head, "--"))
        form->state = FORM_OVER;
    if (!is_line)
        return memchr("-\r \t", byte, 4);
    head->len = 0;
    form->state = FORM_HEAD;
    return true;
}

/* --- The bytes of a part --- */

static bool pass(struct form *form, const char *data, size_t len)
{
    return form->state != FORM_PART || !len || form->bytes(form->cookie, data, len);
}

/* Handles bytes up to the end of a delimiter; returns how many, or 0 to stop. */
static size_t take_bytes(struct form *form, const char *data, size_t len)
{
    if (form->matched && *data == form->delimiter[form->matched]) {
        if (++form->matched == form->delimiter_len)
            form->state = FORM_LINE_END;
        return 1;
    }
    if (form->matched && !pass(form, form->delimiter, form->matched))
        return 0;
    const char *found = memmem(data, len, form->delimiter, form->delimiter_len);
    /* Or a partial delimiter at the end; only its first byte is a carriage return. */
    size_t most = len < form->delimiter_len ? len : form->delimiter_len - 1;
    const char *last = memrchr(data + len - most, '\r', most);
    size_t rest = last ? (size_t)(data + len - last) : 0;
    form->matched = found ? form->delimiter_len
                    : memcmp(data + len - rest, form->delimiter, rest) == 0 ? rest
                                                                            : 0;
    size_t before = found ? (size_t)(found - data) : len - form->matched;
    if (!pass(form, data, before))
        return 0;
    if (found)
        form->state = FORM_LINE_END;
    return before + form->matched;
}

bool form_feed(struct form *form, const char *data, size_t len)
{
    while (len > 0 && form->state != FORM_OVER) {
        bool in_head = form->state == FORM_LINE_END || form->state == FORM_HEAD;
        size_t taken =
            in_head ? take_head_byte(form, *data) : take_bytes(form, data, len);
        if (!taken)
            return false;
        data += taken;
        len -= taken;
    }
    return true;
}
