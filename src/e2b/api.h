/* SPDX-License-Identifier: Apache-2.0 */
#ifndef E2B_API_H
#define E2B_API_H

#include "e2b/e2b.h"

/* Requests to the service.  A successful create or connect fills in the handle's id,
 * tokens, version and URL of envd. */

/* `mark` is stored in the sandbox's metadata; NULL: none. */
int e2b_api_create(struct e2b *e2b, const cay_config *config, const char *mark,
                   struct cay_error *err);

/* Finds the sandbox with that mark and sets the handle's id. */
int e2b_api_find(struct e2b *e2b, const char *op, const char *mark, bool *ret_is_paused,
                 struct cay_error *err);

/* Resumes the sandbox if it is paused. */
int e2b_api_connect(struct e2b *e2b, const char *op, struct cay_error *err);

/* `ret_now_s` may be NULL; it gets the server's clock.  `until_ms` here and below may be
 * 0 for E2B_REPLY_MS from now. */
int e2b_api_detail(struct e2b *e2b, const char *op, uint64_t until_ms,
                   json_t **ret_detail, int64_t *ret_now_s, struct cay_error *err);
bool e2b_api_is_paused(struct e2b *e2b, const char *op, int *ret_code);
int e2b_api_pause(struct e2b *e2b, struct cay_error *err);
int e2b_api_kill(struct e2b *e2b, struct cay_error *err);
int e2b_api_set_timeout(struct e2b *e2b, const char *op, uint64_t seconds,
                        uint64_t until_ms, struct cay_error *err);

/* Extends the lifetime of a sandbox in use to settings.timeout_s, if settings.keepalive_s
 * have passed since the last time.  Never shortens it.  Takes a few seconds at most, and
 * ends at `until_ms`. */
void e2b_api_keep_alive(struct e2b *e2b, uint64_t until_ms);
uint64_t e2b_api_keep_alive_due(const struct e2b *e2b);

#endif
