/* SPDX-License-Identifier: Apache-2.0 */
#include "native/record/kvfile.h"

#include <stdlib.h>
#include <string.h>

static const char first[] = "version=2";

void facts_begin(struct buf *file, size_t max)
{
    buf_init(file, max);
    (void)buf_append(file, first, sizeof first);
}

bool facts_are_sound(const struct facts *facts)
{
    return facts->len >= sizeof first && memcmp(facts->data, first, sizeof first) == 0 &&
           facts->data[facts->len - 1] == '\0';
}

void facts_add(struct buf *file, const char *key, const char *value)
{
    if (value && buf_format(file, "%s=", key))
        (void)buf_append(file, value, strlen(value) + 1);
}

void facts_add_number(struct buf *file, const char *key, uint64_t value)
{
    if (buf_format(file, "%s=%llu", key, (unsigned long long)value))
        (void)buf_append(file, "", 1);
}

const char *facts_next(const struct facts *facts, const char *key, const char *last)
{
    size_t len = strlen(key);
    const char *end = facts->data + facts->len;

    for (const char *at = last ? last + strlen(last) + 1 : facts->data; at < end;
         at += strlen(at) + 1)
        if (strncmp(at, key, len) == 0 && at[len] == '=')
            return at + len + 1;
    return NULL;
}

const char *facts_text(const struct facts *facts, const char *key)
{
    return facts_next(facts, key, NULL);
}

uint64_t facts_number(const struct facts *facts, const char *key)
{
    const char *text = facts_text(facts, key);

    return text ? strtoull(text, NULL, 10) : 0;
}

size_t facts_count(const struct facts *facts, const char *key)
{
    size_t count = 0;

    for (const char *at = NULL; (at = facts_next(facts, key, at));)
        count++;
    return count;
}
