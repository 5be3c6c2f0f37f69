/* SPDX-License-Identifier: Apache-2.0 */
#include "native/record/binds.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/mount.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "base/passwd.h"
#include "files/handle.h"
#include "init/plan.h"
#include "native/record/idmap.h"
#include "native/record/runtime.h"
#include "native/record/try.h"
#include "native/record/users.h"
#include "policy/policy.h"
#include "sys/path.h"
#include "sys/shift.h"

static const char op[] = "sandbox.mount";

enum { BINDS_MAX = 64 };

/* --- Targets --- */

static bool covers(const char *top, const char *path)
{
    size_t len = strcmp(top, "/") == 0 ? 0 : strlen(top);

    return strncmp(path, top, len) == 0 && (path[len] == '/' || path[len] == '\0');
}

/* Normalises a path: no ".", no doubled slashes, no slash at the end.  The caller frees
 * the result.  NULL if the path cannot be a mount target (errno is 0) or memory is
 * exhausted. */
static char *tidy(const char *path)
{
    char plain[PATH_MAX];
    size_t used = 0;

    errno = 0;
    if (!path || *path != '/' || strlen(path) >= sizeof plain)
        return NULL;
    for (const char *next = path; *next;) {
        size_t len = strcspn(next, "/");
        const char *part = next;
        next += len + (next[len] == '/');
        if (len == 0 || (len == 1 && part[0] == '.'))
            continue;
        if (len > NAME_MAX || (len == 2 && part[0] == '.' && part[1] == '.'))
            return NULL;
        plain[used++] = '/';
        memcpy(plain + used, part, len);
        used += len;
    }
    plain[used] = '\0';
    if (!used || covers("/proc", plain) || covers("/dev", plain) || covers("/sys", plain))
        return NULL;
    return strdup(plain);
}

/* --- Sources --- */

/* The sockets in the runtime directory give access to every sandbox of this user, and to
 * commands outside a sandbox where one is of the backend "local".  A read-only mount does
 * not protect a socket.  A bind mount by root is not recursive, so it contains no other
 * file system. */
static bool shows_runtime(const struct bind *bind, dev_t device)
{
    char given[PATH_MAX], runtime[PATH_MAX], path[PATH_MAX];
    struct stat st;
    AUTO_FD own = runtime_open_dir("", NULL);

    if (own < 0 || runtime_directory(given, NULL) != CAY_OK)
        return true; /* unknown location: assume the worst */
    bool exists = realpath(given, runtime) && stat(runtime, &st) == 0;
    const char *directory = exists ? runtime : given;
    bind_path(bind, path);
    if (covers(directory, path))
        return true;
    return covers(path, directory) && !(idmap_is_root() && exists && st.st_dev != device);
}

static int open_source(struct bind *bind, bool is_known, struct cay_error *err)
{
    struct stat st;

    /* Code inside the sandbox may write to the parent directory and may have put the link
     * there. */
    bind->fd =
        path_open(AT_FDCWD, bind->source, O_PATH, 0, is_known ? RESOLVE_NO_SYMLINKS : 0);
    if (is_known && bind->fd == -ELOOP)
        return cay_fail(err, CAY_E_OUTSIDE, ELOOP, op, bind->source,
                        "the mount source is now a symbolic link, or below one",
                        "restore the original path, or create a new sandbox");
    errno = bind->fd < 0 ? -bind->fd : 0;
    if (bind->fd < 0 || fstat(bind->fd, &st) != 0)
        return cay_fail(err, errno == ENOENT ? CAY_E_NOT_FOUND : CAY_E_DENIED, errno, op,
                        bind->source, "cannot open the mount source",
                        "use an existing directory or file of the host");
    bind->is_directory = S_ISDIR(st.st_mode);
    bind->uid = st.st_uid;
    bind->gid = st.st_gid;
    bind->inode = st.st_ino;
    if (shows_runtime(bind, st.st_dev))
        return cay_fail(err, CAY_E_INVALID, 0, op, bind->source,
                        "the mount would expose the control sockets of sandboxes",
                        "mount a directory that does not contain cay's runtime directory "
                        "(cay doctor prints its path)");
    if (bind->is_directory || S_ISREG(st.st_mode))
        return CAY_OK;
    return cay_fail(err, CAY_E_NOT_A_FILE, 0, op, bind->source,
                    "only directories and regular files can be mounted",
                    "do not mount devices, sockets or pipes");
}

static int open_volume(struct binds *binds, struct bind *bind, struct cay_error *err)
{
    struct stat st;

    TRY(volume_open(bind->source, &bind->volume, &bind->fd, &bind->is_mount, err));
    if (fstat(bind->fd, &st) != 0)
        return cay_fail_errno(err, errno, op, bind->source);
    bind->is_directory = true;
    bind->inode = st.st_ino;
    if (volume_add_name(binds->volumes, bind->source))
        return CAY_OK;
    return cay_fail(err, CAY_E_LIMIT, 0, op, bind->source, "too many volumes",
                    "the names of all volumes of a sandbox have at most %d letters",
                    VOLUME_NAMES - 1);
}

/* The try whose changes these are, for the record. */
static int claim_try(struct binds *binds, struct bind *bind, struct cay_error *err)
{
    char path[PATH_MAX], name[CAY_ID_MAX + 8];

    if (path_name(bind->changes, path))
        return cay_fail_errno(err, ENOENT, op, "changes");
    char *last = strrchr(path, '/');
    *(last ? last : path) = '\0';
    const char *id = strrchr(path, '/');
    id = id ? id + 1 : "";
    if (snprintf(name, sizeof name, TRY_NAME "%s", id) >= (int)sizeof name ||
        !volume_add_name(binds->volumes, name))
        return cay_fail(err, CAY_E_LIMIT, 0, op, id, "too many tries",
                        "show fewer of them in one sandbox");
    AUTO_FD dir = path_open(AT_FDCWD, path, O_PATH | O_DIRECTORY, 0, 0);
    if (dir < 0)
        return cay_fail_errno(err, -dir, op, "changes");
    bind->claim = try_claim(dir, id, err);
    return bind->claim < 0 ? bind->claim : CAY_OK;
}

static int open_changes(struct binds *binds, struct bind *bind, const char *path,
                        struct cay_error *err)
{
    if (!path)
        return CAY_OK;
    if (bind->volume >= 0 || !bind->is_directory)
        return cay_fail(err, CAY_E_INVALID, 0, op, bind->source,
                        "only a directory of the host can be shown copy-on-write",
                        "give its path");
    bind->changes = path_open(AT_FDCWD, path, O_PATH | O_DIRECTORY, 0, 0);
    return bind->changes >= 0 ? claim_try(binds, bind, err)
                              : cay_fail(err, CAY_E_NOT_FOUND, -bind->changes, op, path,
                                         "cannot open the directory for the changes",
                                         "create the try again");
}

static int add(struct binds *binds, const struct cay_bind *wanted, bool is_known,
               struct cay_error *err)
{
    struct bind *bind = &binds->list[binds->count];
    const char *source = wanted->source, *target = wanted->target;

    *bind = (struct bind){
        .fd = -1, .volume = -1, .changes = -1, .claim = -1, .writable = wanted->writable};
    binds->count++;
    bind->target = tidy(target);
    if (!bind->target)
        return errno
                   ? cay_fail_memory(err, op)
                   : cay_fail(err, CAY_E_INVALID, 0, op, target, "invalid mount target",
                              "use an absolute path without \"..\", other than \"/\" and "
                              "not at or below /proc, /dev or /sys");
    if (!source || !*source)
        return cay_fail(err, CAY_E_INVALID, 0, op, target, "no mount source given",
                        "use a directory or file of the host, or the name of a volume");
    bind->source = strdup(source);
    if (!bind->source)
        return cay_fail_memory(err, op);
    TRY(cay_volume_is_source(source) ? open_volume(binds, bind, err)
                                     : open_source(bind, is_known, err));
    return open_changes(binds, bind, wanted->changes, err);
}

/* --- Policies --- */

/* The kernel cannot check suffixes, sizes or approvals, so such a mount is read-only,
 * unless the policy says otherwise. */
static bool is_writable(const struct mount *mount)
{
    bool needs_checks = mount->write_approval || mount->read_approval ||
                        mount->limit_suffixes || mount->max_file_bytes != CAY_NO_LIMIT;

    return mount->writable && mount->exec != CAY_EXEC_RO &&
           (mount->exec == CAY_EXEC_RW || !needs_checks);
}

/* The policy is opened in the same way for the file functions and for mounts, so that
 * both refuse the same nested roots, where one mode would undo the other. */
static int add_policy(struct binds *binds, const cay_policy *policy,
                      struct cay_error *err)
{
    char target[PATH_MAX];
    cay_files *files = NULL;

    if (!policy->read.all || !policy->write.all)
        return cay_fail(
            err, CAY_E_UNSUPPORTED, 0, op, "policy",
            "a derived policy cannot be mounted, since it hides parts of its directories",
            "use the policy it was derived from, or write one with just these "
            "directories");
    int code = cay_files_open(policy, NULL, &files, err);
    for (size_t i = 0; !code && i < policy->mount_count; i++) {
        const struct mount *mount = &files->policy->mounts[i];
        if (policy->style == CAY_STYLE_ROOT)
            snprintf(target, sizeof target, "/workspace");
        else
            snprintf(target, sizeof target, "/%.4000s", mount->point);
        code = add(binds,
                   &(struct cay_bind){.source = mount->host,
                                      .target = target,
                                      .writable = is_writable(mount)},
                   false, err);
    }
    cay_files_free(files);
    return code;
}

/* --- The list --- */

static int by_target(const void *a, const void *b)
{
    const struct bind *one = a, *other = b;

    return strcmp(one->target, other->target);
}

/* The id of a user or group that every template has, or of a number. */
static bool is_known(const char *text, size_t len, uint32_t *ret_id)
{
    if (len == 4 && (memcmp(text, "root", 4) == 0 || memcmp(text, "user", 4) == 0)) {
        *ret_id = *text == 'r' ? 0 : PLAN_USER;
        return true;
    }
    /* A higher id is in another sandbox's range. */
    return passwd_parse_id(text, len, RUNTIME_IDS - 1, ret_id);
}

/* A bind mount belongs to the default user of commands; if neither the template nor every
 * template has that name, to `user`. */
static void give(struct binds *binds, const char *user, int template)
{
    uint32_t uid = PLAN_USER, gid = PLAN_USER;
    const char *name = user ? user : "user";
    size_t len = strcspn(name, ":");

    if (!(template >= 0 && users_find(template, name, len, &uid, &gid)) &&
        is_known(name, len, &uid))
        gid = uid;
    if (user && user[len])
        (void)is_known(user + len + 1, strlen(user + len + 1), &gid);
    for (size_t i = 0; i < binds->count; i++) {
        binds->list[i].inside_uid = uid;
        binds->list[i].inside_gid = gid;
    }
}

int binds_open(const struct cay_sandbox_options *options, bool are_known, int template,
               struct binds *ret_binds, struct cay_error *err)
{
    size_t count =
        options->bind_count + (options->policy ? options->policy->mount_count : 0);
    int code = CAY_OK;

    *ret_binds = (struct binds){0};
    if (count == 0)
        return CAY_OK;
    if (count > BINDS_MAX)
        return cay_fail(err, CAY_E_LIMIT, 0, op, NULL, "too many mounts",
                        "the limit is %d", BINDS_MAX);
    ret_binds->list = calloc(count, sizeof *ret_binds->list);
    if (!ret_binds->list)
        return cay_fail_memory(err, op);
    if (options->policy)
        code = add_policy(ret_binds, options->policy, err);
    for (size_t i = 0; !code && i < options->bind_count; i++)
        code = add(ret_binds, &options->binds[i], are_known, err);
    if (!code) {
        give(ret_binds, options->user, template);
        qsort(ret_binds->list, ret_binds->count, sizeof *ret_binds->list, by_target);
    }
    for (size_t i = 1; !code && i < ret_binds->count; i++)
        if (strcmp(ret_binds->list[i - 1].target, ret_binds->list[i].target) == 0)
            code = cay_fail(err, CAY_E_INVALID, 0, op, ret_binds->list[i].target,
                            "two mounts have the same target",
                            "give each mount its own target");
    if (code)
        binds_done(ret_binds);
    return code;
}

void binds_done(struct binds *binds)
{
    for (size_t i = 0; i < binds->count; i++) {
        free(binds->list[i].source);
        free(binds->list[i].target);
        auto_close(&binds->list[i].fd);
        auto_close(&binds->list[i].volume);
        auto_close(&binds->list[i].changes);
        auto_close(&binds->list[i].claim);
    }
    free(binds->list);
    *binds = (struct binds){0};
}

/* The bits of a volume's files, and of changes, have no effect: no other user of the host
 * reaches the files, and every sandbox mounts them without set-user-id bits. */
bool binds_are_writable(const struct binds *binds)
{
    for (size_t i = 0; i < binds->count; i++)
        if (binds->list[i].writable && binds->list[i].volume < 0 &&
            binds->list[i].changes < 0)
            return true;
    return false;
}

const char *bind_path(const struct bind *bind, char path[PATH_MAX])
{
    (void)path_name(bind->fd, path);
    return path;
}

int bind_mount(const struct bind *bind, uint32_t id_base)
{
    char uids[64], gids[64], whole[64];

    snprintf(uids, sizeof uids, "%u %u 1\n", bind->uid, id_base + bind->inside_uid);
    snprintf(gids, sizeof gids, "%u %u 1\n", bind->gid, id_base + bind->inside_gid);
    snprintf(whole, sizeof whole, "0 %u %d\n", id_base, RUNTIME_IDS);
    bool is_volume = bind->volume >= 0;
    AUTO_FD map = shift_map(is_volume ? whole : uids, is_volume ? whole : gids);
    if (map < 0)
        return map;
    uint64_t attributes = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV |
                          (bind->writable && bind->changes < 0 ? 0 : MOUNT_ATTR_RDONLY);
    if (!bind->is_mount)
        return shift_mount(bind->fd, map, attributes);
    int error = shift_detached(bind->fd, map, attributes);
    int fd = error ? error : fcntl(bind->fd, F_DUPFD_CLOEXEC, 0);
    return fd == -1 ? -errno : fd;
}

int bind_mount_changes(const struct bind *bind, uint32_t id_base)
{
    char uids[64], gids[64];

    /* Another id than that of the owner; nobody inside has it. */
    snprintf(uids, sizeof uids, "%u %u 1\n%u 0 1\n", bind->uid,
             id_base + bind->inside_uid, bind->uid ? 0u : 65534u);
    snprintf(gids, sizeof gids, "%u %u 1\n%u 0 1\n", bind->gid,
             id_base + bind->inside_gid, bind->gid ? 0u : 65534u);
    AUTO_FD map = shift_map(uids, gids);
    return map < 0
               ? map
               : shift_mount(bind->changes, map, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
}
