/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_CMD_SESSION_H
#define CLI_CMD_SESSION_H

#include "cay/session.h"
#include "cli/call.h"

/* What a command about sessions works with: `call->options`. */
struct session_options {
    bool help, quiet;
    int as_json;
    const char *user, *config;
    cay_store *store;
};

/* "running", "gone", "none" ...: what is there now, if that can be seen from here. */
const char *session_state(const struct cay_session *session);

/* Whether its sandbox has ended; asks wherever it is, which may wake it. */
bool session_is_gone(const struct cay_session *session);

/* The members of one session, into the object that is open.  `state` as above. */
struct json;
void session_put(struct json *json, const struct cay_session *session, const char *state);

int session_list(struct call *call, struct cay_error *err);
int session_tell(struct call *call, const struct cay_session *session,
                 struct cay_error *err);

#endif
