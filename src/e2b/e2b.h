/* SPDX-License-Identifier: Apache-2.0 */
#ifndef E2B_E2B_H
#define E2B_E2B_H

#include <jansson.h>

#include "cay/backend.h"
#include "e2b/http.h"

/* Sandboxes of the E2B cloud, or of any server that speaks its protocol.
 *
 * There are two: a REST service makes, pauses and ends sandboxes and knows the API key;
 * a daemon in each sandbox ("envd") runs commands and serves files, and knows a token
 * that the first one handed out.  Neither secret is ever sent to the other. */

enum {
    E2B_ENVD_PORT = 49983,
    E2B_KILL_MS = 10000,   /* what may be spent on ending something */
    E2B_REFRESH_MAX = 3600 /* seconds by which a sandbox's life can be prolonged */
};

/* From which version on the daemon has it. */
enum {
    E2B_HAS_DEFAULT_USER = 0x000400,
    E2B_HAS_CLOSE_STDIN = 0x000502,
    E2B_HAS_PLAIN_UPLOAD = 0x000507
};

/* What somebody configured; never changes. */
struct e2b_settings {
    char *key;
    char *domain;
    char *sandbox_url; /* NULL: made from the id and the domain */
    char *workdir;     /* absolute */
    struct e2b_origin api;
    bool force_http;
    unsigned retries;
    uint32_t timeout_s;
    uint32_t keepalive_s; /* 0: never */
};

/* One handle. */
struct e2b {
    struct e2b_settings settings;
    struct e2b_http http;
    char id[64];
    char *token, *traffic_token; /* NULL: there is none */
    struct e2b_origin envd;
    unsigned version;     /* 0.6.13 is 0x00060d */
    uint64_t extended_ms; /* when its life was last prolonged */
    /* /etc/passwd and /etc/group inside, once they were needed. */
    struct e2b_names *users, *groups;
    char user_name[64]; /* the last that was given by number */
};

/* --- Making a handle --- */

enum { E2B_FIELDS = 10 };
extern const struct cay_field e2b_fields[E2B_FIELDS];

int e2b_settings_read(const cay_config *config, const char *op,
                      struct e2b_settings *ret_settings, struct cay_error *err);
void e2b_settings_done(struct e2b_settings *settings);

void e2b_free(struct e2b *e2b); /* NULL is fine */
static inline void auto_e2b(struct e2b **e2b)
{
    e2b_free(*e2b);
}
#define AUTO_E2B __attribute__((cleanup(auto_e2b))) struct e2b *

/* Another one for the same sandbox, with its own connections. */
int e2b_dup(const struct e2b *e2b, const char *op, struct e2b **ret_copy,
            struct cay_error *err);

/* --- What servers answer --- */

/* CAY_OK for 2xx.  Otherwise the error that the reply means: `subject` is what was asked
 * for, `fallback` the code for a failure of the server's own that it says little about.
 * For what was asked of the sandbox itself it is found out what became of that. */
int e2b_reply_check(struct e2b *e2b, const struct e2b_request *request,
                    const char *subject, int fallback, struct cay_error *err);

/* The error for a refusal in the Connect protocol's words. */
int e2b_reply_refusal(const struct e2b *e2b, const char *op, const char *subject,
                      const char *code, const char *message, int fallback,
                      struct cay_error *err);

/* Why the sandbox does not answer: paused, ended, or only now. */
int e2b_reply_absent(struct e2b *e2b, const char *op, struct cay_error *err);

int e2b_reply_malformed(const char *op, const char *subject, const char *what,
                        struct cay_error *err);

/* The JSON object of a success; json_decref() it. */
int e2b_reply_json(const struct e2b_request *request, json_t **ret_object,
                   struct cay_error *err);

static inline void auto_json(json_t **json)
{
    json_decref(*json);
}
#define AUTO_JSON __attribute__((cleanup(auto_json))) json_t *

/* Text of a server, fit to be shown: no secrets of ours, no control characters. */
void e2b_reply_words(const struct e2b *e2b, const char *text, char *ret_words,
                     size_t room);

/* --- The service --- */

/* `mark` is kept with the sandbox; NULL: none. */
int e2b_api_create(struct e2b *e2b, const cay_config *config, const char *mark,
                   struct cay_error *err);

/* The one with that mark becomes the handle's: its id, and nothing else. */
int e2b_api_find(struct e2b *e2b, const char *op, const char *mark, bool *ret_is_paused,
                 struct cay_error *err);
int e2b_api_connect(struct e2b *e2b, const char *op, struct cay_error *err);
int e2b_api_detail(struct e2b *e2b, const char *op, json_t **ret_detail,
                   int64_t *ret_now_s, struct cay_error *err);
bool e2b_api_is_paused(struct e2b *e2b, const char *op, int *ret_code);
int e2b_api_pause(struct e2b *e2b, struct cay_error *err);
int e2b_api_kill(struct e2b *e2b, struct cay_error *err);
int e2b_api_set_timeout(struct e2b *e2b, const char *op, uint64_t seconds,
                        struct cay_error *err);

/* Sees to it that a sandbox that is in use has at least settings.timeout_s to live, if it
 * was not done within the last settings.keepalive_s.  Never makes its life shorter, and
 * gives up after a few seconds, or at `until_ms`. */
void e2b_keep_alive(struct e2b *e2b, uint64_t until_ms);
uint64_t e2b_keep_alive_due(const struct e2b *e2b); /* when it next has something to do */

/* --- The daemon inside --- */

/* A request to it: the headers that say who asks.  `user` NULL: the default; a name. */
void e2b_envd_headers(const struct e2b *e2b, struct e2b_request *request,
                      const char *user);

/* One question and its answer.  `body` is its JSON; *ret_reply may be NULL. */
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

/* The absolute path for the daemon, without "." and "..", which the daemon resolves
 * without following links.  CAY_E_UNSUPPORTED if it is not UTF-8.  free() it. */
int e2b_path(const struct e2b *e2b, const char *op, const char *path, char **ret_path,
             struct cay_error *err);

/* CAY_E_UNSUPPORTED if the text is not UTF-8: requests are JSON. */
int e2b_check_text(const char *op, const char *what, const char *text,
                   struct cay_error *err);

extern const struct cay_file_backend e2b_files;
extern const struct cay_process_backend e2b_processes;

int e2b_exec(void *cookie, const struct cay_exec_options *options,
             struct cay_exec_result *ret_result, struct cay_error *err);
int e2b_process_list(void *cookie, struct cay_process_info **ret_infos, size_t *ret_count,
                     struct cay_error *err);

#endif
