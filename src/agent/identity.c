/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/identity.h"

#include <stdlib.h>
#include <string.h>

#include "base/auto.h"

enum { PASSWD_MAX = 1 << 20 };

/* A whole decimal number up to `end`. */
static bool parse_id(const char *text, const char *end, uint32_t *ret_id)
{
    uint64_t id = 0;

    if (text == end || end - text > 10)
        return false;
    for (; text < end; text++) {
        if (*text < '0' || *text > '9')
            return false;
        id = 10 * id + (uint64_t)(*text - '0');
    }
    *ret_id = (uint32_t)id;
    return id < UINT32_MAX;
}

/* "name:password:uid:gid:..." */
static bool parse_line(const char *line, const char *end, const char *user,
                       struct identity *ret_identity)
{
    const char *fields[5];
    struct identity found = {.is_known = true};
    uint32_t number;

    for (int i = 0; i < 5; i++) {
        fields[i] = line;
        const char *colon = line < end ? memchr(line, ':', (size_t)(end - line)) : NULL;
        if (!colon && i < 4)
            return false;
        line = colon ? colon + 1 : end;
    }
    if (!parse_id(fields[2], fields[3] - 1, &found.uid) ||
        !parse_id(fields[3], fields[4] - 1, &found.gid))
        return false;
    size_t len = (size_t)(fields[1] - 1 - fields[0]);
    bool named = strlen(user) == len && memcmp(user, fields[0], len) == 0;
    bool numbered = parse_id(user, user + strlen(user), &number) && number == found.uid;
    if (named || numbered)
        *ret_identity = found;
    return named || numbered;
}

static bool find(const struct cay_content *passwd, const char *user,
                 struct identity *ret_identity)
{
    const char *at = passwd->data, *end = at + passwd->len;

    while (at < end) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        if (parse_line(at, stop ? stop : end, user, ret_identity))
            return true;
        at = stop ? stop + 1 : end;
    }
    return false;
}

/* The number behind "uid=" or "gid=" in what id(1) says. */
static bool parse_part(const char *text, const char *part, uint32_t *ret_id)
{
    const char *at = strstr(text, part);

    if (!at)
        return false;
    at += strlen(part);
    return parse_id(at, at + strspn(at, "0123456789"), ret_id);
}

/* For backends that do not say who their default user is. */
static struct identity ask(const struct place *place)
{
    static const char *const argv[] = {"id", NULL};
    const struct cay_exec_options options = {
        .size = sizeof options, .argv = argv, .user = place->user, .timeout_ms = 60000};
    struct cay_exec_result result = {0};
    struct identity identity = {0};

    if (cay_sandbox_exec(place->sandbox, &options, &result, NULL) == CAY_OK && result.out)
        identity.is_known = parse_part(result.out, "uid=", &identity.uid) &&
                            parse_part(result.out, "gid=", &identity.gid);
    cay_exec_done(&result);
    return identity;
}

static struct identity look_up(struct place *place, const char *user)
{
    struct cay_content passwd = {0};
    struct identity identity = {0};
    uint64_t total;

    bool read = place->ops->read(place, "/etc/passwd", 0, PASSWD_MAX, &passwd, &total,
                                 NULL) == CAY_OK;
    if (!(read && find(&passwd, user, &identity)) &&
        parse_id(user, user + strlen(user), &identity.uid))
        identity = (struct identity){true, identity.uid, identity.uid};
    free(passwd.data);
    return identity;
}

struct identity identity_of(struct place *place)
{
    struct cay_sandbox_info info = {0};

    if (place->user)
        return look_up(place, place->user);
    if (!place->sandbox)
        return (struct identity){0};
    if (cay_sandbox_inspect(place->sandbox, &info, NULL) == CAY_OK && *info.user)
        return look_up(place, info.user);
    return ask(place);
}

int identity_access(const struct identity *identity, const struct cay_stat *stat)
{
    bool is_owner = !identity->is_known || identity->uid == stat->uid;
    unsigned bits = is_owner                     ? stat->mode >> 6
                    : identity->gid == stat->gid ? stat->mode >> 3
                                                 : stat->mode;

    if (identity->is_known && identity->uid == 0)
        bits = 7;
    return (bits & 4 ? CAY_ACCESS_READ : 0) | (bits & 2 ? CAY_ACCESS_WRITE : 0);
}
