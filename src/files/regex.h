/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FILES_REGEX_H
#define FILES_REGEX_H

#include <stdbool.h>
#include <stddef.h>

#include "cay/error.h"
#include "sys/worker.h"

/* A regular expression in PCRE2's syntax, matched against one line at a time, with limits
 * on the steps and the memory of each match.  Text need not be UTF-8. */
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

/* CAY_E_INVALID with the reason and its offset in the expression. */
int regex_compile(const char *op, const char *text, unsigned flags,
                  struct regex *ret_regex, struct cay_error *err);
void regex_done(struct regex *regex);

/* A line, or a piece of one. */
struct regex_text {
    const char *bytes;
    size_t len;
    size_t start; /* a match begins here or later; lookbehinds see the bytes before */
    bool goes_on; /* the line is longer than the text */
};

/* 1 and the first match, 0 if there is none, CAY_E_LIMIT beyond the limits, or
 * CAY_E_NO_MEMORY. */
int regex_match(const struct regex *regex, const char *op, const struct regex_text *text,
                struct regex_span *ret_span, struct cay_error *err);

/* Matching in a worker process.  PCRE2 limits the steps of a match, but a step may scan
 * the whole text, and the count starts again at each byte where a match is tried.  On a
 * long line that is no bound, so the worker is killed at the deadline. */
struct regex_worker {
    struct worker worker; /* started by the first match */
    bool is_refused;      /* it cannot be started: match in this process */
};

#define REGEX_WORKER_NONE                                                                \
    {                                                                                    \
        .worker = WORKER_NONE                                                            \
    }

/* As regex_match(), and CAY_E_TIMEOUT at the deadline.  The text must be in memory mapped
 * MAP_SHARED before the first match; each call must have the same regex. */
int regex_worker_match(struct regex_worker *self, const struct regex *regex,
                       const char *op, const struct regex_text *text,
                       uint64_t deadline_ns, struct regex_span *ret_span,
                       struct cay_error *err);

void regex_worker_done(struct regex_worker *self);

#endif
