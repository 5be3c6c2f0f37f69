/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <nettle/base64.h>
#include <nettle/hmac.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"
#include "server/broker/secrets.h"
#include "sys/fs.h"
#include "sys/io.h"

static void to_hex(const unsigned char *bytes, size_t len, char *text)
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < len; i++) {
        *text++ = digits[bytes[i] >> 4];
        *text++ = digits[bytes[i] & 15];
    }
    *text = '\0';
}

static int draw(void *bytes, size_t len, struct cay_error *err)
{
    if (getrandom(bytes, len, 0) == (ssize_t)len)
        return CAY_OK;
    return cay_fail_errno(err, errno, "secrets.draw", "random");
}

/* --- Private files --- */

/* A file with mode 0600.  Returns 1 if it was read, 0 if there is none, or an error. */
static int read_private(const char *path, const char *name, void *bytes, size_t len,
                        struct cay_error *err)
{
    AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct stat st;

    if (fd < 0)
        return errno == ENOENT ? 0 : cay_fail_errno(err, errno, "secrets.open", name);
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid() ||
        st.st_mode & 077)
        return cay_fail(err, CAY_E_DENIED, 0, "secrets.open", name,
                        "other users can read or write this file",
                        "remove it to get a new one, or restrict it: chmod 0600");
    if (read(fd, bytes, len) != (ssize_t)len)
        return cay_fail(err, CAY_E_IO, 0, "secrets.open", name, "the file is too short",
                        "remove it to get a new one");
    return 1;
}

/* Atomic; keeps the file of another process that was faster.  An unnamed temporary file
 * disappears if the process dies; without O_TMPFILE the file has a random name. */
static int write_private(const char *directory, const char *name, const void *bytes,
                         size_t len, struct cay_error *err)
{
    char temporary[FS_TEMP_MAX] = "";
    AUTO_FD dir = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    AUTO_FD fd =
        dir < 0 ? -errno : fs_direct.draft(&fs_direct, dir, 0600, -1, 0, temporary);

    if (fd < 0)
        return cay_fail_errno(err, -fd, "secrets.write", name);
    int error = io_write(fd, bytes, len);
    if (!error && fsync(fd) != 0)
        error = -errno;
    if (!error && !*temporary)
        error = fs_direct.link(&fs_direct, fd, dir, name);
    else if (!error && linkat(dir, temporary, dir, name, 0) != 0)
        error = -errno;
    if (*temporary)
        (void)unlinkat(dir, temporary, 0);
    return error && error != -EEXIST ? cay_fail_errno(err, -error, "secrets.write", name)
                                     : CAY_OK;
}

static void take_own(struct secrets *secrets, const unsigned char key[SERVER_KEY])
{
    *secrets = (struct secrets){.count = 1};
    memcpy(secrets->keys[0], key, SERVER_KEY);
    memcpy(secrets->seal, key, SERVER_KEY);
}

int secrets_open(const char *directory, struct secrets *ret_secrets,
                 struct cay_error *err)
{
    static const char name[] = "serve.key";
    unsigned char key[SERVER_KEY] = {0};
    char path[PATH_MAX];
    int code = CAY_OK, got = 0;

    snprintf(path, sizeof path, "%s/%s", directory, name);
    for (int i = 0; i < 2 && !code && got == 0; i++) {
        got = read_private(path, name, key, SERVER_KEY, err);
        if (got == 0)
            code = draw(key, SERVER_KEY, err);
        if (got == 0 && !code)
            code = write_private(directory, name, key, SERVER_KEY, err);
    }
    take_own(ret_secrets, key);
    explicit_bzero(key, sizeof key);
    return got < 0 ? got : code;
}

/* 64 hexadecimal digits; returns their end, or NULL. */
static const char *from_hex(const char *text, unsigned char key[SERVER_KEY])
{
    static const char digits[] = "0123456789abcdef";

    for (int i = 0; i < 2 * SERVER_KEY; i++) {
        const char *digit = text[i] ? strchr(digits, text[i] | 0x20) : NULL;
        if (!digit)
            return NULL;
        key[i / 2] = (unsigned char)(key[i / 2] << 4 | (digit - digits));
    }
    return text + 2 * SERVER_KEY;
}

static bool parse_keys(const char *text, size_t len, struct secrets *secrets)
{
    secrets->count = 1;
    if (len == SERVER_KEY) {
        memcpy(secrets->keys[0], text, SERVER_KEY);
        return true;
    }
    const char *end = strlen(text) == len ? from_hex(text, secrets->keys[0]) : NULL;
    if (end && *end == '\n' && end[1]) {
        end = from_hex(end + 1, secrets->keys[1]);
        secrets->count = 2;
    }
    return end && (!*end || strcmp(end, "\n") == 0);
}

/* Not O_NOFOLLOW: the files of a Secret of Kubernetes are symbolic links. */
int secrets_read_keys(const char *path, struct secrets *secrets, struct cay_error *err)
{
    static const char option[] = "--server-key-file";
    char text[SERVER_KEYS * (2 * SERVER_KEY + 1) + 2] = "";
    struct stat st;
    AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0 || fstat(fd, &st) != 0)
        return cay_fail_errno(err, errno, "secrets.open", option);
    if (!S_ISREG(st.st_mode) || (st.st_uid != geteuid() && st.st_uid != 0) ||
        st.st_mode & 037)
        return cay_fail(err, CAY_E_DENIED, 0, "secrets.open", option,
                        "other users can read or write this file",
                        "restrict it: chmod 0600");
    ssize_t len = read(fd, text, sizeof text - 1);
    bool is_valid = len > 0 && parse_keys(text, (size_t)len, secrets);
    explicit_bzero(text, sizeof text);
    if (is_valid)
        return CAY_OK;
    return cay_fail(err, CAY_E_INVALID, 0, "secrets.open", option,
                    "the file has no server key",
                    "use a copy of serve.key, or one or two lines of 64 hexadecimal "
                    "digits: openssl rand -hex 32");
}

/* --- Tokens --- */

void secrets_token_by(const struct secrets *secrets, unsigned i, enum token_kind kind,
                      const char *id, uint32_t version, char ret_token[TOKEN_MAX])
{
    struct hmac_sha256_ctx hmac;
    unsigned char digest[SHA256_DIGEST_SIZE];
    static const char *const kinds[] = {[TOKEN_ENVD] = "envd",
                                        [TOKEN_TRAFFIC] = "traffic",
                                        [TOKEN_VOLUME] = "volume",
                                        [TOKEN_UPLOAD] = "upload",
                                        [TOKEN_SESSION] = "session"};
    char text[128];

    snprintf(text, sizeof text, "%s %s %u", kinds[kind], id, version);
    hmac_sha256_set_key(&hmac, SERVER_KEY, secrets->keys[i]);
    hmac_sha256_update(&hmac, strlen(text), (const uint8_t *)text);
    hmac_sha256_digest(&hmac, sizeof digest, digest);
    to_hex(digest, sizeof digest, ret_token);
}

void secrets_token(const struct secrets *secrets, enum token_kind kind, const char *id,
                   uint32_t version, char ret_token[TOKEN_MAX])
{
    secrets_token_by(secrets, 0, kind, id, version, ret_token);
}

bool secrets_is_token(const struct secrets *secrets, enum token_kind kind, const char *id,
                      uint32_t version, const char *given)
{
    char token[TOKEN_MAX];
    bool is_one = false;

    for (unsigned i = 0; i == 0 || i < secrets->count; i++) {
        secrets_token_by(secrets, i, kind, id, version, token);
        is_one |= secrets_are_equal(given, token);
    }
    return is_one;
}

static void hash(const char *text, unsigned char digest[SHA256_DIGEST_SIZE])
{
    struct sha256_ctx sha;

    sha256_init(&sha);
    sha256_update(&sha, strlen(text), (const uint8_t *)text);
    sha256_digest(&sha, SHA256_DIGEST_SIZE, digest);
}

bool secrets_are_equal(const char *given, const char *right)
{
    unsigned char a[SHA256_DIGEST_SIZE], b[SHA256_DIGEST_SIZE];
    unsigned char difference = 0;

    hash(given, a);
    hash(right, b);
    for (size_t i = 0; i < sizeof a; i++)
        difference |= a[i] ^ b[i];
    return difference == 0;
}

static void add(struct sha256_ctx *sha, const char *text)
{
    sha256_update(sha, strlen(text), (const uint8_t *)text);
}

void secrets_signature(const char *path, const char *operation, const char *user,
                       const char *token, int64_t expires,
                       char ret_signature[SIGNATURE_MAX])
{
    const char *const parts[] = {path, ":", operation, ":", user, ":", token};
    unsigned char digest[SHA256_DIGEST_SIZE];
    char text[BASE64_ENCODE_RAW_LENGTH(SHA256_DIGEST_SIZE)], number[24];
    struct sha256_ctx sha;

    sha256_init(&sha);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        add(&sha, parts[i]);
    if (expires >= 0) {
        snprintf(number, sizeof number, ":%lld", (long long)expires);
        add(&sha, number);
    }
    sha256_digest(&sha, sizeof digest, digest);
    base64_encode_raw(text, sizeof digest, digest);
    /* 32 bytes are 43 characters and a "=", which is omitted. */
    snprintf(ret_signature, SIGNATURE_MAX, "v1_%.43s", text);
}

/* --- API keys --- */

enum { API_KEY_BYTES = 20, DEFAULT_LEN = 4 + 2 * API_KEY_BYTES };

static const char default_name[] = "serve.api-key";

int secrets_draw_key(char ret_key[API_KEY_MAX], struct cay_error *err)
{
    unsigned char bytes[API_KEY_BYTES];

    TRY(draw(bytes, sizeof bytes, err));
    memcpy(ret_key, "e2b_", 4);
    to_hex(bytes, sizeof bytes, ret_key + 4);
    return CAY_OK;
}

int secrets_new_key(struct registry *registry, const char *tenant,
                    char ret_key[API_KEY_MAX], struct cay_error *err)
{
    TRY(secrets_draw_key(ret_key, err));
    return secrets_add_key(registry, tenant, ret_key, err);
}

int secrets_add_key(struct registry *registry, const char *tenant, const char *key,
                    struct cay_error *err)
{
    unsigned char digest[KEY_HASH];
    char known[TENANT_MAX];
    struct key_row row = {0};
    size_t len = strlen(key);

    if (strncmp(key, "e2b_", 4) != 0 || strspn(key + 4, "0123456789abcdef") != len - 4 ||
        len < 24 || len >= API_KEY_MAX)
        return cay_fail(err, CAY_E_INVALID, 0, "secrets.key", NULL, "invalid API key",
                        "use \"e2b_\" and 20 to 59 hexadecimal digits (0-9, a-f)");
    hash(key, digest);
    if (registry_find_key(registry, digest, known, NULL) == CAY_OK)
        return CAY_OK;
    row.created_ms = clock_since_1970_ms();
    cay_copy_text(row.tenant, sizeof row.tenant, tenant);
    snprintf(row.shown, sizeof row.shown, "%.10s...", key);
    return registry_add_key(registry, digest, &row, err);
}

void secrets_hash_key(const char *key, unsigned char ret_hash[KEY_HASH])
{
    hash(key, ret_hash);
}

void secrets_hash_text(const unsigned char hash[KEY_HASH],
                       char ret_text[2 * KEY_HASH + 1])
{
    to_hex(hash, KEY_HASH, ret_text);
}

int secrets_key_tenant(struct registry *registry, const char *key,
                       char ret_tenant[TENANT_MAX], struct cay_error *err)
{
    unsigned char digest[KEY_HASH];

    hash(key, digest);
    return registry_find_key(registry, digest, ret_tenant, err);
}

/* 1 if it was read, 0 if there is no file. */
static int read_default(const char *directory, char ret_key[API_KEY_MAX],
                        struct cay_error *err)
{
    char path[PATH_MAX];

    snprintf(path, sizeof path, "%s/%s", directory, default_name);
    memset(ret_key, 0, API_KEY_MAX);
    return read_private(path, default_name, ret_key, DEFAULT_LEN, err);
}

int secrets_adopt_key(struct registry *registry, const char *directory,
                      struct cay_error *err)
{
    char key[API_KEY_MAX];
    int got = read_default(directory, key, err);

    if (got == 1)
        got = secrets_add_key(registry, "default", key, err);
    explicit_bzero(key, sizeof key);
    return got;
}

static int check_known(struct registry *registry, const char *key, struct cay_error *err)
{
    char tenant[TENANT_MAX];

    if (secrets_key_tenant(registry, key, tenant, err) != CAY_E_NOT_FOUND)
        return CAY_OK;
    return cay_fail(
        err, CAY_E_NOT_FOUND, 0, "secrets.key", default_name,
        "the default API key was removed",
        "remove this file from $CAY_HOME, and the next start creates a new key");
}

int secrets_find_key(struct registry *registry, const char *directory,
                     char ret_key[API_KEY_MAX], struct cay_error *err)
{
    int got = read_default(directory, ret_key, err);

    if (got == 0)
        return cay_fail(
            err, CAY_E_NOT_FOUND, 0, "secrets.key", default_name,
            "there is no default API key",
            "cay serve creates it at its first start; cay key new creates others");
    return got < 0 ? got : check_known(registry, ret_key, err);
}

int secrets_default_key(struct registry *registry, const char *directory,
                        char ret_key[API_KEY_MAX], struct cay_error *err)
{
    for (int i = 0; i < 2; i++) {
        int got = read_default(directory, ret_key, err);
        if (got < 0)
            return got;
        if (got == 1)
            return check_known(registry, ret_key, err);
        int code = secrets_new_key(registry, "default", ret_key, err);
        if (!code)
            code = write_private(directory, default_name, ret_key, DEFAULT_LEN, err);
        if (code)
            return code;
    }
    return CAY_OK;
}
