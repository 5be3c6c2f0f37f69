/* SPDX-License-Identifier: Apache-2.0 */
#include "tls/secret.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/auto.h"
#include "base/error.h"

static const char op[] = "sandbox.secret";

/* --- Reading --- */

static bool is_variable(const char *name)
{
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789";
    size_t len = strlen(name);

    return len && len < SECRET_NAME_MAX && strspn(name, letters) == len &&
           !(name[0] >= '0' && name[0] <= '9');
}

static bool is_token(const char *text)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                  "0123456789-_.";

    return *text && strlen(text) < 64 && strspn(text, letters) == strlen(text);
}

static bool is_plain(const char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < ' ' || *text == 0x7F)
            return false;
    return true;
}

static int fail(const char *name, const char *message, const char *hint,
                struct cay_error *err)
{
    return cay_fail(err, CAY_E_INVALID, 0, op, name, message, "%s", hint);
}

/* Cuts the part before the next separator off; NULL after the last. */
static char *next_part(char **rest, char separator)
{
    char *part = *rest, *end = part ? strchr(part, separator) : NULL;

    if (end)
        *end++ = '\0';
    *rest = end;
    return part;
}

static bool read_way(char *word, struct secret_use *use)
{
    if (strcmp(word, "bearer") == 0)
        use->ways |= SECRET_BEARER;
    else if (strcmp(word, "basic") == 0)
        use->ways |= SECRET_BASIC;
    else if (strcmp(word, "query") == 0)
        use->ways |= SECRET_QUERY;
    else if (strncmp(word, "header=", 7) == 0 && is_token(word + 7) && !use->header) {
        use->ways |= SECRET_HEADER;
        use->header = word + 7;
    } else
        return false;
    return true;
}

static int read_use(struct secrets *secrets, char *text, struct cay_error *err)
{
    struct secret *secret = &secrets->at[secrets->count - 1];
    struct secret_use *use = &secrets->uses[secrets->use_count];
    char *ways = strchr(text, ':');

    if (secrets->use_count == SECRET_USES_MAX)
        return fail(secret->name, "the secrets have too many hosts",
                    "the limit is 128 hosts of all secrets", err);
    if (ways)
        *ways++ = '\0';
    if (network_name_clean(text, strlen(text), use->host))
        return fail(secret->name, "the host of the secret is not a host name",
                    "write HOST or HOST:WAY with a complete name, like "
                    "api.example.com:bearer",
                    err);
    for (char *word; (word = next_part(&ways, ','));)
        if (!read_way(word, use))
            return fail(secret->name, "unknown place for the secret",
                        "write HOST:bearer, HOST:basic, HOST:query or HOST:header=NAME, "
                        "several with commas",
                        err);
    if (!use->ways)
        use->ways = SECRET_BEARER | SECRET_BASIC;
    secrets->use_count++;
    secret->use_count++;
    return CAY_OK;
}

static int read_secret(struct secrets *secrets, char *line, struct cay_error *err)
{
    struct secret *secret = &secrets->at[secrets->count];
    char *placeholder = strchr(line, '\t');
    char *value = placeholder ? strchr(placeholder + 1, '\t') : NULL;

    if (secrets->count == SECRETS_MAX)
        return fail("secrets", "there are too many secrets", "the limit is 32", err);
    if (!value)
        return fail("secrets", "invalid table of secrets",
                    "values have no tabs and no line ends", err);
    *placeholder++ = *value++ = '\0';
    if (!is_variable(line))
        return fail(line, "the name of a secret is not a variable",
                    "use letters, digits and \"_\", starting with a letter", err);
    for (size_t i = 0; i < secrets->count; i++)
        if (strcmp(secrets->at[i].name, line) == 0)
            return fail(line, "two secrets have the same name",
                        "give one secret several hosts instead", err);
    size_t len = strlen(value);
    if (len < SECRET_VALUE_MIN || len > SECRET_VALUE_MAX || !is_plain(value))
        return fail(line, "the value of the secret is too short, too long or not text",
                    "use 8 to 4096 bytes without control characters", err);
    *secret = (struct secret){.name = line,
                              .placeholder = placeholder,
                              .value = value,
                              .uses = &secrets->uses[secrets->use_count]};
    secrets->count++;
    return CAY_OK;
}

/* Without those that frame the request, or are for this connection alone. */
static bool is_settable(const char *name)
{
    static const char *const own[] = {"host",
                                      "content-length",
                                      "transfer-encoding",
                                      "connection",
                                      "keep-alive",
                                      "upgrade",
                                      "te",
                                      "trailer",
                                      "expect",
                                      "http2-settings"};

    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (strcasecmp(name, own[i]) == 0)
            return false;
    return is_token(name);
}

static bool is_twice(const struct secrets *secrets, const struct secret_header *header)
{
    for (size_t i = 0; i < secrets->header_count; i++)
        if (strcmp(secrets->headers[i].host, header->host) == 0 &&
            strcasecmp(secrets->headers[i].name, header->name) == 0)
            return true;
    return false;
}

static int read_header(struct secrets *secrets, char *line, struct cay_error *err)
{
    struct secret_header *header = &secrets->headers[secrets->header_count];
    char *host = next_part(&line, '\t'), *name = next_part(&line, '\t');

    if (secrets->header_count == SECRET_HEADERS_MAX)
        return fail("headers", "there are too many headers", "the limit is 256", err);
    if (network_name_clean(host, strlen(host), header->host))
        return fail(host, "the host of a header is not a host name",
                    "write a complete name, like api.example.com", err);
    if (!name || !line || !is_settable(name))
        return fail(
            header->host, "a header with this name cannot be set",
            "use letters, digits, \"-\", \"_\" and \".\", at most 63, and no name "
            "that frames requests, like Content-Length",
            err);
    header->name = name;
    header->value = line;
    header->parts = &secrets->parts[secrets->part_count];
    if (strlen(line) > SECRET_HEADER_VALUE_MAX || !is_plain(line))
        return fail(name, "the value of the header is too long or not text",
                    "use at most 8 KiB without control characters", err);
    if (is_twice(secrets, header))
        return fail(name, "the header is set twice for one host",
                    "give each header of a host one value", err);
    secrets->header_count++;
    return CAY_OK;
}

static int read_part(struct secrets *secrets, char *line, struct cay_error *err)
{
    if (!secrets->header_count || secrets->part_count == SECRET_PARTS_MAX)
        return fail("headers", "there are too many secret parts of headers",
                    "the limit is 64", err);
    if (strlen(line) < SECRET_VALUE_MIN)
        return fail(secrets->headers[secrets->header_count - 1].name,
                    "a secret part of the header is too short", "use at least 8 bytes",
                    err);
    secrets->parts[secrets->part_count++] = line;
    secrets->headers[secrets->header_count - 1].part_count++;
    return CAY_OK;
}

static int read_lines(struct secrets *secrets, struct cay_error *err)
{
    char *rest = secrets->text;

    for (char *line; (line = next_part(&rest, '\n'));)
        if (*line == '+')
            TRY(read_header(secrets, line + 1, err));
        else if (*line == '*')
            TRY(read_part(secrets, line + 1, err));
        else if (*line && *line != '\t')
            TRY(read_secret(secrets, line, err));
        else if (*line && secrets->count)
            TRY(read_use(secrets, line + 1, err));
    for (size_t i = 0; i < secrets->count; i++)
        if (!secrets->at[i].use_count)
            return fail(secrets->at[i].name, "the secret is for no host",
                        "name the hosts that it is sent to, with --secret-for", err);
    return CAY_OK;
}

int secrets_read(const char *text, size_t len, struct secrets **ret_secrets,
                 struct cay_error *err)
{
    struct secrets *secrets = calloc(1, sizeof *secrets);

    if (secrets)
        secrets->text = strndup(text, len);
    if (!secrets || !secrets->text) {
        secrets_free(secrets);
        return cay_fail_memory(err, op);
    }
    int code = strlen(secrets->text) == len
                   ? read_lines(secrets, err)
                   : fail("secrets", "a value contains NUL", "use text", err);
    if (code)
        secrets_free(secrets);
    else
        *ret_secrets = secrets;
    return code;
}

void secrets_free(struct secrets *secrets)
{
    if (secrets)
        free(secrets->text);
    free(secrets);
}

static const struct secret_use *find_use(const struct secret *secret, const char *host)
{
    for (size_t i = 0; i < secret->use_count; i++)
        if (strcmp(secret->uses[i].host, host) == 0)
            return &secret->uses[i];
    return NULL;
}

bool secrets_has_host(const struct secrets *secrets, const char *host)
{
    for (size_t i = 0; secrets && i < secrets->count; i++)
        if (find_use(&secrets->at[i], host))
            return true;
    return false;
}

/* --- Base64 --- */

static const char digits[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static bool decode(const struct http_text *text, struct buf *out)
{
    unsigned bits = 0, count = 0;

    for (size_t i = 0; i < text->len && text->at[i] != '='; i++) {
        const char *digit = memchr(digits, text->at[i], sizeof digits - 1);
        if (!digit)
            return false;
        bits = bits << 6 | (unsigned)(digit - digits);
        count += 6;
        if (count < 8)
            continue;
        count -= 8;
        const char byte = (char)(bits >> count & 0xFF);
        if (!buf_append(out, &byte, 1))
            return false;
    }
    return true;
}

static void encode(const char *bytes, size_t len, struct buf *out)
{
    for (size_t i = 0; i < len; i += 3) {
        unsigned bits = 0;
        char four[4];
        for (size_t j = 0; j < 3; j++)
            bits = bits << 8 | (i + j < len ? (unsigned char)bytes[i + j] : 0u);
        for (size_t j = 0; j < 4; j++)
            four[j] = i + j > len ? '=' : digits[bits >> (18 - 6 * j) & 63];
        buf_append(out, four, 4);
    }
}

/* --- Masks --- */

static bool add_form(struct secret_mask *mask, const char *text, size_t len)
{
    for (size_t i = 0; i < mask->count; i++)
        if (strlen(mask->at[i]) == len && memcmp(mask->at[i], text, len) == 0)
            return true;
    if (mask->count == SECRET_MASKS_MAX)
        return false;
    mask->at[mask->count] = strndup(text, len);
    return mask->at[mask->count++] != NULL;
}

static bool is_unreserved(char byte)
{
    return (byte >= '0' && byte <= '9') ||
           ((byte | 0x20) >= 'a' && (byte | 0x20) <= 'z') || memchr("-_.~", byte, 4);
}

static void put_encoded(const char *text, size_t len, bool is_lower, struct buf *out)
{
    for (size_t i = 0; i < len; i++)
        if (is_unreserved(text[i]))
            buf_append(out, text + i, 1);
        else
            buf_format(out, is_lower ? "%%%02x" : "%%%02X", (unsigned char)text[i]);
}

/* As PHP writes JSON: "/" is escaped, too. */
static void put_json(const char *text, size_t len, struct buf *out)
{
    for (size_t i = 0; i < len; i++) {
        if (memchr("\"\\/", text[i], 3))
            buf_text(out, "\\");
        buf_append(out, text + i, 1);
    }
}

bool secret_mask_add(struct secret_mask *mask, const char *text, size_t len)
{
    AUTO_BUF upper;
    AUTO_BUF lower;
    AUTO_BUF json;

    buf_init(&upper, 3 * HTTP_HEAD_MAX);
    buf_init(&lower, 3 * HTTP_HEAD_MAX);
    buf_init(&json, 2 * HTTP_HEAD_MAX);
    put_encoded(text, len, false, &upper);
    put_encoded(text, len, true, &lower);
    put_json(text, len, &json);
    return !upper.failed && !lower.failed && !json.failed && add_form(mask, text, len) &&
           add_form(mask, upper.data, upper.len) &&
           add_form(mask, lower.data, lower.len) && add_form(mask, json.data, json.len);
}

void secret_mask_done(struct secret_mask *mask)
{
    while (mask->count)
        free(mask->at[--mask->count]);
}

void secret_tail_init(struct secret_tail *ret_tail)
{
    enum { MOST = 64 << 10 };

    buf_init(&ret_tail->bytes, MOST);
    buf_init(&ret_tail->stars, MOST);
    ret_tail->sent = 0;
}

void secret_tail_done(struct secret_tail *tail)
{
    buf_done(&tail->bytes);
    buf_done(&tail->stars);
}

size_t secret_tail_waiting(const struct secret_tail *tail)
{
    return tail->bytes.len - tail->sent;
}

static size_t count_held(const struct secret_mask *mask, const char *bytes, size_t len)
{
    size_t most = 0;

    for (size_t i = 0; i < mask->count; i++) {
        size_t size = strlen(mask->at[i]) - 1;
        for (size = size < len ? size : len; size > most; size--)
            if (memcmp(bytes + len - size, mask->at[i], size) == 0)
                most = size;
    }
    return most;
}

/* Values may overlap, or one may begin another: the bytes stay as they are meanwhile. */
static void mark(const struct secret_mask *mask, struct secret_tail *tail)
{
    for (size_t i = 0; i < mask->count; i++) {
        size_t size = strlen(mask->at[i]);
        const char *bytes = tail->bytes.data, *end = bytes + tail->bytes.len, *at = bytes;
        while ((at = memmem(at, (size_t)(end - at), mask->at[i], size))) {
            memset(tail->stars.data + (at - bytes), 1, size);
            at++;
        }
    }
}

/* The bytes before `to` that have not left. */
static bool put_marked(struct secret_tail *tail, size_t to, struct buf *out)
{
    size_t from = tail->sent, begin = out->len;

    if (to <= from)
        return true;
    if (!buf_append(out, tail->bytes.data + from, to - from))
        return false;
    for (size_t i = from; i < to; i++)
        if (tail->stars.data[i])
            out->data[begin + i - from] = '*';
    tail->sent = to;
    return true;
}

static void drop_first(struct secret_tail *tail, size_t len)
{
    tail->bytes.len -= len;
    tail->stars.len -= len;
    memmove(tail->bytes.data, tail->bytes.data + len, tail->bytes.len);
    memmove(tail->stars.data, tail->stars.data + len, tail->stars.len);
    tail->sent = tail->sent > len ? tail->sent - len : 0;
}

bool secret_mask_feed(const struct secret_mask *mask, const char *bytes, size_t len,
                      struct secret_tail *tail, struct buf *out)
{
    if (!buf_append(&tail->bytes, bytes, len) || !buf_reserve(&tail->stars, len))
        return false;
    memset(tail->stars.data + tail->stars.len, 0, len);
    tail->stars.len += len;
    mark(mask, tail);
    size_t ready = tail->bytes.len - count_held(mask, tail->bytes.data, tail->bytes.len);
    size_t sure = ready;
    while (sure < tail->stars.len && tail->stars.data[sure])
        sure++;
    if (!put_marked(tail, sure, out))
        return false;
    drop_first(tail, ready);
    return true;
}

void secret_tail_release(struct secret_tail *tail, bool is_last, struct buf *out)
{
    if (is_last && tail->bytes.len >= SECRET_VALUE_MIN)
        memset(tail->stars.data, 1, tail->stars.len);
    (void)put_marked(tail, tail->bytes.len, out);
}

/* --- Headers --- */

static bool is_for(const struct secret_edit *edit, size_t i)
{
    return strcmp(edit->headers->headers[i].host, edit->host) == 0;
}

bool secret_begin(struct secret_edit *edit)
{
    for (size_t i = 0; edit->headers && i < edit->headers->header_count; i++) {
        const struct secret_header *header = &edit->headers->headers[i];
        if (!is_for(edit, i) || !header->part_count)
            continue;
        if (!edit->is_tls) {
            snprintf(edit->fault, sizeof edit->fault,
                     "the header %s is sent over TLS only (https)", header->name);
            return false;
        }
        for (size_t j = 0; j < header->part_count; j++)
            if (!secret_mask_add(edit->mask, header->parts[j], strlen(header->parts[j])))
                return false;
    }
    return true;
}

bool secret_is_replaced(const struct secret_edit *edit, const struct http_header *header)
{
    for (size_t i = 0; edit->headers && i < edit->headers->header_count; i++)
        if (is_for(edit, i) &&
            http_is_like(&header->name, edit->headers->headers[i].name))
            return true;
    return false;
}

void secret_put_headers(const struct secret_edit *edit, struct buf *out)
{
    for (size_t i = 0; edit->headers && i < edit->headers->header_count; i++)
        if (is_for(edit, i))
            buf_format(out, "%s: %s\r\n", edit->headers->headers[i].name,
                       edit->headers->headers[i].value);
}

/* --- Requests --- */

static const char *find(const struct http_text *text, const char *placeholder)
{
    return memmem(text->at, text->len, placeholder, strlen(placeholder));
}

/* The first secret whose placeholder is in the text. */
static const struct secret *find_secret(const struct secrets *secrets,
                                        const struct http_text *text)
{
    for (size_t i = 0; secrets && i < secrets->count; i++)
        if (find(text, secrets->at[i].placeholder))
            return &secrets->at[i];
    return NULL;
}

/* Whether the secret may be sent in one of `ways`; NULL if not, with the fault. */
static const struct secret_use *check_use(struct secret_edit *edit,
                                          const struct secret *secret, unsigned ways,
                                          const struct http_text *header)
{
    const struct secret_use *use = find_use(secret, edit->host);

    if (!use)
        snprintf(edit->fault, sizeof edit->fault, "the secret %s is not for this host",
                 secret->name);
    else if (!edit->is_tls)
        snprintf(edit->fault, sizeof edit->fault,
                 "the secret %s is sent over TLS only (https)", secret->name);
    else if (!(use->ways & ways) &&
             !(header && use->ways & SECRET_HEADER && http_is_name(header, use->header)))
        snprintf(edit->fault, sizeof edit->fault,
                 "the secret %s is not allowed in this part of a request", secret->name);
    if (edit->fault[0])
        return NULL;
    edit->used = secret;
    return use;
}

/* The text with the placeholder replaced, wherever it is. */
static bool replace(const struct secret *secret, const struct http_text *text,
                    bool is_encoded, struct buf *out)
{
    struct http_text rest = *text;

    for (const char *at; (at = find(&rest, secret->placeholder));) {
        buf_append(out, rest.at, (size_t)(at - rest.at));
        if (is_encoded)
            put_encoded(secret->value, strlen(secret->value), false, out);
        else
            buf_text(out, secret->value);
        at += strlen(secret->placeholder);
        rest = (struct http_text){at, (size_t)(rest.at + rest.len - at)};
    }
    return buf_append(out, rest.at, rest.len);
}

/* Two secrets in one value are not supported: the second one is refused. */
static bool check_rest(struct secret_edit *edit, const struct buf *out, size_t from)
{
    const struct http_text written = {out->data + from, out->len - from};
    const struct secret *other = find_secret(edit->secrets, &written);

    if (other)
        snprintf(edit->fault, sizeof edit->fault,
                 "the secret %s stands beside another one", other->name);
    return !other && !out->failed;
}

bool secret_put_target(struct secret_edit *edit, const struct http_text *target,
                       struct buf *out)
{
    const struct secret *secret = find_secret(edit->secrets, target);
    size_t from = out->len;
    AUTO_BUF encoded;

    buf_init(&encoded, 3 * SECRET_VALUE_MAX + 1);
    if (!secret)
        return buf_append(out, target->at, target->len);
    const char *query = memchr(target->at, '?', target->len);
    bool in_query = query && query < find(target, secret->placeholder);
    if (!check_use(edit, secret, in_query ? SECRET_QUERY : 0u, NULL))
        return false;
    put_encoded(secret->value, strlen(secret->value), false, &encoded);
    return !encoded.failed && secret_mask_add(edit->mask, encoded.data, encoded.len) &&
           replace(secret, target, true, out) && check_rest(edit, out, from);
}

static bool has_scheme(const struct http_text *value, const char *scheme)
{
    size_t len = strlen(scheme);

    return value->len > len && strncasecmp(value->at, scheme, len) == 0 &&
           value->at[len] == ' ';
}

/* "user:PLACEHOLDER" in base64.  False if there is none, or it is refused. */
static bool put_basic(struct secret_edit *edit, const struct http_header *header,
                      struct buf *out)
{
    const struct http_text text = {header->value.at + 6, header->value.len - 6};
    AUTO_BUF plain;
    AUTO_BUF done;
    AUTO_BUF encoded;

    buf_init(&plain, HTTP_HEAD_MAX);
    buf_init(&done, HTTP_HEAD_MAX);
    buf_init(&encoded, 2 * HTTP_HEAD_MAX);
    if (!decode(&text, &plain) || !plain.len)
        return false;
    const struct http_text credentials = {plain.data, plain.len};
    const struct secret *secret = find_secret(edit->secrets, &credentials);
    if (!secret || !check_use(edit, secret, SECRET_BASIC, &header->name) ||
        !replace(secret, &credentials, false, &done) || !check_rest(edit, &done, 0))
        return false;
    encode(done.data, done.len, &encoded);
    return !encoded.failed && secret_mask_add(edit->mask, encoded.data, encoded.len) &&
           buf_text(out, "Basic ") && buf_append(out, encoded.data, encoded.len);
}

bool secret_put_value(struct secret_edit *edit, const struct http_header *header,
                      struct buf *out)
{
    const struct secret *secret = find_secret(edit->secrets, &header->value);
    bool is_authorization = http_is_name(&header->name, "authorization");
    size_t from = out->len;

    if (!edit->secrets)
        return buf_append(out, header->value.at, header->value.len);
    if (is_authorization && !secret && has_scheme(&header->value, "basic")) {
        if (put_basic(edit, header, out))
            return true;
        if (edit->fault[0])
            return false;
    }
    if (!secret)
        return buf_append(out, header->value.at, header->value.len);
    bool is_bearer = is_authorization && (has_scheme(&header->value, "bearer") ||
                                          has_scheme(&header->value, "token"));
    return check_use(edit, secret, is_bearer ? SECRET_BEARER : 0u, &header->name) &&
           replace(secret, &header->value, false, out) && check_rest(edit, out, from);
}
