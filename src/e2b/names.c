/* SPDX-License-Identifier: Apache-2.0 */

/* The daemon says who owns a file by name; here numbers are wanted.  The sandbox's own
 * /etc/passwd and /etc/group have them, and are fetched once. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "e2b/entry.h"

enum { TEXT_MAX = 1 << 20 };

struct e2b_names {
    char *text; /* "name:x:number:..." lines; "" if there are none to be had */
};

static struct e2b_names *fetch(struct e2b *e2b, const char *path)
{
    struct e2b_names *names = calloc(1, sizeof *names);
    AUTO_BUF content = {0};

    if (!names)
        return NULL;
    (void)e2b_file_fetch(e2b, "files.stat", "root", path, TEXT_MAX, &content, NULL);
    names->text = content.data ? buf_take(&content) : NULL;
    return names;
}

void e2b_names_free(struct e2b_names *names)
{
    if (names)
        free(names->text);
    free(names);
}

static uint32_t number_in(const char *text, const char *name)
{
    size_t len = strlen(name);

    for (const char *line = text; line && *line;) {
        const char *number = line + len + 1;
        if (strncmp(line, name, len) == 0 && line[len] == ':' &&
            (number = strchr(number, ':')) && isdigit((unsigned char)number[1])) {
            unsigned long value = strtoul(number + 1, NULL, 10);
            return value < UINT32_MAX ? (uint32_t)value : UINT32_MAX;
        }
        line = strchr(line, '\n');
        line += line != NULL;
    }
    return UINT32_MAX;
}

static uint32_t look_up(struct e2b *e2b, struct e2b_names **names, const char *path,
                        const char *name)
{
    if (!name || !*name)
        return UINT32_MAX;
    if (isdigit((unsigned char)*name)) {
        char *end;
        unsigned long value = strtoul(name, &end, 10);
        if (!*end && value < UINT32_MAX)
            return (uint32_t)value;
    }
    if (strcmp(name, "root") == 0)
        return 0;
    if (!*names)
        *names = fetch(e2b, path);
    return *names ? number_in((*names)->text, name) : UINT32_MAX;
}

const char *e2b_envd_user(struct e2b *e2b, const char *user)
{
    if (!user || !*user || user[strspn(user, "0123456789")])
        return user;
    if (!e2b->users)
        e2b->users = fetch(e2b, "/etc/passwd");
    const char *line = e2b->users ? e2b->users->text : NULL;
    while (line && *line) {
        size_t len = strcspn(line, ":\n");
        if (len > 0 && len < sizeof e2b->user_name) {
            memcpy(e2b->user_name, line, len);
            e2b->user_name[len] = '\0';
            if (number_in(line, e2b->user_name) == strtoul(user, NULL, 10))
                return e2b->user_name;
        }
        line = strchr(line, '\n');
        line += line != NULL;
    }
    return user;
}

uint32_t e2b_names_uid(struct e2b *e2b, const char *name)
{
    return look_up(e2b, &e2b->users, "/etc/passwd", name);
}

uint32_t e2b_names_gid(struct e2b *e2b, const char *name)
{
    return look_up(e2b, &e2b->groups, "/etc/group", name);
}
