/* SPDX-License-Identifier: Apache-2.0 */
#include "native/record/kvfile.h"

#include <stdlib.h>
#include <string.h>

static const char first[] = "version=2";

void kvfile_begin(struct buf *file, size_t max)
{
    buf_init(file, max);
    (void)buf_append(file, first, sizeof first);
}

bool kvfile_is_valid(const struct kvfile *kvfile)
{
    return kvfile->len >= sizeof first &&
           memcmp(kvfile->data, first, sizeof first) == 0 &&
           kvfile->data[kvfile->len - 1] == '\0';
}

void kvfile_add(struct buf *file, const char *key, const char *value)
{
    if (value && buf_format(file, "%s=", key))
        (void)buf_append(file, value, strlen(value) + 1);
}

void kvfile_add_number(struct buf *file, const char *key, uint64_t value)
{
    if (buf_format(file, "%s=%llu", key, (unsigned long long)value))
        (void)buf_append(file, "", 1);
}

const char *kvfile_next(const struct kvfile *kvfile, const char *key, const char *last)
{
    size_t len = strlen(key);
    const char *end = kvfile->data + kvfile->len;

    for (const char *at = last ? last + strlen(last) + 1 : kvfile->data; at < end;
         at += strlen(at) + 1)
        if (strncmp(at, key, len) == 0 && at[len] == '=')
            return at + len + 1;
    return NULL;
}

const char *kvfile_text(const struct kvfile *kvfile, const char *key)
{
    return kvfile_next(kvfile, key, NULL);
}

uint64_t kvfile_number(const struct kvfile *kvfile, const char *key)
{
    const char *text = kvfile_text(kvfile, key);

    return text ? strtoull(text, NULL, 10) : 0;
}

size_t kvfile_count(const struct kvfile *kvfile, const char *key)
{
    size_t count = 0;

    for (const char *at = NULL; (at = kvfile_next(kvfile, key, at));)
        count++;
    return count;
}
