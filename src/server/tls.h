/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_TLS_H
#define SERVER_TLS_H

#include "cay/error.h"

/* The content of both files, if they are a certificate and its key; to be freed. */
int tls_read(const char *cert_path, const char *key_path, char **ret_cert, char **ret_key,
             struct cay_error *err);

#endif
