/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FILES_REGEX_H
#define FILES_REGEX_H

#include <stdbool.h>
#include <stddef.h>

#include "cay/error.h"

/* A regular expression in PCRE2's syntax that is matched against one line at a time, with
 * bounds on the work and the memory of each match.  Text need not be UTF-8. */
struct regex {
    struct pcre2_real_code_8 *code;
    struct pcre2_real_match_data_8 *data;
    struct pcre2_real_match_context_8 *context;
    struct pcre2_real_jit_stack_8 *stack;
};

struct regex_span {
    size_t start, end;
};

enum { REGEX_IGNORE_CASE = 1 << 0, REGEX_FIXED = 1 << 1 };

/* CAY_E_INVALID says what is wrong with the expression and where. */
int regex_compile(const char *op, const char *text, unsigned flags,
                  struct regex *ret_regex, struct cay_error *err);
void regex_done(struct regex *regex);

/* A line, or a piece of one. */
struct regex_text {
    const char *bytes;
    size_t len;
    size_t start; /* a match begins here or later; what is before can only be seen */
    bool goes_on; /* the line does not end where the text does */
};

/* 1 and the first match, 0 if there is none, CAY_E_LIMIT if it takes too much, or
 * CAY_E_NO_MEMORY. */
int regex_match(const struct regex *regex, const char *op, const struct regex_text *text,
                struct regex_span *ret_span, struct cay_error *err);

/* The words for the two codes with which that fails. */
int regex_fail(int code, const char *op, struct cay_error *err);

#endif
