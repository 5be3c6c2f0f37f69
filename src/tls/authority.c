/* SPDX-License-Identifier: Apache-2.0 */
#include "tls/authority.h"

#include <gnutls/crypto.h>
#include <string.h>
#include <time.h>

enum { BEFORE_S = 3600 /* for clocks that differ */, VALID_S = 7 * 86400, SERIAL = 16 };

/* Returns the code of a call of GnuTLS that fails. */
#define CHECK(call)                                                                      \
    do {                                                                                 \
        int check_ = (call);                                                             \
        if (check_ < 0)                                                                  \
            return check_;                                                               \
    } while (0)

static int make_key(gnutls_x509_privkey_t *ret_key)
{
    CHECK(gnutls_x509_privkey_init(ret_key));
    return gnutls_x509_privkey_generate(
        *ret_key, GNUTLS_PK_ECDSA, GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP256R1), 0);
}

/* What both certificates have. */
static int fill_common(gnutls_x509_crt_t certificate, gnutls_x509_privkey_t key,
                       const char *name)
{
    uint8_t serial[SERIAL], key_id[64];
    size_t key_id_len = sizeof key_id;
    time_t now = time(NULL);

    CHECK(gnutls_rnd(GNUTLS_RND_NONCE, serial, sizeof serial));
    serial[0] = (serial[0] & 0x7F) | 0x40; /* a positive number of this length */
    CHECK(gnutls_x509_crt_set_version(certificate, 3));
    CHECK(gnutls_x509_crt_set_serial(certificate, serial, sizeof serial));
    CHECK(gnutls_x509_crt_set_activation_time(certificate, now - BEFORE_S));
    CHECK(gnutls_x509_crt_set_expiration_time(certificate, now + VALID_S));
    CHECK(gnutls_x509_crt_set_dn(certificate, name, NULL));
    CHECK(gnutls_x509_crt_set_key(certificate, key));
    CHECK(gnutls_x509_crt_get_key_id(certificate, 0, key_id, &key_id_len));
    return gnutls_x509_crt_set_subject_key_id(certificate, key_id,
                                              key_id_len < 20 ? key_id_len : 20);
}

static int exclude_addresses(gnutls_x509_name_constraints_t constraints)
{
    static const char *const all[] = {"0.0.0.0/0", "::/0"};

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        gnutls_datum_t range;
        CHECK(gnutls_x509_cidr_to_rfc5280(all[i], &range));
        int code = gnutls_x509_name_constraints_add_excluded(
            constraints, GNUTLS_SAN_IPADDRESS, &range);
        gnutls_free(range.data);
        CHECK(code);
    }
    return 0;
}

static int constrain(gnutls_x509_crt_t certificate, const char *const *names,
                     size_t count)
{
    gnutls_x509_name_constraints_t constraints;
    int code = gnutls_x509_name_constraints_init(&constraints);

    if (code < 0 || !count) {
        gnutls_x509_name_constraints_deinit(code < 0 ? NULL : constraints);
        return code;
    }
    for (size_t i = 0; code >= 0 && i < count; i++) {
        uint8_t text[NETWORK_NAME_MAX];
        gnutls_datum_t name = {text, (unsigned)strlen(names[i])};
        memcpy(text, names[i], name.size);
        code = gnutls_x509_name_constraints_add_permitted(constraints, GNUTLS_SAN_DNSNAME,
                                                          &name);
    }
    if (code >= 0)
        code = exclude_addresses(constraints);
    if (code >= 0)
        code = gnutls_x509_crt_set_name_constraints(certificate, constraints, 1);
    gnutls_x509_name_constraints_deinit(constraints);
    return code;
}

int authority_init(struct authority *ret_authority, const char *const *names,
                   size_t count)
{
    struct authority *authority = ret_authority;

    memset(authority, 0, sizeof *authority);
    CHECK(make_key(&authority->key));
    CHECK(make_key(&authority->leaf_key));
    CHECK(gnutls_x509_crt_init(&authority->certificate));
    gnutls_x509_crt_t certificate = authority->certificate;
    CHECK(fill_common(certificate, authority->key, "CN=Cay sandbox authority"));
    CHECK(gnutls_x509_crt_set_basic_constraints(certificate, 1, 0));
    CHECK(gnutls_x509_crt_set_key_usage(certificate,
                                        GNUTLS_KEY_KEY_CERT_SIGN | GNUTLS_KEY_CRL_SIGN));
    CHECK(constrain(certificate, names, count));
    return gnutls_x509_crt_sign2(certificate, certificate, authority->key,
                                 GNUTLS_DIG_SHA256, 0);
}

int authority_write(const struct authority *authority, char *ret_text, size_t room)
{
    gnutls_datum_t text;

    CHECK(gnutls_x509_crt_export2(authority->certificate, GNUTLS_X509_FMT_PEM, &text));
    bool fits = text.size < room;
    if (fits) {
        memcpy(ret_text, text.data, text.size);
        ret_text[text.size] = '\0';
    }
    gnutls_free(text.data);
    return fits ? 0 : GNUTLS_E_SHORT_MEMORY_BUFFER;
}

static int sign_leaf(const struct authority *authority, const char *name,
                     gnutls_x509_crt_t leaf)
{
    uint8_t key_id[64];
    size_t key_id_len = sizeof key_id;

    CHECK(fill_common(leaf, authority->leaf_key, "CN=Cay sandbox"));
    CHECK(gnutls_x509_crt_set_basic_constraints(leaf, 0, -1));
    CHECK(gnutls_x509_crt_set_key_usage(leaf, GNUTLS_KEY_DIGITAL_SIGNATURE));
    CHECK(gnutls_x509_crt_set_key_purpose_oid(leaf, GNUTLS_KP_TLS_WWW_SERVER, 0));
    CHECK(gnutls_x509_crt_set_subject_alt_name(leaf, GNUTLS_SAN_DNSNAME, name,
                                               (unsigned)strlen(name), GNUTLS_FSAN_SET));
    CHECK(gnutls_x509_crt_get_subject_key_id(authority->certificate, key_id, &key_id_len,
                                             NULL));
    CHECK(gnutls_x509_crt_set_authority_key_id(leaf, key_id, key_id_len));
    return gnutls_x509_crt_sign2(leaf, authority->certificate, authority->key,
                                 GNUTLS_DIG_SHA256, 0);
}

static int make_leaf(const struct authority *authority, const char *name,
                     gnutls_certificate_credentials_t *ret_credentials)
{
    gnutls_x509_crt_t leaf;

    CHECK(gnutls_x509_crt_init(&leaf));
    int code = sign_leaf(authority, name, leaf);
    if (code >= 0)
        code = gnutls_certificate_allocate_credentials(ret_credentials);
    if (code >= 0) {
        code = gnutls_certificate_set_x509_key(*ret_credentials, &leaf, 1,
                                               authority->leaf_key);
        if (code < 0)
            gnutls_certificate_free_credentials(*ret_credentials);
    }
    gnutls_x509_crt_deinit(leaf);
    return code;
}

int authority_find(struct authority *authority, const char *name,
                   gnutls_certificate_credentials_t *ret_credentials, bool *ret_is_own)
{
    *ret_is_own = false;
    for (size_t i = 0; i < authority->leaf_count; i++)
        if (strcmp(authority->leaves[i].name, name) == 0) {
            *ret_credentials = authority->leaves[i].credentials;
            return 0;
        }
    CHECK(make_leaf(authority, name, ret_credentials));
    *ret_is_own = authority->leaf_count == AUTHORITY_LEAVES;
    if (*ret_is_own)
        return 0;
    struct authority_leaf *leaf = &authority->leaves[authority->leaf_count++];
    memcpy(leaf->name, name, strlen(name) + 1);
    leaf->credentials = *ret_credentials;
    return 0;
}
