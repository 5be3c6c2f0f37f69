/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INIT_USER_H
#define INIT_USER_H

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

#include "cay/error.h"
#include "init/plan.h"

enum { USER_NAME_MAX = 64, USER_GROUPS_MAX = 64, USER_ID_MAX = 65535 };

/* Somebody inside, as the sandbox's own /etc/passwd and /etc/group say. */
struct user {
    char name[USER_NAME_MAX];
    char home[PATH_MAX];
    uid_t uid;
    gid_t gid;
    gid_t groups[USER_GROUPS_MAX];
    size_t group_count;
    bool is_us; /* the only one there is: nothing to change into */
};

/* Before the first of the following. */
void user_prepare(const struct plan *plan);

/* `who` is a name, or a number of up to 65535 written plainly; on the host, any number.
 * Behind a colon there may be a group, in the same way; without one its groups are those
 * of the two files.  CAY_E_NOT_FOUND for a name that they do not have; a number need not
 * be there (home "/").  CAY_E_UNSUPPORTED for anybody but `user`, or on the host the
 * caller, where that is the only one. */
int user_find(const char *who, struct user *ret_user, struct cay_error *err);

/* Whether commands are the caller's own, and this is somebody else. */
bool user_is_another(const struct user *user);

#endif
