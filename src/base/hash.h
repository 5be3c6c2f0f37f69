/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_HASH_H
#define BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* SipHash-2-4 under a key drawn once per process: names an attacker chooses cannot be
 * made to collide.  Values mean nothing in another process. */
uint64_t hash_bytes(const void *data, size_t len);

#endif
