/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/error.h"
#include "e2b/archive.h"
#include "e2b/command.h"
#include "e2b/entry.h"
#include "json/json.h"

enum {
    LISTING_MAX = 256 << 20,
    DEPTH_MAX = 4096,
    BODY_MAX = 64 << 10,
    TARGET_MAX = 64 << 10
};

/* --- One name --- */

static int look(struct e2b *e2b, const char *op, const char *user, const char *path,
                char **ret_whole, struct e2b_entry *ret_entry, struct cay_error *err)
{
    int code = e2b_path(e2b, op, path, ret_whole, err);

    e2b_keep_alive(e2b, UINT64_MAX);
    return code ? code : e2b_envd_stat(e2b, op, user, *ret_whole, path, ret_entry, err);
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

static int fail_link(const char *op, const char *path, struct cay_error *err)
{
    return cay_fail(err, CAY_E_INVALID, 0, op, path, "not a symbolic link",
                    "stat shows the type of the file");
}

/* The daemon reports the file at the end of a chain of links; readlink(1) inside prints
 * what the link itself contains. */
static int read_link(void *cookie, const char *user, const char *path, char **ret_target,
                     struct cay_error *err)
{
    static const char op[] = "files.read-link";
    AUTO_FREE char *whole = NULL;
    struct e2b_entry entry;
    int exit_code = 0;
    AUTO_BUF out = {0};

    int code = look(cookie, op, user, path, &whole, &entry, err);
    if (!code && !entry.is_link && entry.stat.type)
        code = fail_link(op, path, err);
    if (code)
        return code;
    const char *const argv[] = {"readlink", "-n", "--", whole, NULL};
    buf_init(&out, TARGET_MAX);
    code = e2b_script_words(cookie, op, user, argv, &out, &exit_code, err);
    if (code)
        return code;
    if (exit_code || !out.len)
        return fail_link(op, path, err);
    *ret_target = buf_take(&out);
    return *ret_target ? CAY_OK : cay_fail_memory(err, op);
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
    int code = e2b_path(e2b, op, path, &whole, err);
    e2b_keep_alive(e2b, UINT64_MAX);
    if (!code && flags & CAY_NAME_NO_PARENTS)
        code = e2b_entry_parent(e2b, op, user, whole, path, err);
    if (code)
        return code;
    code = change(e2b, &call, (const char *const[]){"path", whole, NULL}, &error);
    /* What is there already may be something else. */
    if (code == CAY_E_EXISTS && flags & CAY_NAME_EXIST_OK &&
        e2b_envd_stat(e2b, op, user, whole, path, &entry, NULL) == CAY_OK &&
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
    return change(cookie, &call, (const char *const[]){"path", whole, NULL}, err);
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
        code = e2b_path(cookie, op, destination, &to, err);
    if (!code)
        code = e2b_entry_absent(cookie, op, user, to, destination, err);
    if (code)
        return code;
    return change(cookie, &call,
                  (const char *const[]){"source", from, "destination", to, NULL}, err);
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

/* One name that is not UTF-8 makes the daemon fail to encode the whole listing.  (Cay's
 * own server replaces such bytes by U+FFFD.) */
static bool is_about_text(const struct cay_error *error)
{
    return error->code == CAY_E_IO && strcasestr(error->message, "UTF-8");
}

static int fail_list(int code, const struct cay_error *error, const char *path,
                     struct cay_error *err)
{
    static const char op[] = "files.list";

    if (code == CAY_E_INVALID)
        return cay_fail(err, CAY_E_NOT_A_DIRECTORY, 0, op, path, "not a directory",
                        "list the directory that contains it");
    if (is_about_text(error))
        return cay_fail(err, CAY_E_UNSUPPORTED, 0, op, path,
                        "the directory contains a file name that is not UTF-8",
                        "rename that file in the sandbox, for example with mv");
    if (err)
        *err = *error;
    return code;
}

static int list_it(void *cookie, const char *user, const char *path, uint32_t depth,
                   struct cay_listing *ret_listing, struct cay_error *err)
{
    static const char op[] = "files.list";
    const struct e2b_call call = {.op = op,
                                  .subject = path,
                                  .method = "filesystem.Filesystem/ListDir",
                                  .user = user,
                                  .repeatable = true,
                                  .fallback = CAY_E_IO,
                                  .reply_max = LISTING_MAX};
    AUTO_FREE char *whole = NULL;
    AUTO_JSON reply = NULL;
    struct cay_error error;
    struct json json;
    AUTO_BUF body = {0};

    int code = e2b_path(cookie, op, path, &whole, err);
    if (code)
        return code;
    e2b_keep_alive(cookie, UINT64_MAX);
    buf_init(&body, BODY_MAX);
    json_to_buf(&json, &body);
    json_put_object(&json);
    json_set_text(&json, "path", whole);
    json_set_uint(&json, "depth", depth == 0 || depth > DEPTH_MAX ? DEPTH_MAX : depth);
    json_put_end(&json);
    code = e2b_call(cookie, &call, &body, &reply, &error);
    if (code)
        return fail_list(code, &error, path, err);
    return read_listing(cookie, json_object_get(reply, "entries"),
                        &(const struct top){path, whole}, ret_listing, err);
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
