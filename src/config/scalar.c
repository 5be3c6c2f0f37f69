/* SPDX-License-Identifier: Apache-2.0 */
#include "config/scalar.h"

#include <string.h>

bool scalar_is_word(const struct yaml_event *event, const char *word)
{
    return event->kind == YAML_SCALAR && event->len == strlen(word) &&
           strcmp(event->text, word) == 0;
}

bool scalar_is_null(const struct yaml_event *event)
{
    return event->kind == YAML_SCALAR && event->plain && !event->written &&
           (scalar_is_word(event, "null") || scalar_is_word(event, "~"));
}

bool scalar_is_nothing(const struct yaml_event *event)
{
    return scalar_is_null(event) || event->is_missing ||
           (event->kind == YAML_SCALAR && event->plain && !event->written &&
            event->len == 0);
}

static bool is_number(const char *text)
{
    text += *text == '-' || *text == '+';
    return *text >= '0' && *text <= '9' && text[strspn(text, "0123456789.")] == '\0';
}

bool scalar_is_text(const struct yaml_event *event)
{
    if (event->kind != YAML_SCALAR)
        return false;
    return !event->plain || event->written ||
           (!scalar_is_nothing(event) && !scalar_is_word(event, "true") &&
            !scalar_is_word(event, "false") && !is_number(event->text));
}

int scalar_check_nul(const struct yaml *yaml, const struct yaml_event *event,
                     struct cay_error *err)
{
    if (strlen(event->text) == event->len)
        return CAY_OK;
    return yaml_fail(err, yaml, event->line, "there is a NUL character in the text",
                     "take the \"\\0\" out");
}

int scalar_take_text(const struct yaml *yaml, const struct yaml_event *event,
                     char **ret_text, struct cay_error *err)
{
    if (!scalar_is_text(event))
        return yaml_fail(err, yaml, event->line, "must be a string",
                         "put quotes around it if it is meant as text");
    int code = scalar_check_nul(yaml, event, err);
    if (code)
        return code;
    *ret_text = strdup(event->text);
    return *ret_text ? CAY_OK : cay_fail_memory(err, yaml_op(yaml));
}
