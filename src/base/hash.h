/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_HASH_H
#define BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* SipHash-2-4 with a random key per process: an attacker who chooses names cannot make
 * them collide.  Values differ between processes. */
uint64_t hash_bytes(const void *data, size_t len);

/* FNV-1a, which is the same in every process: continues from `hash`. */
#define HASH_STABLE UINT64_C(0xCBF29CE484222325)
uint64_t hash_stable(uint64_t hash, const void *data, size_t len);

#endif
