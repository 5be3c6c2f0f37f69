/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SYS_COPY_H
#define SYS_COPY_H

#include <stdint.h>

/* Copies up to `max` bytes from where `from` stands, or as many as there are until its
 * end, in the best way the kernel knows for the two.  Holes of a file stay holes where
 * the other is a file that ends where it stands.  0 or a negative errno; *ret_copied is
 * right either way. */
int copy_bytes(int from, int to, uint64_t max, uint64_t *ret_copied);

#endif
