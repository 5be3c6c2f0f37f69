/* SPDX-License-Identifier: Apache-2.0 */

/* What an answer means.  The service and proxies tell by the HTTP status, the daemon in
 * the Connect protocol's words; both add a sentence, which is shown but never trusted. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/auto.h"
#include "base/error.h"
#include "e2b/e2b.h"
#include "e2b/messages.h"

enum { WORDS_MAX = 300 };

struct meaning {
    const char *word;
    int code;
};

static const struct meaning connect_codes[] = {
    {"aborted", CAY_E_BUSY},
    {"already_exists", CAY_E_EXISTS},
    {"canceled", CAY_E_CANCELLED},
    {"deadline_exceeded", CAY_E_TIMEOUT},
    {"failed_precondition", CAY_E_BUSY},
    {"invalid_argument", CAY_E_INVALID},
    {"not_found", CAY_E_NOT_FOUND},
    {"out_of_range", CAY_E_INVALID},
    {"permission_denied", CAY_E_DENIED},
    {"resource_exhausted", CAY_E_LIMIT},
    {"unauthenticated", CAY_E_DENIED},
    {"unavailable", CAY_E_UNAVAILABLE},
    {"unimplemented", CAY_E_UNSUPPORTED},
};

/* The daemon calls a refusal of its kernel an internal error, and quotes it. */
static const struct meaning quotes[] = {
    {"permission denied", CAY_E_DENIED},
    {"operation not permitted", CAY_E_DENIED},
    {"read-only file system", CAY_E_DENIED},
    {"no space left on device", CAY_E_NO_SPACE},
    {"disk quota exceeded", CAY_E_NO_SPACE},
    {"no such file or directory", CAY_E_NOT_FOUND},
    {"file exists", CAY_E_EXISTS},
    {"not a directory", CAY_E_NOT_A_DIRECTORY},
    {"is a directory", CAY_E_NOT_A_FILE},
};

static int code_of_status(int status, int fallback)
{
    switch (status) {
    case 400:
    case 405:
    case 406:
    case 422:
        return CAY_E_INVALID;
    case 401:
    case 403:
        return CAY_E_DENIED;
    case 404:
    case 410:
        return CAY_E_NOT_FOUND;
    case 408:
    case 504:
        return CAY_E_TIMEOUT;
    case 409:
        return CAY_E_BUSY;
    case 413:
        return CAY_E_TOO_LARGE;
    case 429:
        return CAY_E_LIMIT;
    case 501:
        return CAY_E_UNSUPPORTED;
    case 502:
    case 503:
        return CAY_E_UNAVAILABLE;
    case 507:
        return CAY_E_NO_SPACE;
    default:
        return status >= 500 ? fallback : CAY_E_PROTOCOL;
    }
}

static const char *hint_for(int code, bool is_service)
{
    switch (code) {
    case CAY_E_DENIED:
        return is_service ? "check E2B_API_KEY, or api_key: it must be of this service"
                          : "ask as a user who may, such as root; or connect to it anew";
    case CAY_E_NOT_FOUND:
        return is_service ? "it may have ended: make a new one, or check the template"
                          : "list the directory to see what is there";
    case CAY_E_LIMIT:
        return "wait a moment, or end sandboxes that are not needed";
    case CAY_E_BUSY:
        return "see which state the sandbox is in, and try again";
    case CAY_E_INVALID:
        return "the server says what it does not like; correct that";
    case CAY_E_UNSUPPORTED:
        return "this server cannot do it; a newer one may";
    case CAY_E_NO_SPACE:
        return "remove something in the sandbox first";
    case CAY_E_EXISTS:
        return "choose another name, or remove what is there";
    default:
        return "try again later; the server's own records say more";
    }
}

/* --- Words of others --- */

static void hide(char *text, const char *secret)
{
    size_t len = secret ? strlen(secret) : 0;

    if (len < 4)
        return;
    for (char *at = strstr(text, secret); at; at = strstr(at + len, secret))
        memset(at, '*', len);
}

void e2b_reply_words(const struct e2b *e2b, const char *text, char *ret_words,
                     size_t room)
{
    char whole[2048];

    cay_copy_text(whole, sizeof whole, text);
    hide(whole, e2b->settings.key);
    hide(whole, e2b->token);
    hide(whole, e2b->traffic_token);
    for (char *at = whole; *at; at++)
        if (iscntrl((unsigned char)*at))
            *at = ' ';
    cay_copy_text(ret_words, room, whole);
}

static int fail_with(const struct e2b *e2b, const char *op, const char *subject, int code,
                     const char *what, const char *said, bool is_service,
                     struct cay_error *err)
{
    char words[WORDS_MAX], message[WORDS_MAX + 128];

    e2b_reply_words(e2b, said, words, sizeof words);
    snprintf(message, sizeof message, *words ? "%s: %s" : "%s", what, words);
    return cay_fail(err, code, 0, op, subject, message, "%s", hint_for(code, is_service));
}

int e2b_reply_refusal(const struct e2b *e2b, const char *op, const char *subject,
                      const char *code, const char *message, int fallback,
                      struct cay_error *err)
{
    int known = 0;

    for (size_t i = 0; !known && i < sizeof connect_codes / sizeof *connect_codes; i++)
        if (strcmp(code, connect_codes[i].word) == 0)
            known = connect_codes[i].code;
    for (size_t i = 0; !known && i < sizeof quotes / sizeof *quotes; i++)
        if (strcasestr(message, quotes[i].word))
            known = quotes[i].code;
    return fail_with(e2b, op, subject, known ? known : fallback, "the sandbox refuses",
                     message, false, err);
}

int e2b_reply_malformed(const char *op, const char *subject, const char *what,
                        struct cay_error *err)
{
    return cay_fail(err, CAY_E_PROTOCOL, 0, op, subject, what,
                    "see whether this is an E2B server, and of a version that is known");
}

/* --- Answers --- */

int e2b_reply_absent(struct e2b *e2b, const char *op, struct cay_error *err)
{
    int code;
    bool is_paused = e2b_api_is_paused(e2b, op, &code);

    if (is_paused)
        return cay_fail(err, CAY_E_BUSY, 0, op, e2b->id, "the sandbox is paused",
                        "resume it first");
    if (code == CAY_E_NOT_FOUND)
        return cay_fail(err, CAY_E_UNAVAILABLE, 0, op, e2b->id, "the sandbox has ended",
                        "make a new one; a longer timeout lets it live longer");
    return cay_fail(err, CAY_E_UNAVAILABLE, 0, op, e2b->id, "the sandbox does not answer",
                    "try again in a moment");
}

int e2b_reply_check(struct e2b *e2b, const struct e2b_request *request,
                    const char *subject, int fallback, struct cay_error *err)
{
    if (request->status >= 200 && request->status < 300)
        return CAY_OK;
    if (request->is_envd && request->status == 502)
        return e2b_reply_absent(e2b, request->op, err);
    AUTO_JSON body = json_loadb(request->reply.data ? request->reply.data : "",
                                request->reply.len, 0, NULL);
    const char *word = json_string_value(json_object_get(body, "code"));
    const char *said = e2b_value_text(body, "message");
    if (word && request->is_envd)
        return e2b_reply_refusal(e2b, request->op, subject, word, said ? said : "",
                                 fallback, err);
    char what[64];
    snprintf(what, sizeof what, "the %s answers %d",
             request->is_envd ? "sandbox" : "service", request->status);
    return fail_with(e2b, request->op, subject, code_of_status(request->status, fallback),
                     what, said ? said : "", !request->is_envd, err);
}

int e2b_reply_json(const struct e2b_request *request, json_t **ret_object,
                   struct cay_error *err)
{
    json_t *object = json_loadb(request->reply.data ? request->reply.data : "",
                                request->reply.len, 0, NULL);

    if (!json_is_object(object)) {
        json_decref(object);
        return e2b_reply_malformed(request->op, request->origin->host,
                                   "the answer is not a JSON object", err);
    }
    *ret_object = object;
    return CAY_OK;
}
