/* SPDX-License-Identifier: Apache-2.0 */

/* AWS Signature Version 4.  libcurl has it, too, but sorts and encodes the parameters of
 * a query in another way in each release. */
#include <nettle/base16.h>
#include <nettle/hmac.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <string.h>

#include "server/keeper/s3.h"

static const char algorithm[] = "AWS4-HMAC-SHA256";

enum { DATE = 8 /* of S3_TIME */ };

static void to_hex(const uint8_t digest[SHA256_DIGEST_SIZE], char ret_hex[S3_HEX + 1])
{
    base16_encode_update(ret_hex, SHA256_DIGEST_SIZE, digest);
    ret_hex[S3_HEX] = '\0';
}

void s3_digest(const void *data, size_t len, char ret_hex[S3_HEX + 1])
{
    uint8_t digest[SHA256_DIGEST_SIZE];
    struct sha256_ctx hash;

    sha256_init(&hash);
    sha256_update(&hash, len, data);
    sha256_digest(&hash, sizeof digest, digest);
    to_hex(digest, ret_hex);
}

void s3_encode(struct buf *query, const char *text)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                "0123456789-._~";

    for (; *text; text++) {
        if (strchr(plain, *text))
            (void)buf_append(query, text, 1);
        else
            (void)buf_format(query, "%%%02X", (unsigned char)*text);
    }
}

static void add(struct sha256_ctx *hash, const char *text, const char *end)
{
    sha256_update(hash, strlen(text), (const uint8_t *)text);
    sha256_update(hash, strlen(end), (const uint8_t *)end);
}

static const char *signed_headers(const struct bucket_access *access)
{
    return *access->token ? "host;x-amz-content-sha256;x-amz-date;x-amz-security-token"
                          : "host;x-amz-content-sha256;x-amz-date";
}

/* The digest of the canonical request. */
static void digest_head(const struct s3_head *head, const struct bucket_access *access,
                        char ret_hex[S3_HEX + 1])
{
    uint8_t digest[SHA256_DIGEST_SIZE];
    struct sha256_ctx hash;

    sha256_init(&hash);
    add(&hash, head->method, "\n");
    add(&hash, head->path, "\n");
    add(&hash, head->query, "\n");
    add(&hash, "host:", head->host);
    add(&hash, "\nx-amz-content-sha256:", head->digest);
    add(&hash, "\nx-amz-date:", head->time);
    if (*access->token)
        add(&hash, "\nx-amz-security-token:", access->token);
    add(&hash, "\n\n", signed_headers(access));
    add(&hash, "\n", head->digest);
    sha256_digest(&hash, sizeof digest, digest);
    to_hex(digest, ret_hex);
}

/* The key of each step is the result of the one before. */
static void chain(uint8_t key[SHA256_DIGEST_SIZE], const char *text, size_t len)
{
    struct hmac_sha256_ctx hmac;

    hmac_sha256_set_key(&hmac, SHA256_DIGEST_SIZE, key);
    hmac_sha256_update(&hmac, len, (const uint8_t *)text);
    hmac_sha256_digest(&hmac, SHA256_DIGEST_SIZE, key);
    explicit_bzero(&hmac, sizeof hmac);
}

static void first_key(const struct bucket_access *access, const char *date,
                      uint8_t ret_key[SHA256_DIGEST_SIZE])
{
    char text[sizeof access->secret + 4];
    struct hmac_sha256_ctx hmac;

    snprintf(text, sizeof text, "AWS4%s", access->secret);
    hmac_sha256_set_key(&hmac, strlen(text), (const uint8_t *)text);
    hmac_sha256_update(&hmac, DATE, (const uint8_t *)date);
    hmac_sha256_digest(&hmac, SHA256_DIGEST_SIZE, ret_key);
    explicit_bzero(&hmac, sizeof hmac);
    explicit_bzero(text, sizeof text);
}

void s3_sign(const struct s3_head *head, const struct bucket_access *access,
             char ret_value[S3_AUTHORIZATION_MAX])
{
    uint8_t key[SHA256_DIGEST_SIZE];
    char digest[S3_HEX + 1], scope[128], text[256 + S3_HEX];

    digest_head(head, access, digest);
    snprintf(scope, sizeof scope, "%.*s/%s/s3/aws4_request", DATE, head->time,
             head->region);
    snprintf(text, sizeof text, "%s\n%s\n%s\n%s", algorithm, head->time, scope, digest);
    first_key(access, head->time, key);
    chain(key, head->region, strlen(head->region));
    chain(key, "s3", 2);
    chain(key, "aws4_request", strlen("aws4_request"));
    chain(key, text, strlen(text));
    to_hex(key, digest);
    snprintf(ret_value, S3_AUTHORIZATION_MAX,
             "%s Credential=%s/%s,SignedHeaders=%s,Signature=%s", algorithm, access->key,
             scope, signed_headers(access), digest);
}
