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
    IDMAP_COUNT = 65536,     /* ids in a full range */
    IDMAP_PROBE = 0x7FFE0000 /* above the range of every sandbox; cay-nets have ids behind
                                it */
};

struct idmap_line {
    uint32_t inside, outside, count;
};

/* Which host ids the ids inside are mapped to.  Host root is never among them. */
struct idmap {
    struct idmap_line users[IDMAP_LINES], groups[IDMAP_LINES];
    size_t count;
    bool by_helper; /* newuidmap and newgidmap write it */
    bool no_groups; /* the kernel requires setgroups(2) to be disabled first */
};

/* A map as the kernel reports it. */
struct idmap_shown {
    size_t count;
    struct idmap_line lines[8];
};

/* Reads a "uid_map" or "gid_map", by its path from `dir`; the result is empty if it
 * cannot be read. */
void idmap_read(int dir, const char *path, struct idmap_shown *ret_shown);

/* The id inside, or 65534 for an unmapped id. */
uint32_t idmap_inside(const struct idmap_shown *shown, uint32_t outside);

/* Whether this process may map any ids: it is root and all ids are mapped in its user
 * namespace. */
bool idmap_is_root(void);

/* Negative if that is unknown. */
int idmap_check(void);

/* Whether this process is root of the host, as far as it can see. */
bool idmap_is_host_root(void);

/* Maps 0 inside to `base`, for a full range. */
void idmap_for_root(struct idmap *ret_map, uint32_t base);

/* Maps `user` inside to the user of this process and all others to its subordinate ids,
 * so that `user` owns the caller's files. */
void idmap_for_range(struct idmap *ret_map, uint32_t users, uint32_t groups);

/* Maps only `user` inside, to `uid` and `gid`; `own`: these are the caller's. */
void idmap_for_single(struct idmap *ret_map, uid_t uid, gid_t gid, bool own);

/* Maps only root inside. */
void idmap_for_probe(struct idmap *ret_map);

/* The ids outside as text, to compare them with those that files were created with; ""
 * for a map that files do not depend on, as root. */
enum { IDMAP_TEXT = 64 };
void idmap_text(const struct idmap *map, char ret_text[IDMAP_TEXT]);

/* Writes the map for the user namespace of `pid`, once; 0 or a negative errno. */
int idmap_write(const struct idmap *map, pid_t pid);

/* The same in two steps, for a map written by newuidmap and newgidmap: they take longer
 * than the rest of the creation, which goes on meanwhile.  Every idmap_begin() needs an
 * idmap_finish(). */
struct idmap_helpers {
    pid_t users, groups; /* 0: not started */
    int error;
};

void idmap_begin(const struct idmap *map, pid_t pid, struct idmap_helpers *ret_helpers);
int idmap_finish(struct idmap_helpers *helpers);

/* Subordinate ids: what /etc/subuid and /etc/subgid let an ordinary user map. */
struct subids {
    uint32_t first, count;
};

#define SUBIDS_USERS  "/etc/subuid"
#define SUBIDS_GROUPS "/etc/subgid"

/* The longest range that the file gives to the user of this process. */
bool subids_own(const char *file, struct subids *ret_subids);

/* Whether this user can map a full range of them: /etc/subuid and /etc/subgid have one,
 * and newuidmap and newgidmap work. */
bool subids_find(struct subids *ret_users, struct subids *ret_groups);

/* Whether the file gives any of these ids to any user. */
bool subids_overlap(const char *file, uint32_t first, uint32_t count);

/* The name of the user of this process, or its number. */
const char *subids_user(char *name, size_t room);

/* The path of "newuidmap" or "newgidmap", or NULL.  PATH is not searched, since the
 * program runs with more privileges than its caller. */
const char *subids_program(const char *name);

/* Why the program cannot work although it is installed, or NULL. */
const char *subids_obstacle(const char *program);

#endif
