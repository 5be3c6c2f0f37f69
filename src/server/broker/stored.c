/* SPDX-License-Identifier: Apache-2.0 */
#include "server/broker/stored.h"

#include <ctype.h>
#include <errno.h>
#include <nettle/chacha-poly1305.h>
#include <nettle/hmac.h>
#include <nettle/memops.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"

/* A sealed value: nonce, tag, and the encrypted text. */
enum {
    NONCE = CHACHA_POLY1305_NONCE_SIZE,
    TAG = CHACHA_POLY1305_DIGEST_SIZE,
    HEAD = NONCE + TAG,
    ID_BYTES = 10
};

_Static_assert(HEAD + STORED_TEXT_MAX <= STORED_VALUE_MAX, "every value fits a row");

static const char op[] = "secret";

/* --- Sealing --- */

/* The nonce is random, so each value gets a key of its own as well: 2^96 nonces alone
 * would be few for one key. */
static void start(const struct secrets *secrets, const char *text,
                  const uint8_t nonce[NONCE], struct chacha_poly1305_ctx *cipher)
{
    struct hmac_sha256_ctx hmac;
    uint8_t key[CHACHA_POLY1305_KEY_SIZE];

    hmac_sha256_set_key(&hmac, SERVER_KEY, secrets->seal);
    hmac_sha256_update(&hmac, strlen(text), (const uint8_t *)text);
    hmac_sha256_digest(&hmac, sizeof key, key);
    chacha_poly1305_set_key(cipher, key);
    chacha_poly1305_set_nonce(cipher, nonce);
    explicit_bzero(key, sizeof key);
    explicit_bzero(&hmac, sizeof hmac);
}

int stored_seal(const struct secrets *secrets, const char *label, const void *data,
                size_t len, struct buf *ret_sealed, struct cay_error *err)
{
    struct chacha_poly1305_ctx cipher;
    uint8_t head[HEAD] = {0};

    if (getrandom(head, NONCE, 0) != NONCE)
        return cay_fail_errno(err, errno, op, "getrandom");
    ret_sealed->len = 0;
    if (!buf_append(ret_sealed, head, HEAD) || !buf_append(ret_sealed, data, len))
        return cay_fail_memory(err, op);
    uint8_t *sealed = (uint8_t *)ret_sealed->data;
    start(secrets, label, sealed, &cipher);
    chacha_poly1305_encrypt(&cipher, len, sealed + HEAD, sealed + HEAD);
    chacha_poly1305_digest(&cipher, TAG, sealed + NONCE);
    explicit_bzero(&cipher, sizeof cipher);
    return CAY_OK;
}

bool stored_unseal(const struct secrets *secrets, const char *label, struct buf *sealed)
{
    uint8_t *bytes = (uint8_t *)sealed->data, tag[TAG];
    struct chacha_poly1305_ctx cipher;

    if (sealed->len < HEAD)
        return false;
    size_t len = sealed->len - HEAD;
    start(secrets, label, bytes, &cipher);
    chacha_poly1305_decrypt(&cipher, len, bytes + HEAD, bytes + HEAD);
    chacha_poly1305_digest(&cipher, TAG, tag);
    explicit_bzero(&cipher, sizeof cipher);
    bool is_whole = memeql_sec(tag, bytes + NONCE, TAG);
    if (is_whole)
        memmove(bytes, bytes + HEAD, len);
    explicit_bzero(bytes + (is_whole ? len : 0), sealed->len - (is_whole ? len : 0));
    sealed->len = is_whole ? len : 0;
    return is_whole;
}

enum { LABEL_MAX = TENANT_MAX + STORED_ID_MAX + 64 };

static void fill_label(const struct stored_row *row, char ret_label[LABEL_MAX])
{
    snprintf(ret_label, LABEL_MAX, "stored secret %s %s %lld", row->tenant, row->id,
             (long long)row->version);
}

static int seal(const struct secrets *secrets, const char *value, struct stored_row *row,
                struct cay_error *err)
{
    char label[LABEL_MAX];

    fill_label(row, label);
    return stored_seal(secrets, label, value, strlen(value), &row->value, err);
}

static int unseal(const struct secrets *secrets, struct stored_row *row,
                  char ret_value[STORED_OPEN_MAX], struct cay_error *err)
{
    char label[LABEL_MAX];

    fill_label(row, label);
    if (!stored_unseal(secrets, label, &row->value) || row->value.len > STORED_TEXT_MAX)
        return cay_fail(err, CAY_E_IO, 0, op, row->name,
                        "the stored secret was sealed with another key",
                        "set it again: the store and serve.key belong together");
    memcpy(ret_value, row->value.data, row->value.len);
    ret_value[row->value.len] = '\0';
    explicit_bzero(row->value.data, row->value.len);
    return CAY_OK;
}

/* --- Checks --- */

static bool is_text(const char *value)
{
    for (; *value; value++)
        if ((unsigned char)*value < ' ' || *value == 0x7F)
            return false;
    return true;
}

static int check_value(const char *name, const char *value, struct cay_error *err)
{
    size_t len = strlen(value);

    if (len >= STORED_TEXT_MIN && len <= STORED_TEXT_MAX && is_text(value))
        return CAY_OK;
    return cay_fail(err, CAY_E_INVALID, 0, op, name,
                    "the value of the secret is too short, too long or not text",
                    "use 8 to 4096 bytes without control characters");
}

static int take_name(const char *name, struct stored_row *row, struct cay_error *err)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789_-";
    size_t len = strlen(name);

    if (len < sizeof row->name)
        for (size_t i = 0; i <= len; i++)
            row->name[i] = (char)tolower((unsigned char)name[i]);
    if (len && len < sizeof row->name && strspn(row->name, letters) == len &&
        strncmp(row->name, "sec_", 4) != 0)
        return CAY_OK;
    return cay_fail(err, CAY_E_INVALID, 0, op, NULL, "invalid name of a secret",
                    "use 1 to 128 letters, digits, \"_\" and \"-\", not \"sec_...\"");
}

/* --- Changes --- */

static int draw_id(struct stored_row *row, struct cay_error *err)
{
    unsigned char bytes[ID_BYTES];

    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return cay_fail_errno(err, errno, op, "getrandom");
    int len = snprintf(row->id, sizeof row->id, "sec_");
    for (size_t i = 0; i < sizeof bytes; i++)
        len += snprintf(row->id + len, sizeof row->id - (size_t)len, "%02x", bytes[i]);
    return CAY_OK;
}

static void take_metadata(const struct stored_change *change, struct stored_row *row)
{
    if (!change->metadata)
        return;
    row->metadata.len = 0;
    (void)buf_append(&row->metadata, change->metadata->data, change->metadata->len);
}

static int add(struct registry *registry, const struct secrets *secrets,
               const struct stored_change *change, struct stored_row *row,
               struct cay_error *err)
{
    TRY(take_name(change->name, row, err));
    TRY(draw_id(row, err));
    cay_copy_text(row->tenant, sizeof row->tenant, change->tenant);
    row->version = 1;
    row->created_ms = row->updated_ms = clock_since_1970_ms();
    TRY(seal(secrets, change->value, row, err));
    return registry_add_stored(registry, row, err);
}

int stored_set(struct registry *registry, const struct secrets *secrets,
               const struct stored_change *change, struct stored_row *ret_row,
               struct cay_error *err)
{
    struct stored_row *row = ret_row;
    int code = CAY_E_NOT_FOUND;

    TRY(check_value(change->name, change->value, err));
    if (change->mode & STORED_CHANGE)
        code = registry_find_stored(registry, change->tenant, change->name, row, err);
    bool is_new = code == CAY_E_NOT_FOUND && change->mode & STORED_NEW;
    if (code && !is_new)
        return code;
    take_metadata(change, row);
    if (row->metadata.failed)
        return cay_fail(err, CAY_E_INVALID, 0, op, change->name,
                        "too much metadata for a secret", "the limit is 12 KiB");
    if (is_new)
        return add(registry, secrets, change, row, err);
    row->version++;
    row->updated_ms = clock_since_1970_ms();
    TRY(seal(secrets, change->value, row, err));
    return registry_change_stored(registry, row, err);
}

int stored_open(struct registry *registry, const struct secrets *secrets,
                const char *tenant, const char *which, char ret_value[STORED_OPEN_MAX],
                struct cay_error *err)
{
    AUTO_STORED row = STORED_INIT;

    TRY(registry_find_stored(registry, tenant, which, &row, err));
    return unseal(secrets, &row, ret_value, err);
}
