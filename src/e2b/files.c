/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/error.h"
#include "e2b/archive.h"
#include "e2b/bytes.h"
#include "e2b/entry.h"
#include "json/json.h"

enum { LISTING_MAX = 256 << 20, DEPTH_MAX = 4096, BODY_MAX = 64 << 10 };

/* --- One name --- */

static int look(struct e2b *e2b, const char *op, const char *user, const char *path,
                char **ret_whole, struct e2b_entry *ret_entry, struct cay_error *err)
{
    int code = e2b_path(e2b, op, path, false, ret_whole, err);

    e2b_keep_alive(e2b, UINT64_MAX);
    return code ? code : e2b_entry_stat(e2b, op, user, *ret_whole, path, ret_entry, err);
}

static int stat_it(void *cookie, const char *user, const char *path, bool no_follow,
                   struct cay_stat *ret_stat, struct cay_error *err)
{
    static const char op[] = "files.stat";
    AUTO_FREE char *whole = NULL;
    struct e2b_entry entry;

    int code = look(cookie, op, user, path, &whole, &entry, err);
    if (code)
        return code;
    if (no_follow && (entry.is_link || !entry.stat.type)) {
        entry.stat.type = CAY_TYPE_LINK;
        entry.stat.mode = 0777;
    }
    if (!entry.stat.type)
        return cay_fail(err, CAY_E_NOT_FOUND, 0, op, path, "the link leads nowhere",
                        "look at the link itself, or make what it leads to");
    *ret_stat = entry.stat;
    return CAY_OK;
}

/* The daemon tells where it leads in the end, not what it says. */
static int read_link(void *cookie, const char *user, const char *path, char **ret_target,
                     struct cay_error *err)
{
    static const char op[] = "files.read-link";
    AUTO_FREE char *whole = NULL;
    struct e2b_entry entry;

    int code = look(cookie, op, user, path, &whole, &entry, err);
    if (!code && !entry.is_link && entry.stat.type)
        code = cay_fail(err, CAY_E_INVALID, 0, op, path, "this is no symbolic link",
                        "stat tells what it is");
    return code ? code : e2b_bytes_read_link(cookie, user, whole, ret_target, err);
}

/* --- Changing names --- */

static int change(struct e2b *e2b, const struct e2b_call *call, const char *const *fields,
                  struct cay_error *err)
{
    struct json json;
    AUTO_BUF body;

    buf_init(&body, BODY_MAX);
    json_to_buf(&json, &body);
    json_put_object(&json);
    for (; *fields; fields += 2)
        json_set_text(&json, fields[0], fields[1]);
    json_put_end(&json);
    return e2b_call(e2b, call, &body, NULL, err);
}

static int make_bytes(struct e2b *e2b, const char *user, const char *whole,
                      const char *path, struct cay_error *err)
{
    int code = e2b_entry_absent(e2b, "files.mkdir", user, whole, path, err);

    return code ? code : e2b_bytes_mkdir(e2b, user, whole, err);
}

static int make_directory(void *cookie, const char *user, const char *path,
                          unsigned flags, struct cay_error *err)
{
    static const char op[] = "files.mkdir";
    const struct e2b_call call = {.op = op,
                                  .subject = path,
                                  .method = "filesystem.Filesystem/MakeDir",
                                  .user = user,
                                  .fallback = CAY_E_IO};
    struct e2b_entry entry = {0};
    struct e2b *e2b = cookie;
    struct cay_error error;
    AUTO_FREE char *whole = NULL;

    if (flags & ~(unsigned)(CAY_NAME_NO_PARENTS | CAY_NAME_EXIST_OK))
        return cay_fail(err, CAY_E_UNSUPPORTED, 0, op, "flags", "unknown flags",
                        "a directory can be made without parents, or be there already");
    int code = e2b_path(e2b, op, path, false, &whole, err);
    e2b_keep_alive(e2b, UINT64_MAX);
    if (!code && flags & CAY_NAME_NO_PARENTS)
        code = e2b_entry_parent(e2b, op, user, whole, path, err);
    if (code)
        return code;
    code = e2b_bytes_is_text(whole)
               ? change(e2b, &call, (const char *const[]){"path", whole, NULL}, &error)
               : make_bytes(e2b, user, whole, path, &error);
    /* What is there already may be something else. */
    if (code == CAY_E_EXISTS && flags & CAY_NAME_EXIST_OK &&
        e2b_entry_stat(e2b, op, user, whole, path, &entry, NULL) == CAY_OK &&
        entry.stat.type == CAY_TYPE_DIRECTORY)
        return CAY_OK;
    if (code == CAY_E_INVALID && e2b_entry_absent(e2b, op, user, whole, path, err))
        return CAY_E_EXISTS;
    if (code && err)
        *err = error;
    return code;
}

static int remove_it(void *cookie, const char *user, const char *path, unsigned flags,
                     struct cay_error *err)
{
    static const char op[] = "files.delete";
    const struct e2b_call call = {.op = op,
                                  .subject = path,
                                  .method = "filesystem.Filesystem/Remove",
                                  .user = user,
                                  .fallback = CAY_E_IO};
    AUTO_FREE char *whole = NULL;
    struct e2b_entry entry;

    if (flags & ~(unsigned)CAY_NAME_RECURSIVE)
        return cay_fail(err, CAY_E_UNSUPPORTED, 0, op, "flags", "unknown flags",
                        "a removal can be recursive");
    /* The daemon takes away whatever it is, and does not mind if it is nothing. */
    int code = look(cookie, op, user, path, &whole, &entry, err);
    if (code)
        return code;
    if (strcmp(whole, "/") == 0)
        return cay_fail(err, CAY_E_INVALID, 0, op, path, "this is the root and stays",
                        "name something below it");
    if (!(flags & CAY_NAME_RECURSIVE) && !entry.is_link &&
        entry.stat.type == CAY_TYPE_DIRECTORY)
        return cay_fail(err, CAY_E_NOT_A_FILE, 0, op, path, "this is a directory",
                        "say that it is to go with all that is in it");
    return e2b_bytes_is_text(whole)
               ? change(cookie, &call, (const char *const[]){"path", whole, NULL}, err)
               : e2b_bytes_remove(cookie, user, whole, err);
}

static int move_it(void *cookie, const char *user, const char *source,
                   const char *destination, struct cay_error *err)
{
    static const char op[] = "files.move";
    const struct e2b_call call = {.op = op,
                                  .subject = source,
                                  .method = "filesystem.Filesystem/Move",
                                  .user = user,
                                  .fallback = CAY_E_IO};
    AUTO_FREE char *from = NULL;
    AUTO_FREE char *to = NULL;
    struct e2b_entry entry;

    int code = look(cookie, op, user, source, &from, &entry, err);
    if (!code)
        code = e2b_path(cookie, op, destination, false, &to, err);
    if (!code)
        code = e2b_entry_absent(cookie, op, user, to, destination, err);
    if (code)
        return code;
    return e2b_bytes_is_text(from) && e2b_bytes_is_text(to)
               ? change(cookie, &call,
                        (const char *const[]){"source", from, "destination", to, NULL},
                        err)
               : e2b_bytes_move(cookie, user, from, to, err);
}

/* --- Listing --- */

/* What is listed lies below the directory that was asked for, or somebody is up to
 * something: names from here become names on the host in a download. */
static bool is_below(const char *path, const char *directory)
{
    size_t len = strlen(directory);

    if (len == 1)
        len = 0;
    if (strncmp(path, directory, len) != 0 || path[len] != '/' || !path[len + 1])
        return false;
    for (const char *at = path + len; *at; at += strcspn(at + 1, "/") + 1) {
        size_t name = strcspn(at + 1, "/");
        if (name == 0 || (name <= 2 && strncmp(at + 1, "..", name) == 0))
            return false;
    }
    return true;
}

/* The directory as it was asked for, and what the daemon calls it. */
struct top {
    const char *spelled, *whole;
};

static char *spell(const struct top *top, const char *path)
{
    const char *rest = path + (top->whole[1] ? strlen(top->whole) : 0);
    size_t len = strlen(top->spelled);

    if (*top->spelled != '/')
        return strdup(path);
    while (len && top->spelled[len - 1] == '/')
        len--;
    char *spelled = malloc(len + strlen(rest) + 1);
    if (spelled) {
        memcpy(spelled, top->spelled, len);
        memcpy(spelled + len, rest, strlen(rest) + 1);
    }
    return spelled;
}

static const char *read_one(struct e2b *e2b, const json_t *json, const struct top *top,
                            struct cay_entry *ret_entry)
{
    struct e2b_entry entry;
    const char *wrong = e2b_entry_read(e2b, json, &entry);

    if (wrong)
        return wrong;
    if (!is_below(entry.path, top->whole))
        return "an entry lies outside the directory that was listed";
    if (entry.is_link || !entry.stat.type)
        entry.stat.type = CAY_TYPE_LINK;
    *ret_entry = (struct cay_entry){.path = spell(top, entry.path), .stat = entry.stat};
    return ret_entry->path ? NULL : "memory is exhausted";
}

static int compare(const void *left, const void *right)
{
    return strcmp(((const struct cay_entry *)left)->path,
                  ((const struct cay_entry *)right)->path);
}

static int read_listing(struct e2b *e2b, const json_t *list, const struct top *top,
                        struct cay_listing *ret_listing, struct cay_error *err)
{
    static const char op[] = "files.list";
    struct cay_listing listing = {0};
    const char *wrong =
        list && !json_is_array(list) ? "the entries are not a list" : NULL;
    size_t count = json_array_size(list);

    listing.entries = calloc(count + 1, sizeof *listing.entries);
    if (!listing.entries)
        return cay_fail_memory(err, op);
    for (; !wrong && listing.count < count; listing.count += !wrong)
        wrong = read_one(e2b, json_array_get(list, listing.count), top,
                         &listing.entries[listing.count]);
    if (wrong) {
        cay_listing_done(&listing);
        return e2b_reply_malformed(op, top->spelled, wrong, err);
    }
    qsort(listing.entries, listing.count, sizeof *listing.entries, compare);
    *ret_listing = listing;
    return CAY_OK;
}

/* A single name that is not text, and the daemon can tell none. */
static bool is_about_text(const struct cay_error *error)
{
    return error->code == CAY_E_PROTOCOL ||
           (error->code == CAY_E_IO && strcasestr(error->message, "UTF-8"));
}

/* Or it tells them with U+FFFD for what is not. */
static bool has_replaced(const struct cay_listing *listing)
{
    for (size_t i = 0; i < listing->count; i++)
        if (strstr(listing->entries[i].path, "\xef\xbf\xbd"))
            return true;
    return false;
}

static int list_text(struct e2b *e2b, const char *user, const struct top *top,
                     uint32_t depth, struct cay_listing *ret_listing, bool *ret_is_text,
                     struct cay_error *err)
{
    static const char op[] = "files.list";
    const struct e2b_call call = {.op = op,
                                  .subject = top->spelled,
                                  .method = "filesystem.Filesystem/ListDir",
                                  .user = user,
                                  .repeatable = true,
                                  .fallback = CAY_E_IO,
                                  .reply_max = LISTING_MAX};
    AUTO_JSON reply = NULL;
    struct json json;
    AUTO_BUF body;

    buf_init(&body, BODY_MAX);
    json_to_buf(&json, &body);
    json_put_object(&json);
    json_set_text(&json, "path", top->whole);
    json_set_uint(&json, "depth", depth);
    json_put_end(&json);
    int code = e2b_call(e2b, &call, &body, &reply, err);
    *ret_is_text = !code || !is_about_text(err);
    if (code == CAY_E_INVALID)
        return cay_fail(err, CAY_E_NOT_A_DIRECTORY, 0, op, top->spelled,
                        "this is not a directory", "list the one that it is in");
    if (!code)
        code =
            read_listing(e2b, json_object_get(reply, "entries"), top, ret_listing, err);
    if (!code)
        *ret_is_text = !has_replaced(ret_listing);
    return code;
}

static int list_bytes(struct e2b *e2b, const char *user, const struct top *top,
                      uint32_t depth, struct cay_listing *ret_listing,
                      struct cay_error *err)
{
    static const char op[] = "files.list";
    struct cay_listing listing = {0};
    struct e2b_entry entry = {0};
    const char *wrong = NULL;

    int code = e2b_entry_stat(e2b, op, user, top->whole, top->spelled, &entry, err);
    if (!code && entry.stat.type != CAY_TYPE_DIRECTORY)
        code = cay_fail(err, CAY_E_NOT_A_DIRECTORY, 0, op, top->spelled,
                        "this is not a directory", "list the one that it is in");
    if (!code)
        code = e2b_bytes_list(e2b, user, top->whole, depth, &listing, err);
    for (size_t i = 0; !code && !wrong && i < listing.count; i++) {
        char *path = listing.entries[i].path;
        wrong = !is_below(path, top->whole) ? "a name lies outside the directory"
                : !(listing.entries[i].path = spell(top, path)) ? "memory is exhausted"
                                                                : NULL;
        if (listing.entries[i].path != path)
            free(path);
    }
    if (wrong)
        code = e2b_reply_malformed(op, top->spelled, wrong, err);
    if (code)
        cay_listing_done(&listing);
    else
        *ret_listing = listing;
    return code;
}

static int list_it(void *cookie, const char *user, const char *path, uint32_t depth,
                   struct cay_listing *ret_listing, struct cay_error *err)
{
    AUTO_FREE char *whole = NULL;
    struct cay_listing bytes = {0};
    struct cay_error error;
    bool is_text = true;

    int code = e2b_path(cookie, "files.list", path, false, &whole, err);
    if (code)
        return code;
    e2b_keep_alive(cookie, UINT64_MAX);
    const struct top top = {path, whole};
    if (depth == 0 || depth > DEPTH_MAX)
        depth = DEPTH_MAX;
    if (!e2b_bytes_is_text(whole))
        return list_bytes(cookie, user, &top, depth, ret_listing, err);
    code = list_text(cookie, user, &top, depth, ret_listing, &is_text, &error);
    if (!is_text && list_bytes(cookie, user, &top, depth, &bytes, NULL) == CAY_OK) {
        if (!code)
            cay_listing_done(ret_listing);
        *ret_listing = bytes;
        return CAY_OK;
    }
    if (code && err)
        *err = error;
    return code;
}

const struct cay_file_backend e2b_files = {
    .size = sizeof e2b_files,
    .stat = stat_it,
    .read = e2b_file_read,
    .write = e2b_file_write,
    .list = list_it,
    .mkdir = make_directory,
    .remove = remove_it,
    .move = move_it,
    .import_tar = e2b_archive_import,
    .read_link = read_link,
};
