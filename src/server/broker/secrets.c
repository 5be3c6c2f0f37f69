/* SPDX-License-Identifier: Apache-2.0 */
#include "server/broker/secrets.h"

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
#include "base/error.h"
#include "sys/fs.h"
#include "sys/io.h"

void secrets_to_hex(const unsigned char *bytes, size_t len, char *text)
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < len; i++) {
        *text++ = digits[bytes[i] >> 4];
        *text++ = digits[bytes[i] & 15];
    }
    *text = '\0';
}

int secrets_draw(void *bytes, size_t len, struct cay_error *err)
{
    if (getrandom(bytes, len, 0) == (ssize_t)len)
        return CAY_OK;
    return cay_fail_errno(err, errno, "secrets.draw", "random");
}

/* --- Private files --- */

static int fail_open_to_others(const char *name, struct cay_error *err)
{
    return cay_fail(err, CAY_E_DENIED, 0, "secrets.open", name,
                    "other users can read or write this file",
                    "remove it to get a new one, or restrict it: chmod 0600");
}

int secrets_read_private(const char *path, const char *name, void *bytes, size_t len,
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
                        "remove it to get a new one");
    return 1;
}

/* An unnamed temporary file disappears if the process dies; without O_TMPFILE the file
 * has a random name. */
int secrets_write_private(const char *directory, const char *name, const void *bytes,
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

int secrets_open(const char *directory, struct secrets *ret_secrets,
                 struct cay_error *err)
{
    static const char name[] = "serve.key";
    char path[PATH_MAX];

    snprintf(path, sizeof path, "%s/%s", directory, name);
    for (int i = 0; i < 2; i++) {
        int got = secrets_read_private(path, name, ret_secrets->key, SERVER_KEY, err);
        if (got != 0)
            return got == 1 ? CAY_OK : got;
        int code = secrets_draw(ret_secrets->key, SERVER_KEY, err);
        if (!code)
            code =
                secrets_write_private(directory, name, ret_secrets->key, SERVER_KEY, err);
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
    secrets_to_hex(digest, sizeof digest, ret_token);
}

void secrets_hash(const char *text, unsigned char digest[SHA256_DIGEST_SIZE])
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

    secrets_hash(given, a);
    secrets_hash(right, b);
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
