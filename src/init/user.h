/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INIT_USER_H
#define INIT_USER_H

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

#include "cay/error.h"
#include "init/plan.h"

enum { USER_NAME_MAX = 64, USER_GROUPS_MAX = 64, USER_ID_MAX = 65535 };

/* A user inside, by the sandbox's own /etc/passwd and /etc/group. */
struct user {
    char name[USER_NAME_MAX];
    char home[PATH_MAX];
    uid_t uid;
    gid_t gid;
    gid_t groups[USER_GROUPS_MAX];
    size_t group_count;
    bool is_us; /* the one user of the sandbox: no setuid needed */
};

/* Call it first. */
void user_prepare(const struct plan *plan);

/* `who` is a name, or a plain decimal uid of up to 65535 (unconfined: any), optionally
 * followed by ":" and a group; without a group, the groups come from the two files.
 * CAY_E_NOT_FOUND for an unknown name; an unknown uid is valid (home "/").
 * CAY_E_UNSUPPORTED for other users where the sandbox has only one. */
int user_find(const char *who, struct user *ret_user, struct cay_error *err);

/* Whether the sandbox is unconfined and this is not the caller. */
bool user_is_another(const struct user *user);

#endif
