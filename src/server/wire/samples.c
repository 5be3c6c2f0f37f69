/* SPDX-License-Identifier: Apache-2.0 */
#include "server/wire/samples.h"

#include <string.h>

enum { VALUE_MAX = 128 };

void samples_type(struct samples *samples, const char *name, const char *type,
                  const char *help)
{
    size_t len = strlen(name);

    if (samples->is_open && len > 6 && strcmp(name + len - 6, "_total") == 0)
        len -= 6;
    buf_format(samples->text, "# HELP %.*s %s.\n# TYPE %.*s %s\n", (int)len, name, help,
               (int)len, name, type);
}

void samples_one(struct samples *samples, const char *name, const char *type,
                 const char *help, uint64_t value)
{
    samples_type(samples, name, type, help);
    buf_format(samples->text, "%s %llu\n", name, (unsigned long long)value);
}

void samples_put_label(struct buf *text, const char *label, const char *value)
{
    buf_format(text, "%s=\"", label);
    for (size_t i = 0; i < VALUE_MAX && value[i]; i++) {
        if (value[i] == '"' || value[i] == '\\')
            (void)buf_append(text, "\\", 1);
        (void)buf_append(text, value[i] >= ' ' && value[i] <= '~' ? &value[i] : "?", 1);
    }
    (void)buf_append(text, "\"", 1);
}

void samples_label(struct samples *samples, const char *name, const char *label,
                   const char *value, uint64_t number)
{
    buf_format(samples->text, "%s{", name);
    samples_put_label(samples->text, label, value);
    buf_format(samples->text, "} %llu\n", (unsigned long long)number);
}
