/* SPDX-License-Identifier: Apache-2.0 */
#ifndef AGENT_TEXT_H
#define AGENT_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Output of programs, made readable. */

enum { TEXT_MIN_RUN = 4 };

/* A NUL-terminated copy with U+FFFD for each part that is not UTF-8, as by Python's
 * errors="replace".  NULL if out of memory. */
char *text_decode(const char *bytes, size_t len, size_t *ret_len);

/* These expect UTF-8, change the text in place, and return the new length. */
size_t text_strip_ansi(char *text, size_t len);
size_t text_resolve_cr(char *text, size_t len);

/* NULL if out of memory.  *ret_missing: lines were left out. */
char *text_collapse(const char *text, size_t len, uint32_t min_run, size_t *ret_len,
                    bool *ret_missing);

size_t text_chars(const char *text, size_t len);

/* Where the character number `chars` begins, counted from 0; at most `len`. */
size_t text_offset(const char *text, size_t len, size_t chars);

#endif
