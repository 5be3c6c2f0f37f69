/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_NEAREST_H
#define BASE_NEAREST_H

#include <stddef.h>

/* A name among `count` that may have been meant by a word that is none of them: one that
 * starts with it, or is at most two letters off; NULL if there is none.  `names` points
 * at the first; the next are `stride` bytes apart. */
const char *nearest_name(const char *word, const void *names, size_t stride,
                         size_t count);

#endif
