/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/error.h"
#include "files/handle.h"
#include "policy/tidy.h"

static const char op[] = "files.derive";

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
        return cay_fail(err, CAY_E_INVALID, 0, op, entry,
                        "a path in an allow list must not contain '..'",
                        "spell the directory out from its root");
    if (policy->style == CAY_STYLE_ROOT && *text != '/' && *text != '\\' && !policy->base)
        return cay_fail(err, CAY_E_INVALID, 0, op, entry,
                        "a path in an allow list must start with '/'", "write \"/%.*s\"",
                        (int)len, text);
    return CAY_OK;
}

static int fail_escalation(const cay_files *files, const char *entry, int sys_errno,
                           struct cay_error *err)
{
    struct cay_error why = {.hint = ""};

    if (sys_errno == EROFS)
        policy_fail_read_only(files->policy, op, entry, &why);
    else
        policy_fail_outside(files->policy, op, entry, NULL, &why);
    return cay_fail(err, CAY_E_ESCALATION, sys_errno, op, entry,
                    sys_errno == EROFS ? "the parent may not write here"
                                       : "the parent may not read here",
                    "%s", why.hint);
}

static void drop_last_name(char *rel)
{
    char *slash = strrchr(rel, '/');

    *(slash ? slash : rel) = '\0';
}

/* Checks one entry against the parent and adds it to the grant. */
static int add_entry(const cay_files *files, const char *entry, unsigned access,
                     struct grant *grant, struct cay_error *err)
{
    AUTO_TARGET target = TARGET_NONE;
    struct place place;
    struct cay_error why;
    char label[2 * PATH_MAX];

    int code = check_spelling(files, entry, err);
    if (code)
        return code;
    code = target_find(files, op, entry, 0, TARGET_FOLLOW, &target, &why);
    if (code == CAY_E_OUTSIDE)
        return fail_escalation(files, entry, EACCES, err);
    if (code) {
        if (err)
            *err = why;
        return code;
    }
    /* In the contract's words a file entry is refused at mount points, and elsewhere
     * means the directory it lies in. */
    bool is_file = target.fd >= 0 && !S_ISDIR(target.st.st_mode);
    bool by_mounts = files->policy->style == CAY_STYLE_MOUNTS;
    if (is_file && !by_mounts)
        drop_last_name(target.rel);
    unsigned granted = policy_access(files->policy, target.mount, target.rel);
    if (access & ~granted)
        return fail_escalation(
            files, entry, access & ~granted & CAY_ACCESS_WRITE ? EROFS : EACCES, err);

    if (is_file && by_mounts)
        return cay_fail(err, CAY_E_INVALID, 0, op, entry,
                        "an allow list takes directories, and this is a file",
                        "allow its parent directory instead");
    code = policy_place(files->policy, op, entry, &place, err);
    if (code)
        return code;
    const char *shown = is_file ? target.rel : place.rel;
    if (!policy_label(files->policy, target.mount, shown, label, sizeof label))
        return cay_fail_errno(err, ENAMETOOLONG, op, entry);
    struct prefix *grown =
        reallocarray(grant->prefixes, grant->count + 1, sizeof *grant->prefixes);
    if (!grown)
        return cay_fail_memory(err, op);
    grant->prefixes = grown;
    struct prefix *added = &grown[grant->count];
    *added = (struct prefix){target.mount, strdup(target.rel), strdup(label)};
    grant->count++;
    return added->rel && added->label ? CAY_OK : cay_fail_memory(err, op);
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
        return cay_fail(err, CAY_E_INVALID, 0, op, "readonly",
                        "readonly has a value that means nothing",
                        "use one of enum cay_readonly");
    int code = policy_roots(files->policy, CAY_ACCESS_WRITE, &roots, err);
    if (code)
        return code;
    bool can_write = roots.count > 0;
    cay_strings_done(&roots);
    if (can_write)
        return CAY_OK;
    return cay_fail(err, CAY_E_ESCALATION, EROFS, op, "readonly",
                    "the parent is read-only, so its child cannot be writable",
                    "leave readonly out, or derive from a parent that may write");
}

static int make_grants(const cay_files *files, const struct cay_derive *derive,
                       struct grant *read, struct grant *write, struct cay_error *err)
{
    int code = check_readonly(files, derive->readonly, err);

    if (code)
        return code;
    if (!derive->allow_read && !derive->allow_write) {
        read->all = derive->inherit;
        write->all = derive->inherit && derive->readonly != CAY_READONLY_TRUE;
        return CAY_OK;
    }
    const bool read_given = derive->allow_read != NULL;
    code = add_entries(files, read_given ? derive->allow_read : derive->allow_write,
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

    int code = cay_take_struct(&known, sizeof known, derive, op, err);
    if (!code)
        code = make_grants(files, &known, &read, &write, err);
    if (!code)
        code = handle_narrow(files, &read, &write, ret_child, err);
    grant_done(&read);
    grant_done(&write);
    return code;
}
