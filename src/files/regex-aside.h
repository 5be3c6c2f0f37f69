/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FILES_REGEX_ASIDE_H
#define FILES_REGEX_ASIDE_H

#include "files/regex.h"
#include "sys/worker.h"

/* Matching in a process of its own.  PCRE2 counts the steps of a match, but a step may
 * pass over all of the text, and the count begins anew with each byte at which a match is
 * tried.  On a long line nobody can tell how long that takes, so it is done where it can
 * be ended. */
struct regex_aside {
    struct worker worker; /* begun with the first match */
    bool is_refused;      /* there can be none: matches are made here */
};

#define REGEX_ASIDE_NONE                                                                 \
    {                                                                                    \
        .worker = WORKER_NONE                                                            \
    }

/* As regex_match(), and CAY_E_TIMEOUT past the deadline.  The text lies in memory that
 * was mapped MAP_SHARED before the first match, with the same regex as then. */
int regex_aside_match(struct regex_aside *aside, const struct regex *regex,
                      const char *op, const struct regex_text *text, uint64_t deadline_ns,
                      struct regex_span *ret_span, struct cay_error *err);

void regex_aside_done(struct regex_aside *aside);

#endif
