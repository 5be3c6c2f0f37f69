/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_WORDS_H
#define BASE_WORDS_H

#include <stddef.h>
#include <stdint.h>

/* Numbers and lists for people, in fixed storage, so that an out-of-memory error needs no
 * memory. */

struct words_number {
    char text[32];
};

/* 1234567 is "1,234,567". */
struct words_number words_number(uint64_t number);

/* "a, b" or "none"; what has no room is counted: "a, b, and 12 more". */
struct words_list {
    char text[448];
    size_t len, left_out;
};

void words_add(struct words_list *list, const char *item);
const char *words_end(struct words_list *list);

#endif
