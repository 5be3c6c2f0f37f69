/* SPDX-License-Identifier: Apache-2.0 */
#include "native/record/members.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"
#include "native/record/names.h"
#include "sys/path.h"

static const char op[] = "sandbox.join", directory_name[] = "networks";

_Static_assert((int)RELAY_ID_MAX == CAY_ID_MAX && (int)RELAY_NETWORK_MAX == CAY_NAME_MAX,
               "texts of relay_join");

enum { LINK_NAME_MAX = CAY_NAME_MAX + RELAY_MEMBER_NAME_MAX };

/* --- Texts --- */

static int fail_name(const char *text, const char *why, struct cay_error *err)
{
    return cay_fail(err, CAY_E_INVALID, 0, op, text, why,
                    "write NETWORK:NAME: a name of up to 63 letters, digits, \"_\", "
                    "\".\" and \"-\" for the network, and one like a host's for the "
                    "sandbox");
}

int members_parse(const char *text, const char *sandbox, struct relay_join *ret_join,
                  struct cay_error *err)
{
    size_t len = strcspn(text, ":");
    const char *given = text[len] ? text + len + 1 : sandbox;
    char name[NETWORK_NAME_MAX];

    *ret_join = (struct relay_join){.id = ""};
    if (len < sizeof ret_join->network)
        memcpy(ret_join->network, text, len);
    if (!names_is_valid(ret_join->network))
        return fail_name(text, "invalid name of a network", err);
    if (network_name_clean(given, strlen(given), name) ||
        strlen(name) >= sizeof ret_join->name || strcmp(name, "localhost") == 0)
        return fail_name(text, "the sandbox cannot have this name in a network", err);
    cay_copy_text(ret_join->name, sizeof ret_join->name, name);
    return CAY_OK;
}

bool members_next(const char **text, char ret_word[CAY_NETWORKS_MAX])
{
    const char *word = *text + strspn(*text, " ");
    size_t len = strcspn(word, " ");

    *text = word + len;
    if (len == 0 || len >= CAY_NETWORKS_MAX)
        return false;
    memcpy(ret_word, word, len);
    ret_word[len] = '\0';
    return true;
}

/* --- Links --- */

static void link_name(const struct relay_join *join, char ret_name[LINK_NAME_MAX])
{
    snprintf(ret_name, LINK_NAME_MAX, "%s:%s", join->network, join->name);
}

/* The member that a link stands for.  False if it is invalid. */
static bool read_link(int dir, const char *name, struct relay_join *ret_join,
                      bool *ret_pending)
{
    char target[CAY_ID_MAX + 1];
    ssize_t len = readlinkat(dir, name, target, sizeof target - 1);

    *ret_pending = len > 0 && target[len - 1] == '+';
    len -= *ret_pending;
    if (len <= 0 || len >= CAY_ID_MAX || !strchr(name, ':') ||
        members_parse(name, "", ret_join, NULL) != CAY_OK)
        return false;
    target[len] = '\0';
    memcpy(ret_join->id, target, (size_t)len + 1);
    return runtime_is_id(ret_join->id);
}

/* 1 or 0, or negative if there are too few descriptors or too little memory. */
static int check_running(const char *id)
{
    struct record record;
    int code = runtime_load(id, &record, NULL);

    if (code == CAY_E_NOT_FOUND)
        return 0;
    return code ? -1 : runtime_check_alive(&record);
}

static int write_link(int dir, const struct relay_join *join, const char *mark,
                      struct cay_error *err)
{
    char name[LINK_NAME_MAX], draft[LINK_NAME_MAX + 1], target[CAY_ID_MAX + 1];

    link_name(join, name);
    snprintf(draft, sizeof draft, "+%s", name);
    snprintf(target, sizeof target, "%s%s", join->id, mark);
    (void)unlinkat(dir, draft, 0);
    if (symlinkat(target, dir, draft) != 0 || renameat(dir, draft, dir, name) != 0)
        return runtime_fail(errno, name, err);
    return CAY_OK;
}

int members_lock(struct cay_error *err)
{
    AUTO_FD dir = runtime_open_dir(directory_name, err);

    if (dir < 0)
        return dir;
    AUTO_FD fd = path_open(dir, ".", O_RDONLY | O_DIRECTORY, 0, PATH_PLAIN);
    if (fd < 0 || flock(fd, LOCK_EX) != 0)
        return cay_fail_errno(err, fd < 0 ? -fd : errno, op, directory_name);
    return TAKE_FD(fd);
}

/* --- Lists --- */

static bool grow(struct members *members)
{
    size_t room = members->count + 1;
    struct relay_join *at = reallocarray(members->at, room, sizeof *at);
    bool *is_pending = reallocarray(members->is_pending, room, sizeof *is_pending);

    members->at = at ? at : members->at;
    members->is_pending = is_pending ? is_pending : members->is_pending;
    return at && is_pending;
}

int members_load(int dir, const char *network, struct members *ret_members,
                 struct cay_error *err)
{
    AUTO_DIR list = path_list(dir);
    struct relay_join join;
    bool is_pending;

    *ret_members = (struct members){.count = 0};
    if (!list)
        return runtime_fail(errno, directory_name, err);
    for (struct dirent *entry; (entry = path_next(list));) {
        if (!read_link(dir, entry->d_name, &join, &is_pending) ||
            strcmp(join.network, network) != 0)
            continue;
        if (check_running(join.id) == 0) {
            (void)unlinkat(dir, entry->d_name, 0);
            continue;
        }
        if (!grow(ret_members))
            return cay_fail_memory(err, op);
        ret_members->is_pending[ret_members->count] = is_pending;
        ret_members->at[ret_members->count++] = join;
    }
    return CAY_OK;
}

void members_done(struct members *members)
{
    free(members->at);
    free(members->is_pending);
}

/* --- One member --- */

int members_claim(int dir, const struct relay_join *join, struct cay_error *err)
{
    char name[LINK_NAME_MAX], message[sizeof err->message];
    struct relay_join other;
    bool is_pending;

    link_name(join, name);
    if (read_link(dir, name, &other, &is_pending) && strcmp(other.id, join->id) != 0 &&
        check_running(other.id) != 0) {
        snprintf(message, sizeof message, "%s has this name in the network", other.id);
        return cay_fail(err, CAY_E_EXISTS, 0, op, name, message,
                        "use another name (%s:NAME), or remove that sandbox: cay rm %s",
                        join->network, other.id);
    }
    return write_link(dir, join, "+", err);
}

int members_confirm(int dir, const struct relay_join *join, struct cay_error *err)
{
    return write_link(dir, join, "", err);
}

/* Without the lock: no other sandbox claims these names while this one has a record and
 * runs, and then another one has replaced the link. */
void members_release(const struct record *record)
{
    const char *text = record->networks;
    char name[CAY_NETWORKS_MAX];
    struct relay_join join;
    bool is_pending;

    if (!text[0])
        return;
    AUTO_FD dir = runtime_open_dir(directory_name, NULL);
    while (dir >= 0 && members_next(&text, name))
        if (read_link(dir, name, &join, &is_pending) && strcmp(join.id, record->id) == 0)
            (void)unlinkat(dir, name, 0);
}

void members_sweep(void)
{
    char directory[PATH_MAX], path[PATH_MAX];
    struct relay_join join;
    bool is_pending;

    if (runtime_directory(directory, NULL) != CAY_OK)
        return;
    snprintf(path, sizeof path, "%.4000s/%s", directory, directory_name);
    if (access(path, F_OK) != 0)
        return;
    AUTO_FD dir = members_lock(NULL);
    AUTO_DIR list = dir < 0 ? NULL : path_list(dir);
    for (struct dirent *entry; (entry = path_next(list));)
        if (!read_link(dir, entry->d_name, &join, &is_pending) ||
            check_running(join.id) == 0)
            (void)unlinkat(dir, entry->d_name, 0);
}
