/* SPDX-License-Identifier: Apache-2.0 */
#include "e2b/entry.h"

#include <string.h>

#include "base/auto.h"
#include "base/error.h"
#include "e2b/messages.h"
#include "json/json.h"

static enum cay_type read_type(const json_t *json)
{
    const char *name = e2b_value_text(json, "type");
    const char *permissions = e2b_value_text(json, "permissions");

    if (!name || strcmp(name, "FILE_TYPE_UNSPECIFIED") == 0)
        /* A link that leads nowhere, or a device or the like; not all say which. */
        return permissions && *permissions && *permissions != 'L' ? CAY_TYPE_OTHER : 0;
    return strcmp(name, "FILE_TYPE_FILE") == 0        ? CAY_TYPE_FILE
           : strcmp(name, "FILE_TYPE_DIRECTORY") == 0 ? CAY_TYPE_DIRECTORY
           : strcmp(name, "FILE_TYPE_SYMLINK") == 0   ? CAY_TYPE_LINK
                                                      : CAY_TYPE_OTHER;
}

const char *e2b_entry_read(struct e2b *e2b, const json_t *json,
                           struct e2b_entry *ret_entry)
{
    int64_t size = e2b_value_int(json, "size");
    int64_t mode = e2b_value_int(json, "mode");
    const char *target = e2b_value_text(json, "symlinkTarget");

    if (!json_is_object(json))
        return "an entry is not an object";
    *ret_entry = (struct e2b_entry){
        .path = e2b_value_text(json, "path"),
        .is_link = target && *target,
        .stat = {.type = read_type(json),
                 .mode = (uint32_t)mode & 07777,
                 .uid = e2b_names_uid(e2b, e2b_value_text(json, "owner")),
                 .gid = e2b_names_gid(e2b, e2b_value_text(json, "group")),
                 .bytes = (uint64_t)size,
                 .links = 1,
                 .mtime_ns = e2b_value_time(json, "modifiedTime")},
    };
    if (!ret_entry->path || *ret_entry->path != '/')
        return "an entry has no path";
    return size < 0 ? "an entry has a size that none has" : NULL;
}

int e2b_envd_stat(struct e2b *e2b, const char *op, const char *user, const char *path,
                  const char *subject, struct e2b_entry *ret_entry, struct cay_error *err)
{
    const struct e2b_call call = {.op = op,
                                  .subject = subject,
                                  .method = "filesystem.Filesystem/Stat",
                                  .user = user,
                                  .repeatable = true,
                                  .fallback = CAY_E_IO};
    AUTO_JSON reply = NULL;
    struct json json;
    AUTO_BUF body = {0};

    buf_init(&body, 64 << 10);
    json_to_buf(&json, &body);
    json_put_object(&json);
    json_set_text(&json, "path", path);
    json_put_end(&json);
    int code = e2b_call(e2b, &call, &body, &reply, err);
    if (code)
        return code;
    const char *wrong = e2b_entry_read(e2b, json_object_get(reply, "entry"), ret_entry);
    ret_entry->path = NULL;
    return wrong ? e2b_reply_malformed(op, subject, wrong, err) : CAY_OK;
}

int e2b_entry_parent(struct e2b *e2b, const char *op, const char *user, const char *path,
                     const char *subject, struct cay_error *err)
{
    AUTO_FREE char *parent = strdup(path);
    struct e2b_entry entry = {0};

    if (!parent)
        return cay_fail_memory(err, op);
    char *slash = strrchr(parent, '/');
    slash[slash == parent] = '\0';
    int code = e2b_envd_stat(e2b, op, user, parent, subject, &entry, err);
    if (!code && entry.stat.type != CAY_TYPE_DIRECTORY)
        code = cay_fail(err, CAY_E_NOT_A_DIRECTORY, 0, op, subject,
                        "what should hold it is not a directory", "choose another name");
    return code;
}

int e2b_entry_absent(struct e2b *e2b, const char *op, const char *user, const char *whole,
                     const char *path, struct cay_error *err)
{
    struct e2b_entry entry = {0};
    struct cay_error error;

    int code = e2b_envd_stat(e2b, op, user, whole, path, &entry, &error);
    if (code == CAY_OK)
        return cay_fail(err, CAY_E_EXISTS, 0, op, path,
                        "something of that name is there already",
                        "choose another name, or remove it first");
    if (code == CAY_E_NOT_FOUND)
        return CAY_OK;
    if (err)
        *err = error;
    return code;
}
