/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_MAKE_HEADERS_H
#define NATIVE_MAKE_HEADERS_H

#include "cay/policy.h"

/* Gives a sandbox whose cay-net serves other headers for its requests.
 * CAY_E_UNSUPPORTED: it has no cay-net-tls, and there are some. */
int headers_set(const char *id, const struct cay_header *headers, size_t count,
                struct cay_error *err);

#endif
