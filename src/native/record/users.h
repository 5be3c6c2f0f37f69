/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_RECORD_USERS_H
#define NATIVE_RECORD_USERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "cay/error.h"

/* Every root has a `user` (1000, /home/user), which runs commands by default. */

enum { USERS_FILES = 3 };

/* Files in /etc of a root with the entries for `user`; text NULL: unchanged. */
struct users {
    struct users_file {
        const char *name; /* "passwd" */
        mode_t mode;
        char *text;
        int is_new;
    } files[USERS_FILES];
};

int users_read(int root, struct users *ret_users, struct cay_error *err);
void users_done(struct users *users);

/* The ids of a user in the root's own /etc/passwd; false if there is no such user, or its
 * ids are out of range. */
bool users_find(int root, const char *name, size_t len, uint32_t *ret_uid,
                uint32_t *ret_gid);

/* The same for a group of /etc/group. */
bool users_find_group(int root, const char *name, uint32_t *ret_gid);

/* Writes these files and creates the home, in a root on the host. */
int users_add(int root, struct cay_error *err);

#endif
