/* SPDX-License-Identifier: Apache-2.0 */
#ifndef E2B_ENVD_H
#define E2B_ENVD_H

#include "e2b/e2b.h"

/* Requests to envd, the daemon in the sandbox.  A `user` of NULL is the default user. */

/* Marks the request as one to envd and adds its headers.  `user` is a name. */
void e2b_envd_headers(const struct e2b *e2b, struct e2b_request *request,
                      const char *user);

/* A request for the content of a file.  `user` is a name, `path` absolute. */
void e2b_envd_file_request(const struct e2b *e2b, struct e2b_request *request,
                           const char *op, const char *method, const char *user,
                           const char *path);

/* e2b_reply_check(); for status 502 the error reports whether the sandbox is paused or
 * has ended. */
int e2b_envd_check(struct e2b *e2b, const struct e2b_request *request,
                   const char *subject, int fallback, struct cay_error *err);

/* The error if envd is unreachable: the sandbox is paused, or has ended. */
int e2b_envd_fail_absent(struct e2b *e2b, const char *op, struct cay_error *err);

/* A call of a method with a JSON body and a JSON reply.  *ret_reply may be NULL. */
struct e2b_call {
    const char *op, *subject;
    const char *method; /* "filesystem.Filesystem/Stat" */
    const char *user;
    bool repeatable;
    int fallback;
    size_t reply_max;
    uint64_t until_ms; /* 0: E2B_REPLY_MS from now */
};
int e2b_call(struct e2b *e2b, const struct e2b_call *call, const struct buf *body,
             json_t **ret_reply, struct cay_error *err);

/* The same with a body of text fields: names and values, up to a NULL. */
int e2b_call_texts(struct e2b *e2b, const struct e2b_call *call,
                   const char *const *fields, json_t **ret_reply, struct cay_error *err);

/* The absolute path without "." and "..", which envd resolves without following links.
 * CAY_E_UNSUPPORTED if it is not UTF-8.  free() it. */
int e2b_path(const struct e2b *e2b, const char *op, const char *path, char **ret_path,
             struct cay_error *err);

/* CAY_E_UNSUPPORTED if the text is not UTF-8: requests are JSON. */
int e2b_check_text(const char *op, const char *what, const char *text,
                   struct cay_error *err);

/* The name of a user that may be given by number; valid until the next call. */
const char *e2b_envd_user(struct e2b *e2b, const char *user);

/* A file as envd describes it.  envd follows symbolic links. */
struct e2b_entry {
    struct cay_stat stat; /* the type is 0 if the target of a link does not exist */
    bool is_link;
    const char *path; /* in a listing; valid as long as the JSON */
};

/* NULL, or what is wrong with the entry. */
const char *e2b_entry_read(struct e2b *e2b, const json_t *json,
                           struct e2b_entry *ret_entry);

/* `path` is absolute, `subject` the caller's spelling. */
int e2b_envd_stat(struct e2b *e2b, const char *op, const char *user, const char *path,
                  const char *subject, struct e2b_entry *ret_entry,
                  struct cay_error *err);

#endif
