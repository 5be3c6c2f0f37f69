/* SPDX-License-Identifier: Apache-2.0 */
/* Errors never contain the value: it may come from the environment, and it may be a
 * secret under the wrong key. */
#include "config/value.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/auto.h"
#include "base/error.h"
#include "base/quantity.h"
#include "base/words.h"
#include "config/record.h"
#include "config/yaml.h"

#define ITEMS_MAX 4096

typedef int taker(struct value *value, struct yaml *yaml, const struct yaml_event *first,
                  struct cay_error *err);

void value_done(struct value *value)
{
    for (size_t i = 0; i < value->total; i++) {
        free(value->items[i].key);
        free(value->items[i].text);
        free(value->items[i].written);
    }
    free(value->items);
    free(value->text);
    free(value->reference);
    cay_policy_free(value->policy);
}

/* --- Texts ----------------------------------------------------------------------------
 */

static taker take_text, take_secret, take_path, take_choice, take_integer, take_number,
    take_boolean, take_bytes, take_texts, take_map, take_policy;

static int take_text(struct value *value, struct yaml *yaml,
                     const struct yaml_event *first, struct cay_error *err)
{
    return yaml_take_text(yaml, first, &value->text, err);
}

static int take_secret(struct value *value, struct yaml *yaml,
                       const struct yaml_event *first, struct cay_error *err)
{
    if (first->written && expand_is_env(first->written)) {
        value->reference = strdup(first->written);
        if (!value->reference)
            return yaml_fail_memory(err, yaml);
    }
    return first->is_missing ? CAY_OK : yaml_take_text(yaml, first, &value->text, err);
}

static int take_path(struct value *value, struct yaml *yaml,
                     const struct yaml_event *first, struct cay_error *err)
{
    const char *base = yaml_origin(yaml)->base;
    AUTO_FREE char *path = NULL;
    AUTO_BUF full = {.max = PATH_MAX - 1};

    TRY(yaml_take_text(yaml, first, &path, err));
    if (!*path)
        return yaml_fail(
            err, yaml, first->line, "must not be empty",
            "name a path; relative paths start at the directory of the file");
    if (*path != '/')
        buf_format(&full, "%s/", strcmp(base, "/") == 0 ? "" : base);
    buf_text(&full, path);
    if (full.failed && strlen(path) + strlen(base) + 1 > full.max)
        return yaml_fail(err, yaml, first->line, "the path is too long",
                         "the limit is %d bytes", PATH_MAX - 1);
    value->text = buf_take(&full);
    return value->text ? CAY_OK : yaml_fail_memory(err, yaml);
}

static int take_choice(struct value *value, struct yaml *yaml,
                       const struct yaml_event *first, struct cay_error *err)
{
    struct words_list list = {.len = 0};

    for (const char *const *choice = value->field->choices; *choice; choice++) {
        if (yaml_is_word(first, *choice)) {
            value->text = strdup(*choice);
            return value->text ? CAY_OK : yaml_fail_memory(err, yaml);
        }
        words_add(&list, *choice);
    }
    return yaml_fail(err, yaml, first->line, "invalid choice", "the choices are %s",
                     words_end(&list));
}

/* --- Numbers --------------------------------------------------------------------------
 */

static bool has_nul(const struct yaml_event *event)
{
    return strlen(event->text) != event->len;
}

/* Digits, with a sign or without. */
static bool parse_integer(const struct yaml_event *event, int64_t *ret_integer)
{
    const char *digits = event->text + (*event->text == '-' || *event->text == '+');

    if (!*digits || digits[strspn(digits, "0123456789")] || has_nul(event))
        return false;
    errno = 0;
    *ret_integer = strtoll(event->text, NULL, 10);
    return errno == 0;
}

static bool is_in_range(const struct cay_field *field, int64_t number)
{
    return !field->most || (number >= field->least && number <= field->most);
}

static int fail_number(const struct value *value, const struct yaml *yaml, unsigned line,
                       const char *what, const char *form, struct cay_error *err)
{
    const struct cay_field *field = value->field;
    char message[128];

    if (!field->most)
        snprintf(message, sizeof message, "%s", what);
    else if (field->most == INT64_MAX)
        snprintf(message, sizeof message, "%s, %" PRId64 " or more", what, field->least);
    else
        snprintf(message, sizeof message, "%s from %" PRId64 " to %" PRId64, what,
                 field->least, field->most);
    return yaml_fail(err, yaml, line, message, "write %s", form);
}

static int take_integer(struct value *value, struct yaml *yaml,
                        const struct yaml_event *first, struct cay_error *err)
{
    if (first->kind != YAML_SCALAR || !parse_integer(first, &value->integer) ||
        !is_in_range(value->field, value->integer))
        return fail_number(value, yaml, first->line, "must be a whole number",
                           "write digits only, for example 300", err);
    return CAY_OK;
}

static int take_bytes(struct value *value, struct yaml *yaml,
                      const struct yaml_event *first, struct cay_error *err)
{
    uint64_t bytes = 0;

    bool is_good = first->kind == YAML_SCALAR && !has_nul(first);
    if (is_good && !parse_integer(first, &value->integer)) {
        is_good = quantity_parse_size(first->text, &bytes);
        value->integer = (int64_t)bytes; /* at most 1e15 */
    }
    if (!is_good || value->integer < 0 || !is_in_range(value->field, value->integer))
        return fail_number(value, yaml, first->line, "must be a number of bytes",
                           "write a whole number or a number with a unit: 512M, 1.5 GiB",
                           err);
    return CAY_OK;
}

static int take_number(struct value *value, struct yaml *yaml,
                       const struct yaml_event *first, struct cay_error *err)
{
    if (first->kind != YAML_SCALAR || has_nul(first) ||
        !quantity_parse_number(first->text, &value->number))
        return yaml_fail(err, yaml, first->line, "must be a number",
                         "write digits, for example 2 or 0.5");
    return CAY_OK;
}

/* Booleans of YAML 1.1, and as text from the environment. */
static int take_boolean(struct value *value, struct yaml *yaml,
                        const struct yaml_event *first, struct cay_error *err)
{
    static const char *const words[] = {"false", "true", "no", "yes",
                                        "off",   "on",   "0",  "1"};
    size_t i = 0, count = sizeof words / sizeof *words;

    while (first->kind == YAML_SCALAR && i < count &&
           strcasecmp(first->text, words[i]) != 0)
        i++;
    if (first->kind != YAML_SCALAR || i == count || has_nul(first))
        return yaml_fail(err, yaml, first->line, "must be true or false",
                         "yes, no, on, off, 1 and 0 mean the same");
    value->boolean = i % 2 == 1;
    return CAY_OK;
}

/* --- Lists and maps -------------------------------------------------------------------
 */

/* NULL if the limit is reached. */
static struct item *add_item(struct value *value, const struct yaml *yaml, unsigned line,
                             int *ret_code, struct cay_error *err)
{
    if (value->total == ITEMS_MAX) {
        *ret_code = yaml_fail(err, yaml, line, "has too many entries", "the limit is %d",
                              ITEMS_MAX);
        return NULL;
    }
    struct item *grown = reallocarray(value->items, value->total + 1, sizeof *grown);
    if (!grown) {
        *ret_code = yaml_fail_memory(err, yaml);
        return NULL;
    }
    value->items = grown;
    grown[value->total] = (struct item){.key = NULL};
    return &grown[value->total++];
}

static int take_texts(struct value *value, struct yaml *yaml,
                      const struct yaml_event *first, struct cay_error *err)
{
    struct yaml_event event;

    if (first->kind != YAML_LIST)
        return yaml_fail(err, yaml, first->line, "must be a list of strings",
                         "write [one, two], or each on its own line after \"- \"");
    for (;;) {
        size_t mark = yaml_enter_index(yaml, value->count);
        int code = yaml_next(yaml, &event, err);
        if (!code && event.kind == YAML_LIST_END) {
            yaml_leave(yaml, mark);
            return CAY_OK;
        }
        struct item *item = code ? NULL : add_item(value, yaml, event.line, &code, err);
        if (item)
            code = yaml_take_text(yaml, &event, &item->text, err);
        if (code)
            return code;
        value->count++;
        yaml_leave(yaml, mark);
    }
}

static int check_key(const struct value *value, const struct yaml *yaml,
                     const struct yaml_event *event, struct cay_error *err)
{
    if (event->kind != YAML_SCALAR || event->len == 0)
        return yaml_fail(err, yaml, event->line, "a key must be a plain word",
                         "write \"key: value\"");
    for (size_t i = 0; i < value->total; i++)
        if (yaml_is_word(event, value->items[i].key))
            return yaml_fail(err, yaml, event->line, "is given twice",
                             "keep one of the two");
    return yaml_check_nul(yaml, event, err);
}

/* Any single value is text here, as it is written: 1.10 stays "1.10". */
static int take_entry(struct item *item, const struct yaml *yaml,
                      const struct yaml_event *event, struct cay_error *err)
{
    if (event->kind != YAML_SCALAR || (yaml_is_nothing(event) && !event->is_missing))
        return yaml_fail(err, yaml, event->line, "must be a string",
                         "write \"\" for an empty one");
    if (event->is_unwritable) /* or cay_config_json() would show the variable's value */
        return yaml_fail(err, yaml, event->line,
                         "a \"$\" directly before \"${env.NAME}\" is ambiguous",
                         "put the \"$\" into the variable, or a character between them");
    TRY(yaml_check_nul(yaml, event, err));
    bool is_env = event->written && strstr(event->written, "${env.");
    item->text = event->is_missing ? NULL : strdup(event->text);
    item->written = is_env ? strdup(event->written) : NULL;
    if ((!item->text && !event->is_missing) || (!item->written && is_env))
        return yaml_fail_memory(err, yaml);
    return CAY_OK;
}

/* Keeps those without a text last. */
static void settle_item(struct value *value)
{
    struct item last = value->items[value->total - 1];

    if (!last.text)
        return;
    value->items[value->total - 1] = value->items[value->count];
    value->items[value->count++] = last;
}

static int take_map(struct value *value, struct yaml *yaml,
                    const struct yaml_event *first, struct cay_error *err)
{
    struct yaml_event event;

    if (first->kind != YAML_MAP)
        return yaml_fail(err, yaml, first->line, "must be a map of strings",
                         "write {name: value}, or each on its own line");
    for (;;) {
        TRY(yaml_next(yaml, &event, err));
        if (event.kind == YAML_MAP_END)
            return CAY_OK;
        size_t mark = yaml_enter(yaml, event.kind == YAML_SCALAR ? event.text : "");
        int code = check_key(value, yaml, &event, err);
        struct item *item = code ? NULL : add_item(value, yaml, event.line, &code, err);
        if (!item)
            return code;
        item->key = strdup(event.text);
        if (!item->key)
            return yaml_fail_memory(err, yaml);
        TRY(yaml_next(yaml, &event, err));
        TRY(take_entry(item, yaml, &event, err));
        settle_item(value);
        yaml_leave(yaml, mark);
    }
}

static int take_policy(struct value *value, struct yaml *yaml,
                       const struct yaml_event *first, struct cay_error *err)
{
    return policy_read(yaml, first, &value->policy, err);
}

/* --- All ------------------------------------------------------------------------------
 */

int value_read(struct value *value, struct yaml *yaml, const struct yaml_event *first,
               struct cay_error *err)
{
    static taker *const takers[] = {
        [CAY_FIELD_TEXT] = take_text,       [CAY_FIELD_SECRET] = take_secret,
        [CAY_FIELD_INTEGER] = take_integer, [CAY_FIELD_NUMBER] = take_number,
        [CAY_FIELD_BOOLEAN] = take_boolean, [CAY_FIELD_BYTES] = take_bytes,
        [CAY_FIELD_CHOICE] = take_choice,   [CAY_FIELD_TEXTS] = take_texts,
        [CAY_FIELD_MAP] = take_map,         [CAY_FIELD_POLICY] = take_policy,
        [CAY_FIELD_PATH] = take_path,
    };

    if (yaml_is_nothing(first) &&
        !(first->is_missing && value->field->type == CAY_FIELD_SECRET))
        return CAY_OK;
    int code = takers[value->field->type](value, yaml, first, err);
    value->is_set = !code && !first->is_missing;
    return code;
}
