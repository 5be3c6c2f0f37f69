/* SPDX-License-Identifier: Apache-2.0 */
#include "server/secrets.h"

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
#include <time.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/error.h"

enum { API_KEY_BYTES = 20 };

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

/* --- Files that only we read --- */

static int fail_open_to_others(const char *name, struct cay_error *err)
{
    return cay_fail(err, CAY_E_DENIED, 0, "secrets.open", name,
                    "others could have read or written this file",
                    "remove it, and a new one is made; or make it yours, mode 0600");
}

/* 1 if it was read, 0 if there is none, or a code. */
static int read_private(const char *path, const char *name, void *bytes, size_t len,
                        struct cay_error *err)
{
    AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct stat st;

    if (fd < 0)
        return errno == ENOENT ? 0 : cay_fail_errno(err, errno, "secrets.open", name);
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid() ||
        st.st_mode & 077)
        return fail_open_to_others(name, err);
    if (read(fd, bytes, len) != (ssize_t)len)
        return cay_fail(err, CAY_E_IO, 0, "secrets.open", name, "the file is too short",
                        "remove it, and a new one is made");
    return 1;
}

/* Whole or not at all; who is second takes what the first has made. */
static int write_private(const char *path, const char *name, const void *bytes,
                         size_t len, struct cay_error *err)
{
    char temporary[PATH_MAX + 16];

    snprintf(temporary, sizeof temporary, "%s.%d", path, (int)getpid());
    AUTO_FD fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return cay_fail_errno(err, errno, "secrets.write", name);
    int error = write(fd, bytes, len) == (ssize_t)len && fsync(fd) == 0 ? 0 : EIO;
    if (!error && link(temporary, path) != 0 && errno != EEXIST)
        error = errno;
    (void)unlink(temporary);
    return error ? cay_fail_errno(err, error, "secrets.write", name) : CAY_OK;
}

int secrets_open(const char *directory, struct secrets *ret_secrets,
                 struct cay_error *err)
{
    static const char name[] = "serve.key";
    char path[PATH_MAX];

    snprintf(path, sizeof path, "%s/%s", directory, name);
    for (int i = 0; i < 2; i++) {
        int got = read_private(path, name, ret_secrets->key, SERVER_KEY, err);
        if (got != 0)
            return got == 1 ? CAY_OK : got;
        int code = draw(ret_secrets->key, SERVER_KEY, err);
        if (!code)
            code = write_private(path, name, ret_secrets->key, SERVER_KEY, err);
        if (code)
            return code;
    }
    return CAY_OK;
}

/* --- Tokens --- */

void secrets_token(const struct secrets *secrets, enum token_kind kind, const char *id,
                   uint32_t version, char ret_token[TOKEN_MAX])
{
    struct hmac_sha256_ctx hmac;
    unsigned char digest[SHA256_DIGEST_SIZE];
    char text[64];

    snprintf(text, sizeof text, "%s %s %u", kind == TOKEN_ENVD ? "envd" : "traffic", id,
             version);
    hmac_sha256_set_key(&hmac, SERVER_KEY, secrets->key);
    hmac_sha256_update(&hmac, strlen(text), (const uint8_t *)text);
    hmac_sha256_digest(&hmac, sizeof digest, digest);
    to_hex(digest, sizeof digest, ret_token);
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
    /* 32 bytes are 43 characters and one "=", which is left out. */
    snprintf(ret_signature, SIGNATURE_MAX, "v1_%.43s", text);
}

/* --- API keys --- */

int api_key_new(struct registry *registry, const char *tenant, char ret_key[API_KEY_MAX],
                struct cay_error *err)
{
    unsigned char bytes[API_KEY_BYTES];

    int code = draw(bytes, sizeof bytes, err);
    if (code)
        return code;
    memcpy(ret_key, "e2b_", 4);
    to_hex(bytes, sizeof bytes, ret_key + 4);
    return api_key_add(registry, tenant, ret_key, err);
}

int api_key_add(struct registry *registry, const char *tenant, const char *key,
                struct cay_error *err)
{
    unsigned char digest[SHA256_DIGEST_SIZE];
    char known[TENANT_MAX];
    struct timespec now;
    struct key_row row = {0};
    size_t len = strlen(key);

    if (strncmp(key, "e2b_", 4) != 0 || strspn(key + 4, "0123456789abcdef") != len - 4 ||
        len < 24 || len >= API_KEY_MAX)
        return cay_fail(err, CAY_E_INVALID, 0, "secrets.key", NULL,
                        "this is no API key that the SDKs would take",
                        "use \"e2b_\" and 20 to 59 of the digits 0-9 and a-f");
    hash(key, digest);
    if (registry_find_key(registry, digest, known, NULL) == CAY_OK)
        return CAY_OK;
    clock_gettime(CLOCK_REALTIME, &now);
    row.created_ms = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
    cay_copy_text(row.tenant, sizeof row.tenant, tenant);
    snprintf(row.shown, sizeof row.shown, "%.10s...", key);
    return registry_add_key(registry, digest, &row, err);
}

int api_key_tenant(struct registry *registry, const char *key,
                   char ret_tenant[TENANT_MAX], struct cay_error *err)
{
    unsigned char digest[SHA256_DIGEST_SIZE];

    hash(key, digest);
    return registry_find_key(registry, digest, ret_tenant, err);
}

int api_key_default(struct registry *registry, const char *directory,
                    char ret_key[API_KEY_MAX], struct cay_error *err)
{
    static const char name[] = "serve.api-key";
    enum { LEN = 4 + 2 * API_KEY_BYTES };
    char path[PATH_MAX], tenant[TENANT_MAX];

    snprintf(path, sizeof path, "%s/%s", directory, name);
    for (int i = 0; i < 2; i++) {
        memset(ret_key, 0, API_KEY_MAX);
        int got = read_private(path, name, ret_key, LEN, err);
        if (got < 0)
            return got;
        if (got == 1)
            return api_key_tenant(registry, ret_key, tenant, err) == CAY_E_NOT_FOUND
                       ? cay_fail(err, CAY_E_NOT_FOUND, 0, "secrets.key", name,
                                  "the default API key was removed",
                                  "remove this file in $CAY_HOME, and a new one is made")
                       : CAY_OK;
        int code = api_key_new(registry, "default", ret_key, err);
        if (!code)
            code = write_private(path, name, ret_key, LEN, err);
        if (code)
            return code;
    }
    return CAY_OK;
}
