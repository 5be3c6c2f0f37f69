/* SPDX-License-Identifier: Apache-2.0 */
#include "e2b/reply.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/auto.h"
#include "base/error.h"
#include "e2b/messages.h"

enum { TEXT_MAX = 300 };

static const struct {
    const char *text;
    int code;
} connect_codes[] = {
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

static int code_of_status(int status, int fallback)
{
    static const struct {
        int status, code;
    } known[] = {
        {400, CAY_E_INVALID},     {401, CAY_E_DENIED},      {403, CAY_E_DENIED},
        {404, CAY_E_NOT_FOUND},   {405, CAY_E_INVALID},     {406, CAY_E_INVALID},
        {408, CAY_E_TIMEOUT},     {409, CAY_E_BUSY},        {410, CAY_E_NOT_FOUND},
        {413, CAY_E_TOO_LARGE},   {422, CAY_E_INVALID},     {429, CAY_E_LIMIT},
        {501, CAY_E_UNSUPPORTED}, {502, CAY_E_UNAVAILABLE}, {503, CAY_E_UNAVAILABLE},
        {504, CAY_E_TIMEOUT},     {507, CAY_E_NO_SPACE},
    };

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].status == status)
            return known[i].code;
    return status >= 500 ? fallback : CAY_E_PROTOCOL;
}

static const char *hint_for(int code, bool is_envd)
{
    switch (code) {
    case CAY_E_DENIED:
        return is_envd ? "use another user, such as root, or connect to the sandbox again"
                       : "check E2B_API_KEY or api_key: the key must be of this service";
    case CAY_E_NOT_FOUND:
        return is_envd ? "list the directory to see its files"
                       : "create a new sandbox if this one has ended; check the template";
    case CAY_E_LIMIT:
        return "wait a moment, or kill sandboxes that are not needed";
    case CAY_E_BUSY:
        return "check the state of the sandbox and try again";
    case CAY_E_INVALID:
        return "correct what the server's message names";
    case CAY_E_UNSUPPORTED:
        return "this server does not support it; a newer version may";
    case CAY_E_NO_SPACE:
        return "remove files in the sandbox";
    case CAY_E_EXISTS:
        return "choose another name, or remove the existing file";
    default:
        return "try again later; the server's log may have more";
    }
}

static void hide(char *text, const char *secret)
{
    size_t len = secret ? strlen(secret) : 0;

    if (len < 4)
        return;
    for (char *at = strstr(text, secret); at; at = strstr(at + len, secret))
        memset(at, '*', len);
}

void e2b_reply_text(const struct e2b *e2b, const char *text, char *ret_text, size_t room)
{
    char whole[2048];

    cay_copy_text(whole, sizeof whole, text);
    hide(whole, e2b->settings.key);
    hide(whole, e2b->token);
    hide(whole, e2b->traffic_token);
    for (char *at = whole; *at; at++)
        if (iscntrl((unsigned char)*at))
            *at = ' ';
    cay_copy_text(ret_text, room, whole);
}

static int fail_with(const struct e2b *e2b, const char *op, const char *subject, int code,
                     const char *what, const char *detail, bool is_envd,
                     struct cay_error *err)
{
    char text[TEXT_MAX], message[TEXT_MAX + 128];

    e2b_reply_text(e2b, detail, text, sizeof text);
    snprintf(message, sizeof message, *text ? "%s: %s" : "%s", what, text);
    return cay_fail(err, code, 0, op, subject, message, "%s", hint_for(code, is_envd));
}

int e2b_reply_errno(const char *message)
{
    static const int known[] = {EACCES, EPERM,   EROFS,  ENOSPC,  EDQUOT, ENOENT,
                                EEXIST, ENOTDIR, EISDIR, ENOEXEC, E2BIG,  EAGAIN};

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcasestr(message, cay_errno_words(known[i])))
            return known[i];
    return 0;
}

int e2b_reply_refusal(const struct e2b *e2b, const char *op, const char *subject,
                      const char *code, const char *message, int fallback,
                      struct cay_error *err)
{
    int known = 0;

    for (size_t i = 0; !known && i < sizeof connect_codes / sizeof *connect_codes; i++)
        if (strcmp(code, connect_codes[i].text) == 0)
            known = connect_codes[i].code;
    int number = known ? 0 : e2b_reply_errno(message);
    if (number)
        known = cay_fail_errno(NULL, number, op, subject);
    return fail_with(e2b, op, subject, known ? known : fallback,
                     "the sandbox refused the request", message, true, err);
}

int e2b_reply_malformed(const char *op, const char *subject, const char *what,
                        struct cay_error *err)
{
    return cay_fail(err, CAY_E_PROTOCOL, 0, op, subject, what,
                    "check that this is an E2B server, and its version");
}

json_t *e2b_reply_load(const struct e2b_request *request)
{
    return json_loadb(request->reply.data ? request->reply.data : "", request->reply.len,
                      0, NULL);
}

int e2b_reply_check(const struct e2b *e2b, const struct e2b_request *request,
                    const char *subject, int fallback, struct cay_error *err)
{
    if (e2b_request_succeeded(request))
        return CAY_OK;
    AUTO_JSON body = e2b_reply_load(request);
    const char *code = e2b_value_text(body, "code");
    const char *message = e2b_value_text(body, "message");
    if (code && request->is_envd)
        return e2b_reply_refusal(e2b, request->op, subject, code, message ? message : "",
                                 fallback, err);
    char what[64];
    snprintf(what, sizeof what, "the %s replied with status %d",
             request->is_envd ? "sandbox" : "service", request->status);
    return fail_with(e2b, request->op, subject, code_of_status(request->status, fallback),
                     what, message ? message : "", request->is_envd, err);
}

int e2b_reply_object(const struct e2b_request *request, json_t **ret_object,
                     struct cay_error *err)
{
    AUTO_JSON object = e2b_reply_load(request);

    if (!json_is_object(object))
        return e2b_reply_malformed(request->op, request->origin->host,
                                   "the reply is not a JSON object", err);
    *ret_object = TAKE_PTR(object);
    return CAY_OK;
}
