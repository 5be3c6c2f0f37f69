/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TLS_AUTHORITY_H
#define TLS_AUTHORITY_H

#include <gnutls/gnutls.h>
#include <gnutls/x509.h>

#include "network/rules.h"

/* The certificate authority of one sandbox.  Its key exists only in the memory of this
 * process, and what it signs is valid only for the names that it may open. */

enum { AUTHORITY_LEAVES = 64 }; /* certificates that are kept for the next connection */

struct authority_leaf {
    char name[NETWORK_NAME_MAX];
    gnutls_certificate_credentials_t credentials;
};

struct authority {
    gnutls_x509_privkey_t key, leaf_key;
    gnutls_x509_crt_t certificate;
    size_t leaf_count;
    struct authority_leaf leaves[AUTHORITY_LEAVES];
};

/* `names` are those that it may open, and those below them; none: every name.  0 or a
 * code of GnuTLS. */
int authority_init(struct authority *ret_authority, const char *const *names,
                   size_t count);

/* Its certificate as text; 0 or a code of GnuTLS. */
int authority_write(const struct authority *authority, char *ret_text, size_t room);

/* What a server needs to be `name`.  *ret_is_own: the caller frees it. */
int authority_find(struct authority *authority, const char *name,
                   gnutls_certificate_credentials_t *ret_credentials, bool *ret_is_own);

#endif
