/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "files/handle.h"

void cay_location_done(struct cay_location *location)
{
    if (!location)
        return;
    free(location->host);
    free(location->path);
    location->host = location->path = NULL;
}

static char *host_path(const char *host, const char *rel)
{
    AUTO_BUF text;

    buf_init(&text, 2 * PATH_MAX);
    buf_text(&text, host);
    if (*rel) {
        if (strcmp(host, "/") != 0)
            buf_text(&text, "/");
        buf_text(&text, rel);
    }
    return buf_take(&text);
}

static int find(cay_files *files, const char *op, const char *path, unsigned access,
                struct target *ret_target, struct cay_error *err)
{
    return target_find(files, op, path, access & ~(unsigned)CAY_ACCESS_NAME,
                       access & CAY_ACCESS_NAME ? TARGET_NO_FOLLOW : TARGET_FOLLOW,
                       ret_target, err);
}

int cay_files_locate(cay_files *files, const char *path, unsigned access,
                     struct cay_location *ret_location, struct cay_error *err)
{
    AUTO_TARGET target = TARGET_NONE;
    char label[2 * PATH_MAX];

    TRY(find(files, "files.locate", path, access, &target, err));
    const struct mount *mount = target_mount(files, &target);
    if (!policy_label(files->policy, target.mount, target.rel, label, sizeof label))
        return cay_fail_errno(err, ENAMETOOLONG, "files.locate", path);
    struct cay_location location = {
        .size = sizeof location,
        .mount = target.mount,
        .name = mount->name,
        .host = host_path(mount->host, target.rel),
        .path = strdup(label),
        .access = policy_access(files->policy, target.mount, target.rel),
        .exists = target.fd >= 0,
        .read_approval = mount->read_approval,
        .write_approval = mount->write_approval,
    };
    if (!location.host || !location.path) {
        cay_location_done(&location);
        return cay_fail_memory(err, "files.locate");
    }
    *ret_location = location;
    return CAY_OK;
}

bool cay_files_can(cay_files *files, const char *path, unsigned access)
{
    AUTO_TARGET target = TARGET_NONE;

    return find(files, "files.can", path, access, &target, NULL) == CAY_OK;
}

bool cay_files_needs_approval(cay_files *files, const char *path, unsigned access)
{
    AUTO_TARGET target = TARGET_NONE;

    if (find(files, "files.needs_approval", path, access, &target, NULL) != CAY_OK)
        return false;
    const struct mount *mount = target_mount(files, &target);
    return (access & CAY_ACCESS_READ && mount->read_approval) ||
           (access & CAY_ACCESS_WRITE && mount->write_approval);
}

int cay_files_access(cay_files *files, const char *path, struct cay_error *err)
{
    AUTO_TARGET target = TARGET_NONE;

    TRY(target_find(files, "files.access", path, 0, TARGET_READ, &target, err));
    TRY(target_must_exist(&target, err));
    unsigned granted = policy_access(files->policy, target.mount, target.rel);
    if (granted & CAY_ACCESS_READ && target_try_read(&target) != 0)
        granted &= ~(unsigned)CAY_ACCESS_READ;
    if (granted & CAY_ACCESS_WRITE && target.fs->may_write(target.fs, target.fd) != 0)
        granted &= ~(unsigned)CAY_ACCESS_WRITE;
    return (int)granted;
}

/* The target of a link in the policy's spelling, if it is inside. */
static int resolve_link(const cay_files *files, const char *path, char **ret_target,
                        struct cay_error *err)
{
    static const char op[] = "files.read_link";
    AUTO_TARGET target = TARGET_NONE;
    char label[2 * PATH_MAX];

    TRY(target_find(files, op, path, CAY_ACCESS_READ, TARGET_FOLLOW, &target, err));
    if (!policy_label(files->policy, target.mount, target.rel, label, sizeof label))
        return cay_fail_errno(err, ENAMETOOLONG, op, path);
    *ret_target = strdup(label);
    return *ret_target ? CAY_OK : cay_fail_memory(err, op);
}

int cay_files_read_link(cay_files *files, const char *path, char **ret_target,
                        struct cay_error *err)
{
    static const char op[] = "files.read_link";
    AUTO_TARGET target = TARGET_NONE;
    char text[PATH_MAX];

    TRY(target_find(files, op, path, CAY_ACCESS_READ, TARGET_NO_FOLLOW, &target, err));
    TRY(target_must_exist(&target, err));
    if (!S_ISLNK(target.st.st_mode))
        return cay_fail(err, CAY_E_INVALID, EINVAL, op, path, "is not a symbolic link",
                        "check its type before reading its target");
    ssize_t len = target.fs->read_link(target.fs, target.fd, text, sizeof text);
    if (len < 0 || (size_t)len >= sizeof text)
        return target_fail(&target, len < 0 ? (int)-len : ENAMETOOLONG, err);
    text[len] = '\0';
    if (!files->policy->base && target_link_shows_host(&target, text))
        return resolve_link(files, path, ret_target, err);
    *ret_target = strdup(text);
    return *ret_target ? CAY_OK : cay_fail_memory(err, op);
}

int cay_files_explain(cay_files *files, const char *path, char **ret_sentence,
                      struct cay_error *err)
{
    AUTO_TARGET target = TARGET_NONE;
    struct cay_error why;
    char *sentence = NULL;

    int code = target_find(files, "files.explain", path, 0, TARGET_FOLLOW, &target, &why);
    if (code && code != CAY_E_OUTSIDE) {
        if (err)
            *err = why;
        return code;
    }
    if (code) {
        AUTO_BUF text;
        buf_init(&text, strlen(path) + sizeof why);
        buf_format(&text, "%s: %s; %s", path, why.message, why.hint);
        sentence = buf_take(&text);
    } else {
        sentence = policy_explain(files->policy, path, target.mount, target.rel);
    }
    if (!sentence)
        return cay_fail_memory(err, "files.explain");
    *ret_sentence = sentence;
    return CAY_OK;
}

void cay_strings_done(struct cay_strings *strings)
{
    if (!strings)
        return;
    for (size_t i = 0; i < strings->count; i++)
        free(strings->items[i]);
    free(strings->items);
    *strings = (struct cay_strings){0};
}

int cay_files_roots(const cay_files *files, unsigned access,
                    struct cay_strings *ret_roots, struct cay_error *err)
{
    return policy_roots(files->policy, access, ret_roots, err);
}

static const struct mount *mount_at(const cay_files *files, const char *op, size_t mount,
                                    struct cay_error *err)
{
    if (mount < files->policy->mount_count)
        return &files->policy->mounts[mount];
    cay_fail(err, CAY_E_INVALID, 0, op, "mount", "invalid mount number",
             "the policy has %zu, counted from 0", files->policy->mount_count);
    return NULL;
}

int cay_files_check_suffix(const cay_files *files, size_t mount, const char *path,
                           struct cay_error *err)
{
    static const char op[] = "files.check_suffix";
    const struct mount *rules = mount_at(files, op, mount, err);

    return rules ? policy_check_suffix(rules, op, path, path, err) : CAY_E_INVALID;
}

int cay_files_check_size(const cay_files *files, size_t mount, const char *path,
                         uint64_t bytes, struct cay_error *err)
{
    static const char op[] = "files.check_size";
    const struct mount *rules = mount_at(files, op, mount, err);

    return rules ? policy_check_size(rules, op, path, bytes, err) : CAY_E_INVALID;
}
