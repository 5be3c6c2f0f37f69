/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_BROKER_SESSION_H
#define SERVER_BROKER_SESSION_H

#include "server/broker/secrets.h"

/* Sessions of browsers.  A session is a text that the server signs with its key: it names
 * an API key, by its hash, and the time at which it ends.  So it survives a restart,
 * holds on each server with the same key, and ends with its API key.  Only those that
 * ended early are stored; servers that share an index exchange them
 * (index-sessions.c). */

enum { SESSION_S = 12 * 3600, SESSION_ID_MAX = 96 };

struct browser_session {
    char id[SESSION_ID_MAX]; /* the text without its signature */
    unsigned char key[KEY_HASH];
    int64_t expires_s; /* since 1970 */
};

/* A new session of an API key, until now_s + SESSION_S. */
int browser_session_new(const struct secrets *secrets, const unsigned char key[KEY_HASH],
                        int64_t now_s, char ret_text[CREDENTIAL_MAX],
                        struct cay_error *err);

/* Whether the text has the form of a session: no API key and no token has it. */
bool browser_session_is_text(const char *text);

/* Whether the server has signed it and it has not expired. */
bool browser_session_parse(const struct secrets *secrets, const char *text, int64_t now_s,
                           struct browser_session *ret_session);

/* The session with this id, as browser_session.id has it; false: no id of a session. */
bool browser_session_read_id(const char *id, struct browser_session *ret_session);

/* Ends a session before its time, on this server. */
int browser_session_end(struct registry *registry, const struct browser_session *session,
                        int64_t now_s, struct cay_error *err);
/* CAY_E_NOT_FOUND: it was ended. */
int browser_session_check(struct registry *registry,
                          const struct browser_session *session, struct cay_error *err);
/* The first session, by its id, after this id ("": of all) that ended early and has not
 * expired.  CAY_E_NOT_FOUND: there is none. */
int browser_session_next_ended(struct registry *registry, const char *after,
                               int64_t now_s, struct browser_session *ret_session,
                               struct cay_error *err);

#endif
