/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_RECORD_IDMAP_H
#define NATIVE_RECORD_IDMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "native/record/idmap.h"

enum {
    IDMAP_LINES = 3,
    IDMAP_COUNT = 65536,     /* ids of a whole range */
    IDMAP_PROBE = 0x7FFE0000 /* past every sandbox's range */
};

struct idmap_line {
    uint32_t inside, outside, count;
};

/* Which ids outside stand for those inside.  The host's root is never among them. */
struct idmap {
    struct idmap_line users[IDMAP_LINES], groups[IDMAP_LINES];
    size_t count;
    bool by_helper; /* newuidmap and newgidmap write it */
    bool no_groups; /* the kernel wants setgroups(2) switched off first */
};

/* A map as the kernel shows it. */
struct idmap_shown {
    size_t count;
    struct idmap_line lines[8];
};

/* Of a "uid_map" or "gid_map", by its path from `dir`; none if it cannot be read. */
void idmap_read(int dir, const char *path, struct idmap_shown *ret_shown);

/* The id inside, or 65534 for one that has none. */
uint32_t idmap_inside(const struct idmap_shown *shown, uint32_t outside);

/* Whether this process may map any ids it likes: root, and not in a user namespace that
 * has only some. */
bool idmap_is_root(void);

/* Negative if that cannot be told now. */
int idmap_check(void);

/* Whether it is the host's root, as far as can be seen from here. */
bool idmap_is_host_root(void);

/* Inside 0 is `base`, and so on for a whole range. */
void idmap_for_root(struct idmap *ret_map, uint32_t base);

/* `user` inside is this process's own user, everybody else comes from its subordinate
 * ids: what belongs to the caller belongs to `user`. */
void idmap_for_range(struct idmap *ret_map, uint32_t users, uint32_t groups);

/* Only `user` inside: `uid` and `gid` outside, which are the caller's if it is
 * `own`. */
void idmap_for_single(struct idmap *ret_map, uid_t uid, gid_t gid, bool own);

/* Only root inside. */
void idmap_for_probe(struct idmap *ret_map);

/* Writes it for the user namespace of `pid`, once; 0 or a negative errno. */
int idmap_write(const struct idmap *map, pid_t pid);

/* The same in two halves, for one that helpers write: they take longer than all the rest
 * of making a sandbox, and need not be waited for meanwhile.  What was begun must be
 * finished. */
struct idmap_helpers {
    pid_t users, groups; /* 0: not started */
    int error;
};

void idmap_begin(const struct idmap *map, pid_t pid, struct idmap_helpers *ret_helpers);
int idmap_finish(struct idmap_helpers *helpers);

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
