/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_RECORD_SUBIDS_H
#define NATIVE_RECORD_SUBIDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What an ordinary user may map into a user namespace, by the system's own rules. */
struct subids {
    uint32_t first, count;
};

#define SUBIDS_USERS  "/etc/subuid"
#define SUBIDS_GROUPS "/etc/subgid"

/* The longest run of ids that the file gives this process's user. */
bool subids_own(const char *file, struct subids *ret_subids);

/* Whether the file gives anybody an id of this run. */
bool subids_overlap(const char *file, uint32_t first, uint32_t count);

/* The first id past every line of both files. */
uint32_t subids_free_from(void);

/* The name of this process's user, or its number. */
const char *subids_user(char *name, size_t room);

/* Where the program "newuidmap" or "newgidmap" is, or NULL.  Never looked up in PATH:
 * it is run with more rights than its caller has. */
const char *subids_program(const char *name);

/* Why such a program could not do its work even if it is there, or NULL. */
const char *subids_obstacle(const char *program);

#endif
