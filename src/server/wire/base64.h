/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVER_WIRE_BASE64_H
#define SERVER_WIRE_BASE64_H

#include <stddef.h>

/* As base64_encode_raw() of nettle, which takes more than twice as long: writes
 * BASE64_ENCODE_RAW_LENGTH(len) characters. */
void base64_encode(char *to, const void *from, size_t len);

#endif
