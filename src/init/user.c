/* SPDX-License-Identifier: Apache-2.0 */

/* Root inside can write both files, so they are parsed as hostile input: only regular
 * files, a bounded size, and ids must be plain numbers. */
#include "init/user.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "base/passwd.h"
#include "sys/io.h"
#include "sys/path.h"

/* A negative errno for a shortage (EMFILE, ENOMEM).  A missing or irregular file counts
 * as empty. */
static int read_text(const char *path, char **ret_text)
{
    struct stat st;
    /* /etc may have become a link into /proc/1/fd. */
    AUTO_FD fd = path_open(AT_FDCWD, path, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY,
                           0, RESOLVE_NO_MAGICLINKS);

    *ret_text = NULL;
    if (fd < 0)
        return cay_errno_is_shortage(-fd) ? fd : 0;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size > PASSWD_MAX)
        return 0;
    char *text = malloc((size_t)st.st_size + 1);
    if (!text)
        return -ENOMEM;
    ssize_t len = io_pread(fd, text, (size_t)st.st_size, 0);
    if (len < 0 && cay_errno_is_shortage((int)-len)) {
        free(text);
        return (int)len;
    }
    text[len > 0 ? len : 0] = '\0';
    *ret_text = text;
    return 0;
}

static uint32_t id_max = USER_ID_MAX;

/* 1 if found, 0 if not; negative as above. */
static int find_in_passwd(const char *who, bool by_id, struct user *user)
{
    AUTO_FREE char *text = NULL;
    int error = read_text("/etc/passwd", &text);
    const char *rest = text ? text : "";
    struct passwd_line line;
    uint32_t uid, gid;

    if (error)
        return error;
    while (passwd_next(&rest, &line)) {
        if (line.count < 6 || !passwd_id(&line, 2, id_max, &uid) ||
            !passwd_id(&line, 3, id_max, &gid) || line.fields[0].len >= USER_NAME_MAX ||
            line.fields[5].len >= PATH_MAX)
            continue;
        if (by_id ? uid != user->uid : !passwd_is(&line, who, strlen(who)))
            continue;
        memcpy(user->name, line.fields[0].text, line.fields[0].len);
        user->name[line.fields[0].len] = '\0';
        memcpy(user->home, line.fields[5].text, line.fields[5].len);
        user->home[line.fields[5].len] = '\0';
        user->uid = uid;
        user->gid = gid;
        return 1;
    }
    return 0;
}

static bool lists(const struct passwd_line *group, const char *name)
{
    const char *at = group->fields[3].text, *end = at + group->fields[3].len;
    size_t len = strlen(name);

    while (at < end) {
        size_t member = strcspn(at, ",:\n");
        if (member == len && memcmp(at, name, len) == 0)
            return true;
        at += member + 1;
    }
    return false;
}

static int find_groups(struct user *user)
{
    AUTO_FREE char *text = NULL;
    int error = read_text("/etc/group", &text);
    const char *rest = text ? text : "";
    struct passwd_line line;
    uint32_t gid;

    user->groups[user->group_count++] = user->gid;
    while (user->group_count < USER_GROUPS_MAX && passwd_next(&rest, &line))
        if (line.count >= 4 && passwd_id(&line, 2, id_max, &gid) && gid != user->gid &&
            lists(&line, user->name))
            user->groups[user->group_count++] = gid;
    return error;
}

static int find_group(const char *which, gid_t *ret_gid)
{
    AUTO_FREE char *text = NULL;
    struct passwd_line line;

    if (passwd_parse_id(which, strlen(which), id_max, ret_gid))
        return 1;
    int error = read_text("/etc/group", &text);
    const char *rest = text ? text : "";
    while (passwd_next(&rest, &line))
        if (passwd_is(&line, which, strlen(which)) &&
            passwd_id(&line, 2, id_max, ret_gid))
            return 1;
    return error;
}

/* That group only, as container runtimes do. */
static int be_in_group(const char *which, const char *who, struct user *user,
                       struct cay_error *err)
{
    gid_t gid;
    int found = find_group(which, &gid);

    if (found < 0)
        return cay_fail_errno(err, -found, "exec.user", who);
    if (!found)
        return cay_fail(err, CAY_E_NOT_FOUND, 0, "exec.user", who,
                        "no such group in the sandbox",
                        "use a name in its /etc/group, or a number from 0 to %u", id_max);
    if (user->is_us && gid != user->gid)
        return cay_fail(err, CAY_E_UNSUPPORTED, 0, "exec.user", who,
                        "an ordinary user cannot switch to another group",
                        "omit the group");
    user->gid = user->groups[0] = gid;
    user->group_count = 1;
    return CAY_OK;
}

static const struct plan *only; /* the plan, if it has one user only */

/* The caller, in an unconfined sandbox. */
static struct {
    bool is_known;
    bool may_change; /* the caller is root with setgroups(2): other users are possible */
    const char *name;
    char number[16];
    uid_t uid;
    gid_t gid, groups[USER_GROUPS_MAX];
    int group_count;
} caller;

void user_prepare(const struct plan *plan)
{
    only = plan->one_user ? plan : NULL;
    if (!plan->unconfined)
        return;
    id_max = UINT32_MAX - 1;
    caller.is_known = true;
    caller.name = plan->defaults.user;
    caller.uid = geteuid();
    snprintf(caller.number, sizeof caller.number, "%u", (unsigned)caller.uid);
    caller.gid = getegid();
    caller.group_count = getgroups(USER_GROUPS_MAX, caller.groups);
    caller.may_change = caller.uid == 0 && caller.group_count >= 0 &&
                        setgroups((size_t)caller.group_count, caller.groups) == 0;
}

bool user_is_another(const struct user *user)
{
    return caller.is_known && user->uid != caller.uid;
}

/* The caller keeps its own name and groups, regardless of the two files. */
static int be_caller(struct user *user, struct cay_error *err)
{
    if (user->uid == caller.uid) {
        cay_copy_text(user->name, sizeof user->name, caller.name);
        user->gid = caller.gid;
        user->is_us = !caller.may_change;
        user->group_count = caller.group_count > 0 ? (size_t)caller.group_count : 0;
        memcpy(user->groups, caller.groups, sizeof user->groups);
        return CAY_OK;
    }
    if (caller.may_change)
        return CAY_OK;
    return cay_fail(err, CAY_E_UNSUPPORTED, 0, "exec.user", user->name,
                    "a local sandbox of an ordinary user has no other users",
                    "omit the user, or create the sandbox as root");
}

static int find_only(const char *who, struct user *ret_user, struct cay_error *err)
{
    if (strcmp(who, "user") != 0 && strcmp(who, "1000") != 0)
        return cay_fail(
            err, CAY_E_UNSUPPORTED, 0, "exec.user", who,
            "this sandbox has only one user, \"user\"",
            *only->home /* of the host, without user namespaces */
                ? "for other users allow user namespaces: cay doctor prints the command"
                : "for other users add 65536 ids for the creating user to /etc/subuid "
                  "and /etc/subgid: sudo $(which cay) setup adds them");
    *ret_user = (struct user){.name = "user",
                              .home = "/home/user",
                              .uid = only->uid,
                              .gid = only->gid,
                              .is_us = true};
    if (*only->home)
        cay_copy_text(ret_user->home, sizeof ret_user->home, only->home);
    return CAY_OK;
}

/* --- A cache of the last user, valid while the files are unchanged --- */

struct version {
    struct stat passwd, group;
};

static struct {
    char who[USER_NAME_MAX]; /* "": empty */
    struct user user;
    struct version version;
} last;

static bool look(struct version *ret_version)
{
    return lstat("/etc/passwd", &ret_version->passwd) == 0 &&
           S_ISREG(ret_version->passwd.st_mode) &&
           lstat("/etc/group", &ret_version->group) == 0 &&
           S_ISREG(ret_version->group.st_mode);
}

static bool is_same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_ctim.tv_sec == b->st_ctim.tv_sec &&
           a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

static bool recall(const char *who, const struct version *version, struct user *ret_user)
{
    if (!*last.who || strcmp(who, last.who) != 0 ||
        !is_same(&version->passwd, &last.version.passwd) ||
        !is_same(&version->group, &last.version.group))
        return false;
    memcpy(ret_user, &last.user, sizeof *ret_user);
    return true;
}

/* Unless a file changed within the last second: it could change again without a new
 * ctime. */
static void remember(const char *who, const struct version *version,
                     const struct user *user)
{
    time_t settled = time(NULL) - 1;

    last.who[0] = '\0';
    if (strlen(who) >= sizeof last.who || version->passwd.st_ctim.tv_sec >= settled ||
        version->group.st_ctim.tv_sec >= settled)
        return;
    memcpy(last.who, who, strlen(who) + 1);
    memcpy(&last.user, user, sizeof last.user);
    last.version = *version;
}

/* `who` is the requested user with the group. */
static int find_named(const char *name, const char *who, struct user *ret_user,
                      struct cay_error *err)
{
    unsigned id;

    if (caller.is_known && strcmp(name, caller.name) == 0)
        name = caller.number;
    bool by_id = passwd_parse_id(name, strlen(name), id_max, &id);
    *ret_user = (struct user){.home = "/"};
    if (by_id) {
        ret_user->uid = ret_user->gid = id;
        memcpy(ret_user->name, name, strlen(name) + 1);
    }
    int found = find_in_passwd(name, by_id, ret_user);
    int error = found < 0 ? found : find_groups(ret_user);
    if (error)
        return cay_fail_errno(err, -error, "exec.user", who);
    if (!found && !by_id)
        return cay_fail(err, CAY_E_NOT_FOUND, 0, "exec.user", who,
                        "no such user in the sandbox",
                        "use \"user\", \"root\", a name in its /etc/passwd, or a number "
                        "from 0 to %u",
                        id_max);
    return caller.is_known ? be_caller(ret_user, err) : CAY_OK;
}

int user_find(const char *who, struct user *ret_user, struct cay_error *err)
{
    struct version version;
    char name[USER_NAME_MAX];
    const char *group = strchrnul(who, ':');

    if (only)
        return find_only(who, ret_user, err);
    bool plain = look(&version); /* before reading them */
    if (plain && recall(who, &version, ret_user))
        return CAY_OK;
    bool fits = strlen(who) < sizeof name; /* a longer name cannot exist */
    snprintf(name, sizeof name, "%.*s", fits ? (int)(group - who) : 0, who);
    int code = find_named(name, who, ret_user, err);
    if (!code && *group)
        code = be_in_group(group + 1, who, ret_user, err);
    if (!code && plain)
        remember(who, &version, ret_user);
    return code;
}
