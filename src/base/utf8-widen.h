/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_UTF8_WIDEN_H
#define BASE_UTF8_WIDEN_H

#include <stddef.h>

/* Decodes valid UTF-8 into code points of `width` bytes: 1, 2 or 4, enough for the
 * highest of them.  `to` has room for exactly that many.  Returns their number. */
size_t utf8_widen(const void *text, size_t len, unsigned width, void *to);

/* The same without special instructions, for comparison in tests. */
size_t utf8_widen_plainly(const void *text, size_t len, unsigned width, void *to);

#endif
