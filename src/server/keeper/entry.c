/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "server/keeper/keeper.h"

enum { NAMES_MAX = 1 << 20, METADATA_TOTAL = 4096, ETC_MS = 1000, SETTLED_MS = 100 };

static const char prefix[] = "user.e2b.";

/* --- Paths --- */

/* Removes ".", ".." and empty names from the text of a path: /a/../b is /b even if /a
 * does not exist. */
static void clean(char *path)
{
    char *to = path;

    for (const char *at = path; *at;) {
        size_t len = strcspn(at, "/");
        bool is_dot = len == 1 && at[0] == '.';
        bool is_up = len == 2 && at[0] == '.' && at[1] == '.';
        if (is_up)
            while (to > path && *--to != '/')
                continue;
        if (len > 0 && !is_dot && !is_up) {
            *to++ = '/';
            memmove(to, at, len);
            to += len;
        }
        at += len;
        at += *at == '/';
    }
    if (to == path)
        *to++ = '/';
    *to = '\0';
}

int entry_path(struct keeper *keeper, const char *user, const char *path,
               char ret_path[PATH_MAX], struct cay_error *err)
{
    char home[PATH_MAX] = "";
    bool is_tilde = path[0] == '~' && (path[1] == '\0' || path[1] == '/');

    if (*path != '/') {
        struct cay_location location = {.size = sizeof location};
        cay_files *files = keeper_files(keeper, user, err);
        int code = files ? cay_files_locate(files, ".", CAY_ACCESS_READ, &location, err)
                         : err->code;
        if (code)
            return code;
        cay_copy_text(home, PATH_MAX, location.path);
        cay_location_done(&location);
    }
    /* Long enough to detect a path that is too long. */
    char joined[2 * PATH_MAX];
    int len = snprintf(joined, sizeof joined, "/%s/%s", home, path + is_tilde);
    if (strlen(path) >= PATH_MAX || len < 0 || len >= PATH_MAX)
        return cay_fail(err, CAY_E_INVALID, ENAMETOOLONG, "files.path", NULL,
                        "the path is too long", "use at most %d bytes", PATH_MAX - 1);
    clean(joined);
    cay_copy_text(ret_path, PATH_MAX, joined);
    return CAY_OK;
}

/* --- Owners --- */

/* The content of a file, and its stat from just before it was read. */
struct cached_file {
    const char *name, *path;
    char *text;
    struct stat st;
};

/* Reading these files would dominate the time of a stat request, and they rarely change.
 * So only their stat is compared, below a descriptor of /etc that is renewed every
 * second. */
static struct {
    int etc;
    int64_t since_ms;
    struct cached_file users, groups;
} cache = {.etc = -1,
           .users = {.name = "passwd", .path = "/etc/passwd"},
           .groups = {.name = "group", .path = "/etc/group"}};

void names_close(void)
{
    if (cache.etc >= 0)
        (void)close(cache.etc);
    cache.etc = -1;
}

static bool is_same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_ctim.tv_sec == b->st_ctim.tv_sec &&
           a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

/* File timestamps have a granularity of some milliseconds: a file that has just changed
 * may change again with the same timestamp. */
static bool is_settled(const struct stat *st)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME_COARSE, &now);
    return (now.tv_sec - st->st_ctim.tv_sec) * 1000 +
               (now.tv_nsec - st->st_ctim.tv_nsec) / 1000000 >
           SETTLED_MS;
}

static const char *read_cached(cay_files *files, struct cached_file *file)
{
    const struct cay_read_options options = {.size = sizeof options, .max = NAMES_MAX};
    struct cay_page page;
    struct stat st;
    bool is_there = cache.etc >= 0 &&
                    fstatat(cache.etc, file->name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
                    S_ISREG(st.st_mode) && is_settled(&st);

    if (is_there && file->text && is_same(&st, &file->st))
        return file->text;
    cay_free(file->text);
    file->text = cay_files_read_bytes(files, file->path, &options, &page, NULL) == CAY_OK
                     ? page.text
                     : NULL;
    file->st = is_there ? st : (struct stat){0};
    return file->text;
}

void names_read(cay_files *files, struct names *ret_names)
{
    int64_t now_ms = keeper_now_ms();

    if (now_ms - cache.since_ms > ETC_MS || cache.etc < 0) {
        names_close();
        if (cay_files_descriptor(files, "/etc", CAY_DESCRIPTOR_DIRECTORY, &cache.etc,
                                 NULL) != CAY_OK)
            cache.etc = -1;
        cache.since_ms = now_ms;
    }
    ret_names->users = read_cached(files, &cache.users);
    ret_names->groups = read_cached(files, &cache.groups);
}

/* "name:x:number:..." */
static void name_of(const char *text, uint32_t number, char *name, size_t room)
{
    char wanted[16];
    int len = snprintf(wanted, sizeof wanted, ":%u:", number);

    snprintf(name, room, "%u", number);
    for (const char *line = text; line && *line;) {
        const char *first = strchr(line, ':');
        const char *second = first ? strchr(first + 1, ':') : NULL;
        const char *end = strchr(line, '\n');
        if (second && (!end || second < end) &&
            strncmp(second, wanted, (size_t)len) == 0) {
            snprintf(name, room, "%.*s", (int)(first - line), line);
            return;
        }
        line = end ? end + 1 : NULL;
    }
}

/* --- Entries --- */

/* Metadata that clients attached to a readable file.  Programs inside may attach more
 * than clients can; the rest is omitted. */
static uint32_t add_metadata(cay_files *files, const char *path, struct buf *strings)
{
    char list[8192], value[METADATA_TOTAL + 1];
    AUTO_FD fd = -1;
    uint32_t count = 0;
    size_t total = 0;

    if (cay_files_descriptor(files, path, CAY_DESCRIPTOR_READ, &fd, NULL) != CAY_OK)
        return 0;
    ssize_t len = flistxattr(fd, list, sizeof list);
    for (const char *at = list; len > 0 && at < list + len; at += strlen(at) + 1) {
        if (strncmp(at, prefix, sizeof prefix - 1) != 0)
            continue;
        ssize_t got = fgetxattr(fd, at, value, sizeof value - 1);
        if (got < 0 || memchr(value, 0, (size_t)got))
            continue;
        value[got] = '\0';
        total += strlen(at + sizeof prefix - 1) + (size_t)got;
        if (total > METADATA_TOTAL)
            break;
        strings_add(strings, at + sizeof prefix - 1);
        strings_add(strings, value);
        count += 2;
    }
    return count;
}

int entry_describe(cay_files *files, const struct names *names, const struct entry *entry,
                   int64_t *numbers, struct buf *strings, uint32_t *count,
                   struct cay_error *err)
{
    const char *path = entry->path, *shown = entry->shown;
    const char *slash = strrchr(shown, '/');
    struct cay_location target = {.size = sizeof target};
    struct cay_stat own, st;
    char owner[64], group[64];

    int code = entry->stat ? CAY_OK : cay_files_stat(files, path, true, &own, err);
    if (code)
        return code;
    if (entry->stat)
        own = *entry->stat;
    st = own;
    bool is_link = own.type == CAY_TYPE_LINK;
    if (is_link && cay_files_stat(files, path, false, &st, NULL) != CAY_OK)
        st.type = 0; /* the target does not exist */
    name_of(names->users, own.uid, owner, sizeof owner);
    name_of(names->groups, own.gid, group, sizeof group);
    numbers[ENTRY_TYPE] = st.type;
    numbers[ENTRY_SIZE] = (int64_t)st.bytes;
    numbers[ENTRY_MODE] = st.mode;
    numbers[ENTRY_MTIME_NS] = st.mtime_ns;
    numbers[ENTRY_IS_LINK] = is_link;
    strings_add(strings, slash && slash[1] ? slash + 1 : shown);
    strings_add(strings, shown);
    strings_add(strings, owner);
    strings_add(strings, group);
    /* The final target of a link, or its text if the target does not exist. */
    bool has_target = is_link && cay_files_locate(files, path, CAY_ACCESS_READ, &target,
                                                  NULL) == CAY_OK;
    strings_add(strings, has_target ? target.path : "");
    if (has_target)
        cay_location_done(&target);
    *count += 5;
    if (st.type == CAY_TYPE_FILE)
        *count += add_metadata(files, path, strings);
    return CAY_OK;
}

int entry_send(cay_files *files, const struct names *names, const struct entry *entry,
               int channel, struct cay_error *err)
{
    struct reply reply = {.kind = REPLY_ENTRY};
    AUTO_BUF strings = {.max = CHANNEL_PACKET};

    int code =
        entry_describe(files, names, entry, reply.numbers, &strings, &reply.count, err);
    if (code)
        return code;
    int error = reply_send(channel, &reply, &strings, -1);
    return error ? cay_fail_errno(err, -error, "files.entry", entry->shown) : CAY_OK;
}
