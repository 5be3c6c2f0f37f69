/* SPDX-License-Identifier: Apache-2.0 */
#include "server/front/fields.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/wire/channel.h"

bool field_reject(struct fields *fields, const char *name)
{
    struct fields *top = fields->top ? fields->top : fields;

    if (!top->wrong)
        top->wrong = name;
    return false;
}

const char *fields_error(const struct fields *fields, char ret_text[FIELDS_ERROR_MAX])
{
    if (!fields->object)
        return "the body is not a JSON object";
    if (!fields->wrong)
        return "invalid message for this call";
    snprintf(ret_text, FIELDS_ERROR_MAX, "%s is missing or invalid", fields->wrong);
    return ret_text;
}

json_t *field_get(struct fields *fields, const char *name)
{
    json_t *value = json_object_get(fields->object, name);
    char snake[64];
    size_t len = 0;

    if (!value) {
        for (; *name && len < sizeof snake - 2; name++) {
            if (isupper((unsigned char)*name))
                snake[len++] = '_';
            snake[len++] = (char)tolower((unsigned char)*name);
        }
        snake[len] = '\0';
        value = json_object_get(fields->object, snake);
    }
    return json_is_null(value) ? NULL : value;
}

const char *field_text(struct fields *fields, const char *name)
{
    const json_t *value = field_get(fields, name);

    if (value && !json_is_string(value))
        (void)field_reject(fields, name);
    return json_string_value(value);
}

bool field_bool(struct fields *fields, const char *name, bool unless_given)
{
    const json_t *value = field_get(fields, name);

    if (!value)
        return unless_given;
    if (!json_is_boolean(value))
        (void)field_reject(fields, name);
    return json_is_true(value);
}

int64_t field_int(struct fields *fields, const char *name, int64_t least, int64_t most,
                  int64_t unless_given)
{
    const json_t *value = field_get(fields, name);
    const char *text = json_string_value(value);
    int64_t number = unless_given;
    char *end = NULL;

    if (!value)
        return unless_given;
    errno = 0;
    if (json_is_integer(value))
        number = json_integer_value(value);
    else if (text && *text)
        number = strtoll(text, &end, 10);
    if ((!json_is_integer(value) && (!end || *end || errno)) || number < least ||
        number > most) {
        (void)field_reject(fields, name);
        return unless_given;
    }
    return number;
}

struct fields field_object(struct fields *fields, const char *name)
{
    const json_t *value = field_get(fields, name);

    if (value && !json_is_object(value))
        (void)field_reject(fields, name);
    return (struct fields){.object = json_is_object(value) ? value : NULL,
                           .top = fields->top ? fields->top : fields};
}

int64_t field_add_array(struct fields *fields, const char *name, struct buf *strings)
{
    const json_t *value = field_get(fields, name);
    size_t count = json_array_size(value);

    if (value && !json_is_array(value))
        (void)field_reject(fields, name);
    for (size_t i = 0; i < count; i++) {
        const char *text = json_string_value(json_array_get(value, i));
        if (!text)
            (void)field_reject(fields, name);
        strings_add(strings, text ? text : "");
    }
    return (int64_t)count;
}

int64_t field_add_pairs(struct fields *fields, const char *name, bool joined,
                        struct buf *strings)
{
    json_t *value = field_get(fields, name);
    const char *key;
    json_t *item;
    int64_t count = 0;

    if (value && !json_is_object(value))
        (void)field_reject(fields, name);
    json_object_foreach(value, key, item)
    {
        const char *text = json_string_value(item);
        if (!text || (joined && (!*key || strchr(key, '='))))
            (void)field_reject(fields, name);
        (void)buf_append(strings, key, strlen(key) + !joined);
        if (joined)
            (void)buf_append(strings, "=", 1);
        strings_add(strings, text ? text : "");
        count++;
    }
    return count;
}
