/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_NEAREST_H
#define BASE_NEAREST_H

#include <stddef.h>

/* A suggestion for an unknown word: one of `count` names that starts with it or differs
 * by at most two letters; NULL if there is none.  `names` points at the first; the next
 * are `stride` bytes apart. */
const char *nearest_name(const char *word, const void *names, size_t stride,
                         size_t count);

#endif
