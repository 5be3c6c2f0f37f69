/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_UTF8_WIDEN_H
#define BASE_UTF8_WIDEN_H

#include <stddef.h>

/* The characters of text that is known to be UTF-8, as numbers of `width` bytes: 1, 2 or
 * 4, and enough for the highest of them.  `to` has room for as many as there are, and no
 * more is touched.  Returns how many. */
size_t utf8_widen(const void *text, size_t len, unsigned width, void *to);

/* The same without what only some processors have, to compare with. */
size_t utf8_widen_plainly(const void *text, size_t len, unsigned width, void *to);

#endif
