/* SPDX-License-Identifier: Apache-2.0 */
#ifndef E2B_REPLY_H
#define E2B_REPLY_H

#include "e2b/e2b.h"

/* Errors from replies.  The service and proxies report an HTTP status, envd a code of the
 * Connect protocol.  Both add a message, which is displayed and never trusted. */

/* CAY_OK for 2xx, else the error that the reply means.  `subject` is what the request was
 * about, `fallback` the error code if the reply has no specific one. */
int e2b_reply_check(const struct e2b *e2b, const struct e2b_request *request,
                    const char *subject, int fallback, struct cay_error *err);

/* The error of a code and message of the Connect protocol. */
int e2b_reply_refusal(const struct e2b *e2b, const char *op, const char *subject,
                      const char *code, const char *message, int fallback,
                      struct cay_error *err);

/* envd reports a failed system call as "internal", with the text of its errno: the errno,
 * or 0. */
int e2b_reply_errno(const char *message);

int e2b_reply_malformed(const char *op, const char *subject, const char *what,
                        struct cay_error *err);

/* The body as JSON, or NULL; json_decref() it. */
json_t *e2b_reply_load(const struct e2b_request *request);

/* The same; fails if it is not an object. */
int e2b_reply_object(const struct e2b_request *request, json_t **ret_object,
                     struct cay_error *err);

/* Copies a server's text for display: without our secrets and control characters. */
void e2b_reply_text(const struct e2b *e2b, const char *text, char *ret_text, size_t room);

#endif
