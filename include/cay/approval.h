/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CAY_APPROVAL_H
#define CAY_APPROVAL_H

#include "cay/files.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One queue of requests for approval, in the state directory.  A program adds a request
 * and waits; the user replies from another terminal (cay-approve(1)), or another program
 * replies.  A request is known by the SHA-256 of its texts and content, so a reply is for
 * exactly that: it outlives the program, and serves the next one with the same request,
 * once. Without a reply in time the answer is no.  All processes of a user share the
 * queue. */

#define CAY_PENDING_ID_MAX      65         /* including the NUL: 64 hexadecimal digits */
#define CAY_PENDING_MAX         256        /* requests at a time: CAY_E_LIMIT */
#define CAY_PENDING_CONTENT_MAX (1u << 20) /* bytes */
#define CAY_PENDING_TIMEOUT_MS  600000u    /* by default: 10 minutes */
#define CAY_PENDING_TEXT_MAX    4096       /* of scope, subject and summary, with NUL */

struct cay_request {
    size_t size;
    const char *kind;    /* what is done, for rules: "write", "command"; a-z and "-" */
    const char *scope;   /* where: a policy's file, a directory, a sandbox; or NULL */
    const char *subject; /* to what: a path, a command, a host */
    const char *summary; /* one line for the user; NULL: kind and subject */
    const void *content; /* what the user sees, and part of the id; or NULL */
    size_t content_len;
    uint64_t timeout_ms; /* 0: CAY_PENDING_TIMEOUT_MS; at most 7 days */
};

struct cay_pending {
    char id[CAY_PENDING_ID_MAX];
    char kind[32];
    char scope[CAY_PENDING_TEXT_MAX], subject[CAY_PENDING_TEXT_MAX],
        summary[CAY_PENDING_TEXT_MAX];
    int64_t created_ms, expires_ms; /* since 1970 */
    size_t content_len;
    bool is_decided; /* there is a reply, and no program has used it yet */
};

enum cay_decision {
    CAY_DECISION_NONE = 0, /* not yet */
    CAY_DECISION_YES = 1,
    CAY_DECISION_NO = 2
};

/* Adds the request, or joins the same one.  *ret_decision is what a rule
 * says; then there is no request. */
CAY_PUBLIC CAY_NODISC int cay_pending_submit(const struct cay_request *ask,
                                             char ret_id[CAY_PENDING_ID_MAX],
                                             enum cay_decision *ret_decision,
                                             struct cay_error *err);

/* Waits up to `wait_ms` for the reply, and uses it up.  `note` gets the reason of a
 * denial; it may be NULL. */
CAY_PUBLIC CAY_NODISC int cay_pending_wait(const char *id, uint64_t wait_ms,
                                           enum cay_decision *ret_decision,
                                           char note[CAY_NOTE_MAX],
                                           struct cay_error *err);

/* The oldest first, without those that have expired.  Free the array with cay_free(). */
CAY_PUBLIC CAY_NODISC int cay_pending_list(struct cay_pending **ret_list,
                                           size_t *ret_count, struct cay_error *err);

/* A request by its id or the beginning of one, with its content, which cay_free() frees;
 * a NUL follows it.  CAY_E_INVALID: several ids begin so. */
CAY_PUBLIC CAY_NODISC int cay_pending_find(const char *id,
                                           struct cay_pending *ret_pending,
                                           char **ret_content, struct cay_error *err);

/* Replies to a request, by its whole id.  REMEMBER also adds a rule for its kind, scope
 * and subject, whatever the content.  CAY_E_EXISTS: there is a reply already. */
CAY_PUBLIC CAY_NODISC int cay_pending_decide(const char *id, enum cay_verdict verdict,
                                             const char *note, struct cay_error *err);

/* The file of the rules, which the user may edit: cay-approve(1).  It need not exist. */
CAY_PUBLIC CAY_NODISC int cay_pending_rules(char ret_path[4096], struct cay_error *err);

/* Submits, waits and returns the verdict: DENY or APPROVE. */
CAY_PUBLIC CAY_NODISC int cay_pending_request(const struct cay_request *ask,
                                              enum cay_verdict *ret_verdict,
                                              char note[CAY_NOTE_MAX],
                                              struct cay_error *err);

/* The cookie of cay_pending_approve(), a cay_approver that uses the queue. */
struct cay_pending_files {
    size_t size;
    const char *scope;   /* the file of the policy */
    uint64_t timeout_ms; /* 0: CAY_PENDING_TIMEOUT_MS */
    /* Called with the id of a request that has to wait; or NULL. */
    void (*waits)(const char *id, const char *summary);
};
CAY_PUBLIC enum cay_verdict cay_pending_approve(void *cookie,
                                                const struct cay_approval *request,
                                                char note[CAY_NOTE_MAX]);

#ifdef __cplusplus
}
#endif
#endif
