/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_TREE_H
#define TESTS_TREE_H

#include <stdbool.h>
#include <stddef.h>

/* Makes the file, and the directories above it, from nothing. */
void tree_put(const char *path, const void *data, size_t len);

/* Removes the directory with all that is in it, if it is there. */
void tree_clear(const char *directory);

/* Everything below a directory in words: a sorted line per name with its type, mode, and
 * the size and a hash of its content.  free() it. */
char *tree_words(const char *directory);

/* Whether each line of `words` is also one of `old` or `now`. */
bool tree_is_mixture(const char *words, const char *old, const char *now);

#endif
