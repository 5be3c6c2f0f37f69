/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_MAKE_JKS_H
#define NATIVE_MAKE_JKS_H

#include "base/buf.h"

/* Appends the certificates of `text` (PEM) as a trust store of Java, in its format JKS
 * with Java's usual password.  False if memory is exhausted, or a certificate is damaged.
 */
bool jks_write(const char *text, size_t len, struct buf *out);

#endif
