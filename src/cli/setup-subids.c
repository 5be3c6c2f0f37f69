/* SPDX-License-Identifier: Apache-2.0 */
/* Ranges of subordinate ids: lines NAME:FIRST:COUNT of etc/subuid and etc/subgid. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/error.h"
#include "base/passwd.h"
#include "cli/setup.h"

enum { RANGE = 65536, FILE_MAX = 16 << 20 };

struct range {
    uint32_t first, count;
};

/* The texts whose ids are in use. */
enum { SUBUID, SUBGID, PASSWD, GROUP, TEXTS };
static const char *const paths[TEXTS] = {SETUP_SUBUID, SETUP_SUBGID, "etc/passwd",
                                         "etc/group"};

struct texts {
    struct buf bufs[TEXTS];
    bool is_missing[TEXTS];
    uint32_t least, most; /* the ids that login.defs sets aside */
};

static void free_texts(struct texts *texts)
{
    for (size_t i = 0; i < TEXTS; i++)
        buf_done(&texts->bufs[i]);
}

/* "SUB_UID_MIN 100000" */
static void read_bound(const char *text, const char *name, bool is_least, uint32_t *bound)
{
    size_t len = strlen(name);

    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, len) != 0 || (line[len] != ' ' && line[len] != '\t'))
            continue;
        char *end;
        unsigned long value = strtoul(line + len, &end, 0);
        if (end != line + len && value <= UINT32_MAX &&
            (is_least ? value > *bound : value < *bound))
            *bound = (uint32_t)value;
    }
}

/* shadow's own defaults, unless the file has others.  A range is for users and groups, so
 * it has to be within the bounds of both. */
static void read_bounds(int root, struct texts *texts)
{
    AUTO_BUF text;

    buf_init(&text, FILE_MAX);
    texts->least = 0;
    texts->most = UINT32_MAX;
    if (setup_read(root, "etc/login.defs", &text) == 0 && text.data) {
        read_bound(text.data, "SUB_UID_MIN", true, &texts->least);
        read_bound(text.data, "SUB_GID_MIN", true, &texts->least);
        read_bound(text.data, "SUB_UID_MAX", false, &texts->most);
        read_bound(text.data, "SUB_GID_MAX", false, &texts->most);
    }
    if (texts->least == 0)
        texts->least = 100000;
    if (texts->most == UINT32_MAX)
        texts->most = 600100000;
}

static int read_texts(int root, struct texts *texts, struct cay_error *err)
{
    *texts = (struct texts){0};
    for (size_t i = 0; i < TEXTS; i++)
        buf_init(&texts->bufs[i], FILE_MAX);
    for (size_t i = 0; i < TEXTS; i++) {
        int error = setup_read(root, paths[i], &texts->bufs[i]);
        texts->is_missing[i] = error == -ENOENT;
        if (error && error != -ENOENT)
            return setup_fail(error, paths[i], err);
    }
    read_bounds(root, texts);
    return CAY_OK;
}

/* False if the line has no range.  The ids of a user or a group are one. */
static bool parse(const struct passwd_line *line, size_t which, struct range *ret_range)
{
    ret_range->count = 1;
    if (which >= PASSWD)
        return passwd_id(line, 2, UINT32_MAX - 1, &ret_range->first);
    return line->count == 3 && passwd_id(line, 1, UINT32_MAX, &ret_range->first) &&
           passwd_id(line, 2, UINT32_MAX, &ret_range->count);
}

/* The id behind a range, which may end above the last id. */
static uint32_t find_end(const struct range *range)
{
    uint64_t end = (uint64_t)range->first + range->count;

    return end < UINT32_MAX ? (uint32_t)end : UINT32_MAX;
}

/* Moves `first` behind the ranges of the text that overlap it; true if it was moved. */
static bool skip(const char *text, size_t which, uint32_t *first)
{
    struct passwd_line line;
    struct range range;
    bool moved = false;

    while (text && passwd_next(&text, &line))
        if (parse(&line, which, &range) && range.first < (uint64_t)*first + RANGE &&
            *first < find_end(&range)) {
            *first = find_end(&range);
            moved = true;
        }
    return moved;
}

static bool skip_planned(const struct setup_list *changes, uint32_t *first)
{
    bool moved = false;

    for (size_t i = 0; i < changes->count; i++)
        if (changes->items[i].kind == SETUP_RANGE)
            moved |= skip(changes->items[i].text, SUBUID, first);
    return moved;
}

/* The lowest free range; false if there is none. */
static bool find_free(const struct texts *texts, const struct setup_list *changes,
                      uint32_t *ret_first)
{
    uint32_t first = texts->least;
    bool moved = true;

    while (moved && (uint64_t)first + RANGE - 1 <= texts->most) {
        moved = skip_planned(changes, &first);
        for (size_t i = 0; i < TEXTS; i++)
            moved |= skip(texts->bufs[i].data, i, &first);
    }
    *ret_first = first;
    return !moved;
}

/* The first id of a range that is large enough. */
static bool has_range(const char *text, const struct setup_user *user,
                      uint32_t *ret_first)
{
    struct passwd_line line;
    struct range range;
    char number[16];

    snprintf(number, sizeof number, "%u", user->uid);
    while (text && passwd_next(&text, &line))
        if ((passwd_is(&line, user->name, strlen(user->name)) ||
             passwd_is(&line, number, strlen(number))) &&
            parse(&line, SUBUID, &range) && range.count >= RANGE &&
            range.count <= UINT32_MAX - range.first) {
            *ret_first = range.first;
            return true;
        }
    return false;
}

/* Whether newuidmap reads these files: nsswitch.conf may name another source. */
static bool uses_files(int root)
{
    AUTO_BUF text;

    buf_init(&text, FILE_MAX);
    if (setup_read(root, "etc/nsswitch.conf", &text) != 0 || !text.data)
        return true;
    for (const char *line = text.data; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, "subid:", 6) == 0) {
            line += 6 + strspn(line + 6, " \t");
            return strncmp(line, "files", 5) == 0;
        }
    }
    return true;
}

/* Whether a range of one file is free in the other. */
static bool is_free(const struct texts *texts, const struct setup_list *changes,
                    size_t which, uint32_t first)
{
    return !skip(texts->bufs[which].data, which, &first) &&
           !skip(texts->bufs[which + PASSWD].data, which + PASSWD, &first) &&
           !skip_planned(changes, &first);
}

static int plan_missing(struct setup *setup, const struct setup_user *user,
                        const struct texts *texts, const bool *has, uint32_t firsts[2],
                        struct cay_error *err)
{
    char line[128];
    uint32_t first = firsts[has[SUBGID]];

    if ((has[SUBUID] == has[SUBGID] ||
         !is_free(texts, &setup->changes, has[SUBUID], first)) &&
        !find_free(texts, &setup->changes, &first))
        return cay_fail(err, CAY_E_LIMIT, 0, "setup", "/etc/subuid",
                        "no 65536 subordinate ids are free",
                        "SUB_UID_MIN and SUB_UID_MAX of /etc/login.defs allow %u to %u: "
                        "raise the maximum, or remove a range",
                        texts->least, texts->most);
    snprintf(line, sizeof line, "%s:%u:%d", user->name, first, RANGE);
    for (size_t i = 0; i < 2; i++) {
        if (has[i])
            continue;
        if (texts->is_missing[i])
            TRY(setup_list_add(&setup->changes, SETUP_EMPTY, paths[i], NULL, NULL, err));
        TRY(setup_list_add(&setup->changes, SETUP_RANGE, paths[i], line, NULL, err));
    }
    return CAY_OK;
}

int setup_plan_ranges(struct setup *setup, const struct setup_user *user,
                      struct cay_error *err)
{
    struct texts texts;
    uint32_t firsts[2] = {0};
    bool has[2] = {false};
    int code = read_texts(setup->root, &texts, err);

    for (size_t i = 0; !code && i < 2; i++)
        has[i] = has_range(texts.bufs[i].data, user, &firsts[i]);
    if (!code && !(has[SUBUID] && has[SUBGID])) {
        if (uses_files(setup->root))
            code = plan_missing(setup, user, &texts, has, firsts, err);
        else
            code = setup_note(setup, err,
                              "65536 subordinate ids for %s: /etc/nsswitch.conf takes "
                              "them from another source (subid:); add them there",
                              user->name);
    }
    free_texts(&texts);
    return code;
}
