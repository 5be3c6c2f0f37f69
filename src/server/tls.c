/* SPDX-License-Identifier: Apache-2.0 */

/* The files of --tls-cert and --tls-key. */
#include "server/commands.h"

#include <errno.h>
#include <fcntl.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/buf.h"
#include "base/error.h"

enum { PEM_MAX = 1 << 20 };

static const char tls_op[] = "serve.tls";

static int read_pem(const char *path, char **ret_text, struct cay_error *err)
{
    AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC);
    AUTO_BUF text = {.max = PEM_MAX};

    for (;;) {
        if (fd < 0 || !buf_reserve(&text, 4096))
            return cay_fail_errno(err, fd < 0 ? errno : EFBIG, tls_op, path);
        ssize_t got = read(fd, text.data + text.len, 4095);
        if (got < 0)
            return cay_fail_errno(err, errno, tls_op, path);
        if (got == 0)
            break;
        text.len += (size_t)got;
        text.data[text.len] = '\0';
    }
    *ret_text = buf_take(&text);
    return *ret_text ? CAY_OK : cay_fail_memory(err, tls_op);
}

static gnutls_datum_t datum(char *text)
{
    return (gnutls_datum_t){(unsigned char *)text, (unsigned)strlen(text)};
}

/* Checked here, since the front would only exit on a bad pair. */
static int check_pair(const char *cert_path, const char *key_path, char *cert, char *key,
                      struct cay_error *err)
{
    const gnutls_datum_t shown = datum(cert), secret = datum(key);
    gnutls_certificate_credentials_t pair;

    if (gnutls_certificate_allocate_credentials(&pair) != GNUTLS_E_SUCCESS)
        return cay_fail_memory(err, tls_op);
    int certs = gnutls_certificate_set_x509_trust_mem(pair, &shown, GNUTLS_X509_FMT_PEM);
    int result =
        gnutls_certificate_set_x509_key_mem(pair, &shown, &secret, GNUTLS_X509_FMT_PEM);
    gnutls_certificate_free_credentials(pair);
    if (certs <= 0)
        return cay_fail(err, CAY_E_INVALID, 0, tls_op, cert_path, "not a PEM certificate",
                        "check --tls-cert");
    if (result == GNUTLS_E_CERTIFICATE_KEY_MISMATCH)
        return cay_fail(err, CAY_E_INVALID, 0, tls_op, key_path,
                        "the key does not match the certificate",
                        "give the key that belongs to --tls-cert");
    if (result != GNUTLS_E_SUCCESS)
        return cay_fail(err, CAY_E_INVALID, 0, tls_op, key_path,
                        "not a PEM private key, or an encrypted one", "check --tls-key");
    return CAY_OK;
}

int server_tls_load(const struct serve_options *options, char **ret_cert, char **ret_key,
                    struct cay_error *err)
{
    TRY(read_pem(options->tls_cert, ret_cert, err));
    TRY(read_pem(options->tls_key, ret_key, err));
    return check_pair(options->tls_cert, options->tls_key, *ret_cert, *ret_key, err);
}

/* Names of sandboxes have one label more than the domain. */
static const char *find_doubt(gnutls_x509_crt_t cert, const char *domain)
{
    time_t now = time(NULL);
    char name[300];

    if (gnutls_x509_crt_get_expiration_time(cert) < now)
        return "the certificate has expired";
    if (gnutls_x509_crt_get_activation_time(cert) > now)
        return "the certificate is not valid yet";
    if (!domain)
        return NULL;
    int host = (int)strcspn(domain, ":");
    snprintf(name, sizeof name, "%.*s", host, domain);
    if (!gnutls_x509_crt_check_hostname(cert, name))
        return "the certificate is not for --domain";
    snprintf(name, sizeof name, "3000-id.%.*s", host, domain);
    return gnutls_x509_crt_check_hostname(cert, name)
               ? NULL
               : "the certificate is not for the names of sandboxes: *.DOMAIN";
}

const char *server_tls_doubt(const char *cert, const char *domain)
{
    gnutls_datum_t pem = {(unsigned char *)(uintptr_t)cert, (unsigned)strlen(cert)};
    gnutls_x509_crt_t first;
    const char *doubt = NULL;

    if (gnutls_x509_crt_init(&first) != GNUTLS_E_SUCCESS)
        return NULL;
    if (gnutls_x509_crt_import(first, &pem, GNUTLS_X509_FMT_PEM) == GNUTLS_E_SUCCESS)
        doubt = find_doubt(first, domain);
    gnutls_x509_crt_deinit(first);
    return doubt;
}
