/* SPDX-License-Identifier: Apache-2.0 */
#include "server/broker/session.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/error.h"

/* "s1_", and in hexadecimal digits: when it ends, a random number, the hash of the API
 * key, and the signature. */
static const char head[] = "s1_";
enum {
    HEAD = 3,
    EXPIRES_DIGITS = 8,
    RANDOM_DIGITS = 16,
    KEY_DIGITS = 2 * KEY_HASH,
    ID_LEN = HEAD + EXPIRES_DIGITS + RANDOM_DIGITS + KEY_DIGITS,
    SIGNATURE_DIGITS = 32,
    TEXT_LEN = ID_LEN + SIGNATURE_DIGITS
};
_Static_assert((int)TEXT_LEN < (int)CREDENTIAL_MAX && (int)ID_LEN < (int)SESSION_ID_MAX,
               "a session must fit");

static const char digits[] = "0123456789abcdef";

static void put_hex(char *text, const unsigned char *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        *text++ = digits[bytes[i] >> 4];
        *text++ = digits[bytes[i] & 15];
    }
    *text = '\0';
}

static unsigned value_of(char digit)
{
    return (unsigned)(strchr(digits, digit) - digits);
}

static void sign(const struct secrets *secrets, unsigned key, const char *id,
                 char ret_text[CREDENTIAL_MAX])
{
    char token[TOKEN_MAX];

    secrets_token_by(secrets, key, TOKEN_SESSION, id, 0, token);
    snprintf(ret_text, CREDENTIAL_MAX, "%s%.*s", id, SIGNATURE_DIGITS, token);
    explicit_bzero(token, sizeof token);
}

int browser_session_new(const struct secrets *secrets, const unsigned char key[KEY_HASH],
                        int64_t now_s, char ret_text[CREDENTIAL_MAX],
                        struct cay_error *err)
{
    unsigned char random[RANDOM_DIGITS / 2];
    char id[SESSION_ID_MAX];

    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return cay_fail_errno(err, errno, "session.new", "random");
    snprintf(id, sizeof id, "%s%08x", head, (unsigned)(now_s + SESSION_S));
    put_hex(id + HEAD + EXPIRES_DIGITS, random, sizeof random);
    put_hex(id + HEAD + EXPIRES_DIGITS + RANDOM_DIGITS, key, KEY_HASH);
    sign(secrets, 0, id, ret_text);
    return CAY_OK;
}

bool browser_session_is_text(const char *text)
{
    return strncmp(text, head, HEAD) == 0 && strlen(text) == TEXT_LEN &&
           strspn(text + HEAD, digits) == TEXT_LEN - HEAD;
}

/* The digits after the head are valid. */
static void read_id(const char *text, struct browser_session *session)
{
    const char *at = text + HEAD;

    memcpy(session->id, text, ID_LEN);
    session->id[ID_LEN] = '\0';
    session->expires_s = 0;
    for (int i = 0; i < EXPIRES_DIGITS; i++)
        session->expires_s = session->expires_s << 4 | value_of(*at++);
    at += RANDOM_DIGITS;
    for (int i = 0; i < KEY_HASH; i++, at += 2)
        session->key[i] = (unsigned char)(value_of(at[0]) << 4 | value_of(at[1]));
}

bool browser_session_read_id(const char *id, struct browser_session *ret_session)
{
    if (strncmp(id, head, HEAD) != 0 || strlen(id) != ID_LEN ||
        strspn(id + HEAD, digits) != ID_LEN - HEAD)
        return false;
    read_id(id, ret_session);
    return true;
}

bool browser_session_parse(const struct secrets *secrets, const char *text, int64_t now_s,
                           struct browser_session *ret_session)
{
    char right[CREDENTIAL_MAX];
    bool is_signed = false;

    if (!browser_session_is_text(text))
        return false;
    read_id(text, ret_session);
    for (unsigned i = 0; i == 0 || i < secrets->count; i++) {
        sign(secrets, i, ret_session->id, right);
        is_signed |= secrets_are_equal(text, right);
    }
    explicit_bzero(right, sizeof right);
    return is_signed && ret_session->expires_s > now_s;
}

/* --- Sessions that ended early --- */

static int run(struct registry *registry, const char *text, const char *id,
               int64_t number, int wanted, struct cay_error *err)
{
    sqlite3_stmt *statement = NULL;
    int result = SQLITE_ERROR;

    if (registry_db(registry) && sqlite3_prepare_v2(registry_db(registry), text, -1,
                                                    &statement, NULL) == SQLITE_OK) {
        sqlite3_bind_text(statement, 1, id, -1, SQLITE_STATIC);
        sqlite3_bind_int64(statement, 2, number);
        result = sqlite3_step(statement);
    }
    int code = result == wanted       ? CAY_OK
               : result == SQLITE_ROW ? CAY_E_NOT_FOUND
                                      : registry_fail(registry, "session", err);
    sqlite3_finalize(statement);
    return code;
}

int browser_session_end(struct registry *registry, const struct browser_session *session,
                        int64_t now_s, struct cay_error *err)
{
    TRY(run(registry,
            "DELETE FROM ended_sessions WHERE ?1 IS NOT NULL AND expires_s < ?2",
            session->id, now_s, SQLITE_DONE, err));
    return run(registry, "INSERT OR IGNORE INTO ended_sessions VALUES (?1, ?2)",
               session->id, session->expires_s, SQLITE_DONE, err);
}

int browser_session_check(struct registry *registry,
                          const struct browser_session *session, struct cay_error *err)
{
    return run(registry, "SELECT 1 FROM ended_sessions WHERE id = ?1 AND ?2 IS NOT NULL",
               session->id, 0, SQLITE_DONE, err);
}

int browser_session_next_ended(struct registry *registry, const char *after,
                               int64_t now_s, struct browser_session *ret_session,
                               struct cay_error *err)
{
    sqlite3_stmt *statement = NULL;
    int result = SQLITE_ERROR;
    bool is_valid = false;

    if (sqlite3_prepare_v2(registry_db(registry),
                           "SELECT id FROM ended_sessions WHERE id > ?1 AND "
                           "expires_s > ?2 ORDER BY id LIMIT 1",
                           -1, &statement, NULL) == SQLITE_OK) {
        sqlite3_bind_text(statement, 1, after, -1, SQLITE_STATIC);
        sqlite3_bind_int64(statement, 2, now_s);
        result = sqlite3_step(statement);
    }
    if (result == SQLITE_ROW) {
        const char *id = (const char *)sqlite3_column_text(statement, 0);
        is_valid = id && browser_session_read_id(id, ret_session);
    }
    int code = is_valid                ? CAY_OK
               : result == SQLITE_DONE ? CAY_E_NOT_FOUND
                                       : registry_fail(registry, "session", err);
    sqlite3_finalize(statement);
    return code;
}
