/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NATIVE_TEMPLATE_DIGEST_H
#define NATIVE_TEMPLATE_DIGEST_H

#include <stdbool.h>
#include <stdint.h>

enum { DIGEST_HEX = 64 };

/* "sha256:" and 64 lower-case hexadecimal digits: where those begin, or NULL. */
const char *digest_hex(const char *digest);

/* The SHA-256 of all that can be read from `from`, as hexadecimal text.  With `to` not -1
 * the bytes are also written there.  0 or a negative errno: -EFBIG if there are more than
 * `max`. */
int digest_stream(int from, int to, uint64_t max, char ret_hex[DIGEST_HEX + 1]);

#endif
