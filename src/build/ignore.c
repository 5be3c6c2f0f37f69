/* SPDX-License-Identifier: Apache-2.0 */
#include "build/ignore.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/auto.h"
#include "base/error.h"

static const char op[] = "build.ignore";

enum { RULES_MAX = 10000 };

static int add(struct ignore *ignore, const char *line, size_t len, struct cay_error *err)
{
    bool is_kept = *line == '!';

    line += is_kept;
    len -= is_kept;
    AUTO_FREE char *text = strndup(line, len);
    if (!text || !array_reserve(&ignore->list, &ignore->room, ignore->count + 1,
                                sizeof *ignore->list))
        return cay_fail_memory(err, op);
    struct ignore_rule *rule = &ignore->list[ignore->count];
    rule->is_kept = is_kept;
    TRY(glob_split(op, text, 0, &rule->glob, err));
    if (rule->glob.count) /* "/" and "." match nothing */
        ignore->count++;
    else
        glob_done(&rule->glob);
    return CAY_OK;
}

int ignore_parse(const char *text, size_t len, struct ignore *ret_ignore,
                 struct cay_error *err)
{
    const char *end = text + len;

    *ret_ignore = (struct ignore){0};
    while (text < end) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        const char *next = newline ? newline + 1 : end;
        const char *stop = newline ? newline : end;
        while (text < stop && strchr(" \t\r", *text))
            text++;
        while (stop > text && strchr(" \t\r", stop[-1]))
            stop--;
        if (ret_ignore->count == RULES_MAX || memchr(text, '\0', (size_t)(stop - text)))
            return cay_fail(err, CAY_E_INVALID, 0, op, ".dockerignore",
                            "not a list of patterns",
                            "write one pattern on each line, up to %d", RULES_MAX);
        if (text < stop && *text != '#' && !(*text == '!' && stop - text == 1))
            TRY(add(ret_ignore, text, (size_t)(stop - text), err));
        text = next;
    }
    return CAY_OK;
}

void ignore_done(struct ignore *ignore)
{
    for (size_t i = 0; i < ignore->count; i++)
        glob_done(&ignore->list[i].glob);
    free(ignore->list);
    *ignore = (struct ignore){0};
}

/* The path itself or a directory above it. */
static bool matches(const struct glob *glob, const char *path)
{
    char part[PATH_MAX];
    size_t len = strlen(path);

    if (len >= sizeof part)
        return false;
    memcpy(part, path, len + 1);
    for (;;) {
        if (glob_matches_path(glob, 0, part))
            return true;
        char *slash = strrchr(part, '/');
        if (!slash)
            return false;
        *slash = '\0';
    }
}

bool ignore_matches(const struct ignore *ignore, const char *path)
{
    for (size_t i = ignore->count; i-- > 0;)
        if (matches(&ignore->list[i].glob, path))
            return !ignore->list[i].is_kept;
    return false;
}

bool ignore_has_exceptions(const struct ignore *ignore)
{
    for (size_t i = 0; i < ignore->count; i++)
        if (ignore->list[i].is_kept)
            return true;
    return false;
}
