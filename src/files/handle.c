/* SPDX-License-Identifier: Apache-2.0 */
#include "files/handle.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "policy/tidy.h"
#include "sys/path.h"

static const char derive_op[] = "files.derive";

static const char *origin_of(const struct mount *mount)
{
    return mount->origin ? mount->origin : mount->name;
}

static int fail_root(const struct mount *mount, int code, int sys_errno, const char *what,
                     const char *hint, struct cay_error *err)
{
    char message[2 * PATH_MAX];

    snprintf(message, sizeof message, "%s: %s: %s", origin_of(mount), mount->host_was,
             what);
    return cay_fail(err, code, sys_errno, "files.open", mount->name, message, "%s", hint);
}

/* *ret_made is the length of the path up to the first directory created, also on failure.
 */
static int make_host_directory(const char *path, size_t *ret_made)
{
    char text[PATH_MAX];

    if (strlen(path) >= sizeof text)
        return -ENAMETOOLONG;
    memcpy(text, path, strlen(path) + 1);
    for (char *slash = strchr(text + 1, '/');; slash = strchr(slash + 1, '/')) {
        if (slash)
            *slash = '\0';
        if (mkdir(text, 0777) == 0)
            *ret_made = *ret_made ? *ret_made : strlen(text);
        else if (errno != EEXIST)
            return -errno;
        if (!slash)
            return 0;
        *slash = '/';
    }
}

static void remove_host_directory(const char *path, size_t made)
{
    char text[PATH_MAX];
    size_t len = strlen(path);

    if (made == 0)
        return;
    memcpy(text, path, len + 1);
    while (len >= made) {
        text[len] = '\0';
        (void)rmdir(text);
        do
            len--;
        while (text[len] != '/');
    }
}

static int open_root(cay_files *files, size_t index, unsigned flags, size_t *ret_made,
                     struct cay_error *err)
{
    const struct mount *mount = &files->policy->mounts[index];
    char host[PATH_MAX];

    int fd = open(mount->host, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) {
        if (!mount->writable && !(flags & CAY_FILES_CREATE_ALL))
            return fail_root(mount, CAY_E_NOT_FOUND, ENOENT,
                             "the read-only root does not exist",
                             "create the directory, or correct the path", err);
        int error = make_host_directory(mount->host, ret_made);
        if (error)
            return fail_root(mount, CAY_E_UNAVAILABLE, -error, cay_errno_words(-error),
                             "the root does not exist and could not be created", err);
        fd = open(mount->host, O_PATH | O_DIRECTORY | O_CLOEXEC);
    }
    if (fd < 0) {
        int error = errno;
        return fail_root(
            mount, error == ENOTDIR ? CAY_E_NOT_A_DIRECTORY : CAY_E_UNAVAILABLE, error,
            cay_errno_words(error), "name a directory that this user may open", err);
    }
    files->roots[index] = fd;

    int error = path_name(fd, host);
    if (error)
        return fail_root(mount, CAY_E_UNAVAILABLE, -error, "/proc is not mounted",
                         "mount it: mount -t proc proc /proc", err);
    return policy_set_host(files->policy, index, host, err);
}

static int check_overlap(const cay_policy *policy, struct cay_error *err)
{
    for (size_t i = 0; i < policy->mount_count; i++)
        for (size_t j = 0; j < i; j++) {
            const struct mount *a = &policy->mounts[i], *b = &policy->mounts[j];
            if (!tidy_covers(a->host + 1, b->host + 1) &&
                !tidy_covers(b->host + 1, a->host + 1))
                continue;
            char what[512];
            snprintf(what, sizeof what, "the directory overlaps that of %s (%s)",
                     origin_of(b), b->host_was);
            return fail_root(a, CAY_E_INVALID, 0, what,
                             "give each its own directory, none inside another", err);
        }
    return CAY_OK;
}

/* With `is_trial` the directories created are removed again in any case. */
static int open_roots(cay_files *files, unsigned flags, bool is_trial,
                      struct cay_error *err)
{
    const cay_policy *policy = files->policy;
    AUTO_FREE size_t *made = calloc(policy->mount_count + 1, sizeof *made);

    if (!made)
        return cay_fail_memory(err, "files.open");
    int code = CAY_OK;
    for (size_t i = 0; i < policy->mount_count && !code; i++)
        code = open_root(files, i, flags, &made[i], err);
    if (!code)
        code = check_overlap(policy, err);
    for (size_t i = policy->mount_count; (code || is_trial) && i-- > 0;)
        remove_host_directory(policy->mounts[i].host_was, made[i]);
    return code;
}

/* A handle on `policy`, which it takes over, with no root open yet. */
static int handle_new(cay_policy *policy, const struct fs *fs, struct session *session,
                      cay_files **ret_files, struct cay_error *err)
{
    cay_files *files = calloc(1, sizeof *files);
    int *roots = calloc(policy->mount_count + 1, sizeof *roots);

    if (!files || !roots) {
        free(files);
        free(roots);
        cay_policy_free(policy);
        session_unref(session);
        return cay_fail_memory(err, "files.open");
    }
    for (size_t i = 0; i < policy->mount_count; i++)
        roots[i] = -1;
    if (fs->ref)
        fs->ref(fs);
    *files = (cay_files){.policy = policy, .roots = roots, .fs = fs, .session = session};
    *ret_files = files;
    return CAY_OK;
}

/* A copy of the policy and a new session, for a new handle. */
static int take_options(const cay_policy *policy, const struct cay_files_options *options,
                        cay_policy **ret_copy, struct session **ret_session,
                        struct cay_error *err)
{
    struct cay_files_options known;
    const unsigned all_flags = CAY_FILES_CREATE_ALL | CAY_FILES_APPROVED_OUTSIDE;

    TRY(cay_take_struct(&known, sizeof known, options, "files.open", err));
    if (known.flags & ~all_flags)
        return cay_fail(err, CAY_E_UNSUPPORTED, 0, "files.open", "flags", "unknown flags",
                        "the known ones are 0x%x", all_flags);
    struct session *session = session_new(&known, err);
    if (!session)
        return CAY_E_NO_MEMORY;
    int code = policy_copy(policy, ret_copy, err);
    if (code)
        session_unref(session);
    else
        *ret_session = session;
    return code;
}

static int open_policy(const cay_policy *policy, const struct cay_files_options *options,
                       bool is_trial, cay_files **ret_files, struct cay_error *err)
{
    struct session *session = NULL;
    cay_policy *copy = NULL;
    cay_files *files;

    TRY(take_options(policy, options, &copy, &session, err));
    TRY(handle_new(copy, &fs_direct, session, &files, err));
    int code = open_roots(files, session->flags, is_trial, err);
    if (code) {
        cay_files_free(files);
        return code;
    }
    *ret_files = files;
    return CAY_OK;
}

int cay_files_open(const cay_policy *policy, const struct cay_files_options *options,
                   cay_files **ret_files, struct cay_error *err)
{
    return open_policy(policy, options, false, ret_files, err);
}

int files_try(const cay_policy *policy, struct cay_error *err)
{
    cay_files *files = NULL;
    int code = open_policy(policy, NULL, true, &files, err);

    cay_files_free(files);
    return code;
}

int files_open_fs(const struct fs *fs, const char *base, cay_files **ret_files,
                  struct cay_error *err)
{
    const struct cay_files_options options = {.size = sizeof options};
    cay_policy *policy;

    TRY(policy_inside(base, &policy, err));
    struct session *session = session_new(&options, err);
    if (!session) {
        cay_policy_free(policy);
        return CAY_E_NO_MEMORY;
    }
    return handle_new(policy, fs, session, ret_files, err);
}

/* A handle on the same directories, which takes `policy` and `session` over. */
static int handle_share(const cay_files *from, cay_policy *policy,
                        struct session *session, cay_files **ret_files,
                        struct cay_error *err)
{
    cay_files *files;

    int code = handle_new(policy, from->fs, session, &files, err);
    if (code)
        return code;
    for (size_t i = 0; i < policy->mount_count; i++) {
        if (from->roots[i] < 0)
            continue;
        files->roots[i] = fcntl(from->roots[i], F_DUPFD_CLOEXEC, 3);
        if (files->roots[i] < 0) {
            code = cay_fail_errno(err, errno, "files.open", NULL);
            cay_files_free(files);
            return code;
        }
    }
    *ret_files = files;
    return CAY_OK;
}

int cay_files_clone(const cay_files *files, const struct cay_files_options *options,
                    cay_files **ret_files, struct cay_error *err)
{
    struct session *session = NULL;
    cay_policy *copy = NULL;

    TRY(take_options(files->policy, options, &copy, &session, err));
    return handle_share(files, copy, session, ret_files, err);
}

void cay_files_free(cay_files *files)
{
    if (!files)
        return;
    for (size_t i = 0; i < files->policy->mount_count; i++)
        if (files->roots[i] >= 0)
            (void)close(files->roots[i]);
    free(files->roots);
    cay_policy_free(files->policy);
    session_unref(files->session);
    if (files->fs->unref)
        files->fs->unref(files->fs);
    free(files);
}

/* --- Derived handles -------------------------------------------------------------------
 */

static bool climbs(const char *text, size_t len)
{
    for (size_t i = 0; i + 2 <= len; i++) {
        bool starts = i == 0 || strchr("/\\:", text[i - 1]);
        bool ends = i + 2 == len || text[i + 2] == '/' || text[i + 2] == '\\';
        if (starts && ends && text[i] == '.' && text[i + 1] == '.')
            return true;
    }
    return false;
}

static int check_spelling(const cay_files *files, const char *entry,
                          struct cay_error *err)
{
    const cay_policy *policy = files->policy;
    const char *text = entry;
    size_t len = strlen(entry);

    if (policy->style != CAY_STYLE_PATHS)
        text = tidy_strip(entry, &len);
    if (climbs(text, len))
        return cay_fail(err, CAY_E_INVALID, 0, derive_op, entry,
                        "a path in an allow list must not contain '..'",
                        "spell the directory out from its root");
    if (policy->style == CAY_STYLE_ROOT && *text != '/' && *text != '\\' && !policy->base)
        return cay_fail(err, CAY_E_INVALID, 0, derive_op, entry,
                        "a path in an allow list must start with '/'", "write \"/%.*s\"",
                        (int)len, text);
    return CAY_OK;
}

static int fail_escalation(const cay_files *files, const char *entry, int sys_errno,
                           struct cay_error *err)
{
    struct cay_error why = {.hint = ""};

    if (sys_errno == EROFS)
        policy_fail_read_only(files->policy, derive_op, entry, &why);
    else
        policy_fail_outside(files->policy, derive_op, entry, NULL, &why);
    return cay_fail(err, CAY_E_ESCALATION, sys_errno, derive_op, entry,
                    sys_errno == EROFS ? "the parent may not write here"
                                       : "the parent may not read here",
                    "%s", why.hint);
}

/* Checks one entry against the parent and adds it to the grant. */
static int add_entry(const cay_files *files, const char *entry, unsigned access,
                     struct grant *grant, struct cay_error *err)
{
    AUTO_TARGET target = TARGET_NONE;
    struct place place;
    struct cay_error why;
    char label[2 * PATH_MAX];

    TRY(check_spelling(files, entry, err));
    int code = target_find(files, derive_op, entry, 0, TARGET_FOLLOW, &target, &why);
    if (code == CAY_E_OUTSIDE)
        return fail_escalation(files, entry, EACCES, err);
    if (code) {
        if (err)
            *err = why;
        return code;
    }
    /* As documented: with mounts a file is refused, in the other styles it means its
     * directory. */
    bool is_file = target.fd >= 0 && !S_ISDIR(target.st.st_mode);
    bool by_mounts = files->policy->style == CAY_STYLE_MOUNTS;
    if (is_file && !by_mounts) {
        char *slash = strrchr(target.rel, '/');
        *(slash ? slash : target.rel) = '\0';
    }
    unsigned granted = policy_access(files->policy, target.mount, target.rel);
    if (access & ~granted)
        return fail_escalation(
            files, entry, access & ~granted & CAY_ACCESS_WRITE ? EROFS : EACCES, err);

    if (is_file && by_mounts)
        return cay_fail(err, CAY_E_INVALID, 0, derive_op, entry,
                        "an allow list takes directories, not files",
                        "allow its parent directory instead");
    TRY(policy_place(files->policy, derive_op, entry, &place, err));
    const char *shown = is_file ? target.rel : place.rel;
    if (!policy_label(files->policy, target.mount, shown, label, sizeof label))
        return cay_fail_errno(err, ENAMETOOLONG, derive_op, entry);
    struct prefix *grown =
        reallocarray(grant->prefixes, grant->count + 1, sizeof *grant->prefixes);
    if (!grown)
        return cay_fail_memory(err, derive_op);
    grant->prefixes = grown;
    struct prefix *added = &grown[grant->count];
    *added = (struct prefix){target.mount, strdup(target.rel), strdup(label)};
    grant->count++;
    return added->rel && added->label ? CAY_OK : cay_fail_memory(err, derive_op);
}

static int add_entries(const cay_files *files, const char *const *entries, size_t count,
                       unsigned access, struct grant *grant, struct cay_error *err)
{
    int code = CAY_OK;

    for (size_t i = 0; i < count && !code; i++)
        code = add_entry(files, entries[i], access, grant, err);
    return code;
}

static int check_readonly(const cay_files *files, enum cay_readonly readonly,
                          struct cay_error *err)
{
    struct cay_strings roots;

    if (readonly == CAY_READONLY_UNSET || readonly == CAY_READONLY_TRUE)
        return CAY_OK;
    if (readonly != CAY_READONLY_FALSE)
        return cay_fail(err, CAY_E_INVALID, 0, derive_op, "readonly",
                        "invalid value of readonly", "use one of enum cay_readonly");
    TRY(policy_roots(files->policy, CAY_ACCESS_WRITE, &roots, err));
    bool can_write = roots.count > 0;
    cay_strings_done(&roots);
    if (can_write)
        return CAY_OK;
    return cay_fail(err, CAY_E_ESCALATION, EROFS, derive_op, "readonly",
                    "the parent is read-only, so its child cannot be writable",
                    "leave readonly out, or derive from a parent that may write");
}

static int make_grants(const cay_files *files, const struct cay_derive *derive,
                       struct grant *read, struct grant *write, struct cay_error *err)
{
    TRY(check_readonly(files, derive->readonly, err));
    if (!derive->allow_read && !derive->allow_write) {
        read->all = derive->inherit;
        write->all = derive->inherit && derive->readonly != CAY_READONLY_TRUE;
        return CAY_OK;
    }
    const bool read_given = derive->allow_read != NULL;
    int code =
        add_entries(files, read_given ? derive->allow_read : derive->allow_write,
                    read_given ? derive->allow_read_count : derive->allow_write_count,
                    CAY_ACCESS_READ, read, err);
    if (!code && derive->allow_write)
        code = add_entries(files, derive->allow_write, derive->allow_write_count,
                           CAY_ACCESS_WRITE, write, err);
    if (!code && derive->readonly == CAY_READONLY_TRUE)
        grant_done(write);
    return code;
}

int cay_files_derive(const cay_files *files, const struct cay_derive *derive,
                     cay_files **ret_child, struct cay_error *err)
{
    struct cay_derive known;
    struct grant read = {0}, write = {0};
    cay_policy *policy;

    int code = cay_take_struct(&known, sizeof known, derive, derive_op, err);
    if (!code)
        code = make_grants(files, &known, &read, &write, err);
    if (!code)
        code = policy_narrow(files->policy, &read, &write, &policy, err);
    if (!code)
        code = handle_share(files, policy, session_ref(files->session), ret_child, err);
    grant_done(&read);
    grant_done(&write);
    return code;
}
