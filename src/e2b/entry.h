/* SPDX-License-Identifier: Apache-2.0 */
#ifndef E2B_ENTRY_H
#define E2B_ENTRY_H

#include "e2b/e2b.h"

/* What the daemon says about a name.  Of a symbolic link it tells what is at its end. */
struct e2b_entry {
    struct cay_stat stat; /* links followed; the type is 0 if that leads nowhere */
    bool is_link;
    const char *path; /* in a listing; lives as long as the JSON */
};

/* NULL, or what is wrong with it. */
const char *e2b_entry_read(struct e2b *e2b, const json_t *json,
                           struct e2b_entry *ret_entry);

/* Asks for it; `path` is absolute, `subject` the caller's spelling. */
int e2b_envd_stat(struct e2b *e2b, const char *op, const char *user, const char *path,
                  const char *subject, struct e2b_entry *ret_entry,
                  struct cay_error *err);

/* CAY_OK if what holds that name is there, and a directory. */
int e2b_entry_parent(struct e2b *e2b, const char *op, const char *user, const char *path,
                     const char *subject, struct cay_error *err);

/* CAY_E_EXISTS if there is something, CAY_OK if not. */
int e2b_entry_absent(struct e2b *e2b, const char *op, const char *user, const char *whole,
                     const char *path, struct cay_error *err);

/* The number of a user or group inside; UINT32_MAX if that is not known. */
uint32_t e2b_names_uid(struct e2b *e2b, const char *name);
uint32_t e2b_names_gid(struct e2b *e2b, const char *name);

/* The name of a user who may be given by number; until the next call. */
const char *e2b_envd_user(struct e2b *e2b, const char *user);
void e2b_names_free(struct e2b_names *names); /* NULL is fine */

/* The whole of a small file inside; it must be NUL-terminated text. */
int e2b_file_fetch(struct e2b *e2b, const char *op, const char *user, const char *path,
                   size_t max, struct buf *ret_content, struct cay_error *err);

/* Content between a descriptor and a file; `path` as above. */
int e2b_file_read(void *cookie, const char *user, const char *path, int fd,
                  struct cay_error *err);
int e2b_file_write(void *cookie, const char *user, const char *path, int fd,
                   unsigned flags, struct cay_error *err);

#endif
