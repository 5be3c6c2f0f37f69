/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CAY_APPROVAL_H
#define CAY_APPROVAL_H

#include "cay/sandbox.h"

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
#define CAY_PENDING_SCOPE_MAX   64         /* the same of one scope, unless it is empty */
#define CAY_PENDING_CONTENT_MAX (1u << 20) /* bytes */
#define CAY_PENDING_TIMEOUT_MS  600000u    /* by default: 10 minutes */
#define CAY_PENDING_TEXT_MAX    4096       /* of scope, subject and summary, with NUL */

/* Uses this directory (0700, of this user) as the queue of this process, instead of
 * `approvals` in the state directory; it is created if it is missing.  NULL: the usual
 * one.  For programs with several queues; not while another thread uses the queue. */
CAY_PUBLIC CAY_NODISC int cay_pending_use(const char *path, struct cay_error *err);

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

/* The id of a request, and what a rule says about it: nothing is added.  `ret_id` may be
 * NULL. */
CAY_PUBLIC CAY_NODISC int cay_pending_check(const struct cay_request *ask,
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

/* A line of the file: texts as patterns, as the file has them. */
struct cay_pending_rule {
    char id[CAY_PENDING_ID_MAX]; /* the SHA-256 of the line */
    bool allows;                 /* or it denies */
    const char *kind, *scope, *subject;
};

/* The rules in the order of the file.  Free the array, which has the texts, too, with
 * cay_free(). */
CAY_PUBLIC CAY_NODISC int cay_pending_list_rules(struct cay_pending_rule **ret_list,
                                                 size_t *ret_count,
                                                 struct cay_error *err);

/* Removes a rule by its whole id, wherever it is in the file.  CAY_E_NOT_FOUND: there is
 * none. */
CAY_PUBLIC CAY_NODISC int cay_pending_remove_rule(const char *id, struct cay_error *err);

/* A server that learns of requests, and may reply to them.  cay-approve(1) describes the
 * messages. */
struct cay_webhook {
    size_t size;
    const char *url;     /* https, or http to this machine */
    const char *secret;  /* of the signatures: 16 to 4096 bytes */
    uint64_t timeout_ms; /* of one message; 0: 10 seconds; at most 60 */
};

/* Sends a request by its id to the webhook, once, and applies what that replies at once.
 * CAY_DECISION_NONE: it does not reply yet.  CAY_E_UNAVAILABLE: send it again later.
 * CAY_E_PROTOCOL: the reply is not signed with the secret, or is none; it has no
 * effect. */
CAY_PUBLIC CAY_NODISC int cay_pending_notify(const struct cay_webhook *hook,
                                             const char *id,
                                             enum cay_decision *ret_decision,
                                             struct cay_error *err);

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

/* --- Commands --------------------------------------------------------------------------
 *
 * A command that matches a pattern of cay_sandbox_options.approve, or of its own
 * cay_exec_options.approve, does not start before it is approved.  cay_sandbox_exec() and
 * cay_process_start() wait for that: CAY_E_NOT_APPROVED.  A program with an event loop
 * uses these two functions instead, and may call the second one again and again.
 *
 * A request has kind "command" and the command line as its subject, quoted as for a
 * shell; its content is what runs: arguments, working directory, user and variables,
 * whose values are hashed.  Standard input is not part of it. */

/* Requests approval if the command needs it.  CAY_DECISION_YES: it does not, or a rule
 * allows it. CAY_DECISION_NONE: it waits, as `ret_id` in the queue. */
CAY_PUBLIC CAY_NODISC int
cay_sandbox_request_command(cay_sandbox *sandbox, const struct cay_exec_options *options,
                            char ret_id[CAY_PENDING_ID_MAX],
                            enum cay_decision *ret_decision, struct cay_error *err);

/* cay_process_start() for a command that was requested, without waiting.  CAY_OK and
 * *ret_process NULL: there is no reply yet.  CAY_E_NOT_APPROVED: it is denied, or there
 * was no reply in time.  CAY_E_CHANGED: `id` is the request for another command. */
CAY_PUBLIC CAY_NODISC int
cay_process_start_approved(cay_sandbox *sandbox, const struct cay_exec_options *options,
                           const char *id, cay_process **ret_process,
                           struct cay_error *err);

/* --- Connections -----------------------------------------------------------------------
 *
 * With cay_network_config.approve_ms, connections that no network rule allows or denies
 * wait outside of the sandbox, at most 64 to 32 destinations.  Private addresses are
 * refused as always.  A request has kind "egress" and "HOST:PORT" as its subject.  After
 * a yes those that wait continue; after "remember", and if a rule of the queue allows the
 * destination, it becomes a network rule of the sandbox. */

/* Adds requests for the destinations that wait, and passes replies on to their
 * connections.  Never waits for a reply: a process of the user, like cay approve watch,
 * calls it again and again while the sandbox lives.  The number of destinations that
 * wait for a reply is set in any case. */
CAY_PUBLIC CAY_NODISC int
cay_sandbox_pass_egress(cay_sandbox *sandbox, size_t *ret_waiting, struct cay_error *err);

#ifdef __cplusplus
}
#endif
#endif
