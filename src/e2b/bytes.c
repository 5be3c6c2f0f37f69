/* SPDX-License-Identifier: Apache-2.0 */
#include "e2b/bytes.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/error.h"
#include "base/utf8.h"
#include "e2b/run.h"

enum { OUTPUT_MAX = 256 << 20, NANOS = 1000000000 };

/* Type, mode, owner, group, size, time and path, up to a NUL. */
static const char format[] = "%y %m %U %G %s %T@ %p\\0";

bool e2b_bytes_is_text(const char *path)
{
    return utf8_is_valid(path, strlen(path));
}

/* --- Looking --- */

static bool take_number(const char **text, int base, uint64_t *ret_number)
{
    char *end;

    if (!isdigit((unsigned char)**text))
        return false;
    *ret_number = strtoull(*text, &end, base);
    *text = end;
    return true;
}

static bool take_time(const char **text, int64_t *ret_nanos)
{
    uint64_t seconds, nanos = 0, unit = NANOS;

    if (!take_number(text, 10, &seconds) || seconds > INT64_MAX / NANOS - 1)
        return false;
    if (**text == '.')
        for ((*text)++; isdigit((unsigned char)**text); (*text)++) {
            unit /= 10;
            nanos += (uint64_t)(**text - '0') * unit;
        }
    *ret_nanos = (int64_t)(seconds * NANOS + nanos);
    return true;
}

/* One line of find's; its path is left in *text. */
static bool take_entry(const char **text, struct cay_stat *ret_stat)
{
    uint64_t mode, uid, gid;
    char type = **text;

    *ret_stat = (struct cay_stat){.type = type == 'f'   ? CAY_TYPE_FILE
                                          : type == 'd' ? CAY_TYPE_DIRECTORY
                                          : type == 'l' ? CAY_TYPE_LINK
                                                        : CAY_TYPE_OTHER,
                                  .links = 1};
    if (!type || *++*text != ' ')
        return false;
    ++*text;
    if (!take_number(text, 8, &mode) || *(*text)++ != ' ' ||
        !take_number(text, 10, &uid) || *(*text)++ != ' ' ||
        !take_number(text, 10, &gid) || *(*text)++ != ' ' ||
        !take_number(text, 10, &ret_stat->bytes) || *(*text)++ != ' ' ||
        !take_time(text, &ret_stat->mtime_ns) || *(*text)++ != ' ' || **text != '/')
        return false;
    ret_stat->mode = (uint32_t)mode & 07777;
    ret_stat->uid = (uint32_t)uid;
    ret_stat->gid = (uint32_t)gid;
    return true;
}

static int fail_find(const char *op, const char *path, struct cay_error *err)
{
    return cay_fail(err, CAY_E_UNSUPPORTED, 0, op, path,
                    "names that are not UTF-8 need GNU find in the sandbox",
                    "install findutils there, or use another name");
}

int e2b_bytes_stat(struct e2b *e2b, const char *op, const char *user, const char *path,
                   bool no_follow, struct cay_stat *ret_stat, struct cay_error *err)
{
    const char *const argv[] = {
        "find", no_follow ? "-P" : "-L", path, "-maxdepth", "0", "-printf", format, NULL};
    const char *const there[] = {"test", no_follow ? "-h" : "-e", path, NULL};
    int exit_code = 0;
    AUTO_BUF out;

    buf_init(&out, 64 << 10);
    int code = e2b_script_words(e2b, op, user, argv, &out, &exit_code, err);
    if (code)
        return code;
    const char *line = out.data;
    if (exit_code == 0 && line && take_entry(&line, ret_stat) &&
        (no_follow || ret_stat->type != CAY_TYPE_LINK))
        return CAY_OK;
    code = e2b_script_words(e2b, op, user, there, NULL, &exit_code, err);
    if (code)
        return code;
    return exit_code == 0 ? fail_find(op, path, err)
                          : cay_fail(err, CAY_E_NOT_FOUND, 0, op, path,
                                     "there is nothing of that name",
                                     "list the directory to see what is there");
}

static int compare(const void *left, const void *right)
{
    return strcmp(((const struct cay_entry *)left)->path,
                  ((const struct cay_entry *)right)->path);
}

static size_t count_lines(const struct buf *out)
{
    size_t count = 0;

    for (size_t i = 0; i < out->len; i++)
        count += out->data[i] == '\0';
    return count;
}

static int read_lines(const struct buf *out, const char *path,
                      struct cay_listing *ret_listing, struct cay_error *err)
{
    static const char op[] = "files.list";
    struct cay_listing listing = {0};
    const char *at = out->data;
    bool fine = true;

    listing.entries = calloc(count_lines(out) + 1, sizeof *listing.entries);
    if (!listing.entries)
        return cay_fail_memory(err, op);
    while (fine && at && at < out->data + out->len) {
        struct cay_entry *entry = &listing.entries[listing.count];
        fine = take_entry(&at, &entry->stat) && (entry->path = strdup(at));
        listing.count += fine;
        at += strlen(at) + 1;
    }
    if (!fine) {
        cay_listing_done(&listing);
        return e2b_reply_malformed(op, path, "find wrote something else", err);
    }
    qsort(listing.entries, listing.count, sizeof *listing.entries, compare);
    *ret_listing = listing;
    return CAY_OK;
}

int e2b_bytes_list(struct e2b *e2b, const char *user, const char *path, uint32_t depth,
                   struct cay_listing *ret_listing, struct cay_error *err)
{
    static const char op[] = "files.list";
    char levels[16];
    /* A link to a directory is the directory. */
    const char *const argv[] = {"find",      "-H",   path,      "-mindepth", "1",
                                "-maxdepth", levels, "-printf", format,      NULL};
    int exit_code = 0;
    AUTO_BUF out;

    snprintf(levels, sizeof levels, "%u", depth);
    buf_init(&out, OUTPUT_MAX);
    int code = e2b_script_words(e2b, op, user, argv, &out, &exit_code, err);
    if (!code && out.failed)
        code = cay_fail(err, CAY_E_LIMIT, 0, op, path, "there are too many names",
                        "list the directories in it one by one");
    if (!code && exit_code > 1)
        code = fail_find(op, path, err);
    return code ? code : read_lines(&out, path, ret_listing, err);
}

int e2b_bytes_read_link(struct e2b *e2b, const char *user, const char *path,
                        char **ret_target, struct cay_error *err)
{
    static const char op[] = "files.read-link";
    const char *const argv[] = {"readlink", "-n", "--", path, NULL};
    int exit_code = 0;
    AUTO_BUF out;

    buf_init(&out, 64 << 10);
    int code = e2b_script_words(e2b, op, user, argv, &out, &exit_code, err);
    if (code)
        return code;
    if (exit_code || !out.len)
        return cay_fail(err, CAY_E_INVALID, 0, op, path, "this is no symbolic link",
                        "stat tells what it is");
    *ret_target = buf_take(&out);
    return *ret_target ? CAY_OK : cay_fail_memory(err, op);
}

/* --- Changing --- */

static int change(struct e2b *e2b, const char *op, const char *user,
                  const char *const *argv, const char *path, struct cay_error *err)
{
    int exit_code = 0;
    int code = e2b_script_words(e2b, op, user, argv, NULL, &exit_code, err);

    if (!code && exit_code)
        code = cay_fail(err, CAY_E_DENIED, 0, op, path,
                        "the sandbox does not let this be done",
                        "ask as a user who may, such as root");
    return code;
}

int e2b_bytes_mkdir(struct e2b *e2b, const char *user, const char *path,
                    struct cay_error *err)
{
    const char *const argv[] = {"mkdir", "-p", "--", path, NULL};

    return change(e2b, "files.mkdir", user, argv, path, err);
}

int e2b_bytes_remove(struct e2b *e2b, const char *user, const char *path,
                     struct cay_error *err)
{
    const char *const argv[] = {"rm", "-rf", "--", path, NULL};

    return change(e2b, "files.delete", user, argv, path, err);
}

int e2b_bytes_move(struct e2b *e2b, const char *user, const char *source,
                   const char *destination, struct cay_error *err)
{
    const char *const argv[] = {"mv", "-T", "--", source, destination, NULL};

    return change(e2b, "files.move", user, argv, source, err);
}
