/* SPDX-License-Identifier: Apache-2.0 */
#include "server/tls.h"

#include <errno.h>
#include <fcntl.h>
#include <gnutls/gnutls.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/buf.h"
#include "base/error.h"

enum { PEM_MAX = 1 << 20 };

static const char op[] = "serve.tls";

static int read_pem(const char *path, char **ret_text, struct cay_error *err)
{
    AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC);
    AUTO_BUF text = {0};

    buf_init(&text, PEM_MAX);
    for (;;) {
        if (fd < 0 || !buf_reserve(&text, 4096))
            return cay_fail_errno(err, fd < 0 ? errno : EFBIG, op, path);
        ssize_t got = read(fd, text.data + text.len, 4095);
        if (got < 0)
            return cay_fail_errno(err, errno, op, path);
        if (got == 0)
            break;
        text.len += (size_t)got;
        text.data[text.len] = '\0';
    }
    *ret_text = buf_take(&text);
    return *ret_text ? CAY_OK : cay_fail_memory(err, op);
}

static gnutls_datum_t datum(char *text)
{
    return (gnutls_datum_t){(unsigned char *)text, (unsigned)strlen(text)};
}

/* The half that will speak TLS could only die of a pair that is none. */
static int check_pair(const char *cert_path, const char *key_path, char *cert, char *key,
                      struct cay_error *err)
{
    const gnutls_datum_t shown = datum(cert), secret = datum(key);
    gnutls_certificate_credentials_t pair;

    if (gnutls_certificate_allocate_credentials(&pair) != GNUTLS_E_SUCCESS)
        return cay_fail_memory(err, op);
    int certs = gnutls_certificate_set_x509_trust_mem(pair, &shown, GNUTLS_X509_FMT_PEM);
    int result =
        gnutls_certificate_set_x509_key_mem(pair, &shown, &secret, GNUTLS_X509_FMT_PEM);
    gnutls_certificate_free_credentials(pair);
    if (certs <= 0)
        return cay_fail(err, CAY_E_INVALID, 0, op, cert_path,
                        "this is no certificate in PEM", "give another --tls-cert");
    if (result == GNUTLS_E_CERTIFICATE_KEY_MISMATCH)
        return cay_fail(err, CAY_E_INVALID, 0, op, key_path,
                        "this is the key of another certificate",
                        "give the one that belongs to --tls-cert");
    if (result != GNUTLS_E_SUCCESS)
        return cay_fail(err, CAY_E_INVALID, 0, op, key_path,
                        "this is no private key in PEM, or one with a password",
                        "give another --tls-key");
    return CAY_OK;
}

int tls_read(const char *cert_path, const char *key_path, char **ret_cert, char **ret_key,
             struct cay_error *err)
{
    AUTO_FREE char *cert = NULL, *key = NULL;
    int code = read_pem(cert_path, &cert, err);

    if (!code)
        code = read_pem(key_path, &key, err);
    if (!code)
        code = check_pair(cert_path, key_path, cert, key, err);
    if (code)
        return code;
    *ret_cert = TAKE_PTR(cert);
    *ret_key = TAKE_PTR(key);
    return CAY_OK;
}
