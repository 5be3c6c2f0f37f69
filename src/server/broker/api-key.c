/* SPDX-License-Identifier: Apache-2.0 */
#include "server/broker/api-key.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "server/broker/secrets.h"

enum { API_KEY_BYTES = 20, DEFAULT_LEN = 4 + 2 * API_KEY_BYTES };

static const char default_name[] = "serve.api-key";

int api_key_new(struct registry *registry, const char *tenant, char ret_key[API_KEY_MAX],
                struct cay_error *err)
{
    unsigned char bytes[API_KEY_BYTES];

    int code = secrets_draw(bytes, sizeof bytes, err);
    if (code)
        return code;
    memcpy(ret_key, "e2b_", 4);
    secrets_to_hex(bytes, sizeof bytes, ret_key + 4);
    return api_key_add(registry, tenant, ret_key, err);
}

int api_key_add(struct registry *registry, const char *tenant, const char *key,
                struct cay_error *err)
{
    unsigned char digest[HASH];
    char known[TENANT_MAX];
    struct key_row row = {0};
    size_t len = strlen(key);

    if (strncmp(key, "e2b_", 4) != 0 || strspn(key + 4, "0123456789abcdef") != len - 4 ||
        len < 24 || len >= API_KEY_MAX)
        return cay_fail(err, CAY_E_INVALID, 0, "secrets.key", NULL, "invalid API key",
                        "use \"e2b_\" and 20 to 59 hexadecimal digits (0-9, a-f)");
    secrets_hash(key, digest);
    if (registry_find_key(registry, digest, known, NULL) == CAY_OK)
        return CAY_OK;
    row.created_ms = clock_since_1970_ms();
    cay_copy_text(row.tenant, sizeof row.tenant, tenant);
    snprintf(row.shown, sizeof row.shown, "%.10s...", key);
    return registry_add_key(registry, digest, &row, err);
}

int api_key_tenant(struct registry *registry, const char *key,
                   char ret_tenant[TENANT_MAX], struct cay_error *err)
{
    unsigned char digest[HASH];

    secrets_hash(key, digest);
    return registry_find_key(registry, digest, ret_tenant, err);
}

/* 1 if it was read, 0 if there is no file. */
static int read_default(const char *directory, char ret_key[API_KEY_MAX],
                        struct cay_error *err)
{
    char path[PATH_MAX];

    snprintf(path, sizeof path, "%s/%s", directory, default_name);
    memset(ret_key, 0, API_KEY_MAX);
    return secrets_read_private(path, default_name, ret_key, DEFAULT_LEN, err);
}

int api_key_adopt(struct registry *registry, const char *directory, struct cay_error *err)
{
    char key[API_KEY_MAX];
    int got = read_default(directory, key, err);

    if (got == 1)
        got = api_key_add(registry, "default", key, err);
    explicit_bzero(key, sizeof key);
    return got;
}

static int check_known(struct registry *registry, const char *key, struct cay_error *err)
{
    char tenant[TENANT_MAX];

    if (api_key_tenant(registry, key, tenant, err) != CAY_E_NOT_FOUND)
        return CAY_OK;
    return cay_fail(
        err, CAY_E_NOT_FOUND, 0, "secrets.key", default_name,
        "the default API key was removed",
        "remove this file from $CAY_HOME, and the next start creates a new key");
}

int api_key_find(struct registry *registry, const char *directory,
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

int api_key_default(struct registry *registry, const char *directory,
                    char ret_key[API_KEY_MAX], struct cay_error *err)
{
    for (int i = 0; i < 2; i++) {
        int got = read_default(directory, ret_key, err);
        if (got < 0)
            return got;
        if (got == 1)
            return check_known(registry, ret_key, err);
        int code = api_key_new(registry, "default", ret_key, err);
        if (!code)
            code =
                secrets_write_private(directory, default_name, ret_key, DEFAULT_LEN, err);
        if (code)
            return code;
    }
    return CAY_OK;
}
